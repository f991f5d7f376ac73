//! Checks the limits in `examples/server`, and the statements of the READMEs about them.

use std::path::Path;

use tidegate_server::limits::config::{Config, SameDomain};

use crate::json::call;
use crate::program::{program, serving};

#[test]
fn the_examples_are_valid_and_all_of_them_has_an_effect() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/server");
    let config = Config::from_directory(&directory, SameDomain::Refuse).unwrap();
    assert_eq!(config.warnings(), []);
    assert_eq!(config.domains(), ["models", "shop"]);
    let limits: Vec<_> =
        config.list().into_iter().map(|listed| (listed.key, listed.limit)).collect();
    let expected = [
        ("models.trial", "policy: sliding-log 20000/1d grain 1m shadow"),
        ("models.user", "policy: token-bucket 100000/1h burst 100000"),
        ("shop.path_/login.account", "policy: sliding-log 5/15m block 15m"),
        ("shop.plan_internal", "unlimited"),
        ("shop.plan_pro.api_key", "policy: gcra 10/1s burst 100"),
        ("shop.remote_address", "100 per 1m"),
        ("shop.remote_address_203.0.113.9", "0 per 1m"),
    ];
    assert_eq!(limits, expected.map(|(key, limit)| (key.to_owned(), limit.to_owned())));
}

/// Returns the bodies that a README sends to `/json`. The README must start the server with the
/// limits in `examples/server`.
fn posted(readme: &str) -> Vec<&str> {
    assert!(readme.contains("cargo run -p tidegate-server -- --config examples/server\n"));
    let posted = readme.split("http://127.0.0.1:8080/json -d '").skip(1);
    posted.map(|rest| rest.split_once('\'').unwrap().0).collect()
}

#[tokio::test]
async fn the_first_requests_of_the_readmes_get_what_is_said_of_them() {
    let [of_repository] = posted(include_str!("../../../README.md"))[..] else { panic!() };
    let [of_server, login] = posted(include_str!("../../README.md"))[..] else { panic!() };
    let mut program = program();
    program.args(["--config", "../examples/server"]);
    let (_child, address) = serving(program).await;
    for body in [of_repository, of_server] {
        assert_eq!(call(address, "POST", "/json", body).await.0, 429, "{body}");
    }
    for expected in [200, 200, 200, 200, 200, 429] {
        assert_eq!(call(address, "POST", "/json", login).await.0, expected);
    }
}
