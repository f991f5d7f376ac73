//! The limits in `examples/server`.

use std::path::Path;

use tidegate_server::config::{Config, SameDomain};

#[test]
fn the_examples_are_valid_and_all_of_them_has_an_effect() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/server");
    let config = Config::from_directory(&directory, SameDomain::Refuse).unwrap();
    assert_eq!(config.warnings(), []);
    assert_eq!(config.domains(), ["models", "shop"]);
    let limits: Vec<_> = config.list().into_iter().map(|it| (it.key, it.limit)).collect();
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
