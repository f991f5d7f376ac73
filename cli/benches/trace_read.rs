//! Measures the number of lines per second that the trace reader reads on one core. Run it with
//! `cargo bench -p tidegate --bench trace_read`. With paths as arguments, it reads these files
//! instead of a generated log.

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate::trace::{
    Error, Input, Options, Order, Record, Sink, Subjects, Summary, replay_in_order,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const LINES: u64 = 2_000_000;
const RUNS: usize = 5;

/// A sink that adds up all values of the records. The benchmark uses the sum, so that the compiler
/// cannot remove the reader.
#[derive(Default)]
struct Sum(u64);

impl Sink for Sum {
    type Error = Error;

    fn record(&mut self, record: Record, _: &Subjects) -> Result<(), Error> {
        self.0 =
            self.0.wrapping_add(record.time ^ u64::from(record.subject)).wrapping_add(record.cost);
        Ok(())
    }

    fn restart(&mut self) {
        self.0 = 0;
    }
}

fn main() -> Outcome<()> {
    let paths: Vec<PathBuf> =
        std::env::args_os().skip(1).filter(|arg| arg != "--bench").map(PathBuf::from).collect();
    if !paths.is_empty() {
        let inputs = || paths.iter().map(|path| Input::from_arg(path)).collect();
        report("given", Order::Time, || Ok(inputs()))?;
        return report("given", Order::File, || Ok(inputs()));
    }
    let directory = tempfile::tempdir()?;
    for (name, late) in [("in order", false), ("late lines", true)] {
        let path = directory.path().join(name);
        std::fs::write(&path, combined(late))?;
        report(name, Order::Time, || Ok(vec![Input::from_arg(&path)]))?;
    }
    let path = directory.path().join("in order");
    report("in order, from a pipe", Order::Time, || Ok(vec![once(&path)?]))
}

fn once(path: &Path) -> Outcome<Input> {
    Ok(Input::once("pipe", Cursor::new(std::fs::read(path)?)))
}

fn report(name: &str, order: Order, inputs: impl Fn() -> Outcome<Vec<Input>>) -> Outcome<()> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(run(order, inputs()?)?);
    }
    runs.sort_by_key(|(took, _)| *took);
    let (took, summary) = &runs[RUNS / 2];
    let rate = u128::from(summary.records) * 1_000_000 / took.as_micros().max(1);
    println!(
        "{name} ({order}): {} records, {} malformed, {} subjects, sorted: {}, {} steps back; \
         median of {RUNS}: {took:.1?}, {rate} lines/s",
        summary.records,
        summary.malformed,
        summary.subjects.len(),
        summary.sorted,
        summary.steps_back,
    );
    for line in &summary.first_malformed {
        println!("  {}:{}: {}: {}", line.file, line.line, line.reason, line.excerpt);
    }
    Ok(())
}

fn run(order: Order, inputs: Vec<Input>) -> Result<(Duration, Summary), Error> {
    let begin = Instant::now();
    let mut sum = Sum::default();
    let summary = replay_in_order(inputs, &Options::default(), order, &mut sum)?;
    std::hint::black_box(sum.0);
    Ok((begin.elapsed(), summary))
}

/// Returns a log of one day in the combined format, with requests from 50,000 addresses. If `late`
/// is `true`, every 97th line has a time that is 3 s earlier than the lines around it.
fn combined(late: bool) -> String {
    let mut log = String::new();
    let mut random = 1_u64;
    for n in 0..LINES {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let address = (random >> 33) % 50_000;
        let back = if late && n % 97 == 0 { 3 } else { 0 };
        let second = (n * 86_400 / LINES).saturating_sub(back);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let (a, b) = (address / 250, address % 250);
        let _ = writeln!(
            log,
            "10.7.{a}.{b} - - [17/May/2015:{hour:02}:{minute:02}:{second:02} +0000] \
             \"GET /presentations/images/kibana-{address}.png HTTP/1.1\" 200 {} \
             \"http://example.com/presentations/{b}/\" \"Mozilla/5.0 (Macintosh; Intel Mac OS X \
             10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.77 Safari/537.36\"",
            random % 100_000,
        );
    }
    log
}
