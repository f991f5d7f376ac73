//! Signals that end the program.

use std::io;

/// Waits for a signal to end. The handlers are installed immediately. From then on, no signal
/// kills the process and none is lost. Without a handler, the first process of a container
/// ignores signals.
///
/// # Errors
///
/// Returns an error if the system refuses a handler.
#[cfg(unix)]
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // envoyproxy/ratelimit also ends on this signal. Changed files are read without a signal.
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
        // Without a handler, the system ends the program.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
