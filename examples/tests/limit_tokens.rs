//! Compares the response that `docs/guide/limit-tokens.md` shows with the response of the layer on
//! the same page.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use axum::body::{Body, to_bytes};
use axum::{Router, routing::post};
use http::{Request, StatusCode};
use tidegate_http::server::{ActualCost, Limit, RateLimitLayer, Usage};
use tidegate_http::subject::Everybody;
use tidegate_memory::{Limiter, ManualClock, MemoryStore};
use tower::ServiceExt;

#[tokio::test]
async fn the_refusal_in_the_guide_is_the_refusal_of_the_layer() -> Result<(), Box<dyn Error>> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/limit-tokens.md");
    let guide = fs::read_to_string(guide)?;
    let shown = guide.split("```text\n").nth(1).and_then(|rest| rest.split("\n```").next());
    let (head, body) = shown.and_then(|shown| shown.split_once("\n\n")).ok_or("no response")?;
    let (status, fields) = head.split_once('\n').ok_or("no fields")?;
    let fields: BTreeMap<&str, &str> =
        fields.lines().filter_map(|line| line.split_once(": ")).collect();

    // The policies and the layer are the same as in the guide, but all requests have the same
    // subject.
    let store = MemoryStore::builder().clock(ManualClock::default()).build();
    let policies =
        ["requests: token-bucket 60/1m".parse()?, "tokens: token-bucket 20000/1m".parse()?];
    let limiter = Limiter::new(store, policies)?;
    let estimate = |request: &http::request::Parts| {
        request.uri.path().trim_start_matches('/').parse().unwrap_or(0)
    };
    let limits = [
        Limit::by("requests", Everybody),
        Limit::by("tokens", Everybody).unit("tokens").cost_by(estimate),
    ];
    let ttl = std::time::Duration::from_secs(300);
    let costs = [("tokens", ActualCost::usage("tokens"))];
    let layer = RateLimitLayer::new(limiter, limits)?.hold_for(ttl, costs)?;
    let complete = |usage: Usage| async move { usage.set("tokens", 19_690) };
    let app: Router = Router::new().route("/{estimate}", post(complete)).layer(layer);

    let answer = app.clone().oneshot(Request::post("/19690").body(Body::empty())?).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    drop(answer);
    let refusal = app.oneshot(Request::post("/1310").body(Body::empty())?).await?;
    assert_eq!(format!("HTTP/1.1 {}", refusal.status()), status);
    let (head, refusal) = refusal.into_parts();
    let mut written = BTreeMap::new();
    for (name, value) in &head.headers {
        written.insert(name.as_str(), value.to_str()?);
    }
    written.remove("content-length");
    assert_eq!(written, fields);
    assert_eq!(to_bytes(refusal, 4096).await?, body);
    Ok(())
}
