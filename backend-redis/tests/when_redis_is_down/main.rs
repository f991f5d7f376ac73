//! The page of the guide of this name: each of its lines is a test here.
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

/// The lines of the page, in order, and the test of each.
const LINES: &[(&str, fn())] = &[
    (
        "A limiter is built at once, whether Redis is there or not.",
        nothing_around::a_limiter_is_built_at_once,
    ),
    (
        "`store.ready()` checks the server when a program starts, and fails with the error that a call \
         would meet, whatever is around the store.",
        nothing_around::ready_fails_as_a_call_would,
    ),
    (
        "A call fails with an error and never with a refusal: `timeout` if it was sent and has no \
         answer, `unavailable` if it could not be sent.",
        nothing_around::a_call_fails_with_an_error,
    ),
    (
        "A call is given up after the store's `response_timeout`, which is 500 ms unless you set it.",
        nothing_around::a_call_is_given_up_in_time,
    ),
    (
        "While there is no connection, a call waits for one for up to `connect_timeout`, which is 1 s \
         unless you set it.",
        nothing_around::a_call_waits_for_a_connection,
    ),
    (
        "A call that timed out was charged once or not at all, and is not made again.",
        nothing_around::a_call_that_timed_out_is_charged_at_most_once,
    ),
    (
        "Once Redis is back, calls are decided by it again, and nothing has to be restarted.",
        nothing_around::redis_is_found_again,
    ),
    (
        "A wrong password, a missing permission, a database that does not exist or a certificate that \
         is not trusted is the error `misconfigured`, which no failure policy hides and no circuit \
         counts, unless `.also_on(ErrorKind::Misconfigured)` is set.",
        nothing_around::a_wrong_password_is_hidden_only_if_asked_for,
    ),
    (
        "A call ends within the timeout, however slow Redis is.",
        timeout::a_call_ends_within_the_timeout,
    ),
    (
        "After 5 failures in a row Redis is not asked for a second: calls fail at once, with \
         `circuit-open`.",
        breaker::after_five_failures_redis_is_not_asked,
    ),
    (
        "After that second one call tries Redis, and until it has an answer the others fail at once.",
        breaker::one_call_tries_redis,
    ),
    (
        "If that call succeeds, the circuit closes; if it fails, it stays open for another second.",
        breaker::the_answer_of_that_call_decides,
    ),
    (
        "A value that Tidegate did not write fails only the calls of that key's subject; the circuit \
         stays closed.",
        breaker::a_foreign_value_opens_no_circuit,
    ),
    (
        "A request passes, and its decision says `degraded`: failed open, and why.",
        fail_open::a_request_passes_and_says_why,
    ),
    (
        "A cost above the limit is refused all the same.",
        fail_open::a_cost_above_the_limit_is_refused,
    ),
    (
        "What passed meanwhile is not charged once Redis is back.",
        fail_open::what_passed_meanwhile_is_not_charged,
    ),
    (
        "A refund, an undo, a reset or a block that fails is an error.",
        fail_open::what_only_writes_is_an_error,
    ),
    ("A call that is wrong is an error, and does not pass.", fail_open::a_wrong_call_is_an_error),
    (
        "A subject whose key holds a value that Tidegate did not write passes without a limit, marked \
         `degraded` with `foreign-value`, until that key is deleted: a reset leaves it there.",
        fail_open::a_foreign_value_passes_until_its_key_is_deleted,
    ),
    (
        "A request is refused, and its decision says `degraded`: failed closed, and why.",
        fail_closed::a_request_is_refused_and_says_why,
    ),
    (
        "Its `retry_after` is 1 s unless you set it, which is a hint and no promise.",
        fail_closed::its_retry_after_is_a_hint,
    ),
    (
        "Each node admits its share of the limit, so that three nodes together admit no more than \
         the limit.",
        fall_back::each_node_admits_its_share,
    ),
    (
        "A policy whose share rounds down to nothing is refused when the limiter is built; without a \
         limiter its requests are refused while Redis is down.",
        fall_back::a_share_of_nothing_is_refused,
    ),
    (
        "Once Redis is back its own counts are in force again, so that in such a window at most \
         twice the limit passes; three times, if Redis lost its data.",
        fall_back::at_most_twice_the_limit_passes_and_three_times_if_data_is_lost,
    ),
    (
        "Each policy has its own answer, and a request passes only if all of its policies let it.",
        fall_back::each_policy_has_its_own_answer,
    ),
    (
        "A subject that was refused stays refused until its time, and Redis is not asked.",
        deny_cache::a_refused_subject_stays_refused,
    ),
    (
        "`until_ready` does not wait for Redis: it returns at once, admitted or with the error.",
        waiting::until_ready_does_not_wait_for_redis,
    ),
    (
        "A caller that already holds a place still proceeds on time.",
        waiting::a_caller_that_holds_a_place_proceeds,
    ),
    (
        "A Redis that kept its data keeps what was taken; one that lost its data starts every \
         subject fresh.",
        afterwards::what_was_kept_counts,
    ),
];

#[test]
fn every_line_of_the_page_is_a_test() {
    let page = include_str!("../../../docs/guide/when-redis-is-down.md");
    let lines: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("* ")).collect();
    let tests: Vec<_> = LINES.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, tests);
}
