//! Tests of the layer on routes of axum.

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::routing::get;
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::{Everybody, from_fn};
use tower::ServiceExt;

use super::*;

async fn status_of(app: &Router, path: &str) -> u16 {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_layer_on_one_route_limits_that_route() {
    let (limiter, _) = limiter(&["all: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [Limit::by("all", Everybody)]).unwrap();
    let app: Router = Router::new()
        .route("/limited", get(|| async {}).layer(layer))
        .route("/free", get(|| async {}));
    for (path, status) in [("/limited", 200), ("/limited", 429), ("/free", 200)] {
        assert_eq!(status_of(&app, path).await, status, "{path}");
    }
}

#[tokio::test]
async fn requests_count_by_the_route_that_they_match() {
    let (limiter, _) = limiter(&["route: fixed-window 2/1m"]);
    let by_route =
        from_fn(|request| Some(Subject::from(request.extensions.get::<MatchedPath>()?.as_str())));
    let layer = RateLimitLayer::new(limiter, [Limit::by("route", by_route).or_pass()]).unwrap();
    let app: Router = Router::new()
        .route("/items/{id}", get(|| async {}))
        .nest("/users", Router::new().route("/{id}", get(|| async {})))
        .layer(layer);
    for (path, status) in [
        ("/items/1", 200),
        ("/items/2", 200),
        ("/items/3", 429),
        ("/users/1", 200),
        ("/nothing", 404),
    ] {
        assert_eq!(status_of(&app, path).await, status, "{path}");
    }
}
