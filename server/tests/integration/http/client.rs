//! An HTTP/1 client that sends arbitrary bytes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.unwrap().unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends bytes. The server may close the connection before it has read all of them.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = timeout(PATIENCE, self.0.write_all(bytes.as_ref())).await.unwrap();
    }

    pub(crate) async fn call(
        &mut self,
        method: &str,
        path: &str,
        fields: &str,
        body: &str,
    ) -> Answer {
        self.send(request(method, path, fields, body)).await;
        self.answer().await.unwrap()
    }

    /// Reads the next answer. Returns `None` if the connection ends before it.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        timeout(PATIENCE, read_answer(&mut self.0)).await.unwrap()
    }
}

/// Returns a request with additional header fields, each with a line break at its end.
pub(crate) fn request(method: &str, path: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {len}\r\n\r\n{body}")
}

pub(crate) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> Option<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let len = fields.iter().find(|(name, _)| name == "content-length").map(|(_, len)| len);
    let mut body = vec![0; len.map_or(0, |len| len.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Answer { status, fields, body: String::from_utf8(body).unwrap() })
}
