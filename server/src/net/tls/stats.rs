use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, counter, gauge};

use super::Protocol;

/// How a handshake ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Timeout,
    Disconnected,
    NotTls,
    /// The client has no certificate, and needs one.
    NoClientCertificate,
    /// The client's certificate is not signed by the roots, has expired, or is for another name.
    BadClientCertificate,
    /// The client does not trust the certificate of the server, most often.
    RefusedByClient,
    /// No version or cipher in common, and all other reasons.
    NoAgreement,
}

impl Outcome {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Done, "done"),
        (Self::Timeout, "timeout"),
        (Self::Disconnected, "disconnected"),
        (Self::NotTls, "not_tls"),
        (Self::NoClientCertificate, "no_client_certificate"),
        (Self::BadClientCertificate, "bad_client_certificate"),
        (Self::RefusedByClient, "refused_by_client"),
        (Self::NoAgreement, "no_agreement"),
    ];
}

/// Metrics of the recorder that is installed when they are made.
pub(super) struct TlsStats {
    handshakes: [Counter; Outcome::ALL.len()],
    loaded: Counter,
    failed: Counter,
    expires: Gauge,
}

impl TlsStats {
    pub(super) fn new(protocol: Protocol) -> Self {
        let name = protocol.name();
        let reloads = |outcome: &'static str| counter!("tidegate_server_tls_reloads_total", "protocol" => name, "outcome" => outcome);
        let handshakes = Outcome::ALL.map(|(_, outcome)| {
            counter!("tidegate_server_tls_handshakes_total", "protocol" => name, "outcome" => outcome)
        });
        Self {
            handshakes,
            loaded: reloads("done"),
            failed: reloads("failed"),
            expires: gauge!("tidegate_server_tls_certificate_expires_seconds", "protocol" => name),
        }
    }

    pub(super) fn handshake(&self, outcome: Outcome) {
        for ((counted, _), counter) in Outcome::ALL.iter().zip(&self.handshakes) {
            counter.increment(u64::from(*counted == outcome));
        }
    }

    pub(super) fn reload(&self, is_loaded: bool) {
        if is_loaded { self.loaded.increment(1) } else { self.failed.increment(1) }
    }

    /// When the certificate expires, in seconds since 1970; 0 if that is not known.
    pub(super) fn expires(&self, at: Option<SystemTime>) {
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        self.expires.set(since.unwrap_or_default());
    }
}
