//! What the subcommands do.

use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args;
use crate::interrupt;
use crate::outputs;
use tidegate::plan::{self, Plan};
use tidegate::replay::{Error, Replay, Suggest};
use tidegate::report::number::{counted, thousands};
use tidegate::report::{self, Report, Source};
use tidegate::sample;
use tidegate::scripts;
use tidegate::trace::{self, FileSummary, Input, Progress, Summary};

/// Reason for an exit code other than 0.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input is bad, or a file cannot be read or written.
    Input(String),
    /// The command line is bad.
    Usage(String),
    /// The reader of the output has closed it.
    BrokenPipe,
    /// Ctrl-C.
    Interrupted,
}

impl Failure {
    /// Prints the message, and returns the code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Input(message) => (message, 1),
            Self::Usage(message) => (message, 2),
            Self::BrokenPipe => return ExitCode::SUCCESS,
            Self::Interrupted => ("interrupted".to_owned(), interrupt::CODE),
        };
        // If standard error is closed too, there is nowhere to report it.
        let _ = writeln!(io::stderr(), "tidegate: {message}");
        ExitCode::from(code)
    }

    fn writing(what: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Input(format!("{what} cannot be written: {error}")),
        }
    }
}

pub(crate) fn replay(args: &args::Replay) -> Result<(), Failure> {
    let policies = args.policies().map_err(Failure::Usage)?;
    let backend = args.backend().map_err(Failure::Usage)?;
    outputs::check(args).map_err(Failure::Usage)?;
    let options = trace::Options {
        by: args.subject(),
        cost: args.cost.clone(),
        late_cost: args.late_cost(),
        time: args.time.clone(),
        time_unit: args.time_unit,
        format: args.format,
        pattern: args.pattern.clone(),
        strict: args.strict,
    };
    // A replay in memory leaves nothing behind, so Ctrl-C ends it as it does any program.
    let listen = || {
        interrupt::listen()
            .map_err(|error| Failure::Input(format!("Ctrl-C cannot be listened for: {error}")))
    };
    let stop = (!backend.is_memory()).then(listen).transpose()?;
    let window = u64::try_from(args.window.as_micros()).unwrap_or(u64::MAX);
    let suggest = args.suggest.map(|share| Suggest { share, window });
    let bar = progress_bar();
    let replay =
        Replay::new(&policies, backend, suggest, args.decisions.is_some(), |it| show(&bar, it));
    let replay = replay.map_err(|error| Failure::Usage(format!("{error:#}")))?;
    let mut replay = replay.settling(args.settling()).leased(args.leasing());
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
    // The keys on a server are deleted even if the replay failed. If that fails, the result is still right:
    // it is a warning, and no failure.
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

/// An error's message with those of its causes, as far as it does not have them in it.
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

/// Writes the results of a replay in all requested forms.
fn show_results<P: FnMut(Progress)>(
    args: &args::Replay,
    summary: &Summary,
    replay: &mut Replay<P>,
) -> Result<(), Failure> {
    report_malformed(summary);
    report_left_out(args, summary);
    let settling = replay.settlings(summary);
    let report = Report {
        source: source(args, summary, replay.cost()),
        policies: replay.policies(summary),
        suggestions: replay.suggestions(),
        settling: settling.map_err(|error| Failure::Input(with_causes(&error)))?,
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

pub(crate) fn sample(args: &args::Sample) -> Result<(), Failure> {
    if args.lines > sample::LINES_MAX {
        return Err(Failure::Usage(format!(
            "--lines {} is above {}; make several days with different seeds",
            args.lines,
            sample::LINES_MAX,
        )));
    }
    let options =
        sample::Options { seed: args.seed, lines: args.lines, ..sample::Options::default() };
    let mut out = BufWriter::new(io::stdout().lock());
    sample::write(&options, &mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::writing("the sample", &error))
}

pub(crate) fn plan(args: &args::Plan) -> Result<(), Failure> {
    let plan = Plan::new(args.wanted());
    let mut out = BufWriter::new(io::stdout().lock());
    plan::write(&plan, &mut out)
        .and_then(|()| out.flush())
        .map_err(|error| Failure::writing("the plan", &error))
}

pub(crate) fn scripts(args: &args::Scripts) -> Result<(), Failure> {
    if let Some(folder) = &args.dir {
        return scripts::write_all(folder)
            .map_err(|error| Failure::writing(&outputs::shown(folder), &error));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = if let Some(policy) = &args.call {
        scripts::write_call(&args.prefix, policy, &args.subject, args.cost, &mut out)
            .map_err(|error| Failure::Usage(format!("--call: {error:#}")))?
    } else if let Some(name) = &args.name {
        let Some(script) = scripts::find(name) else {
            let names = scripts::names().join(", ");
            return Err(Failure::Usage(format!(
                "`{name}` is not a script; the scripts are {names}"
            )));
        };
        out.write_all(script.code().as_bytes())
    } else {
        scripts::list(&mut out)
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::writing("the output", &error))
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

/// Description of the cost, with the late part.
fn cost_of(args: &args::Replay) -> String {
    let late = args.late_cost();
    match (&args.cost, late.is_empty()) {
        (cost, true) => cost.to_string(),
        (trace::Cost::One, false) => late.join("+"),
        (cost, false) => format!("{cost}+{}", late.join("+")),
    }
}

/// The format of a file, with the envelope of its lines.
fn format_of(file: &FileSummary) -> Option<String> {
    let format = file.format?;
    Some(match file.envelope {
        Some(envelope) => format!("{format} in {envelope}"),
        None => format.to_string(),
    })
}

/// Number of lines that are requests or are malformed.
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

/// Reports what is not in the result, or why the result is empty.
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

/// Description of the subject.
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
    // Hidden where standard error is no terminal.
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
