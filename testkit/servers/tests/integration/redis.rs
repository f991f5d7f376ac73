//! Tests of one Redis server: its settings and commands, and the errors that prevent its start.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "helper functions of tests fail by panicking, like tests")]

use std::time::Duration;

use tidegate_test_servers::{Client, Redis, Reply, eventually};

async fn get(redis: &Redis, key: &str) -> Reply {
    redis.command(&["GET", key]).await.unwrap()
}

#[tokio::test]
async fn a_server_answers_on_its_port_and_on_its_socket() {
    let redis = Redis::start().await.unwrap();
    let mut client = Client::connect(redis.port()).await.unwrap();
    assert_eq!(client.call(&["SET", "key", "value"]).await.unwrap(), Reply::Status("OK".into()));
    assert_eq!(get(&redis, "key").await, Reply::Bytes(b"value".to_vec()));
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(redis.socket_url(), format!("redis+unix://{}", redis.socket_path().display()));
}

#[tokio::test]
async fn every_kind_of_reply_is_read() {
    let redis = Redis::start().await.unwrap();
    let script = "return {1, 'two', {}, false, {ok = 'fine'}, {err = 'bad'}}";
    let reply = redis.command(&["EVAL", script, "0"]).await.unwrap();
    let texts: Vec<String> = reply.list().iter().map(Reply::text).collect();
    assert_eq!(texts, ["1", "two", "", "", "fine", "bad"]);
    assert_eq!(reply.list()[3], Reply::Nil);
    assert_eq!(get(&redis, "absent").await, Reply::Nil);
    let value = [b'\r', b'\n', 0, 255].repeat(50_000);
    redis.command(&[b"SET", b"big".as_slice(), &value]).await.unwrap();
    assert_eq!(get(&redis, "big").await, Reply::Bytes(value));
}

#[tokio::test]
async fn a_refused_command_is_an_error_that_names_it() {
    let redis = Redis::start().await.unwrap();
    let error = redis.command(&["INCRBY", "key", "x"]).await.unwrap_err();
    assert_eq!(error.to_string(), "INCRBY failed: ERR value is not an integer or out of range");
}

#[tokio::test]
async fn servers_of_one_test_are_independent() {
    let starts: Vec<_> = (0..4).map(|_| tokio::spawn(Redis::start())).collect();
    let mut servers = vec![];
    for start in starts {
        servers.push(start.await.unwrap().unwrap());
    }
    for (index, redis) in servers.iter().enumerate() {
        redis.command(&["SET", "key", &index.to_string()]).await.unwrap();
    }
    for (index, redis) in servers.iter().enumerate() {
        assert_eq!(get(redis, "key").await.text(), index.to_string());
    }
}

#[tokio::test]
async fn settings_hold_and_debug_works() {
    let redis = Redis::builder().config("maxmemory", "1mb").start().await.unwrap();
    let reply = redis.command(&["CONFIG", "GET", "maxmemory"]).await.unwrap();
    assert_eq!(reply.list()[1].text(), "1048576");
    assert_eq!(redis.info("maxmemory").await.unwrap(), "1048576");
    assert_eq!(redis.command(&["DEBUG", "SLEEP", "0"]).await.unwrap().text(), "OK");
}

#[tokio::test]
async fn passwords_are_required() {
    let builder = Redis::builder().password("a b/c").user("alice", "w@nder", "+get ~a*");
    let redis = builder.config("tcp-keepalive", "0").start().await;
    // A password with a space is an error, because a space ends a word in the configuration file.
    assert!(redis.is_err());

    let builder = Redis::builder().password("a/b").user("alice", "w@nder", "+get ~a*");
    let redis = builder.start().await.unwrap();
    let port = redis.port();
    assert_eq!(redis.url(), format!("redis://:a%2Fb@127.0.0.1:{port}"));
    assert!(redis.socket_url().ends_with("/redis.sock?pass=a%2Fb"));
    assert_eq!(
        redis.url_for("alice", "w@nder"),
        format!("redis://alice:w%40nder@127.0.0.1:{port}")
    );
    redis.command(&["SET", "a", "1"]).await.unwrap();
    let mut client = Client::connect(port).await.unwrap();
    assert!(client.call(&["GET", "a"]).await.unwrap().text().starts_with("NOAUTH"));
    assert_eq!(client.call(&["AUTH", "alice", "w@nder"]).await.unwrap().text(), "OK");
    assert_eq!(client.call(&["GET", "a"]).await.unwrap().text(), "1");
    assert!(client.call(&["GET", "b"]).await.unwrap().text().starts_with("NOPERM"));

    let replica = Redis::start().await.unwrap();
    replica.replica_of(&redis).await.unwrap();
    assert_eq!(get(&replica, "a").await.text(), "1");
}

#[tokio::test]
async fn work_costs_cpu_time() {
    let redis = Redis::start().await.unwrap();
    let before = redis.cpu_time().await.unwrap();
    redis.command(&["EVAL", "for i = 1, 1e7 do end", "0"]).await.unwrap();
    let used = redis.cpu_time().await.unwrap() - before;
    assert!(used > Duration::from_millis(10) && used < Duration::from_secs(10), "{used:?}");
}

#[tokio::test]
async fn a_replica_has_the_data_and_can_be_promoted() {
    let (primary, replica) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    primary.command(&["SET", "key", "value"]).await.unwrap();
    replica.replica_of(&primary).await.unwrap();
    assert_eq!(get(&replica, "key").await.text(), "value");
    let refused = replica.command(&["SET", "key", "other"]).await.unwrap_err();
    assert!(refused.to_string().contains("READONLY"), "{refused}");
    replica.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    replica.command(&["SET", "key", "other"]).await.unwrap();
}

/// Checks that a new replica receives writes immediately. A replica can report a working link up to
/// a second before it receives data. If such a replica was promoted, all writes of this second
/// would be lost.
#[tokio::test]
async fn a_replica_receives_writes_immediately() {
    let primary = Redis::start().await.unwrap();
    for _ in 0..5 {
        let replica = Redis::start().await.unwrap();
        replica.replica_of(&primary).await.unwrap();
        let mut client = primary.client().await.unwrap();
        client.call(&["INCR", "key"]).await.unwrap();
        assert_eq!(client.call(&["WAIT", "1", "500"]).await.unwrap().text(), "1");
    }
}

#[tokio::test]
async fn a_missing_program_is_an_error_that_says_how_to_install_it() {
    let error = Redis::builder().binary("/nowhere/redis-server").start().await.unwrap_err();
    let message = format!("{error:?}");
    for part in
        ["/nowhere/redis-server", ".ci/install-redis", "TIDEGATE_REDIS_SERVER", "No such file"]
    {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_a_server_is_refused() {
    let error = Redis::builder().binary("true").start().await.unwrap_err();
    assert!(error.to_string().starts_with("\"true\" is not a Redis or Valkey server"), "{error}");
}

#[tokio::test]
async fn a_server_that_refuses_to_start_shows_why() {
    let error = Redis::builder().config("no-such-setting", "1").start().await.unwrap_err();
    assert!(error.to_string().contains("no-such-setting"), "{error}");
}

#[tokio::test]
async fn a_setting_cannot_contain_another_setting() {
    let error = Redis::builder().config("timeout", "0\nport 1").start().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"the setting "timeout" is "0\nport 1"; it must not contain a line break"#
    );
}

#[tokio::test]
async fn a_requested_port_is_used_or_the_start_fails() {
    let first = Redis::start().await.unwrap();
    let error = Redis::builder().port(first.port()).start().await.unwrap_err();
    assert!(error.to_string().contains("Address already in use"), "{error}");
    let port = first.port();
    drop(first);
    assert_eq!(Redis::builder().port(port).start().await.unwrap().port(), port);
}

#[tokio::test]
async fn a_timeout_names_the_condition() {
    let waited = eventually(Duration::from_millis(1), "the moon", async || None::<()>).await;
    assert_eq!(waited.unwrap_err().to_string(), "waited 1ms in vain for the moon");
}
