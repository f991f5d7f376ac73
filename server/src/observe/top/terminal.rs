use std::io;
use std::time::{Duration, Instant};

use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Terminal};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::client::{Client, TopError};
use super::view::{State, lines, problems};

const INTERVAL: Duration = Duration::from_secs(1);

/// Shows a snapshot in the terminal each second, until the user presses `q`, Escape or Ctrl-C.
///
/// # Errors
///
/// Returns an error if the program has no terminal.
pub fn watch(runtime: &Runtime, client: &Client) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let watched = watch_on(&mut terminal, runtime, client);
    ratatui::try_restore()?;
    watched
}

fn watch_on(terminal: &mut DefaultTerminal, runtime: &Runtime, client: &Client) -> io::Result<()> {
    let mut screen = Screen::default();
    loop {
        let next = Instant::now() + INTERVAL;
        screen.receive(runtime.block_on(client.fetch()));
        loop {
            screen.draw(terminal)?;
            if !event::poll(next.saturating_duration_since(Instant::now()))? {
                break;
            }
            match key(&event::read()?) {
                Key::End => return Ok(()),
                Key::Scroll(lines) => screen.scroll = screen.scroll.saturating_add_signed(lines),
                Key::Other => {}
            }
        }
    }
}

/// The content of the screen.
struct Screen {
    snapshot: Value,
    state: State,
    /// The index of the first visible line below the fixed lines (the state and the problems).
    scroll: u16,
}

impl Default for Screen {
    fn default() -> Self {
        Self { snapshot: Value::Null, state: State::Live, scroll: 0 }
    }
}

impl Screen {
    /// Shows a new snapshot. If fetching failed, the previous snapshot stays.
    fn receive(&mut self, fetched: Result<Value, TopError>) {
        self.state = match fetched {
            Ok(snapshot) => {
                self.snapshot = snapshot;
                State::Live
            }
            Err(error) => State::Stale(error.to_string()),
        };
    }

    fn draw<B: Backend>(&mut self, terminal: &mut Terminal<B>) -> Result<(), B::Error> {
        let width = terminal.size()?.width.into();
        let mut lines = lines(&self.snapshot, &self.state, Some(width));
        // The lines with the state and the problems do not scroll, but take at most half of the
        // screen.
        let room = usize::from(terminal.size()?.height / 2).max(1);
        let fixed = (1 + problems(&self.snapshot).count()).min(room);
        let rest = lines.split_off(fixed.min(lines.len()));
        let last = u16::try_from(rest.len().saturating_sub(1)).unwrap_or(u16::MAX);
        self.scroll = self.scroll.min(last);
        terminal.draw(|frame| {
            let [top, below] = Layout::vertical([
                Constraint::Length(u16::try_from(fixed).unwrap_or(u16::MAX)),
                Constraint::Fill(1),
            ])
            .areas(frame.area());
            frame.render_widget(Paragraph::new(lines), top);
            frame.render_widget(Paragraph::new(rest).scroll((self.scroll, 0)), below);
        })?;
        Ok(())
    }
}

enum Key {
    End,
    Scroll(i16),
    Other,
}

fn key(event: &Event) -> Key {
    let Event::Key(key) = event else { return Key::Other };
    if key.kind == KeyEventKind::Release {
        return Key::Other;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Key::End,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
        KeyCode::Down | KeyCode::Char('j') => Key::Scroll(1),
        KeyCode::Up | KeyCode::Char('k') => Key::Scroll(-1),
        KeyCode::PageDown => Key::Scroll(10),
        KeyCode::PageUp => Key::Scroll(-10),
        KeyCode::Home => Key::Scroll(i16::MIN),
        _ => Key::Other,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;
    use serde_json::json;

    use super::*;
    use crate::observe::top::TopTls;

    #[test]
    fn keys_end_and_scroll_and_others_do_nothing() {
        let effect_of_key = |code, modifiers, kind| match key(&Event::Key(KeyEvent::new_with_kind(
            code, modifiers, kind,
        ))) {
            Key::End => None,
            Key::Scroll(lines) => Some(lines),
            Key::Other => Some(0),
        };
        let (plain, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (code, modifiers, effect) in [
            (KeyCode::Char('q'), plain, None),
            (KeyCode::Esc, plain, None),
            // The terminal is in raw mode, so that Ctrl-C is a key and does not send a signal.
            (KeyCode::Char('c'), control, None),
            (KeyCode::Char('c'), plain, Some(0)),
            (KeyCode::Char('x'), control, Some(0)),
            (KeyCode::Down, plain, Some(1)),
            (KeyCode::Char('j'), plain, Some(1)),
            (KeyCode::Up, plain, Some(-1)),
            (KeyCode::Char('k'), plain, Some(-1)),
            (KeyCode::PageDown, plain, Some(10)),
            (KeyCode::PageUp, plain, Some(-10)),
            (KeyCode::Home, plain, Some(i16::MIN)),
        ] {
            assert_eq!(effect_of_key(code, modifiers, KeyEventKind::Press), effect, "{code:?}");
            assert_eq!(effect_of_key(code, modifiers, KeyEventKind::Release), Some(0), "{code:?}");
        }
        assert!(matches!(key(&Event::Resize(80, 24)), Key::Other));
    }

    #[test]
    fn the_state_stays_above_and_the_rest_scrolls_to_its_last_line() {
        let mut terminal = Terminal::new(TestBackend::new(60, 4)).unwrap();
        let mut screen = Screen::default();
        let mut rows = |screen: &mut Screen| {
            screen.draw(&mut terminal).unwrap();
            let buffer = terminal.backend().buffer();
            [0, 1, 2].map(|y| (0..60).map(|x| buffer[(x, y)].symbol()).collect::<String>())
        };
        screen.receive(Ok(json!({"version": "1.2.3"})));
        let shown = rows(&mut screen);
        assert!(shown[0].starts_with("Tidegate 1.2.3, up for 0 s  live "), "{shown:?}");
        assert!(shown[1].starts_with("per second: "), "{shown:?}");
        screen.scroll = 2;
        let shown = rows(&mut screen);
        assert!(shown[0].contains("live") && shown[1].starts_with("LIMITS"), "{shown:?}");
        // A scroll position beyond the end becomes the position of the last line, so that the next
        // key has an effect.
        screen.scroll = u16::MAX;
        let shown = rows(&mut screen);
        assert!(shown[0].contains("live") && shown[1].starts_with("no call"), "{shown:?}");
        assert!(screen.scroll < 40, "{}", screen.scroll);

        screen.receive(Ok(json!({"version": "1.2.3", "problems": ["one", "two", "three"]})));
        screen.scroll = u16::MAX;
        let shown = rows(&mut screen);
        assert!(shown[0].contains("live") && shown[1].starts_with("! one"), "{shown:?}");
        assert!(shown[2].starts_with("no call"), "{shown:?}");
        screen.receive(Ok(json!({"version": "1.2.3"})));

        let error = Client::new("ftp://a", None, &TopTls::default()).unwrap_err();
        screen.receive(Err(error.clone()));
        let shown = rows(&mut screen);
        let stale = "Tidegate 1.2.3, up for 0 s  stale: ";
        assert!(shown[0].starts_with(stale), "{shown:?}");
        assert_eq!(screen.state, State::Stale(error.to_string()));
        screen.receive(Ok(json!({})));
        assert!(rows(&mut screen)[0].contains("live"));
    }
}
