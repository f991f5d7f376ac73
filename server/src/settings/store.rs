//! The settings of the stores.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::{DenyCache, Lease, Share};
use tidegate_server::store::Certificates;
use tidegate_server::store::{Auth, MEMORY, OnStoreError, StoreSettings, is_encrypted};

use super::Mistake;
use super::listener::secret_of;
use super::values::{
    Kind, Values, file, number, optional, span, span_or_zero, span_within, text, text_as, url,
};

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
    tls: [Option<PathBuf>; 3],
    deny_cache_bytes: usize,
    deny_cache_age: Duration,
    lease_span: Duration,
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
        let deny_cache_age = values.get("store.deny_cache_age", span_or_zero())?;
        let lease_span =
            values.get("store.lease_span", span_within(Lease::MIN_SPAN, Lease::MAX_SPAN))?;
        let on_error = values.get("store.on_error", on_error())?;
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
            deny_cache_age,
            lease_span,
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
        Ok(StoreSettings {
            prefix: self.key_prefix.clone(),
            timeout,
            lease_span: self.lease_span,
            password: password.clone(),
            sentinel_auth: sentinel_login.clone(),
            certificates: match is_encrypted(url) {
                true => self.certificates()?,
                false => Certificates::default(),
            },
            ..StoreSettings::default()
        })
    }

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

    /// Returns `true` if the connections to one of the stores are encrypted.
    pub(super) fn has_encryption(&self) -> bool {
        is_encrypted(&self.url) || self.per_second_url.as_deref().is_some_and(is_encrypted)
    }

    /// Returns the deny cache for requests that a `policy:` refuses, or `None` if this cache is
    /// off. A store in memory needs no cache.
    pub(crate) fn deny_cache_for_policies(&self) -> Option<DenyCache> {
        let is_on = self.url != MEMORY && !self.deny_cache_age.is_zero();
        is_on.then(|| DenyCache::new().max_age(self.deny_cache_age))
    }

    /// Returns the deny cache of each store, or `None` if the cache is off. The stores share the
    /// configured memory equally.
    pub(crate) fn deny_cache(&self, stores: usize) -> Option<DenyCache> {
        let bytes = self.deny_cache_bytes;
        // As in the cache of envoyproxy/ratelimit, a denial stays until it ends.
        let cache = DenyCache::new().max_age(Duration::MAX);
        (bytes > 0).then(|| cache.max_bytes(bytes / stores))
    }
}

/// Reads the setting for the answer to a request that the store cannot decide.
fn on_error() -> Kind<impl Fn(&str) -> Result<OnStoreError, String>> {
    text_as(|text: &str| match text {
        "error" => Ok(OnStoreError::Error),
        "allow" => Ok(OnStoreError::Allow),
        "deny" => Ok(OnStoreError::Deny),
        _ => {
            let share = text.strip_prefix("share:").and_then(|share| share.parse().ok());
            let share = share.filter(|share: &Share| share.apply(u64::MAX) > 0);
            share.map(OnStoreError::Share).ok_or_else(|| {
                "error, allow, deny, or share: with a share above 0, such as share:1/3".to_owned()
            })
        }
    })
}
