//! Tidegate's own commands.

use tidegate_core::{ErrorKind, Operation, StoreExt, TokioClock};
use tidegate_server::calls::resp::serve_stream;
use tidegate_server::calls::{CallRequest, ChargeRequest};
use tidegate_server::store::OnStoreError;
use tidegate_testkit::faults::{Fault, Faults};

use super::*;

#[tokio::test]
async fn acquire_takes_peek_looks_refund_gives_back_and_reset_forgets() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "fixed-window 10/1m anchored";
    for (command, expected) in [
        (&["TG.ACQUIRE", "alice", policy, "COST", "7"][..], "[1 0 [allowed 10 3 0 60000 7]]"),
        (&["TG.ACQUIRE", "alice", policy, "cost", "4"], "[0 60000 [denied 10 3 60000 60000 0]]"),
        (&["TG.ACQUIRE", "alice", policy, "COST", "11"], "[0 -1 [denied 10 3 -1 60000 0]]"),
        (&["TG.PEEK", "alice", policy, "COST", "3"], "[1 0 [allowed 10 3 0 60000 0]]"),
        (
            &["TG.ACQUIRE", "alice", policy, "COST", "9", "MIN", "2"],
            "[1 0 [allowed 10 0 0 60000 3]]",
        ),
        (&["TG.PEEK", "alice", policy], "[0 60000 [denied 10 0 60000 60000 0]]"),
        (&["TG.REFUND", "alice", policy, "COST", "4"], "[1 0 [allowed 10 4 0 60000 4]]"),
        (&["TG.CHARGE", "alice", policy, "COST", "9"], "[1 0 [denied 10 0 60000 60000 9]]"),
        (&["TG.RESET", "alice", policy], "[1 0 [allowed 10 10 0 0 0]]"),
        (
            &["TG.ACQUIRE", "alice", policy, "TENANT", "acme", "COST", "10"],
            "[1 0 [allowed 10 0 0 60000 10]]",
        ),
        (&["TG.ACQUIRE", "alice", policy], "[1 0 [allowed 10 9 0 60000 1]]"),
    ] {
        assert_eq!(call(client, command).await, expected, "{command:?}");
    }
}

#[tokio::test]
async fn several_charges_are_taken_together_or_not_at_all() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let (ip, user) = ("ip: fixed-window 5/1m anchored", "user: fixed-window 3/1h anchored");
    let both = ["TG.ACQUIRE", "203.0.113.9", ip, "AND", "alice", user, "COST", "2"];
    let taken = "[1 0 [allowed 5 4 0 60000 1] [allowed 3 1 0 3600000 2]]";
    assert_eq!(call(client, &both).await, taken);
    let refused = "[0 3600000 [allowed 5 4 0 60000 0] [denied 3 1 3600000 3600000 0]]";
    assert_eq!(call(client, &both).await, refused);
    let check = ["TG.ACQUIRE", "203.0.113.9", ip, "AND", "alice", user, "CHECK"];
    let taken = "[1 0 [allowed 5 3 0 60000 1] [allowed 3 1 0 3600000 0]]";
    assert_eq!(call(client, &check).await, taken);
}

#[tokio::test]
async fn a_warning_is_the_last_element() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "plan: fixed-window 2/1h anchored block 1m x4 up to 1d forget 7d warn 50%";
    for (command, expected) in [
        (&["TG.PEEK", "bob", policy][..], "[1 0 [allowed 2 2 0 0 0]]"),
        (&["TG.ACQUIRE", "bob", policy], "[1 0 [allowed 2 1 0 3600000 1 warns]]"),
        (&["TG.BLOCK", "bob", policy, "EX", "60"], "[1 0 [blocked 2 0 60000 3600000 0]]"),
    ] {
        assert_eq!(call(client, command).await, expected, "{command:?}");
    }
}

#[tokio::test]
async fn a_ban_has_a_reason_and_the_level_is_the_last_element() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "login: fixed-window 1/1h anchored block 1m x4 up to 1d forget 7d";
    for (command, expected) in [
        (&["TG.ACQUIRE", "bob", policy][..], "[1 0 [allowed 1 0 0 3600000 1]]"),
        (&["TG.ACQUIRE", "bob", policy], "[0 3600000 [denied 1 0 3600000 3600000 0 0 1]]"),
        (
            &["TG.BAN", "bob", policy, "EX", "7200", "REASON", "stolen passwords"],
            "[1 0 [blocked 1 0 7200000 7200000 0 0 1]]",
        ),
        (
            &["TG.BAN", "bob", policy, "EX", "60", "REASON", "again"],
            "[1 0 [blocked 1 0 7200000 7200000 0 0 1]]",
        ),
        (&["TG.UNBAN", "bob", policy], "[1 0 [allowed 1 0 0 3600000 0]]"),
    ] {
        assert_eq!(call(client, command).await, expected, "{command:?}");
    }
    for (command, message) in [
        (&["TG.BAN", "bob", policy, "EX", "60", "REASON", ""][..], "has 0 bytes"),
        (&["TG.BAN", "bob", policy, "EX", "60", "EX", "60"], "EX is given twice"),
        (
            &["TG.BAN", "bob", policy, "EX", "60", "TENANT", "t"],
            "REASON, the reason of the ban, is",
        ),
        (
            &["TG.BAN", "bob", policy, "REASON", "a", "TENANT", "t"],
            "EX or PX, the time of the ban,",
        ),
    ] {
        let answer = call(client, command).await;
        assert!(answer.contains(message), "{command:?}: {answer}");
    }
}

#[tokio::test]
async fn a_block_lasts_as_long_as_it_says_and_can_be_lifted() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "login: gcra 1/s burst 5";
    call(client, &["TG.BLOCK", "bob", policy, "EX", "300"]).await;
    let blocked = call(client, &["TG.ACQUIRE", "bob", policy]).await;
    assert!(blocked.starts_with("[0 300000 [blocked 5 0 300000"), "{blocked}");
    call(client, &["TG.BLOCK", "bob", policy, "EX", "10", "ATLEAST"]).await;
    server.advance(299_999);
    assert!(call(client, &["TG.ACQUIRE", "bob", policy]).await.starts_with("[0 1 "));
    server.advance(1);
    assert!(call(client, &["TG.ACQUIRE", "bob", policy]).await.starts_with("[1 0 "));
    call(client, &["TG.BLOCK", "bob", policy, "PX", "1500"]).await;
    assert!(call(client, &["TG.ACQUIRE", "bob", policy]).await.starts_with("[0 1500 "));
    call(client, &["TG.BLOCK", "bob", policy, "EX", "0"]).await;
    assert!(call(client, &["TG.ACQUIRE", "bob", policy]).await.starts_with("[1 0 "));
    // `TG.BLOCK` can also block a key of `CL.THROTTLE`, whose policies have the name `throttle`.
    call(client, &["TG.BLOCK", "k", "throttle: gcra 1/60s", "EX", "90"]).await;
    assert_eq!(ask(client, "CL.THROTTLE k 0 1 60").await, "[1 1 0 90 90]");
}

#[tokio::test]
async fn a_hold_is_settled_at_what_was_used() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "tokens: fixed-window 1000/1h anchored max-hold 6/10";
    let hold = ["TG.HOLD", "alice", policy, "COST", "600", "ID", "job 7", "EX", "60"];
    assert_eq!(call(client, &hold).await, "[1 0 [allowed 1000 400 0 3600000 600]]");
    assert_eq!(call(client, &hold).await, "[1 0 [allowed 1000 400 0 3600000 600]]", "once");
    let large = ["TG.HOLD", "alice", policy, "COST", "601", "ID", "job 8", "EX", "60"];
    assert_eq!(call(client, &large).await, "[0 -1 [too-large 1000 400 -1 3600000 0]]");
    let in_turn = [&large[..], &["PLACE", "0"]].concat();
    let refused = call(client, &in_turn).await;
    assert!(refused.starts_with("[0 -1 [too-large 1000 400 -1 3600000 0"), "{refused}");
    let up_to = ["TG.HOLD", "alice", policy, "COST", "900", "MIN", "1", "ID", "job 9", "EX", "60"];
    assert_eq!(call(client, &up_to).await, "[1 0 [allowed 1000 0 0 3600000 400]]");

    let so_far = ["TG.SETTLE", "alice", policy, "COST", "100", "ID", "job 7", "SOFAR"];
    assert_eq!(call(client, &so_far).await, "[1 0 [allowed 1000 0 0 3600000 0]]");
    let extend = ["TG.EXTEND", "alice", policy, "ID", "job 7", "EX", "120"];
    assert_eq!(call(client, &extend).await, "[1 0 [allowed 1000 0 0 3600000 0]]");
    server.advance(90_000);
    let late = ["TG.EXTEND", "alice", policy, "ID", "job 9", "EX", "120"];
    assert!(call(client, &late).await.starts_with("-HOLDLAPSED "));
    let settle = ["TG.SETTLE", "alice", policy, "COST", "450", "ID", "job 7"];
    for _ in 0..2 {
        assert_eq!(call(client, &settle).await, "[1 0 [allowed 1000 150 0 3510000 150]]");
    }
    let other = ["TG.SETTLE", "alice", policy, "COST", "451", "ID", "job 7"];
    assert!(call(client, &other).await.starts_with("-ALREADYSETTLED "));
    let cancel = ["TG.CANCEL", "alice", policy, "ID", "job 9"];
    assert_eq!(call(client, &cancel).await, "[1 0 [allowed 1000 550 0 3510000 400]]");
    let unknown = ["TG.CANCEL", "alice", policy, "ID", "job 10"];
    assert!(call(client, &unknown).await.starts_with("-UNKNOWNHOLD "));
}

#[tokio::test]
async fn a_grant_tops_up_credits_once_per_id() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let credits = "prepaid: credits 5";
    let grant = ["TG.GRANT", "alice", credits, "COST", "20", "ID", "invoice 17"];
    for _ in 0..2 {
        assert_eq!(call(client, &grant).await, "[1 0 [allowed 5 25 0 0 0]]");
    }
    let other = ["TG.GRANT", "alice", credits, "COST", "21", "ID", "invoice 17"];
    assert!(call(client, &other).await.starts_with("-IDREUSED "));
    let acquire = ["TG.ACQUIRE", "alice", credits, "COST", "25"];
    assert!(call(client, &acquire).await.starts_with("[1 0 [allowed 5 0 0 "));
    assert!(call(client, &acquire).await.starts_with("[0 -1 [denied 5 0 -1 "));
    let ended = ["TG.GRANT", "alice", credits, "ID", "ended", "UNTIL", "1"];
    assert!(call(client, &ended).await.starts_with("[1 0 [allowed 5 0 0 "));
    // The first grant has no end, so 15 more are possible.
    for n in 0..15 {
        let (id, until) = (n.to_string(), (4_000_000_000_000_u64 + n).to_string());
        let open = ["TG.GRANT", "alice", credits, "ID", &id, "UNTIL", &until];
        assert!(call(client, &open).await.starts_with("[1 0 "));
    }
    let more = ["TG.GRANT", "alice", credits, "ID", "more", "UNTIL", "4500000000000"];
    assert!(call(client, &more).await.starts_with("-TOOMANYGRANTS "));
    for (arguments, error) in [
        (&["TG.GRANT", "alice", credits, "COST", "1"][..], "ID is missing"),
        (&["TG.GRANT", "alice", "gcra 1/s", "ID", "a"], "is not a quota"),
        (&["TG.GRANT", "alice", credits, "COST", "0", "ID", "a"], "it must be from 1"),
        (&["TG.GRANT", "alice", credits, "ID", "a", "UNTIL", "1", "UNTIL", "1"], "given twice"),
    ] {
        let answer = call(client, arguments).await;
        assert!(answer.starts_with("-ERR ") && answer.contains(error), "{arguments:?}: {answer}");
    }
}

#[tokio::test]
async fn a_hold_takes_slots_and_its_end_frees_them() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let slots = "slots: concurrent 1 lease 30s";
    let hold = |id| ["TG.HOLD", "alice", slots, "ID", id, "EX", "60"];
    // The last number is the fence, which is the time of the grant in microseconds.
    let granted = format!("[1 0 [allowed 1 0 0 30000 1 {}]]", server.now_micros());
    assert_eq!(call(client, &hold("a")).await, granted);
    assert_eq!(call(client, &hold("b")).await, "[0 -1 [denied 1 0 -1 30000 0 30000]]");
    server.advance(20_000);
    let extend = ["TG.EXTEND", "alice", slots, "ID", "a", "EX", "60"];
    assert_eq!(call(client, &extend).await, "[1 0 [allowed 1 0 0 30000 0]]");
    server.advance(20_000);
    // The last number is the time until the earliest lapse in milliseconds.
    assert_eq!(call(client, &hold("b")).await, "[0 -1 [denied 1 0 -1 30000 0 10000]]");
    let cancel = ["TG.CANCEL", "alice", slots, "ID", "a"];
    assert_eq!(call(client, &cancel).await, "[1 0 [allowed 1 1 0 0 1]]");
    let granted = format!("[1 0 [allowed 1 0 0 30000 1 {}]]", server.now_micros());
    assert_eq!(call(client, &hold("b")).await, granted);
    let acquire = call(client, &["TG.ACQUIRE", "alice", slots]).await;
    assert!(acquire.contains("only a hold takes slots"), "{acquire}");
}

#[tokio::test]
async fn a_client_waits_for_slots_with_its_place() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let slots = "slots: concurrent 1 lease 30s";
    let hold = async |client: &mut _, id: &str, place: &str| {
        call(client, &["TG.HOLD", "alice", slots, "ID", id, "EX", "60", "PLACE", place]).await
    };
    assert!(hold(client, "a", "0").await.starts_with("[1 0 "));
    let place = (server.now_micros() + 1).to_string();
    let waits = format!("[0 -1 [denied 1 0 -1 30000 0 30000] [place {place} 0]]");
    assert_eq!(hold(client, "b", "0").await, waits);
    assert_eq!(hold(client, "b", &place).await, waits);
    call(client, &["TG.CANCEL", "alice", slots, "ID", "a"]).await;
    let other = call(client, &["TG.HOLD", "alice", slots, "ID", "c", "EX", "60"]).await;
    assert_eq!(other, "[0 -1 [denied 1 1 -1 0 0]]");
    let leave = ["TG.LEAVE", "alice", slots, "PLACE", &place];
    assert_eq!(call(client, &leave).await, "[1 0 [allowed 1 1 0 0 0]]");
    assert!(hold(client, "c", "0").await.starts_with("[1 0 "));
    for (command, message) in [
        (&["TG.LEAVE", "alice", slots][..], "wrong number of arguments"),
        (&["TG.LEAVE", "alice", slots, "COST", "1"], "PLACE, the place to give up, is missing"),
        (
            &["TG.HOLD", "a", slots, "ID", "x", "EX", "9", "MIN", "1", "PLACE", "0"],
            "PLACE cannot be combined with MIN",
        ),
    ] {
        let answer = call(client, command).await;
        assert!(answer.contains(message), "{answer}");
    }
}

/// The slots of a client are free when its connection closes, even if the client has crashed. While
/// the connection is open, the server renews them.
#[tokio::test(start_paused = true)]
async fn a_bound_hold_ends_with_its_connection() {
    let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build());
    let calls = Arc::new(Calls::new(store));
    let (mut client, server) = tokio::io::duplex(4_096);
    let served = tokio::spawn(serve_stream(server, Arc::clone(&calls), RespSettings::default()));
    let slots = "slots: concurrent 3 lease 30s";
    let mut send = async |command: String| {
        client.write_all(command.as_bytes()).await.unwrap();
        let mut reply = [0; 512];
        let size = client.read(&mut reply).await.unwrap();
        assert!(reply.starts_with(b"*4\r\n:1\r\n") && size < 512, "{:?}", reply.escape_ascii());
    };
    for (id, option) in [("a", "BOUND"), ("b", "BOUND"), ("c", "")] {
        let tokens = "AND alice 'tokens: fixed-window 100/1d anchored' COST 10";
        send(format!("TG.HOLD alice '{slots}' ID {id} EX 600 {option} {tokens}\r\n")).await;
    }
    let peek = async || {
        let charges = [slots, "tokens: fixed-window 100/1d anchored"].map(|policy| {
            let policy = calls.policies().parse(policy).unwrap();
            let mut charge = ChargeRequest::new(policy, "alice".into());
            charge.cost = 0;
            charge
        });
        let decision = calls.decide(&CallRequest::new(Operation::Peek, charges)).await.unwrap();
        [0, 1].map(|index| decision.verdicts()[index].remaining())
    };
    assert_eq!(peek().await, [0, 70]);
    let tokens = "AND alice 'tokens: fixed-window 100/1d anchored'";
    // A client that did not receive the answer sends the hold again, and keeps its slot.
    send(format!("TG.HOLD alice '{slots}' ID a EX 600 BOUND {tokens} COST 10\r\n")).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(peek().await, [0, 70]);
    send(format!("TG.CANCEL alice '{slots}' ID b {tokens}\r\n")).await;
    assert_eq!(peek().await, [1, 80]);
    // This takes longer than the idle timeout of a connection.
    for _ in 0..50 {
        // The server renews the hold `a`, and `c` lapses.
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    assert_eq!(peek().await, [2, 80]);
    drop(client);
    served.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    // The slots are free. The estimate stays charged, because the client did not settle it.
    assert_eq!(peek().await, [3, 80]);
}

/// A client that did not receive the answer sends the hold again over another connection, or
/// settles it there. The end of the first connection then does not settle the hold.
#[tokio::test]
async fn a_bound_hold_belongs_to_the_connection_that_bound_it_last() {
    let server = Server::start().await;
    let [mut first, mut second, mut other] =
        [server.client().await, server.client().await, server.client().await];
    let slots = "slots: concurrent 1 lease 30s";
    let hold = |id| ["TG.HOLD", "alice", slots, "ID", id, "EX", "60", "BOUND"];
    assert!(call(&mut first, &hold("x")).await.starts_with("[1 0 "));
    assert!(call(&mut second, &hold("x")).await.starts_with("[1 0 "));
    drop(first);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(call(&mut other, &hold("y")).await.starts_with("[0 "));
    }
    // The hold is settled over another connection, and its id is used again.
    let cancel = ["TG.CANCEL", "alice", slots, "ID", "x"];
    assert!(call(&mut other, &cancel).await.starts_with("[1 0 "));
    server.advance(300_000);
    assert!(call(&mut other, &hold("x")).await.starts_with("[1 0 "));
    drop(second);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(call(&mut server.client().await, &hold("y")).await.starts_with("[0 "));
    }
}

/// A settlement can be answered with an error because the hold has ended already. The guard of the
/// connection must then not settle a later hold with the same id.
#[tokio::test]
async fn a_bound_hold_that_has_ended_is_no_longer_bound() {
    let server = Server::start().await;
    let [mut first, mut other] = [server.client().await, server.client().await];
    let slots = "slots: concurrent 1 lease 30s";
    let hold = |id| ["TG.HOLD", "alice", slots, "ID", id, "EX", "60"];
    let bound = [&hold("x")[..], &["BOUND"]].concat();
    assert!(call(&mut first, &bound).await.starts_with("[1 0 "));
    server.advance(300_000);
    let cancel = ["TG.CANCEL", "alice", slots, "ID", "x"];
    let answer = call(&mut first, &cancel).await;
    assert!(answer.contains("UNKNOWNHOLD"), "{answer}");
    assert!(call(&mut other, &hold("x")).await.starts_with("[1 0 "));
    drop(first);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(call(&mut other, &hold("y")).await.starts_with("[0 "));
    }
}

/// While the store is away, the server takes slots of its share in its own memory.
#[tokio::test]
async fn without_the_store_a_hold_takes_a_slot_of_the_share() {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let memory = || MemoryStore::builder().clock(clock.clone()).build();
    let (down, is_up) = (Fault::Before(ErrorKind::Unavailable), Fault::None);
    let mut faults = vec![down; 8];
    faults.extend([is_up; 2]);
    faults.extend([down; 100_000]);
    let store: Arc<dyn Store> = Arc::new(memory().layer(Faults::new(faults)));
    let share = OnStoreError::Share("1/3".parse().unwrap());
    let store = share.around(store, &(Arc::new(memory()) as Arc<dyn Store>));
    let server = Server::on(store, clock, RespSettings::default()).await;
    let client = &mut server.client().await;
    let slots = "slots: concurrent 5 lease 30s";
    let hold = |id| ["TG.HOLD", "alice", slots, "ID", id, "EX", "60"];
    let extend = |id| ["TG.EXTEND", "alice", slots, "ID", id, "EX", "60"];
    let cancel = |id| ["TG.CANCEL", "alice", slots, "ID", id];
    let granted = "[1 0 [allowed 1 0 0 30000 1]]";
    let refused = |lapse: u64| format!("[0 -1 [denied 1 0 -1 30000 0 {lapse}]]");
    assert_eq!(call(client, &hold("a")).await, granted);
    assert_eq!(call(client, &hold("b")).await, refused(30_000));
    let waits = [&hold("b")[..], &["PLACE", "0"]].concat();
    let place = call(client, &waits).await.split(' ').nth(10).unwrap().to_owned();
    let waits = [&hold("b")[..], &["PLACE", &place]].concat();
    server.advance(20_000);
    assert_eq!(call(client, &extend("a")).await, "[1 0 [allowed 1 0 0 30000 0]]");
    assert!(call(client, &waits).await.starts_with("[0 -1 "));
    server.advance(20_000);
    assert_eq!(call(client, &hold("c")).await, refused(10_000));
    assert_eq!(call(client, &cancel("a")).await, "[1 0 [allowed 1 1 0 0 1]]");
    assert_eq!(call(client, &hold("c")).await, granted);
    // The store is back, and does not know the hold.
    assert_eq!(call(client, &extend("c")).await, "[1 0 [allowed 1 0 0 30000 0]]");
    assert_eq!(call(client, &cancel("c")).await, "[1 0 [allowed 1 1 0 0 1]]");
    // The slot of a bound hold is free when its connection closes.
    let mut other = server.client().await;
    assert_eq!(call(&mut other, &[&hold("d")[..], &["BOUND"]].concat()).await, granted);
    assert_eq!(call(client, &hold("e")).await, refused(30_000));
    drop(other);
    let is_free = async {
        while call(client, &hold("e")).await != granted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_free).await.unwrap();
}

#[tokio::test]
async fn a_connection_binds_at_most_10000_holds() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "a: fixed-window 20000/1d";
    let mut hold = async |number: u32| {
        let id = number.to_string();
        call(client, &["TG.HOLD", "alice", policy, "ID", &id, "EX", "60", "BOUND"]).await
    };
    for number in 0..10_000 {
        let answer = hold(number).await;
        assert!(answer.starts_with("[1 0 "), "{number}: {answer}");
    }
    let answer = hold(10_000).await;
    assert!(answer.contains("10000 bound holds, the maximum"), "{answer}");
    let cancel = ["TG.CANCEL", "alice", policy, "ID", "7"];
    assert!(call(client, &cancel).await.starts_with("[1 0 "));
    let hold = |id| ["TG.HOLD", "alice", policy, "ID", id, "EX", "60", "BOUND"];
    assert!(call(client, &hold("10001")).await.starts_with("[1 0 "));
    // A hold that another connection has settled is not bound either.
    assert!(call(client, &hold("10002")).await.contains("10000 bound holds, the maximum"));
    let cancel = ["TG.CANCEL", "alice", policy, "ID", "8"];
    assert!(call(&mut server.client().await, &cancel).await.starts_with("[1 0 "));
    assert!(call(client, &hold("10002")).await.starts_with("[1 0 "));
}

/// A server that stops waits until the store has answered the settlements of the bound holds.
#[tokio::test]
async fn a_server_that_stops_settles_its_bound_holds() {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let store = Arc::new(store.layer(Faults::new(vec![Fault::None, Fault::Delayed])));
    let calls: Arc<dyn Store> = store.clone();
    let mut server = Server::on(calls, clock, RespSettings::default()).await;
    let mut client = server.client().await;
    let hold = ["TG.HOLD", "alice", "a: fixed-window 9/1d", "ID", "a", "EX", "60", "BOUND"];
    assert!(call(&mut client, &hold).await.starts_with("[1 0 "));
    drop(client);
    server.stop();
    tokio::select! {
        _ = &mut server.task => panic!("the server has not waited for the settlement"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    Faults::deliver(&store).await;
    (&mut server.task).await.unwrap();
    assert_eq!(store.as_layer().calls(), 2);
}

#[tokio::test]
async fn the_charges_of_a_hold_can_be_sent_again_with_their_costs() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let (tokens, requests) = ("tokens: fixed-window 100/1h anchored", "requests: gcra 9/s burst 9");
    let charges = ["a", tokens, "COST", "60", "AND", "a", requests, "CHECK"];
    let hold = [&["TG.HOLD"], &charges[..], &["ID", "x", "EX", "60"]].concat();
    assert!(call(client, &hold).await.starts_with("[1 0 [allowed 100 40 0 3600000 60] "));
    let extend = [&["TG.EXTEND"], &charges[..], &["ID", "x", "EX", "60"]].concat();
    assert!(call(client, &extend).await.starts_with("[1 0 [allowed 100 40 0 3600000 0] "));
    let cancel = [&["TG.CANCEL"], &charges[..], &["ID", "x"]].concat();
    for _ in 0..2 {
        let answer = call(client, &cancel).await;
        assert!(answer.starts_with("[1 0 [allowed 100 100 0 0 60] "), "{answer}");
    }
    // A settlement must contain the actual cost of each charge, except for check-only charges.
    let settle = ["TG.SETTLE", "a", tokens, "COST", "0", "AND", "a", requests, "CHECK", "ID", "x"];
    let answer = call(client, &settle).await;
    assert!(answer.starts_with("[1 0 [allowed 100 100 0 0 60] "), "{answer}");
    let without = ["TG.SETTLE", "a", tokens, "AND", "a", requests, "CHECK", "ID", "x"];
    assert_eq!(
        call(client, &without).await,
        "-ERR invalid-call: COST, the actual usage of each charge without CHECK, is missing"
    );
}

#[tokio::test]
async fn a_peek_shows_what_open_holds_have_not_spent() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "fixed-window 1000/1h anchored refund-lapsed";
    let hold = ["TG.HOLD", "a", policy, "COST", "600", "ID", "x", "EX", "60"];
    assert_eq!(call(client, &hold).await, "[1 0 [allowed 1000 400 0 3600000 600]]");
    let peek = ["TG.PEEK", "a", policy];
    assert_eq!(call(client, &peek).await, "[1 0 [allowed 1000 400 0 3600000 0 600]]");
    let so_far = ["TG.SETTLE", "a", policy, "COST", "250", "ID", "x", "SOFAR"];
    assert_eq!(call(client, &so_far).await, "[1 0 [allowed 1000 400 0 3600000 0]]");
    let both = ["TG.PEEK", "a", "other: gcra 9/s", "AND", "a", policy];
    let answer = call(client, &both).await;
    assert!(answer.ends_with(" [allowed 1000 400 0 3600000 0 350]]"), "{answer}");
    assert!(answer.starts_with("[1 0 [allowed 9 9 0 0 0] "), "{answer}");
}

#[tokio::test]
async fn a_settlement_says_if_the_log_no_longer_tells_where_its_hold_is() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    for (newer, refunded) in [(127, "3"), (128, "0 1")] {
        let policy = format!("p{newer}: sliding-log 1000/1h");
        let hold = ["TG.HOLD", "a", &policy, "COST", "3", "ID", "x", "EX", "60", "TENANT", &policy];
        assert!(call(client, &hold).await.starts_with("[1 "));
        for _ in 0..newer {
            server.advance(1);
            call(client, &["TG.ACQUIRE", "a", &policy, "TENANT", &policy]).await;
        }
        let cancel = ["TG.CANCEL", "a", &policy, "ID", "x", "TENANT", &policy];
        let answer = call(client, &cancel).await;
        assert!(answer.ends_with(&format!(" 3600000 {refunded}]]")), "{newer}: {answer}");
    }
}

#[tokio::test]
async fn an_error_says_once_why_a_hold_has_ended() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = "fixed-window 1000/1h anchored";
    call(client, &["TG.HOLD", "a", policy, "COST", "6", "ID", "x", "EX", "60"]).await;
    call(client, &["TG.SETTLE", "a", policy, "COST", "7", "ID", "x"]).await;
    let answer = call(client, &["TG.SETTLE", "a", policy, "COST", "8", "ID", "x"]).await;
    assert_eq!(answer, "-ALREADYSETTLED the hold \"x\" has ended: it was settled at [7]");
    let answer = call(client, &["TG.HOLD", "a", policy, "ID", "x", "EX", "60"]).await;
    assert_eq!(answer, "-IDREUSED the id \"x\" was used for another call");
}

#[tokio::test]
async fn in_a_pipeline_calls_that_are_not_valid_leave_the_others_their_answers() {
    let server = Server::start().await;
    let (policy, hold) = ("'p: fixed-window 9/1h anchored'", "'h: fixed-window 9/1h max-hold 1/9'");
    let lines = format!(
        "TG.ACQUIRE a {policy} COST 2\r\nTG.HOLD a {hold} COST 5 ID '' EX 5\r\nTG.ACQUIRE a leaky\r\n\
         TG.HOLD a {hold} COST 5 ID x EX 5\r\nTG.ACQUIRE a {policy} COST 3\r\nQUIT\r\n"
    );
    let answer = server.answer(lines.as_bytes()).await;
    let one = |left: u64, amount: u64| {
        format!(
            "*3\r\n:1\r\n:0\r\n*6\r\n$7\r\nallowed\r\n:9\r\n:{left}\r\n:0\r\n:3600000\r\n:{amount}\r\n"
        )
    };
    assert!(answer.starts_with(&(one(7, 2) + "-ERR invalid-call: the id of ")), "{answer}");
    assert!(
        answer.contains("*3\r\n:0\r\n:-1\r\n*6\r\n$9\r\ntoo-large\r\n:9\r\n:9\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with(&(one(4, 3) + "+OK\r\n")), "{answer}");
}

#[tokio::test]
async fn a_call_with_an_id_happens_once() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let acquire = ["TG.ACQUIRE", "a", "fixed-window 9/1h", "COST", "4", "ID", "x", "EX", "60"];
    let first = call(client, &acquire).await;
    assert_eq!(call(client, &acquire).await, first);
    let other = ["TG.ACQUIRE", "a", "fixed-window 9/1h", "COST", "5", "ID", "x", "EX", "60"];
    assert!(call(client, &other).await.starts_with("-IDREUSED "));
}

#[tokio::test]
async fn b95_keys_tenants_and_ids_may_be_any_bytes_and_other_arguments_are_refused() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let policy = &b"fixed-window 1/1h anchored"[..];
    for (key, tenant) in [
        (&b"dave\xff"[..], &b"t"[..]),
        (b"dave\xfe", b"t"),
        // The character U+FFFD, which lossy decoders write for invalid bytes, and a lone surrogate.
        (b"dave\xef\xbf\xbd", b"t"),
        (b"dave\xed\xa0\x80", b"t"),
        (b"dave\xff", b"t\xff"),
    ] {
        for is_admitted in ["[1 0 ", "[0 3600000 "] {
            let acquire = [&b"TG.ACQUIRE"[..], key, policy, b"TENANT", tenant];
            let answer = show(&client.call(&acquire).await.unwrap());
            assert!(answer.starts_with(is_admitted), "{key:?} {tenant:?}: {answer}");
        }
    }
    let hold = |id: &'static [u8]| [&b"TG.HOLD"[..], b"k", b"gcra 9/s", b"ID", id, b"EX", b"9"];
    for id in [&b"\xff"[..], b"\xfe", b"\xff"] {
        assert!(show(&client.call(&hold(id)).await.unwrap()).starts_with("[1 0 "));
    }
    let settle = [&b"TG.SETTLE"[..], b"k", b"gcra 9/s", b"COST", b"1", b"ID", b"\xfd"];
    let answer = show(&client.call(&settle).await.unwrap());
    assert!(answer.starts_with("-UNKNOWNHOLD no hold is known under the id \"\\xfd\""), "{answer}");
    for (command, why) in [
        (
            vec![&b"TG.ACQUIRE"[..], b"k", b"gcra\xff 1/s"],
            "-ERR invalid-call: the policy is 'gcra\\xff 1/s'; it must be UTF-8",
        ),
        (
            vec![b"TG.ACQUIRE", b"k", b"gcra 1/s", b"COST", b"1\xff"],
            "-ERR invalid-call: COST is '1\\xff'; it must be a whole number from 0",
        ),
        (
            vec![b"TG.ACQUIRE", b"k", b"gcra 1/s", b"CO\xffST", b"1"],
            "-ERR invalid-call: there is no option 'CO\\xffST'; the known options are",
        ),
        (
            vec![b"CL.THROTTLE", b"k", b"\xff", b"1", b"1"],
            "-ERR invalid-call: max_burst is '\\xff';",
        ),
        (vec![b"TG.ACQUIRE\xff", b"k", b"gcra 1/s"], "-ERR unknown command 'TG.ACQUIRE\\xff'"),
        (vec![b"CLIENT", b"SETNAME", b"\xff"], "-ERR Client names cannot contain"),
    ] {
        let answer = show(&client.call(&command).await.unwrap());
        assert!(answer.starts_with(why), "{command:?}: {answer}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_command_is_said() {
    let server = Server::start().await;
    let client = &mut server.client().await;
    let long = format!("gcra 1/s{}", " ".repeat(600));
    for (command, why) in [
        (&["TG.ACQUIRE", "k"][..], "-ERR wrong number of arguments for 'tg.acquire' command"),
        (
            &["TG.ACQUIRE", "k", "gcra 1/s", "FOO"],
            "there is no option 'FOO'; the known options are AND, OR, TENANT, COST",
        ),
        (
            &["TG.PEEK", "k", "gcra 1/s", "ID", "x"],
            "there is no option 'ID'; the known options are AND",
        ),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "COST"], "COST has no value"),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "COST", "1", "COST", "1"], "COST is given twice"),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "CHECK", "CHECK"], "CHECK is given twice"),
        (
            &["TG.ACQUIRE", "k", "gcra 1/s", "COST", "-1"],
            "COST is '-1'; it must be a whole number from 0",
        ),
        (
            &["TG.ACQUIRE", "k", "gcra 1/s", "MIN", "0"],
            "MIN is '0'; it must be a whole number from 1",
        ),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "MIN", "2"], "-ERR invalid-call: "),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "AND", "k"], "each charge must have a key and a policy"),
        (
            &["TG.ACQUIRE", "k", "gcra 1/s", "ID", "x"],
            "EX or PX, the time to live of ID, is missing",
        ),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "EX", "5"], "ID, to which EX or PX applies, is missing"),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "ID", "", "EX", "5"], "the id of the call is empty"),
        (&["TG.ACQUIRE", "k", "gcra 1/s", "ID", "x", "EX", "9223372036854775807"], "time to live"),
        (
            &["TG.BLOCK", "k", "gcra 1/s", "ATLEAST", "TENANT", "x"],
            "EX or PX, the time of the block, is missing",
        ),
        (
            &["TG.SETTLE", "k", "gcra 1/s", "ID", "x", "SOFAR", "TENANT", "t"],
            "COST, the actual usage of each charge without CHECK, is missing",
        ),
        (&["TG.HOLD", "k", "gcra 1/s", "COST", "1", "MIN", "1"], "ID is missing"),
        (&["TG.ACQUIRE", "k", "leaky 1/s"], "leaky"),
        (&["TG.ACQUIRE", "k", &long], "the policy has 608 bytes; at most 512 are possible"),
        (&["TG.ACQUIRE", "k", "a: gcra 1/s", "AND", "k", "a: gcra 2/s"], "-ERR invalid-call: "),
    ] {
        let answer = call(client, command).await;
        assert!(answer.starts_with("-ERR ") && answer.contains(why), "{command:?}: {answer}");
    }
    // The error quotes the policy and escapes its line break, so that the next line cannot look
    // like a reply.
    let answer = call(client, &["TG.ACQUIRE", "k", "x\r\n+OK\r\n"]).await;
    assert!(answer.starts_with("-ERR invalid-call: "), "{answer}");
    assert!(!answer.contains(char::is_control), "{answer:?}");
    let many: Vec<&str> = ["k", "gcra 1/s", "AND"].into_iter().cycle().take(3 * 65 - 1).collect();
    let answer = call(client, &[&["TG.ACQUIRE"], &*many].concat()).await;
    assert!(answer.contains("a call has 1 to 64 charges; this one has 65"), "{answer}");
    assert_eq!(ask(client, "PING").await, "PONG");
}
