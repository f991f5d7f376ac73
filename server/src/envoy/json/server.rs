use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

use super::{JsonError, ShownResponse, read_request};
use crate::envoy::service::Service;
use crate::net::http::{BodyError, Payload, with_json};
use crate::net::tree::Tree;
use crate::observe::prometheus;

/// Returns the routes `POST /json`, `GET /healthcheck` and `GET /config`. With `metrics`, also
/// returns `GET /metrics`.
///
/// | route | answer |
/// |---|---|
/// | `POST /json` | the response in proto3 JSON: 200 if the request is admitted, 429 if it is refused, 400 with a reason if it was not decided |
/// | `GET /healthcheck` | 200 `OK` if limits are in force and the store answers, with a further line if the limit set is possibly not the newest; otherwise, and during shutdown, 500 with the reason |
/// | `GET /config` | the limits in force, each with its file, line and column |
/// | `GET /metrics` | the metrics in the text format of Prometheus |
pub fn routes(service: Arc<Service>, metrics: Option<PrometheusHandle>) -> Router {
    let routes = Router::new()
        .route("/json", post(decide))
        .route("/healthcheck", get(health))
        .route("/config", get(config))
        .with_state(service);
    match metrics {
        Some(metrics) => routes.route("/metrics", get(move || prometheus::render(metrics.clone()))),
        None => routes,
    }
}

async fn decide(State(service): State<Arc<Service>>, body: Result<Payload, BodyError>) -> Response {
    let body = match body {
        Ok(Payload(body)) => body,
        Err(error) => {
            service.unreadable_json(&error.message);
            return error.into_response();
        }
    };
    let request = match read_request(&body) {
        Ok(request) => request,
        Err(error) => {
            let syntax = Tree::read(&body).err();
            service.unreadable_json(syntax.as_deref().unwrap_or(JsonError::NOT_A_REQUEST));
            return refused(&error.to_string());
        }
    };
    match service.should_rate_limit(&request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::Ok => StatusCode::OK,
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            };
            with_json(status, &ShownResponse(&response))
        }
        Err(error) => refused(&error.to_string()),
    }
}

fn refused(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("Bad Request: {why}\n")).into_response()
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    match service.ready().await {
        Ok(()) => match service.old_limits() {
            Some(why) => format!("OK\n{why}\n").into_response(),
            None => "OK".into_response(),
        },
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response(),
    }
}

async fn config(State(service): State<Arc<Service>>) -> Response {
    let config = service.decider().config();
    let (domains, limits) = config.map_or_else(Default::default, |config| {
        (config.domains().into_iter().map(str::to_owned).collect::<Vec<_>>(), config.list())
    });
    let limits = limits.into_iter();
    let limits: Vec<Value> = limits
        .map(|listed| json!({"key": listed.key, "limit": listed.limit, "place": listed.place}))
        .collect();
    with_json(StatusCode::OK, &json!({"domains": domains, "limits": limits}))
}
