//! Tests the program with a management server.

use std::process::Output;

use super::*;
use crate::json::call;
use crate::program::{program, serving};

const ASK: &str = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "a"}]}]}"#;

fn with(server: &Management) -> tokio::process::Command {
    let mut program = program();
    // Envoy Gateway sets these variables when it starts envoyproxy/ratelimit.
    program.env("RUNTIME_ROOT", "/data").env("RUNTIME_SUBDIRECTORY", "ratelimit");
    program.env("CONFIG_TYPE", "GRPC_XDS_SOTW");
    program.env("CONFIG_GRPC_XDS_SERVER_URL", server.address.to_string());
    program.env("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit");
    program
}

#[tokio::test]
async fn g18_the_program_decides_by_the_limits_of_a_management_server() {
    let mut server = Management::start().await;
    let mut program = with(&server);
    program.env("CONFIG_GRPC_XDS_NODE_METADATA", "a=b,c=d=e");
    program.env("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x-token:S3CRET, x-zone : b");
    let (mut child, address) = serving(program).await;
    let (mut peer, request) = server.stream().await;
    let node = request.node.unwrap();
    let fields = node.metadata.unwrap().fields;
    assert_eq!((&*node.id, fields.len()), ("envoy-ratelimit", 2));
    assert_eq!(format!("{:?}", fields["c"].kind), r#"Some(StringValue("d=e"))"#);
    let header = |name| peer.metadata.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!([header("x-token"), header("x-zone")], ["S3CRET", "b"]);

    let why = "no rate limit configuration loaded";
    assert_eq!(call(address, "GET", "/healthcheck", "").await, (500, format!("{why}\n")));
    assert_eq!(call(address, "POST", "/json", ASK).await, (400, format!("Bad Request: {why}\n")));

    peer.send("1", "n1", &[per_day(1)]);
    peer.accepted("1", "n1").await;
    peer.send("2", "n2", &[bad()]);
    peer.refused("1", "n2").await;
    assert_eq!(call(address, "GET", "/healthcheck", "").await.0, 200);
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 200);
    assert_eq!(call(address, "POST", "/json", ASK).await.0, 429);
    let (_, config) = call(address, "GET", "/config", "").await;
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let limits = serde_json::json!([{"key": "d.a", "limit": "1 per 1d", "place": "d-limits"}]);
    assert_eq!(config["limits"], limits);
    let (_, metrics) = call(address, "GET", "/metrics", "").await;
    for line in [
        "ratelimit_service_config_load_success 1",
        "ratelimit_service_config_load_error 1",
        "tidegate_server_xds_connected 1",
    ] {
        assert!(metrics.lines().any(|printed| printed == line), "{line}: {metrics}");
    }

    child.start_kill().unwrap();
    let Output { stderr, .. } = within(child.wait_with_output()).await.unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    for line in [
        format!("limits come from the management server at {}", server.address),
        format!("the management server at {} is connected", server.address),
        "1 limits in 1 domains".to_owned(),
        format!("the limits stay as they were: {BAD}"),
    ] {
        assert!(
            stderr.lines().any(|logged| logged.ends_with(&format!(" {line}"))),
            "{line}: {stderr}"
        );
    }
    assert!(!stderr.contains("S3CRET"), "{stderr}");
}

#[tokio::test]
async fn the_health_may_be_good_before_any_limits_have_come() {
    let server = Management::start().await;
    for (healthy_with_limits, status) in [("false", 200), ("true", 500)] {
        let mut program = with(&server);
        program.env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true");
        program.env("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", healthy_with_limits);
        let (_child, address) = serving(program).await;
        assert_eq!(call(address, "GET", "/healthcheck", "").await.0, status);
        assert_eq!(call(address, "POST", "/json", ASK).await.0, 400);
    }
}

#[tokio::test]
async fn settings_that_cannot_be_carried_out_are_said_at_the_start() {
    let server = Management::start().await;
    for (variables, arguments, why) in [
        (
            &[("CONFIG_GRPC_XDS_SERVER_URL", "nowhere")][..],
            &[][..],
            "the management server: `nowhere` is not the address",
        ),
        (&[], &["--config", "/data"], "--config is set, and has no effect with CONFIG_TYPE"),
        (
            &[("CONFIG_GRPC_XDS_NODE_METADATA", "a")],
            &[],
            "CONFIG_GRPC_XDS_NODE_METADATA is `a`; it must be name=value",
        ),
        (
            &[("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:b,S3CRET")],
            &[],
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS is `***`; it must be name:value,name:value, and field 2 is not",
        ),
        (
            &[
                ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
                ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/a"),
            ],
            &[],
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT needs CONFIG_GRPC_XDS_CLIENT_TLS_KEY, which is not set",
        ),
        (
            &[
                ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
                ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/nowhere/ca.crt"),
            ],
            &[],
            "the management server: /nowhere/ca.crt: the file cannot be read",
        ),
    ] {
        let mut program = with(&server);
        program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
        program.args(arguments).envs(variables.iter().copied());
        let output = within(program.output()).await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let code = if why.contains("; it must be ") { 2 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{why}: {stderr}");
        assert!(stderr.contains(why) && !stderr.contains("S3CRET"), "{why}: {stderr}");
    }
}
