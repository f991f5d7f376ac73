//! The commands `CL.THROTTLE` and `THROTTLE`.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::{
    Call, Charge, CurrentLimits, ManualClock, Policy, StoreExt, Timestamp, TokenBucket,
};
use tidegate_memory::MemoryStore;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::scene::block_on;

#[tokio::test]
async fn the_example_of_redis_cell() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(ask(&mut client, "CL.THROTTLE user123 15 30 60").await, "[0 16 15 -1 2]");
    assert_eq!(ask(&mut client, "cl.throttle user123 15 30 60 1").await, "[0 16 14 -1 4]");
}

#[tokio::test]
async fn the_cases_of_redis_cell() {
    let server = Server::start().await;
    let mut client = server.client().await;
    // Each case has the milliseconds since the previous case, the quantity and the reply. The test
    // of redis-cell expects a time of 3.9 s, which the reply rounds up to 4 s.
    for (millis, quantity, expected) in [
        (0, 6, "[1 5 5 -1 0]"),
        (0, 1, "[0 5 4 -1 1]"),
        (0, 1, "[0 5 3 -1 2]"),
        (0, 1, "[0 5 2 -1 3]"),
        (0, 1, "[0 5 1 -1 4]"),
        (0, 1, "[0 5 0 -1 5]"),
        (0, 1, "[1 5 0 1 5]"),
        (3_000, 1, "[0 5 2 -1 3]"),
        (100, 1, "[0 5 1 -1 4]"),
        (900, 1, "[0 5 1 -1 4]"),
        (4_000, 1, "[0 5 4 -1 1]"),
        (1_500, 1, "[0 5 4 -1 1]"),
        (0, 0, "[0 5 4 -1 1]"),
        (0, 2, "[0 5 2 -1 3]"),
        (0, 5, "[1 5 2 3 3]"),
    ] {
        server.advance(millis);
        let answer = ask(&mut client, &format!("CL.THROTTLE foo 4 1 1 {quantity}")).await;
        assert_eq!(answer, expected, "{quantity} after {millis} ms");
    }
}

#[tokio::test]
async fn the_cases_of_throttlecrab() {
    let server = Server::start().await;
    let mut client = server.client().await;
    // A reply has 1 if the call is admitted, `max_burst`, the remaining amount, `reset_after` and
    // the wait. `reset_after` is the time until the whole limit is available. In throttlecrab, this
    // time is longer by up to the time of a burst.
    for (arguments, expected) in [
        ("test_key 10 100 60", "[1 10 9 1 0]"),
        ("test_key2 10 100 60 5", "[1 10 5 3 0]"),
        ("exhaustion_test 3 100 60", "[1 3 2 1 0]"),
        ("exhaustion_test 3 100 60", "[1 3 1 2 0]"),
        ("exhaustion_test 3 100 60", "[1 3 0 2 0]"),
        ("exhaustion_test 3 100 60", "[0 3 0 2 1]"),
        ("dynamic_limit_key 10 100 60", "[1 10 9 1 0]"),
        ("dynamic_limit_key 5 100 60", "[1 5 3 2 0]"),
        // The quantity exceeds the limit, so no wait helps, and the server returns -1. throttlecrab
        // returns a wait nevertheless.
        ("large_quantity_key 10 100 60 15", "[0 10 10 0 -1]"),
    ] {
        assert_eq!(
            ask(&mut client, &format!("THROTTLE {arguments}")).await,
            expected,
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn b67_a_wait_is_rounded_up_also_by_less_than_a_millisecond() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(ask(&mut client, "CL.THROTTLE k 0 1 2").await, "[0 1 0 -1 2]");
    // The exact wait is now 1.0004 s. redis-cell would return 1 s, but the server rounds up to 2 s.
    server.clock.advance(Duration::from_micros(999_600));
    assert_eq!(ask(&mut client, "CL.THROTTLE k 0 1 2").await, "[1 1 0 2 2]");
    server.advance(1_000);
    assert_eq!(ask(&mut client, "CL.THROTTLE k 0 1 2").await, "[1 1 0 1 1]");
    assert_eq!(ask(&mut client, "THROTTLE k 1 1 2").await, "[0 1 0 1 1]");
    server.advance(1_000);
    assert_eq!(ask(&mut client, "CL.THROTTLE k 0 1 2").await, "[0 1 0 -1 2]");
}

#[tokio::test]
async fn numbers_that_are_not_possible_are_errors_with_their_bounds() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let usage =
        "-ERR Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
    for (line, why) in [
        ("CL.THROTTLE k 1 1", usage),
        ("CL.THROTTLE k 1 1 1 1 1", "Usage: cl.throttle"),
        (
            "CL.THROTTLE k -1 1 1",
            "max_burst is '-1'; it must be a whole number from 0 to 9223372036854775807",
        ),
        ("CL.THROTTLE k 1 0 1", "count per period is '0'; it must be a whole number from 1"),
        ("CL.THROTTLE k 1 1 0", "period is '0'; it must be a whole number from 1"),
        ("CL.THROTTLE k 1 1 1 -1", "quantity is '-1'; it must be a whole number from 0"),
        ("CL.THROTTLE k 1 1 1 +1", "quantity is '+1'"),
        ("CL.THROTTLE k 1.5 1 1", "max_burst is '1.5'"),
        ("CL.THROTTLE k 9223372036854775808 1 1", "max_burst is '9223372036854775808'"),
        ("CL.THROTTLE k 9223372036854775807 1 1", "9223372036854775808"),
        ("CL.THROTTLE k 1 9223372036854775807 1", "9223372036854775807"),
        ("CL.THROTTLE k 1 1 9223372036854775807", "9223372036854775807"),
        ("THROTTLE k 0 1 1", "max_burst is '0'; it must be a whole number from 1"),
        ("THROTTLE k", "-ERR Usage: throttle"),
    ] {
        let answer = ask(&mut client, line).await;
        assert!(answer.starts_with("-ERR ") && answer.contains(why), "{line}: {answer}");
    }
    // The maximum quantity is valid, but it exceeds the limit, so the call is refused.
    assert_eq!(ask(&mut client, "CL.THROTTLE k 1 1 1 9223372036854775807").await, "[1 2 2 -1 0]");
    assert_eq!(ask(&mut client, "CL.THROTTLE k 1 1 1").await, "[0 2 1 -1 1]");
}

#[tokio::test]
async fn keys_are_any_bytes() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let long = vec![b'x'; 1 << 20];
    for key in [&b""[..], b"\r\n", b"\0\xff", b"{a}", &long] {
        for expected in ["[0 1 0 -1 60]", "[1 1 0 60 60]"] {
            let reply = client.call(&[b"CL.THROTTLE", key, b"0", b"1", b"60"]).await.unwrap();
            assert_eq!(show(&reply), expected);
        }
    }
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let server = Server::start().await;
    // The pipeline exceeds one batch, uses two keys, and contains commands that are not calls, such
    // as `ECHO`.
    let (mut sent, mut expected) = (Vec::new(), String::new());
    for index in 0..1_000_i64 {
        sent.extend(format!("CL.THROTTLE k{} 499 1 3600\r\n", index % 2).bytes());
        let (left, reset) = (499 - index / 2, 3_600 * (index / 2 + 1));
        expected += &format!("*5\r\n:0\r\n:500\r\n:{left}\r\n:-1\r\n:{reset}\r\n");
        if index % 97 == 0 {
            sent.extend(format!("ECHO {index}\r\nSET\r\n").bytes());
            let text = index.to_string();
            expected += &format!("${}\r\n{text}\r\n-ERR unknown command 'SET'\r\n", text.len());
        }
    }
    sent.extend(b"CL.THROTTLE k0 499 1 3600\r\nQUIT\r\nPING\r\n");
    expected += "*5\r\n:1\r\n:500\r\n:0\r\n:3600\r\n:1800000\r\n+OK\r\n";
    assert_eq!(server.answer(&sent).await, expected);

    let command = b"CL.THROTTLE k0 499 1 3600\r\n*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n";
    let mut stream = server.stream().await;
    for at in 0..command.len() {
        let (front, back) = command.split_at(at);
        stream.write_all(front).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(back).await.unwrap();
    }
    stream.write_all(b"QUIT\r\n").await.unwrap();
    let one = "*5\r\n:1\r\n:500\r\n:0\r\n:3600\r\n:1800000\r\n$3\r\na\r\n\r\n";
    assert_eq!(rest(&mut stream).await, one.repeat(command.len()) + "+OK\r\n");
}

#[tokio::test]
async fn connections_share_one_exact_count() {
    let server = Server::start().await;
    let calls = (0..20).map(|_| {
        let address = server.address;
        tokio::spawn(async move {
            let mut client = Client::connect(address.port()).await.unwrap();
            let mut admitted = 0;
            for _ in 0..50 {
                let answer = ask(&mut client, "CL.THROTTLE k 99 1 3600").await;
                admitted += usize::from(answer.starts_with("[0 "));
            }
            admitted
        })
    });
    let mut admitted = 0;
    for call in calls.collect::<Vec<_>>() {
        admitted += call.await.unwrap();
    }
    assert_eq!(admitted, 100);
}

/// A limit is tried out as a shadow, which refuses nothing.
#[tokio::test]
async fn a_shadow_of_a_limit_set_limits_no_call() {
    let limits = CurrentLimits::default();
    limits.replace("throttle: gcra 1/60s burst 1 shadow".parse().unwrap());
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().adjusted(limits);
    let server = Server::on(Arc::new(store), clock, RespSettings::default()).await;
    let mut client = server.client().await;
    for _ in 0..2 {
        assert!(ask(&mut client, "CL.THROTTLE a 0 1 60").await.starts_with("[0 "));
        assert!(ask(&mut client, "THROTTLE b 1 1 60").await.starts_with("[1 "));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checks that the replies are the decisions of the core, with times in whole seconds. After
    /// the returned wait, the same call is admitted if there was no other call.
    #[test]
    fn replies_are_the_decisions_of_the_core(
        burst in 0_u64..6, count in 1_u64..8, period in 1_u64..20,
        steps in vec((0_u64..3_000_000, 0_u64..8, any::<bool>()), 1..30),
    ) {
        block_on(async {
            let server = Server::start().await;
            let mut client = server.client().await;
            let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
            let store = MemoryStore::builder().clock(clock.clone()).build();
            let bucket = TokenBucket::gcra(count, Duration::from_secs(period)).burst(burst + 1);
            let policy = Policy::new("p", bucket).unwrap();
            let up = |span: Duration| span.as_micros().div_ceil(1_000_000);
            for (micros, quantity, is_crab) in steps {
                server.clock.advance(Duration::from_micros(micros));
                clock.advance(Duration::from_micros(micros));
                let charge = [Charge::new(&policy, "k").cost(quantity)];
                let decision = store.decide_now(&Call::acquire(&charge)).unwrap();
                let verdict = decision.verdicts()[0];
                let (limit, left, reset) = (verdict.limit(), verdict.remaining(), up(verdict.reset_after()));
                let wait = verdict.retry_after().map_or("-1".to_owned(), |wait| up(wait).to_string());
                let (command, expected) = match (is_crab, decision.is_allowed()) {
                    (true, true) => (format!("THROTTLE k {}", burst + 1), format!("[1 {limit} {left} {reset} 0]")),
                    (true, false) => (format!("THROTTLE k {}", burst + 1), format!("[0 {limit} {left} {reset} {wait}]")),
                    (false, true) => (format!("CL.THROTTLE k {burst}"), format!("[0 {limit} {left} -1 {reset}]")),
                    (false, false) => (format!("CL.THROTTLE k {burst}"), format!("[1 {limit} {left} {wait} {reset}]")),
                };
                let answer = ask(&mut client, &format!("{command} {count} {period} {quantity}")).await;
                assert_eq!(answer, expected);
                if let (false, Ok(seconds)) = (decision.is_allowed(), wait.parse::<u64>()) {
                    server.advance(seconds * 1_000);
                    clock.advance(Duration::from_secs(seconds));
                    let line = format!("CL.THROTTLE k {burst} {count} {period} {quantity}");
                    assert!(ask(&mut client, &line).await.starts_with("[0 "));
                    assert!(store.decide_now(&Call::acquire(&charge)).unwrap().is_allowed());
                }
            }
        });
    }
}
