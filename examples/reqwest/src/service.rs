//! The API of another company, whose limit changes each second.
//!
//! The API does not use Tidegate and counts its requests itself, as a real API does.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// For each second, the limit, and the seconds in `Retry-After` of a refusal. After the last entry,
/// the service starts again at the first entry.
const LIMITS: [(u32, u64); 6] = [(9, 1), (2, 3), (30, 1), (0, 2), (5, 1), (1, 2)];

/// The request field with the time of the check, in microseconds since 1970. At the check, the
/// client asks its store whether it may send the request.
pub const CHECKED: &str = "checked";
/// The response field that contains the number of an announcement, if the response announces a
/// pause.
pub const ANNOUNCEMENT: &str = "announcement";
/// The request field in which a client reports an announcement: its number, and the time at which
/// the client received it, in microseconds since 1970. An example is `7@1790000000000000`.
pub const RECEIVED: &str = "received";

/// The service, which listens on a free port.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

/// The requests and announcements that the service has recorded.
#[derive(Debug, Clone)]
pub struct Books {
    started: Instant,
    /// The number of the current second since the start. `in_second` counts the requests of this
    /// second.
    second: u64,
    in_second: u32,
    /// All announcements of a pause.
    announced: Vec<Announcement>,
    /// The time at which the client checked each request, in microseconds since 1970.
    checked: Vec<u64>,
    /// The number of requests that were answered.
    pub answered: u64,
    /// The number of requests that were refused.
    pub refused: u64,
}

/// An announcement of a pause. Its times are in microseconds since 1970, because all processes of a
/// machine share this clock.
#[derive(Debug, Clone)]
struct Announcement {
    until: u64,
    /// The time at which a client received the announcement, if the client reported this time.
    received: Option<u64>,
}

/// Returns the current time in microseconds since 1970.
#[must_use]
pub fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Service {
    /// Starts the service.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no free port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let books = Books {
            started: Instant::now(),
            second: 0,
            in_second: 0,
            announced: vec![],
            checked: vec![],
            answered: 0,
            refused: 0,
        };
        let books = Arc::new(Mutex::new(books));
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

    /// Returns the URL of the service.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/items", self.address)
    }

    /// Returns the records so far.
    #[must_use]
    pub fn books(&self) -> Books {
        self.books.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Books {
    /// Returns the number of announcements that clients reported as received.
    #[must_use]
    pub fn received(&self) -> usize {
        self.announced.iter().filter(|announcement| announcement.received.is_some()).count()
    }

    /// Returns the number of requests that a client should not have sent: it checked the request
    /// during a pause, after a client had received the announcement of the pause. Requests that
    /// were checked earlier are not counted, because they may already have been in flight.
    #[must_use]
    pub fn too_early(&self) -> usize {
        let is_too_early = |checked: &&u64| {
            self.announced.iter().any(|Announcement { until, received }| {
                received.is_some_and(|received| received < **checked) && **checked < *until
            })
        };
        self.checked.iter().filter(is_too_early).count()
    }

    /// Records a header field, if a client reports a check or an announcement in it.
    fn note(&mut self, line: &str) {
        let Some((name, value)) = line.trim_end().split_once(": ") else { return };
        if name.eq_ignore_ascii_case(CHECKED) {
            self.checked.extend(value.parse::<u64>());
        } else if name.eq_ignore_ascii_case(RECEIVED)
            && let Some((number, at)) = value.split_once('@')
            && let (Ok(number), Ok(at)) = (number.parse::<usize>(), at.parse())
            && let Some(announcement) = self.announced.get_mut(number)
        {
            announcement.received = Some(at);
        }
    }

    /// Records a new announcement of a pause. Returns the response field with the number of the
    /// announcement.
    fn announce(&mut self, secs: u64) -> String {
        let until = now_micros() + secs * 1_000_000;
        self.announced.push(Announcement { until, received: None });
        format!("{ANNOUNCEMENT}: {}\r\n", self.announced.len() - 1)
    }

    /// Counts one more request, and returns the head of the response.
    fn answer(&mut self, now: Instant) -> String {
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
            let announcement = if left == 0 { self.announce(1) } else { String::new() };
            return format!(
                "HTTP/1.1 200 OK\r\nRateLimit-Policy: \"second\";q={limit};w=1\r\n\
                 RateLimit: \"second\";r={left};t=1\r\n{announcement}Content-Length: 0\r\n\r\n"
            );
        }
        self.refused += 1;
        let announcement = self.announce(retry_after);
        format!(
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {retry_after}\r\n{announcement}\
             Content-Length: 0\r\n\r\n"
        )
    }
}

async fn serve(client: TcpStream, books: &Mutex<Books>) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while client.read_line(&mut line).await? > 0 {
        let head = {
            let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
            books.note(&line);
            (line == "\r\n").then(|| books.answer(Instant::now()))
        };
        if let Some(head) = head {
            client.write_all(head.as_bytes()).await?;
        }
        line.clear();
    }
    Ok(())
}
