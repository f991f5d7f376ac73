//! The listeners of all protocols, and the tasks that serve them.

use std::net::SocketAddr;
use std::pin::Pin;

use tidegate_server::net::access::Access;
use tidegate_server::net::listener::Listener;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Failure;
use crate::args::Serve;

/// All listeners, bound and not served yet. Clients can connect, and wait.
pub(super) struct Listeners {
    pub(super) grpc: Bound,
    pub(super) http: Bound,
    pub(super) resp: Option<Bound>,
    pub(super) page: Option<Bound>,
    pub(super) debug: Option<Bound>,
    /// The listener for metrics alone.
    pub(super) metrics_alone: Option<Bound>,
}

/// A listener and its address.
pub(super) struct Bound {
    listener: Listener,
    pub(super) address: SocketAddr,
}

impl Listeners {
    /// Binds all addresses.
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound or a certificate is not valid.
    pub(super) async fn bind(settings: &Serve) -> Result<Self, Failure> {
        let Serve { tls, grpc, http, resp, page, debug, prometheus, .. } = settings;
        let plain = |tcp: TcpListener| Ok(tcp.into());
        let encrypted = |tcp| tls.grpc().listener(tcp);
        let grpc = Bound::new("GRPC_PORT", grpc.address(), encrypted).await?;
        let encrypted = |tcp| tls.http().listener(tcp);
        let http = Bound::new("PORT", http.address(), encrypted).await?;
        let encrypted = |tcp| tls.resp().listener(tcp);
        let resp = Bound::optional("TIDEGATE_RESP_PORT", resp.address(), encrypted).await?;
        let encrypted = |tcp| tls.page().listener(tcp);
        let page = Bound::optional("TIDEGATE_PAGE_PORT", page.address(), encrypted).await?;
        let debug = Bound::optional("DEBUG_PORT", debug.address(), plain).await?;
        let address = prometheus.address()?;
        let metrics_alone = Bound::optional("PROMETHEUS_ADDR", address, plain).await?;
        Ok(Self { grpc, http, resp, page, debug, metrics_alone })
    }
}

impl Bound {
    /// Binds an address, which is named by its variable in an error.
    async fn new(
        variable: &str,
        (host, port): (&str, u16),
        listener: impl FnOnce(TcpListener) -> Result<Listener, String>,
    ) -> Result<Self, Failure> {
        // An address of IPv6 can be written as in a URL.
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let tcp = TcpListener::bind((bare, port)).await.map_err(|error| {
            let shown = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
            format!("cannot listen on {shown}:{port} ({variable}): {error}")
        })?;
        let address = tcp.local_addr()?;
        Ok(Self { listener: listener(tcp)?, address })
    }

    async fn optional(
        variable: &str,
        address: Option<(&str, u16)>,
        listener: impl FnOnce(TcpListener) -> Result<Listener, String>,
    ) -> Result<Option<Self>, Failure> {
        match address {
            Some(address) => Self::new(variable, address, listener).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the URL of a protocol over HTTP.
    pub(super) fn url(&self) -> String {
        let scheme = if self.listener.is_encrypted() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Warns if no client may use the routes. The variables of the routes begin with `TIDEGATE_`
    /// and `prefix`.
    pub(super) fn warn_if_closed(&self, access: &Access, routes: &str, prefix: &str) {
        if *access == Access::Closed {
            let address = self.address;
            stderr!(
                "tidegate-server: {routes} is not served on {address}, because other machines reach this address: set \
                 TIDEGATE_{prefix}_PASSWORD, or TIDEGATE_{prefix}_WITHOUT_PASSWORD to serve it without a password"
            );
        }
    }
}

/// Protocols that are served until they are stopped.
pub(super) struct Running {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Running {
    pub(super) fn new() -> Self {
        Self { stop: watch::Sender::new(false), tasks: JoinSet::new() }
    }

    /// Serves a protocol: the future of `serve` ends after its last argument is ready.
    pub(super) fn start<F>(&mut self, bound: Bound, serve: impl FnOnce(Listener, Stopped) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut stop = self.stop.subscribe();
        let stopped = Box::pin(async move {
            // The sender lives until all tasks have ended.
            let _ = stop.wait_for(|is_stopped| *is_stopped).await;
        });
        self.tasks.spawn(serve(bound.listener, stopped));
    }

    /// Stops all protocols, and waits until their requests in flight are answered.
    ///
    /// # Errors
    ///
    /// Returns an error if a task has panicked.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        Ok(())
    }
}
