//! The cost of writing fields.

use std::time::Duration;

use allocation_counter::measure;
use http::HeaderMap;
use tidegate_core::{Decision, Outcome, Policy, Verdict};
use tidegate_http::fields::{FieldFormat, FieldWriter};

#[test]
fn fields_take_as_few_allocations_as_is_promised() {
    let texts =
        ["ip: fixed-window 100/1m", "user: token-bucket 5/1s burst 20", "all: gcra 1000/1s"];
    let policies = texts.map(|text| text.parse::<Policy>().unwrap());
    let plan: Policy = "user: token-bucket 50/1s burst 200".parse().unwrap();
    let with_plan = [policies[0].clone(), plan, policies[2].clone()];
    let five = Duration::from_secs(5);
    let admission =
        |limit| Verdict::new(Outcome::Allowed, limit).with_remaining(3).with_reset_after(five);
    let refusal = Verdict::new(Outcome::Denied, 20)
        .with_remaining(3)
        .with_retry_after(Some(five))
        .with_reset_after(five);
    let admitted = Decision::new([admission(100), admission(20), admission(1000)]);
    let refused = Decision::new([admission(100), refusal, admission(1000)]);

    for (format, most) in [
        (FieldFormat::Ietf11, 1),
        (FieldFormat::Ietf07, 1),
        (FieldFormat::Ietf06, 3),
        (FieldFormat::XRateLimit, 3),
    ] {
        let writer = FieldWriter::builder().format(format).build(&policies).unwrap();
        let allocations = |policies: &[Policy], decision: &Decision| {
            // The map has capacity before the measurement, because a response usually has other
            // fields.
            let mut headers = HeaderMap::with_capacity(12);
            let verdicts = decision.verdicts_of(policies);
            // The first clone of a prepared `HeaderValue` makes its bytes shared, which needs an
            // allocation. This call makes the first clone before the measurement.
            writer.write(decision.verdicts_of(policies), decision, &mut HeaderMap::new());
            measure(|| writer.write(verdicts, decision, &mut headers)).count_total
        };
        assert_eq!(allocations(&policies, &admitted), most, "{format:?}");
        assert_eq!(allocations(&policies, &refused), most + 1, "{format:?}");
        let more = u64::from(!matches!(format, FieldFormat::XRateLimit));
        assert_eq!(allocations(&with_plan, &admitted), most + more, "{format:?}");
    }
}
