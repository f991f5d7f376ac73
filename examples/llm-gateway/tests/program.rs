//! The program runs by one command.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn in_memory_with_its_own_model() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate-example-llm-gateway"));
    program.env_remove("REDIS_URL").env_remove("MODEL_URL").env("LISTEN", "127.0.0.1:0");
    let mut child = program.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let url = format!("{}/v1/chat/completions", line.trim());
    let ask = reqwest::Client::new().post(url).header("authorization", "Bearer sk-bob");
    let prompt = r#"{"model": "stub", "stream": true, "messages": [{"content": "write 12"}]}"#;
    let answer = ask.body(prompt).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("ratelimit"));
    let text = answer.text().await.unwrap();
    assert_eq!(text.matches("\"word \"").count(), 12);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}
