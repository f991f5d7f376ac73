//! A minimal HTTP server for one page, and a minimal HTTP client.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Serves one page for all paths. Returns the port and a future that answers the requests.
pub(crate) async fn serve(
    page: impl Fn() -> String + Send + 'static,
) -> (u16, impl Future<Output = ()> + Send) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            // After an error, the client has disconnected. Prometheus then sends another request.
            let _ = answer(&mut connection, &page()).await;
        }
    };
    (port, serving)
}

async fn answer(connection: &mut TcpStream, page: &str) -> io::Result<()> {
    let mut lines = BufReader::new(&mut *connection).lines();
    while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        page.len()
    );
    connection.write_all(format!("{head}{page}").as_bytes()).await
}

/// Requests a page. Returns `None` if the request fails or its status is not 200.
pub(crate) async fn get(port: u16, path: &str) -> Option<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    connection.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200").map(|_| body.to_owned())
}
