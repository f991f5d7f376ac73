//! What tools such as grpcurl ask a server for: its services and their messages.

use tonic_reflection::pb;
use tonic_reflection::server::{Builder, v1, v1alpha};

/// `envoy/service/ratelimit/v3/rls.proto` and all that it imports, compiled: a `FileDescriptorSet` without comments. Made
/// from the files that `envoy-types` was generated from; a test makes it anew and compares.
const ENVOY: &[u8] = include_bytes!("envoy.bin");

fn builder<'b>() -> Builder<'b> {
    let sets = [
        ENVOY,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        pb::v1::FILE_DESCRIPTOR_SET,
        pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    // Both versions of reflection list both.
    let builder = Builder::configure().include_reflection_service(false);
    sets.into_iter().fold(builder, Builder::register_encoded_file_descriptor_set)
}

/// The service `grpc.reflection.v1.ServerReflection`; `None` if the descriptors are not valid, which a test excludes.
pub(crate) fn service() -> Option<v1::ServerReflectionServer<impl v1::ServerReflection>> {
    builder().build_v1().ok()
}

/// The service `grpc.reflection.v1alpha.ServerReflection`, which older tools ask for.
pub(crate) fn old_service()
-> Option<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>> {
    builder().build_v1alpha().ok()
}
