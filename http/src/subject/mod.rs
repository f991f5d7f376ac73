//! Subjects of requests: what a server's limits count by.
//!
//! | a limit for each | is counted by |
//! |---|---|
//! | address | [`ClientAddress`]: the peer's, or what trusted proxies wrote |
//! | user, after authentication | [`Authenticated`] |
//! | API key | [`ApiKey`], kept as a keyed hash only |
//! | anything else in the head of a request | [`from_fn`] |
//! | nothing: one limit for all requests | [`Everybody`] |
//!
//! # Count by what was verified
//!
//! A subject that the client can choose freely does not limit that client. A claim of a token whose
//! signature has not been checked, a cookie, an API key that was not looked up: with each made-up value the
//! client gets a fresh limit, and with the value of another user it uses up that user's limit. Such subjects
//! must come from *after* authentication: let the authentication middleware put the user into the request's
//! extensions, place the limits behind it, and count by [`Authenticated`]. Before authentication, count
//! by [`ClientAddress`].
//!
//! # What a request without a subject gets
//!
//! An extractor returns `None` if the request has no subject. What such a request gets is chosen at
//! [`Limit`](crate::server::Limit): by default it is refused, and never put under a limit that it shares with
//! others unless that is asked for.

mod address;
mod api_key;
mod hops;
mod peer;

use std::fmt;
use std::marker::PhantomData;

use http::HeaderName;
use http::request::Parts;
use tidegate_core::{Error, ErrorKind, Subject};

pub use address::ClientAddress;
pub(crate) use api_key::PartitionKey;
pub use api_key::{ApiKey, HashKey};
pub use peer::PeerAddr;

/// Reads a subject from the head of a request.
///
/// ```
/// use http::request::Parts;
/// use tidegate_core::Subject;
/// use tidegate_http::subject::ExtractSubject;
///
/// /// The first segment of the path: `/acme/items` is of the tenant `acme`.
/// struct TenantOfPath;
///
/// impl ExtractSubject for TenantOfPath {
///     fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>> {
///         let tenant = request.uri.path().split('/').nth(1)?;
///         (!tenant.is_empty()).then(|| Subject::from(tenant))
///     }
/// }
///
/// let (request, ()) = http::Request::get("/acme/items").body(())?.into_parts();
/// assert_eq!(TenantOfPath.extract(&request), Some(Subject::from("acme")));
/// # Ok::<(), http::Error>(())
/// ```
pub trait ExtractSubject: Send + Sync {
    /// Returns the subject; `None` if the request has none.
    fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>>;

    /// Returns the setting that the server lacks, if that is why a request has no subject. The
    /// refusal repeats the text.
    ///
    /// The default is `None`: the client has not sent the subject.
    fn remedy(&self, request: &Parts) -> Option<&'static str> {
        let _ = request;
        None
    }
}

/// One subject for all requests.
///
/// ```
/// use tidegate_core::Subject;
/// use tidegate_http::subject::{Everybody, ExtractSubject};
///
/// let (request, ()) = http::Request::new(()).into_parts();
/// assert_eq!(Everybody.extract(&request), Some(Subject::from(())));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Everybody;

impl ExtractSubject for Everybody {
    fn extract<'r>(&'r self, _: &'r Parts) -> Option<Subject<'r>> {
        Some(Subject::from(()))
    }
}

/// The subject that a function returns. See [what it may be counted by](self#count-by-what-was-verified).
///
/// ```
/// use tidegate_core::Subject;
/// use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr, from_fn};
///
/// // Each address on each path.
/// let address = ClientAddress::peer();
/// let by_path = from_fn(move |request| {
///     Some(Subject::from((address.extract(request)?.as_bytes(), request.uri.path())))
/// });
///
/// let (mut request, ()) = http::Request::get("/search?q=tide").body(())?.into_parts();
/// assert_eq!(by_path.extract(&request), None);
/// request.extensions.insert(PeerAddr(([203, 0, 113, 9], 4711).into()));
/// assert_eq!(by_path.extract(&request), Some(Subject::from(("203.0.113.9", "/search"))));
/// # Ok::<(), http::Error>(())
/// ```
pub fn from_fn<F>(function: F) -> FromFn<F>
where
    F: for<'r> Fn(&'r Parts) -> Option<Subject<'r>> + Send + Sync,
{
    FromFn(function)
}

/// The extractor that [`from_fn`] returns.
#[derive(Clone, Copy)]
pub struct FromFn<F>(F);

impl<F> ExtractSubject for FromFn<F>
where
    F: for<'r> Fn(&'r Parts) -> Option<Subject<'r>> + Send + Sync,
{
    fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>> {
        (self.0)(request)
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn(..)")
    }
}

/// The user that the authentication middleware has put into the request's extensions.
///
/// No header can make up an extension, so this subject is one that was verified, as long as the limits stand
/// behind that middleware. In front of it, no request has the extension.
///
/// ```
/// use tidegate_core::Subject;
/// use tidegate_http::subject::{Authenticated, ExtractSubject};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let by_user = Authenticated::new(|user: &User| Subject::from(user.id));
/// let (mut request, ()) = http::Request::new(()).into_parts();
/// assert_eq!(by_user.extract(&request), None);
/// request.extensions.insert(User { id: 7 }); // the authentication middleware
/// assert_eq!(by_user.extract(&request), Some(Subject::from(7)));
/// ```
pub struct Authenticated<T, F> {
    subject: F,
    user: PhantomData<fn(&T)>,
}

impl<T, F> Authenticated<T, F>
where
    T: Send + Sync + 'static,
    F: for<'r> Fn(&'r T) -> Subject<'r> + Send + Sync,
{
    /// Counts by what `subject` returns for the extension of type `T`.
    pub fn new(subject: F) -> Self {
        Self { subject, user: PhantomData }
    }
}

impl<T, F> ExtractSubject for Authenticated<T, F>
where
    T: Send + Sync + 'static,
    F: for<'r> Fn(&'r T) -> Subject<'r> + Send + Sync,
{
    fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>> {
        request.extensions.get::<T>().map(&self.subject)
    }
}

impl<T, F> fmt::Debug for Authenticated<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authenticated<{}>(..)", std::any::type_name::<T>())
    }
}

/// Reads the name of a field.
fn field_name(name: &str) -> Result<HeaderName, Error> {
    name.parse().map_err(|_| {
        invalid(format!(
            "the name of the field is `{}`; it must be 1 to 65535 letters, digits and marks, such as x-api-key",
            shown(name)
        ))
    })
}

/// Returns the beginning of a text from the settings, as a message shows it.
fn shown(text: &str) -> String {
    text.escape_debug().take(64).collect()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}
