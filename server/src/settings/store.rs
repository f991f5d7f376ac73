//! The settings of the stores.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tidegate_core::DenyCache;
#[cfg(feature = "tls")]
use tidegate_server::store::Certificates;
use tidegate_server::store::OnStoreError;
use tidegate_server::store::{Auth, StoreSettings, is_encrypted};

use super::Mistake;
use super::listener::secret_of;
use super::values::{Values, choice, file, number, optional, span, text, url};

/// The settings of the store, and of the store for limits per second.
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) per_second_url: Option<String>,
    sentinel_login: Option<String>,
    per_second_sentinel_login: Option<String>,
    timeout: Duration,
    per_second_timeout: Option<Duration>,
    key_prefix: String,
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "no connection is encrypted"))]
    tls: [Option<PathBuf>; 3],
    deny_cache_bytes: usize,
    pub(crate) on_error: OnStoreError,
}

impl Store {
    pub(super) fn read(values: &mut Values) -> Result<Self, Mistake> {
        let store_url = values.get("store.url", url())?;
        let password = secret_of(values, "store.password")?;
        let per_second_url = values.get("store.per_second_url", optional(url()))?;
        let per_second_password = secret_of(values, "store.per_second_password")?;
        let sentinel_login = secret_of(values, "store.sentinel_login")?;
        let per_second_sentinel_login = secret_of(values, "store.per_second_sentinel_login")?;
        let timeout = values.get("store.timeout", span())?;
        let per_second_timeout = values.get("store.per_second_timeout", optional(span()))?;
        let key_prefix = values.get("store.key_prefix", text())?;
        let tls = [
            values.get("store.tls_ca", file())?,
            values.get("store.tls_certificate", file())?,
            values.get("store.tls_key", file())?,
        ];
        let deny_cache_bytes = values.get("store.deny_cache_bytes", number(0, usize::MAX))?;
        let answers = [
            ("error", OnStoreError::Error),
            ("allow", OnStoreError::Allow),
            ("deny", OnStoreError::Deny),
        ];
        let on_error = values.get("store.on_error", choice(&answers))?;
        Ok(Self {
            url: with_password(store_url, password),
            per_second_url: per_second_url.map(|url| with_password(url, per_second_password)),
            sentinel_login,
            per_second_sentinel_login,
            timeout,
            per_second_timeout,
            key_prefix,
            tls,
            deny_cache_bytes,
            on_error,
        })
    }

    /// Returns the settings of the store.
    ///
    /// # Errors
    ///
    /// Returns an error if a certificate or a key cannot be read.
    pub(crate) fn settings(&self) -> Result<StoreSettings, String> {
        self.settings_of(&self.url, &self.sentinel_login, self.timeout)
    }

    /// Returns the settings of the store for limits per second, whose URL is `url`.
    ///
    /// # Errors
    ///
    /// Returns an error if a certificate or a key cannot be read.
    pub(crate) fn per_second_settings(&self, url: &str) -> Result<StoreSettings, String> {
        let timeout = self.per_second_timeout.unwrap_or(self.timeout);
        self.settings_of(url, &self.per_second_sentinel_login, timeout)
    }

    fn settings_of(
        &self,
        url: &str,
        sentinel_login: &Option<String>,
        timeout: Duration,
    ) -> Result<StoreSettings, String> {
        #[cfg(not(feature = "tls"))]
        let _ = url;
        Ok(StoreSettings {
            prefix: self.key_prefix.clone(),
            timeout,
            sentinel_auth: Auth(sentinel_login.clone().unwrap_or_default()),
            #[cfg(feature = "tls")]
            certificates: match is_encrypted(url) {
                true => self.certificates()?,
                false => Certificates::default(),
            },
            ..StoreSettings::default()
        })
    }

    #[cfg(feature = "tls")]
    fn certificates(&self) -> Result<Certificates, String> {
        let read = |path: &Option<PathBuf>| {
            let Some(path) = path else { return Ok(None) };
            let failed = |error| format!("{}: the file cannot be read: {error}", path.display());
            std::fs::read(path).map(Some).map_err(failed)
        };
        let [roots, certificate, key] = &self.tls;
        let client = read(certificate)?.zip(read(key)?);
        Ok(Certificates { roots: read(roots)?, client })
    }

    /// Returns `true` if a store is encrypted.
    pub(super) fn has_encryption(&self) -> bool {
        is_encrypted(&self.url) || self.per_second_url.as_deref().is_some_and(is_encrypted)
    }

    /// Returns the cache of denials for each of `stores` stores, if there is one.
    pub(crate) fn deny_cache(&self, stores: usize) -> Option<DenyCache> {
        let bytes = self.deny_cache_bytes;
        (bytes > 0).then(|| DenyCache::new().max_bytes(bytes / stores))
    }
}

/// Adds a password to a URL without one.
fn with_password(url: String, password: Option<String>) -> String {
    let (Some((scheme, rest)), Some(password)) = (url.split_once("://"), password) else {
        return url;
    };
    let password = utf8_percent_encode(&password, NON_ALPHANUMERIC);
    if scheme == "unix" {
        let separator = if rest.contains('?') { '&' } else { '?' };
        return format!("{url}{separator}pass={password}");
    }
    match rest.split_once('@') {
        Some((user, _)) if user.contains(':') => url,
        Some((user, servers)) => format!("{scheme}://{user}:{password}@{servers}"),
        None => format!("{scheme}://:{password}@{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_added_to_a_url_without_one() {
        for (url, expected) in [
            ("redis://a:6379/1", "redis://:p%40s@a:6379/1"),
            ("redis://user@a", "redis://user:p%40s@a"),
            ("redis://user:own@a", "redis://user:own@a"),
            ("redis-cluster://a:1,b:2", "redis-cluster://:p%40s@a:1,b:2"),
            ("unix:///run/redis?user=u", "unix:///run/redis?user=u&pass=p%40s"),
            ("unix:///run/redis", "unix:///run/redis?pass=p%40s"),
            ("memory", "memory"),
        ] {
            assert_eq!(with_password(url.to_owned(), Some("p@s".to_owned())), expected);
            assert_eq!(with_password(url.to_owned(), None), url);
        }
    }
}
