use std::fmt;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Request, StatusCode, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::tls::Connector;
use super::tls::TopTls;
use super::view::visible;
use crate::net::login::Login;
use crate::observe::activity::LimitsQuery;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(4);

/// The maximum size of an answer in bytes.
const MAX_BYTES: usize = 8 << 20;

/// The reason why the server returned no snapshot, or why a setting is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopError(String);

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TopError {}

/// A client that reads the snapshots of a server.
#[derive(Debug, Clone)]
pub struct Client {
    uri: Uri,
    host: String,
    port: u16,
    authorization: Option<String>,
    path: String,
    tls: Option<Connector>,
}

impl Client {
    /// Creates a client of the page at `url`, for example `http://127.0.0.1:6060`. `tls` applies to
    /// `https://` only.
    ///
    /// # Errors
    ///
    /// Returns an error if `url` does not begin with `http://` or `https://`, or has no host. Also
    /// returns an error if `tls` is set for `http://`, or if a file of `tls` cannot be used.
    pub fn new(url: &str, login: Option<&Login>, tls: &TopTls) -> Result<Self, TopError> {
        let invalid = |why: &str| TopError(format!("`{url}` is not the URL of a page: {why}"));
        let uri: Uri = url.parse().map_err(|error| invalid(&format!("{error}")))?;
        let default_port = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return Err(invalid("it must begin with http:// or https://")),
        };
        let host = uri.host().ok_or_else(|| invalid("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(default_port);
        let is_encrypted = default_port == 443;
        let connector = is_encrypted.then(|| Connector::new(tls, &host)).transpose();
        if !is_encrypted && *tls != TopTls::default() {
            return Err(invalid("the settings of TLS have no effect without https://"));
        }
        let authorization = login
            .map(|Login { user, password }| STANDARD.encode(format!("{user}:{password}")))
            .map(|login| format!("Basic {login}"));
        Ok(Self {
            uri,
            host,
            port,
            authorization,
            path: "/activity".to_owned(),
            tls: connector.map_err(TopError)?,
        })
    }

    /// Makes snapshots list the limits that `query` selects.
    #[must_use]
    pub fn limits(self, query: &LimitsQuery) -> Self {
        Self { path: format!("/activity?{query}"), ..self }
    }

    /// Fetches the present snapshot.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not answer in time, or if its answer is not a snapshot.
    pub async fn fetch(&self) -> Result<Value, TopError> {
        let fetched = timeout(TIMEOUT, async {
            let stream = TcpStream::connect((&*self.host, self.port)).await;
            let stream = stream.map_err(|error| self.failed(&error))?;
            if let Some(tls) = &self.tls {
                let stream = tls.connect(stream).await.map_err(|error| self.failed(&error))?;
                return self.fetch_over(stream).await;
            }
            self.fetch_over(stream).await
        });
        fetched.await.unwrap_or_else(|_| Err(self.failed(&format!("no answer within {TIMEOUT:?}"))))
    }

    /// Fetches the present snapshot over an established connection.
    async fn fetch_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Value, TopError> {
        let failed = |error: hyper::Error| self.failed(&error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // The task that drives the connection ends when `sender` is dropped.
        tokio::spawn(connection);
        let mut request = Request::get(&*self.path).header(header::HOST, self.authority());
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.failed(&error))?;
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let body = body.map_err(|error| self.failed(&error))?.to_bytes();
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|error| self.failed(&error)),
            _ => {
                let text = String::from_utf8_lossy(&body);
                Err(self.failed(&format!("{status}: {}", text.lines().next().unwrap_or_default())))
            }
        }
    }

    /// Returns the host and the port of the URL, without a login.
    fn authority(&self) -> &str {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        authority.rsplit_once('@').map_or(authority, |(_, host)| host)
    }

    /// Creates an error. `why` can contain text from the server, so this function replaces
    /// characters that have an effect on a terminal.
    fn failed(&self, why: &dyn fmt::Display) -> TopError {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        TopError(format!("{scheme}://{}: {}", self.authority(), visible(&why.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_of_urls_are_read() {
        for (url, host, port) in [
            ("http://127.0.0.1:6060", "127.0.0.1", 6060),
            ("http://localhost", "localhost", 80),
            ("http://[::1]:6060/", "::1", 6060),
            ("http://user:password@[2001:db8::1]", "2001:db8::1", 80),
        ] {
            let client = Client::new(url, None, &TopTls::default()).unwrap();
            assert_eq!((&*client.host, client.port), (host, port), "{url}");
        }
    }
}
