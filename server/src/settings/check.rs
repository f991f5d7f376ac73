//! Finds settings that contradict each other or have no effect.

use std::path::Path;

use super::listener::Section;
use super::ratelimit_env::variable_of;
use super::values::{Origin, Values};
use super::{KEPT_IN_STORE, Mistake, Settings};

/// Returns warnings about settings that are set but have no effect.
///
/// # Errors
///
/// Returns an error if settings contradict each other.
pub(super) fn check(settings: &Settings, values: &Values) -> Result<Vec<String>, Mistake> {
    let mut warnings = Vec::new();
    let tokens = &settings.page.limits_tokens;
    if (tokens.read.is_some() || tokens.write.is_some())
        && settings.limit_set.as_deref() != Some(Path::new(KEPT_IN_STORE))
    {
        let message = "page.limits_read_token or page.limits_write_token is set, but this server \
                       does not follow the limit set that they show and change: limits.limit_set \
                       must be \"store\"";
        warnings.push(message.to_owned());
    }
    settings.grpc.listener.required_address()?;
    settings.http.listener.required_address()?;
    for section in Section::ALL {
        let [certificate, key, roots, name] =
            ["tls_certificate", "tls_key", "tls_client_ca", "tls_client_name"]
                .map(|name| section.key(name));
        if let Some(other) = [&roots, &name].into_iter().find(|key| is_set(values, key))
            && !is_set(values, &certificate)
        {
            let other_name = values.name(other);
            let certificate = missing(values, other, &certificate);
            let message = format!("{other_name} is set, and has no effect without {certificate}");
            return Err(message.into());
        }
        pair(values, &certificate, &key)?;
        if is_set(values, &name) && !is_set(values, &roots) {
            let roots = missing(values, &name, &roots);
            let name = values.name(&name);
            return Err(format!("{name} needs {roots}: without it, no name is verified").into());
        }
    }
    if settings.store.has_encryption() {
        pair(values, "store.tls_certificate", "store.tls_key")?;
    }
    if let Some(server) = &settings.xds {
        let directory = "limits.directory";
        if matches!(values.origin(directory), Origin::File(_) | Origin::Flag(_)) {
            let (directory, source) = (values.name(directory), values.name("limits.source"));
            return Err(format!("{directory} is set, and has no effect with {source}").into());
        }
        pair(values, "xds.tls_certificate", "xds.tls_key")?;
        let files = ["xds.tls_ca", "xds.tls_server_name", "xds.tls_certificate"];
        if let Some(file) = files.into_iter().find(|key| is_set(values, key))
            && !is_set(values, "xds.tls")
        {
            let switch = missing(values, file, "xds.tls");
            let message =
                format!("{} is set, and has no effect without {switch}", values.name(file));
            match values.origin(file) {
                // envoyproxy/ratelimit starts with such variables.
                Origin::Variable(_) => warnings.push(message),
                _ => return Err(message.into()),
            }
        }
        server.check().map_err(|error| format!("the management server: {error}"))?;
    }
    Ok(warnings)
}

/// Returns `true` if the text of the setting is neither empty nor `false`.
fn is_set(values: &Values, key: &str) -> bool {
    !["", "false"].contains(&values.text(key))
}

/// Returns the name of the setting `key` for a message that `other` needs `key`. If a variable set
/// `other`, the name is the variable of `key`.
fn missing<'a>(values: &Values, other: &str, key: &'a str) -> &'a str {
    match values.origin(other) {
        Origin::Variable(_) => variable_of(key).unwrap_or(key),
        _ => key,
    }
}

/// Refuses a certificate without its key, and a key without its certificate.
fn pair(values: &Values, certificate: &str, key: &str) -> Result<(), Mistake> {
    let (own, other) = match (is_set(values, certificate), is_set(values, key)) {
        (true, false) => (certificate, key),
        (false, true) => (key, certificate),
        _ => return Ok(()),
    };
    let other = missing(values, own, other);
    Err(format!("{} needs {other}, which is not set", values.name(own)).into())
}
