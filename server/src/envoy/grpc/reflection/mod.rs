//! gRPC reflection, through which tools such as grpcurl list the services of the server and their
//! messages.

use tonic_reflection::pb;
use tonic_reflection::server::{Builder, v1, v1alpha};

/// A compiled `FileDescriptorSet` of `envoy/service/ratelimit/v3/rls.proto` and its imports,
/// without comments. It was compiled from the files from which the crate `envoy-types` is
/// generated. A test compiles these files again and compares the results.
const ENVOY: &[u8] = include_bytes!("envoy.bin");

fn builder<'b>() -> Builder<'b> {
    let sets = [
        ENVOY,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        pb::v1::FILE_DESCRIPTOR_SET,
        pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    // `sets` contains both versions of the reflection service, so that each version lists both. The
    // builder by itself would add only one version.
    let builder = Builder::configure().include_reflection_service(false);
    sets.into_iter().fold(builder, Builder::register_encoded_file_descriptor_set)
}

/// Returns the service `grpc.reflection.v1.ServerReflection`. Returns `None` if a
/// `FileDescriptorSet` is not valid; a test checks that all are valid.
pub(crate) fn service() -> Option<v1::ServerReflectionServer<impl v1::ServerReflection>> {
    builder().build_v1().ok()
}

/// Returns the service `grpc.reflection.v1alpha.ServerReflection` for older tools.
pub(crate) fn old_service()
-> Option<v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection>> {
    builder().build_v1alpha().ok()
}
