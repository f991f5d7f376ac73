//! Manual bans.

use std::time::Duration;

use super::multi::MultiRequest;
use super::operations::async_operations;
use super::request::Request;
use crate::call::{Call, Operation};
use crate::decision::Receipt;
use crate::error::{Error, ErrorKind};
use crate::policy::format_duration;
use crate::store::Store;
#[cfg(feature = "tracing")]
use crate::telemetry::events;

/// The maximum length of the reason of a ban, in bytes.
pub const MAX_BAN_REASON: usize = 128;

async_operations! {
    [Store]

    /// Bans the subject for `span` from now: blocks it like
    /// [`block_at_least`](Self::block_at_least), and reports the reason. If there are several bans
    /// or blocks, the latest end applies.
    ///
    /// A ban is not an offense, so it does not change the
    /// [level](crate::Verdict::block_level). While the ban lasts, the store remembers earlier
    /// offenses.
    ///
    /// The store does not keep the reason, so that decisions stay fast. With the feature `tracing`,
    /// the limiter writes one event of the level `INFO` with the policies, the span and the reason.
    /// Like all events of this crate, the event does not contain the subject. The reason has 1 to
    /// 128 bytes and no control characters.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::time::Duration;
    /// use tidegate_core::Limiter;
    /// use tidegate_memory::MemoryStore;
    ///
    /// let policies = ["login: sliding-log 5/15m block 1m x4 up to 1d forget 7d".parse()?];
    /// let limiter = Limiter::new(MemoryStore::new(), policies)?;
    /// let week = Duration::from_secs(7 * 86_400);
    ///
    /// limiter.by("login", "mallory").ban(week, "stolen passwords").await?;
    /// assert!(limiter.by("login", "mallory").acquire().await?.is_denied());
    ///
    /// limiter.by("login", "mallory").unban().await?;
    /// assert!(limiter.by("login", "mallory").acquire().await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::InvalidCall`] if `span` is zero or longer than 2^51 µs (71 years), or
    /// if the reason is not valid. Also returns the errors of
    /// [`block_at_least`](Self::block_at_least).
    ban(request, span: Duration, reason: &str) -> Receipt {
        check_ban(span, reason)?;
        let charges = request.charges()?;
        let call = Call { id: request.id, ..Call::with_charges(Operation::BlockAtLeast { span }, charges) };
        let decision = request.limiter.store().decide(call).await?;
        #[cfg(feature = "tracing")]
        for charge in request.charges()?.iter() {
            events::banned(charge.policy, span, reason);
        }
        Ok(Receipt::new(decision))
    }
}

/// Checks the span and the reason of a ban.
#[doc(hidden)]
pub fn check_ban(span: Duration, reason: &str) -> Result<(), Error> {
    let problem = if span.is_zero() || span > crate::time::MAX_SPAN {
        let (span, max) = (format_duration(span), format_duration(crate::time::MAX_SPAN));
        format!("the ban lasts {span}; it must last at least 1us and at most {max}")
    } else if !(1..=MAX_BAN_REASON).contains(&reason.len()) {
        let len = reason.len();
        format!("the reason of the ban has {len} bytes; it must have 1 to {MAX_BAN_REASON}")
    } else if let Some(control) = reason.chars().find(|c| c.is_control()) {
        format!(
            "the reason of the ban contains {control:?}; it must not contain control characters"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidCall, problem))
}
