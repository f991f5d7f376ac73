//! Reports of failures. A failure has one message, which fits on a screen and names the broken
//! guarantee.
//!
//! A failed check unwinds with a [`Broken`]. A case that needs a policy that the store does not
//! support unwinds with a [`LeftOut`]. Both use `resume_unwind`, which does not call the panic
//! hook. The hook would print a message for each failing input during the search for the smallest
//! failing input. Only [`run`] calls the hook: it panics once, with the complete message.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;

use tidegate_core::{Error, ErrorKind};

use super::contract::Guarantee;
use crate::call_log::CallLog;
use crate::show;

const MAX_LINES: usize = 40;

const MAX_BYTES: usize = 6_000;

/// The payload of the panic of a failed check, with the message of the failure.
struct Broken(String);

/// The payload of a panic that ends a case without a result. The text is the reason for which the
/// store does not support a policy of the case.
pub(super) struct LeftOut(pub(super) String);

pub(super) type Payload = Box<dyn Any + Send>;

thread_local! {
    static PROPERTY: Cell<&'static str> = const { Cell::new("") };
    /// The number of cases that this thread has run for the property.
    static RUN: Cell<u32> = const { Cell::new(0) };
    /// The reason for which the store does not support a policy of the property. If the store does
    /// not support several policies, this is the reason for the first of them.
    static LEFT_OUT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Returns the name of the property that runs on this thread.
pub(super) fn property() -> &'static str {
    PROPERTY.get()
}

/// Fails the property with a message. The file and the line of the caller are added to the message.
#[track_caller]
pub(super) fn fail(message: &str) -> ! {
    let place = std::panic::Location::caller();
    resume_unwind(Box::new(Broken(format!("{message}\n  ({}:{})", place.file(), place.line()))))
}

/// Fails the property with the message of a failed case, which already names a file and a line.
pub(super) fn fail_as_case(message: String) -> ! {
    resume_unwind(Box::new(Broken(message)))
}

/// Ends the case without a result, because a policy is not supported.
pub(super) fn leave_out(reason: String) -> ! {
    resume_unwind(Box::new(LeftOut(reason)))
}

/// Returns the answer of a store, or skips the case if the store does not support the call.
pub(super) fn unless_unsupported<T>(answer: Result<T, Error>) -> Result<T, Error> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Unsupported => leave_out(error.to_string()),
        answer => answer,
    }
}

/// Fails the property if a condition is false. The message shows the condition and the given
/// context.
macro_rules! check {
    ($condition:expr $(,)?) => {{
        let holds: bool = $condition;
        if !holds {
            $crate::suite::report::fail(concat!("this must be true: `", stringify!($condition), "`"));
        }
    }};
    ($condition:expr, $($context:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            $crate::suite::report::fail(&format!(
                "{}: this must be true: `{}`", format_args!($($context)+), stringify!($condition),
            ));
        }
    }};
}

/// Fails the property if the actual value differs from the expected value. The message shows both
/// values, the expression of the actual value, and the given context.
macro_rules! check_eq {
    ($actual:expr, $expected:expr $(,)?) => {
        check_eq!($actual, $expected, "a value differs")
    };
    ($actual:expr, $expected:expr, $($context:tt)+) => {
        match (&$actual, &$expected) {
            (actual, expected) => if *actual != *expected {
                $crate::suite::report::fail(&format!(
                    "{}:\n    value:    {}\n    expected: {}\n    actual:   {}",
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

/// Runs a future to its end. A panic becomes an error with the payload of the panic.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, Payload> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => std::task::Poll::Ready(Err(payload)),
    })
    .await
}

pub(super) enum Ended {
    Held,
    LeftOut,
    Failed(String),
}

/// Converts the result of a case, or its panic, to an `Ended`. The message of a failure ends with
/// the last calls of the case.
pub(super) fn ended(result: Result<Result<(), String>, Payload>, calls: &CallLog) -> Ended {
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
    Ended::Failed(show::cut(&message, MAX_LINES / 2, MAX_BYTES / 2) + &calls.show())
}

pub(super) fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(Broken(message)) = payload.downcast_ref() {
        return message.clone();
    }
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("no message"))
}

/// Runs a property. Panics with one message if the property does not hold, or if the store supports
/// none of the suite's policies.
pub(super) fn run(
    property: &'static str,
    guarantee: Guarantee,
    check: &dyn Fn(),
    supports_any: &dyn Fn() -> bool,
) {
    PROPERTY.set(property);
    RUN.set(0);
    LEFT_OUT.set(None);
    let result = catch_unwind(AssertUnwindSafe(check));
    let message = match result {
        Err(payload) => message_of(&*payload),
        Ok(()) => {
            let Some(reason) = LEFT_OUT.take().filter(|_| RUN.get() == 0) else { return };
            let reason = show::cut(&reason, 1, 500);
            if supports_any() {
                println!(
                    "not run: {property} needs a policy that the store does not support: {reason}"
                );
                return;
            }
            format!("the store supports none of the policies of the suite: {reason}")
        }
    };
    let message =
        format!("{property}: the store breaks its contract\n  guarantee {guarantee}\n  {message}");
    panic!("{}", show::cut(&message, MAX_LINES, MAX_BYTES));
}
