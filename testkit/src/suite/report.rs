//! How a property fails: with one message that fits on a screen, and names the guarantee that is broken.
//!
//! A check that fails unwinds with a [`Broken`], and a case that is about a policy that the store does
//! not support with a [`LeftOut`]. Both bypass the panic hook, which would print each failure of each
//! step towards the smallest failing input. [`run`] panics once, with the whole message.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;

use tidegate_core::{Call, Decision, Error, ErrorKind, OwnedCall, Timestamp};

use super::contract::Guarantee;
use crate::show;

/// Of a message, so much is printed.
const LINES: usize = 40;
const BYTES: usize = 6_000;

/// The calls that are shown before a failure.
const CALLS: usize = 10;

/// A check failed.
struct Broken(String);

/// The store does not support a policy that the case is about.
pub(super) struct LeftOut(pub(super) String);

/// What a panic carries.
pub(super) type Payload = Box<dyn Any + Send>;

thread_local! {
    /// The property that runs on this thread.
    static PROPERTY: Cell<&'static str> = const { Cell::new("") };
    /// How many cases of the property on this thread were run.
    static RUN: Cell<u32> = const { Cell::new(0) };
    /// The first policy of it that the store does not support, and what the store says.
    static LEFT_OUT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Name of the property that runs on this thread.
pub(super) fn property() -> &'static str {
    PROPERTY.get()
}

/// Fails the property.
#[track_caller]
pub(super) fn fail(message: &str) -> ! {
    let place = std::panic::Location::caller();
    resume_unwind(Box::new(Broken(format!("{message}\n  ({}:{})", place.file(), place.line()))))
}

/// Fails the property with the message of a case, which says where it failed.
pub(super) fn fail_as_case(message: String) -> ! {
    resume_unwind(Box::new(Broken(message)))
}

/// Ends the case without a result.
pub(super) fn leave_out(why: String) -> ! {
    resume_unwind(Box::new(LeftOut(why)))
}

/// The answer of a store. One that does not support the call leaves the case out.
pub(super) fn known<T>(answer: Result<T, Error>) -> Result<T, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Unsupported => leave_out(error.to_string()),
        answer => answer,
    }
}

/// Fails unless the condition holds, which is shown with what else is given.
macro_rules! check {
    ($condition:expr $(,)?) => {{
        let holds: bool = $condition;
        if !holds {
            $crate::suite::report::fail(concat!("it does not hold that `", stringify!($condition), "`"));
        }
    }};
    ($condition:expr, $($context:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            $crate::suite::report::fail(&format!(
                "{}: it does not hold that `{}`", format_args!($($context)+), stringify!($condition),
            ));
        }
    }};
}

/// Fails unless both are equal: what the store made of it, and what is expected.
macro_rules! check_eq {
    ($actual:expr, $expected:expr $(,)?) => {
        check_eq!($actual, $expected, "every store")
    };
    ($actual:expr, $expected:expr, $($context:tt)+) => {
        match (&$actual, &$expected) {
            (actual, expected) => if *actual != *expected {
                $crate::suite::report::fail(&format!(
                    "{}:\n    what:     {}\n    expected: {}\n    actual:   {}",
                    format_args!($($context)+),
                    stringify!($actual),
                    $crate::show::cut(&format!("{expected:?}"), 1, 1_200),
                    $crate::show::cut(&format!("{actual:?}"), 1, 1_200),
                ));
            }
        }
    };
}

pub(super) use {check, check_eq};

/// The last calls of a case, with their answers.
#[derive(Default)]
pub(crate) struct Calls {
    made: usize,
    last: VecDeque<Made>,
}

/// A call that was made. It is turned into text only if the case fails.
struct Made {
    now: Timestamp,
    call: OwnedCall,
    answer: Result<Decision, String>,
}

impl Calls {
    /// Takes note of a call and its answer.
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
        self.last.push_back(Made { now, call: OwnedCall::from(*call), answer });
        if self.last.len() > CALLS {
            self.last.pop_front();
        }
    }

    /// The calls, one per line; of none, nothing.
    pub(crate) fn show(&self) -> String {
        let mut text = match (self.made, self.last.len()) {
            (0, _) => return String::new(),
            (made, last) if made > last => format!("\n  the last {last} of {made} calls:"),
            (made, _) => format!("\n  the calls, {made} in all:"),
        };
        for Made { now, call, answer } in &self.last {
            text += &format!("\n    {}", show::made(*now, &call.as_call(), answer));
        }
        text
    }
}

/// The panics of a future, as errors.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Payload> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => std::task::Poll::Ready(Err(payload)),
    })
    .await
}

/// What became of a case.
pub(super) enum Ended {
    /// It holds.
    Held,
    /// It is about a policy that the store does not support.
    LeftOut,
    /// It does not hold; with a message.
    Failed(String),
}

/// What became of a case that unwound or returned an error, after these calls.
pub(super) fn ended(result: Result<Result<(), String>, Payload>, calls: &Calls) -> Ended {
    let message = match result {
        Ok(Ok(())) => {
            RUN.set(RUN.get() + 1);
            return Ended::Held;
        }
        Ok(Err(message)) => message,
        Err(payload) => match payload.downcast::<LeftOut>() {
            Ok(left_out) => {
                LEFT_OUT.with_borrow_mut(|first| {
                    first.get_or_insert(left_out.0);
                });
                return Ended::LeftOut;
            }
            Err(payload) => message_of(&*payload),
        },
    };
    Ended::Failed(show::cut(&message, LINES / 2, BYTES / 2) + &calls.show())
}

/// The message of a panic.
pub(super) fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(Broken(message)) = payload.downcast_ref() {
        return message.clone();
    }
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

/// Runs a property, and panics with one message if it does not hold.
pub(super) fn run(
    property: &'static str,
    guarantee: Guarantee,
    check: impl FnOnce(),
    supports_any: impl FnOnce() -> bool,
) {
    PROPERTY.set(property);
    RUN.set(0);
    LEFT_OUT.set(None);
    let result = catch_unwind(AssertUnwindSafe(check));
    let message = match result {
        Err(payload) => message_of(&*payload),
        Ok(()) => {
            let Some(why) = LEFT_OUT.take().filter(|_| RUN.get() == 0) else { return };
            let why = show::cut(&why, 1, 500);
            if supports_any() {
                println!("not run: the store does not support what {property} is about: {why}");
                return;
            }
            format!("the store supports none of the policies of the suite: {why}")
        }
    };
    let message =
        format!("{property}: the store breaks its contract\n  guarantee {guarantee}\n  {message}");
    panic!("{}", show::cut(&message, LINES, BYTES));
}
