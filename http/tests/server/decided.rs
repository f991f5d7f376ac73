//! Admitted requests and their charges.

use std::time::Duration;

use http::Method;
use proptest::prelude::*;
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::{Authenticated, Everybody};
use tidegate_memory::{Policy, Subject};
use tower::Layer;

use super::*;

#[tokio::test]
async fn a_request_above_the_limit_is_refused_and_never_reaches_the_service() {
    let (limiter, clock) = limiter(&["user: fixed-window 2/1m"]);
    let (mut service, ledger) = limited(&limiter, [user("user")]);
    for (path, subject, expected) in
        [("/1", "a", 200), ("/2", "a", 200), ("/3", "a", 429), ("/4", "b", 200), ("/5", "a", 429)]
    {
        assert_eq!(status(&mut service, path, subject).await, expected, "{path}");
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(status(&mut service, "/6", "a").await, 200);
    assert_eq!(paths(&ledger), ["/1", "/2", "/4", "/6"]);
}

#[tokio::test]
async fn limits_on_several_subjects_are_charged_together_or_not_at_all() {
    let (limiter, _) = limiter(&["user: fixed-window 9/1m", "all: fixed-window 3/1m"]);
    let (mut service, _) = limited(&limiter, [user("user").cost(2), Limit::by("all", Everybody)]);
    for subject in ["a", "b", "c"] {
        assert_eq!(status(&mut service, "/", subject).await, 200);
    }
    // The limit `all` refuses the request, so nothing is charged to the user either.
    assert_eq!(status(&mut service, "/", "a").await, 429);
    let left = limiter.by("user", "a").peek().await.unwrap().verdicts()[0].remaining();
    assert_eq!(left, 7);
}

#[tokio::test]
async fn cost_and_condition_are_of_the_request() {
    let (limiter, _) = limiter(&["user: fixed-window 10/1m", "search: fixed-window 1/1m"]);
    let limits = [
        user("user").cost_by(|request| if request.method == Method::GET { 1 } else { 5 }),
        user("search")
            .only(|request| request.uri.path() == "/search")
            .only(|request| request.method == Method::GET),
    ];
    let (mut service, _) = limited(&limiter, limits);
    let mut post = request("/search", &[("user", "a")]);
    *post.method_mut() = Method::POST;
    assert_eq!(send(&mut service, post.clone()).await.unwrap().status(), 200); // 5
    assert_eq!(status(&mut service, "/search", "a").await, 200); // 6, and the only search
    assert_eq!(status(&mut service, "/search", "a").await, 429);
    assert_eq!(status(&mut service, "/items", "a").await, 200); // 7
    assert_eq!(send(&mut service, post).await.unwrap().status(), 429);
    assert_eq!(status(&mut service, "/items", "a").await, 200);
}

#[derive(Clone)]
struct Plan(Policy);

#[tokio::test]
async fn a_plan_in_the_extensions_takes_the_place_of_the_limiters_policy() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let limit = user("user").policy_by(|request| Some(&request.extensions.get::<Plan>()?.0));
    let (mut service, _) = limited(&limiter, [limit]);
    let with_plan = |plan: &str| {
        let mut request = request("/", &[("user", "a")]);
        request.extensions_mut().insert(Plan(plan.parse().unwrap()));
        request
    };
    assert_eq!(status(&mut service, "/", "a").await, 200);
    assert_eq!(status(&mut service, "/", "a").await, 429);
    // An upgrade keeps the usage.
    let response = send(&mut service, with_plan("user: fixed-window 3/1m")).await.unwrap();
    assert_eq!(response.headers()["ratelimit-policy"], r#""user";q=3;w=60"#);
    assert_eq!(response.headers()["ratelimit"], r#""user";r=1;t=60"#);
    // A plan with another name is counted separately.
    let response = send(&mut service, with_plan("pro: fixed-window 3/1m")).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], r#""pro";r=2;t=60"#);
}

#[tokio::test]
async fn subjects_of_two_tenants_are_two_subjects() {
    #[derive(Clone)]
    struct Tenant(&'static str);
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let tenant = Authenticated::new(|tenant: &Tenant| Subject::from(tenant.0));
    let (mut service, _) = limited(&limiter, [user("user").tenant_by(tenant)]);
    let with_tenant = |tenant: &'static str| {
        let mut request = request("/", &[("user", "a")]);
        request.extensions_mut().insert(Tenant(tenant));
        request
    };
    assert_eq!(send(&mut service, with_tenant("acme")).await.unwrap().status(), 200);
    assert_eq!(send(&mut service, with_tenant("evil")).await.unwrap().status(), 200);
    assert_eq!(send(&mut service, with_tenant("acme")).await.unwrap().status(), 429);
    assert_eq!(status(&mut service, "/", "a").await, 400); // no tenant
    assert!(limiter.subject("a").tenant("evil").peek().await.unwrap().is_denied());
}

#[tokio::test]
async fn a_shadow_counts_and_changes_no_response() {
    let (limiter, _) = limiter(&["user: fixed-window 5/1m", "strict: fixed-window 1/1m shadow"]);
    let (mut service, ledger) = limited(&limiter, [user("user"), user("strict")]);
    for left in (0..5).rev() {
        let response = send(&mut service, request("/", &[("user", "a")])).await.unwrap();
        let (status, fields) = head(&response);
        assert_eq!((status, fields.len()), (200, 2));
        assert_eq!(fields["ratelimit"], format!(r#""user";r={left};t=60"#));
    }
    assert_eq!(paths(&ledger).len(), 5);
    assert_eq!(limiter.by("strict", "a").peek().await.unwrap().verdicts()[0].remaining(), 0);
}

#[tokio::test]
async fn exempt_requests_are_counted_nowhere() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [user("user")]).unwrap();
    let layer = layer
        .exempt_path("/health")
        .exempt_options()
        .exempt(|request| request.uri.query() == Some("free"));
    let inner = Inner::default();
    let ledger = Arc::clone(&inner.ledger);
    let mut service = layer.layer(inner);
    let mut preflight = request("/", &[]);
    *preflight.method_mut() = Method::OPTIONS;
    for request in [request("/health", &[]), preflight, request("/x?free", &[("user", "a")])] {
        let response = send(&mut service, request).await.unwrap();
        assert_eq!(head(&response), (200, HashMap::new()));
    }
    assert_eq!(status(&mut service, "/health/", "a").await, 200); // the only admitted request
    assert_eq!(status(&mut service, "/healthy", "a").await, 429);
    assert_eq!(paths(&ledger), ["/health", "/", "/x", "/health/"]);
}

#[tokio::test]
async fn a_request_that_no_limit_applies_to_passes_without_fields() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let (mut service, _) = limited(&limiter, [user("user").only(|_| false)]);
    let response = send(&mut service, request("/", &[])).await.unwrap();
    assert_eq!(head(&response), (200, HashMap::new()));
}

#[derive(Debug, Clone)]
struct Step {
    user: u8,
    cost: u8,
    is_search: bool,
    pause: u16,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3_u8, 0..4_u8, any::<bool>(), 0..900_u16)
        .prop_map(|(user, cost, is_search, pause)| Step { user, cost, is_search, pause });
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Compares the requests that reach the service with the decisions of another limiter at the
    /// same times.
    #[test]
    fn exactly_those_requests_reach_the_service_that_the_limiter_admits(steps in steps()) {
        const POLICIES: [&str; 3] =
            ["user: gcra 2/1s burst 4", "search: sliding-log 2/3s", "all: sliding-counter 9/4s"];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (limiter, clock) = limiter(&POLICIES);
            let limits = [
                user("user").cost_by(|request| request.uri.query().map_or(1, |cost| cost.parse().unwrap())),
                user("search").only(|request| request.uri.path().starts_with("/search")),
                Limit::by("all", Everybody),
            ];
            let (mut service, ledger) = limited(&limiter, limits);
            let (other, other_clock) = super::limiter(&POLICIES);
            let mut expected = vec![];
            for (number, Step { user, cost, is_search, pause }) in steps.into_iter().enumerate() {
                let (user, pause) = (user.to_string(), Duration::from_millis(pause.into()));
                let path = if is_search { format!("/search/{number}") } else { format!("/{number}") };
                let decision = if is_search {
                    other.by("user", &user).cost(cost.into()).by("search", &user).by("all", ()).acquire().await
                } else {
                    other.by("user", &user).cost(cost.into()).by("all", ()).acquire().await
                };
                let is_allowed = decision.unwrap().is_allowed();
                let status = status(&mut service, &format!("{path}?{cost}"), &user).await;
                assert_eq!(status, if is_allowed { 200 } else { 429 });
                if is_allowed {
                    expected.push(path);
                }
                clock.advance(pause);
                other_clock.advance(pause);
            }
            assert_eq!(paths(&ledger), expected);
        });
    }
}
