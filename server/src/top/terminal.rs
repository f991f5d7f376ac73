use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::widgets::Paragraph;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::client::Client;
use super::view::{State, lines};

const INTERVAL: Duration = Duration::from_secs(1);

/// Shows snapshots in the terminal, one each second, until `q`, Escape or Ctrl-C.
///
/// # Errors
///
/// If there is no terminal.
pub fn watch(runtime: &Runtime, client: &Client) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let watched = watch_on(&mut terminal, runtime, client);
    ratatui::try_restore()?;
    watched
}

fn watch_on(terminal: &mut DefaultTerminal, runtime: &Runtime, client: &Client) -> io::Result<()> {
    let mut snapshot = Value::Null;
    let mut scroll: u16 = 0;
    loop {
        let next = Instant::now() + INTERVAL;
        let state = match runtime.block_on(client.fetch()) {
            Ok(fetched) => {
                snapshot = fetched;
                State::Live
            }
            Err(error) => State::Stale(error.to_string()),
        };
        loop {
            let width = terminal.size()?.width.into();
            let mut lines = lines(&snapshot, &state, width);
            // The first one has the state, and stays.
            let rest = lines.split_off(1.min(lines.len()));
            let last = u16::try_from(rest.len().saturating_sub(1)).unwrap_or(u16::MAX);
            scroll = scroll.min(last);
            terminal.draw(|frame| {
                let [top, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)])
                    .areas(frame.area());
                frame.render_widget(Paragraph::new(lines), top);
                frame.render_widget(Paragraph::new(rest).scroll((scroll, 0)), below);
            })?;
            if !event::poll(next.saturating_duration_since(Instant::now()))? {
                break;
            }
            match key(&event::read()?) {
                Key::End => return Ok(()),
                Key::Scroll(lines) => scroll = scroll.saturating_add_signed(lines),
                Key::Other => {}
            }
        }
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
