//! Property tests on generated fields: fields that a server may send, and fields that a writer
//! writes.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tidegate_core::{Decision, Outcome, Policy, Verdict};
use tidegate_http::fields::{FieldFormat, FieldWriter, ServerLimit, ServerLimits};

use crate::bounds;

/// Generates values of fields: valid values, almost valid values, and arbitrary values.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let member = r#"("[a-z]{0,3}"|[a-z]{1,3}|[0-9]{1,3})(;(r|t|q|w|qu|pk|x)=(-?[0-9]{1,16}|"[a-z]"|:YQ==:|\?1)){0,4}"#;
    let list = prop::collection::vec(member, 0..4).prop_map(|members| members.join(", "));
    let text = prop_oneof![
        list,
        r"(limit|remaining|reset)=[0-9]{1,5}(, (limit|remaining|reset)=[0-9]{1,5}){0,3}",
        r"[0-9]{1,3}(, [0-9]{1,3};w=[0-9]{1,3}){0,3}",
        r"[0-9]{1,21}(\.[0-9]{1,15})?",
        r"([0-9]{1,20}(\.[0-9]{1,20})?(h|m|s|ms|us|µs|ns)){1,4}",
        r"20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9](:[0-9]{2}(\.[0-9]{1,12})?)?(Z|[+-][0-9]{2}:[0-9]{2})",
        r"Thu, [0-3][0-9] Mar [0-9]{4} [0-2][0-9]:[0-5][0-9]:[0-5][0-9] GMT",
        r"[0-9]{1,3}(\.[0-9])?/[0-9]{1,3}",
        r#"["\\;=,:()@%?a-c0-2 \t-]{0,24}"#,
    ];
    prop_oneof![4 => text.prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..32)]
}

fn fields() -> impl Strategy<Value = HeaderMap> {
    let field = (prop::sample::select(&bounds::NAMES[..]), value());
    prop::collection::vec(field, 0..6).prop_map(|fields| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_.-]{1,64}"
}

/// Generates the numbers of a policy and of a verdict, and whether the verdict refuses.
fn part() -> impl Strategy<Value = (u64, u64, u64, u64, u64, bool)> {
    let micros = 0..100_000_000_000_000_u64;
    let number = prop_oneof![1..100_u64, 1..=1_u64 << 40];
    (number, 1..1_000_000_000_000_u64, 0..=u64::MAX, micros.clone(), micros, any::<bool>())
}

fn secs_ceil(micros: u64) -> Duration {
    Duration::from_secs(micros.div_ceil(1_000_000))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_fields_are_read_within_all_bounds(headers in fields()) {
        bounds::check(&headers);
    }

    #[test]
    fn any_bytes_are_read_within_all_bounds(data in prop::collection::vec(any::<u8>(), 0..200)) {
        bounds::check(&bounds::headers(&data));
    }

    #[test]
    fn what_is_written_is_read(parts in prop::collection::btree_map(name(), part(), 1..5)) {
        let mut policies = Vec::new();
        let mut verdicts = Vec::new();
        for (name, (limit, window, remaining, wait, reset, refuses)) in &parts {
            // The fields contain windows in whole seconds, so the window is rounded up to whole
            // seconds.
            let secs = window.div_ceil(1_000_000);
            let policy: Policy = match format!("{name}: fixed-window {limit}/{secs}s").parse() {
                Ok(policy) => policy,
                Err(_) => return Ok(()),
            };
            policies.push(policy);
            let remaining = remaining % (limit + 1);
            let outcome = if *refuses { Outcome::Denied } else { Outcome::Allowed };
            let wait = if *refuses { *wait } else { 0 };
            let verdict = Verdict::new(outcome, *limit)
                .with_remaining(remaining)
                .with_retry_after(Some(Duration::from_micros(wait)))
                .with_reset_after(Duration::from_micros(*reset));
            verdicts.push(verdict);
        }
        let decision = Decision::new(verdicts);
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_774_540_800_000_001);
        for format in [
            FieldFormat::Ietf11,
            FieldFormat::Ietf07,
            FieldFormat::Ietf06,
            FieldFormat::EnvoyDraft03,
            FieldFormat::XRateLimit,
            FieldFormat::XRateLimitEpoch,
        ] {
            let writer = FieldWriter::builder().format(format).build(&policies).unwrap();
            let mut headers = HeaderMap::new();
            writer.write_at(now, decision.verdicts_of(&policies), &decision, &mut headers);
            let announced = ServerLimits::read(&headers, now);
            let longest = decision.retry_after().unwrap();
            match announced.retry_after() {
                None => prop_assert!(decision.is_allowed()),
                Some(time) => {
                    let wait = time.duration_since(now).unwrap();
                    prop_assert!(longest <= wait && wait < longest + Duration::from_secs(1) || wait.as_secs() == 1);
                }
            }
            check_limits(format, &policies, &decision, announced.limits(), now)?;
        }
    }
}

fn check_limits(
    format: FieldFormat,
    policies: &[Policy],
    decision: &Decision,
    limits: &[ServerLimit],
    now: SystemTime,
) -> Result<(), TestCaseError> {
    let verdicts: Vec<_> = decision.verdicts_of(policies).collect();
    let is_denied = decision.is_denied();
    let reset = |place: usize| {
        let verdict = &verdicts[place];
        let span = match is_denied {
            false => Some(verdict.reset_after()),
            true if verdict.refuses() => {
                Some(verdict.retry_after().unwrap().max(Duration::from_micros(1)))
            }
            true => None,
        };
        span.map(|span| secs_ceil(u64::try_from(span.as_micros()).unwrap()))
    };
    if format == FieldFormat::Ietf11 {
        prop_assert_eq!(limits.len(), policies.len());
        for (place, (limit, policy)) in limits.iter().zip(policies).enumerate() {
            prop_assert_eq!(limit.name(), Some(policy.name()));
            prop_assert_eq!(limit.limit(), Some(policy.limit()));
            prop_assert_eq!(limit.window(), Some(policy.window()));
            prop_assert_eq!(limit.remaining(), Some(verdicts[place].remaining()));
            let span = limit.resets_at().map(|time| time.duration_since(now).unwrap());
            prop_assert_eq!(span, reset(place));
        }
        return Ok(());
    }
    if format == FieldFormat::EnvoyDraft03 {
        // Envoy's format announces all policies. The first limit has no name if several policies
        // match it.
        let named =
            |limit: &ServerLimit| policies.iter().any(|policy| limit.name() == Some(policy.name()));
        let count = limits.iter().filter(|limit| named(limit)).count();
        prop_assert_eq!(count, policies.len());
        prop_assert!(
            limits.len() == count || (limits[0].name().is_none() && limits.len() == count + 1)
        );
    }
    // The first announced limit must belong to the tightest policy.
    let limit = &limits[0];
    let told = (0..policies.len()).find(|&place| {
        let verdict = &verdicts[place];
        let span = limit.resets_at().map(|time| time.duration_since(now).unwrap());
        let late = match format {
            FieldFormat::XRateLimitEpoch => Duration::from_secs(1),
            _ => Duration::ZERO,
        };
        limit.limit() == Some(verdict.limit())
            && limit.remaining() == Some(verdict.remaining())
            && reset(place)
                .is_some_and(|reset| span.is_some_and(|span| reset <= span && span <= reset + late))
    });
    let place = told.ok_or_else(|| TestCaseError::fail(format!("{format:?} {limit:?}")))?;
    for verdict in &verdicts {
        match is_denied {
            true => prop_assert!(verdict.retry_after() <= verdicts[place].retry_after()),
            false => prop_assert!(verdict.remaining() >= verdicts[place].remaining()),
        }
    }
    Ok(())
}
