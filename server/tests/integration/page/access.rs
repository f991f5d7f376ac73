//! Tests access to the page, and the restrictions for browsers.

use std::net::SocketAddr;

use tidegate_server::net::access::Access;
use tidegate_server::net::http::{HttpSettings, serve};
use tidegate_server::net::login::Login;
use tidegate_server::observe::page::routes;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::http::client::{Answer, Client};

async fn page(access: Access) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = routes(Watched::new().activity, access);
    tokio::spawn(serve(listener, routes, HttpSettings::default(), std::future::pending()));
    address
}

async fn ask(address: SocketAddr, method: &str, path: &str, host: &str, fields: &str) -> Answer {
    let mut client = Client::connect(address).await;
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")).await;
    client.answer().await.unwrap()
}

async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "127.0.0.1", "").await
}

fn has_fields(answer: &Answer) {
    let policy = answer.field("content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(answer.field(name), Some(value));
    }
}

#[tokio::test]
async fn the_page_and_its_parts_are_served_and_nothing_else_is() {
    let address = page(Access::Open).await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
        ("/activity", "application/json"),
    ] {
        let answer = get(address, path).await;
        assert_eq!((answer.status, answer.field("content-type")), (200, Some(kind)), "{path}");
        has_fields(&answer);
        // The content security policy of the page blocks inline styles, inline scripts, and
        // resources of other sites, so no file of the page may contain them.
        for part in ["http://", "https://", "style=", "onclick", "innerHTML", "<style"] {
            let body = answer.body.replace("http://www.w3.org/2000/svg", "");
            assert!(!body.contains(part), "{path} has {part}");
        }
        let mut client = Client::connect(address).await;
        client
            .send(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
            .await;
        let mut head = String::new();
        client.0.read_to_string(&mut head).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let answer = ask(address, method, path, "localhost", "Content-Length: 0\r\n").await;
            assert_eq!(answer.status, 405, "{method} {path}");
            has_fields(&answer);
        }
    }
    for path in ["/metrics", "/config", "/json", "/v1/acquire", "/activity/", "/..", "/page.html"] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, 404, "{path}");
        has_fields(&answer);
    }
    assert_eq!(get(address, "/activity?name=a&rows=1").await.status, 200);
    let unknown = get(address, "/activity?since=1").await;
    let expected = "a parameter is `since`; it must be name, sort, reversed or rows\n";
    assert_eq!((unknown.status, &*unknown.body), (400, expected));
}

#[tokio::test]
async fn without_a_password_no_other_name_leads_to_the_page() {
    let address = page(Access::Open).await;
    let port = address.port();
    for host in [
        format!("127.0.0.1:{port}"),
        "localhost".into(),
        format!("[::1]:{port}"),
        "10.0.0.7".into(),
    ] {
        assert_eq!(ask(address, "GET", "/activity", &host, "").await.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io", ""] {
        for path in ["/", "/activity", "/nothing"] {
            let answer = ask(address, "GET", path, host, "").await;
            assert_eq!(answer.status, 421, "{host} {path}");
            has_fields(&answer);
        }
    }
    let two = ask(address, "GET", "/activity", "127.0.0.1", "Host: evil.example\r\n").await;
    assert_ne!(two.status, 200);
}

#[tokio::test]
async fn with_a_password_nothing_is_shown_without_it() {
    let login = Login { user: "ops".into(), password: "s3cret".into() };
    let address = page(Access::Login(login)).await;
    for path in ["/", "/page.css", "/page.js", "/activity", "/nothing"] {
        for fields in
            ["", "Authorization: Basic b3BzOndyb25n\r\n", "Authorization: Bearer s3cret\r\n"]
        {
            let answer = ask(address, "GET", path, "127.0.0.1", fields).await;
            assert_eq!(answer.status, 401, "{path} {fields}");
            assert!(answer.field("www-authenticate").unwrap().starts_with("Basic realm="));
            // The server closes the connection after a wrong login, so that each guess costs a
            // connection.
            assert_eq!(answer.field("connection"), Some("close"));
            has_fields(&answer);
        }
    }
    // With a login, the page accepts any host name, because a page of another site does not know
    // the password.
    let login = "Authorization: Basic b3BzOnMzY3JldA==\r\n";
    for host in ["127.0.0.1", "limits.example"] {
        assert_eq!(ask(address, "GET", "/activity", host, login).await.status, 200);
    }
}

#[tokio::test]
async fn it_is_not_served_where_other_machines_would_reach_it_without_a_password() {
    let address = page(Access::Closed).await;
    for path in ["/", "/activity", "/page.js"] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("TIDEGATE_PAGE_PASSWORD"), "{answer:?}");
        has_fields(&answer);
    }
}
