use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc;
use futures_util::stream;
use metrics::gauge;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::XdsSettings;
use super::backoff::Backoff;
use super::connect::Once;
use super::messages::{RateLimitConfig, TYPE_URL};
use super::response::{Head, MAX_READ_BYTES, Response, ResponseCodec};
use super::settings::CONNECT_TIMEOUT;
use crate::limits::LoadError;
use crate::limits::config::ConfigError;
use crate::net::text::shown;

/// An event, for the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The connection to the management server was established. The limits arrive later, if there
    /// are any.
    Connected,
    /// Limits arrived and are in force.
    Loaded,
    /// Limits arrived but are not valid. The previous limits stay in force.
    Refused(LoadError),
    /// A response contained resources of another type, which the client did not request.
    Ignored {
        /// The type of the resources.
        type_url: String,
    },
    /// The connection ended or could not be established. The previous limits stay in force.
    Disconnected {
        /// The reason.
        reason: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
}

/// The version in the first request of a stream, if the client has received limits on an earlier
/// stream.
///
/// go-control-plane does not answer the first request of a stream if the request contains the
/// current version. If there are no limits, the current version is "". If the client sent "" too,
/// it would get no response, and would keep limits that were deleted while it was disconnected.
const EARLIER_VERSION: &str = "of-an-earlier-stream";

/// The path of the method that opens an aggregated stream.
const STREAM: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// The maximum time for which the client waits for the result of a stream whose connection has
/// ended.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls `load` with the limits of a management server whenever they change, and calls `report`
/// with each event.
///
/// The client sends a version only on the stream on which it received the version. On the next
/// stream, the client begins with a placeholder, because a restarted management server may use the
/// same version for other limits.
///
/// This function never returns; drop the future to stop it.
pub async fn follow(
    settings: XdsSettings,
    load: impl Fn(Result<&[RateLimitConfig], &ConfigError>) -> Result<(), LoadError>
    + Send
    + Sync
    + 'static,
    report: impl Fn(Event),
) {
    let load: Arc<Load> = Arc::new(load);
    let mut backoff = Backoff::new(settings.backoff);
    let connected = Connected::new();
    let mut first_version = "";
    loop {
        let mut stream = Stream {
            settings: &settings,
            load: &load,
            report: &report,
            connected: &connected,
            first_version,
            has_loaded: false,
        };
        let Err(reason) = stream.follow().await;
        connected.set(false);
        if stream.has_loaded {
            backoff.reset();
            first_version = EARLIER_VERSION;
        }
        let retry_in = backoff.next();
        report(Event::Disconnected { reason, retry_in });
        sleep(retry_in).await;
    }
}

/// A function that puts limits in force, or returns the reason why it cannot.
type Load = dyn Fn(Result<&[RateLimitConfig], &ConfigError>) -> Result<(), LoadError> + Send + Sync;

/// A gauge that is 1 while the management server is connected and has responded.
struct Connected(metrics::Gauge);

impl Connected {
    fn new() -> Self {
        let connected = Self(gauge!("tidegate_server_xds_connected"));
        connected.set(false);
        connected
    }

    fn set(&self, is_connected: bool) {
        self.0.set(f64::from(u8::from(is_connected)));
    }
}

/// A stream of responses, from the start of its connection to its end.
struct Stream<'s, R> {
    settings: &'s XdsSettings,
    load: &'s Arc<Load>,
    report: &'s R,
    connected: &'s Connected,
    first_version: &'static str,
    has_loaded: bool,
}

impl<R: Fn(Event)> Stream<'_, R> {
    /// Connects, and applies responses until the stream ends. Returns the reason for its end.
    async fn follow(&mut self) -> Result<Infallible, String> {
        let endpoint = self.settings.endpoint()?;
        let (once, end) = Once::new();
        let connect = timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(once)).await;
        let channel = connect
            .map_err(|_| format!("no connection was made within {CONNECT_TIMEOUT:?}"))?
            .map_err(|error| with_causes(&error))?;
        (self.report)(Event::Connected);
        until_end(self.follow_on(channel), end.wait()).await
    }

    async fn follow_on(&mut self, channel: Channel) -> Result<Infallible, String> {
        // The capacity is 1, because the client answers each response before it reads the next
        // response.
        let (requests, receiver) = mpsc::channel(1);
        let ended = |_| "the management server closed the stream".to_owned();
        let mut version = self.first_version.to_owned();
        requests.try_send(self.request(&version, "", None)).map_err(|_| ended(()))?;
        let mut outgoing = Request::new(stream(receiver));
        for header in &self.settings.headers {
            outgoing.metadata_mut().insert(header.name.clone(), header.value.clone());
        }
        let max_bytes = self.settings.max_message_bytes;
        let mut client =
            Grpc::new(channel).max_decoding_message_size(max_bytes.max(MAX_READ_BYTES));
        let path = PathAndQuery::from_static(STREAM);
        let begin = async {
            client.ready().await.map_err(|error| with_causes(&error))?;
            let responses = client.streaming(outgoing, path, ResponseCodec { max_bytes }).await;
            let mut responses = responses.map_err(|status| shown_status(&status))?.into_inner();
            let first = responses.message().await.map_err(|status| shown_status(&status))?;
            Ok::<_, String>((responses, first))
        };
        let (mut responses, mut next) = match self.settings.response_timeout {
            Duration::ZERO => begin.await?,
            time => timeout(time, begin)
                .await
                .map_err(|_| format!("there was no response within {time:?}"))??,
        };
        self.connected.set(true);

        // The client pauses after a response that it refuses or ignores, because a management
        // server may send this response again and again.
        let (min_pause, max_pause) = self.settings.backoff.pauses();
        let mut pause = min_pause;
        while let Some(Response { head, resources }) = next {
            let Head { version_info, type_url, nonce } = head;
            if type_url == TYPE_URL {
                let loaded = self.load(resources).await;
                if loaded.is_ok() {
                    version = version_info;
                }
                let refused = loaded.as_ref().err().map(ToString::to_string);
                let answered = requests.send(self.request(&version, &nonce, refused)).await;
                answered.map_err(|_| ended(()))?;
                match loaded {
                    Ok(()) => {
                        (self.has_loaded, pause) = (true, min_pause);
                        (self.report)(Event::Loaded);
                        next = responses.message().await.map_err(|status| shown_status(&status))?;
                        continue;
                    }
                    Err(error) => (self.report)(Event::Refused(error)),
                }
            } else {
                (self.report)(Event::Ignored { type_url: shown(&type_url) });
            }
            sleep(pause).await;
            pause = (pause * 2).min(max_pause);
            next = responses.message().await.map_err(|status| shown_status(&status))?;
        }
        Err(ended(()))
    }

    async fn load(&self, resources: Result<Vec<Any>, ConfigError>) -> Result<(), LoadError> {
        let load = Arc::clone(self.load);
        // Loading can take long. It runs on another thread, so that it does not delay decisions.
        let loading = tokio::task::spawn_blocking(move || {
            let resources = resources.and_then(|resources| decode(&resources));
            load(resources.as_deref())
        });
        match loading.await {
            Ok(loaded) => loaded,
            Err(error) => {
                let message = format!("the limits were not read: {error}");
                Err(LoadError::Config(ConfigError::about_file("xDS", message)))
            }
        }
    }

    /// Creates the answer to a response: a refusal with the reason `refused`, or an acknowledgement
    /// if there is no reason. If `nonce` is empty, creates the first request of a stream, which
    /// requests all limits.
    fn request(&self, version: &str, nonce: &str, refused: Option<String>) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: version.to_owned(),
            node: Some(self.settings.node()),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: refused.map(|message| rpc::Status {
                code: Code::InvalidArgument.into(),
                message,
                details: Vec::new(),
            }),
            ..DiscoveryRequest::default()
        }
    }
}

/// Returns the result of `stream`. `end` completes when the connection has ended. After that, the
/// function waits at most [`END_TIMEOUT`], because the result sometimes never arrives: in a test,
/// the TLS handshakes of 2,000 requests failed, and one request never returned.
async fn until_end<T>(
    stream: impl Future<Output = Result<T, String>>,
    end: impl Future<Output = ()>,
) -> Result<T, String> {
    let mut stream = pin!(stream);
    tokio::select! {
        biased;
        result = &mut stream => return result,
        () = end => {}
    }
    // The stream may still have to read a response that arrived before the connection ended.
    let said = timeout(END_TIMEOUT, stream).await;
    said.unwrap_or_else(|_| Err("the connection has ended".to_owned()))
}

fn stream<T: Send + 'static>(
    receiver: mpsc::Receiver<T>,
) -> impl futures_util::Stream<Item = T> + Send + 'static {
    stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    })
}

fn decode(resources: &[Any]) -> Result<Vec<RateLimitConfig>, ConfigError> {
    let decode = |(index, resource): (usize, &Any)| {
        let name = format!("resource {}", index + 1);
        if resource.type_url != TYPE_URL {
            let message = format!("its type is '{}', not '{TYPE_URL}'", shown(&resource.type_url));
            return Err(ConfigError::about_file(&name, message));
        }
        let mut config = RateLimitConfig::decode(&*resource.value)
            .map_err(|error| ConfigError::about_file(&name, error.to_string()))?;
        if config.name.is_empty() {
            config.name = name;
        }
        Ok(config)
    };
    resources.iter().enumerate().map(decode).collect()
}

/// Returns the message of an error, followed by its causes.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn shown_status(status: &Status) -> String {
    let message = shown(status.message());
    match status.source() {
        Some(cause) => format!("{}: {}", status.code(), with_causes(cause)),
        None if message.is_empty() => status.code().to_string(),
        None => format!("{}: {message}", status.code()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_not_notice_the_end_ends() {
        let start = Instant::now();
        let ended: Result<(), _> = until_end(pending(), sleep(END_TIMEOUT)).await;
        assert_eq!(ended.unwrap_err(), "the connection has ended");
        assert_eq!(start.elapsed(), END_TIMEOUT * 2);
        let ended: Result<(), _> = until_end(async { Err("why".to_owned()) }, ready(())).await;
        assert_eq!(ended.unwrap_err(), "why");
        let late = async {
            sleep(END_TIMEOUT / 2).await;
            Err("why".to_owned())
        };
        let ended: Result<(), _> = until_end(late, ready(())).await;
        assert_eq!(ended.unwrap_err(), "why");
    }
}
