//! Decodes requests within bounds.
//!
//! The codec of tonic for prost does not limit the number of descriptors and entries. An empty
//! descriptor or entry takes two bytes in a message, but many more in memory. With that codec, a
//! message with 4 MiB of empty descriptors took 120 MB before the server refused it.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::memory::Usage;
use crate::envoy::decide::MAX_DESCRIPTORS;
use crate::envoy::request::RateLimitRequest;

/// The maximum number of entries in all descriptors of a request.
pub const MAX_ENTRIES: usize = 10_000;

/// The field numbers of the descriptors in a request, and of the entries in a descriptor.
const DESCRIPTORS: u64 = 2;
const ENTRIES: u64 = 1;

/// The memory in bytes that a decision needs for each descriptor and for each entry. It covers the
/// decoded request, the plan and the response.
const DESCRIPTOR_BYTES: usize = 512;
const ENTRY_BYTES: usize = 96;

/// The initial size of the buffer for a message. Most messages fit into it. The size is small,
/// because a response keeps its buffer until the client reads the response.
const BUFFER_BYTES: usize = 256;

/// The codec of one request. It counts the decoded message as memory of this request.
#[derive(Debug, Clone)]
pub(super) struct RequestCodec(pub(super) Arc<Usage>);

impl Codec for RequestCodec {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for RequestCodec {
    type Item = RateLimitResponse;
    type Error = Status;

    fn encode(&mut self, item: RateLimitResponse, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}

impl Decoder for RequestCodec {
    type Item = RateLimitRequest;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<RateLimitRequest>, Status> {
        // `copy_to_bytes` does not copy here: the message shares the memory of the buffer.
        let message = bytes.copy_to_bytes(bytes.remaining());
        decode(message, |bytes| self.0.add(bytes)).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, BUFFER_BYTES)
    }
}

/// Decodes a message. Before decoding, the function calls `add` with the memory that the decision
/// needs.
fn decode(
    message: Bytes,
    add: impl FnOnce(usize) -> Result<(), Status>,
) -> Result<RateLimitRequest, Status> {
    let Some((descriptors, entries)) = count(&message) else {
        return Err(Status::internal("the message is cut off, or has a field of an unknown kind"));
    };
    // envoyproxy/ratelimit uses this status code for all errors.
    if descriptors > MAX_DESCRIPTORS {
        let message = format!(
            "the request has {descriptors} descriptors; at most {MAX_DESCRIPTORS} are possible"
        );
        return Err(Status::unknown(message));
    }
    if entries > MAX_ENTRIES {
        let message =
            format!("the request has {entries} entries; at most {MAX_ENTRIES} are possible");
        return Err(Status::unknown(message));
    }
    // The length of the message is counted for a second time, because subjects and dynamic metadata
    // copy the texts of the message.
    add(message.len() + descriptors * DESCRIPTOR_BYTES + entries * ENTRY_BYTES)?;
    RateLimitRequest::decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// Returns the number of descriptors, and the number of entries in all descriptors. Returns `None`
/// if the bytes are not a message.
fn count(message: &[u8]) -> Option<(usize, usize)> {
    let (mut descriptors, mut entries) = (0, 0);
    let mut fields = Fields(message);
    while let Some((number, value)) = fields.next()? {
        if number == DESCRIPTORS {
            descriptors += 1;
            let mut fields = Fields(value);
            while let Some((number, _)) = fields.next()? {
                entries += usize::from(number == ENTRIES);
            }
        }
    }
    Some((descriptors, entries))
}

/// The unread fields of a message.
struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    /// Returns the number and the value of the next field. The value of a varint field is returned
    /// as an empty slice.
    #[expect(
        clippy::option_option,
        reason = "the inner `None` is the end of the message, the outer `None` an invalid message"
    )]
    fn next(&mut self) -> Option<Option<(u64, &'m [u8])>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let len = match key & 7 {
            0 => {
                self.varint()?;
                return Some(Some((key >> 3, &[])));
            }
            1 => 8,
            2 => usize::try_from(self.varint()?).ok()?,
            5 => 4,
            // Protobuf groups are not valid, because no message of the protocol contains groups.
            _ => return None,
        };
        let (value, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::envoy::grpc::MAX_MESSAGE_BYTES;
    use crate::envoy::request::{Entry, RateLimitDescriptor};

    fn request(descriptors: usize, entries: usize) -> RateLimitRequest {
        let entry = Entry { key: "key".into(), value: "value".into() };
        let descriptor =
            RateLimitDescriptor { entries: vec![entry; entries], ..Default::default() };
        let domain = "d".into();
        RateLimitRequest { domain, descriptors: vec![descriptor; descriptors], hits_addend: 5 }
    }

    fn decoded(message: impl Into<Bytes>) -> Result<RateLimitRequest, String> {
        decode(message.into(), |_| Ok(())).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn as_much_as_is_possible_is_decoded_and_no_more() {
        for (descriptors, entries) in [(0, 0), (1, 10_000), (1_000, 0), (1_000, 10)] {
            let request = request(descriptors, entries);
            assert_eq!(decoded(request.encode_to_vec()).unwrap(), request);
        }
        let error = decoded(request(1_001, 1).encode_to_vec()).unwrap_err();
        assert_eq!(error, "the request has 1001 descriptors; at most 1000 are possible");
        let error = decoded(request(1, 10_001).encode_to_vec()).unwrap_err();
        assert_eq!(error, "the request has 10001 entries; at most 10000 are possible");
    }

    #[test]
    fn fields_of_all_kinds_that_are_not_known_are_left_out() {
        // The unknown field 15 occurs four times, with each kind of value: 8 bytes, 4 bytes, a
        // varint, and 2 bytes with a length.
        let unknown = b"\x7912345678\x7d1234\x78\xff\x01\x7a\x02\x12\x00";
        let request = request(2, 3);
        let message = [&unknown[..], &request.encode_to_vec(), unknown].concat();
        assert_eq!(count(&message), Some((2, 6)));
        assert_eq!(decoded(message).unwrap(), request);
    }

    #[test]
    fn the_wire_format_is_that_of_the_protocol() {
        use envoy_types::pb::envoy::extensions::common::ratelimit::v3 as common;
        use envoy_types::pb::envoy::service::ratelimit::v3 as service;
        use envoy_types::pb::google::protobuf::UInt64Value;

        let limit =
            common::rate_limit_descriptor::RateLimitOverride { requests_per_unit: 3, unit: 2 };
        let (key, value) = ("key".to_owned(), "value".to_owned());
        let descriptor = common::RateLimitDescriptor {
            entries: vec![common::rate_limit_descriptor::Entry { key, value }],
            limit: Some(limit),
            hits_addend: Some(UInt64Value { value: 4 }),
            is_negative_hits: true,
        };
        let (domain, descriptors) = ("d".to_owned(), vec![descriptor]);
        let message = service::RateLimitRequest { domain, descriptors, hits_addend: 5 };
        let entry = Entry { key: "key".into(), value: "value".into() };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            limit: Some(limit),
            hits_addend: Some(UInt64Value { value: 4 }),
            is_negative_hits: true,
        };
        let (domain, descriptors) = ("d".into(), vec![descriptor]);
        let request = RateLimitRequest { domain, descriptors, hits_addend: 5 };
        assert_eq!(decoded(message.encode_to_vec()).unwrap(), request);
        assert_eq!(request.encode_to_vec(), message.encode_to_vec());
    }

    #[test]
    fn what_is_refused_takes_no_memory() {
        let descriptors = b"\x12\0".repeat(MAX_MESSAGE_BYTES / 2);
        // The message `entries` contains one descriptor, which is full of empty entries. The tag
        // and the length of the descriptor take at most six bytes.
        let len = MAX_MESSAGE_BYTES - 6;
        let mut entries = vec![0x12];
        prost::encode_length_delimiter(len, &mut entries).unwrap();
        entries.extend(b"\x0a\0".repeat(len / 2));
        // This message contains a protobuf group before the descriptors. It must be refused,
        // because `count` does not count the descriptors after a group.
        let behind_group = [b"\x7b\x7c", &*descriptors].concat();
        for message in [descriptors, entries, behind_group].map(Bytes::from) {
            let memory = measure(|| drop(decoded(message).unwrap_err()));
            assert!(memory.bytes_max < 10_000, "{}", memory.bytes_max);
        }
    }

    proptest! {
        /// If `count` accepts a message that prost decodes, it returns the number of descriptors
        /// and entries that prost finds.
        #[test]
        fn all_that_is_decoded_is_counted(
            bytes in vec(prop_oneof![0..9_u8, Just(0x0a), Just(0x12), any::<u8>()], 0..40),
            request in (0..5_usize, 0..5_usize).prop_map(|(all, each)| request(all, each)),
        ) {
            let message = [request.encode_to_vec(), bytes].concat();
            if let (Some(counted), Ok(decoded)) =
                (count(&message), RateLimitRequest::decode(&*message))
            {
                let entries = decoded.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
                prop_assert_eq!(counted, (decoded.descriptors.len(), entries));
            }
        }
    }
}
