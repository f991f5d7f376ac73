//! Any text is parsed to a policy, or is rejected with a position in the text. The printed form of
//! the policy is parsed to the same policy.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::Policy;

fuzz_target!(|text: &str| {
    match text.parse::<Policy>() {
        Ok(policy) => assert_eq!(policy.to_string().parse::<Policy>().as_ref(), Ok(&policy)),
        Err(error) => {
            let span = error.span().expect("an error of the parser points somewhere");
            assert!(text.get(span).is_some());
            assert_eq!(format!("{error:#}").lines().count(), 3);
        }
    }
});
