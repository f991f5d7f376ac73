//! The settings of a sentinel.

use std::time::Duration;

use crate::error::Error;
use crate::redis::Redis;

/// The number of sentinels that must agree that the primary is down.
const QUORUM: &str = "2";

/// The periods of the sentinels' timers, in ms. With the default periods, a group needs many
/// seconds to discover its servers and to fail over. A slow machine can trigger the safety mode
/// TILT of the sentinels, which here ends after 1 s.
///
/// With a shorter ping period, failovers would fail. A sentinel promotes a replica only if the last
/// INFO reply of the replica is not older than 5 ping periods. While the primary is down, a
/// sentinel sends INFO only once per second.
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

/// The period at which sentinels announce themselves until all sentinels know each other.
const PUBLISH_TO_MEET: [&str; 2] = ["PUBLISH-PERIOD", "100"];

/// The period at which sentinels announce themselves after all sentinels know each other. With a
/// shorter period, failovers would fail: a sentinel reverts a promotion that no other sentinel has
/// announced for 4 periods. The sentinel that promoted a replica announces the promotion only after
/// it has seen the promotion in the replica's INFO. This takes up to 1 s.
const PUBLISH: [&str; 2] = ["PUBLISH-PERIOD", "700"];

pub(super) struct Watched<'a> {
    pub(super) name: &'a str,
    pub(super) port: u16,
    pub(super) down_after: Duration,
    pub(super) password: Option<&'a str>,
}

pub(super) async fn watch(sentinel: &Redis, watched: &Watched<'_>) -> Result<(), Error> {
    tune(sentinel, &HASTE).await?;
    tune(sentinel, &PUBLISH_TO_MEET).await?;
    let (name, port) = (watched.name, watched.port.to_string());
    let down_after = watched.down_after.as_millis().to_string();
    sentinel.command(&["SENTINEL", "MONITOR", name, "127.0.0.1", &port, QUORUM]).await?;
    let mut settings = vec![
        ("down-after-milliseconds", down_after.as_str()),
        // After a failed failover, the next attempt begins after twice the `failover-timeout`.
        ("failover-timeout", "2000"),
    ];
    settings.extend(watched.password.map(|password| ("auth-pass", password)));
    for (setting, value) in settings {
        sentinel.command(&["SENTINEL", "SET", name, setting, value]).await?;
    }
    Ok(())
}

/// Makes a sentinel announce itself less often. The caller uses this function when the sentinels of
/// the group know each other.
pub(super) async fn calm(sentinel: &Redis) -> Result<(), Error> {
    tune(sentinel, &PUBLISH).await
}

/// Sets the periods of a sentinel's timers. Sentinels before Redis 7.0 have no such settings. They
/// keep the default periods and are slower.
async fn tune(sentinel: &Redis, periods: &[&str]) -> Result<(), Error> {
    if sentinel.version().numbers() >= [7, 0, 0] {
        sentinel.command(&[&["SENTINEL", "DEBUG"], periods].concat()).await?;
    }
    Ok(())
}
