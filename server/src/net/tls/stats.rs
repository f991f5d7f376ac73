use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, counter, gauge};

use super::Protocol;

/// The outcome of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Timeout,
    Disconnected,
    NotTls,
    /// The client presented no certificate, but a certificate is required.
    NoClientCertificate,
    /// The client's certificate is not signed by a root, has expired, or contains another name.
    BadClientCertificate,
    /// The client sent an alert, usually because it does not trust the certificate of the server.
    RefusedByClient,
    /// The client and the server support no common TLS version or cipher, or the handshake failed
    /// for another reason.
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

/// The metrics of TLS. `new` creates them in the recorder of the crate `metrics` that is installed
/// at that time.
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

    /// Sets the time at which the certificate expires, in seconds since 1970; 0 if the time is
    /// unknown.
    pub(super) fn expires(&self, at: Option<SystemTime>) {
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        self.expires.set(since.unwrap_or_default());
    }
}
