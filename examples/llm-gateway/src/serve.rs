//! Serves until SIGTERM. Answers that do not end within the grace period are cut. A cut answer
//! costs the words that were sent.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The pause after a connection could not be accepted, for example because the process has no free
/// file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Returns a future that ends at SIGTERM or Ctrl-C. A container runtime sends SIGTERM to stop a
/// container. This function installs the signal handlers immediately, before the future is polled.
///
/// # Errors
///
/// Returns an error if a signal handler cannot be installed.
pub fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Serves `app` until `stop` ends. Then the server accepts no new connections, and waits at most
/// the time `grace` for the open requests. After this time, it drops their connections.
///
/// This function replaces `axum::serve`, which waits for the last answer without a time limit. If a
/// client does not read its answer, `axum::serve` waits forever.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let mut stop = pin!(stop);
    let stopping = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, app.clone(), stopping.subscribe()));
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, ended).await.is_err() {
        connections.shutdown().await;
    }
}

/// Serves a connection until its client closes it. When the program stops, the connection ends
/// after its open request.
async fn connection(stream: TcpStream, app: Router, mut stopping: watch::Receiver<bool>) {
    let service = TowerToHyperService::new(app);
    let mut server = http1::Builder::new();
    // Without a timer, hyper does not enforce its limit of 30 s for reading the head of a request.
    server.timer(TokioTimer::new());
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stopping| *stopping) => connection.as_mut().graceful_shutdown(),
    }
    // If the connection fails, its request is dropped, and the layer of the limits settles the hold
    // of the request.
    let _ = connection.await;
}
