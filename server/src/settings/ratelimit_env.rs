//! The variables of the command line: what is empty, and what an error is about.

use std::env;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};

/// The one variable that says something when it is empty: the files are in the directory above then.
const MAY_BE_EMPTY: &str = "RUNTIME_APPDIRECTORY";

/// The command, for which a variable that is set and empty is not set, as manifests write `VARIABLE: ""`.
pub(super) fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let is_empty = |name| env::var_os(name).is_some_and(|value| value.is_empty());
        match arg.get_env() {
            Some(name) if name != MAY_BE_EMPTY && is_empty(name) => arg.env(Resettable::Reset),
            _ => arg,
        }
    });
    command.mut_subcommands(without_empty)
}

/// The variable with the value that an error is about: the error has the name of the argument alone.
pub(super) fn variable(command: &Command, error: &Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_meant = |arg: &&clap::Arg| arg.to_string() == *argument;
    let args =
        command.get_arguments().chain(command.get_subcommands().flat_map(Command::get_arguments));
    let name = args.filter(is_meant).find_map(clap::Arg::get_env)?.to_str()?;
    let value = env::var(name).ok()?;
    let is_of_variable = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(invalid)) => *invalid == value,
        _ => false,
    };
    is_of_variable.then(|| name.to_owned())
}
