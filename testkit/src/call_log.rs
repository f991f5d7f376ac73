//! A log of the last calls to a store, for the messages of failures.

use std::collections::VecDeque;

use tidegate_core::{Call, Decision, Error, OwnedCall, Timestamp};

use crate::show;

/// The maximum number of calls that a message shows.
const MAX_CALLS: usize = 10;

/// The last `MAX_CALLS` calls to a store, with their answers.
#[derive(Default)]
pub(crate) struct CallLog {
    made: usize,
    last: VecDeque<LoggedCall>,
}

/// A call and its answer. The log formats a call only when a test fails, because formatting is
/// slow.
struct LoggedCall {
    now: Timestamp,
    call: OwnedCall,
    answer: Result<Decision, String>,
}

impl CallLog {
    pub(crate) fn add(
        &mut self,
        now: Timestamp,
        call: &Call<'_>,
        answer: &Result<Decision, Error>,
    ) {
        self.made += 1;
        let answer = match answer {
            Ok(decision) => Ok(decision.clone()),
            Err(error) => Err(error.to_string()),
        };
        self.last.push_back(LoggedCall { now, call: OwnedCall::from(*call), answer });
        if self.last.len() > MAX_CALLS {
            self.last.pop_front();
        }
    }

    /// Formats the last calls, one per line.
    pub(crate) fn show(&self) -> String {
        let mut text = match (self.made, self.last.len()) {
            (0, _) => return String::new(),
            (made, last) if made > last => format!("\n  the last {last} of {made} calls:"),
            (made, _) => format!("\n  all {made} calls:"),
        };
        for LoggedCall { now, call, answer } in &self.last {
            text += &format!("\n    {}", show::answered_call(*now, &call.as_call(), answer));
        }
        text
    }
}
