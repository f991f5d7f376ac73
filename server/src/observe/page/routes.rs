use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;

use super::access::guard;
use crate::net::access::{Access, Guard};
use crate::observe::activity::Activity;

/// Returns the routes of the page, which only clients with `access` can use. All routes are
/// read-only.
pub fn routes(activity: Arc<Activity>, access: Access) -> Router {
    let file = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page.html")))
        .route("/page.css", file("text/css; charset=utf-8", include_str!("page.css")))
        .route("/page.js", file("text/javascript; charset=utf-8", include_str!("page.js")))
        .route("/icon.svg", file("image/svg+xml", include_str!("icon.svg")))
        .route("/activity", get(snapshot))
        // This layer also guards the response to unknown paths.
        .layer(from_fn_with_state(Guard::new(access), guard))
        .with_state(activity)
}

async fn snapshot(
    State(activity): State<Arc<Activity>>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, (StatusCode, String)> {
    let query = query.unwrap_or_default().parse();
    let query = query.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    let snapshot = activity.snapshot(&query).to_string();
    Ok(([(header::CONTENT_TYPE, "application/json")], snapshot))
}
