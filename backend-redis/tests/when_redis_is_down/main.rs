//! Tests the page "When Redis is down" of the guide. Each line of the page is a test.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

mod afterwards;
mod breaker;
mod deny_cache;
mod fail_closed;
mod fail_open;
mod fall_back;
mod nothing_around;
mod scene;
mod timeout;
mod waiting;

/// The lines of the page "When Redis is down" in order, and the test of each line.
const LINES: &[(&str, fn())] = &[
    (
        "A limiter is built immediately, whether Redis is reachable or not.",
        nothing_around::a_limiter_is_built_immediately,
    ),
    (
        "`store.ready()` fails with the error that a call would return, regardless of the \
         layers around the store.",
        nothing_around::ready_fails_with_the_error_of_a_call,
    ),
    (
        "A call fails with an error and never with a refusal: `timeout` if it was sent and \
         has no answer, `unavailable` if it could not be sent.",
        nothing_around::a_call_fails_with_an_error,
    ),
    (
        "A call times out after the store's `response_timeout`, by default 500 ms.",
        nothing_around::a_call_times_out,
    ),
    (
        "Without a connection, a call waits for one for up to `connect_timeout`, by default \
         1 s.",
        nothing_around::a_call_waits_for_a_connection,
    ),
    (
        "A call that timed out was charged once or not at all, and the store does not send it \
         again.",
        nothing_around::a_call_that_timed_out_is_charged_at_most_once,
    ),
    (
        "When Redis is back, it decides calls again, and nothing has to be restarted.",
        nothing_around::redis_decides_again_when_it_is_back,
    ),
    (
        "A wrong password, a missing permission, a database that does not exist or a \
         certificate that is not trusted is the error `misconfigured`. No failure policy \
         hides this error and no circuit counts it, unless \
         `.also_on(ErrorKind::Misconfigured)` is set.",
        nothing_around::a_wrong_password_is_hidden_only_if_configured,
    ),
    (
        "A call ends within the timeout, regardless of how slow Redis is.",
        timeout::a_call_ends_within_the_timeout,
    ),
    (
        "After 5 consecutive failures, Redis is not called for one second: calls fail \
         immediately with `circuit-open`.",
        breaker::after_five_failures_redis_is_not_called,
    ),
    (
        "After that second, one call is sent to Redis as a probe. Until it is answered, all \
         other calls fail immediately.",
        breaker::one_call_probes_redis,
    ),
    (
        "If the probe succeeds, the circuit closes. If it fails, the circuit stays open for \
         another second.",
        breaker::the_result_of_the_probe_decides,
    ),
    (
        "A value that Tidegate did not write fails only the calls for the subject of its key; \
         the circuit stays closed.",
        breaker::a_foreign_value_opens_no_circuit,
    ),
    (
        "A request is admitted, and its decision is `degraded` and contains the reason.",
        fail_open::a_request_passes_and_says_why,
    ),
    ("A cost above the limit is still refused.", fail_open::a_cost_above_the_limit_is_refused),
    (
        "Requests that were admitted while Redis was down are not charged when it is back.",
        fail_open::calls_that_failed_open_are_not_charged,
    ),
    (
        "A refund, an undo, a reset or a block that fails is an error.",
        fail_open::a_write_that_fails_is_an_error,
    ),
    ("An invalid call is an error and is not admitted.", fail_open::an_invalid_call_is_an_error),
    (
        "Requests of a subject whose key contains a value that Tidegate did not write are \
         admitted without a limit, `degraded` with `foreign-value`, until the key is deleted. \
         A reset does not delete it.",
        fail_open::a_foreign_value_passes_until_its_key_is_deleted,
    ),
    (
        "A request is refused, and its decision is `degraded` and contains the reason.",
        fail_closed::a_request_is_refused_and_says_why,
    ),
    (
        "The `retry_after` of the decision is 1 s by default. It is a hint, not a promise.",
        fail_closed::the_retry_after_is_a_hint,
    ),
    (
        "Each node admits its share of the limit, so that three nodes together admit no more \
         than the limit.",
        fall_back::each_node_admits_its_share,
    ),
    (
        "A policy whose share rounds down to zero is an error when the limiter is built. \
         Without a limiter, its requests are refused while Redis is down.",
        fall_back::a_share_of_nothing_is_refused,
    ),
    (
        "When Redis is back, it decides by its own counts again. In such a window at most \
         twice the limit is admitted, or three times if Redis lost its data.",
        fall_back::at_most_twice_the_limit_passes_and_three_times_if_data_is_lost,
    ),
    (
        "A new holder of [slots](concurrency.md) takes a slot of the node's share, and keeps it \
         when Redis is back. A holder whose slot is in Redis keeps it if Redis is back before \
         the lease ends.",
        fall_back::holders_keep_their_slots,
    ),
    (
        "Each policy has its own failure policy, and a request is admitted only if all of its \
         policies admit it.",
        fall_back::each_policy_has_its_own_failure_policy,
    ),
    (
        "A refused subject stays refused without calls to Redis until its `retry_after` has \
         passed, at most for 2 seconds.",
        deny_cache::a_refused_subject_stays_refused,
    ),
    (
        "`until_ready` does not wait for Redis: it returns immediately, admitted or with the \
         error.",
        waiting::until_ready_does_not_wait_for_redis,
    ),
    (
        "A caller that already has a place still proceeds on time.",
        waiting::a_caller_that_holds_a_place_proceeds,
    ),
    (
        "If Redis kept its data, the used amounts still count; if it lost its data, every \
         subject starts without usage.",
        afterwards::kept_data_counts,
    ),
];

#[test]
fn every_line_of_the_page_is_a_test() {
    let page = include_str!("../../../docs/guide/when-redis-is-down.md");
    let lines: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("* ")).collect();
    let tests: Vec<_> = LINES.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, tests);
}
