//! What a sentinel is told.

use std::time::Duration;

use crate::servers::{Error, Redis};

/// How many sentinels must agree that the primary is down.
const QUORUM: &str = "2";

/// Periods (in ms) of what sentinels do: with these a group finds itself, and fails over, in a moment
/// instead of many seconds. Their safety mode, which a slow machine can trigger, ends soon too.
///
/// A replica can be promoted if its last INFO is younger than 5 pings, and while the primary is down, INFO
/// comes once a second: more frequent pings would make failovers fail.
const HASTE: [&str; 10] = [
    "INFO-PERIOD",
    "200",
    "PING-PERIOD",
    "300",
    "ASK-PERIOD",
    "100",
    "TILT-PERIOD",
    "1000",
    "ELECTION-TIMEOUT",
    "1000",
];

/// How often sentinels tell of themselves until they all know each other.
const PUBLISH_TO_MEET: [&str; 2] = ["PUBLISH-PERIOD", "100"];

/// And afterwards. A sentinel takes back a promotion of which it has not been told for 4 such periods, and
/// the one that promoted hears of its success, by INFO, after up to 1 s.
const PUBLISH: [&str; 2] = ["PUBLISH-PERIOD", "700"];

/// The primary that a sentinel is told to watch.
pub(super) struct Watched<'a> {
    pub(super) name: &'a str,
    pub(super) port: u16,
    pub(super) down_after: Duration,
    pub(super) password: Option<&'a str>,
}

/// Tells a sentinel whom to watch.
pub(super) async fn watch(sentinel: &Redis, watched: &Watched<'_>) -> Result<(), Error> {
    tune(sentinel, &HASTE).await?;
    tune(sentinel, &PUBLISH_TO_MEET).await?;
    let (name, port) = (watched.name, watched.port.to_string());
    let down_after = watched.down_after.as_millis().to_string();
    sentinel.command(&["SENTINEL", "MONITOR", name, "127.0.0.1", &port, QUORUM]).await?;
    let mut settings = vec![
        ("down-after-milliseconds", down_after.as_str()),
        // A failover that went wrong is tried again after twice this time.
        ("failover-timeout", "2000"),
    ];
    settings.extend(watched.password.map(|password| ("auth-pass", password)));
    for (setting, value) in settings {
        sentinel.command(&["SENTINEL", "SET", name, setting, value]).await?;
    }
    Ok(())
}

/// Lets a sentinel of a group that has found itself tell of itself less often.
pub(super) async fn calm(sentinel: &Redis) -> Result<(), Error> {
    tune(sentinel, &PUBLISH).await
}

/// Sets the periods of a sentinel; those before 7.0 keep theirs, and are just slower.
async fn tune(sentinel: &Redis, periods: &[&str]) -> Result<(), Error> {
    if sentinel.version().numbers() >= [7, 0, 0] {
        sentinel.command(&[&["SENTINEL", "DEBUG"], periods].concat()).await?;
    }
    Ok(())
}
