//! Tests providers of credentials whose passwords change, and stores on connections that the
//! application has made.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::error::Error as _;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_redis::{
    Call, CallId, Charge, Credentials, Error, ErrorKind, Operation, RedisStore, RedisStoreBuilder,
    Store, redis,
};
use tidegate_test_servers::{Redis, Sentinel, eventually};

use crate::common::policy;

const PATIENCE: Duration = Duration::from_secs(20);
const RULES: &str = "~* +@all";

/// A provider that counts its calls, and returns credentials that the test changes.
#[derive(Clone)]
struct Provider {
    credentials: Arc<Mutex<Credentials>>,
    calls: Arc<AtomicUsize>,
}

impl Provider {
    fn new(credentials: Credentials) -> Self {
        Self { credentials: Arc::new(Mutex::new(credentials)), calls: Arc::default() }
    }

    fn set(&self, credentials: Credentials) {
        *self.credentials.lock().unwrap() = credentials;
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn store(&self, builder: RedisStoreBuilder) -> RedisStore {
        let provider = self.clone();
        let credentials = move || {
            provider.calls.fetch_add(1, Ordering::SeqCst);
            ready(Ok(provider.credentials.lock().unwrap().clone()))
        };
        patient(builder).credentials(credentials).build().unwrap()
    }
}

fn patient(builder: RedisStoreBuilder) -> RedisStoreBuilder {
    builder.connect_timeout(PATIENCE).response_timeout(PATIENCE)
}

fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder().url(url)
}

/// Acquires 1 under a limit of 1,000. Returns the amount that earlier calls have acquired.
async fn acquire(store: &RedisStore) -> Result<u64, Error> {
    let policy = policy("p: fixed-window 1000/10d");
    let charges = [Charge::new(&policy, "s")];
    let decision = store.decide(Call::acquire(&charges)).await?;
    Ok(999 - decision.verdicts()[0].remaining())
}

async fn kill(redis: &Redis, user: &str) {
    redis.command(&["CLIENT", "KILL", "USER", user]).await.unwrap();
}

async fn connections(redis: &Redis, user: &str) -> Vec<String> {
    let list = redis.command(&["CLIENT", "LIST"]).await.unwrap().text();
    let is_of_user = |line: &&str| line.split(' ').any(|field| field == format!("user={user}"));
    let id = |line: &str| line.split(' ').next().unwrap().to_owned();
    list.lines().filter(is_of_user).map(id).collect()
}

#[tokio::test]
async fn a_provider_is_called_at_each_login_so_that_a_password_can_change() {
    let redis = Redis::builder().user("limits", "one", RULES).start().await.unwrap();
    let provider = Provider::new(Credentials::new("limits", "one"));
    let store = provider.store(builder(&redis.url()).user("nobody", "nothing"));
    let fixed = patient(builder(&redis.url()).user("limits", "one")).build().unwrap();
    assert_eq!(acquire(&store).await.unwrap(), 0);
    assert_eq!(acquire(&fixed).await.unwrap(), 1);
    for (number, password) in ["two", "three"].into_iter().enumerate() {
        let password_rule = format!(">{password}");
        let command = ["ACL", "SETUSER", "limits", "resetpass", &password_rule];
        redis.command(&command).await.unwrap();
        provider.set(Credentials::new("limits", password));
        // A changed password does not end an open connection.
        assert!(acquire(&store).await.is_ok());
        assert_eq!(provider.calls(), 1 + number);
        kill(&redis, "limits").await;
        assert!(acquire(&store).await.is_ok());
        assert_eq!(provider.calls(), 2 + number);
        let error = acquire(&fixed).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    }
}

#[tokio::test]
async fn credentials_without_a_user_name_belong_to_the_user_of_the_url() {
    let redis = Redis::builder().user("limits", "one", RULES).start().await.unwrap();
    let provider = Provider::new(Credentials::from_password("one").renew_after(Duration::ZERO));
    let store = provider.store(builder(&redis.url_for("limits", "old")));
    assert!(acquire(&store).await.is_ok());
    assert_eq!(connections(&redis, "limits").await.len(), 1);
    // The credentials have no user name. The second login must use the user of the URL, as the
    // first login did.
    eventually(PATIENCE, "a second login", async || (provider.calls() > 2).then_some(()))
        .await
        .unwrap();
    assert_eq!(connections(&redis, "limits").await.len(), 1);
}

#[tokio::test]
async fn a_connection_logs_in_again_before_its_credentials_expire() {
    let server = Redis::builder().user("first", "one", RULES).user("second", "two", RULES);
    let redis = server.start().await.unwrap();
    let soon = Duration::from_millis(30);
    let provider = Provider::new(Credentials::new("first", "one").renew_after(soon));
    let store = provider.store(builder(&redis.url()));
    assert_eq!(acquire(&store).await.unwrap(), 0);
    let before = connections(&redis, "first").await;
    assert_eq!(before.len(), 1);
    provider.set(Credentials::new("second", "two"));
    let renewed = async || Some(connections(&redis, "second").await).filter(|ids| !ids.is_empty());
    assert_eq!(eventually(PATIENCE, "the second login", renewed).await.unwrap(), before);
    assert_eq!(acquire(&store).await.unwrap(), 1);
    assert_eq!(connections(&redis, "second").await, before);
    // The credentials of the second login do not set `renew_after`, so there is no third login.
    let calls = provider.calls();
    assert_eq!(acquire(&store).await.unwrap(), 2);
    assert_eq!(provider.calls(), calls);
}

#[tokio::test]
async fn a_connection_whose_second_login_fails_stays_in_use() {
    let redis = Redis::builder().user("limits", "one", RULES).start().await.unwrap();
    let soon = Duration::from_millis(30);
    let provider = Provider::new(Credentials::new("limits", "one").renew_after(soon));
    let store = provider.store(builder(&redis.url()));
    assert_eq!(acquire(&store).await.unwrap(), 0);
    let before = connections(&redis, "limits").await;
    provider.set(Credentials::new("limits", "wrong"));
    let failures = async || {
        let refused = redis.command(&["ACL", "LOG"]).await.unwrap();
        (!refused.list().is_empty()).then_some(())
    };
    eventually(PATIENCE, "a login that fails", failures).await.unwrap();
    assert_eq!(acquire(&store).await.unwrap(), 1);
    assert_eq!(connections(&redis, "limits").await, before);
}

#[tokio::test]
async fn b52_the_connection_of_a_dropped_store_ends_although_it_would_log_in_again() {
    let redis = Redis::builder().user("limits", "one", RULES).start().await.unwrap();
    let credentials = Credentials::new("limits", "one").renew_after(Duration::from_secs(3_600));
    let store = Provider::new(credentials).store(builder(&redis.url()));
    assert!(acquire(&store).await.is_ok());
    assert_eq!(connections(&redis, "limits").await.len(), 1);
    drop(store);
    let ended = async || connections(&redis, "limits").await.is_empty().then_some(());
    eventually(PATIENCE, "the end of the connection", ended).await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_provider_is_the_source_of_the_error_of_the_call() {
    let redis = Redis::builder().user("limits", "one", RULES).start().await.unwrap();
    let is_ready = Arc::new(AtomicUsize::new(0));
    let provider = {
        let is_ready = Arc::clone(&is_ready);
        move || {
            ready(match is_ready.load(Ordering::SeqCst) {
                0 => Err("the token service is down".into()),
                _ => Ok(Credentials::new("limits", "one")),
            })
        }
    };
    let store = patient(builder(&redis.url())).credentials(provider).build().unwrap();
    let error = acquire(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_definitely_not_charged());
    assert!(error.to_string().ends_with(": the credentials provider failed"), "{error}");
    assert_eq!(error.source().unwrap().to_string(), "the token service is down");
    is_ready.store(1, Ordering::SeqCst);
    let decided = async || acquire(&store).await.ok();
    assert_eq!(eventually(PATIENCE, "a login", decided).await.unwrap(), 0);
}

#[tokio::test]
async fn a_provider_that_hangs_is_named_by_the_error() {
    let redis = Redis::start().await.unwrap();
    let soon = Duration::from_millis(100);
    let builder = builder(&redis.url()).connect_timeout(soon).credentials(pending);
    let error = acquire(&builder.build().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let expected = "within 100ms: the credentials provider gave no answer";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[tokio::test]
async fn credentials_are_for_the_servers_of_a_sentinel_group() {
    let node = Redis::builder().user("limits", "one", RULES);
    let group = Sentinel::builder().node(node).replicas(1).start().await.unwrap();
    let provider = Provider::new(Credentials::new("limits", "one"));
    let builder = RedisStore::builder().sentinel(group.sentinel_urls(), group.master_name());
    let store = provider.store(builder);
    assert_eq!(acquire(&store).await.unwrap(), 0);
    assert_eq!(connections(group.primary().await.unwrap(), "limits").await.len(), 1);
    assert_eq!(provider.calls(), 1);
    group.failover().await.unwrap();
    let decided = async || acquire(&store).await.ok();
    eventually(PATIENCE, "the new primary", decided).await.unwrap();
    assert!(provider.calls() > 1);
}

async fn existing(redis: &Redis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

#[tokio::test]
async fn a_store_decides_on_an_existing_connection_as_on_its_own() {
    let redis = Redis::start().await.unwrap();
    let connection = existing(&redis).await;
    let store = patient(RedisStore::builder().connection(connection.clone())).build().unwrap();
    let own = patient(builder(&redis.url())).build().unwrap();
    store.ready().await.unwrap();
    for used in 0..6 {
        let store = if used % 2 == 0 { &store } else { &own };
        assert_eq!(acquire(store).await.unwrap(), used);
    }
    let policy = policy("p: fixed-window 1000/10d");
    let charges = [Charge::new(&policy, "s").cost(4)];
    let answers = store.decide_many(&[Call::acquire(&charges), Call::acquire(&charges)]).await;
    assert!(answers.iter().all(Result::is_ok));
    let id = CallId::new("hold", PATIENCE);
    let hold = Call::new(Operation::Hold, &charges).with_id(id);
    assert!(store.decide(hold).await.unwrap().is_allowed());
    let used = [charges[0].cost(1)];
    let settled = own.decide(Call::new(Operation::Settle, &used).with_id(id)).await.unwrap();
    assert_eq!(settled.amounts(), [3]);
    drop(store);
    // The store is dropped. Its connection belongs to the application, which must still be able to
    // use it.
    let mut connection = connection;
    assert_eq!(redis::cmd("PING").query_async::<String>(&mut connection).await.unwrap(), "PONG");

    let plain = RedisStore::builder().connection(connection).script_free().prefix("plain");
    let plain = patient(plain).build().unwrap();
    assert_eq!(acquire(&plain).await.unwrap(), 0);
    assert_eq!(acquire(&plain).await.unwrap(), 1);
}

#[tokio::test]
async fn a_lost_existing_connection_is_an_error_and_no_call_is_sent_twice() {
    let redis = Redis::start().await.unwrap();
    let connection = existing(&redis).await;
    let store = patient(RedisStore::builder().connection(connection)).build().unwrap();
    assert_eq!(acquire(&store).await.unwrap(), 0);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    for _ in 0..2 {
        let error = acquire(&store).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!error.is_definitely_not_charged());
    }
    let again = RedisStore::builder().connection(existing(&redis).await);
    assert_eq!(acquire(&patient(again).build().unwrap()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_silent_server_is_a_timeout_on_an_existing_connection() {
    let redis = Redis::start().await.unwrap();
    let builder = RedisStore::builder().connection(existing(&redis).await);
    let store = builder.response_timeout(Duration::from_millis(100)).build().unwrap();
    redis.pause().await.unwrap();
    let error = acquire(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().ends_with("has not answered within 100ms"), "{error}");
    redis.resume().await.unwrap();
}

#[tokio::test]
async fn settings_that_an_existing_connection_would_ignore_are_errors() {
    let redis = Redis::start().await.unwrap();
    let connection = existing(&redis).await;
    let builder = || RedisStore::builder().connection(connection.clone());
    for (builder, setting) in [
        (builder().url("redis://localhost"), "a URL"),
        (builder().sentinel(["redis://localhost"], "name"), "Sentinels"),
        (builder().user("limits", "one"), "a login"),
        (builder().password("one"), "a login"),
        (builder().credentials(pending), "a login"),
        (builder().database(1), "a database"),
        (builder().root_certificates("pem"), "certificates"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        let expected = format!("an existing connection cannot be combined with {setting}");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}
