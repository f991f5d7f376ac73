//! Checks that the server handles any text as a file of limits.

use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain};

use super::store;

/// The maximum length of an error message, in bytes. A message must not repeat the whole file.
const MAX_MESSAGE_BYTES: usize = 1_500;

/// Checks that the server either puts `text` in force as a file of limits, or refuses it with a
/// message that contains a position in the text.
pub(crate) fn check(text: &str) {
    let file = || ConfigFile { name: "limits.yaml".into(), text: text.into() };
    match Config::from_files(&[file()], SameDomain::Refuse) {
        Ok(config) => {
            assert_eq!(config.list().len(), config.limits());
            assert_eq!(config.domains().len(), 1);
            config
                .warnings()
                .iter()
                .for_each(|warning| check_place(text, warning.line(), warning.column()));
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
    // A line can also end in a lone `\r`.
    let lines = text.split(['\n', '\r']).count();
    assert!((1..=lines + 1).contains(&line.unwrap()), "{line:?} of {lines}");
    let longest = text.split(['\n', '\r']).map(|line| line.chars().count()).max();
    assert!((1..=longest.unwrap_or(0) + 2).contains(&column.unwrap()), "{column:?}: {text:?}");
}
