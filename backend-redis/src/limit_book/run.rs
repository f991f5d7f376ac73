//! The servers that can keep a limit set.

use redis::{Pipeline, Value};
use tidegate_core::{Answer, Error};

use crate::connection::check_runtime;
use crate::inner::Inner;

/// Sends commands to the server that has a key.
#[doc(hidden)]
pub trait Run: Send + Sync {
    /// Sends commands to the server that has `key`, and returns their replies. The commands use
    /// only keys in the slot of `key`.
    fn run<'a>(
        &'a self,
        key: &'a [u8],
        commands: &'a Pipeline,
    ) -> Answer<'a, Result<Vec<Value>, Error>>;
}

impl Run for Inner {
    fn run<'a>(
        &'a self,
        _: &'a [u8],
        commands: &'a Pipeline,
    ) -> Answer<'a, Result<Vec<Value>, Error>> {
        Answer::later(async move {
            check_runtime()?;
            let connection = self.connection();
            let mut live = connection.live().await?;
            connection.send_all(&mut live, commands).await
        })
    }
}
