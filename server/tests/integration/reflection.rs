//! Tests reflection, with which tools such as grpcurl read the services of a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use prost_types::FileDescriptorProto;
use protox::prost::Message as _;
use protox::prost_reflect::DescriptorPool;
use tonic::transport::Channel;
use tonic_reflection::pb;

use crate::grpc::server;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const FILE: &str = "envoy/service/ratelimit/v3/rls.proto";

/// Defines a client for one version of the reflection protocol. Both versions have the same
/// messages.
macro_rules! client {
    ($version:ident) => {
        mod $version {
            use super::*;
            use pb::$version::server_reflection_client::ServerReflectionClient;
            use pb::$version::server_reflection_request::MessageRequest as Ask;
            use pb::$version::server_reflection_response::MessageResponse as Answer;
            use pb::$version::{ServerReflectionRequest, ServerReflectionResponse};

            async fn answer(channel: &Channel, ask: Ask) -> ServerReflectionResponse {
                let request =
                    ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
                let mut client = ServerReflectionClient::new(channel.clone());
                let requests = futures_util::stream::iter([request]);
                let mut answers =
                    client.server_reflection_info(requests).await.unwrap().into_inner();
                answers.message().await.unwrap().unwrap()
            }

            pub(super) async fn services(channel: &Channel) -> Vec<String> {
                let answer = answer(channel, Ask::ListServices(String::new())).await;
                let Some(Answer::ListServicesResponse(list)) = answer.message_response else {
                    panic!("{answer:?}");
                };
                list.service.into_iter().map(|service| service.name).collect()
            }

            /// Returns the file that contains a symbol, or the file with the given name.
            pub(super) async fn file(channel: &Channel, is_symbol: bool, name: &str) -> Vec<u8> {
                let ask = match is_symbol {
                    true => Ask::FileContainingSymbol(name.to_owned()),
                    false => Ask::FileByFilename(name.to_owned()),
                };
                let answer = answer(channel, ask).await;
                let Some(Answer::FileDescriptorResponse(files)) = answer.message_response else {
                    panic!("{name}: {answer:?}");
                };
                files.file_descriptor_proto.into_iter().next().unwrap()
            }

            /// Returns all files that a symbol needs, by name, as grpcurl collects them.
            pub(super) async fn files(
                channel: &Channel,
                symbol: &str,
            ) -> BTreeMap<String, Vec<u8>> {
                let mut files = BTreeMap::new();
                let mut next = vec![file(channel, true, symbol).await];
                while let Some(bytes) = next.pop() {
                    let parsed = FileDescriptorProto::decode(&bytes[..]).unwrap();
                    files.insert(parsed.name().to_owned(), bytes);
                    for name in parsed.dependency {
                        if !files.contains_key(&name) {
                            next.push(file(channel, false, &name).await);
                        }
                    }
                }
                files
            }
        }
    };
}

client!(v1);
client!(v1alpha);

/// Builds the descriptors of the files as a client does. Panics if a file or a type is missing.
fn pool(files: &BTreeMap<String, Vec<u8>>) -> DescriptorPool {
    let parsed = files.values().map(|bytes| FileDescriptorProto::decode(&bytes[..]).unwrap());
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(parsed).unwrap();
    pool
}

#[tokio::test]
async fn services_are_listed_in_both_versions() {
    let server = server().await;
    let expected = [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    for mut listed in
        [v1::services(&server.channel).await, v1alpha::services(&server.channel).await]
    {
        listed.sort();
        assert_eq!(listed, expected);
    }
}

#[tokio::test]
async fn each_service_has_a_file_whose_dependencies_are_served_too() {
    let server = server().await;
    for service in v1::services(&server.channel).await {
        let files = v1::files(&server.channel, &service).await;
        assert_eq!(files, v1alpha::files(&server.channel, &service).await);
        let pool = pool(&files);
        let found = pool.get_service_by_name(&service).unwrap();
        assert!(found.methods().next().is_some());
    }
    // The server supports Envoy's refunds, so the descriptors must contain their fields.
    let files = v1::files(&server.channel, SERVICE).await;
    assert!(files.contains_key(FILE) && files.contains_key("google/protobuf/struct.proto"));
    let pool = pool(&files);
    let name = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let descriptor = pool.get_message_by_name(name).unwrap();
    assert!(descriptor.get_field_by_name("is_negative_hits").is_some());
}

/// Returns the folder `proto` of the package `envoy-types`, from which its code is generated.
fn protos() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let arguments = ["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest];
    let output = Command::new(cargo).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "envoy-types").unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    manifest.parent().unwrap().join("proto")
}

/// Checks that the stored descriptors are equal to the descriptors of `envoy-types`. After an
/// update of `envoy-types`, run the test with `TIDEGATE_WRITE_DESCRIPTORS=1`, which writes the
/// file.
#[test]
fn the_descriptors_are_those_of_the_messages_in_use() {
    let protos = protos();
    let folders = ["data-plane-api", "protoc-gen-validate", "xds", "googleapis", "cel-spec/proto"];
    let mut compiler = protox::Compiler::new(folders.map(|folder| protos.join(folder))).unwrap();
    compiler.include_imports(true).include_source_info(false).open_file(FILE).unwrap();
    let compiled = compiler.encode_file_descriptor_set();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/envoy/grpc/reflection/envoy.bin");
    if std::env::var_os("TIDEGATE_WRITE_DESCRIPTORS").is_some() {
        std::fs::write(path, &compiled).unwrap();
    }
    let has_changed = std::fs::read(path).unwrap() != compiled;
    assert!(
        !has_changed,
        "{path} is not what `envoy-types` has: TIDEGATE_WRITE_DESCRIPTORS=1 cargo test -p \
         tidegate-server --test integration descriptors"
    );
}
