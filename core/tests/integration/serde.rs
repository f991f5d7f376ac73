//! Tests of policies in configuration files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tidegate_core::{ErrorKind, Policy, Share};
use tidegate_testkit::generate::{Kind, policy};

fn refusal(json: &str) -> String {
    serde_json::from_str::<Policy>(json).unwrap_err().to_string()
}

#[test]
fn a_policy_is_serialized_as_its_text() {
    for text in [
        "api: token-bucket 10/1s burst 20",
        "sliding-log 5/15m block 1h",
        "sliding-log 5/15m block 1h x2 up to 1d forget 7d restart",
        "fixed-window 100/1m anchored shadow",
        "total: fixed-window 800/1s shards 8 by-subject",
    ] {
        let policy: Policy = text.parse().unwrap();
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(json, format!("{text:?}"));
        assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
        // `from_reader` cannot lend a `&str` of its input. So a policy must also be parsed from a
        // string that serde owns.
        assert_eq!(serde_json::from_reader::<_, Policy>(json.as_bytes()).unwrap(), policy);
    }
}

#[test]
fn an_invalid_policy_is_an_error_of_one_line_with_the_text_and_the_position() {
    let error = refusal(r#""api: slidinglog 100/1m""#);
    assert!(error.contains("did you mean `sliding-log`?"), "{error}");
    assert!(error.contains("of: api: >slidinglog< 100/1m"), "{error}");
    for json in
        [r#""""#, r#""gcra""#, r#""gcra 1/1s burst""#, r#""ö: gcra 1/é""#, "\"a\\nb: gcra\""]
    {
        let error = refusal(json);
        assert!(!error.contains('\n'), "{error}");
    }
    let error = refusal("7");
    assert!(error.contains("expected the text of a policy, such as `api: gcra 10/1s`"), "{error}");
}

#[test]
fn a_share_and_an_error_kind_are_serialized_as_their_texts() {
    let share: Share = serde_json::from_str(r#""1/3""#).unwrap();
    assert_eq!(share, Share::new(1, 3).unwrap());
    assert_eq!(serde_json::to_string(&share).unwrap(), r#""1/3""#);
    assert!(serde_json::from_str::<Share>(r#""4/3""#).is_err());
    let kind = serde_json::to_string(&ErrorKind::OutOfMemory).unwrap();
    assert_eq!(kind, r#""out-of-memory""#);
}

proptest! {
    #[test]
    fn every_policy_survives_being_written_and_read(
        named in Kind::any().prop_flat_map(|kind| policy(kind, "api")),
    ) {
        let unnamed = Policy::unnamed(named.algorithm().clone()).unwrap();
        for policy in [named, unnamed] {
            let json = serde_json::to_string(&policy).unwrap();
            let read: Policy = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read.is_named(), policy.is_named());
            prop_assert_eq!(read, policy);
        }
    }

    #[test]
    fn no_text_makes_an_error_of_two_lines(text in ".{0,40}") {
        if let Err(error) = serde_json::from_value::<Policy>(text.into()) {
            prop_assert!(!error.to_string().contains(['\n', '\r']));
        }
    }
}
