//! The Lua scripts as a server gets them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tidegate_core::{Call, Charge, Error, Policy};
use tidegate_redis::protocol::{Keys, Request};
use tidegate_redis::scripts::{Script, all};

use crate::report::number::thousands;

/// Name of a script in the list and, with `.lua` behind, of its file.
#[must_use]
pub fn file_name(script: &Script) -> String {
    match script.variant() {
        "" => script.name().to_owned(),
        variant => format!("{}_{variant}", script.name()),
    }
}

/// Finds a script by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Script> {
    let name = name.strip_suffix(".lua").unwrap_or(name);
    all().into_iter().find(|script| file_name(script) == name)
}

/// Names of all scripts.
#[must_use]
pub fn names() -> Vec<String> {
    all().into_iter().map(file_name).collect()
}

/// Lists all scripts: name, size, SHA-1.
///
/// # Errors
///
/// If writing fails.
pub fn list(out: &mut impl Write) -> io::Result<()> {
    for script in all() {
        let bytes = thousands(script.code().len() as u64);
        writeln!(out, "{:<26} {bytes:>7} bytes  {}", file_name(script), script.sha())?;
    }
    Ok(())
}

/// Writes all scripts to a folder, which is created if it does not exist.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for script in all() {
        fs::write(folder.join(file_name(script)).with_extension("lua"), script.code())?;
    }
    Ok(())
}

/// Writes a shell command that makes one call with `redis-cli`, as a store makes it. The script is read from a
/// file in the current folder, as [`write_all`] names it.
///
/// Not with `redis-cli --eval`: the argument of a script has zero bytes, which no argument of a program can
/// have, and `--eval` does not read one from standard input (`-x`).
///
/// # Errors
///
/// As [`Call::check`], or if writing fails.
pub fn write_call(
    prefix: &str,
    policy: &Policy,
    subject: &str,
    cost: u64,
    out: &mut impl Write,
) -> Result<io::Result<()>, Error> {
    let charges = [Charge::new(policy, subject.as_bytes()).cost(cost)];
    let call = Call::acquire(&charges);
    let request = Request::new(&Keys::new(prefix), &call)?;
    // In octal: what POSIX promises of `printf`.
    let argument: String = request.arguments().iter().map(|byte| format!("\\{byte:03o}")).collect();
    let keys = request.keys().iter().map(|key| shell_quoted(&String::from_utf8_lossy(key)));
    let keys = keys.collect::<Vec<_>>().join(" ");
    let script = file_name(request.script());
    let count = request.keys().len();
    Ok(writeln!(
        out,
        "printf '{argument}' | redis-cli -x eval \"$(cat {script}.lua)\" {count} {keys}"
    ))
}

/// Keys consist of visible ASCII, but a prefix may have quotes.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
