//! Shows the [page](crate::observe::page) in a terminal: `tidegate-server top`.

mod client;
mod terminal;
mod tls;
mod view;

pub use client::{Client, TopError};
pub use terminal::watch;
pub use tls::TopTls;
pub use view::{State, lines};

/// Fetches one snapshot and returns it as plain text, in which no name is cut.
///
/// # Errors
///
/// Returns an error if the server does not return a snapshot.
pub async fn once(client: &Client) -> Result<String, TopError> {
    let snapshot = client.fetch().await?;
    let mut text = String::new();
    for line in lines(&snapshot, &State::Once, None) {
        text.push_str(line.to_string().trim_end());
        text.push('\n');
    }
    Ok(text)
}
