//! A TCP proxy that misbehaves on demand.

mod commands;
mod connection;
mod mode;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use mode::{End, Mode};

use super::port::free_port;
use super::{Error, eventually};

/// How many ports are tried.
const PORTS: u8 = 10;

/// Stands between a client and a server, and does what [`Mode`] says to what passes.
///
/// Dropping it ends all its connections.
///
/// ```no_run
/// use tidegate_testkit::servers::{End, Mode, Proxy, Redis};
///
/// # async fn run() {
/// let redis = Redis::start().await.unwrap();
/// let proxy = Proxy::start(redis.port()).await.unwrap();
/// // A client at `proxy.url()` sees its connection reset, although the command was carried out.
/// proxy.set(Mode::LoseAnswer(End::Reset)).await.unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the proxy and its connections share.
#[derive(Debug)]
struct Shared {
    mode: watch::Sender<Mode>,
    target: watch::Sender<SocketAddr>,
    /// How to end the connections that are open when it changes.
    cut: watch::Sender<End>,
    listening: watch::Sender<bool>,
    connections: AtomicU64,
    commands: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

/// What has passed through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that clients made.
    pub connections: u64,
    /// Redis commands that were delivered to the server.
    pub commands: u64,
    /// Bytes that were delivered to the server.
    pub bytes_to_server: u64,
    /// Bytes that were delivered to clients.
    pub bytes_to_client: u64,
}

impl Proxy {
    /// Starts a proxy on a free port in front of a port on 127.0.0.1.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start(target: u16) -> Result<Self, Error> {
        let (listener, port) = listen_anywhere().await?;
        let shared = Arc::new(Shared {
            mode: watch::Sender::new(Mode::Pass),
            target: watch::Sender::new(local(target)),
            cut: watch::Sender::new(End::Close),
            listening: watch::Sender::new(true),
            connections: AtomicU64::default(),
            commands: AtomicU64::default(),
            to_server: AtomicU64::default(),
            to_client: AtomicU64::default(),
        });
        let task = tokio::spawn(accept(Arc::clone(&shared), port, Some(listener)));
        Ok(Self { port, shared, task })
    }

    /// The port on 127.0.0.1 that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL that clients connect to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Changes what it does, and returns when that holds.
    ///
    /// # Errors
    /// If its port cannot be listened on again after [`Mode::Refuse`].
    pub async fn set(&self, mode: Mode) -> Result<(), Error> {
        self.shared.mode.send_replace(mode);
        let wanted = mode != Mode::Refuse;
        eventually(Duration::from_secs(10), "the proxy to change what it does", async || {
            (*self.shared.listening.borrow() == wanted).then_some(())
        })
        .await
    }

    /// Leads new connections to another port on 127.0.0.1. Open ones stay where they are.
    pub fn set_target(&self, port: u16) {
        self.shared.target.send_replace(local(port));
    }

    /// Ends all open connections. With [`End::Hang`] they stay open and fall silent, and new ones pass.
    pub fn cut(&self, end: End) {
        self.shared.cut.send_replace(end);
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.shared.connections.load(Ordering::SeqCst),
            commands: self.shared.commands.load(Ordering::SeqCst),
            bytes_to_server: self.shared.to_server.load(Ordering::SeqCst),
            bytes_to_client: self.shared.to_client.load(Ordering::SeqCst),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes connections for as long as the proxy lives; those that it has taken end with it.
async fn accept(shared: Arc<Shared>, port: u16, mut listener: Option<TcpListener>) {
    let mut mode = shared.mode.subscribe();
    let mut connections = JoinSet::new();
    loop {
        if *mode.borrow_and_update() == Mode::Refuse {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(local(port)).await.ok();
        }
        shared.listening.send_replace(listener.is_some());
        tokio::select! {
            _ = mode.changed() => {}
            stream = next(listener.as_ref()) => {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(connection::serve(stream, Arc::clone(&shared)));
            }
            // A connection that has ended frees what it holds.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The next connection; pending for ever while connections are refused.
async fn next(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        match listener {
            None => std::future::pending().await,
            // The client has gone before it was taken.
            Some(listener) => match listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(_) => tokio::task::yield_now().await,
            },
        }
    }
}

async fn listen_anywhere() -> Result<(TcpListener, u16), Error> {
    let mut failed = None;
    for _ in 0..PORTS {
        let port = free_port()?;
        match TcpListener::bind(local(port)).await {
            Ok(listener) => return Ok((listener, port)),
            Err(error) => failed = Some(error),
        }
    }
    let attempt = format!("cannot listen on any of {PORTS} free ports");
    Err(failed.map_or_else(|| Error::new(attempt.clone()), |error| Error::io(&attempt, error)))
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
