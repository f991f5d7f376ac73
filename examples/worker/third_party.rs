//! The API of a third party, with a quota of 50 requests per second and a burst of 40.
//!
//! The API does not use Tidegate and counts its requests itself, as a real third party does.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The time in nanoseconds after which one more request is allowed.
const INTERVAL: u128 = 20_000_000;

/// The burst: the maximum number of simultaneous requests.
const AT_ONCE: u128 = 40;

/// The API, which listens on a free port.
pub(crate) struct ThirdParty {
    pub(crate) address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

/// The requests that the API has counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    pub(crate) served: u128,
    pub(crate) too_many: u128,
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// The time at which the whole quota is available again, in nanoseconds after the first
    /// request.
    used_up_to: u128,
}

impl ThirdParty {
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let books = Arc::<Mutex<Books>>::default();
        let shared = Arc::clone(&books);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let books = Arc::clone(&shared);
                // An error on a connection ends only this connection.
                tokio::spawn(async move { serve(client, &books).await });
            }
        });
        Ok(Self { address, books })
    }

    pub(crate) fn books(&self) -> Books {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Books {
    /// Counts one more request. Returns `true` if the request is within the quota of the API.
    fn admit(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        self.last = Some(now);
        let now = now.saturating_duration_since(first).as_nanos();
        let used_up_to = self.used_up_to.max(now) + INTERVAL;
        let fits = used_up_to <= now + AT_ONCE * INTERVAL;
        if fits {
            self.served += 1;
            self.used_up_to = used_up_to;
        } else {
            self.too_many += 1;
        }
        fits
    }
}

async fn serve(client: TcpStream, books: &Mutex<Books>) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while client.read_line(&mut line).await? > 0 {
        if line == "\r\n" {
            let fits = books.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
            let status = if fits { "200 OK" } else { "429 Too Many Requests" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            client.write_all(answer.as_bytes()).await?;
        }
        line.clear();
    }
    Ok(())
}
