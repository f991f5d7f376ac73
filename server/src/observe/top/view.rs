//! Formats a snapshot as lines of text.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::Value;

/// The age of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The snapshot was just received.
    Live,
    /// The program fetches only this snapshot.
    Once,
    /// The snapshot is old, because the last attempt to fetch a snapshot failed with this error.
    Stale(String),
}

/// The minimum width of the columns with numbers.
const NUMBER: usize = 10;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const SOFT: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red);
const GOOD: Style = Style::new().fg(Color::Green);

/// Returns the lines of a snapshot, each at most `width` columns wide. Without a width, no text is
/// cut. No character of a line has an effect on the terminal.
#[must_use]
pub fn lines(snapshot: &Value, state: &State, width: Option<usize>) -> Vec<Line<'static>> {
    let mut view = View { tables: Vec::new(), now: number(snapshot, "now_ms") };
    view.head(snapshot, state);
    view.limits(snapshot);
    view.subjects(&snapshot["refused_subjects"]);
    view.near(&snapshot["near_subjects"]);
    view.warnings(snapshot);
    view.bans(snapshot);
    view.stores(snapshot);
    view.configuration(&snapshot["configuration"]);
    view.slow_calls(snapshot);
    let widest = || view.tables.iter().map(Table::width).max().unwrap_or(0);
    let (width, room) = match width {
        Some(width) => (width.clamp(40, 200), width.clamp(40, 200)),
        None => (widest(), usize::MAX),
    };
    view.tables.iter().flat_map(|table| table.lines(width, room)).collect()
}

/// Returns the most important problems for an operator.
pub(super) fn problems(snapshot: &Value) -> impl Iterator<Item = String> {
    list(&snapshot["problems"]).iter().map(|problem| visible(problem.as_str().unwrap_or_default()))
}

struct View {
    /// The sections. The first section has the lines above all tables.
    tables: Vec<Table>,
    now: u64,
}

/// The lines of a section. The numbers of all rows are aligned in columns.
#[derive(Default)]
struct Table(Vec<Item>);

enum Item {
    Line(Vec<Span<'static>>),
    /// A name, followed by right-aligned numbers.
    Row(Span<'static>, Vec<(String, Style)>),
}

impl Table {
    /// Returns the widths of the columns with numbers, including a space before the number.
    fn columns(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for item in &self.0 {
            let Item::Row(_, cells) = item else { continue };
            widths.resize(widths.len().max(cells.len()), NUMBER);
            for (width, (cell, _)) in widths.iter_mut().zip(cells) {
                *width = (*width).max(1 + Span::raw(&**cell).width());
            }
        }
        widths
    }

    /// Returns the width that the section needs so that no name is cut.
    fn width(&self) -> usize {
        let names = self.0.iter().map(|item| match item {
            Item::Line(_) => 0,
            Item::Row(name, _) => name.width() + 1,
        });
        names.max().unwrap_or(0) + self.columns().iter().sum::<usize>()
    }

    /// Formats the lines of the section. Rows with numbers are `width` columns wide, and no line is
    /// wider than `room`.
    fn lines(&self, width: usize, room: usize) -> impl Iterator<Item = Line<'static>> {
        let columns = self.columns();
        let names_width = width.saturating_sub(columns.iter().sum());
        self.0.iter().map(move |item| match item {
            Item::Line(spans) => cut(spans.iter().cloned(), room),
            Item::Row(name, cells) if cells.is_empty() => cut([name.clone()], room),
            Item::Row(name, cells) => {
                let name = fitted(name, names_width.saturating_sub(1), true);
                let cells = columns.iter().zip(cells).map(|(width, (cell, style))| {
                    let missing = width.saturating_sub(Span::raw(&**cell).width());
                    Span::styled(format!("{}{cell}", " ".repeat(missing)), *style)
                });
                cut([name].into_iter().chain(cells), room)
            }
        })
    }
}

/// Joins `spans` into a line, which is cut after `room` columns.
fn cut(spans: impl IntoIterator<Item = Span<'static>>, mut room: usize) -> Line<'static> {
    let mut line = Line::default();
    for span in spans {
        let span = fitted(&span, room, false);
        room = room.saturating_sub(span.width());
        line.spans.push(span);
    }
    line
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
        self.tables.push(Table::default());
        self.line(vec![Span::styled(about, BOLD), Span::styled(state, style)]);
        for problem in problems(snapshot) {
            self.line(vec![Span::styled(format!("! {problem}"), BAD)]);
        }
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
                let is_hot = kind == "refused" && value.as_f64().is_some_and(|rate| rate > 0.0);
                (rate(value), if is_hot { BAD } else { Style::new() })
            });
            self.row(&name, &cells);
        }
        let other = &snapshot["other_limits"];
        let rates =
            ["admitted", "refused", "shadow"].map(|kind| &other[format!("{kind}_per_second")]);
        let is_any = rates.iter().any(|value| value.as_f64().is_some_and(|value| value > 0.0));
        if is_any || number(other, "count") > 0 {
            let cells = rates.map(|value| (rate(value), Style::new()));
            self.row(&format!("{} others", number(other, "count")), &cells);
        }
        self.none_if(limits.is_empty(), "no decision in the last minute");
    }

    fn subjects(&mut self, subjects: &Value) {
        self.title(
            "SUBJECTS REFUSED MOST, IN THIS AND THE PREVIOUS MINUTE",
            &["at least", "at most"],
        );
        let are_shown = subjects["are_shown"].as_bool().unwrap_or(false);
        let top = list(&subjects["top"]);
        for subject in top {
            let mut name = if are_shown { text(subject, "subject") } else { "(hidden)".to_owned() };
            let tenant = text(subject, "tenant");
            if !tenant.is_empty() {
                name = format!("{name}  tenant {tenant}");
            }
            let cells =
                ["at_least", "at_most"].map(|bound| (count(number(subject, bound)), Style::new()));
            self.row(&format!("{name}  {}", text(subject, "limit")), &cells);
            let left = number(subject, "blocked_until_ms").saturating_sub(self.now);
            if left > 0 {
                let level = match number(subject, "block_level") {
                    0 => String::new(),
                    level => format!(", level {level}"),
                };
                let line = format!("  blocked for {}{level}", span(left));
                self.line(vec![Span::raw(line)]);
            }
        }
        self.none_if(top.is_empty(), "no refusal");
    }

    /// Adds the subjects near a limit, if there are any.
    fn near(&mut self, near: &Value) {
        let top = list(&near["top"]);
        if top.is_empty() {
            return;
        }
        let (percent, all) = (number(near, "percent"), number(near, "count"));
        let more = if near["is_complete"].as_bool() == Some(true) { "" } else { "MORE THAN " };
        let title = format!("SUBJECTS AT {percent} % OF A LIMIT OR MORE: {more}{}", count(all));
        self.title(&title, &["used", "of"]);
        let are_shown = near["are_shown"].as_bool().unwrap_or(false);
        for subject in top {
            let mut name = if are_shown { text(subject, "subject") } else { "(hidden)".to_owned() };
            let tenant = text(subject, "tenant");
            if !tenant.is_empty() {
                name = format!("{name}  tenant {tenant}");
            }
            let cells = ["used", "of"].map(|field| (count(number(subject, field)), Style::new()));
            self.row(&format!("{name}  {}", text(subject, "limit")), &cells);
        }
    }

    /// Adds the last warnings, if there are any.
    fn warnings(&mut self, snapshot: &Value) {
        let warnings = list(&snapshot["warnings"]);
        if warnings.is_empty() {
            return;
        }
        self.title("LAST WARNINGS", &["remaining"]);
        for warning in warnings {
            let ago = span(self.now.saturating_sub(number(warning, "at_ms")));
            let parts = ["limit", "subject"].map(|field| text(warning, field) + "  ");
            let name = format!("{ago} ago  {}", parts.concat().trim_end());
            let remaining = count(number(warning, "remaining"));
            self.row(&name, &[(remaining, Style::new())]);
        }
    }

    /// Adds the last bans, if there are any.
    fn bans(&mut self, snapshot: &Value) {
        let bans = list(&snapshot["bans"]);
        if bans.is_empty() {
            return;
        }
        self.title("LAST BANS", &["blocked"]);
        for ban in bans {
            let ago = span(self.now.saturating_sub(number(ban, "at_ms")));
            let parts =
                ["protocol", "limit", "subject", "reason"].map(|field| text(ban, field) + "  ");
            let name = format!("{ago} ago  {}", parts.concat().trim_end());
            let left = number(ban, "until_ms").saturating_sub(self.now);
            let (end, style) = match (ban["until_ms"].is_null(), left) {
                (true, _) => ("unbanned".to_owned(), GOOD),
                (false, 0) => ("over".to_owned(), SOFT),
                (false, left) => (format!("for {}", span(left)), Style::new()),
            };
            self.row(&name, &[(end, style)]);
        }
    }

    fn stores(&mut self, snapshot: &Value) {
        self.title("STORES", &["breaker", "answer"]);
        for store in list(&snapshot["stores"]) {
            let since = span(self.now.saturating_sub(number(store, "since_ms")));
            let (state, style) = match store["answers"].as_bool() {
                Some(true) => (format!("answers for {since}"), GOOD),
                Some(false) => (format!("no answer for {since}: {}", text(store, "error")), BAD),
                None => ("not probed yet".to_owned(), SOFT),
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
        if let Some(version) = configuration["limit_set_version"].as_u64() {
            self.line(vec![Span::raw(format!("version {} of the limit set", count(version)))]);
        }
    }

    fn slow_calls(&mut self, snapshot: &Value) {
        self.title("SLOWEST CALLS IN THIS AND THE PREVIOUS MINUTE", &["outcome", "took"]);
        let calls = list(&snapshot["slow_calls"]);
        for call in calls {
            let ago = span(self.now.saturating_sub(number(call, "at_ms")));
            let limit = match &call["limit"] {
                Value::Null => "(no limit)".to_owned(),
                _ => text(call, "limit"),
            };
            let name = [text(call, "protocol"), limit, text(call, "subject")]
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

    /// Begins a section.
    fn title(&mut self, title: &str, columns: &[&str]) {
        let cells = columns.iter().map(|name| ((*name).to_owned(), SOFT)).collect();
        let title = Item::Row(Span::styled(title.to_owned(), BOLD), cells);
        self.tables.push(Table(vec![Item::Line(Vec::new()), title]));
    }

    fn row(&mut self, name: &str, cells: &[(String, Style)]) {
        self.add(Item::Row(Span::raw(name.to_owned()), cells.to_vec()));
    }

    fn none_if(&mut self, is_empty: bool, why: &str) {
        if is_empty {
            self.line(vec![Span::styled(why.to_owned(), SOFT)]);
        }
    }

    fn line(&mut self, spans: Vec<Span<'static>>) {
        self.add(Item::Line(spans));
    }

    fn add(&mut self, item: Item) {
        if let Some(table) = self.tables.last_mut() {
            table.0.push(item);
        }
    }
}

/// Returns the text of a span with at most `room` columns: `…` replaces the end of a longer text.
/// If `is_filled`, spaces are added up to `room + 1` columns.
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

/// Replaces each invisible character, and each character with an effect on the terminal, by `�`.
pub(super) fn visible(text: &str) -> String {
    let is_visible =
        |char: char| matches!(char, '"' | '\'' | '\\') || char.escape_debug().len() == 1;
    text.chars().map(|char| if is_visible(char) { char } else { '\u{fffd}' }).collect()
}

fn text(object: &Value, name: &str) -> String {
    object[name].as_str().map(visible).unwrap_or_default()
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or(0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(|values| &**values).unwrap_or_default()
}

fn rate(value: &Value) -> String {
    match value.as_f64() {
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
        None => "–".to_owned(),
    }
}

/// Formats a number with commas between thousands.
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
