//! Certificates for the servers of tests.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::process::Command;

use tempfile::TempDir;
use tidegate_test_servers::{Redis, RedisBuilder};

/// The files of a root certificate, and of a certificate for this machine that the root has signed.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let names = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
        std::fs::write(made.path("names"), names).unwrap();
        let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        made.openssl(&format!(
            "req -x509 {new_key} -days 2 -subj /CN=root -keyout root.key -out root"
        ));
        made.openssl(&format!("req {new_key} -subj /CN=localhost -keyout key -out request"));
        made.openssl(
            "x509 -req -in request -CA root -CAkey root.key -CAcreateserial -days 2 -extfile names \
             -out certificate",
        );
        made
    }

    fn openssl(&self, arguments: &str) {
        let run = Command::new("openssl").args(arguments.split(' ')).current_dir(&self.0).output();
        let run = run.unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn server(&self) -> RedisBuilder {
        Redis::builder().tls(self.path("certificate"), self.path("key"), self.path("root"))
    }

    /// Returns the certificate that the root has signed, and its key.
    #[allow(dead_code, reason = "not every test program uses it")]
    pub(crate) fn client_certificate(&self) -> [Vec<u8>; 2] {
        ["certificate", "key"].map(|name| std::fs::read(self.path(name)).unwrap())
    }

    pub(crate) fn root(&self) -> Vec<u8> {
        std::fs::read(self.path("root")).unwrap()
    }
}
