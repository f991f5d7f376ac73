//! What a store needs of a server, tried when a program starts.

use redis::Cmd;
use tidegate_core::{Error, ErrorKind, Operation, Policy};
use tokio::runtime::Handle;

use super::multiplexed::Connection;

/// The oldest version of Redis that has all that the scripts need.
const MIN_VERSION: (u32, u32) = (6, 0);

/// Policies whose charges need every script, and the commands of values and of lists. Their keys live for a
/// second.
const PROBES: [&str; 6] = [
    "tidegate-ready: fixed-window 1000000/1s",
    "tidegate-ready: sliding-log 100/1s",
    // A log that may grow so long is a list.
    "tidegate-ready: sliding-log 1000000/1s",
    "tidegate-ready: sliding-counter 1000000/1s",
    "tidegate-ready: token-bucket 1000000/1s",
    "tidegate-ready: token-bucket 1000000/1s by-interval",
];

/// What is done to the state of each probe: a new state, one that is there, and one that goes, by the script
/// for all other operations.
pub const PROBE_OPERATIONS: [Operation; 3] =
    [Operation::Acquire, Operation::Acquire, Operation::Reset];

/// The policies to charge in order to find out whether a server does what a store needs.
#[must_use]
pub fn probes() -> Vec<Policy> {
    PROBES.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Checks that this is called within a runtime, which the client and its timers need.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if it is not.
pub fn check_runtime() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| {
        let message = "a store on Redis can only be asked within a Tokio runtime, such as from a function \
                       marked `#[tokio::main]`";
        Error::new(ErrorKind::Unsupported, message)
    })
}

/// Connects to a server, and checks its version, if the user may ask for it.
///
/// # Errors
///
/// If it cannot be connected to, or is too old.
pub async fn check_server(connection: &Connection) -> Result<(), Error> {
    let mut live = connection.live().await?;
    let mut question = Cmd::new();
    question.arg("INFO").arg("server");
    let info: String = match connection.send(&mut live, &question).await {
        Ok(info) => info,
        // The user may lack a permission that a store does not need: the scripts decide.
        Err(error) if is_forbidden(error.kind()) => return Ok(()),
        Err(error) => return Err(error),
    };
    match version(&info) {
        Some(version) if version < MIN_VERSION => {
            let ((major, minor), (first, second)) = (version, MIN_VERSION);
            let message = format!(
                "Redis at {} is version {major}.{minor}; {first}.{second} is needed",
                live.server()
            );
            Err(Error::new(ErrorKind::UnsupportedServer, message))
        }
        _ => Ok(()),
    }
}

fn is_forbidden(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Misconfigured | ErrorKind::UnsupportedServer)
}

/// The version that a server states, major and minor.
fn version(info: &str) -> Option<(u32, u32)> {
    let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let mut numbers = line.trim().split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_probes_are_policies() {
        assert_eq!(probes().len(), PROBES.len());
    }

    #[test]
    fn a_version_is_read_from_what_servers_say_of_themselves() {
        for (info, expected) in [
            ("# Server\r\nredis_version:5.0.14\r\nredis_mode:standalone\r\n", Some((5, 0))),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", Some((7, 2))),
            ("redis_version:255.255.255", Some((255, 255))),
            ("redis_version:unstable", None),
            ("", None),
        ] {
            assert_eq!(version(info), expected, "{info}");
        }
        assert!((5, 9) < MIN_VERSION && (6, 0) >= MIN_VERSION);
    }
}
