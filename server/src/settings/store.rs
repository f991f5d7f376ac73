//! The settings of the stores.

use std::path::PathBuf;
use std::time::Duration;

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
    password: Auth,
    pub(crate) per_second_url: Option<String>,
    per_second_password: Auth,
    sentinel_login: Auth,
    per_second_sentinel_login: Auth,
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
        let per_second_url = values.get("store.per_second_url", optional(url()))?;
        let mut secret = |key| secret_of(values, key).map(|text| Auth(text.unwrap_or_default()));
        let password = secret("store.password")?;
        let per_second_password = secret("store.per_second_password")?;
        let sentinel_login = secret("store.sentinel_login")?;
        let per_second_sentinel_login = secret("store.per_second_sentinel_login")?;
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
            url: store_url,
            password,
            per_second_url,
            per_second_password,
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
        self.settings_of(&self.url, &self.password, &self.sentinel_login, self.timeout)
    }

    /// Returns the settings of the store for limits per second, whose URL is `url`.
    ///
    /// # Errors
    ///
    /// Returns an error if a certificate or a key cannot be read.
    pub(crate) fn per_second_settings(&self, url: &str) -> Result<StoreSettings, String> {
        let timeout = self.per_second_timeout.unwrap_or(self.timeout);
        let (password, sentinels) = (&self.per_second_password, &self.per_second_sentinel_login);
        self.settings_of(url, password, sentinels, timeout)
    }

    fn settings_of(
        &self,
        url: &str,
        password: &Auth,
        sentinel_login: &Auth,
        timeout: Duration,
    ) -> Result<StoreSettings, String> {
        #[cfg(not(feature = "tls"))]
        let _ = url;
        Ok(StoreSettings {
            prefix: self.key_prefix.clone(),
            timeout,
            password: password.clone(),
            sentinel_auth: sentinel_login.clone(),
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
