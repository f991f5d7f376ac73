//! Counts and checks the bytes that a connection transfers.

use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use super::answers::{Answers, MAX_ANSWER, TooLong};

/// The settings of TCP keepalive, which detects a lost host within half a minute, even on an idle
/// connection. Then the store finds the connection closed before it writes the next call, and sends
/// the call on a new connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// The maximum time until the other host acknowledges sent bytes, on systems with
/// `TCP_USER_TIMEOUT`.
#[cfg(target_os = "linux")]
const MAX_UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The time without a read after which a connection is idle. If the server sends bytes on an idle
/// connection, it is probably about to close the connection. If the client has read more recently,
/// the bytes possibly belong to a reply.
const IDLE: Duration = Duration::from_millis(5);

/// The maximum size of [`Activity::head`], in bytes.
const HEAD: usize = 512;

/// The state of a connection, which is derived from the bytes that the connection transfers. The
/// callers and the task that watches the connection use this state.
///
/// **Whether a call was sent.** `writes` counts the attempts to write. The highest bit of `writes`
/// prevents further attempts. A caller remembers the count before it passes a call to the
/// connection. If the call fails, the caller sets the bit. If the count is unchanged at that time,
/// no byte of the call was written, and none will be written.
///
/// **Whether the server does not reply.** `due_since` is the time since which a reply is due. An
/// attempt to write sets `due_since` if no reply was due, and each reply clears it. If several
/// replies are due, the first reply clears `due_since` too early. In this case, the next write sets
/// it again.
#[derive(Debug)]
pub(super) struct Activity {
    epoch: Instant,
    writes: AtomicU64,
    answers: AtomicU64,
    /// The time since which a reply is due, in microseconds after `epoch`, plus one. If no reply is
    /// due, the number is 0.
    due_since: AtomicU64,
    reply_is_due: Notify,
    /// The first bytes that the server sent, from which the error of a failed login is derived.
    head: Mutex<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) writes: u64,
    pub(super) answers: u64,
}

/// The highest bit of `writes`, which prevents further attempts to write.
const CLOSED: u64 = 1 << 63;

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            writes: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            due_since: AtomicU64::new(0),
            reply_is_due: Notify::new(),
            head: Mutex::default(),
        }
    }

    /// Returns the first bytes that the server has sent, at most [`HEAD`] bytes.
    pub(super) fn head(&self) -> Vec<u8> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Appends bytes that were read to `head`, which keeps the first bytes that the server sent.
    /// Returns `true` if `head` has room for further bytes.
    fn keep_head(&self, read: &[u8]) -> bool {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEAD - head.len();
        head.extend_from_slice(&read[..read.len().min(room)]);
        head.len() < HEAD
    }

    pub(super) fn counts(&self) -> Counts {
        let writes = self.writes.load(Ordering::Relaxed) & !CLOSED;
        Counts { writes, answers: self.answers.load(Ordering::Relaxed) }
    }

    /// Prevents further writes, and returns the number of attempts to write so far. `Relaxed`
    /// suffices, because all changes of a single atomic have one order.
    pub(super) fn close(&self) -> u64 {
        self.writes.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED
    }

    pub(super) fn is_closed(&self) -> bool {
        self.writes.load(Ordering::Relaxed) & CLOSED != 0
    }

    fn begin_write(&self) -> io::Result<()> {
        if self.writes.fetch_add(1, Ordering::Relaxed) & CLOSED != 0 {
            return Err(closed());
        }
        if !self.is_due() {
            let now = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
            self.due_since.store(now + 1, Ordering::Relaxed);
            self.reply_is_due.notify_one();
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.due_since.load(Ordering::Relaxed) != 0
    }

    fn count_answers(&self, answers: u64) {
        self.answers.fetch_add(answers, Ordering::Relaxed);
        self.due_since.store(0, Ordering::Relaxed);
    }

    /// Waits until the server was silent for `limit` while a reply was due.
    pub(super) async fn wait_for_silence(&self, limit: Duration) {
        loop {
            let Some(since) = self.due_since.load(Ordering::Relaxed).checked_sub(1) else {
                self.reply_is_due.notified().await;
                continue;
            };
            let since = self.epoch + Duration::from_micros(since);
            if since.elapsed() >= limit {
                return;
            }
            match since.checked_add(limit) {
                Some(due) => sleep_until(due).await,
                // The wait would end after the last time that an `Instant` can represent, so it
                // never ends.
                None => pending().await,
            }
        }
    }
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Evaluates an expression for the stream in a [`Socket`], regardless of the type of the stream.
macro_rules! each {
    ($socket:expr, $stream:ident => $does:expr) => {
        match $socket {
            Socket::Tcp($stream) => $does,
            #[cfg(feature = "tls")]
            Socket::Tls($stream) => $does,
            #[cfg(unix)]
            Socket::Unix($stream) => $does,
        }
    };
}

/// Configures a connection to send bytes immediately and to detect a lost host.
pub(super) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(MAX_UNACKNOWLEDGED))?;
    Ok(())
}

impl Socket {
    /// Returns 1 if bytes can be read, and 0 if the server has closed the connection. If nothing
    /// can be read yet, returns the error `WouldBlock`. The function queries the system directly,
    /// because the runtime learns of new bytes with a delay.
    fn peek(&self) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        match self {
            Self::Tcp(stream) => SockRef::from(stream).peek(&mut byte),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => SockRef::from(stream.get_ref().0).peek(&mut byte),
            #[cfg(unix)]
            Self::Unix(stream) => SockRef::from(stream).peek(&mut byte),
        }
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.get_ref().0.poll_read_ready(context),
            #[cfg(unix)]
            Self::Unix(stream) => stream.poll_read_ready(context),
        }
    }
}

/// A socket whose bytes are counted in an [`Activity`].
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    activity: Arc<Activity>,
    answers: Answers,
    last_read: Instant,
    /// Whether the client has tried to read since the last postponed write. If not, the next write
    /// is not postponed.
    is_read: bool,
    /// Whether [`Activity::head`] has room for the next bytes that are read.
    is_head: bool,
}

impl Stream {
    pub(super) fn new(socket: Socket) -> Self {
        let activity = Arc::new(Activity::new());
        let (answers, last_read) = (Answers::default(), Instant::now());
        Self { socket, activity, answers, last_read, is_read: false, is_head: true }
    }

    pub(super) fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    /// Returns an error if the server has closed the connection, so that no call is written to a
    /// closed connection.
    fn poll_still_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.socket.peek() {
            Ok(0) => Poll::Ready(Err(closed())),
            // With TLS, the server possibly sends messages before it closes the connection. The
            // write is postponed until a read has processed these messages. During the login, the
            // client does not read before each write, so `is_read` prevents a second postponement.
            Ok(_) if self.is_read && self.last_read.elapsed() >= IDLE => {
                ready!(self.socket.poll_readable(context))?;
                self.is_read = false;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_write_watched(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.activity.is_due() {
            ready!(self.poll_still_open(context))?;
        }
        self.activity.begin_write()?;
        each!(&mut self.socket, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_read_watched(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.is_read = true;
        let before = buffer.filled().len();
        ready!(each!(&mut self.socket, stream => Pin::new(stream).poll_read(context, buffer)))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if read.is_empty() {
            self.activity.close();
        }
        self.is_head = self.is_head && self.activity.keep_head(read);
        self.last_read = Instant::now();
        match self.answers.count(read) {
            Ok(0) => Poll::Ready(Ok(())),
            Ok(answers) => {
                self.activity.count_answers(answers);
                Poll::Ready(Ok(()))
            }
            Err(TooLong) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a reply is longer than {MAX_ANSWER} bytes, or has too long a line"),
            ))),
        }
    }

    fn close_on_error<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = polled {
            self.activity.close();
        }
        polled
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_read_watched(context, buffer);
        self.close_on_error(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.poll_write_watched(context, bytes);
        self.close_on_error(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = each!(&mut self.socket, stream => Pin::new(stream).poll_flush(context));
        self.close_on_error(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.activity.close();
        each!(&mut self.socket, stream => Pin::new(stream).poll_shutdown(context))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.activity.close();
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was closed")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        configure(&client).unwrap();
        (Stream::new(Socket::Tcp(client)), listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_lost_host_is_detected_and_bytes_are_sent_immediately() {
        let (stream, _server) = pair().await;
        let Socket::Tcp(tcp) = &stream.socket else { unreachable!() };
        assert!(tcp.nodelay().unwrap());
        let socket = SockRef::from(tcp);
        assert!(socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_AFTER);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(MAX_UNACKNOWLEDGED));
        }
    }

    /// The test does not let the runtime run after the server has closed the connection. So the
    /// runtime does not know yet that the connection has ended.
    #[tokio::test]
    async fn nothing_is_written_to_a_connection_that_the_server_has_closed() {
        let (mut stream, mut server) = pair().await;
        let activity = stream.activity();
        stream.write_all(b"one").await.unwrap();
        server.write_all(b"+OK\r\n").await.unwrap();
        assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 5);
        let server = server.into_std().unwrap();
        let before = activity.counts().writes;
        assert!(before > 0 && !activity.is_closed());
        drop(server);
        stream.write_all(b"two").await.unwrap_err();
        assert!(activity.is_closed());
        assert_eq!(activity.close(), before);
    }

    #[tokio::test]
    async fn nothing_is_written_after_a_caller_has_closed_the_connection() {
        let (mut stream, _server) = pair().await;
        let activity = stream.activity();
        assert_eq!(activity.close(), 0);
        stream.write_all(b"one").await.unwrap_err();
    }

    #[tokio::test]
    async fn an_attempt_to_write_counts() {
        let (mut stream, _server) = pair().await;
        let activity = stream.activity();
        let before = activity.counts().writes;
        stream.write_all(b"one").await.unwrap();
        drop(stream);
        assert!(activity.is_closed());
        assert!(activity.close() > before);
    }

    #[tokio::test]
    async fn a_server_is_silent_when_a_reply_has_been_due_for_too_long() {
        const LIMIT: Duration = Duration::from_millis(100);
        let (mut stream, mut server) = pair().await;
        let activity = stream.activity();
        let silent = async |limit| {
            tokio::time::timeout(limit, activity.wait_for_silence(LIMIT)).await.is_ok()
        };
        assert!(!silent(2 * LIMIT).await, "no reply is due");
        stream.write_all(b"one").await.unwrap();
        assert!(!silent(LIMIT / 2).await, "it has not been due for long");
        server.write_all(b"+OK").await.unwrap();
        assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 3);
        assert!(silent(LIMIT).await, "half a reply is not a reply");
        server.write_all(b"\r\n").await.unwrap();
        assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 2);
        assert!(!silent(2 * LIMIT).await, "it has replied");
    }

    #[tokio::test]
    async fn an_answer_without_end_ends_the_connection() {
        let (mut stream, mut server) = pair().await;
        server.write_all(b"$100000000000\r\n").await.unwrap();
        let error = stream.read(&mut [0; 99]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(stream.activity().is_closed());
    }
}
