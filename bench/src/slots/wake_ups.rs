//! Measures the time from the end of a hold until the next caller, of another store, has the slot.

use std::time::{Duration, Instant};

use tidegate_redis::{HoldGuard, Limiter, OnDrop, RedisStore};

use super::TTL;
use crate::Outcome;
use crate::harness::{Server, TIMEOUT, middle, percentile, rounds};

/// The number of slots that each caller takes in a round.
const TURNS: usize = 20;

pub(super) async fn compare(server: &Server, count: usize, held: &[u64]) -> Outcome<()> {
    println!(
        "\nTwo callers of two stores take one slot in turn. The table shows the time from the end of a hold until the \
         next caller has the slot. A store with its own connection receives messages from Redis; a store with a given \
         connection sends its calls again.\n\n\
         | connection | slot in use, ms | median, µs | p99, µs |\n|---|--:|--:|--:|"
    );
    for &millis in held {
        let mut delays = [vec![], vec![]];
        for round in rounds(count) {
            for (is_given, delays) in delays.iter_mut().enumerate() {
                let is_given = is_given > 0;
                let limiters = [limiter(server, is_given)?, limiter(server, is_given)?];
                let subject = format!("{millis} {round} {is_given}");
                delays.extend(hand_over(limiters, &subject, Duration::from_millis(millis)).await?);
            }
        }
        for (connection, mut delays) in ["own", "given"].into_iter().zip(delays) {
            delays.sort_unstable();
            let [median, p99] = [middle(delays.clone()), percentile(&delays, 99)];
            let [median, p99] = [median, p99].map(|delay| delay.as_micros());
            println!("| {connection} | {millis} | {median} | {p99} |");
        }
    }
    Ok(())
}

fn limiter(server: &Server, is_given: bool) -> Outcome<Limiter<RedisStore>> {
    let builder = match is_given {
        true => RedisStore::builder().connection(server.connection.clone()),
        false => RedisStore::builder().url(server.redis.url().as_str()),
    };
    let store = builder.response_timeout(TIMEOUT).build()?;
    Ok(Limiter::new(store, ["slots: concurrent 1 lease 1h".parse()?])?)
}

/// Returns the time from the end of each hold of one caller until the next hold of the other
/// caller.
async fn hand_over(
    [one, other]: [Limiter<RedisStore>; 2],
    subject: &str,
    held: Duration,
) -> Outcome<Vec<Duration>> {
    let callers = tokio::try_join!(
        take_turns(&one, subject, "one", held),
        take_turns(&other, subject, "other", held)
    )?;
    let mut turns: Vec<_> = callers.0.into_iter().chain(callers.1).collect();
    turns.sort_unstable();
    let pairs = turns.iter().zip(turns.iter().skip(1));
    let pairs = pairs.filter(|((.., before), (.., after))| before != after);
    Ok(pairs.map(|((_, end, _), (start, ..))| start.saturating_duration_since(*end)).collect())
}

/// Returns the times at which the caller got the slot and gave it up.
async fn take_turns<'n>(
    limiter: &Limiter<RedisStore>,
    subject: &str,
    name: &'n str,
    held: Duration,
) -> Outcome<Vec<(Instant, Instant, &'n str)>> {
    let mut turns = vec![];
    for turn in 0..TURNS {
        let id = format!("{subject} {name} {turn}");
        let hold = limiter.subject(subject).hold_within(&id, TTL, TTL).await?;
        let start = Instant::now();
        let ticket = hold.into_ticket().map_err(|_| "a hold was not admitted")?;
        let guard = HoldGuard::new(limiter, ticket, OnDrop::Settle)?;
        tokio::time::sleep(held).await;
        turns.push((start, Instant::now(), name));
        guard.settle([]).await?;
    }
    Ok(turns)
}
