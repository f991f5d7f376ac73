//! Settings that a layer rejects.

use http::StatusCode;
use tidegate_http::server::{Limit, RateLimitLayer};
use tidegate_http::subject::Everybody;
use tidegate_memory::ErrorKind;

use super::{limiter, user};

fn error(limits: Vec<Limit>) -> String {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let error = RateLimitLayer::new(limiter, limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    error.to_string()
}

#[test]
fn a_layer_that_could_not_work_is_not_built() {
    assert_eq!(error(vec![]), "invalid-config: the number of limits is 0; it must be 1 to 64");
    assert_eq!(
        error(vec![user("user"); 65]),
        "invalid-config: the number of limits is 65; it must be 1 to 64"
    );
    assert_eq!(
        error(vec![Limit::by("usr", Everybody)]),
        "invalid-config: the limiter has no policy `usr`, but `user`"
    );
    for status in [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE] {
        let error = error(vec![user("user").or_refuse(status)]);
        assert!(error.contains("must be a client error"), "{error}");
    }
    let error = error(vec![user("user").unit("Anfragen für heute")]);
    assert!(error.contains("the unit `Anfragen für heute` contains 'ü'"), "{error}");
}

#[test]
fn layers_and_limits_can_be_shown() {
    let (limiter, _) = limiter(&["user: fixed-window 1/1m"]);
    let layer = RateLimitLayer::new(limiter, [user("user")]).unwrap();
    let shown = format!("{layer:?}");
    assert!(shown.contains("user") && shown.contains("Refuse(400)"), "{shown}");
}
