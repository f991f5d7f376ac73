//! The settings of a management server, which sends the limits over xDS.

use std::path::PathBuf;

#[cfg(feature = "tls")]
use tidegate_server::xds::XdsTls;
use tidegate_server::xds::{Header, XdsSettings};

use super::Mistake;
use super::values::{
    Values, factor, file, number, optional, secret_as, span, span_or_zero, switch, text, text_as,
};

/// The maximum size of all limits in bytes by default.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Reads the section `xds`.
pub(super) fn read(values: &mut Values) -> Result<XdsSettings, Mistake> {
    let server = values.get(
        "xds.server",
        "localhost:18000",
        "Address of the management server, HOST:PORT.",
        text(),
    )?;
    let mut settings = XdsSettings::new(server);
    settings.node_id = values.get(
        "xds.node_id",
        "default",
        "Identifier of this server for the management server.",
        text(),
    )?;
    settings.node_metadata = values.get(
        "xds.node_metadata",
        "",
        "Metadata of this server for the management server: name=value,name=value.",
        text_as(node_metadata),
    )?;
    settings.headers = values.get(
        "xds.headers",
        "",
        "Header fields of the requests to the management server: name:value,name:value.",
        secret_as(headers),
    )?;
    let max = values.get(
        "xds.max_message_bytes",
        "4194304",
        "Maximum size of all limits in bytes; 0 for 4194304.",
        number(0, usize::MAX),
    )?;
    settings.max_message_bytes = if max == 0 { MAX_MESSAGE_BYTES } else { max };
    settings.response_timeout = values.get(
        "xds.response_timeout",
        "60s",
        "Maximum time until the first response of the management server; 0s to wait forever.",
        span_or_zero(),
    )?;
    settings.backoff.initial = values.get(
        "xds.backoff_initial",
        "10s",
        "Wait before the first attempt to connect again.",
        span(),
    )?;
    settings.backoff.max =
        values.get("xds.backoff_max", "60s", "Maximum wait between two attempts.", span())?;
    settings.backoff.factor = values.get(
        "xds.backoff_factor",
        "0.5",
        "Factor by which the wait grows with each failed attempt; 1 or less keeps it constant.",
        factor(),
    )?;
    settings.backoff.has_jitter = values.get(
        "xds.backoff_jitter",
        "true",
        "Shorten each wait at random, by up to a half.",
        switch(),
    )?;
    let is_encrypted =
        values.get("xds.tls", "false", "Connect to the management server over TLS.", switch())?;
    let roots = values.get(
        "xds.tls_ca",
        "",
        "File with the root certificates of the management server (PEM). Empty: the roots of the system.",
        file(),
    )?;
    let server_name = values.get(
        "xds.tls_server_name",
        "",
        "Name in the certificate of the management server. Empty: the host of its address.",
        optional(text()),
    )?;
    let certificate = values.get(
        "xds.tls_certificate",
        "",
        "File with the certificate that the management server receives (PEM).",
        file(),
    )?;
    let key = values.get(
        "xds.tls_key",
        "",
        "File with the private key of the certificate (PEM).",
        file(),
    )?;
    encrypt(&mut settings, is_encrypted, (roots, server_name, certificate.zip(key)));
    Ok(settings)
}

type Files = (Option<PathBuf>, Option<String>, Option<(PathBuf, PathBuf)>);

#[cfg(feature = "tls")]
fn encrypt(settings: &mut XdsSettings, is_encrypted: bool, files: Files) {
    settings.tls = is_encrypted.then(|| {
        let mut tls = XdsTls::default();
        (tls.roots, tls.server_name, tls.identity) = files;
        tls
    });
}

/// Does nothing: the check of the settings refuses encryption.
#[cfg(not(feature = "tls"))]
fn encrypt(_: &mut XdsSettings, _: bool, _: Files) {}

fn node_metadata(text: &str) -> Result<Vec<(String, String)>, String> {
    let field = |field: &str| {
        let (name, value) = field.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let fields = text.split(',').filter(|_| !text.is_empty()).map(field);
    fields.collect::<Option<_>>().ok_or_else(|| "name=value,name=value".to_owned())
}

fn headers(text: &str) -> Result<Vec<Header>, String> {
    let header = |(index, field): (usize, &str)| {
        let header = field.split_once(':');
        let header = header.and_then(|(name, value)| Header::new(name.trim(), value.trim()));
        header.ok_or_else(|| {
            format!(
                "name:value,name:value, and field {} is not `name:value` or has a character that is \
                 not possible in a header",
                index + 1
            )
        })
    };
    text.split(',').filter(|_| !text.is_empty()).enumerate().map(header).collect()
}
