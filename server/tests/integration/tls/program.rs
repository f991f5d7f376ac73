//! Tests the encrypted ports of the program. The variables of envoyproxy/ratelimit configure gRPC,
//! and the settings file configures the other ports.

use std::fs;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::*;
use crate::program::{program, settings};

/// Writes limits to a directory. Returns the command of the program with these limits and free
/// ports.
pub(super) fn with_limits(directory: &Path) -> Command {
    fs::write(directory.join("a.yaml"), CONFIG).unwrap();
    let mut program = program();
    program.arg("--config").arg(directory);
    program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
    program.args(["--resp", "127.0.0.1:0"]);
    program
}

/// Runs a program that must fail with exit code 1. Returns its standard error.
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
    let files = Files::issued(&issued, &root.pem());
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
    ] {
        let mut program = with_limits(directory.path());
        program.envs(variables.iter().copied());
        let stderr = failure(program).await;
        assert!(stderr.contains(why), "{stderr}");
    }
    for (text, why) in [
        (
            format!("[resp]\ntls_client_ca = '{roots}'"),
            "resp.tls_client_ca is set, and has no effect without resp.tls_certificate",
        ),
        (
            format!("[http]\ntls_certificate = '{certificate}'"),
            "http.tls_certificate needs http.tls_key, which is not set",
        ),
        (
            format!("[http]\ntls_certificate = '{certificate}'\ntls_key = '/nowhere'"),
            "the certificates of http: /nowhere: the file cannot be read",
        ),
    ] {
        let mut program = with_limits(directory.path());
        settings(&mut program, &text);
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

    async fn says(&mut self, text: &str) -> String {
        loop {
            let line = timeout(PATIENCE, self.errors.next_line()).await.unwrap().unwrap();
            let Some(line) = line else { panic!("the program has ended") };
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for one line about certificates for each of the three listeners. Returns the lines in
    /// the order of the listeners' names.
    async fn says_of_each(&mut self) -> [String; 3] {
        let mut lines = [(); 3].map(|()| String::new());
        for line in &mut lines {
            let text = "the certificates of ";
            let said = self.says(text).await;
            *line = said[said.find(text).unwrap()..].to_owned();
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
    // Each port has its own certificate files, and requires client certificates with the name of
    // the port.
    let names = ["grpc", "http", "resp"];
    let issued = names.map(|_| root.issue("localhost"));
    let files = issued.each_ref().map(|issued| Files::issued(issued, &clients.pem()));
    let [grpc, ..] = &files;
    program.env("GRPC_SERVER_TLS_CERT", grpc.path("tls.crt"));
    program.env("GRPC_SERVER_TLS_KEY", grpc.path("tls.key"));
    program.env("GRPC_CLIENT_TLS_CACERT", grpc.path("ca.crt")).env("GRPC_CLIENT_TLS_SAN", "grpc");
    let section = |(files, name): (&Files, &str)| {
        let path = |file| files.path(file).display().to_string();
        format!(
            "[{name}]\ntls_certificate = '{}'\ntls_key = '{}'\ntls_client_ca = '{}'\ntls_client_name = '{name}'\n",
            path("tls.crt"),
            path("tls.key"),
            path("ca.crt"),
        )
    };
    let sections = files.iter().zip(names).skip(1).map(section);
    settings(&mut program, &sections.collect::<String>());
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
    let mut expected = names.map(|name| format!("the certificates of {name} stay as they were"));
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
    let files = Files::issued(&Root::new().issue("localhost"), "");
    let mut program = with_limits(directory.path());
    program.env("GRPC_SERVER_TLS_CERT", files.path("tls.crt"));
    settings(&mut program, "[http]\ntls_certificate = ''");
    let mut running = Running::start(program).await;
    assert!(!running.is_https);
    let warning = running.says(" WARN ").await;
    let expected = "GRPC_SERVER_TLS_CERT is set, and has no effect without GRPC_SERVER_USE_TLS";
    assert!(warning.ends_with(expected), "{warning}");
    let url = format!("http://{}", running.grpc);
    let plain = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    call(&mut RateLimitServiceClient::new(plain)).await.unwrap();
}
