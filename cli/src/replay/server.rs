use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use tidegate_cluster::StoreBuilder;
use tidegate_core::{Answer, Error, ManualClock, Store};

/// The maximum wait for a reply. It can be long, because only the replay waits for the reply.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Redis, a Sentinel group or a Redis Cluster.
#[derive(Clone)]
pub struct Server {
    builder: Box<StoreBuilder>,
    /// The runtime of all connections.
    runtime: Arc<Runtime>,
}

impl Server {
    /// Parses the URL of a store. This does not connect to the store.
    pub(super) fn parse(url: &str, password: Option<&str>) -> Result<Self, String> {
        let builder = StoreBuilder::from_url(url).map_err(|error| format!("{error:#}"))?;
        let builder = match password {
            Some(password) => builder.password_if_none(password),
            None => builder,
        };
        // This call of `build` only checks that the settings fit together. `open` builds the
        // stores.
        builder.clone().build().map_err(|error| format!("{error:#}"))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("the runtime cannot start: {error}"))?;
        Ok(Self { builder: Box::new(builder), runtime: Arc::new(runtime) })
    }

    /// Opens a store that uses `clock`, and whose keys begin with `prefix`.
    pub(super) fn open(&self, prefix: &str, clock: ManualClock) -> Result<Box<dyn Store>, Error> {
        let builder = StoreBuilder::clone(&self.builder).prefix(prefix);
        Ok(Box::new(builder.response_timeout(PATIENCE).clock(clock).build()?))
    }

    /// Waits for an answer.
    pub(super) fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime.block_on(answer)
    }

    /// Waits for all answers concurrently. Returns the first error, if there is one.
    pub(super) fn wait_for_all<T>(
        &self,
        answers: Vec<Answer<'_, Result<T, Error>>>,
    ) -> Result<Vec<T>, Error> {
        self.wait(join_all(answers)).into_iter().collect()
    }
}

/// Omits the login.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.builder.fmt(f)
    }
}
