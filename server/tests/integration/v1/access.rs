//! Tests logins, invalid requests and failures of the store.

use tidegate_core::{ErrorKind, StoreExt};
use tidegate_server::net::login::Login;
use tidegate_server::store::OnStoreError;
use tidegate_testkit::faults::{Fault, Faults};

use super::*;

const BODY: &str = r#"{"policy": "gcra 1/s", "subject": "a"}"#;

fn login(user: &str, password: &str) -> Access {
    Access::Login(Login { user: user.into(), password: password.into() })
}

async fn guarded(access: Access) -> Server {
    Server::with(Arc::new(MemoryStore::new()), access, HttpSettings::default()).await
}

#[tokio::test]
async fn a_login_is_a_user_and_a_password_or_the_default_users_password_alone() {
    let default = guarded(login("default", "s3:cret")).await;
    let named = guarded(login("app", "s3cret")).await;
    for (server, authorization, status) in [
        (&default, "Basic ZGVmYXVsdDpzMzpjcmV0", 200),
        (&default, "bAsIc  ZGVmYXVsdDpzMzpjcmV0 ", 200),
        (&default, "Bearer s3:cret", 200),
        (&default, "bEARER s3:cret", 200),
        (&default, "bearer s3:cre", 401),
        (&default, "Bearer s3:crets", 401),
        (&default, "Bearer", 401),
        (&default, "Bearer ", 401),
        (&default, "Basic ", 401),
        (&default, "Basic s3:cret", 401),
        (&default, "Digest s3:cret", 401),
        (&default, "s3:cret", 401),
        (&default, "", 401),
        (&named, "Basic YXBwOnMzY3JldA==", 200),
        // The users of these two logins are `default` and `ap`. The right user is `app`.
        (&named, "Basic ZGVmYXVsdDpzM2NyZXQ=", 401),
        (&named, "Basic YXA6czNjcmV0", 401),
        (&named, "Bearer s3cret", 401),
    ] {
        let fields = match authorization {
            "" => JSON.to_owned(),
            _ => format!("{JSON}Authorization: {authorization}\r\n"),
        };
        let answer = server.post_with("peek", &fields, BODY).await;
        assert_eq!(answer.status, status, "{authorization}: {answer:?}");
        if status == 401 {
            assert_eq!(answer.json()["error"], "unauthorized");
            assert!(answer.field("www-authenticate").unwrap().starts_with("Basic realm="));
            assert_eq!(answer.field("connection"), Some("close"));
        }
    }
    // The login is checked before the method.
    for (fields, status) in [("", 401), ("Authorization: Bearer s3:cret\r\n", 405)] {
        let answer = default.client().await.call("GET", "/v1/peek", fields, "").await;
        assert_eq!(answer.status, status, "{fields}: {answer:?}");
    }
    let answer = default.client().await.call("GET", "/openapi.json", "", "").await;
    assert_eq!((answer.status, &*answer.body), (200, OPENAPI));
}

#[test]
fn b95_a_login_is_compared_byte_by_byte_and_a_wrong_one_is_counted() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        crate::scene::block_on(async {
            let server = guarded(login("default", "s3cr\u{e9}t")).await;
            for (authorization, status) in [
                (&b"Bearer s3cr\xc3\xa9t"[..], 200),
                (b"Basic ZGVmYXVsdDpzM2Nyw6l0", 200),
                // These logins are wrong: they contain the password in Latin-1, or other bytes that
                // are not UTF-8.
                (b"Bearer s3cr\xe9t", 401),
                (b"Basic ZGVmYXVsdDpzM2Ny6XQ=", 401),
                (b"Bearer s3cr\xc3\xa9t\xff", 401),
                (b"Basic \xff", 401),
                (b"\xff", 401),
            ] {
                let mut bytes = format!(
                    "POST /v1/peek HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: {}\r\nAuthorization: ",
                    BODY.len()
                )
                .into_bytes();
                bytes.extend([authorization, b"\r\n\r\n", BODY.as_bytes()].concat());
                let mut client = server.client().await;
                client.send(&bytes).await;
                let answer = client.answer().await.unwrap();
                assert_eq!(answer.status, status, "{}", authorization.escape_ascii());
            }
        });
    });
    assert!(handle.render().contains("tidegate_server_http_refused_logins_total 5\n"));
}

#[tokio::test]
async fn without_a_login_no_body_is_read() {
    let server = guarded(login("default", "s3cret")).await;
    let mut client = server.client().await;
    let head =
        format!("POST /v1/acquire HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 1000000\r\n\r\n");
    client.send(head).await;
    assert_eq!(client.answer().await.unwrap().status, 401);
    assert_eq!(client.answer().await, None);
    // The server closes the connection although the whole request has arrived, so that each guess
    // costs a connection.
    let mut client = server.client().await;
    assert_eq!(client.call("POST", "/v1/peek", JSON, BODY).await.status, 401);
    assert_eq!(client.answer().await, None);
}

#[tokio::test]
async fn calls_are_not_served_to_other_machines_without_a_login() {
    let server = guarded(Access::Closed).await;
    let answer = server.post("reset", BODY).await;
    assert_eq!((answer.status, &answer.json()["error"]), (403, &json!("forbidden")));
    assert!(answer.body.contains("TIDEGATE_HTTP_PASSWORD"), "{answer:?}");
}

#[tokio::test]
async fn a_body_has_to_say_that_it_is_json() {
    let server = guarded(Access::Open).await;
    for (fields, status) in [
        ("Content-Type: application/json; charset=utf-8\r\n", 200),
        ("Content-Type: Application/JSON\r\n", 200),
        // A page in a browser can send some of these types to other sites, so the server refuses
        // all types except JSON.
        ("Content-Type: text/plain\r\n", 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415),
        ("Content-Type: text/plain; application/json\r\n", 415),
        ("Content-Type: application/jsonp\r\n", 415),
        ("", 415),
    ] {
        let answer = server.post_with("peek", fields, BODY).await;
        assert_eq!(answer.status, status, "{fields}");
    }
    for (method, path, status) in [
        ("GET", "/v1/acquire", 405),
        ("OPTIONS", "/v1/acquire", 405),
        ("POST", "/v1/acquires", 404),
        ("POST", "/v1", 404),
        ("POST", "/openapi.json", 405),
    ] {
        let answer = server.client().await.call(method, path, JSON, BODY).await;
        assert_eq!(answer.status, status, "{method} {path}");
    }
}

#[tokio::test]
async fn a_store_that_does_not_decide_is_a_503_or_what_the_settings_say() {
    let failing = || -> Arc<dyn Store> {
        Arc::new(
            MemoryStore::new().layer(Faults::new(vec![Fault::Before(ErrorKind::Unavailable); 9])),
        )
    };
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let with = |settings: OnStoreError| {
        Server::with(settings.around(failing(), &memory), Access::Open, HttpSettings::default())
    };
    let answer = with(OnStoreError::Error).await.post("acquire", BODY).await;
    assert_eq!((answer.status, &answer.json()["error"]), (503, &json!("unavailable")));
    let answer = with(OnStoreError::Allow).await.post("acquire", BODY).await;
    let degraded = answer.json();
    assert_eq!((answer.status, &degraded["degraded"]), (200, &json!("failed-open")));
    assert_eq!(degraded["allowed"], true);
    let answer = with(OnStoreError::Deny).await.post("acquire", BODY).await;
    let degraded = answer.json();
    assert_eq!((answer.status, &degraded["degraded"]), (429, &json!("failed-closed")));
    assert_eq!(degraded["allowed"], false);
    let share = with(OnStoreError::Share("1/3".parse().unwrap())).await;
    let body = r#"{"policy": "fixed-window 9/365d", "subject": "a", "cost": 3}"#;
    let degraded = share.post("acquire", body).await;
    assert_eq!((degraded.status, &degraded.json()["degraded"]), (200, &json!("fell-back")));
    assert_eq!(share.post("acquire", body).await.status, 429);
    // A third of the limit of 2 rounds down to 0, so the server admits nothing.
    let body = r#"{"policy": "fixed-window 2/365d", "subject": "a"}"#;
    assert_eq!(share.post("acquire", body).await.status, 429);
    // An invalid request is an error, regardless of the setting for errors of the store.
    let answer = with(OnStoreError::Allow).await.post("acquire", "{}").await;
    assert_eq!(answer.status, 400);
}

/// The name of a foreign site can be resolved to the address of this server (DNS rebinding). A
/// browser sends `Origin` with the calls of a script.
#[tokio::test]
async fn without_a_password_a_page_of_another_name_cannot_send_calls() {
    let open = guarded(Access::Open).await;
    let locked = guarded(login("default", "s3cret")).await;
    for (server, host, fields, status) in [
        (&open, "evil.example", "Origin: http://evil.example\r\n", 403),
        (&open, "127.0.0.1:8080", "Origin: http://127.0.0.1:8080\r\n", 200),
        (&open, "gate.internal", "", 200),
        (&locked, "gate.internal", "Origin: http://a\r\nAuthorization: Bearer s3cret\r\n", 200),
    ] {
        let mut client = server.client().await;
        let length = BODY.len();
        let head = format!("POST /v1/peek HTTP/1.1\r\nHost: {host}\r\n{JSON}{fields}");
        client.send(format!("{head}Content-Length: {length}\r\n\r\n{BODY}")).await;
        assert_eq!(client.answer().await.unwrap().status, status, "{host} {fields}");
    }
}
