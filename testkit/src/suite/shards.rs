//! Properties of policies with shards. A store is allowed to split the limit of such a policy over
//! several states, or to keep it in one state. It must never admit more than the limit. All
//! subjects of a tenant share one limit, on every store.

use std::time::Duration;

use tidegate_core::{Charge, Operation, Outcome, Policy, Shards};

use super::fixture::Fixture;
use super::harness::{Harness, case, each};
use super::report::{check, check_eq};

/// Makes one request for each of 60 subjects of a tenant. Returns the number of admitted requests.
async fn admitted<F: Fixture>(harness: &Harness<'_, F>, policy: &Policy, tenant: &str) -> u64 {
    let mut admitted = 0;
    for number in 0..60 {
        let subject = format!("subject {number}");
        let charge = Charge::new(policy, &subject).tenant(tenant);
        admitted += u64::from(harness.ask(Operation::Acquire, &[charge]).await.is_allowed());
    }
    admitted
}

fn sharded(policy: &Policy, shards: Shards) -> Policy {
    policy
        .clone()
        .sharded(shards)
        .unwrap_or_else(|error| panic!("`{policy}` cannot have shards: {error}"))
}

/// Without defect B29, under a policy with shards, a single subject can use the whole limit, and no
/// more.
pub(super) fn b29_a_limit_in_shards_is_all_of_the_limit<F: Fixture>(fixture: &F) {
    for policy in each() {
        for count in [1, 2, 3, 8] {
            let policy = sharded(&policy, Shards::any(count));
            case(fixture, async |harness| {
                let mut admitted = 0;
                for _ in 0..4 * policy.limit() {
                    let decision = harness.acquire(&policy, 1).await;
                    check_eq!(decision.verdicts()[0].limit(), policy.limit(), "{policy}");
                    admitted += u64::from(decision.is_allowed());
                }
                check_eq!(admitted, policy.limit(), "{policy}");
                let reset = harness.does(Operation::Reset, &policy, 1).await;
                check_eq!(reset.remaining(), policy.limit(), "{policy}");
                harness.take(&policy, 1).await;
            });
        }
    }
}

/// Checks that all subjects of a tenant share one limit. Different tenants have separate limits.
pub(super) fn a_limit_of_a_tenant_is_one_for_all_its_subjects<F: Fixture>(fixture: &F) {
    for policy in each() {
        for count in [1, 3, 8] {
            let policy = sharded(&policy, Shards::by_subject(count));
            case(fixture, async |harness| {
                check_eq!(admitted(harness, &policy, "one").await, policy.limit(), "{policy}");
                check_eq!(admitted(harness, &policy, "other").await, policy.limit(), "{policy}");
                // A call can name any subject of the tenant, because all subjects share the state
                // of the tenant.
                let any_subject = [Charge::new(&policy, "any_subject").tenant("one")];
                let _ = harness.ask(Operation::Reset, &any_subject).await;
                check_eq!(admitted(harness, &policy, "other").await, 0, "{policy}");
                check_eq!(admitted(harness, &policy, "one").await, policy.limit(), "{policy}");
                let span = Duration::from_secs(60);
                let _ = harness.ask(Operation::Block { span }, &any_subject).await;
                harness.advance(Duration::from_secs(30));
                check_eq!(admitted(harness, &policy, "one").await, 0, "{policy}");
                check_eq!(admitted(harness, &policy, "other").await, policy.limit(), "{policy}");
            });
        }
    }
}

/// Checks that each subject has the whole limit if the policy has [`Shards::whole`], like a subject
/// under a policy without shards.
pub(super) fn a_whole_limit_is_each_subjects_own<F: Fixture>(fixture: &F) {
    for policy in each() {
        let policy = sharded(&policy, Shards::whole(4));
        case(fixture, async |harness| {
            for subject in ["a", "b", "c", "d", "e", "f"] {
                let charge = [Charge::new(&policy, subject).tenant("t")];
                for _ in 0..policy.limit() {
                    let decision = harness.ask(Operation::Acquire, &charge).await;
                    check!(decision.is_allowed(), "{policy}");
                }
                let refused = harness.ask(Operation::Acquire, &charge).await;
                check_eq!(refused.verdicts()[0].outcome(), Outcome::Denied, "{policy}");
            }
        });
    }
}
