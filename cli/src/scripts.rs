//! Prints the Lua scripts that a server executes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tidegate_core::{Call, Charge, Error, Policy};
use tidegate_redis::protocol::{Keys, Request, probable_time};
use tidegate_redis::scripts::{Script, all};

use crate::report::number::thousands;

/// Returns the name of a script with its variant, as `tidegate scripts` lists it. The name of its
/// file also has the extension `.lua`.
#[must_use]
pub fn file_name(script: &Script) -> String {
    match script.variant() {
        "" => script.name().to_owned(),
        variant => format!("{}_{variant}", script.name()),
    }
}

/// Returns the script with a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Script> {
    let name = name.strip_suffix(".lua").unwrap_or(name);
    all().into_iter().find(|script| file_name(script) == name)
}

/// Returns the names of all scripts.
#[must_use]
pub fn names() -> Vec<String> {
    all().into_iter().map(file_name).collect()
}

/// Lists all scripts with their names, sizes and SHA-1 digests.
///
/// # Errors
///
/// Returns an error if writing fails.
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
/// Returns an error if a file cannot be written.
pub fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for script in all() {
        fs::write(folder.join(file_name(script)).with_extension("lua"), script.code())?;
    }
    Ok(())
}

/// Writes a shell command that makes one call with `redis-cli`, exactly as a store would make it.
/// The command reads the script from a file in the current folder. [`write_all`] writes this file.
///
/// The command does not use `redis-cli --eval`, because `--eval` does not read an argument from
/// standard input (`-x`). The argument of a script contains zero bytes, which a program cannot
/// receive on its command line.
///
/// # Errors
///
/// Returns the error of [`Call::check`], or an error if writing fails.
pub fn write_call(
    prefix: &str,
    policy: &Policy,
    subject: &str,
    cost: u64,
    out: &mut impl Write,
) -> Result<io::Result<()>, Error> {
    let charges = [Charge::new(policy, subject.as_bytes()).cost(cost)];
    let call = Call::acquire(&charges);
    let request = Request::new(&Keys::new(prefix), &call, probable_time())?;
    // The escapes are octal, because POSIX does not specify hexadecimal escapes for `printf`.
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

/// Quotes a key for a shell. The prefix of a key can contain single quotes, which need an escape.
/// No other character of a key needs an escape, because keys consist of visible ASCII.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
