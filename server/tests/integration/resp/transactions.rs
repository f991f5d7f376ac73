//! Tests `MULTI`, `EXEC` and `DISCARD`. They behave as in Redis, and nothing is charged before
//! `EXEC`.

use metrics_exporter_prometheus::PrometheusBuilder;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_server::calls::resp::{MAX_QUEUED_BYTES, MAX_QUEUED_COMMANDS};
use tidegate_test_servers::Redis;

use super::*;
use crate::scene::block_on;

const ACQUIRE: [&str; 3] = ["TG.ACQUIRE", "alice", "fixed-window 10/1h anchored"];

/// Returns the amount that [`ACQUIRE`] has charged.
async fn taken(server: &Server) -> i64 {
    let peek = [&["TG.PEEK"], &ACQUIRE[1..]].concat();
    let reply = server.client().await.call(&peek).await.unwrap();
    match reply.list() {
        [_, _, charge] => 10 - charge.list()[2].text().parse::<i64>().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn replies_of_acquires(taken: std::ops::RangeInclusive<i64>) -> String {
    let reset = |taken: i64| format!("[1 0 [allowed 10 {} 0 3600000 1]]", 10 - taken);
    let replies: Vec<String> = taken.map(reset).collect();
    format!("[{}]", replies.join(" "))
}

#[tokio::test]
async fn b98_a_transaction_is_charged_at_exec_and_in_order() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    assert_eq!(ask(client, "MULTI").await, "OK");
    for _ in 0..3 {
        assert_eq!(call(client, &ACQUIRE).await, "QUEUED");
    }
    assert_eq!(taken(&server).await, 0);
    assert_eq!(ask(client, "EXEC").await, replies_of_acquires(1..=3));
    assert_eq!(taken(&server).await, 3);
    // The transaction has ended.
    assert_eq!(ask(client, "EXEC").await, "-ERR EXEC without MULTI");
    assert_eq!(call(client, &ACQUIRE).await, "[1 0 [allowed 10 6 0 3600000 1]]");
}

#[tokio::test]
async fn b98_a_command_that_cannot_be_queued_aborts_the_transaction_uncharged() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    for (command, why) in [
        (&["GET", "k"][..], "-ERR unknown command 'GET'"),
        (&["TG.ACQUIRE", "k"], "-ERR wrong number of arguments for 'tg.acquire' command"),
        (&["CL.THROTTLE", "k", "1"], "-ERR Usage: cl.throttle "),
        (&["CL.THROTTLE", "k", "x", "1", "1"], "-ERR invalid-call: max_burst is 'x'"),
        (&["TG.ACQUIRE", "k", "leaky 1/s"], "-ERR invalid-call: "),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "COST", "x"], "-ERR invalid-call: COST is 'x'"),
        // A store refuses these calls as invalid before it decides them.
        (&["TG.ACQUIRE", "k", "gcra 1/s", "MIN", "2"], "-ERR invalid-call: "),
        (&["TG.ACQUIRE", "k", "a: gcra 1/s", "AND", "k", "a: gcra 2/s"], "-ERR invalid-call: "),
        (&["CLIENT", "KILL", "x"], "-ERR unknown subcommand"),
        (&["COMMAND", "GETKEYS"], "-ERR unknown subcommand"),
        (&["CONFIG", "GET"], "-ERR unknown subcommand"),
        (&["DISCARD", "x"], "-ERR wrong number of arguments for 'discard' command"),
    ] {
        assert_eq!(ask(client, "MULTI").await, "OK");
        assert_eq!(call(client, &ACQUIRE).await, "QUEUED");
        let answer = call(client, command).await;
        assert!(answer.starts_with(why), "{command:?}: {answer}");
        assert_eq!(call(client, &ACQUIRE).await, "QUEUED");
        assert_eq!(ask(client, "EXEC").await, aborted, "{command:?}");
        assert_eq!(taken(&server).await, 0, "{command:?}");
    }
    assert_eq!(ask(client, "MULTI").await, "OK");
    assert_eq!(call(client, &ACQUIRE).await, "QUEUED");
    let with_argument =
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    assert_eq!(ask(client, "EXEC x").await, with_argument);
    assert_eq!(ask(client, "EXEC").await, "-ERR EXEC without MULTI");
    assert_eq!(taken(&server).await, 0);
}

#[tokio::test]
async fn nested_multi_and_watch_are_errors_that_leave_the_transaction_open() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    for (line, expected) in [
        ("WATCH k", "-ERR WATCH is not supported, because this server has no keys to read; "),
        ("UNWATCH", "OK"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "OK"),
        ("PING", "QUEUED"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
        ("UNWATCH", "QUEUED"),
        ("EXEC", "[PONG OK]"),
    ] {
        let answer = ask(client, line).await;
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
}

#[tokio::test]
async fn discard_reset_quit_and_a_lost_connection_charge_nothing() {
    let server = Server::start().await;
    let acquire = "TG.ACQUIRE alice 'fixed-window 10/1h anchored'\r\n";
    for (end, expected) in [
        ("DISCARD\r\nEXEC\r\nQUIT\r\n", "+OK\r\n-ERR EXEC without MULTI\r\n+OK\r\n"),
        ("RESET\r\nEXEC\r\nQUIT\r\n", "+RESET\r\n-ERR EXEC without MULTI\r\n+OK\r\n"),
        ("QUIT\r\nEXEC\r\n", "+OK\r\n"),
        ("Host: x\r\nEXEC\r\n", "-ERR this is not an HTTP server\r\n"),
    ] {
        let answer = server.answer(format!("MULTI\r\n{acquire}{end}").as_bytes()).await;
        assert_eq!(answer, format!("+OK\r\n+QUEUED\r\n{expected}"));
    }
    let mut stream = server.stream().await;
    stream.write_all(format!("MULTI\r\n{acquire}").as_bytes()).await.unwrap();
    let mut queued = [0; "+OK\r\n+QUEUED\r\n".len()];
    stream.read_exact(&mut queued).await.unwrap();
    drop(stream);
    assert_eq!(taken(&server).await, 0);
}

#[tokio::test]
async fn transactions_of_connections_are_separate() {
    let server = Server::start().await;
    let (one, two) = (&mut server.client().await, &mut server.client().await);
    for client in [&mut *one, &mut *two] {
        assert_eq!(ask(client, "MULTI").await, "OK");
    }
    assert_eq!(call(one, &ACQUIRE).await, "QUEUED");
    assert_eq!(ask(two, "NOTHING").await, "-ERR unknown command 'NOTHING'");
    assert_eq!(call(two, &ACQUIRE).await, "QUEUED");
    // This connection is not in a transaction.
    assert_eq!(
        call(&mut server.client().await, &ACQUIRE).await,
        "[1 0 [allowed 10 9 0 3600000 1]]"
    );
    assert_eq!(ask(one, "EXEC").await, replies_of_acquires(2..=2));
    assert!(ask(two, "EXEC").await.starts_with("-EXECABORT "));
    assert_eq!(taken(&server).await, 2);
}

#[tokio::test]
async fn a_command_that_fails_at_exec_leaves_the_others_their_replies() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    ask(client, "MULTI").await;
    call(client, &ACQUIRE).await;
    call(client, &["TG.CANCEL", "alice", "fixed-window 10/1h anchored", "ID", "x"]).await;
    call(client, &[&ACQUIRE[..], &["COST", "10"]].concat()).await;
    call(client, &ACQUIRE).await;
    let answer = ask(client, "EXEC").await;
    assert!(answer.starts_with("[[1 0 [allowed 10 9 0 3600000 1]] -UNKNOWNHOLD "), "{answer}");
    let rest = " [0 3600000 [denied 10 9 3600000 3600000 0]] [1 0 [allowed 10 8 0 3600000 1]]]";
    assert!(answer.ends_with(rest), "{answer}");
}

#[tokio::test]
async fn what_a_transaction_chooses_holds_from_exec_on() {
    let server = Server::with(with_login()).await;
    let lines = "EXEC\r\nMULTI\r\nAUTH s3cret\r\nMULTI\r\nAUTH wrong\r\nCLIENT SETNAME x\r\nCLIENT GETNAME\r\nDISCARD\r\n\
                 CLIENT GETNAME\r\nMULTI\r\nAUTH wrong\r\nCLIENT GETNAME\r\nHELLO 3\r\nCLIENT GETNAME\r\nEXEC\r\nMULTI\r\n\
                 EXEC\r\nMULTI\r\nRESET\r\nPING\r\nQUIT\r\n";
    let answer = server.answer(lines.as_bytes()).await;
    let queued = |number| "+QUEUED\r\n".repeat(number);
    let start = format!(
        "-EXECABORT Transaction discarded because of: NOAUTH Authentication required.\r\n\
         -NOAUTH Authentication required.\r\n+OK\r\n+OK\r\n{}+OK\r\n$-1\r\n+OK\r\n{}*4\r\n-WRONGPASS invalid \
         username-password pair or user is disabled.\r\n$-1\r\n%7\r\n$6\r\nserver\r\n",
        queued(3),
        queued(4)
    );
    assert!(answer.starts_with(&start), "{answer}");
    let end =
        "*0\r\n_\r\n+OK\r\n*0\r\n+OK\r\n+RESET\r\n-NOAUTH Authentication required.\r\n+OK\r\n";
    assert!(answer.ends_with(end), "{answer}");
}

#[tokio::test]
async fn the_tenth_failed_login_within_a_transaction_ends_the_connection() {
    let server = Server::with(with_login()).await;
    let wrong = "AUTH wrong\r\n".repeat(11);
    let answer = server.answer(format!("AUTH s3cret\r\nMULTI\r\n{wrong}EXEC\r\n").as_bytes()).await;
    assert!(answer.contains("*11\r\n-WRONGPASS"), "{answer}");
    assert_eq!(answer.matches("-WRONGPASS").count(), 10, "{answer}");
}

#[tokio::test]
async fn a_transaction_of_many_batches_has_each_reply_in_order() {
    let server = Server::start().await;
    let throttle = "CL.THROTTLE k 9999 1 3600\r\n".repeat(1_000);
    let answer =
        server.answer(format!("MULTI\r\n{throttle}EXEC\r\nPING\r\nQUIT\r\n").as_bytes()).await;
    let start = format!("+OK\r\n{}*1000\r\n", "+QUEUED\r\n".repeat(1_000));
    let replies = answer.strip_prefix(&*start).unwrap();
    let remaining: Vec<u64> = replies
        .split("*5\r\n")
        .skip(1)
        .map(|reply| reply.split("\r\n").nth(2).unwrap()[1..].parse().unwrap())
        .collect();
    assert_eq!(remaining, (9_000..10_000).rev().collect::<Vec<_>>());
    assert!(answer.ends_with("+PONG\r\n+OK\r\n"));
}

#[tokio::test]
async fn a_transaction_is_bounded_in_commands_and_bytes() {
    let server = Server::start().await;
    let pings = "PING\r\n".repeat(MAX_QUEUED_COMMANDS);
    let answer = server
        .answer(format!("MULTI\r\n{pings}PING\r\nPING\r\nEXEC\r\nPING\r\nQUIT\r\n").as_bytes())
        .await;
    let end = "+QUEUED\r\n-ERR a transaction has 10001 commands; it must have at most 10000\r\n+QUEUED\r\n-EXECABORT \
               Transaction discarded because of previous errors.\r\n+PONG\r\n+OK\r\n";
    assert!(answer.ends_with(end), "{}", &answer[answer.len() - 300..]);
    let answer = server.answer(format!("MULTI\r\n{pings}EXEC\r\nQUIT\r\n").as_bytes()).await;
    assert_eq!(answer.matches("+PONG\r\n").count(), MAX_QUEUED_COMMANDS);
    // Each argument counts with its bytes and 32 bytes of overhead. Therefore many empty arguments
    // exceed the bound too.
    let echo = format!("*2\r\n$4\r\nECHO\r\n$1000000\r\n{}\r\n", "x".repeat(1_000_000));
    let empty = format!("*1024\r\n$4\r\nPING\r\n{}", "$0\r\n\r\n".repeat(1_023));
    for (command, fitting) in [(echo, 4), (empty, MAX_QUEUED_BYTES / (1_024 * 32 + 4))] {
        let commands = command.repeat(fitting + 1);
        let answer = server.answer(format!("MULTI\r\n{commands}EXEC\r\nQUIT\r\n").as_bytes()).await;
        assert_eq!(answer.matches("+QUEUED\r\n").count(), fitting);
        assert!(answer.contains("-ERR the commands of a transaction need "), "{answer}");
        assert!(answer.ends_with("errors.\r\n+OK\r\n"));
    }
}

#[test]
fn queued_commands_are_counted_when_they_are_executed() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        block_on(async {
            let server = Server::start().await;
            let lines = "MULTI\r\nCL.THROTTLE k 0 1 60\r\nCL.THROTTLE k 0 1 60\r\nEXEC\r\nMULTI\r\n\
                         CL.THROTTLE k 0 1 60\r\nDISCARD\r\nMULTI\r\nCL.THROTTLE k\r\nEXEC\r\nQUIT\r\n";
            server.answer(lines.as_bytes()).await;
            let text = handle.render();
            for (command, outcome, count) in [
                ("multi", "done", 3),
                ("cl.throttle", "done", 1),
                ("cl.throttle", "refused", 1),
                ("cl.throttle", "failed", 1),
                ("exec", "done", 1),
                ("exec", "failed", 1),
                ("discard", "done", 1),
                ("unknown", "failed", 0),
            ] {
                let line = format!(
                    "tidegate_server_commands_total{{protocol=\"resp\",command=\"{command}\",outcome=\"{outcome}\"}} {count}\n"
                );
                assert!(text.contains(&line), "{line}\n{text}");
            }
        });
    });
}

/// Generates a command that both Redis and this server support.
fn line() -> impl Strategy<Value = &'static str> {
    select(vec![
        "PING",
        "PING a",
        "PING a b",
        "ECHO a",
        "ECHO",
        "SELECT 0",
        "SELECT 99",
        "CLIENT SETNAME x",
        "CLIENT SETNAME y",
        "CLIENT GETNAME",
        "CLIENT NOTHING",
        "CLIENT SETNAME",
        "CONFIG GET nothing",
        "CONFIG GET",
        "COMMAND NOTHING",
        "UNWATCH",
        "UNWATCH x",
        "NOTHING",
        "HELLO 2",
        "HELLO 3",
        "HELLO 4",
        "EXEC x",
        "DISCARD x",
        "MULTI x",
    ])
}

/// Generates lines with complete, unfinished and missing transactions. No transaction contains a
/// valid `MULTI`, because the reply of Redis depends on its version.
fn lines() -> impl Strategy<Value = Vec<&'static str>> {
    let end = select(vec!["EXEC", "EXEC", "EXEC", "DISCARD", "RESET"]);
    let transaction = (vec(line(), 0..6), end).prop_map(|(mut lines, end)| {
        lines.insert(0, "MULTI");
        lines.push(end);
        lines
    });
    let outside = select(vec!["EXEC", "DISCARD", "RESET", "UNWATCH", "PING"]);
    let outside = prop_oneof![outside, line()].prop_map(|line| vec![line]);
    let ends_within = prop::option::of(vec(line(), 0..3)).prop_map(|lines| match lines {
        Some(mut lines) => {
            lines.insert(0, "MULTI");
            lines
        }
        None => Vec::new(),
    });
    let parts = vec(prop_oneof![transaction, outside], 1..8);
    (parts, ends_within).prop_map(|(mut parts, end)| {
        parts.extend([end, vec!["QUIT"]]);
        parts.concat()
    })
}

/// Returns the lines of an answer, without the parts that differ between servers: texts of errors,
/// name, version, and ids of clients.
fn normalized(answer: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut hidden = 0;
    for line in answer.split("\r\n") {
        match line {
            _ if hidden > 0 => hidden -= 1,
            error if error.starts_with('-') => lines.push(error.split(' ').next().unwrap()),
            "server" | "version" => {
                lines.push(line);
                hidden = 2;
            }
            "id" => {
                lines.push(line);
                hidden = 1;
            }
            other => lines.push(other),
        }
    }
    lines
}

#[test]
fn transactions_have_the_replies_of_redis() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(Redis::start()).unwrap();
    let server = runtime.block_on(Server::start());
    proptest!(ProptestConfig::with_cases(200), |(lines in lines())| {
        let bytes = lines.join("\r\n") + "\r\n";
        let (expected, found) = runtime.block_on(async {
            let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).await.unwrap();
            stream.write_all(bytes.as_bytes()).await.unwrap();
            (rest(&mut stream).await, server.answer(bytes.as_bytes()).await)
        });
        prop_assert_eq!(normalized(&expected), normalized(&found), "{:?}", lines);
    });
}
