//! Somebody else's API, whose limit changes each second.
//!
//! It counts by itself and knows nothing of Tidegate, as in life.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The limit in each second, in turns, and the seconds of `Retry-After` beyond it.
const LIMITS: [(u32, u64); 6] = [(9, 1), (2, 3), (30, 1), (0, 2), (5, 1), (1, 2)];

/// Requests that arrive this long after an announcement may have been under way when it was made, and cannot be
/// called back.
pub const UNDER_WAY: Duration = Duration::from_millis(400);

/// The service, listening on a port of its own.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

/// What the service has counted.
#[derive(Debug, Clone)]
pub struct Books {
    started: Instant,
    /// The second that `in_second` counts, since the start.
    second: u64,
    in_second: u32,
    /// When quiet was asked for, and until when.
    announced: Vec<(Instant, Instant)>,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that were sent although all clients had been asked for quiet.
    pub unasked: u64,
}

impl Service {
    /// Starts the service.
    ///
    /// # Errors
    ///
    /// If no port can be listened on.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let books = Books {
            started: Instant::now(),
            second: 0,
            in_second: 0,
            announced: vec![],
            answered: 0,
            refused: 0,
            unasked: 0,
        };
        let books = Arc::new(Mutex::new(books));
        let shared = Arc::clone(&books);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let books = Arc::clone(&shared);
                // A client that hangs up ends its own connection, and nothing else.
                tokio::spawn(async move { serve(client, &books).await });
            }
        });
        Ok(Self { address, books })
    }

    /// Where to call it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/items", self.address)
    }

    /// What it has counted so far.
    #[must_use]
    pub fn books(&self) -> Books {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Books {
    /// The head of the response to one request more.
    fn answer(&mut self, now: Instant) -> String {
        let is_asked_for_quiet = |(since, until): &(Instant, Instant)| {
            now.saturating_duration_since(*since) > UNDER_WAY && now < *until
        };
        self.unasked += u64::from(self.announced.iter().any(is_asked_for_quiet));

        let second = now.saturating_duration_since(self.started).as_secs();
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        let turn = usize::try_from(second).unwrap_or_default() % LIMITS.len();
        let (limit, retry_after) = LIMITS[turn];
        self.in_second += 1;
        if self.in_second <= limit {
            self.answered += 1;
            let left = limit - self.in_second;
            if left == 0 {
                self.announced.push((now, now + Duration::from_secs(1)));
            }
            return format!(
                "HTTP/1.1 200 OK\r\nRateLimit-Policy: \"second\";q={limit};w=1\r\n\
                 RateLimit: \"second\";r={left};t=1\r\nContent-Length: 0\r\n\r\n"
            );
        }
        self.refused += 1;
        self.announced.push((now, now + Duration::from_secs(retry_after)));
        format!(
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {retry_after}\r\nContent-Length: 0\r\n\r\n"
        )
    }
}

async fn serve(client: TcpStream, books: &Mutex<Books>) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while client.read_line(&mut line).await? > 0 {
        if line == "\r\n" {
            let head = books.lock().unwrap_or_else(PoisonError::into_inner).answer(Instant::now());
            client.write_all(head.as_bytes()).await?;
        }
        line.clear();
    }
    Ok(())
}
