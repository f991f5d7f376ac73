//! Unmodified Redis clients.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::*;

/// Returns the path of `redis-cli`, next to the Redis server of the tests or from the PATH.
fn redis_cli_program() -> PathBuf {
    let server = std::env::var_os("TIDEGATE_REDIS_SERVER").map(PathBuf::from);
    let beside = server.as_deref().and_then(Path::parent).map(|folder| folder.join("redis-cli"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| "redis-cli".into())
}

async fn cli(server: &Server, options: &[&str], input: &str) -> String {
    let port = server.address.port().to_string();
    let mut cli = Command::new(redis_cli_program())
        .args(["-p", &port])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    cli.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = cli.wait_with_output().await.unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[tokio::test]
async fn redis_cli_has_replies_and_errors_and_logs_in() {
    let server = Server::start().await;
    let throttle = ["CL.THROTTLE", "user123", "15", "30", "60"];
    assert_eq!(cli(&server, &throttle, "").await, "0\n16\n15\n-1\n2\n");
    let resp3 = [&["-3"][..], &throttle].concat();
    assert_eq!(cli(&server, &resp3, "").await, "0\n16\n14\n-1\n4\n");
    let lines = "TG.ACQUIRE alice 'gcra 10/s burst 2'\nPING\nCOMMAND DOCS quit\nNOTHING\n";
    let answer = cli(&server, &["--no-raw"], lines).await;
    assert!(answer.contains("1) \"allowed\"") && answer.contains("PONG"), "{answer}");
    assert!(answer.contains("Ends the connection"), "{answer}");
    assert!(answer.contains("(error) ERR unknown command 'NOTHING'"), "{answer}");

    let server = Server::with(with_login()).await;
    let answer = cli(&server, &["--no-auth-warning", "-a", "s3cret", "PING"], "").await;
    assert_eq!(answer, "PONG\n");
    let answer = cli(&server, &["PING"], "").await;
    assert!(answer.contains("NOAUTH"), "{answer}");
}

async fn by_the_redis_crate(server: &Server, parameters: &str, login: &str) {
    let url = format!("redis://{login}{}/{parameters}", server.address);
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let throttle = |key: &str| {
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(key).arg(1).arg(1).arg(60);
        command
    };
    let one = throttle("a");
    let answer: Vec<i64> = one.query_async(&mut connection).await.unwrap();
    assert_eq!(answer, [0, 2, 1, -1, 60]);
    let mut pipe = redis::pipe();
    for key in ["a", "b", "a"] {
        pipe.add_command(throttle(key));
    }
    let answers: Vec<Vec<i64>> = pipe.query_async(&mut connection).await.unwrap();
    let expected = [[0, 2, 0, -1, 120], [0, 2, 1, -1, 60], [1, 2, 0, 60, 120]];
    assert_eq!(answers, expected.map(|answer| answer.to_vec()));
    let mut acquire = redis::cmd("TG.ACQUIRE");
    acquire.arg(&b"\0\xff\r\n"[..]).arg("gcra 1/m burst 5").arg("COST").arg(3);
    let (admitted, wait, charge): (bool, i64, (String, i64, i64, i64, i64, i64)) =
        acquire.query_async(&mut connection).await.unwrap();
    assert_eq!((admitted, wait), (true, 0));
    assert_eq!(charge, ("allowed".to_owned(), 5, 2, 0, 180_000, 3));
    let error = redis::cmd("TG.CANCEL")
        .arg("k")
        .arg("gcra 1/s")
        .arg("ID")
        .arg("x")
        .exec_async(&mut connection)
        .await;
    assert_eq!(error.unwrap_err().code(), Some("UNKNOWNHOLD"));
}

#[tokio::test]
async fn the_redis_crate_works_in_both_protocols_with_and_without_a_login() {
    by_the_redis_crate(&Server::start().await, "", "").await;
    by_the_redis_crate(&Server::start().await, "?protocol=resp3", "").await;
    by_the_redis_crate(&Server::with(with_login()).await, "", ":s3cret@").await;
    let server = Server::with(with_login()).await;
    by_the_redis_crate(&server, "?protocol=resp3", "default:s3cret@").await;
}
