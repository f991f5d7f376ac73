//! API keys, which are stored as keyed hashes.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{AUTHORIZATION, HeaderName};
use http::request::Parts;
use sha2::Sha256;
use tidegate_core::{Error, Subject};

use super::{ExtractSubject, field_name, invalid};

/// The maximum length of an API key, in bytes. This bounds the work of hashing.
const MAX_KEY: usize = 4096;

/// The minimum length of the secret of a [`HashKey`], in bytes.
const MIN_SECRET: usize = 16;

/// The API key in a field of the request. The subject is the keyed hash of the API key, so that a
/// store or a log that shows the subject does not disclose the API key.
///
/// Place the limits inside the middleware that looks up the API key. Outside of this middleware, a
/// client can invent API keys, and each invented key is a subject with its own limit. So before the
/// lookup, only a limit by [`ClientAddress`](super::ClientAddress) is effective.
///
/// A request has no subject if the field is absent, empty, sent twice, or longer than 4 KiB.
///
/// ```
/// use http::Request;
/// use tidegate_http::subject::{ApiKey, ExtractSubject, HashKey};
///
/// let secret = b"from the settings, the same for all processes";
/// let by_key = ApiKey::header("x-api-key", HashKey::new(secret)?)?;
///
/// let (request, ()) = Request::get("/").header("x-api-key", "sk_live_7").body(())?.into_parts();
/// let subject = by_key.extract(&request).unwrap();
/// assert_eq!(subject.as_bytes(), b"4b7d3e9bfdc127884c7aa7ba7bbfc1fd");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ApiKey {
    field: HeaderName,
    is_bearer: bool,
    key: HashKey,
}

impl ApiKey {
    /// Creates an extractor that reads the whole value of a field, such as `X-API-Key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) if `field` is
    /// not the name of a field.
    pub fn header(field: impl AsRef<str>, key: HashKey) -> Result<Self, Error> {
        Ok(Self { field: field_name(field.as_ref())?, is_bearer: false, key })
    }

    /// Creates an extractor that reads the token of `Authorization: Bearer`. A request with another
    /// scheme has no subject.
    ///
    /// ```
    /// use http::Request;
    /// use tidegate_http::subject::{ApiKey, ExtractSubject, HashKey};
    ///
    /// let by_token = ApiKey::bearer(HashKey::new(b"at least 16 bytes")?);
    /// let subject_of = |value: &str| {
    ///     let request = Request::get("/").header("authorization", value).body(()).unwrap();
    ///     by_token.extract(&request.into_parts().0).map(|subject| subject.as_bytes().to_vec())
    /// };
    /// assert_eq!(subject_of("bearer  7"), subject_of("Bearer 7"));
    /// assert_eq!(subject_of("Basic Nzo3"), None);
    /// # Ok::<(), tidegate_core::Error>(())
    /// ```
    #[must_use]
    pub fn bearer(key: HashKey) -> Self {
        Self { field: AUTHORIZATION, is_bearer: true, key }
    }
}

impl ExtractSubject for ApiKey {
    fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>> {
        let mut lines = request.headers.get_all(&self.field).iter();
        let line = lines.next()?.as_bytes();
        if lines.next().is_some() {
            return None;
        }
        let value = if self.is_bearer {
            let (scheme, token) = line.split_at_checked("Bearer ".len())?;
            if !scheme.eq_ignore_ascii_case(b"Bearer ") {
                return None;
            }
            token
        } else {
            line
        };
        let value = value.trim_ascii();
        (!value.is_empty() && value.len() <= MAX_KEY).then(|| self.key.subject_of(value))
    }
}

/// The partition key of a subject, which a response can disclose to its client.
pub(crate) type PartitionKey = [u8; 16];

/// The secret key of a keyed hash (HMAC-SHA-256, truncated to 128 bits).
///
/// All processes that share limits need the same secret. Otherwise, each process counts the same
/// API key as a different subject. After a change of the secret, all counts start again.
#[derive(Clone)]
pub struct HashKey(Hmac<Sha256>);

impl HashKey {
    /// Creates a key from a secret of at least 16 bytes, which must be hard to guess.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidConfig`](tidegate_core::ErrorKind::InvalidConfig) if the secret
    /// is shorter than 16 bytes.
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, Error> {
        let secret = secret.as_ref();
        if secret.len() < MIN_SECRET {
            let length = secret.len();
            return Err(invalid(format!(
                "the secret of a hash key has {length} bytes; it needs at least {MIN_SECRET}"
            )));
        }
        let hmac = Hmac::new_from_slice(secret);
        hmac.map(Self).map_err(|error| invalid(error.to_string()))
    }

    /// Returns the hash of `value` as a subject of 32 hexadecimal digits.
    ///
    /// ```
    /// use tidegate_http::subject::HashKey;
    ///
    /// let key = HashKey::new(b"0123456789abcdef")?;
    /// assert_eq!(key.subject_of("session 7"), key.subject_of(b"session 7"));
    /// assert_ne!(key.subject_of("session 7"), key.subject_of("session 8"));
    /// # Ok::<(), tidegate_core::Error>(())
    /// ```
    #[must_use]
    pub fn subject_of(&self, value: impl AsRef<[u8]>) -> Subject<'static> {
        let hash = self.hash(&[value.as_ref()]);
        Subject::display(&format_args!("{:032x}", u128::from_be_bytes(hash)))
    }

    /// Returns the keyed hash of a tenant and a subject.
    pub(crate) fn partition_key(&self, tenant: &[u8], subject: &[u8]) -> PartitionKey {
        // The length of the tenant is hashed too. Without it, the tenant `c` with the subject `ab`
        // and the tenant `ca` with the subject `b` would have the same hash.
        let length = u64::try_from(tenant.len()).unwrap_or(u64::MAX);
        self.hash(&[&length.to_le_bytes(), tenant, subject])
    }

    /// Returns the keyed hash of the concatenation of these parts.
    fn hash(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut hmac = self.0.clone();
        parts.iter().for_each(|part| hmac.update(part));
        hmac.finalize().into_bytes().first_chunk().copied().unwrap_or_default()
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}
