//! Signals that end the program.

use std::io;

/// Returns a future that waits for SIGTERM, SIGINT or SIGHUP. The handlers are installed before
/// this function returns. From then on, none of these signals is lost or kills the process. Without
/// a handler, the first process of a container would ignore the signals.
///
/// # Errors
///
/// Returns an error if the system refuses a handler.
#[cfg(unix)]
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // SIGHUP ends the program, as in envoyproxy/ratelimit. It is not needed to load changed files,
    // because the server detects changes by itself.
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // If the handler cannot be installed, the operating system ends the program on Ctrl-C, so
        // this future must never complete.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
