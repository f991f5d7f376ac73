//! The page in a terminal.

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::widgets::Paragraph;
use serde_json::json;
use tidegate_server::activity::WatchedStore;
use tidegate_server::top::{Client, State, lines};
use tidegate_server::v1::Login;

use super::*;

fn text(snapshot: &Value, width: usize) -> String {
    let lines = lines(snapshot, &State::Live, width);
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

#[tokio::test]
async fn it_shows_what_the_page_shows() {
    let mut watched = Watched::with_subjects();
    watched.ask("user", "alice", 5).await;
    watched.acquire("p: fixed-window 1/1d", "東京".as_bytes(), 3).await;
    assert!(watched.service.load(Ok(&files("domain: [")),).is_err());
    watched.second();
    let text = text(&watched.snapshot(), 100);
    for part in [
        "per second: 4.0 admitted, 4.0 refused, 0.0 not decided",
        "shop.user  policy: fixed-window 3/1d",
        "shop|user=alice  shop.user",
        "東京  p: fixed-window 1/1d",
        "3 limits in 1 domains of 1 files",
        "refused 0 s ago: shop.yaml:",
        "SLOWEST CALLS",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn an_empty_or_a_foreign_answer_is_no_panic() {
    for snapshot in
        [Value::Null, json!([]), json!({"limits": [1, null, {}], "stores": [{}], "slow_calls": {}})]
    {
        assert!(text(&snapshot, 80).contains("LIMITS"));
    }
}

#[test]
fn the_terminal_shows_lines_in_columns() {
    let snapshot = json!({
        "version": "1.2.3", "now_ms": 200_000, "started_ms": 0,
        "totals": {"admitted_per_second": 12345.0, "refused_per_second": 1.5, "failed_per_second": 0.0},
        "limits": [
            {"limit": "short", "admitted_per_second": 1.0, "refused_per_second": 2.0, "shadow_per_second": 0.0},
            {"limit": "a long one ".repeat(20), "admitted_per_second": 1.0, "refused_per_second": 2.0, "shadow_per_second": 0.0},
            {"limit": "漢字".repeat(40), "admitted_per_second": 1.0, "refused_per_second": 2.0, "shadow_per_second": 0.0},
        ],
        "stores": [{"url": "memory", "role": "store", "answers": true, "since_ms": 100_000, "probe_us": 12}],
    });
    let mut terminal = Terminal::new(TestBackend::new(60, 16)).unwrap();
    let lines = lines(&snapshot, &State::Stale("no \u{1b}answer".into()), 60);
    terminal.draw(|frame| frame.render_widget(Paragraph::new(lines), frame.area())).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..60).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    assert_eq!(row(0).trim_end(), "Tidegate 1.2.3, up for 3 min  stale: no \u{fffd}answer");
    // Numbers of all rows are below each other.
    for y in 4..7 {
        assert!(row(y).ends_with("       1.0       2.0       0.0"), "{:?}", row(y));
    }
    assert!(row(3).ends_with("  admitted   refused    shadow"), "{:?}", row(3));
    assert!(row(5).contains('…') && row(6).contains('…'));
}

proptest! {
    #[test]
    fn no_text_has_an_effect_on_the_terminal_or_is_wider_than_it(
        hostile in any::<String>(),
        width in 40..160_usize,
        number in any::<u64>(),
    ) {
        let snapshot = json!({
            "version": hostile, "now_ms": number, "started_ms": hostile,
            "limits": [{"limit": hostile, "policy": hostile, "admitted_per_second": number}],
            "refused_subjects": {"are_shown": true, "top": [{"subject": hostile, "tenant": hostile, "limit": hostile, "at_least": number}]},
            "stores": [{"url": hostile, "role": hostile, "answers": false, "error": hostile, "breaker": hostile}],
            "errors": [{"kind": hostile, "total": number}],
            "configuration": {"in_force": {"limits": number, "at_ms": number}, "refused": {"error": hostile, "at_ms": 0, "is_last": true}},
            "slow_calls": [{"protocol": hostile, "limit": hostile, "subject": hostile, "outcome": hostile, "took_us": number}],
        });
        for line in lines(&snapshot, &State::Stale(hostile), width) {
            prop_assert!(line.width() <= width, "{line:?}");
            for char in line.to_string().chars() {
                let is_visible = matches!(char, '"' | '\'' | '\\') || char.escape_debug().len() == 1;
                prop_assert!(is_visible, "{char:?}");
            }
        }
    }
}

#[tokio::test]
async fn the_client_reads_snapshots_with_a_login_and_says_what_went_wrong() {
    use tidegate_server::http::{HttpSettings, serve};
    use tidegate_server::page::routes;
    use tidegate_server::v1::Access;

    let login = Login { user: "ops".into(), password: "s3:cret".into() };
    let stores = vec![WatchedStore::new("store", "memory", Arc::new(MemoryStore::new()), None)];
    let activity = Arc::new(Activity::new(ActivitySettings::default(), stores, Instant::now()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let routes = routes(activity, Access::Login(login.clone()));
    tokio::spawn(serve(listener, routes, HttpSettings::default(), std::future::pending()));
    let client = Client::new(&url, Some(&login)).unwrap();
    assert_eq!(client.fetch().await.unwrap()["stores"][0]["url"], "memory");
    let error = Client::new(&url, None).unwrap().fetch().await.unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("a user and a password are needed"), "{error}");
    for wrong in ["", "127.0.0.1:6060", "https://a", "http://", "ftp://a", "http://a b"] {
        assert!(Client::new(wrong, None).is_err(), "{wrong}");
    }
    // A server that says nothing of what it should.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let other = axum::Router::new().route("/activity", axum::routing::get(|| async { "hello" }));
    tokio::spawn(serve(listener, other, HttpSettings::default(), std::future::pending()));
    assert!(Client::new(&url, None).unwrap().fetch().await.is_err());
}
