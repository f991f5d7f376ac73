//! Ctrl-C.

use std::io;
use std::process;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::ctrl_c;

use crate::command::INTERRUPTED;
use tidegate::trace::Stop;

/// Waits for Ctrl-C in a thread. The first Ctrl-C requests the returned [`Stop`], and a second
/// Ctrl-C ends the process immediately.
pub(crate) fn listen() -> io::Result<Stop> {
    let stop = Stop::default();
    let asked = stop.clone();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let wait = async move {
        if ctrl_c().await.is_ok() {
            asked.ask();
            if ctrl_c().await.is_ok() {
                process::exit(INTERRUPTED.into());
            }
        }
    };
    thread::Builder::new().name("ctrl-c".to_owned()).spawn(move || runtime.block_on(wait))?;
    Ok(stop)
}
