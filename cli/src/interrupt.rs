//! Ctrl-C.

use std::io;
use std::process;
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::ctrl_c;

use tidegate::trace::Stop;

/// The exit code of a program that Ctrl-C ended: 128 and the number of the signal.
pub(crate) const CODE: u8 = 130;

/// Turns the first Ctrl-C into a request to stop. A second one ends the program at once.
pub(crate) fn listen() -> io::Result<Stop> {
    let stop = Stop::default();
    let asked = stop.clone();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let wait = async move {
        if ctrl_c().await.is_ok() {
            asked.ask();
            if ctrl_c().await.is_ok() {
                process::exit(CODE.into());
            }
        }
    };
    thread::Builder::new().name("ctrl-c".to_owned()).spawn(move || runtime.block_on(wait))?;
    Ok(stop)
}
