//! The settings of a management server, which sends the limits over xDS.

use tidegate_server::limits::xds::{Header, XdsSettings, XdsTls};

use super::Mistake;
use super::values::{
    Values, factor, file, number, optional, secret_as, span, span_or_zero, switch, text, text_as,
};

/// The default maximum size in bytes of a message from the management server, which contains all
/// limits.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Reads the section `xds`.
pub(super) fn read(values: &mut Values) -> Result<XdsSettings, Mistake> {
    let server = values.get("xds.server", text())?;
    let mut settings = XdsSettings::new(server);
    settings.node_id = values.get("xds.node_id", text())?;
    settings.node_metadata = values.get("xds.node_metadata", text_as(node_metadata))?;
    settings.headers = values.get("xds.headers", secret_as(headers))?;
    let max = values.get("xds.max_message_bytes", number(0, usize::MAX))?;
    settings.max_message_bytes = if max == 0 { MAX_MESSAGE_BYTES } else { max };
    settings.response_timeout = values.get("xds.response_timeout", span_or_zero())?;
    settings.backoff.initial = values.get("xds.backoff_initial", span())?;
    settings.backoff.max = values.get("xds.backoff_max", span())?;
    settings.backoff.factor = values.get("xds.backoff_factor", factor())?;
    settings.backoff.has_jitter = values.get("xds.backoff_jitter", switch())?;
    let is_encrypted = values.get("xds.tls", switch())?;
    let roots = values.get("xds.tls_ca", file())?;
    let server_name = values.get("xds.tls_server_name", optional(text()))?;
    let certificate = values.get("xds.tls_certificate", file())?;
    let key = values.get("xds.tls_key", file())?;
    settings.tls = is_encrypted.then(|| {
        let mut tls = XdsTls::default();
        (tls.roots, tls.server_name, tls.identity) = (roots, server_name, certificate.zip(key));
        tls
    });
    Ok(settings)
}

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
