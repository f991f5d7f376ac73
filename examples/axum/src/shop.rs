//! The shop, which does not depend on the limits.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::users::User;

const ITEMS: [(u64, &str); 3] = [(1, "anchor"), (2, "compass"), (3, "rope, out of stock")];

/// Returns the routes of the shop.
pub fn routes() -> Router {
    Router::new()
        .route("/items", get(items))
        .route("/items/{id}", get(item))
        .route("/orders/{id}", post(order))
        .route("/health", get(|| async { "ok" }))
}

async fn items() -> Json<Value> {
    Json(ITEMS.iter().map(|(id, name)| json!({ "id": id, "name": name })).collect())
}

async fn item(Path(id): Path<u64>) -> Result<Json<Value>, StatusCode> {
    let (id, name) = ITEMS.iter().find(|item| item.0 == id).ok_or(StatusCode::NOT_FOUND)?;
    Ok(Json(json!({ "id": id, "name": name })))
}

async fn order(user: User, Path(id): Path<u64>) -> Result<(StatusCode, Json<Value>), StatusCode> {
    match id {
        1 | 2 => Ok((StatusCode::CREATED, Json(json!({ "user": user.id, "item": id })))),
        3 => Err(StatusCode::SERVICE_UNAVAILABLE),
        _ => Err(StatusCode::NOT_FOUND),
    }
}
