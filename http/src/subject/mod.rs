//! The subjects under which a server counts its requests.
//!
//! | one limit for each | extractor |
//! |---|---|
//! | address | [`ClientAddress`]: the address of the peer, or an address from trusted proxies |
//! | user, after authentication | [`Authenticated`] |
//! | API key | [`ApiKey`], which stores only a keyed hash |
//! | any other value in the head of a request | [`from_fn`] |
//! | all requests together | [`Everybody`] |
//!
//! # Count verified subjects
//!
//! If a client can freely choose a subject, the subject does not limit the client. Examples are a
//! claim of a token with an unchecked signature, a cookie, and an API key that was not looked up.
//! With each invented value the client gets a fresh limit, and with the value of another user the
//! client uses up the limit of that user. Such subjects must be verified by authentication first:
//! let the authentication middleware put the user into the extensions of the request, place the
//! limits inside this middleware, and count by [`Authenticated`]. Before authentication, count by
//! [`ClientAddress`].
//!
//! # Requests without a subject
//!
//! An extractor returns `None` if the request has no subject. [`Limit`](crate::server::Limit) sets
//! the treatment of such a request. By default, the request is refused. Requests without a subject
//! share a limit only if the application chooses this.

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
/// /// The first segment of the path: the tenant of `/acme/items` is `acme`.
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
    /// Returns the subject, or `None` if the request has no subject.
    fn extract<'r>(&'r self, request: &'r Parts) -> Option<Subject<'r>>;

    /// Returns a text that names the missing setting of the server, if the request has no subject
    /// because of this setting. The response of the refusal contains the text.
    ///
    /// The default is `None`, which means that the client did not send the subject.
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

/// Returns an extractor that calls a function. The function should return [a verified
/// subject](self#count-verified-subjects).
///
/// ```
/// use tidegate_core::Subject;
/// use tidegate_http::subject::{ClientAddress, ExtractSubject, PeerAddr, from_fn};
///
/// // One limit for each address and path.
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

/// The user that the authentication middleware has put into the extensions of the request.
///
/// A header cannot create an extension, so the subject is always verified. The limits must be
/// inside the authentication middleware. Outside of this middleware, no request has the extension.
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
    /// Creates an extractor that calls `subject` with the extension of type `T`.
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

/// Parses the name of a header field.
fn field_name(name: &str) -> Result<HeaderName, Error> {
    name.parse().map_err(|_| {
        invalid(format!(
            "the name of the field is `{}`; it must be 1 to 65535 letters, digits and marks, such as x-api-key",
            shown(name)
        ))
    })
}

/// Returns the first 64 characters of a text, escaped for an error message.
fn shown(text: &str) -> String {
    text.escape_debug().take(64).collect()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}
