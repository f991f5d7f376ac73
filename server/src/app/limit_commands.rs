//! The commands that show and change the limit set in the store.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use tidegate_cluster::{KeptLimits, LimitBook};
use tidegate_core::{LimitSet, Store};
use tidegate_server::store::open_limit_book;

use super::Failure;
use crate::log::say;
use crate::settings::{By, LimitsAction, Store as StoreSettings, Target};

/// The program that replays logs.
const REPLAY: &str = "tidegate";

/// Executes an action on the limit set in the store, and prints the result.
///
/// # Errors
///
/// Returns an error if the store fails, or if the change is not valid.
pub(crate) fn change_limits(settings: &StoreSettings, action: LimitsAction) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (store, book) = open_limit_book(&settings.url, &settings.settings()?)?;
        execute(&*store, &book, action).await
    })
}

async fn execute(store: &dyn Store, book: &LimitBook, action: LimitsAction) -> Result<(), Failure> {
    let mut replay = None;
    let (kept, set, by, is_dry) = match action {
        LimitsAction::List => {
            say(list(&book.read().await?.set).trim_end());
            return Ok(());
        }
        LimitsAction::Show => {
            let kept = book.read().await?;
            say(format!("# version {}\n{}", kept.version, kept.set).trim_end());
            return Ok(());
        }
        LimitsAction::History { last } => {
            for change in book.history(last).await? {
                let time = change.time.rfc3339();
                let (author, reason) = (change.author, change.reason);
                say(format!("version {}, {time}, {author}: {reason}", change.version));
                print(&change.lines);
            }
            return Ok(());
        }
        LimitsAction::Rollback { version, by } => {
            let before = book.read_limits(&[]).await?.version;
            let made = book.roll_back(version, &by.author, &by.reason).await?;
            let changes = book.history(usize::try_from(made.saturating_sub(before))?).await?;
            changes.iter().for_each(|change| print(&change.lines));
            say(format!("version {made}"));
            return Ok(());
        }
        LimitsAction::Set { file, dry_run, log, try_by, by } => {
            let text = read(&file)?;
            let set = text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
            replay = log.map(|log| (log, try_by));
            (book.read().await?, set, by, dry_run)
        }
        LimitsAction::Override { policy, target, until, lasting, by } => {
            let key = LimitSet::key_of(&line(&policy, None, &target))?;
            let kept = book.read_limits(&[key]).await?;
            let mut set = kept.set.clone();
            let end = lasting.map(|span| kept.time.saturating_add(span).rfc3339().to_string());
            let line = line(&policy, until.or(end).as_deref(), &target);
            set.set_line(&line)?;
            kept.check_end(&line)?;
            (kept, set, by, false)
        }
        LimitsAction::Remove { name, target, by } => {
            // Only the name and the subjects of the line matter.
            let key = LimitSet::key_of(&line(&format!("{name}: gcra 1/s"), None, &target))?;
            let kept = book.read_limits(std::slice::from_ref(&key)).await?;
            if kept.set.is_empty() {
                return Err(format!("the limit set has no `{key}`").into());
            }
            (kept, LimitSet::new(), by, false)
        }
    };
    set.check(store)?;
    if let Some((log, try_by)) = replay {
        try_on(&log, try_by.as_deref(), &kept.set, &set)?;
    }
    change(book, &kept, &set, &by, is_dry).await
}

async fn change(
    book: &LimitBook,
    kept: &KeptLimits,
    set: &LimitSet,
    by: &By,
    is_dry: bool,
) -> Result<(), Failure> {
    print(&kept.set.changes_to(set));
    if is_dry {
        say("nothing was changed");
        return Ok(());
    }
    let version = book.change(kept, set, &by.author, &by.reason).await?;
    say(format!("version {version}"));
    Ok(())
}

/// Replays a log with the program `tidegate`, which prints the subjects that the set `after` denies
/// more often than the set `before`.
fn try_on(
    log: &Path,
    by: Option<&str>,
    before: &LimitSet,
    after: &LimitSet,
) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let [old, new] = ["before.txt", "after.txt"].map(|name| folder.path().join(name));
    std::fs::write(&old, before.to_string())?;
    std::fs::write(&new, after.to_string())?;
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command.arg("replay").arg("--limit-set").arg(&new).arg("--limit-set-before").arg(&old);
        command.args(by.iter().flat_map(|by| ["--by", by])).arg("--").arg(log).status()
    };
    let status = match run(Path::new(REPLAY)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            run(&std::env::current_exe()?.with_file_name(REPLAY))
        }
        status => status,
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("`{REPLAY} replay` ended with {status}; nothing was changed").into())
        }
        Err(error) => Err(format!(
            "--try needs the program `{REPLAY}` on the PATH or in the folder of tidegate-server: {error}"
        )
        .into()),
    }
}

/// Returns the line of a limit.
fn line(policy: &str, until: Option<&str>, Target { subject, tenant }: &Target) -> String {
    let mut line = policy.to_owned();
    // Writing to a string cannot fail.
    if let Some(until) = until {
        let _ = write!(line, " until {until}");
    }
    if subject.is_some() || tenant.is_some() {
        line.push_str(" for");
    }
    for (word, value) in [("tenant", tenant), ("subject", subject)] {
        if let Some(value) = value {
            let _ = write!(line, " {word} \"{}\"", value.as_bytes().escape_ascii());
        }
    }
    line
}

/// Returns one line for each name: the policy, and the number of overrides.
fn list(set: &LimitSet) -> String {
    let mut text = String::new();
    let mut names: Vec<(String, usize)> = vec![];
    for key in set.lines().into_keys() {
        let (name, is_override) = match key.split_once(' ') {
            Some((name, _)) => (name, true),
            None => (&*key, false),
        };
        match names.last_mut() {
            Some((last, overrides)) if last == name => *overrides += usize::from(is_override),
            _ => names.push((name.to_owned(), usize::from(is_override))),
        }
    }
    for (name, overrides) in names {
        let policy = set.line_of(&name, None).unwrap_or_else(|| format!("{name}: no policy"));
        let _ = writeln!(text, "{policy} ({overrides} overrides)");
    }
    text
}

fn print(changes: &[(Option<String>, Option<String>)]) {
    for (before, after) in changes {
        for (sign, line) in [('-', before), ('+', after)] {
            if let Some(line) = line {
                say(format!("{sign} {line}"));
            }
        }
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| format!("{}: cannot be read: {error}", file.display());
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    } else {
        text = std::fs::read_to_string(file).map_err(failed)?;
    }
    Ok(text)
}
