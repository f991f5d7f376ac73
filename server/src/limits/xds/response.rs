//! Decodes the responses of a management server within bounds.

use bytes::Buf;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::limits::config::ConfigError;

/// The size in bytes up to which the client reads a response that exceeds the configured maximum,
/// so that it can refuse the response. A larger response ends the stream.
pub(super) const MAX_READ_BYTES: usize = 64 << 20;

/// A response. If it exceeds the configured maximum, its resources are replaced by an error.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) head: Head,
    pub(super) resources: Result<Vec<Any>, ConfigError>,
}

/// The fields of a response that the client needs for its answer. The decoder skips the resources.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Head {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// Decodes responses. Only a response of at most `max_bytes` bytes has resources.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseCodec {
    pub(super) max_bytes: usize,
}

impl Codec for ResponseCodec {
    type Encode = DiscoveryRequest;
    type Decode = Response;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ResponseCodec {
    type Item = DiscoveryRequest;
    type Error = Status;

    fn encode(&mut self, item: DiscoveryRequest, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for ResponseCodec {
    type Item = Response;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Response>, Status> {
        let message = bytes.copy_to_bytes(bytes.remaining());
        let is_invalid = |error: prost::DecodeError| Status::internal(error.to_string());
        if message.len() > self.max_bytes {
            let (len, max) = (message.len(), self.max_bytes);
            let error = format!("the response is {len} bytes; it must be at most {max}");
            let resources = Err(ConfigError::about_file("xDS", error));
            return Ok(Some(Response {
                head: Head::decode(message).map_err(is_invalid)?,
                resources,
            }));
        }
        let DiscoveryResponse { version_info, resources, type_url, nonce, .. } =
            DiscoveryResponse::decode(message).map_err(is_invalid)?;
        let head = Head { version_info, type_url, nonce };
        Ok(Some(Response { head, resources: Ok(resources) }))
    }
}
