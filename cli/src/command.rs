//! The command `replay`, and the errors of all commands.

use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args;
#[cfg(feature = "redis")]
use crate::interrupt;
use crate::outputs;
use tidegate::replay::{Error, Replay, Suggest};
use tidegate::report::number::{counted, thousands};
use tidegate::report::{self, Report, Source};
use tidegate::trace::{self, FileSummary, Input, Progress, Stop, Summary};

/// The exit code after Ctrl-C: 128 plus the number of the signal SIGINT, which is 2.
pub(crate) const INTERRUPTED: u8 = 130;

/// The reason for an exit code other than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input is invalid, or a file cannot be read or written.
    Input(String),
    /// The command line is invalid.
    Usage(String),
    /// The reader of the output closed the pipe.
    BrokenPipe,
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    /// Prints the message, and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Input(message) => (message, 1),
            Self::Usage(message) => (message, 2),
            Self::BrokenPipe => return ExitCode::SUCCESS,
            Self::Interrupted => ("interrupted".to_owned(), INTERRUPTED),
        };
        // If standard error is closed, the message is lost.
        let _ = writeln!(io::stderr(), "tidegate: {message}");
        ExitCode::from(code)
    }

    pub(crate) fn writing(what: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Input(format!("{what} cannot be written: {error}")),
        }
    }
}

pub(crate) fn replay(args: &args::Replay) -> Result<(), Failure> {
    let backend = args.backend().map_err(Failure::Usage)?;
    let lists = args.lists().map_err(Failure::Usage)?;
    let limit_set = args.limit_set().map_err(Failure::Usage)?;
    let before = args.limit_set_before().map_err(Failure::Usage)?;
    let policies = match &before {
        Some(_) if args.given().next().is_none() => {
            args::Replay::policies_of_sets(limit_set.as_ref(), before.as_ref())
        }
        _ => args.policies(),
    };
    let policies = policies.map_err(Failure::Usage)?;
    let grants = args.grants().map_err(Failure::Usage)?;
    outputs::check(args).map_err(Failure::Usage)?;
    let options = trace::Options {
        by: args.subject(),
        cost: args.cost.clone(),
        late_cost: args.late_cost(),
        duration: args.duration(),
        time: args.time.clone(),
        time_unit: args.time_unit,
        format: args.format,
        pattern: args.pattern.clone(),
        strict: args.strict,
    };
    // Only a replay on a server handles Ctrl-C, because it must delete its keys. Without a handler,
    // Ctrl-C ends a replay in memory immediately.
    let stop = (!backend.is_memory()).then(stop_on_interrupt).transpose()?;
    let window = u64::try_from(args.window.as_micros()).unwrap_or(u64::MAX);
    let suggest = args.suggest.map(|share| Suggest { share, window });
    let bar = progress_bar();
    let replay = Replay::new(&policies, backend, suggest, args.decisions.is_some(), |progress| {
        show(&bar, progress);
    });
    let replay = replay.map_err(|error| Failure::Usage(format!("{error:#}")))?;
    let replay = replay.listed(lists.as_ref()).settling(args.settling()).slots(args.slots());
    let replay =
        replay.adjusted(limit_set.as_ref()).map_err(|error| Failure::Usage(with_causes(&error)))?;
    let replay = replay
        .compared_with(before.as_ref())
        .map_err(|error| Failure::Usage(with_causes(&error)))?;
    let replay = replay
        .spilling_to(args.pool.as_ref())
        .map_err(|error| Failure::Usage(with_causes(&error)))?;
    let mut replay = replay.leased(args.leasing()).granting(grants);
    let mut inputs: Vec<Input> = args.files.iter().map(|path| Input::from_arg(path)).collect();
    if let Some(stop) = &stop {
        replay = replay.until(stop);
        inputs = inputs.into_iter().map(|input| input.until(stop)).collect();
    }
    let summary = trace::replay_in_order(inputs, &options, args.order, &mut replay);
    bar.finish_and_clear();
    let result = match summary {
        Ok(summary) => show_results(args, &summary, &mut replay),
        Err(_) if stop.is_some_and(|stop| stop.is_asked()) => Err(Failure::Interrupted),
        Err(Error::Trace(error)) if error.kind() == trace::ErrorKind::UnknownSubject => {
            Err(Failure::Usage(error.to_string()))
        }
        Err(error) => Err(Failure::Input(with_causes(&error))),
    };
    // The replay deletes its keys on the server even if it failed. If the deletion fails, the
    // program prints only a warning, because the result of the replay is still correct.
    if let Err(error) = replay.clean_up() {
        let _ = writeln!(
            io::stderr(),
            "tidegate: warning: not all keys of the replay were deleted; those that are left begin with `{}`, \
             and expire by themselves: {error:#}",
            replay.prefix(),
        );
    }
    result
}

#[cfg(feature = "redis")]
fn stop_on_interrupt() -> Result<Stop, Failure> {
    interrupt::listen()
        .map_err(|error| Failure::Input(format!("the handler of Ctrl-C cannot start: {error}")))
}

/// Returns a [`Stop`] that is never requested. Without the feature `redis`, every replay is in
/// memory, and Ctrl-C ends it immediately.
#[cfg(not(feature = "redis"))]
fn stop_on_interrupt() -> Result<Stop, Failure> {
    Ok(Stop::default())
}

/// Returns the message of an error with the messages of its causes, unless it already contains
/// them.
fn with_causes(error: &dyn StdError) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

/// Writes the results of a replay: the file of the decisions and the HTML page if they are
/// requested, and a table or JSON on standard output.
fn show_results<P: FnMut(Progress)>(
    args: &args::Replay,
    summary: &Summary,
    replay: &mut Replay<P>,
) -> Result<(), Failure> {
    report_malformed(summary);
    report_left_out(args, summary);
    let settling = replay.settlings(summary);
    let slots = replay.slots_report(summary);
    let report = Report {
        source: source(args, summary, replay.cost()),
        policies: replay.policies(summary),
        suggestions: replay.suggestions(),
        settling: settling.map_err(|error| Failure::Input(with_causes(&error)))?,
        slots: slots.map_err(|error| Failure::Input(with_causes(&error)))?,
        leased: replay.leases(),
    };
    if let Some(path) = &args.decisions {
        write_file(path, |out| {
            for (place, run) in replay.runs_mut().iter_mut().enumerate() {
                if place > 0 {
                    out.write_all(b"\n")?;
                }
                run.decisions().map_or(Ok(()), |decisions| decisions.write_to(out))?;
            }
            Ok(())
        })?;
    }
    if let Some(path) = &args.html {
        write_file(path, |out| report::html::write(&report, out))?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = if args.json {
        report::json::write(&report, &mut out)
    } else {
        report::table::write(&report, &mut out, table_options())
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::writing("the result", &error))?;
    if summary.records == 0 && summary.malformed > 0 {
        return Err(Failure::Input("no line could be parsed".to_owned()));
    }
    let lines = lines(summary);
    if summary.malformed > 0 && summary.malformed >= lines.div_ceil(2) {
        return Err(Failure::Input(format!(
            "{} of {} could not be parsed: the result is of the others only; see --format and \
             --pattern",
            counted(summary.malformed, "line", "lines"),
            thousands(lines),
        )));
    }
    Ok(())
}

fn source(args: &args::Replay, summary: &Summary, cost: u64) -> Source {
    let mut formats: Vec<String> = Vec::new();
    for format in summary.files.iter().filter_map(format_of) {
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    Source {
        inputs: args.files.iter().map(|path| path.display().to_string()).collect(),
        formats,
        lines: lines(summary),
        malformed: summary.malformed,
        without_subject: summary.without_subject,
        requests: summary.records,
        cost,
        subjects: summary.subjects.len() as u64,
        by: by(args, summary),
        cost_of: cost_of(args),
        order: args.order.to_string(),
        first: summary.first,
        last: summary.last,
    }
}

/// Returns the fields of the cost and of the late cost as text, such as `input+output`, or `1` if
/// there are no fields.
fn cost_of(args: &args::Replay) -> String {
    let late = args.late_cost();
    let cost = match &args.pattern {
        Some(pattern) => pattern.cost(&args.cost, &late),
        None => args.cost.clone(),
    };
    match (cost, late.is_empty()) {
        (cost, true) => cost.to_string(),
        (trace::Cost::One, false) => late.join("+"),
        (cost, false) => format!("{cost}+{}", late.join("+")),
    }
}

/// Returns the format of a file, followed by the envelope of its lines if they have one, such as
/// `json in docker`.
fn format_of(file: &FileSummary) -> Option<String> {
    let format = file.format?;
    Some(match file.envelope {
        Some(envelope) => format!("{format} in {envelope}"),
        None => format.to_string(),
    })
}

/// Returns the number of lines that are malformed, or requests with or without a subject.
fn lines(summary: &Summary) -> u64 {
    summary.records + summary.malformed + summary.without_subject
}

fn report_malformed(summary: &Summary) {
    if summary.malformed == 0 {
        return;
    }
    let mut err = io::stderr().lock();
    let shown = summary.first_malformed.len() as u64;
    let more =
        if shown < summary.malformed { format!("; the first {shown}") } else { String::new() };
    let lines = counted(summary.malformed, "malformed line", "malformed lines");
    let _ = writeln!(err, "tidegate: {lines}{more}:");
    for line in &summary.first_malformed {
        let _ = writeln!(err, "  {}:{}: {}: {}", line.file, line.line, line.reason, line.excerpt);
    }
}

/// Prints the number of lines that were skipped because they have no subject, or a message if the
/// input is empty.
fn report_left_out(args: &args::Replay, summary: &Summary) {
    let mut err = io::stderr().lock();
    if summary.without_subject > 0 {
        let has = if summary.without_subject == 1 { "has" } else { "have" };
        let lines = counted(summary.without_subject, "line", "lines");
        let _ = writeln!(
            err,
            "tidegate: {lines} {has} no subject (`-` or nothing as the {}) and {} left out",
            by(args, summary),
            if summary.without_subject == 1 { "is" } else { "are" },
        );
    } else if lines(summary) == 0 {
        let _ = writeln!(err, "tidegate: there is no request in the input: it is empty");
    }
}

/// Returns the names of the fields that contain the subject, such as `ip`, or `all` if all requests
/// are one subject.
fn by(args: &args::Replay, summary: &Summary) -> String {
    let mut by: Vec<&str> = summary.files.iter().filter_map(|f| f.subject.as_deref()).collect();
    by.dedup();
    let known = if by.is_empty() { args.subject().to_string() } else { by.join(", ") };
    if known == "auto" { "all".to_owned() } else { known }
}

fn table_options() -> report::table::Options {
    let out = io::stdout();
    let is_terminal = out.is_terminal();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = terminal_size::terminal_size().filter(|_| is_terminal);
    let terminal = terminal.map(|(terminal_size::Width(width), _)| usize::from(width));
    let width = terminal.or(columns).unwrap_or(100);
    let colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
    report::table::Options { width, colour }
}

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let name = outputs::shown(path);
    let file = File::create(path).map_err(|error| Failure::writing(&name, &error))?;
    let mut out = BufWriter::new(file);
    write(&mut out).and_then(|()| out.flush()).map_err(|error| Failure::writing(&name, &error))
}

fn progress_bar() -> ProgressBar {
    // The progress bar is hidden if standard error is not a terminal.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {percent}% of {total_bytes}, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    let (position, length) = match progress {
        Progress::Reading { bytes, total } => (bytes, total),
        Progress::Replaying { records, total } => (records, Some(total)),
    };
    match length {
        Some(length) => bar.set_length(length),
        None => bar.unset_length(),
    }
    bar.set_position(position);
}
