//! The logins of clients.

use std::fmt;

use subtle::ConstantTimeEq;

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user. Clients that send no user are the user `default`.
    pub user: String,
    /// The password.
    pub password: String,
}

pub(crate) const DEFAULT_USER: &str = "default";

impl Login {
    /// Returns `true` if the user and the password are equal to this login. The comparison takes
    /// constant time.
    pub(crate) fn is(&self, user: &[u8], password: &[u8]) -> bool {
        let is_user = user.ct_eq(self.user.as_bytes());
        let is_password = password.ct_eq(self.password.as_bytes());
        bool::from(is_user & is_password)
    }
}

/// Formats the login without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
