//! The settings of encrypted connections.

use clap::Args;
use tidegate_server::listener::Listener;
#[cfg(feature = "tls")]
use tidegate_server::tls::{Protocol, Tls, TlsSettings};
use tokio::net::TcpListener;

use super::values::switch;

#[derive(Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct TlsArgs {
    /// gRPC is encrypted, by the certificate and the key of the next two settings.
    #[arg(long, env = "GRPC_SERVER_USE_TLS", value_parser = switch)]
    grpc_tls: bool,
    /// The certificate of gRPC, and those between it and its root (PEM). A change is in force within a second.
    #[arg(long, value_name = "FILE", env = "GRPC_SERVER_TLS_CERT")]
    grpc_tls_cert: Option<String>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", env = "GRPC_SERVER_TLS_KEY")]
    grpc_tls_key: Option<String>,
    /// Clients of gRPC have to show a certificate that one of these has signed (PEM).
    #[arg(long, value_name = "FILE", env = "GRPC_CLIENT_TLS_CACERT")]
    grpc_tls_client_ca: Option<String>,
    /// The DNS name or IP address that it has to be for.
    #[arg(long, value_name = "NAME", env = "GRPC_CLIENT_TLS_SAN")]
    grpc_tls_client_san: Option<String>,

    /// The certificate of JSON, health and metrics, which are encrypted then.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_HTTP_TLS_CERT")]
    http_tls_cert: Option<String>,
    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_HTTP_TLS_KEY")]
    http_tls_key: Option<String>,
    /// Clients of JSON have to show a certificate that one of these has signed.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_HTTP_TLS_CLIENT_CACERT")]
    http_tls_client_ca: Option<String>,
    /// The DNS name or IP address that it has to be for.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_HTTP_TLS_CLIENT_SAN")]
    http_tls_client_san: Option<String>,

    /// The certificate of RESP, which is encrypted then.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_CERT")]
    resp_tls_cert: Option<String>,
    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_KEY")]
    resp_tls_key: Option<String>,
    /// Clients of RESP have to show a certificate that one of these has signed.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_CLIENT_CACERT")]
    resp_tls_client_ca: Option<String>,
    /// The DNS name or IP address that it has to be for.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_RESP_TLS_CLIENT_SAN")]
    resp_tls_client_san: Option<String>,

    /// The certificate of the page, which is encrypted then.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_PAGE_TLS_CERT")]
    page_tls_cert: Option<String>,
    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_PAGE_TLS_KEY")]
    page_tls_key: Option<String>,
    /// Readers of the page have to show a certificate that one of these has signed.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_PAGE_TLS_CLIENT_CACERT")]
    page_tls_client_ca: Option<String>,
    /// The DNS name or IP address that it has to be for.
    #[arg(long, value_name = "NAME", env = "TIDEGATE_PAGE_TLS_CLIENT_SAN")]
    page_tls_client_san: Option<String>,
}

/// The settings of one listener, with the names of their variables.
pub(crate) struct ListenerTls<'a> {
    #[cfg(feature = "tls")]
    protocol: Protocol,
    /// What turns encryption on: its variable, and whether it does.
    switch: (&'static str, bool),
    certificate: Setting<'a>,
    key: Setting<'a>,
    client_roots: Setting<'a>,
    client_name: Setting<'a>,
}

type Setting<'a> = (&'static str, Option<&'a str>);

/// A variable that is set and empty is not given.
fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}

impl TlsArgs {
    pub(crate) fn is_grpc_on(&self) -> bool {
        self.grpc_tls
    }

    pub(crate) fn grpc(&self) -> ListenerTls<'_> {
        ListenerTls {
            #[cfg(feature = "tls")]
            protocol: Protocol::Grpc,
            switch: ("GRPC_SERVER_USE_TLS", self.grpc_tls),
            certificate: ("GRPC_SERVER_TLS_CERT", given(&self.grpc_tls_cert)),
            key: ("GRPC_SERVER_TLS_KEY", given(&self.grpc_tls_key)),
            client_roots: ("GRPC_CLIENT_TLS_CACERT", given(&self.grpc_tls_client_ca)),
            client_name: ("GRPC_CLIENT_TLS_SAN", given(&self.grpc_tls_client_san)),
        }
    }

    pub(crate) fn http(&self) -> ListenerTls<'_> {
        let certificate = given(&self.http_tls_cert);
        ListenerTls {
            #[cfg(feature = "tls")]
            protocol: Protocol::Http,
            switch: ("TIDEGATE_HTTP_TLS_CERT", certificate.is_some()),
            certificate: ("TIDEGATE_HTTP_TLS_CERT", certificate),
            key: ("TIDEGATE_HTTP_TLS_KEY", given(&self.http_tls_key)),
            client_roots: ("TIDEGATE_HTTP_TLS_CLIENT_CACERT", given(&self.http_tls_client_ca)),
            client_name: ("TIDEGATE_HTTP_TLS_CLIENT_SAN", given(&self.http_tls_client_san)),
        }
    }

    pub(crate) fn resp(&self) -> ListenerTls<'_> {
        let certificate = given(&self.resp_tls_cert);
        ListenerTls {
            #[cfg(feature = "tls")]
            protocol: Protocol::Resp,
            switch: ("TIDEGATE_RESP_TLS_CERT", certificate.is_some()),
            certificate: ("TIDEGATE_RESP_TLS_CERT", certificate),
            key: ("TIDEGATE_RESP_TLS_KEY", given(&self.resp_tls_key)),
            client_roots: ("TIDEGATE_RESP_TLS_CLIENT_CACERT", given(&self.resp_tls_client_ca)),
            client_name: ("TIDEGATE_RESP_TLS_CLIENT_SAN", given(&self.resp_tls_client_san)),
        }
    }

    pub(crate) fn page(&self) -> ListenerTls<'_> {
        let certificate = given(&self.page_tls_cert);
        ListenerTls {
            #[cfg(feature = "tls")]
            protocol: Protocol::Page,
            switch: ("TIDEGATE_PAGE_TLS_CERT", certificate.is_some()),
            certificate: ("TIDEGATE_PAGE_TLS_CERT", certificate),
            key: ("TIDEGATE_PAGE_TLS_KEY", given(&self.page_tls_key)),
            client_roots: ("TIDEGATE_PAGE_TLS_CLIENT_CACERT", given(&self.page_tls_client_ca)),
            client_name: ("TIDEGATE_PAGE_TLS_CLIENT_SAN", given(&self.page_tls_client_san)),
        }
    }
}

impl ListenerTls<'_> {
    /// Rejects settings that would have no effect or cannot be carried out.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (switch, is_on) = self.switch;
        let unused = [self.certificate, self.key, self.client_roots, self.client_name]
            .into_iter()
            .find_map(|(variable, value)| value.map(|_| variable));
        match unused {
            Some(variable) if !is_on => {
                return Err(format!("{variable} is set, and has no effect without {switch}"));
            }
            _ if !is_on => return Ok(()),
            _ => {}
        }
        if cfg!(not(feature = "tls")) {
            return Err(format!(
                "{switch} is set, and this program was built without TLS (feature `tls`)"
            ));
        }
        for (variable, value) in [self.certificate, self.key] {
            if value.is_none() {
                return Err(format!("{switch} needs {variable}, which is not set"));
            }
        }
        let ((roots, has_roots), (name, has_name)) = (self.client_roots, self.client_name);
        if has_name.is_some() && has_roots.is_none() {
            return Err(format!("{name} needs {roots}: without it, no name is verified"));
        }
        Ok(())
    }

    /// The listener, whose certificates follow their files from now on.
    #[cfg(feature = "tls")]
    pub(crate) fn listener(&self, tcp: TcpListener) -> Result<Listener, String> {
        let (true, Some(certificate), Some(key)) = (self.switch.1, self.certificate.1, self.key.1)
        else {
            return Ok(tcp.into());
        };
        let mut settings = TlsSettings::new(certificate, key);
        settings.client_roots = self.client_roots.1.map(Into::into);
        settings.client_name = self.client_name.1.map(Into::into);
        let name = self.protocol.name();
        let tls = Tls::open(self.protocol, settings)
            .map_err(|error| format!("the certificates of {name}: {error}"))?;
        warn(&tls);
        let followed = tls.clone();
        // Ends with the program.
        tokio::spawn(async move {
            let report = |loaded| match loaded {
                Ok(()) => {
                    stderr!("the certificates of {name} were loaded again");
                    warn(&followed);
                }
                Err(error) => {
                    stderr!(
                        "tidegate-server: the certificates of {name} stay as they were: {error}"
                    );
                }
            };
            followed.follow(report).await;
        });
        Ok(Listener::encrypted(tcp, tls))
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS they are used")]
    pub(crate) fn listener(&self, tcp: TcpListener) -> Result<Listener, String> {
        Ok(tcp.into())
    }
}

#[cfg(feature = "tls")]
fn warn(tls: &Tls) {
    if let Some(warning) = tls.warning() {
        stderr!("warning: {warning}");
    }
}
