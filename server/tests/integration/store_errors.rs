//! Answers to requests that a store cannot decide, if a list or another store refuses them, or if
//! nothing can refuse them.

use std::sync::Arc;

use tidegate_core::layers::Layered;
use tidegate_core::{ErrorKind, PolicyLists, Store, StoreExt};
use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::Behaviour;
use tidegate_server::envoy::service::Service;
use tidegate_server::store::OnStoreError;
use tidegate_testkit::faults::{Fault, Faults};

use crate::scene::{block_on, decider, descriptor, hits, is_ok, is_over, refund, request};

const CONFIG: &str = "domain: d\ndescriptors:\n\
    - {key: ip, policy: 'ip: fixed-window 9/365d'}\n\
    - {key: user, policy: 'user: fixed-window 9/365d'}\n\
    - {key: counted, rate_limit: {unit: year, requests_per_unit: 9}}\n\
    - {key: second, rate_limit: {unit: second, requests_per_unit: 9}}\n\
    - {key: two, policy: fixed-window 2/365d}\n\
    - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}\n\
    - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 9}}\n\
    - {key: shadow_policy, policy: fixed-window 9/365d shadow}\n\
    - {key: used, policy: fixed-window 9/365d, charge_afterwards: true}\n\
    - {key: refunded, policy: fixed-window 9/365d, refunds: true}\n\
    - {key: free, unlimited: true}\n";

/// Returns a store that fails each call.
fn failing() -> Arc<dyn Store> {
    let faults = vec![Fault::Before(ErrorKind::Unavailable); 1_000];
    let store: Layered<Faults, MemoryStore> = MemoryStore::new().layer(Faults::new(faults));
    Arc::new(store)
}

#[test]
fn a_list_refuses_a_request_although_the_store_of_another_limit_fails() {
    for on_error in [OnStoreError::Error, OnStoreError::Allow, OnStoreError::Deny] {
        let lists = PolicyLists::new().with("ip", "deny 203.0.113.9".parse().unwrap());
        let decider = decider(failing(), CONFIG, Behaviour::default()).with_lists(lists);
        let service = Service::new(decider).on_store_error(on_error);
        for other in ["user", "counted"] {
            let denied = [("ip", "203.0.113.9")];
            let asked = request("d", vec![descriptor(&denied), descriptor(&[(other, "x")])]);
            let response = block_on(service.should_rate_limit(&asked)).unwrap();
            assert!(!is_ok(&response) && is_over(&response.statuses[0]), "{on_error:?} {other}");
            assert!(!is_over(&response.statuses[1]), "{on_error:?} {other}");
        }
    }
}

#[test]
fn limits_stay_in_force_if_only_the_store_for_limits_per_second_fails() {
    let memory = Arc::new(MemoryStore::new());
    let decider = decider(memory, CONFIG, Behaviour::default()).with_per_second_store(failing());
    let service = Service::new(decider).on_store_error(OnStoreError::Allow);
    let passes = |key| {
        let asked = request("d", vec![descriptor(&[("second", "")]), descriptor(&[(key, "")])]);
        is_ok(&block_on(service.should_rate_limit(&asked)).unwrap())
    };
    assert_eq!([(); 4].map(|()| passes("two")), [true, true, false, false]);
    assert!(!passes("none"));
    assert!(passes("counted"));
}

#[test]
fn only_limits_that_can_refuse_a_request_deny_it_when_the_store_fails() {
    let refusals = |behaviour: Behaviour| {
        let service = Service::new(decider(failing(), CONFIG, behaviour));
        let service = service.on_store_error(OnStoreError::Deny);
        move |descriptors| {
            let asked = request("d", descriptors);
            let response = block_on(service.should_rate_limit(&asked)).unwrap();
            let over: Vec<_> = response.statuses.iter().map(is_over).collect();
            (is_ok(&response), over)
        }
    };
    let ask = refusals(Behaviour::default());
    for key in ["ip", "counted", "second"] {
        assert_eq!(ask(vec![descriptor(&[(key, "x")])]), (false, vec![true]), "{key}");
    }
    for key in ["shadow", "shadow_policy", "used"] {
        let both = vec![descriptor(&[(key, "x")]), descriptor(&[("free", "x")])];
        assert_eq!(ask(both), (true, vec![false, false]), "{key}");
        let both = vec![descriptor(&[(key, "x")]), descriptor(&[("ip", "x")])];
        assert_eq!(ask(both), (false, vec![false, true]), "{key}");
    }
    // A request with 0 hits asks whether anything remains.
    assert_eq!(ask(vec![hits(&[("used", "x")], 0)]), (false, vec![true]));
    assert_eq!(ask(vec![refund(&[("refunded", "x")], 1)]), (true, vec![false]));

    let mut behaviour = Behaviour::default();
    behaviour.is_shadow = true;
    let ask = refusals(behaviour);
    assert!(ask(vec![descriptor(&[("counted", "x")])]).0);
}
