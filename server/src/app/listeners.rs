//! The listeners of all protocols, and the tasks that serve them.

use std::net::SocketAddr;
use std::pin::Pin;

use axum::Router;
use futures_util::future::OptionFuture;
use tidegate_server::calls::resp::RespSettings;
use tidegate_server::envoy::grpc::GrpcSettings;
use tidegate_server::net::access::Access;
use tidegate_server::net::http::{self, HttpSettings};
use tidegate_server::net::listener::Listener;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Failure;
use crate::args::{Serve, read_only_settings};

/// All listeners, bound and not served yet. Clients can connect, and wait.
pub(super) struct Listeners {
    pub(super) grpc: Bound<GrpcSettings>,
    pub(super) http: Bound<Http>,
    pub(super) resp: Option<Bound<RespSettings>>,
    pub(super) debug: Option<Bound<Http>>,
    /// The listener for metrics alone, and the path of the metrics.
    pub(super) metrics_alone: Option<(Bound<Http>, String)>,
    pub(super) page: Option<Bound<Http>>,
}

/// A listener, its address, and the settings of its protocol.
pub(super) struct Bound<S> {
    listener: Listener,
    pub(super) address: SocketAddr,
    pub(super) settings: S,
}

/// The settings of a protocol over HTTP.
pub(super) struct Http {
    bounds: HttpSettings,
    pub(super) access: Access,
}

impl Listeners {
    /// Binds all addresses.
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound, if a certificate is not valid, or if a
    /// protocol needs a password on its address.
    pub(super) async fn bind(settings: &Serve) -> Result<Self, Failure> {
        let Serve { tls, grpc, http, resp, debug, prometheus, page, .. } = settings;
        let plain = |tcp: TcpListener| Ok(tcp.into());
        let read_only = |access| Ok(Http { bounds: read_only_settings(), access });
        let grpc = Bound::new(
            ("GRPC_PORT", grpc.address()),
            |tcp| tls.grpc().listener(tcp),
            |_| Ok(grpc.settings()),
        );
        let http = Bound::new(
            ("PORT", http.address()),
            |tcp| tls.http().listener(tcp),
            |address| Ok(Http { bounds: http.settings(), access: http.access(address) }),
        );
        let resp = resp.address().map(|address| {
            Bound::new(
                ("TIDEGATE_RESP_PORT", address),
                |tcp| tls.resp().listener(tcp),
                |address| resp.settings(address),
            )
        });
        let page = page.address().map(|address| {
            Bound::new(
                ("TIDEGATE_PAGE_PORT", address),
                |tcp| tls.page().listener(tcp),
                |address| read_only(page.access(address)),
            )
        });
        let debug = debug
            .address()
            .map(|address| Bound::new(("DEBUG_PORT", address), plain, |_| read_only(Access::Open)));
        let metrics_alone = prometheus.address()?.map(|address| {
            Bound::new(("PROMETHEUS_ADDR", address), plain, |_| read_only(Access::Open))
        });
        Ok(Self {
            grpc: grpc.await?,
            http: http.await?,
            resp: OptionFuture::from(resp).await.transpose()?,
            page: OptionFuture::from(page).await.transpose()?,
            debug: OptionFuture::from(debug).await.transpose()?,
            metrics_alone: OptionFuture::from(metrics_alone)
                .await
                .transpose()?
                .map(|bound| (bound, prometheus.path())),
        })
    }
}

impl<S> Bound<S> {
    /// Binds an address, which is named by its variable in an error.
    async fn new(
        (variable, (host, port)): (&str, (&str, u16)),
        listener: impl FnOnce(TcpListener) -> Result<Listener, String>,
        settings: impl FnOnce(SocketAddr) -> Result<S, String>,
    ) -> Result<Self, Failure> {
        // An address of IPv6 can be written as in a URL.
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let tcp = TcpListener::bind((bare, port)).await.map_err(|error| {
            let shown = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
            format!("cannot listen on {shown}:{port} ({variable}): {error}")
        })?;
        let address = tcp.local_addr()?;
        Ok(Self { listener: listener(tcp)?, address, settings: settings(address)? })
    }

    /// Returns the URL of a protocol over HTTP.
    pub(super) fn url(&self) -> String {
        let scheme = if self.listener.is_encrypted() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }
}

impl Bound<Http> {
    /// Warns if no client may use the routes. The variables of the routes begin with
    /// `TIDEGATE_` and `prefix`.
    pub(super) fn warn_if_closed(&self, routes: &str, prefix: &str) {
        if self.settings.access == Access::Closed {
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
    pub(super) fn start<S, F>(
        &mut self,
        bound: Bound<S>,
        serve: impl FnOnce(Listener, S, Stopped) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut stop = self.stop.subscribe();
        let stopped = Box::pin(async move {
            // The sender lives until all tasks have ended.
            let _ = stop.wait_for(|is_stopped| *is_stopped).await;
        });
        self.tasks.spawn(serve(bound.listener, bound.settings, stopped));
    }

    /// Serves routes over HTTP.
    pub(super) fn start_http(&mut self, bound: Bound<Http>, routes: Router) {
        self.start(bound, |listener, settings, stopped| {
            http::serve(listener, routes, settings.bounds, stopped)
        });
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
