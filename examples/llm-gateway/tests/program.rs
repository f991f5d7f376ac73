//! Starts the program as a separate process, and tests its limits in memory and on Redis.

use std::process::Stdio;
use std::time::Duration;

use tidegate_example_llm_gateway::limits;
use tidegate_redis::{Limiter, RedisStore};
use tidegate_test_servers::Redis;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The estimated spend of the prompt "write N": 2 tokens for the prompt, and 1,000 tokens, at four
/// times the price, for the answer of an unknown model.
const ESTIMATE: u64 = 2 + 4 * 1_000;

/// Starts the program on a free port. The program ends when the returned `Child` is dropped.
async fn start(settings: &[(&str, &str)]) -> (Child, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-llm-gateway"));
    program.env_remove("REDIS_URL").env_remove("MODEL_URL").env("LISTEN", "127.0.0.1:0");
    program.envs(settings.iter().copied()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    (child, format!("{}/v1/chat/completions", line.trim()))
}

fn prompt(model: &str, words: u64) -> String {
    format!(
        r#"{{"model": "{model}", "stream": true, "messages": [{{"content": "write {words}"}}]}}"#
    )
}

async fn send(url: &str, model: &str, words: u64) -> reqwest::Response {
    let ask = reqwest::Client::new().post(url).header("authorization", "Bearer sk-bob");
    let answer = ask.body(prompt(model, words)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

/// Sends SIGTERM, as the runtime of a container does.
async fn terminate(child: &Child) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
}

/// Returns the number of words in an answer, and the remaining spend of the API key after the
/// charge of the estimate.
async fn ask(url: &str, words: u64) -> (usize, u64) {
    let answer = send(url, "stub", words).await;
    let field = answer.headers()["ratelimit"].to_str().unwrap();
    let left = field.split(r#""key-spend";r="#).nth(1).unwrap();
    let left = left.split(';').next().unwrap().parse().unwrap();
    let text = answer.text().await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    (text.matches("\"word \"").count(), left)
}

#[tokio::test]
async fn in_memory_with_its_own_model() {
    let (_child, url) = start(&[]).await;
    assert_eq!(ask(&url, 12).await, (12, 5_000_000 - ESTIMATE));
}

#[tokio::test]
async fn on_redis_two_processes_share_the_limits() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let (_first, first) = start(&[("REDIS_URL", &url)]).await;
    let (_second, second) = start(&[("REDIS_URL", &url)]).await;
    assert_eq!(ask(&first, 12).await, (12, 5_000_000 - ESTIMATE));
    // The first process settles its answer before the body ends. So the second process sees the
    // actual cost: 2 tokens of the prompt, 3 tokens of the chat format, and 12 words.
    let first_cost = 5 + 4 * 12;
    assert_eq!(ask(&second, 20).await, (20, 5_000_000 - first_cost - ESTIMATE));
    let second_cost = 5 + 4 * 20;
    assert_eq!(ask(&first, 1).await, (1, 5_000_000 - first_cost - second_cost - ESTIMATE));
}

#[tokio::test]
async fn sigterm_charges_an_open_stream_for_the_words_that_were_sent() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let (mut child, gateway) = start(&[("REDIS_URL", &url), ("GRACE_SECONDS", "0")]).await;
    let mut answer = send(&gateway, "stub-stalls", 12).await;
    let mut text = Vec::new();
    while String::from_utf8_lossy(&text).matches("\"word \"").count() < 12 {
        text.extend(answer.chunk().await.unwrap().unwrap());
    }
    // A second client requests 100 million words and does not read them. The program must end
    // nevertheless.
    let address = gateway.trim_start_matches("http://").split('/').next().unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    let body = prompt("stub", 100_000_000);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-carol\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    silent.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    silent.readable().await.unwrap();

    terminate(&child).await;
    let status = timeout(Duration::from_secs(30), child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(answer.chunk().await.is_err(), "the client sees that the answer was cut");
    // The test reads the charges from Redis: the prompt and the 12 words are charged, and not the
    // estimate.
    let store = RedisStore::new(&url).unwrap();
    let limiter = Limiter::new(store, limits::policies().unwrap()).unwrap();
    let [day, spend] = ["key-day", "key-spend"].map(|policy| {
        let limiter = limiter.clone();
        async move {
            let peek = limiter.by(policy, "bob/1").tenant("acme").cost(0).peek().await.unwrap();
            peek.verdicts()[0].limit() - peek.verdicts()[0].remaining()
        }
    });
    assert_eq!((day.await, spend.await), (2 + 12, 2 + 4 * 12));
}

#[tokio::test]
async fn sigterm_lets_an_answer_end_within_the_grace() {
    let (mut child, url) = start(&[("GRACE_SECONDS", "60")]).await;
    let mut answer = send(&url, "stub-slow", 20).await;
    let mut text = answer.chunk().await.unwrap().unwrap().to_vec();
    terminate(&child).await;
    while let Some(chunk) = answer.chunk().await.unwrap() {
        text.extend(chunk);
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&text));
    let status = timeout(Duration::from_secs(30), child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(reqwest::get(url).await.is_err(), "the program accepts no connection any more");
}

#[tokio::test]
async fn a_grace_that_is_not_a_number_is_an_error_and_no_run() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-llm-gateway"));
    let output = program.env("GRACE_SECONDS", "10s").kill_on_drop(true).output().await.unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("GRACE_SECONDS is `10s`; it must be a whole number"), "{error}");
}
