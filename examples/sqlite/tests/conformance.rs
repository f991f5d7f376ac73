//! Tests that the store has all properties of the conformance suite, that connections share a file,
//! and that the store rejects rows that it did not write.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::thread;

use rusqlite::Connection;
use rusqlite::types::Value;
use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, ManualClock, Operation, Policy, Store, Timestamp,
};
use tidegate_example_sqlite::SqliteStore;
use tidegate_testkit::{Fixture, fixture};

fn in_memory(clock: ManualClock) -> SqliteStore<ManualClock> {
    SqliteStore::new(Connection::open_in_memory().unwrap(), clock).unwrap()
}

/// Returns all rows as text.
fn rows(store: &SqliteStore<ManualClock>) -> Vec<u8> {
    let connection = store.connection();
    let mut select =
        connection.prepare("SELECT * FROM states ORDER BY state_name, tenant, subject").unwrap();
    let columns = select.column_count();
    let mut rows = select.query([]).unwrap();
    let mut text = String::new();
    while let Some(row) = rows.next().unwrap() {
        let values: Vec<Value> = (0..columns).map(|column| row.get(column).unwrap()).collect();
        text += &format!("{values:?}\n");
    }
    text.into_bytes()
}

/// A fixture on SQLite in memory. Its longest case has 50,000 calls, even if `TIDEGATE_STEPS` is
/// larger, because calls to SQLite are slow.
struct OnSqlite;

impl Fixture for OnSqlite {
    type Store = SqliteStore<ManualClock>;
    type Guard = ();

    async fn open(&self, clock: ManualClock) -> (Self::Store, ()) {
        (in_memory(clock), ())
    }

    async fn snapshot(&self, store: &Self::Store) -> Option<Vec<u8>> {
        Some(rows(store))
    }

    fn steps(&self) -> u32 {
        50_000
    }
}

tidegate_testkit::conformance!(sqlite_store, fixture: OnSqlite);

fn ask(store: &impl Store, operation: Operation, charge: Charge<'_>) -> Result<Decision, Error> {
    store.decide(Call::new(operation, &[charge])).into_ready().unwrap()
}

#[test]
fn connections_to_one_file_share_a_limit_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let path = Arc::new(folder.path().join("limits.db"));
    let policy: Policy = "p: sliding-log 200/1h".parse().unwrap();
    let run = |_| {
        let (path, policy) = (Arc::clone(&path), policy.clone());
        thread::spawn(move || {
            let store = loop {
                match SqliteStore::open(&*path) {
                    Ok(store) => break store,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                }
            };
            let mut admitted = 0;
            for _ in 0..100 {
                let decision = loop {
                    match ask(&store, Operation::Acquire, Charge::new(&policy, "s")) {
                        Ok(decision) => break decision,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                    }
                };
                admitted += u32::from(decision.is_allowed());
            }
            admitted
        })
    };
    let threads: Vec<_> = (0..4).map(run).collect();
    let admitted: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(admitted, 200);
}

#[test]
fn rows_are_deleted_once_they_have_recovered() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let store = in_memory(clock.clone());
    let policy: Policy = "p: gcra 1/1s burst 1".parse().unwrap();
    let count = || -> u32 {
        store.connection().query_row("SELECT count(*) FROM states", [], |row| row.get(0)).unwrap()
    };
    for subject in ["a", "b", "c"] {
        assert!(
            ask(&store, Operation::Acquire, Charge::new(&policy, subject)).unwrap().is_allowed()
        );
    }
    assert_eq!(count(), 3);
    clock.advance(std::time::Duration::from_secs(1));
    assert!(ask(&store, Operation::Acquire, Charge::new(&policy, "d")).unwrap().is_allowed());
    assert_eq!(count(), 1);
}

#[test]
fn rows_that_no_record_has_are_refused_and_left_alone() {
    let clock = ManualClock::new(Timestamp::from_micros(1_790_000_000_000_000));
    let policy: Policy = "p: gcra 1/1s burst 5".parse().unwrap();
    for (change, expected) in [
        ("used = -1", "SQLite"),
        ("used = 0", "debt in units is 0"),
        ("time = 9007199254740992", "9007199254740992; it must be at most"),
        ("policy = 'nonsense'", "the policy of the row"),
        ("log = x'00', used = NULL", "a sliding log"),
        ("blocked_until = 9223372036854775807", "blocked until"),
        ("block_level = 53, forgotten_at = 7", "level 53"),
    ] {
        let store = in_memory(clock.clone());
        let charge = Charge::new(&policy, "s");
        assert!(ask(&store, Operation::Acquire, charge).unwrap().is_allowed());
        store.connection().execute(&format!("UPDATE states SET {change}"), []).unwrap();
        let before = rows(&store);
        let error = ask(&store, Operation::Acquire, charge).unwrap_err();
        assert!(error.to_string().contains(expected), "{change}: {error}");
        assert_eq!(rows(&store), before, "{change}");
        // A reset also returns an error and does not delete the row, because an operator must find
        // the program that wrote the row.
        assert!(ask(&store, Operation::Reset, charge).is_err(), "{change}");
    }
}

/// Checks one property with a fixture that has no snapshot. The suite then sees only the decisions
/// of the store, and not its rows.
#[test]
fn a_closure_is_enough_to_check_one_property() {
    let property = "b04_a_denied_decision_charges_no_member";
    tidegate_testkit::suite::check(&fixture(in_memory), property);
}
