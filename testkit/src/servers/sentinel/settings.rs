//! The settings of a sentinel.

use std::time::Duration;

use crate::servers::error::Error;
use crate::servers::redis::Redis;

/// The number of sentinels that must agree that the primary is down.
const QUORUM: &str = "2";

/// Periods of the sentinels' timers, in ms. With these periods a group discovers its servers and
/// fails over in a moment instead of many seconds. The sentinels' safety mode (TILT), which a slow
/// machine can trigger, also ends soon.
///
/// More frequent pings would make failovers fail. A replica can be promoted only if its last INFO
/// is younger than 5 ping periods, and while the primary is down, a sentinel requests INFO only
/// once a second.
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

/// The period at which sentinels announce themselves until they all know each other.
const PUBLISH_TO_MEET: [&str; 2] = ["PUBLISH-PERIOD", "100"];

/// The period at which sentinels announce themselves afterwards. A sentinel reverts a promotion
/// that no other sentinel has announced for 4 such periods, and the sentinel that promoted a
/// replica learns of its success, from INFO, only after up to 1 s.
const PUBLISH: [&str; 2] = ["PUBLISH-PERIOD", "700"];

/// The primary that a sentinel watches.
pub(super) struct Watched<'a> {
    pub(super) name: &'a str,
    pub(super) port: u16,
    pub(super) down_after: Duration,
    pub(super) password: Option<&'a str>,
}

/// Configures a sentinel to watch a primary.
pub(super) async fn watch(sentinel: &Redis, watched: &Watched<'_>) -> Result<(), Error> {
    tune(sentinel, &HASTE).await?;
    tune(sentinel, &PUBLISH_TO_MEET).await?;
    let (name, port) = (watched.name, watched.port.to_string());
    let down_after = watched.down_after.as_millis().to_string();
    sentinel.command(&["SENTINEL", "MONITOR", name, "127.0.0.1", &port, QUORUM]).await?;
    let mut settings = vec![
        ("down-after-milliseconds", down_after.as_str()),
        // A failed failover is tried again after twice this time.
        ("failover-timeout", "2000"),
    ];
    settings.extend(watched.password.map(|password| ("auth-pass", password)));
    for (setting, value) in settings {
        sentinel.command(&["SENTINEL", "SET", name, setting, value]).await?;
    }
    Ok(())
}

/// Lets a sentinel announce itself less often, once the sentinels of its group know each other.
pub(super) async fn calm(sentinel: &Redis) -> Result<(), Error> {
    tune(sentinel, &PUBLISH).await
}

/// Sets the periods of a sentinel. Sentinels before 7.0 keep their defaults and are only slower.
async fn tune(sentinel: &Redis, periods: &[&str]) -> Result<(), Error> {
    if sentinel.version().numbers() >= [7, 0, 0] {
        sentinel.command(&[&["SENTINEL", "DEBUG"], periods].concat()).await?;
    }
    Ok(())
}
