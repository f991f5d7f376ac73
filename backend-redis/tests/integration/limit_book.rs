//! Tests the limit set that is kept on a server.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_memory::MemoryStore;
use tidegate_redis::{
    Call, CallId, Charge, CurrentLimits, KeptLimits, LimitBook, LimitBookError, LimitSet,
    LimitsEvent, ManualClock, Operation, RedisStore, Store, StoreExt,
};
use tidegate_test_servers::{Redis, eventually};
use tokio::task::JoinHandle;

use crate::common::{builder, builder_with, client, fresh_prefix, policy};

fn set(text: &str) -> LimitSet {
    text.parse().unwrap()
}

async fn book() -> LimitBook {
    builder().await.build().unwrap().limit_book()
}

async fn change(book: &LimitBook, text: &str) -> u64 {
    let kept = book.read().await.unwrap();
    book.change(&kept, &set(text), "alice", "a test").await.unwrap()
}

#[tokio::test]
async fn a_change_is_read_with_its_history_and_only_once() {
    let book = book().await;
    let empty = book.read().await.unwrap();
    assert_eq!((empty.version, empty.set.is_empty()), (0, true));
    let first = "a: fixed-window 1/1m\na: fixed-window 2/1m for subject \"b\\x00 c\"\n";
    assert_eq!(change(&book, first).await, 1);
    let kept = book.read().await.unwrap();
    assert_eq!((kept.version, &kept.set), (1, &set(first)));
    // The same set makes no version.
    assert_eq!(change(&book, first).await, 1);
    let second = "a: fixed-window 1/1m\nb: gcra 1/s for tenant t\n";
    assert_eq!(change(&book, second).await, 2);
    assert_eq!(book.read().await.unwrap().set, set(second));

    let error = book.change(&kept, &set("c: gcra 1/s"), "bob", "late").await.unwrap_err();
    assert!(matches!(error, LimitBookError::Conflict { expected: 1, found: 2 }), "{error}");
    assert_eq!(book.read().await.unwrap().version, 2);

    let history = book.history(10).await.unwrap();
    assert_eq!(history.iter().map(|change| change.version).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((&*history[1].author, &*history[1].reason), ("alice", "a test"));
    assert_eq!(
        history[1].lines,
        [
            (None, Some("b: gcra 1/1s burst 1 for tenant t".to_owned())),
            (Some("a: fixed-window 2/1m for subject \"b\\x00 c\"".to_owned()), None),
        ]
    );
    assert_eq!(book.history(1).await.unwrap(), history[1..]);
    assert!(history[0].time < history[1].time);
}

#[tokio::test]
async fn a_change_of_single_limits_keeps_all_others() {
    let book = book().await;
    change(&book, "a: gcra 1/s\na: gcra 2/s for subject x\na: gcra 3/s for subject y").await;
    let keys = ["a for subject x", "a for subject z"].map(str::to_owned);
    let kept = book.read_limits(&keys).await.unwrap();
    let whole = book.read().await.unwrap();
    assert_eq!((kept.version, kept.made_at), (whole.version, whole.made_at));
    assert!(kept.time > kept.made_at && kept.time <= whole.time);
    assert_eq!(kept.set, set("a: gcra 2/s for subject x"));

    let after = set("a: gcra 4/s for subject z");
    assert_eq!(book.change(&kept, &after, "bob", "a test").await.unwrap(), 2);
    let expected = "a: gcra 1/s\na: gcra 3/s for subject y\na: gcra 4/s for subject z";
    assert_eq!(book.read().await.unwrap().set, set(expected));
    assert_eq!(book.roll_back(1, "bob", "a mistake").await.unwrap(), 3);
    assert_eq!(book.read().await.unwrap().set, whole.set);

    let error = book.change(&kept, &after, "bob", "late").await.unwrap_err();
    assert!(matches!(error, LimitBookError::Conflict { expected: 1, found: 3 }), "{error}");

    // More keys than one command reads.
    let keys: Vec<_> = (0..=LimitBook::MAX_LINES).map(|n| format!("a for subject s{n}")).collect();
    let lines: String =
        (0..keys.len()).map(|n| format!("a: gcra 1/s for subject s{n}\n")).collect();
    change(&book, &lines).await;
    assert_eq!(book.read_limits(&keys).await.unwrap().set, set(&lines));
}

#[tokio::test]
async fn an_author_and_a_reason_have_one_line_within_the_bound() {
    let book = book().await;
    let kept = book.read().await.unwrap();
    for (author, reason, message) in [
        ("", "x", "the author has 0 bytes; it must have 1 to 1000"),
        ("x", "", "the reason has 0 bytes; it must have 1 to 1000"),
        (
            "x",
            &*"y".repeat(LimitBook::MAX_TEXT + 1),
            "the reason has 1001 bytes; it must have 1 to 1000",
        ),
        ("x\ny", "x", "the author contains the control character '\\n'"),
    ] {
        let error = book.change(&kept, &set("a: gcra 1/s"), author, reason).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(book.read().await.unwrap().version, 0);
}

#[tokio::test]
async fn a_large_change_is_made_in_several_versions() {
    let book = book().await;
    let text: String = (0..2 * LimitBook::MAX_LINES + 5)
        .map(|n| format!("a: gcra 1/s for subject s{n}\n"))
        .collect();
    assert_eq!(change(&book, &text).await, 3);
    let kept = book.read().await.unwrap();
    assert_eq!((kept.version, &kept.set), (3, &set(&text)));
    assert_eq!(change(&book, "").await, 6);
    assert!(book.read().await.unwrap().set.is_empty());
}

/// Guards against a defect: a process read the whole history with one command. If the history was
/// larger than an answer may be, the process never got the limits, and lost its connection.
#[tokio::test]
async fn a_history_that_is_larger_than_an_answer_is_read_in_parts() {
    let book = book().await;
    let before = change(&book, "a: gcra 1/s").await;
    let padding = "x".repeat(1_000);
    let lines = (0..20_000).map(|number| format!("a: gcra 2/s for subject {padding}{number}\n"));
    let text: String = std::iter::once("a: gcra 1/s\n".to_owned()).chain(lines).collect();
    let version = change(&book, &text).await;
    assert!(version > 80, "{version}"); // at most 256 KiB in each version
    let follower = Follower::start(&book, MemoryStore::new());
    follower.until_version(version).await;
    let kept = book.read().await.unwrap();
    assert_eq!(kept.set.lines().len(), 20_001);
    assert_eq!(book.history(1_000).await.unwrap().len() as u64, version);
    // The follower reads many changes at a time too.
    let rolled_back = book.roll_back(before, "alice", "a test").await.unwrap();
    follower.until_version(rolled_back).await;
    assert_eq!(book.read().await.unwrap().set, set("a: gcra 1/s"));
}

#[tokio::test]
async fn a_read_during_changes_is_one_version() {
    let prefix = fresh_prefix();
    let book = builder_with(&prefix).await.build().unwrap().limit_book();
    let writer = builder_with(&prefix).await.build().unwrap().limit_book();
    // In each version, both policies and the override have the same number. The other limits make a
    // scan of several pages.
    let filler: String = (0..4_000).map(|n| format!("f: gcra 1/s for subject s{n}\n")).collect();
    let text = |n: u64| {
        format!(
            "a: fixed-window {n}/1m\nb: fixed-window {n}/1m\nb: fixed-window {n}/1m for subject x\n\
             {filler}"
        )
    };
    change(&book, &text(1)).await;
    let done = Arc::new(tokio::sync::Notify::new());
    let writing = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            let mut kept = writer.read().await.unwrap();
            for n in 2..60 {
                let mut set = kept.set.clone();
                for rule in ["a: fixed-window", "b: fixed-window"] {
                    set.set_line(&format!("{rule} {n}/1m")).unwrap();
                }
                set.set_line(&format!("b: fixed-window {n}/1m for subject x")).unwrap();
                writer.change(&kept, &set, "alice", "a test").await.unwrap();
                kept = writer.read().await.unwrap();
            }
            done.notify_one();
        }
    });
    let mut versions = vec![];
    loop {
        let kept = book.read().await.unwrap();
        let lines = kept.set.lines();
        let number = lines["a"].trim_start_matches("a: fixed-window ");
        assert_eq!(lines["b"], format!("b: fixed-window {number}"));
        assert_eq!(lines["b for subject x"], format!("b: fixed-window {number} for subject x"));
        assert_eq!(lines.len(), 4_003);
        versions.push(kept.version);
        // The keys of `a` and of `b` are in different commands.
        let others = (0..LimitBook::MAX_LINES).map(|n| format!("none for subject s{n}"));
        let keys: Vec<_> =
            ["a".to_owned()].into_iter().chain(others).chain(["b".to_owned()]).collect();
        for _ in 0..20 {
            match book.read_limits(&keys).await {
                Ok(kept) => {
                    let lines = kept.set.lines();
                    assert_eq!(
                        lines["a"].trim_start_matches("a: "),
                        lines["b"].trim_start_matches("b: ")
                    );
                }
                Err(error) => assert!(matches!(error, LimitBookError::Conflict { .. }), "{error}"),
            }
        }
        if writing.is_finished() {
            break;
        }
    }
    done.notified().await;
    writing.await.unwrap();
    versions.dedup();
    assert!(versions.len() > 3, "{versions:?}");
}

#[tokio::test]
async fn a_roll_back_is_a_new_version_without_overrides_that_have_ended() {
    let book = book().await;
    change(&book, "a: gcra 1/s\na: gcra 2/s for subject x").await;
    let now = book.read().await.unwrap().time;
    let soon = now.saturating_add(Duration::from_millis(300)).rfc3339().to_string();
    let ending = format!("a: gcra 1/s\na: gcra 9/s until {soon} for subject x\nb: gcra 1/s");
    change(&book, &ending).await;
    change(&book, "a: gcra 3/s").await;
    assert_eq!(book.roll_back(1, "bob", "a mistake").await.unwrap(), 4);
    assert_eq!(book.read().await.unwrap().set, set("a: gcra 1/s\na: gcra 2/s for subject x"));
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(book.roll_back(2, "bob", "a mistake").await.unwrap(), 5);
    assert_eq!(book.read().await.unwrap().set, set("a: gcra 1/s\nb: gcra 1/s"));
    assert_eq!(book.roll_back(0, "bob", "empty").await.unwrap(), 6);
    assert!(book.read().await.unwrap().set.is_empty());
    for version in [7, u64::MAX] {
        let error = book.roll_back(version, "bob", "x").await.unwrap_err().to_string();
        let message = format!("version {version} is not in the history; it must be from 0 to 6");
        assert_eq!(error, message);
    }
}

#[tokio::test]
async fn the_history_is_bounded_and_names_the_oldest_version() {
    let book = book().await;
    let mut kept = KeptLimits::default();
    let last = u64::try_from(LimitBook::MAX_HISTORY).unwrap() + 5;
    for n in 1..=last {
        let set = set(&format!("a: fixed-window {n}/1m"));
        book.change(&kept, &set, "alice", "a test").await.unwrap();
        kept = book.read().await.unwrap();
    }
    assert_eq!(book.history(usize::MAX).await.unwrap().len(), LimitBook::MAX_HISTORY);
    let error = book.roll_back(4, "bob", "x").await.unwrap_err().to_string();
    assert_eq!(error, "version 4 is not in the history; it must be from 5 to 1005");
    assert_eq!(book.roll_back(5, "bob", "x").await.unwrap(), last + 1);
    assert_eq!(book.read().await.unwrap().set, set("a: fixed-window 5/1m"));
}

/// A program that follows a limit set.
struct Follower {
    limits: CurrentLimits,
    events: Arc<Mutex<Vec<LimitsEvent>>>,
    task: JoinHandle<()>,
}

impl Follower {
    fn start(book: &LimitBook, store: impl Store + 'static) -> Self {
        let (limits, events) = (CurrentLimits::default(), Arc::new(Mutex::new(vec![])));
        let (current, recorded, book) = (limits.clone(), Arc::clone(&events), book.clone());
        let record = move |event: &LimitsEvent| recorded.lock().unwrap().push(event.clone());
        let task = tokio::spawn(async move { book.follow(current, store, record).await });
        Self { limits, events, task }
    }

    /// Waits until the set is in force.
    async fn until(&self, text: &str) {
        let expected = set(text);
        let is_there = async || (*self.limits.set() == expected).then_some(());
        eventually(Duration::from_secs(20), "the set", is_there).await.unwrap();
    }

    /// Waits until a version is in force.
    async fn until_version(&self, version: u64) {
        let is_there = async || {
            let events = self.events.lock().unwrap();
            let is_in_force = |event: &LimitsEvent| matches!(event, LimitsEvent::InForce { version: found, .. } if *found == version);
            events.iter().any(is_in_force).then_some(())
        };
        eventually(Duration::from_secs(20), "the version", is_there).await.unwrap();
    }

    /// Returns the limit of the policy `a` for a subject, which is 1 without the limit set.
    async fn limit(&self, subject: &str) -> u64 {
        let store = MemoryStore::new().adjusted(self.limits.clone());
        let policy = policy("a: fixed-window 1/1h");
        let charges = [Charge::new(&policy, subject)];
        let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
        peek.verdicts()[0].limit()
    }

    /// Waits until the last event is a failure. Returns its text.
    async fn failure(&self) -> String {
        let failure = async || {
            let events = self.events.lock().unwrap();
            events.last().and_then(|event| match event {
                LimitsEvent::Failed { .. } => Some(event.to_string()),
                _ => None,
            })
        };
        eventually(Duration::from_secs(20), "a failure", failure).await.unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn processes_follow_each_version_and_keep_the_last_good_one() {
    let server = Redis::start().await.unwrap();
    let store = RedisStore::builder().url(server.socket_url()).build().unwrap();
    let book = store.limit_book();
    let followers = [Follower::start(&book, store.clone()), Follower::start(&book, store.clone())];
    let limiter = store.clone().adjusted(followers[0].limits.clone());
    let base = policy("a: fixed-window 1/1h");
    let limit = async |subject: &str| {
        let charges = [Charge::new(&base, subject)];
        let peek = limiter.decide(Call::new(Operation::Peek, &charges)).await;
        peek.map(|decision| decision.verdicts()[0].limit())
    };
    assert_eq!(limit("x").await.unwrap(), 1);
    for text in ["a: fixed-window 2/1h", "a: fixed-window 3/1h for subject x", ""] {
        change(&book, text).await;
        for follower in &followers {
            follower.until(text).await;
        }
    }
    // A follower that starts later has the same set.
    let text = "a: fixed-window 4/1h\na: fixed-window 5/1h for subject x";
    change(&book, text).await;
    let late = Follower::start(&book, store.clone());
    late.until(text).await;
    followers[0].until(text).await;
    assert_eq!(limit("x").await.unwrap(), 5);

    // A limit that is not valid, as of another program.
    let corrupt = ["HSET", "tidegate:%limits:{limits}", "a for subject y", "nonsense"];
    server.command(&corrupt).await.unwrap();
    let error = book.read().await.unwrap_err().to_string();
    assert!(error.starts_with("the limit `a for subject y` on the server is not valid"), "{error}");
    server.command(&["HSET", "tidegate:%limits:{limits}", "%version", "x"]).await.unwrap();
    let failure = followers[0].failure().await;
    assert!(failure.contains("stays in force: the version of the limit set is `x`"), "{failure}");
    assert_eq!(limit("x").await.unwrap(), 5);

    // A server that is away.
    server.stop().await.unwrap();
    let failure = followers[1].failure().await;
    assert!(failure.starts_with("version 4 of the limit set stays in force: "), "{failure}");
    assert_eq!(followers[1].limits.set().overrides(), 1);

    // A server that has lost the set.
    server.restart(tidegate_test_servers::Data::Lost).await.unwrap();
    let is_lost = async || {
        let failure = followers[0].failure().await;
        failure.contains("the server has lost the limit set").then_some(())
    };
    eventually(Duration::from_secs(20), "the loss", is_lost).await.unwrap();
    assert_eq!(followers[0].limits.set().overrides(), 1);
    // A new set on this server replaces the lost set, even if it has an earlier version.
    change(&book, "a: fixed-window 6/1h").await;
    followers[0].until("a: fixed-window 6/1h").await;
}

#[tokio::test]
async fn another_version_with_the_same_number_is_read_again() {
    let (prefix, mut client) = (fresh_prefix(), client().await);
    let store = builder_with(&prefix).await.build().unwrap();
    let book = store.limit_book();
    change(&book, "a: gcra 1/s\nb: gcra 1/s").await;
    change(&book, "a: gcra 2/s\nb: gcra 1/s").await;
    let follower = Follower::start(&book, store);
    follower.until("a: gcra 2/s\nb: gcra 1/s").await;
    // A failover loses both versions, and others are made.
    let key = |name: &str| format!("{prefix}:%{name}:{{limits}}");
    client.call(&["DEL", &key("limits"), &key("limit-changes")]).await.unwrap();
    change(&book, "c: gcra 1/s").await;
    change(&book, "c: gcra 2/s").await;
    follower.until("c: gcra 2/s").await;
    // And now with a later number.
    client.call(&["DEL", &key("limits"), &key("limit-changes")]).await.unwrap();
    for n in 1..=3 {
        change(&book, &format!("d: gcra {n}/s")).await;
    }
    follower.until("d: gcra 3/s").await;
}

#[tokio::test]
async fn a_version_that_the_store_does_not_support_is_not_in_force() {
    let prefix = fresh_prefix();
    let book = builder_with(&prefix).await.build().unwrap().limit_book();
    let script_free = builder_with(&prefix).await.script_free().build().unwrap();
    let follower = Follower::start(&book, script_free);
    change(&book, "a: fixed-window 1/1m").await;
    follower.until("a: fixed-window 1/1m").await;
    change(&book, "a: gcra 1/s").await;
    let failure = follower.failure().await;
    assert!(failure.starts_with("version 1 of the limit set stays in force: unsupp"), "{failure}");
    change(&book, "a: fixed-window 2/1m").await;
    follower.until("a: fixed-window 2/1m").await;
}

#[tokio::test]
async fn overrides_end_by_the_clock_of_the_server() {
    let book = book().await;
    let now = book.read().await.unwrap().time;
    let end = now.saturating_add(Duration::from_secs(600)).rfc3339().to_string();
    change(&book, &format!("a: fixed-window 9/1h until {end} for subject x")).await;
    // The clock of this process is an hour ahead.
    let clock = ManualClock::default();
    clock.set(now.saturating_add(Duration::from_secs(3_600)));
    let limits = CurrentLimits::with_clock(LimitSet::new(), clock.clone());
    let (current, following) = (limits.clone(), book.clone());
    let store = builder().await.build().unwrap();
    let task = tokio::spawn(async move { following.follow(current, store, |_| {}).await });
    let found = async || {
        (limits.set().overrides() == 1 && limits.set().find("a", b"", b"x", limits.now()).is_some())
            .then_some(())
    };
    eventually(Duration::from_secs(20), "the override", found).await.unwrap();
    task.abort();
    clock.advance(Duration::from_secs(601));
    assert!(limits.set().find("a", b"", b"x", limits.now()).is_none());
}

#[tokio::test]
async fn a_follower_needs_only_the_commands_that_read() {
    let rules =
        "~* resetchannels -@all +hget +hmget +hscan +lrange +time +client +hello +auth +info";
    let server = Redis::builder().user("reader", "secret", rules).start().await.unwrap();
    let admin = RedisStore::builder().url(server.socket_url()).build().unwrap().limit_book();
    change(&admin, LIMITS).await;
    let reader = RedisStore::new(&server.url_for("reader", "secret")).unwrap().limit_book();
    let kept = reader.read().await.unwrap();
    assert_eq!(kept.set, set(LIMITS));
    let follower =
        Follower::start(&reader.clone().max_loaded(NonZeroUsize::MIN), MemoryStore::new());
    follower.until_version(1).await;
    for (subject, limit) in [("x", 2), ("y", 3), ("z", 4)] {
        assert_eq!(follower.limit(subject).await, limit);
    }
    let error = reader.change(&kept, &set(""), "x", "y").await.unwrap_err();
    assert!(error.to_string().contains("lacks a permission"), "{error}");
    assert_eq!(admin.read().await.unwrap().version, 1);
}

const LIMITS: &str = "a: fixed-window 2/1h for subject x\na: fixed-window 3/1h for subject y\n\
    a: fixed-window 4/1h for subject z\n";

#[tokio::test]
async fn a_follower_reads_an_override_when_a_call_needs_it() {
    let book = book().await.max_loaded(NonZeroUsize::MIN);
    change(&book, LIMITS).await;
    let follower = Follower::start(&book, MemoryStore::new());
    follower.until_version(1).await;
    let first = follower.limits.set();
    assert_eq!((first.overrides(), first.lines().len()), (3, 1));
    let subjects = ["x", "y", "z", "other"];
    let limits = async || {
        let mut all = vec![];
        for subject in subjects {
            all.push(follower.limit(subject).await);
        }
        all
    };
    assert_eq!(limits().await, [2, 3, 4, 1]);
    // Another process holds.
    let memory = Arc::new(MemoryStore::new());
    let other = Arc::clone(&memory).adjusted(CurrentLimits::new(set(LIMITS)));
    let (policy, id) =
        (policy("a: fixed-window 1/1h"), CallId::new(b"job", Duration::from_secs(60)));
    let charges = [Charge::new(&policy, "x").cost(2)];
    let hold = Call::new(Operation::Hold, &charges).with_id(id);
    assert!(other.decide(hold).await.unwrap().is_allowed());
    assert_eq!(follower.limit("z").await, 4);
    // Other overrides change, are removed and are added.
    let text = "a: fixed-window 7/1h for subject x\na: fixed-window 4/1h for subject z\n\
        a: fixed-window 8/1h for subject other\na: fixed-window 9/1h";
    change(&book, text).await;
    follower.until_version(2).await;
    // The override in memory stays there.
    assert!(follower.limits.set().lines().contains_key("a for subject z"));
    // A settlement finds the hold, although its override was not in memory and has changed.
    let charges = [Charge::new(&policy, "x").cost(1)];
    let settle = Call::new(Operation::Settle, &charges).with_id(id);
    let store = memory.adjusted(follower.limits.clone());
    assert!(store.decide(settle).await.unwrap().is_allowed());
    assert_eq!(limits().await, [7, 9, 4, 8]);
    assert_eq!(follower.limits.set().overrides(), 3);
}

#[tokio::test]
async fn a_follower_reads_overrides_as_its_version_has_them() {
    let prefix = fresh_prefix();
    let (book, mut client) =
        (builder_with(&prefix).await.build().unwrap().limit_book(), client().await);
    let book = book.max_loaded(NonZeroUsize::MIN);
    change(&book, LIMITS).await;
    let follower = Follower::start(&book, MemoryStore::new());
    follower.until_version(1).await;
    // The follower stops at version 1, as if the other versions were made within half a second.
    follower.task.abort();
    change(&book, "a: fixed-window 5/1h for subject x\na: fixed-window 4/1h for subject z").await;
    for version in [
        "a: fixed-window 6/1h for subject x\na: fixed-window 6/1h for subject y",
        "a: fixed-window 7/1h for subject z",
        "a: fixed-window 7/1h for subject x\na: fixed-window 7/1h for subject other",
    ] {
        change(&book, version).await;
        for (subject, limit) in [("x", 2), ("y", 3), ("z", 4), ("other", 1)] {
            assert_eq!(follower.limit(subject).await, limit);
        }
    }
    // A failover loses the versions, and others are made. Their overrides are not read. One
    // override is in memory.
    let key = |name: &str| format!("{prefix}:%{name}:{{limits}}");
    client.call(&["DEL", &key("limits"), &key("limit-changes")]).await.unwrap();
    change(&book, "a: fixed-window 8/1h for subject x\na: fixed-window 8/1h for subject y").await;
    let mut limits = vec![];
    for subject in ["x", "y", "z"] {
        limits.push(follower.limit(subject).await);
    }
    assert_eq!(limits.iter().filter(|limit| **limit > 1).count(), 1, "{limits:?}");
    assert!(!limits.contains(&8), "{limits:?}");
}

#[tokio::test]
async fn an_override_that_is_not_valid_is_reported_when_a_call_needs_it() {
    let (prefix, mut client) = (fresh_prefix(), client().await);
    let book = builder_with(&prefix).await.build().unwrap().limit_book();
    change(&book, &format!("{LIMITS}a: fixed-window 5/1h for subject w")).await;
    let follower = Follower::start(&book.max_loaded(NonZeroUsize::MIN), MemoryStore::new());
    follower.until_version(1).await;
    // From now on, only this override is in memory.
    assert_eq!(follower.limit("w").await, 5);
    let key = format!("{prefix}:%limits:{{limits}}");
    for command in [
        &["HSET", &key, "a for subject x", "nonsense"][..],
        &["HSET", &key, "a for subject y", "a: gcra 1/s for subject z"],
        &["HDEL", &key, "a for subject z"],
    ] {
        client.call(command).await.unwrap();
    }
    for (subject, message) in [
        ("x", "the limit `a for subject x` on the server is not valid: "),
        ("y", "the limit `a for subject y` on the server is not valid: it has the subjects of"),
        ("z", "the limit `a for subject z` on the server is not valid: it is missing"),
    ] {
        assert_eq!(follower.limit(subject).await, 1);
        let is_reported = async || {
            let events = follower.events.lock().unwrap();
            events.iter().any(|event| event.to_string().contains(message)).then_some(())
        };
        eventually(Duration::from_secs(20), message, is_reported).await.unwrap();
    }
    assert_eq!(follower.limit("w").await, 5);
}

#[tokio::test]
async fn one_call_reads_the_changes_since_the_version_in_force_for_all_calls() {
    let server = Redis::start().await.unwrap();
    let store = RedisStore::builder().url(server.socket_url()).build().unwrap();
    let book = store.limit_book().max_loaded(NonZeroUsize::MIN);
    change(&book, LIMITS).await;
    let follower = Follower::start(&book, MemoryStore::new());
    follower.until_version(1).await;
    follower.task.abort();
    change(&book, "a: fixed-window 9/1h").await;
    server.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
    for (subject, limit) in [("x", 2), ("y", 3), ("z", 4), ("x", 2), ("y", 3)] {
        assert_eq!(follower.limit(subject).await, limit);
    }
    let stats = server.command(&["INFO", "commandstats"]).await.unwrap().text();
    assert!(stats.contains("cmdstat_lrange:calls=1,"), "{stats}");
}
