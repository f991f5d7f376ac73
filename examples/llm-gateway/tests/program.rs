//! The program runs by one command: in memory, and on Redis.

use std::process::Stdio;

use tidegate_testkit::servers::Redis;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// The estimated spend of the prompt "write N": 2 tokens, and 1,000 of an unknown model's answer.
const ESTIMATE: u64 = 2 + 4 * 1_000;

/// The program on a free port. It ends when the child is dropped.
async fn start(settings: &[(&str, &str)]) -> (Child, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-llm-gateway"));
    program.env_remove("REDIS_URL").env_remove("MODEL_URL").env("LISTEN", "127.0.0.1:0");
    program.envs(settings.iter().copied()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    (child, format!("{}/v1/chat/completions", line.trim()))
}

/// Returns the words of an answer, and what remains of the key's spend after the estimate.
async fn ask(url: &str, words: u64) -> (usize, u64) {
    let ask = reqwest::Client::new().post(url).header("authorization", "Bearer sk-bob");
    let prompt = format!(
        r#"{{"model": "stub", "stream": true, "messages": [{{"content": "write {words}"}}]}}"#
    );
    let answer = ask.body(prompt).send().await.unwrap();
    assert_eq!(answer.status(), 200);
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
    // The first answer is settled before its body ends: 2 of the prompt, 3 of the format, and its words.
    let first_cost = 5 + 4 * 12;
    assert_eq!(ask(&second, 20).await, (20, 5_000_000 - first_cost - ESTIMATE));
    let second_cost = 5 + 4 * 20;
    assert_eq!(ask(&first, 1).await, (1, 5_000_000 - first_cost - second_cost - ESTIMATE));
}
