//! The listeners of all protocols, and the tasks that serve them.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;

use tidegate_server::net::access::Access;
use tidegate_server::net::listener::{Listener, listen};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Failure;
use crate::settings::{Address, Settings};

/// All listeners. They are bound, but not served yet: a client can connect, and waits for answers.
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
    pub(super) async fn bind(settings: &Settings) -> Result<Self, Failure> {
        let Settings { grpc, http, resp, page, .. } = settings;
        let (debug, metrics) = (&http.debug, &http.metrics);
        let (grpc, http, resp, page) =
            (&grpc.listener, &http.listener, &resp.listener, &page.listener);
        let plain = |tcp: TcpListener| Ok(tcp.into());
        let grpc = Bound::new(grpc.required_address()?, |tcp| grpc.open(tcp)).await?;
        let http = Bound::new(http.required_address()?, |tcp| http.open(tcp)).await?;
        let resp = Bound::optional(&resp.address, |tcp| resp.open(tcp)).await?;
        let page = Bound::optional(&page.address, |tcp| page.open(tcp)).await?;
        let debug = Bound::optional(debug, plain).await?;
        let metrics_alone = Bound::optional(metrics, plain).await?;
        Ok(Self { grpc, http, resp, page, debug, metrics_alone })
    }
}

/// Checks the certificates of all listeners, and whether RESP needs a password. Binds none of the
/// configured addresses.
///
/// # Errors
///
/// Returns the error with which [`Listeners::bind`] or the start of RESP would fail.
pub(super) async fn check(settings: &Settings) -> Result<(), Failure> {
    let Settings { grpc, http, resp, page, .. } = settings;
    for listener in [&grpc.listener, &http.listener, &resp.listener, &page.listener] {
        if listener.address.is_some() {
            listener.open(listen("127.0.0.1", 0).await?)?;
        }
    }
    if let Some(Address { host, port, .. }) = &resp.listener.address {
        let host = host.trim_matches(['[', ']']);
        let address = tokio::net::lookup_host((host, *port)).await?.next();
        resp.settings(address.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, *port).into()))?;
    }
    Ok(())
}

impl Bound {
    /// Binds an address. The error names the setting that contains the address.
    async fn new(
        address: &Address,
        listener: impl FnOnce(TcpListener) -> Result<Listener, String>,
    ) -> Result<Self, Failure> {
        let Address { host, port, name } = address;
        // An IPv6 address can be in brackets, as in a URL.
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let tcp = listen(bare, *port).await.map_err(|error| {
            let shown = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
            format!("cannot listen on {shown}:{port} ({name}): {error}")
        })?;
        let address = tcp.local_addr()?;
        Ok(Self { listener: listener(tcp)?, address })
    }

    async fn optional(
        address: &Option<Address>,
        listener: impl FnOnce(TcpListener) -> Result<Listener, String>,
    ) -> Result<Option<Self>, Failure> {
        match address {
            Some(address) => Self::new(address, listener).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the URL of this listener, if its protocol uses HTTP.
    pub(super) fn url(&self) -> String {
        let scheme = if self.listener.is_encrypted() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Logs an error if no client may use `routes`. `section` is the section of the settings file
    /// for the listener.
    pub(super) fn warn_if_closed(&self, access: &Access, routes: &str, section: &str) {
        if *access == Access::Closed {
            let (address, prefix) = (self.address, section.to_ascii_uppercase());
            tracing::error!(
                "{routes} is not served on {address}, which other machines reach: set a password \
                 (TIDEGATE_{prefix}_PASSWORD, or {section}.password_file in the settings file), or \
                 {section}.without_password = true in the settings file"
            );
        }
    }
}

/// The tasks that serve several protocols. The protocols are stopped together.
pub(super) struct Running {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Running {
    pub(super) fn new() -> Self {
        Self { stop: watch::Sender::new(false), tasks: JoinSet::new() }
    }

    /// Spawns a task that serves a protocol. `serve` receives a future that completes when the
    /// protocol must stop.
    pub(super) fn start<F>(&mut self, bound: Bound, serve: impl FnOnce(Listener, Stopped) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut stop = self.stop.subscribe();
        let stopped = Box::pin(async move {
            // `wait_for` returns no error, because the sender is dropped only after all tasks have
            // ended.
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
