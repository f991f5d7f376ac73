use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Cmd, ConnectionInfo};

use super::url::with_login;

/// The user and the password of one login, which a
/// [credentials provider](crate::RedisStoreBuilder::credentials) returns.
///
/// ```
/// use std::time::Duration;
/// use tidegate_redis::Credentials;
///
/// let token = "a token that expires";
/// let credentials = Credentials::new("limits", token).renew_after(Duration::from_secs(39_600));
/// assert!(!format!("{credentials:?}").contains(token)); // no log shows it
/// ```
#[derive(Clone)]
#[must_use]
pub struct Credentials {
    user: Option<String>,
    password: String,
    renew_after: Option<Duration>,
}

/// The shortest time between two logins on one connection.
const MIN_RENEWAL: Duration = Duration::from_millis(20);

impl Credentials {
    /// Creates the credentials of an ACL user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..Self::from_password(password) }
    }

    /// Creates credentials without a user. The login uses the user of the URL or of the builder.
    pub fn from_password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into(), renew_after: None }
    }

    /// Sets the time after which the store logs in again on an open connection, with new
    /// credentials of the provider.
    ///
    /// Some services close a connection when its token has expired, or some hours after the login.
    /// Set a shorter time, so that the store logs in again before the service closes the
    /// connection. If the provider or the login fails, the store tries again every 10 s, and keeps
    /// the connection until the server closes it. By default, the store does not log in again.
    pub fn renew_after(self, span: Duration) -> Self {
        Self { renew_after: Some(span.max(MIN_RENEWAL)), ..self }
    }

    /// Returns the settings `server` with the user and the password of these credentials.
    pub(super) fn apply_to(&self, server: ConnectionInfo) -> ConnectionInfo {
        with_login(server, self.user.as_deref(), Some(&self.password))
    }

    /// Returns the command that logs in on an open connection. Without a user in the credentials,
    /// the command uses the user of `server`.
    pub(super) fn login(&self, server: &ConnectionInfo) -> Cmd {
        let mut command = Cmd::new();
        command.arg("AUTH");
        if let Some(user) = self.user.as_deref().or(server.redis_settings().username()) {
            command.arg(user);
        }
        command.arg(&self.password);
        command
    }

    pub(super) fn renewal(&self) -> Option<Duration> {
        self.renew_after
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("renew_after", &self.renew_after)
            .finish_non_exhaustive()
    }
}

/// The result of a credentials provider: the credentials, or any error.
pub type ProvidedCredentials = Result<Credentials, Box<dyn StdError + Send + Sync>>;

#[derive(Clone)]
pub struct CredentialsProvider(
    Arc<dyn Fn() -> BoxFuture<'static, ProvidedCredentials> + Send + Sync>,
);

impl CredentialsProvider {
    pub fn new<F>(provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ProvidedCredentials> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(provider())))
    }

    pub(super) async fn credentials(&self) -> ProvidedCredentials {
        (self.0)().await
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialsProvider")
    }
}
