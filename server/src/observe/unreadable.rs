//! Collects requests that the server does not decide because it cannot read them.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, counter};
use tokio::sync::Notify;
use tokio::time::sleep;

/// The minimum time between two reports, so that a client cannot flood the log.
const INTERVAL: Duration = Duration::from_secs(10);

/// The unreadable requests since the last report.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreadable {
    /// The number of requests.
    pub requests: u64,
    /// The client address of the last request, if the protocol knows it.
    pub peer: Option<SocketAddr>,
    /// The reason why the last request cannot be read.
    pub reason: String,
}

/// Collects unreadable requests until the next report.
#[derive(Debug, Default)]
pub(crate) struct Log {
    unreported: Mutex<Option<Unreadable>>,
    added: Notify,
}

impl Log {
    pub(crate) fn add(&self, peer: Option<SocketAddr>, reason: &str) {
        let mut unreported = self.unreported.lock().unwrap_or_else(PoisonError::into_inner);
        let before = unreported.as_ref().map_or(0, |unreadable| unreadable.requests);
        let requests = before.saturating_add(1);
        *unreported = Some(Unreadable { requests, peer, reason: reason.to_owned() });
        drop(unreported);
        self.added.notify_one();
    }

    /// Reports the first request immediately, and later requests at most every [`INTERVAL`]. This
    /// function never returns.
    pub(crate) async fn follow(&self, report: impl Fn(Unreadable)) {
        loop {
            self.added.notified().await;
            let unreported = self.unreported.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(unreadable) = unreported {
                report(unreadable);
                sleep(INTERVAL).await;
            }
        }
    }
}

/// Returns the counter of requests to `/json` and `/v1` whose body cannot be read.
pub(crate) fn unreadable_over_http() -> Counter {
    counter!("tidegate_server_http_unreadable_requests_total")
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn b95_many_unreadable_requests_are_one_line_of_the_log() {
        let (log, start) = (Log::default(), Instant::now());
        let reports = Mutex::new(Vec::new());
        let follow = log.follow(|unreadable| {
            let seconds = start.elapsed().as_secs();
            reports.lock().unwrap().push((seconds, unreadable.requests, unreadable.reason));
        });
        let add = async {
            log.add(None, "first");
            sleep(Duration::from_secs(1)).await;
            (0..1_000).for_each(|number| log.add(None, &number.to_string()));
            sleep(Duration::from_secs(60)).await;
            log.add(None, "last");
            sleep(Duration::from_secs(1)).await;
        };
        let _ = timeout(Duration::from_secs(62), async { tokio::join!(follow, add) }).await;
        let expected = [(0, 1, "first"), (10, 1_000, "999"), (61, 1, "last")];
        let expected = expected.map(|(at, requests, reason)| (at, requests, reason.to_owned()));
        assert_eq!(*reports.lock().unwrap(), expected);
    }
}
