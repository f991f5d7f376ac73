//! Logins of clients.

use std::fmt;

use subtle::ConstantTimeEq;

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user; `default` is the one of clients that name none.
    pub user: String,
    /// The password.
    pub password: String,
}

/// The user of clients that name none.
pub(crate) const DEFAULT_USER: &str = "default";

impl Login {
    /// Compares in constant time.
    pub(crate) fn is(&self, user: &[u8], password: &[u8]) -> bool {
        let is_user = user.ct_eq(self.user.as_bytes());
        let is_password = password.ct_eq(self.password.as_bytes());
        bool::from(is_user & is_password)
    }
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
