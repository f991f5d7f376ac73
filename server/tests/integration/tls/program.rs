//! The program with the TLS variables of envoyproxy/ratelimit, and with the TLS variables of the
//! other ports.

use std::fs;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::*;
use crate::program::program;

/// Returns the program with limits and free ports.
pub(super) fn with_limits(directory: &Path) -> Command {
    fs::write(directory.join("a.yaml"), CONFIG).unwrap();
    let mut program = program();
    program.arg("--config").arg(directory);
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program.env("TIDEGATE_RESP_PORT", "0");
    program
}

/// Returns the output on standard error of a program that ends with exit code 1.
pub(super) async fn failure(mut program: Command) -> String {
    let output = timeout(PATIENCE, program.output()).await.unwrap().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    stderr
}

#[tokio::test]
async fn settings_that_cannot_be_carried_out_are_errors_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::new();
    let issued = root.issue("localhost");
    let files = Files::of(&issued, &root.pem());
    let (on, path) = ("GRPC_SERVER_USE_TLS", |name: &str| files.path(name).display().to_string());
    let (certificate, key, roots) = (path("tls.crt"), path("tls.key"), path("ca.crt"));
    let not_pem = format!("the certificates of grpc: {key}: there is no certificate in it (PEM)");
    for (variables, why) in [
        (&[(on, "true")][..], "GRPC_SERVER_USE_TLS needs GRPC_SERVER_TLS_CERT, which is not set"),
        (
            &[(on, "true"), ("GRPC_SERVER_TLS_CERT", &certificate), ("GRPC_SERVER_TLS_KEY", "")],
            "GRPC_SERVER_USE_TLS needs GRPC_SERVER_TLS_KEY, which is not set",
        ),
        (&[(on, "1"), ("GRPC_SERVER_TLS_CERT", &key), ("GRPC_SERVER_TLS_KEY", &key)], &*not_pem),
        (
            &[
                (on, "true"),
                ("GRPC_SERVER_TLS_CERT", &certificate),
                ("GRPC_SERVER_TLS_KEY", &key),
                ("GRPC_CLIENT_TLS_SAN", "envoy"),
            ],
            "GRPC_CLIENT_TLS_SAN needs GRPC_CLIENT_TLS_CACERT: without it, no name is verified",
        ),
        (
            &[("TIDEGATE_RESP_TLS_CLIENT_CACERT", &roots)],
            "TIDEGATE_RESP_TLS_CLIENT_CACERT is set, and has no effect without TIDEGATE_RESP_TLS_CERT",
        ),
        (
            &[("TIDEGATE_HTTP_TLS_CERT", &certificate)],
            "TIDEGATE_HTTP_TLS_CERT needs TIDEGATE_HTTP_TLS_KEY, which is not set",
        ),
        (
            &[("TIDEGATE_HTTP_TLS_CERT", &certificate), ("TIDEGATE_HTTP_TLS_KEY", "/nowhere")],
            "the certificates of http: /nowhere: the file cannot be read",
        ),
    ] {
        let mut program = with_limits(directory.path());
        program.envs(variables.iter().copied());
        let stderr = failure(program).await;
        assert!(stderr.contains(why), "{stderr}");
    }
}

pub(super) struct Running {
    pub(super) grpc: SocketAddr,
    pub(super) http: SocketAddr,
    resp: SocketAddr,
    is_https: bool,
    errors: Lines<BufReader<ChildStderr>>,
    _output: Lines<BufReader<ChildStdout>>,
    pub(super) child: Child,
}

impl Running {
    pub(super) async fn start(mut program: Command) -> Self {
        let mut child = program.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line =
            async || timeout(PATIENCE, output.next_line()).await.unwrap().unwrap().unwrap();
        let (first, second) = (line().await, line().await);
        let (grpc, json) =
            first.strip_prefix("gRPC on ").unwrap().split_once(", JSON on ").unwrap();
        let (scheme, http) = json.split_once("://").unwrap();
        Self {
            grpc: grpc.parse().unwrap(),
            http: http.parse().unwrap(),
            resp: second.strip_prefix("RESP on ").unwrap().parse().unwrap(),
            is_https: scheme == "https",
            errors,
            _output: output,
            child,
        }
    }

    /// Returns the next line that contains `text`.
    async fn says(&mut self, text: &str) -> String {
        loop {
            let line = timeout(PATIENCE, self.errors.next_line()).await.unwrap().unwrap();
            let Some(line) = line else { panic!("the program has ended") };
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Returns the next lines about certificates, one of each listener, sorted by name.
    async fn says_of_each(&mut self) -> [String; 3] {
        let mut lines = [(); 3].map(|()| String::new());
        for line in &mut lines {
            *line = self.says("the certificates of ").await;
        }
        lines.sort();
        lines
    }
}

#[tokio::test]
async fn all_ports_are_encrypted_by_the_environment_and_certificates_are_loaded_again() {
    let directory = tempfile::tempdir().unwrap();
    let (root, clients) = (Root::new(), Root::new());
    let mut program = with_limits(directory.path());
    program.env("GRPC_SERVER_USE_TLS", "true");
    // Each port has separate files and a separate name.
    let names = ["grpc", "http", "resp"];
    let issued = names.map(|_| root.issue("localhost"));
    let files = issued.each_ref().map(|issued| Files::of(issued, &clients.pem()));
    for (files, (port, clients, name)) in files.iter().zip([
        ("GRPC_SERVER_TLS", "GRPC_CLIENT_TLS", "grpc"),
        ("TIDEGATE_HTTP_TLS", "TIDEGATE_HTTP_TLS_CLIENT", "http"),
        ("TIDEGATE_RESP_TLS", "TIDEGATE_RESP_TLS_CLIENT", "resp"),
    ]) {
        program.env(format!("{port}_CERT"), files.path("tls.crt"));
        program.env(format!("{port}_KEY"), files.path("tls.key"));
        program.env(format!("{clients}_CACERT"), files.path("ca.crt"));
        program.env(format!("{clients}_SAN"), name);
    }
    let mut running = Running::start(program).await;
    assert!(running.is_https);

    let [grpc, http, resp] = names.map(|name| root.client(Some(&clients.issue(name))));
    let channel = channel(running.grpc, grpc.clone()).await.unwrap();
    let mut limits = RateLimitServiceClient::new(channel);
    call(&mut limits).await.unwrap();
    let ask = "PING\r\nQUIT\r\n";
    assert_eq!(answer(running.resp, resp.clone(), ask).await.unwrap(), "+PONG\r\n+OK\r\n");
    for (address, other) in [(running.grpc, &http), (running.http, &resp), (running.resp, &grpc)] {
        assert!(answer(address, other.clone(), ask).await.is_err());
    }
    let ports = [(running.grpc, grpc), (running.http, http.clone()), (running.resp, resp)];
    for ((address, client), issued) in ports.iter().zip(&issued) {
        assert_eq!(certificate(*address, client.clone()).await, issued.der());
    }

    let new =
        root.issue_with("localhost", |params| params.not_after = rcgen::date_time_ymd(2041, 2, 3));
    for files in &files {
        files.swap(&new.certificate, "", &clients.pem());
    }
    let mut expected =
        names.map(|name| format!("tidegate-server: the certificates of {name} stay as they were"));
    for (text, files) in expected.iter_mut().zip(&files) {
        let key = files.path("tls.key");
        *text += &format!(": {}: there is no private key in it (PEM)", key.display());
    }
    assert_eq!(running.says_of_each().await, expected);
    for files in &files {
        files.swap(&new.certificate, &new.key, &clients.pem());
    }
    let expected = names.map(|name| format!("the certificates of {name} were loaded again"));
    assert_eq!(running.says_of_each().await, expected);
    for (address, client) in ports {
        assert_eq!(certificate(address, client).await, new.der());
    }
    call(&mut limits).await.unwrap();

    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let metrics = answer(running.http, http, get).await.unwrap();
    for line in [
        "tidegate_server_tls_handshakes_total{protocol=\"grpc\",outcome=\"done\"} 3",
        "tidegate_server_tls_handshakes_total{protocol=\"grpc\",outcome=\"bad_client_certificate\"} 1",
        "tidegate_server_tls_reloads_total{protocol=\"grpc\",outcome=\"done\"} 1",
        "tidegate_server_tls_reloads_total{protocol=\"resp\",outcome=\"failed\"} 1",
        "tidegate_server_tls_certificate_expires_seconds{protocol=\"http\"} 2243462400",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn certificates_without_the_switch_are_ignored_as_by_envoyproxy_ratelimit() {
    let directory = tempfile::tempdir().unwrap();
    let files = Files::of(&Root::new().issue("localhost"), "");
    let mut program = with_limits(directory.path());
    program.env("GRPC_SERVER_TLS_CERT", files.path("tls.crt"));
    program.env("TIDEGATE_HTTP_TLS_CERT", "");
    let mut running = Running::start(program).await;
    assert!(!running.is_https);
    let warning = running.says("warning").await;
    let expected = "GRPC_SERVER_TLS_CERT is set, and has no effect without GRPC_SERVER_USE_TLS";
    assert_eq!(warning, format!("warning: {expected}"));
    let url = format!("http://{}", running.grpc);
    let plain = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    call(&mut RateLimitServiceClient::new(plain)).await.unwrap();
}
