//! The check that a server supports everything that a store needs. A program runs this check when
//! the program starts.

use redis::Cmd;
use tidegate_core::{Error, ErrorKind, Operation, Policy};
use tokio::runtime::Handle;

use super::multiplexed::Connection;

/// The oldest version of Redis that supports all commands of the scripts.
const MIN_VERSION: (u32, u32) = (6, 0);

/// The policies that the check of a server charges. The charges use every script for a single
/// charge, and the commands for strings and for lists. The keys of these policies expire after a
/// second.
const PROBES: [&str; 6] = [
    "tidegate-ready: fixed-window 1000000/1s",
    "tidegate-ready: sliding-log 100/1s",
    // A log that possibly has more than 128 records is stored as a list. The check uses this log to
    // test the commands for lists.
    "tidegate-ready: sliding-log 1000000/1s",
    "tidegate-ready: sliding-counter 1000000/1s",
    "tidegate-ready: token-bucket 1000000/1s",
    "tidegate-ready: token-bucket 1000000/1s by-interval",
];

/// The operations that the check executes on the state of each policy. The first acquire creates
/// the state, and the second changes it. The reset uses the general script, and removes the state.
pub const PROBE_OPERATIONS: [Operation; 3] =
    [Operation::Acquire, Operation::Acquire, Operation::Reset];

#[must_use]
pub fn probes() -> Vec<Policy> {
    PROBES.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Returns [`ErrorKind::Unsupported`] unless the caller runs within a Tokio runtime, which the
/// Redis client and its timers need.
pub fn check_runtime() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| {
        let message = "a store on Redis can only be called within a Tokio runtime, for example from a function \
                       marked `#[tokio::main]`";
        Error::new(ErrorKind::Unsupported, message)
    })
}

/// Connects to a server. Returns an error if the connection fails or the server is too old. If the
/// user lacks the permission for `INFO`, the version is not checked.
pub async fn check_server(connection: &Connection) -> Result<(), Error> {
    let mut live = connection.live().await?;
    let mut command = Cmd::new();
    command.arg("INFO").arg("server");
    let info: String = match connection.send(&mut live, &command).await {
        Ok(info) => info,
        // A store does not need the permission for `INFO`, so the check skips the version. If the
        // server is too old, the scripts fail.
        Err(error) if is_forbidden(error.kind()) => return Ok(()),
        Err(error) => return Err(error),
    };
    match version(&info) {
        Some(version) if version < MIN_VERSION => {
            let ((major, minor), (first, second)) = (version, MIN_VERSION);
            let message = format!(
                "Redis at {} is version {major}.{minor}; it must be at least {first}.{second}",
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
    fn a_version_is_parsed_from_the_reply_to_info() {
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
