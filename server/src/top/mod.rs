//! The [page](crate::page) in a terminal: `tidegate-server top` (feature `top`).

mod client;
mod terminal;
mod view;

pub use client::{Client, TopError};
pub use terminal::watch;
pub use view::{State, lines};

/// Waits for one snapshot, and returns it as plain text of this width.
///
/// # Errors
///
/// If the server does not answer.
pub async fn once(client: &Client, width: usize) -> Result<String, TopError> {
    let snapshot = client.fetch().await?;
    let mut text = String::new();
    for line in lines(&snapshot, &State::Once, width) {
        text.push_str(line.to_string().trim_end());
        text.push('\n');
    }
    Ok(text)
}
