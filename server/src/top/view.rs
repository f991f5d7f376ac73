//! From a snapshot to lines.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::Value;

/// Whether the snapshot is the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It was received just now.
    Live,
    /// It is the only one.
    Once,
    /// It is old, for this reason.
    Stale(String),
}

/// The numbers of a table, each this wide.
const NUMBER: usize = 10;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const SOFT: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red);
const GOOD: Style = Style::new().fg(Color::Green);

/// The lines of a snapshot, each at most `width` columns wide. No character of it has an effect on the terminal.
#[must_use]
pub fn lines(snapshot: &Value, state: &State, width: usize) -> Vec<Line<'static>> {
    let width = width.clamp(40, 200);
    let now = number(snapshot, "now_ms");
    let mut view = View { lines: Vec::new(), width, now };
    view.head(snapshot, state);
    view.limits(snapshot);
    view.subjects(&snapshot["refused_subjects"]);
    view.stores(snapshot);
    view.configuration(&snapshot["configuration"]);
    view.slow_calls(snapshot);
    view.lines
}

struct View {
    lines: Vec<Line<'static>>,
    width: usize,
    now: u64,
}

impl View {
    fn head(&mut self, snapshot: &Value, state: &State) {
        let up = span(self.now.saturating_sub(number(snapshot, "started_ms")));
        let about = format!("Tidegate {}, up for {up}", text(snapshot, "version"));
        let (state, style) = match state {
            State::Live => ("  live".to_owned(), GOOD),
            State::Once => (String::new(), SOFT),
            State::Stale(why) => (format!("  stale: {}", visible(why)), BAD),
        };
        self.line(vec![Span::styled(about, BOLD), Span::styled(state, style)]);
        let totals = &snapshot["totals"];
        let rate = |name| rate(&totals[format!("{name}_per_second")]);
        self.line(vec![Span::raw(format!(
            "per second: {} admitted, {} refused, {} not decided",
            rate("admitted"),
            rate("refused"),
            rate("failed")
        ))]);
    }

    fn limits(&mut self, snapshot: &Value) {
        self.title("LIMITS, PER SECOND", &["admitted", "refused", "shadow"]);
        let limits = list(&snapshot["limits"]);
        for limit in limits {
            let name = match text(limit, "policy") {
                policy if policy.is_empty() => text(limit, "limit"),
                policy => format!("{}  {policy}", text(limit, "limit")),
            };
            let cells = ["admitted", "refused", "shadow"].map(|kind| {
                let value = &limit[format!("{kind}_per_second")];
                let is_hot = kind == "refused" && value.as_f64().is_some_and(|it| it > 0.0);
                (rate(value), if is_hot { BAD } else { Style::new() })
            });
            self.row(&name, &cells);
        }
        let other = &snapshot["other_limits"];
        let rates =
            ["admitted", "refused", "shadow"].map(|kind| &other[format!("{kind}_per_second")]);
        let is_any = rates.iter().any(|it| it.as_f64().is_some_and(|it| it > 0.0));
        if is_any || number(other, "count") > 0 {
            let cells = rates.map(|it| (rate(it), Style::new()));
            self.row(&format!("{} others", number(other, "count")), &cells);
        }
        self.none_if(limits.is_empty(), "no decision in the last minute");
    }

    fn subjects(&mut self, subjects: &Value) {
        self.title(
            "SUBJECTS REFUSED MOST, IN THIS MINUTE AND THE ONE BEFORE",
            &["at least", "at most"],
        );
        let are_shown = subjects["are_shown"].as_bool().unwrap_or(false);
        let top = list(&subjects["top"]);
        for it in top {
            let mut name = if are_shown { text(it, "subject") } else { "(hidden)".to_owned() };
            let tenant = text(it, "tenant");
            if !tenant.is_empty() {
                name = format!("{name}  tenant {tenant}");
            }
            let cells =
                ["at_least", "at_most"].map(|it_is| (count(number(it, it_is)), Style::new()));
            self.row(&format!("{name}  {}", text(it, "limit")), &cells);
        }
        self.none_if(top.is_empty(), "no refusal");
    }

    fn stores(&mut self, snapshot: &Value) {
        self.title("STORES", &["breaker", "answer"]);
        for store in list(&snapshot["stores"]) {
            let since = span(self.now.saturating_sub(number(store, "since_ms")));
            let (state, style) = match store["answers"].as_bool() {
                Some(true) => (format!("answers for {since}"), GOOD),
                Some(false) => (format!("no answer for {since}: {}", text(store, "error")), BAD),
                None => ("not asked yet".to_owned(), SOFT),
            };
            let breaker = match text(store, "breaker") {
                none if none.is_empty() => ("none".to_owned(), SOFT),
                closed if closed == "closed" => (closed, GOOD),
                open => (open, BAD),
            };
            let took = store["probe_us"].as_u64().map_or_else(|| "–".to_owned(), micros);
            let name = format!("{} ({})", text(store, "url"), text(store, "role"));
            self.row(&name, &[breaker, (took, Style::new())]);
            self.line(vec![Span::raw("  "), Span::styled(state, style)]);
        }
        for error in list(&snapshot["errors"]) {
            let line = format!(
                "  {}: {} per second, {} since the start",
                text(error, "kind"),
                rate(&error["per_second"]),
                count(number(error, "total"))
            );
            self.line(vec![Span::raw(line)]);
        }
    }

    fn configuration(&mut self, configuration: &Value) {
        self.title("CONFIGURATION", &[]);
        let ago = |at: &Value| span(self.now.saturating_sub(number(at, "at_ms")));
        let in_force = &configuration["in_force"];
        let line = format!(
            "{} limits in {} domains of {} files, in force for {}; changed {} times",
            count(number(in_force, "limits")),
            count(number(&in_force["domains"], "count")),
            count(number(&in_force["files"], "count")),
            ago(in_force),
            number(configuration, "loads").saturating_sub(1)
        );
        let refused = &configuration["refused"];
        let is_last = refused["is_last"].as_bool().unwrap_or(false);
        let refusal = (!refused.is_null())
            .then(|| format!("refused {} ago: {}", ago(refused), text(refused, "error")));
        let none = "no limits in force".to_owned();
        self.line(vec![Span::raw(if in_force.is_null() { none } else { line })]);
        if let Some(refusal) = refusal {
            self.line(vec![Span::styled(refusal, if is_last { BAD } else { SOFT })]);
        }
    }

    fn slow_calls(&mut self, snapshot: &Value) {
        self.title("SLOWEST CALLS, OF THIS MINUTE AND THE ONE BEFORE", &["outcome", "took"]);
        let calls = list(&snapshot["slow_calls"]);
        for call in calls {
            let ago = span(self.now.saturating_sub(number(call, "at_ms")));
            let name = [text(call, "protocol"), text(call, "limit"), text(call, "subject")]
                .map(|part| part + "  ")
                .concat();
            let name = format!("{ago} ago  {}", name.trim_end());
            let cells = [
                (text(call, "outcome"), Style::new()),
                (micros(number(call, "took_us")), Style::new()),
            ];
            self.row(&name, &cells);
        }
        self.none_if(calls.is_empty(), "no call");
    }

    fn title(&mut self, title: &str, columns: &[&str]) {
        self.lines.push(Line::default());
        let cells: Vec<_> = columns.iter().map(|it| ((*it).to_owned(), SOFT)).collect();
        self.cells(Span::styled(title.to_owned(), BOLD), &cells);
    }

    fn row(&mut self, name: &str, cells: &[(String, Style)]) {
        self.cells(Span::raw(name.to_owned()), cells);
    }

    /// A name, cut or filled up, and numbers at the right.
    fn cells(&mut self, name: Span<'static>, cells: &[(String, Style)]) {
        let room = self.width.saturating_sub(cells.len() * NUMBER);
        let name =
            if cells.is_empty() { name } else { fitted(&name, room.saturating_sub(1), true) };
        let mut spans = vec![name];
        for (cell, style) in cells {
            spans.push(Span::styled(format!("{cell:>NUMBER$}"), *style));
        }
        self.line(spans);
    }

    fn none_if(&mut self, is_empty: bool, why: &str) {
        if is_empty {
            self.line(vec![Span::styled(why.to_owned(), SOFT)]);
        }
    }

    /// Adds a line, of which at most the width is kept.
    fn line(&mut self, spans: Vec<Span<'static>>) {
        let mut room = self.width;
        let mut line = Line::default();
        for span in spans {
            let span = fitted(&span, room, false);
            room = room.saturating_sub(span.width());
            line.spans.push(span);
        }
        self.lines.push(line);
    }
}

/// The same, with `…` for what does not fit; filled up with spaces, and one after that, if asked for.
fn fitted(span: &Span<'_>, room: usize, is_filled: bool) -> Span<'static> {
    let mut text = span.content.to_string();
    if span.width() > room {
        while Span::raw(&*text).width() >= room && text.pop().is_some() {}
        if room > 0 {
            text.push('…');
        }
    }
    if is_filled {
        let missing = (room + 1).saturating_sub(Span::raw(&*text).width());
        text.extend(std::iter::repeat_n(' ', missing));
    }
    Span::styled(text, span.style)
}

/// Each character without an effect: of others, none is left.
pub(super) fn visible(text: &str) -> String {
    let is_visible =
        |char: char| matches!(char, '"' | '\'' | '\\') || char.escape_debug().len() == 1;
    text.chars().map(|char| if is_visible(char) { char } else { '\u{fffd}' }).collect()
}

fn text(of: &Value, name: &str) -> String {
    of[name].as_str().map(visible).unwrap_or_default()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or(0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(|it| &**it).unwrap_or_default()
}

fn rate(value: &Value) -> String {
    match value.as_f64() {
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
        None => "–".to_owned(),
    }
}

/// With commas.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

fn span(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
