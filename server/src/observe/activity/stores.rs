use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use tidegate_core::Store;
use tidegate_core::layers::{BreakerWatch, CircuitState, LeaseStats};

use super::{cut_text, lock, shown};

/// The timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of characters of an error that are kept.
const MAX_ERROR_CHARS: usize = 300;

/// A store that the page shows.
pub struct WatchedStore {
    role: &'static str,
    url: String,
    store: Arc<dyn Store>,
    breaker: Option<BreakerWatch>,
    leases: Option<LeaseStats>,
    state: Mutex<Option<State>>,
}

/// The result of the last probe of a store.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// The duration of the probe, or the reason why it failed.
    pub(super) answer: Result<Duration, String>,
    /// The time since which all probes have had the present outcome: success or failure.
    pub(super) since: SystemTime,
}

impl WatchedStore {
    /// Creates a watched store with a role such as `store`. Logins and parameters in `url` are not
    /// shown.
    #[must_use]
    pub fn new(
        role: &'static str,
        url: &str,
        store: Arc<dyn Store>,
        breaker: Option<BreakerWatch>,
    ) -> Self {
        let url = shown(without_secrets(url).as_bytes());
        Self { role, url, store, breaker, leases: None, state: Mutex::default() }
    }

    /// Adds the statistics of leases.
    #[must_use]
    pub fn with_leases(self, leases: Option<LeaseStats>) -> Self {
        Self { leases, ..self }
    }

    pub(super) fn leases(&self) -> Option<&LeaseStats> {
        self.leases.as_ref()
    }

    pub(super) fn role(&self) -> &'static str {
        self.role
    }

    /// Returns the URL without logins and parameters.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the state of the circuit breaker, and the number of times that the circuit has
    /// opened.
    pub(super) fn breaker(&self) -> Option<(&'static str, u64)> {
        let breaker = self.breaker.as_ref()?;
        let state = match breaker.state() {
            CircuitState::Closed => "closed",
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "half-open",
            _ => "unknown",
        };
        Some((state, breaker.times_opened()))
    }

    pub(super) fn state(&self) -> Option<State> {
        lock(&self.state).clone()
    }

    /// Checks whether the store can decide, and records the result.
    pub(super) async fn probe(&self) {
        let start = Instant::now();
        let answer = match tokio::time::timeout(TIMEOUT, self.store.ready()).await {
            Ok(Ok(())) => Ok(start.elapsed()),
            Ok(Err(error)) => Err(cut_text(&format!("{error:#}"), MAX_ERROR_CHARS)),
            Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
        };
        let mut state = lock(&self.state);
        let is_same = state.as_ref().filter(|state| state.answer.is_ok() == answer.is_ok());
        let since = is_same.map_or_else(SystemTime::now, |state| state.since);
        *state = Some(State { answer, since });
    }
}

/// Probes each store once a second. A slow store does not delay the probes of other stores. This
/// function never returns.
pub(super) async fn probe_all(stores: &[WatchedStore]) {
    join_all(stores.iter().map(async |store| {
        loop {
            store.probe().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }))
    .await;
}

/// Returns the scheme and the servers of a URL, without its login and its parameters.
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // The login ends at the last `@`. The parameters can also contain a login, if the URL is the
    // path of a socket.
    let question = rest.find('?').unwrap_or(rest.len());
    match rest.rfind('@') {
        // The `@` after the first `?` belongs to a password that contains `?`, or to a parameter.
        // In both cases, only the scheme is shown.
        Some(at) if at > question => format!("{scheme}://…"),
        Some(at) => format!("{scheme}://{}", rest.get(at + 1..question).unwrap_or("…")),
        None => format!("{scheme}://{}", rest.get(..question).unwrap_or("…")),
    }
}

impl fmt::Debug for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedStore").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_time_is_that_of_the_last_change() {
        let store = Arc::new(tidegate_memory::MemoryStore::new());
        let watched = WatchedStore::new("store", "memory", store, None);
        let long_ago = SystemTime::UNIX_EPOCH;
        for (before, is_changed) in [(Ok(Duration::ZERO), false), (Err("down".into()), true)] {
            *lock(&watched.state) = Some(State { answer: before, since: long_ago });
            watched.probe().await;
            let state = watched.state().unwrap();
            assert!(state.answer.is_ok());
            assert_eq!(state.since != long_ago, is_changed);
        }
    }

    #[test]
    fn no_login_and_no_parameter_of_a_url_is_shown() {
        for (url, text) in [
            ("memory", "memory"),
            ("redis://10.0.0.1:6379/3", "redis://10.0.0.1:6379/3"),
            ("redis://user:S3CRET@a:6379", "redis://a:6379"),
            ("redis://:S3C@RET@a:6379", "redis://a:6379"),
            ("redis://:S3C?RET@a", "redis://…"),
            ("redis-sentinel://:S3CRET@a,b#limits", "redis-sentinel://a,b#limits"),
            ("unix:///run/redis?user=u&pass=S3CRET", "unix:///run/redis"),
            ("unix:///run/redis?pass=S3@CRET", "unix://…"),
            ("redis://a?password=S3CRET", "redis://a"),
        ] {
            assert_eq!(without_secrets(url), text);
        }
    }
}
