//! A minimal HTTP/1.1 client for these tests, which sends one request per connection.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client of one server.
#[derive(Debug, Clone, Copy)]
pub struct Client(pub SocketAddr);

/// The response of the server.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Client {
    pub async fn get(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        self.send("GET", path, fields).await
    }

    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut stream = TcpStream::connect(self.0).await.unwrap();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n");
        for (name, value) in fields {
            request += &format!("{name}: {value}\r\n");
        }
        request += "\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_owned(), body: body.to_owned() }
    }
}

impl Response {
    /// Returns the value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}
