//! Callers that share a client.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::client::Client;
use crate::Outcome;

/// A load: one caller for each key, until the time is over.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) keys: Vec<String>,
    pub(super) time: Duration,
    /// The pause of a caller after each answer. With a pause, calls do not wait in a queue of the
    /// client.
    pub(super) rest: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The latencies of all calls, including failed calls.
    latencies: Vec<Duration>,
    /// The times of the answers.
    answers: Vec<Instant>,
    pub(super) errors: usize,
    pub(super) timeouts: usize,
}

impl Load {
    pub(super) async fn run(self, client: &Client) -> Outcome<Seen> {
        let mut callers = JoinSet::new();
        let end = Instant::now() + self.time;
        for key in self.keys {
            callers.spawn(call(client.clone(), key, self.rest, end));
        }
        let mut all = Seen::default();
        while let Some(seen) = callers.join_next().await {
            all.add(seen?);
        }
        all.latencies.sort_unstable();
        all.answers.sort_unstable();
        Ok(all)
    }
}

async fn call(client: Client, key: String, rest: Option<Duration>, end: Instant) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < end {
        let asked = Instant::now();
        let answer = client.increment(&key).await;
        seen.latencies.push(asked.elapsed());
        match answer {
            Ok(_) => seen.answers.push(Instant::now()),
            Err(error) => {
                seen.errors += 1;
                seen.timeouts += usize::from(error.is_timeout());
            }
        }
        if let Some(rest) = rest {
            tokio::time::sleep(rest).await;
        }
    }
    seen
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.answers.extend(other.answers);
        self.errors += other.errors;
        self.timeouts += other.timeouts;
    }

    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }

    fn within(&self, percent: usize) -> Duration {
        let place =
            (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(place).copied().unwrap_or_default()
    }

    fn silence(&self) -> Duration {
        let between = self.answers.windows(2).map(|pair| pair[1] - pair[0]);
        between.max().unwrap_or_default()
    }
}

impl fmt::Display for Seen {
    /// Writes the cells of a table: calls, errors, latencies in milliseconds, and the longest time
    /// without an answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: Duration| {
            format!("{}.{:02} ms", time.as_millis(), time.as_micros() % 1_000 / 10)
        };
        let (calls, errors) = (self.latencies.len(), self.errors);
        let (p50, p99, max) = (self.within(50), self.within(99), self.within(100));
        let [p50, p99, max, silence] = [p50, p99, max, self.silence()].map(millis);
        write!(f, "{calls} | {errors} | {p50} | {p99} | {max} | {silence}")
    }
}
