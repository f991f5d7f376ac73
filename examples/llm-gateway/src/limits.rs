//! The limits of an API key, of a user and of a team: requests and tokens per minute, tokens and
//! spend per day, and for a key, requests at a time.

use std::error::Error;
use std::time::Duration;

use tidegate_http::server::{ActualCost, HoldLayer, Limit, RateLimitLayer};
use tidegate_http::subject::Authenticated;
use tidegate_redis::{Limiter, Policy, PolicyError, Store, Subject};

use crate::accounts::Account;
use crate::prompt::Estimate;

/// The time for which a request holds its estimate. The layer extends this time while an answer
/// streams.
pub const ANSWER: Duration = Duration::from_secs(300);

/// Returns the policies of an API key, of a user and of a team. With `max-hold 1/2`, a policy
/// refuses a request whose estimate exceeds half of the limit. If a gateway is killed, its slots
/// become free after their lease. The store then also refunds the open estimates, because of
/// `refund-lapsed`.
///
/// # Errors
///
/// Returns an error if a policy is invalid.
pub fn policies() -> Result<Vec<Policy>, PolicyError> {
    let texts = [
        "key-streams: concurrent 10 lease 30s",
        "key-requests: token-bucket 60/1m",
        "key-tokens: token-bucket 20000/1m max-hold 1/2 refund-lapsed",
        "key-day: fixed-window 500000/1d refund-lapsed",
        "key-spend: fixed-window 5000000/1d refund-lapsed", // 5 dollars
        "user-requests: token-bucket 120/1m",
        "user-tokens: token-bucket 40000/1m max-hold 1/2 refund-lapsed",
        "user-day: fixed-window 1000000/1d refund-lapsed",
        "user-spend: fixed-window 10000000/1d refund-lapsed",
        "team-requests: token-bucket 600/1m",
        "team-tokens: token-bucket 200000/1m max-hold 1/4 refund-lapsed",
        "team-day: fixed-window 5000000/1d refund-lapsed",
        "team-spend: fixed-window 50000000/1d refund-lapsed",
    ];
    texts.iter().map(|text| text.parse()).collect()
}

/// Returns a layer that decides on all limits together. The layer holds the estimate of a request
/// under all limits, or under none.
///
/// # Errors
///
/// Returns an error if the limiter lacks a policy.
pub fn layer<S: Store>(limiter: Limiter<S>) -> Result<HoldLayer<S>, Box<dyn Error>> {
    let mut limits = vec![];
    for (whose, subject) in SUBJECTS {
        let by = |what: &str| {
            Limit::by(format!("{whose}-{what}"), Authenticated::new(subject)).tenant_by(
                Authenticated::new(|account: &Account| Subject::from(account.organization)),
            )
        };
        if whose == "key" {
            limits.push(by("streams"));
        }
        limits.push(by("requests"));
        limits.push(
            by("tokens").unit("tokens").cost_by(|request| Estimate::from_request(request).tokens),
        );
        limits.push(
            by("day").unit("tokens").cost_by(|request| Estimate::from_request(request).tokens),
        );
        let spend = by("spend").unit("microdollars");
        limits.push(spend.cost_by(|request| Estimate::from_request(request).microdollars));
    }
    let tokens = ["key-tokens", "key-day", "user-tokens", "user-day", "team-tokens", "team-day"];
    let tokens = tokens.map(|name| (name, ActualCost::usage("tokens")));
    let spend = ["key-spend", "user-spend", "team-spend"];
    let spend = spend.map(|name| (name, ActualCost::usage("microdollars")));
    let layer = RateLimitLayer::new(limiter, limits)?.refund_server_errors();
    Ok(layer.hold_for(ANSWER, tokens.into_iter().chain(spend))?)
}

type SubjectOf = fn(&Account) -> Subject<'_>;

const SUBJECTS: [(&str, SubjectOf); 3] = [
    ("key", |account| Subject::from(account.key)),
    ("user", |account| Subject::from(account.user)),
    ("team", |account| Subject::from(account.team)),
];
