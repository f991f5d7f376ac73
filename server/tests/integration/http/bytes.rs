//! Tests requests whose bytes are not valid HTTP or not valid JSON.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_server::net::http::serve_stream;
use tidegate_testkit::generate::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn what_is_not_http_is_a_400_or_ends_the_connection() {
    let server = Server::with(HttpSettings::default()).await;
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /json HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /json HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /json HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /json HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /v1/peek HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let status = server.status(bytes).await;
        assert!(matches!(status, None | Some(400)), "{}: {status:?}", bytes.escape_ascii());
    }
    assert_eq!(peek(&mut server.client().await).await, 200);
}

/// Generates bytes that are often nearly a valid HTTP request.
fn hostile() -> impl Strategy<Value = Bytes> {
    let words = prop_oneof![
        Just(b"POST /v1/acquire HTTP/1.1\r\n".to_vec()),
        Just(b"GET /openapi.json HTTP/1.1\r\n".to_vec()),
        Just(b"Content-Type: application/json\r\n".to_vec()),
        Just(b"Content-Length: 20\r\n".to_vec()),
        Just(b"Content-Length: 18446744073709551616\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Expect: 100-continue\r\n".to_vec()),
        Just(b"Connection: upgrade\r\nUpgrade: h2c\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"14\r\n".to_vec()),
        Just(b"ffffffffffffffff\r\n".to_vec()),
        Just(b"{\"policy\": \"gcra 1/s\"".to_vec()),
        vec(any::<u8>(), 0..12),
    ];
    vec(words, 0..25).prop_map(|words| Bytes::from(words.concat()))
}

/// Generates texts that are often nearly the valid JSON of a call.
fn nearly_a_call() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        &b"{"[..],
        &b"}"[..],
        &b"["[..],
        &b"]"[..],
        &b","[..],
        &b"\"policy\": \"gcra 1/s\""[..],
        &b"\"subject\": \"a\""[..],
        &b"\"subject_base64\": \"/w==\""[..],
        &b"\"charges\": ["[..],
        &b"\"cost\": 18446744073709551615"[..],
        &b"\"cost\": -1e-999"[..],
        &b"\"ttl_ms\": 9007199254740991"[..],
        &b"\"id\": \"\\ud800\""[..],
        &b"\"\\u0000\""[..],
        &b"\xff"[..],
        &b": null"[..],
    ]);
    let nearly = vec(words, 0..12).prop_map(|words| words.concat());
    let bytes = vec(any::<u8>(), 0..60);
    let fields = prop::sample::select(vec![
        r#""policy": "gcra 9/s shards 4 any-shard""#,
        r#""policy": "fixed-window 5/1m""#,
        r#""subject": "a""#,
        r#""tenant": "t""#,
        r#""cost": 9007199254740991"#,
        r#""cost": 0"#,
        r#""min": 3"#,
        r#""check": true"#,
        r#""id": "x""#,
        r#""ttl_ms": 9007199254740991"#,
        r#""block_ms": 9007199254740991"#,
        r#""so_far": true"#,
    ]);
    let fields = vec(fields, 0..7);
    let call = fields.prop_map(|fields| format!("{{{}}}", fields.join(",")).into_bytes());
    prop_oneof![nearly, bytes, call]
}

/// Runs a future in virtual time, so that a busy machine causes no timeout.
fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(future)
}

/// Sends bytes in parts of length `part`, and returns the whole answer.
async fn answer_to(bytes: &[u8], part: usize) -> Vec<u8> {
    let (client, server) = tokio::io::duplex(256);
    let mut settings = HttpSettings::default();
    settings.request_timeout = Duration::from_secs(20);
    settings.idle_timeout = Duration::from_secs(20);
    let served = tokio::spawn(async move { serve_stream(server, all_routes(), &settings).await });
    let (mut reader, mut writer) = tokio::io::split(client);
    let sent = async {
        for part in bytes.chunks(part) {
            // The write fails if the server has closed the connection.
            if writer.write_all(part).await.is_err() {
                break;
            }
        }
    };
    let mut answer = Vec::new();
    let whole = async {
        let (_, received) = tokio::join!(sent, reader.read_to_end(&mut answer));
        received.unwrap();
    };
    timeout(Duration::from_secs(10_000), whole).await.unwrap();
    drop((reader, writer));
    let _ = timeout(Duration::from_secs(10_000), served).await.unwrap();
    answer
}

proptest! {
    #[test]
    fn any_bytes_are_answered_and_end(bytes in hostile(), part in 1_usize..200) {
        let answer = in_virtual_time(answer_to(&bytes, part));
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
    }

    #[test]
    fn any_body_is_a_call_or_an_error(body in nearly_a_call(), verb in 0_usize..10) {
        let verb = tidegate_server::calls::Verb::ALL[verb].as_str();
        let head = format!("POST /v1/{verb} HTTP/1.1\r\n{JSON}Connection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        let answer = in_virtual_time(answer_to(&[head.as_bytes(), &body].concat(), 1_000));
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(matches!(status, "200" | "400" | "404" | "409" | "410" | "429"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap().is_object());
    }
}
