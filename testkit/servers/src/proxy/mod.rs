//! A TCP proxy that can delay and drop bytes, and cut connections.

mod commands;
mod connection;
mod mode;
mod shared;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use mode::{End, Mode};
use shared::Shared;

use super::error::Error;
use super::port::free_port;
use super::wait::eventually;

/// The maximum number of ports that a proxy tries when it starts.
const PORTS: u8 = 10;

/// A TCP proxy between clients and a server. The [`Mode`] determines whether the proxy forwards,
/// delays or drops the bytes.
///
/// Dropping the proxy ends all its connections.
///
/// ```no_run
/// use tidegate_test_servers::{End, Mode, Proxy, Redis};
///
/// # async fn run() {
/// let redis = Redis::start().await.unwrap();
/// let proxy = Proxy::start(redis.port()).await.unwrap();
/// // A client at `proxy.url()` sees its connection reset, although the server executed the command.
/// proxy.set(Mode::LoseAnswer(End::Reset)).await.unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// The numbers of connections, commands and bytes that a proxy has forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The number of connections that clients have made.
    pub connections: u64,
    /// The number of Redis commands that were delivered to the server.
    pub commands: u64,
    /// The number of bytes that were delivered to the server.
    pub bytes_to_server: u64,
    /// The number of bytes that were delivered to clients.
    pub bytes_to_client: u64,
}

impl Proxy {
    /// Starts a proxy on a free port. It forwards connections to the port `target` on 127.0.0.1.
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

    /// Returns the port on 127.0.0.1 to which clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL to which clients connect.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Changes the mode of the proxy. Returns when the new mode is in effect.
    ///
    /// # Errors
    /// Returns an error if the proxy cannot listen on its port again after [`Mode::Refuse`].
    pub async fn set(&self, mode: Mode) -> Result<(), Error> {
        self.shared.mode.send_replace(mode);
        let wanted = mode != Mode::Refuse;
        eventually(Duration::from_secs(10), "the proxy to change its mode", async || {
            (*self.shared.listening.borrow() == wanted).then_some(())
        })
        .await
    }

    /// Changes the port on 127.0.0.1 to which new connections are forwarded. Open connections keep
    /// their server.
    pub fn set_target(&self, port: u16) {
        self.shared.target.send_replace(local(port));
    }

    /// Ends all open connections of the proxy. With [`End::Hang`], the connections stay open and
    /// forward nothing. New connections are not affected.
    pub fn cut(&self, end: End) {
        self.shared.cut.send_replace(end);
    }

    /// Returns the numbers of connections, commands and bytes so far.
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

/// Accepts connections until the proxy is dropped, which also ends the accepted connections.
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
            // `join_next` removes a connection that has ended, and frees its task.
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Returns the next connection of a client. While the proxy refuses connections, the function
/// waits.
async fn next(listener: Option<&TcpListener>) -> TcpStream {
    loop {
        match listener {
            None => std::future::pending().await,
            // If the client has disconnected before the proxy accepts its connection, `accept`
            // returns an error.
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
