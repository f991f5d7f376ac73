//! Any text as a file of limits.

use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain};

use super::store;

/// The maximum length of a message, which is not to repeat the file.
const MAX_MESSAGE_BYTES: usize = 1_500;

/// A text is read and put in force, or refused with a message that names a place in it.
pub(crate) fn check(text: &str) {
    let file = || ConfigFile { name: "limits.yaml".into(), text: text.into() };
    match Config::from_files(&[file()], SameDomain::Refuse) {
        Ok(config) => {
            assert_eq!(config.list().len(), config.limits());
            assert_eq!(config.domains().len(), 1);
            config.warnings().iter().for_each(|it| check_place(text, it.line(), it.column()));
            Decider::new(store(), Behaviour::default()).set_config(config).unwrap();
            let both = [file(), file()];
            assert!(Config::from_files(&both, SameDomain::Refuse).is_err());
        }
        Err(error) => {
            check_place(text, error.line(), error.column());
            let message = error.to_string();
            assert!(message.len() < MAX_MESSAGE_BYTES, "{message}");
            assert!(!message.contains(char::is_control), "{message:?}");
            let again = Config::from_files(&[file()], SameDomain::Merge).unwrap_err();
            assert_eq!(again, error);
        }
    }
}

fn check_place(text: &str, line: Option<usize>, column: Option<usize>) {
    // Lines may end in `\r` alone.
    let lines = text.split(['\n', '\r']).count();
    assert!((1..=lines + 1).contains(&line.unwrap()), "{line:?} of {lines}");
    let longest = text.split(['\n', '\r']).map(|line| line.chars().count()).max();
    assert!((1..=longest.unwrap_or(0) + 2).contains(&column.unwrap()), "{column:?}: {text:?}");
}
