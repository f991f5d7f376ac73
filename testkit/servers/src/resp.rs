//! A minimal Redis client. Tests control their servers with this client, and not with the client
//! library that they test.

use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use super::error::Error;

/// The maximum time of a wait for a reply, for example from a paused server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value, for example because the key does not exist.
    Nil,
    /// A short text, such as `OK`.
    Status(String),
    /// A number.
    Integer(i64),
    /// Bytes, such as a value.
    Bytes(Vec<u8>),
    /// An error of the server, such as `WRONGTYPE …`.
    Error(String),
    /// A list of replies.
    List(Vec<Reply>),
}

impl Reply {
    /// Returns the reply as text. For a nil or a list, the text is empty.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Integer(number) => number.to_string(),
            Self::Nil | Self::List(_) => String::new(),
        }
    }

    /// Returns the replies in a list, or an empty slice if the reply is not a list.
    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(replies) => replies,
            _ => &[],
        }
    }
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

type Stream = BufReader<Box<dyn Socket>>;

/// One connection of a client to a server.
pub struct Client {
    stream: Stream,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Connects to a port on 127.0.0.1.
    pub async fn connect(port: u16) -> Result<Self, Error> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let failed = |error| Error::io(format!("cannot connect to 127.0.0.1:{port}"), error);
        Ok(Self::over(stream.map_err(failed)?))
    }

    /// Connects to a unix socket.
    pub async fn connect_unix(path: &Path) -> Result<Self, Error> {
        let failed = |error| Error::io(format!("cannot connect to {}", path.display()), error);
        Ok(Self::over(UnixStream::connect(path).await.map_err(failed)?))
    }

    fn over(socket: impl Socket + 'static) -> Self {
        Self { stream: BufReader::new(Box::new(socket)) }
    }

    /// Sends a command and waits up to 10 s for its reply. An error of the server is returned as a
    /// [`Reply`], not as an [`Error`].
    pub async fn call(&mut self, command: &[impl AsRef<[u8]>]) -> Result<Reply, Error> {
        let name = command.first().map(|name| String::from_utf8_lossy(name.as_ref()));
        let name = name.unwrap_or_default();
        let request = encode(command);
        let exchange = async {
            self.stream.write_all(&request).await?;
            read(&mut self.stream).await
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(Error::io(format!("no reply to {name}"), error)),
            Err(_) => Err(Error::new(format!("no reply to {name} within {PATIENCE:?}"))),
        }
    }
}

fn encode(command: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command.iter().map(AsRef::as_ref) {
        request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// Reads one reply. The future is boxed, because the function calls itself for each reply in a
/// list.
fn read(stream: &mut Stream) -> Pin<Box<dyn Future<Output = io::Result<Reply>> + Send + '_>> {
    Box::pin(async move {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let malformed = || io::Error::other(format!("not a reply: {line:?}"));
        let text = line.strip_suffix("\r\n").ok_or_else(malformed)?;
        let (kind, text) = text.split_at_checked(1).ok_or_else(malformed)?;
        let number = || text.parse::<i64>().map_err(|_| malformed());
        Ok(match kind {
            "+" => Reply::Status(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" => match u64::try_from(number()?) {
                Err(_) => Reply::Nil,
                Ok(length) => Reply::Bytes(read_bytes(stream, length).await?),
            },
            "*" if number()? < 0 => Reply::Nil,
            "*" => {
                let mut replies = vec![];
                for _ in 0..number()? {
                    replies.push(read(stream).await?);
                }
                Reply::List(replies)
            }
            _ => return Err(malformed()),
        })
    })
}

/// Reads `length` bytes and the line end after them.
async fn read_bytes(stream: &mut Stream, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    stream.take(length).read_to_end(&mut bytes).await?;
    stream.read_exact(&mut [0; 2]).await?;
    Ok(bytes)
}
