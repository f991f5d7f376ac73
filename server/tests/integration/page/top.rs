//! The page in a terminal.

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::widgets::Paragraph;
use serde_json::json;
use tidegate_server::net::login::Login;
use tidegate_server::observe::activity::WatchedStore;
use tidegate_server::observe::top::{Client, State, TopTls, lines};

use super::*;

fn text(snapshot: &Value, width: usize) -> String {
    let lines = lines(snapshot, &State::Live, Some(width));
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
    let lines = lines(&snapshot, &State::Stale("no \u{1b}answer".into()), Some(60));
    terminal.draw(|frame| frame.render_widget(Paragraph::new(lines), frame.area())).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..60).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    assert_eq!(row(0).trim_end(), "Tidegate 1.2.3, up for 3 min  stale: no \u{fffd}answer");
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
            "version": hostile, "now_ms": number, "started_ms": hostile, "problems": [hostile],
            "limits": [{"limit": hostile, "policy": hostile, "admitted_per_second": number}],
            "refused_subjects": {"are_shown": true, "top": [{"subject": hostile, "tenant": hostile, "limit": hostile, "at_least": number}]},
            "stores": [{"url": hostile, "role": hostile, "answers": false, "error": hostile, "breaker": hostile}],
            "errors": [{"kind": hostile, "total": number}],
            "configuration": {"in_force": {"limits": number, "at_ms": number}, "refused": {"error": hostile, "at_ms": 0, "is_last": true}},
            "slow_calls": [{"protocol": hostile, "limit": hostile, "subject": hostile, "outcome": hostile, "took_us": number}],
        });
        for line in lines(&snapshot, &State::Stale(hostile), Some(width)) {
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
    use tidegate_server::net::access::Access;
    use tidegate_server::net::http::{HttpSettings, serve};
    use tidegate_server::observe::page::routes;

    let login = Login { user: "ops".into(), password: "s3:cret".into() };
    let stores = vec![WatchedStore::new("store", "memory", Arc::new(MemoryStore::new()), None)];
    let activity = Arc::new(Activity::new(ActivitySettings::default(), stores, Instant::now()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let routes = routes(activity, Access::Login(login.clone()));
    tokio::spawn(serve(listener, routes, HttpSettings::default(), std::future::pending()));
    let client = Client::new(&url, Some(&login), &TopTls::default()).unwrap();
    assert_eq!(client.fetch().await.unwrap()["stores"][0]["url"], "memory");
    let error =
        Client::new(&url, None, &TopTls::default()).unwrap().fetch().await.unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("a user and a password are needed"), "{error}");
    for wrong in ["", "127.0.0.1:6060", "https://", "http://", "ftp://a", "http://a b"] {
        assert!(Client::new(wrong, None, &TopTls::default()).is_err(), "{wrong}");
    }
    // The answer of this server is not a snapshot, so `fetch` returns an error.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let other = axum::Router::new().route("/activity", axum::routing::get(|| async { "hello" }));
    tokio::spawn(serve(listener, other, HttpSettings::default(), std::future::pending()));
    assert!(Client::new(&url, None, &TopTls::default()).unwrap().fetch().await.is_err());
}

/// Returns a snapshot with a value in each field.
fn full() -> Value {
    let at = |seconds: u64| 1_000_000_000 - seconds * 1_000;
    json!({
        "version": "1.2.3", "now_ms": at(0), "started_ms": at(3 * 86_400),
        "problems": ["The store redis://a (store) does not answer: down"],
        "totals": {"admitted_per_second": 10.4, "refused_per_second": 9.9, "failed_per_second": 0.3},
        "limits": [{
            "limit": "d.a", "policy": null, "admitted_per_second": 1.0, "refused_per_second": 2.0,
            "shadow_per_second": 3.0,
        }],
        "other_limits": {
            "count": 1234, "admitted_per_second": 4.0, "refused_per_second": 5.0, "shadow_per_second": 6.0,
        },
        "refused_subjects": {"are_shown": true, "top": [{
            "subject": "s", "tenant": "t", "limit": "d.a", "at_least": 1_234, "at_most": 1_234_567,
            "blocked_until_ms": at(0) + 240_000, "block_level": 2,
        }]},
        "near_subjects": {"are_shown": true, "percent": 80, "count": 2_345, "is_complete": false, "top": [
            {"subject": "s", "tenant": "t", "limit": "d.a", "used": 1_999, "of": 2_000},
        ]},
        "warnings": [{"at_ms": at(5), "limit": "plan: x", "subject": "s", "remaining": 1_234}],
        "bans": [
            {"at_ms": at(1), "protocol": "v1", "limit": "p", "subject": "s", "until_ms": null, "reason": null},
            {"at_ms": at(9), "protocol": "resp", "limit": "p", "subject": "s", "until_ms": at(0) + 7_200_000, "reason": "why"},
            {"at_ms": at(99), "protocol": "v1", "limit": "p", "subject": null, "until_ms": at(3), "reason": "old"},
        ],
        "stores": [{
            "url": "redis://a", "role": "store", "answers": false, "since_ms": at(7_200), "error": "down",
            "breaker": "open", "probe_us": null,
        }],
        "errors": [{"kind": "timeout", "per_second": 0.5, "total": 12_345}],
        "configuration": {
            "loads": 3,
            "in_force": {
                "at_ms": at(119), "limits": 5, "domains": {"count": 2}, "files": {"count": 4},
            },
            "refused": {"at_ms": at(120), "error": "bad", "is_last": true},
            "limit_set_version": 1_234,
        },
        "slow_calls": [
            {"at_ms": at(1), "took_us": 2_345_678, "protocol": "v1", "limit": "d.a", "subject": "s", "outcome": "refused"},
            {"at_ms": at(1), "took_us": 12_345, "protocol": "v1", "limit": null, "subject": null, "outcome": "timeout"},
            {"at_ms": at(1), "took_us": 999, "protocol": "v1", "limit": "d.a", "subject": "", "outcome": "admitted"},
        ],
    })
}

#[test]
fn each_field_of_a_snapshot_has_its_place_and_unit() {
    let expected = [
        "Tidegate 1.2.3, up for 3 days  live",
        "! The store redis://a (store) does not answer: down",
        "per second: 10 admitted, 9.9 refused, 0.3 not decided",
        "",
        "LIMITS, PER SECOND                                admitted   refused    shadow",
        "d.a                                                    1.0       2.0       3.0",
        "1234 others                                            4.0       5.0       6.0",
        "",
        "SUBJECTS REFUSED MOST, IN THIS AND THE PREVIOUS MINUTE      at least   at most",
        "s  tenant t  d.a                                               1,234 1,234,567",
        "  blocked for 4 min, level 2",
        "",
        "SUBJECTS AT 80 % OF A LIMIT OR MORE: MORE THAN 2,345            used        of",
        "s  tenant t  d.a                                               1,999     2,000",
        "",
        "LAST WARNINGS                                                        remaining",
        "5 s ago  plan: x  s                                                      1,234",
        "",
        "LAST BANS                                                              blocked",
        "1 s ago  v1  p  s                                                     unbanned",
        "9 s ago  resp  p  s  why                                               for 2 h",
        "99 s ago  v1  p    old                                                    over",
        "",
        "STORES                                                       breaker    answer",
        "redis://a (store)                                               open         –",
        "  no answer for 2 h: down",
        "  timeout: 0.5 per second, 12,345 since the start",
        "",
        "CONFIGURATION",
        "5 limits in 2 domains of 4 files, in force for 119 s; changed 2 times",
        "refused 2 min ago: bad",
        "version 1,234 of the limit set",
        "",
        "SLOWEST CALLS IN THIS AND THE PREVIOUS MINUTE                outcome      took",
        "1 s ago  v1  d.a  s                                          refused     2.3 s",
        "1 s ago  v1  (no limit)                                      timeout   12.3 ms",
        "1 s ago  v1  d.a                                            admitted    999 µs",
    ];
    let shown = text(&full(), 78);
    let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
    assert_eq!(shown, expected, "{shown:#?}");
}

#[test]
fn what_is_wrong_is_red_and_what_is_not_is_not() {
    use ratatui::style::Color;

    let red = |snapshot: &Value| {
        let lines = lines(snapshot, &State::Live, Some(78));
        let spans = lines.iter().flat_map(|line| &line.spans);
        let red = spans.filter(|span| span.style.fg == Some(Color::Red));
        red.map(|span| span.content.trim().to_owned()).collect::<Vec<_>>()
    };
    let mut snapshot = full();
    let problem = "! The store redis://a (store) does not answer: down";
    let all = [problem, "2.0", "open", "no answer for 2 h: down", "refused 2 min ago: bad"];
    assert_eq!(red(&snapshot), all);
    snapshot["problems"] = json!([]);
    snapshot["limits"][0]["refused_per_second"] = json!(0.0);
    snapshot["stores"][0]["breaker"] = json!("closed");
    snapshot["stores"][0]["answers"] = json!(true);
    snapshot["configuration"]["refused"]["is_last"] = json!(false);
    assert_eq!(red(&snapshot), [""; 0]);
    let hidden = json!({"refused_subjects": {"are_shown": false, "top": [{"subject": "s"}]}});
    assert!(text(&hidden, 78).contains("(hidden)"));
    // Beyond its maximum of limits, the server knows only the sum of the rates, so the row can have
    // a rate and a count of 0.
    let other = json!({"other_limits": {"count": 0, "refused_per_second": 0.5}});
    assert!(text(&other, 78).contains("0.5"));
    assert!(text(&json!({"other_limits": {"count": 3}}), 78).contains("3 others"));
    assert!(!text(&json!({"other_limits": {"count": 0}}), 78).contains("others"));
}

#[test]
fn a_long_cell_widens_its_column_and_cuts_no_other() {
    let mut snapshot = full();
    snapshot["slow_calls"][1]["outcome"] = json!("unsupported-server");
    let shown = text(&snapshot, 60);
    let rows: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("SLOWEST")).collect();
    let expected = [
        "SLOWEST CALLS IN THIS AND THE…             outcome      took",
        "1 s ago  v1  d.a  s                        refused     2.3 s",
        "1 s ago  v1  (no limit)         unsupported-server   12.3 ms",
        "1 s ago  v1  d.a                          admitted    999 µs",
    ];
    assert_eq!(rows, expected, "{shown}");
}

#[test]
fn without_a_width_no_name_is_cut() {
    let (policy, error) = ("sliding-log ".repeat(20), "bad ".repeat(80));
    let mut snapshot = full();
    snapshot["limits"][0]["policy"] = json!(policy.trim());
    snapshot["configuration"]["refused"]["error"] = json!(error.trim());
    let lines = lines(&snapshot, &State::Once, None);
    let shown: String = lines.iter().map(|line| line.to_string() + "\n").collect();
    assert!(!shown.contains('…'), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("d.a  sliding-log")).unwrap();
    let expected = format!("d.a  {}        1.0       2.0       3.0", policy.trim());
    assert_eq!(row, expected);
    assert!(shown.contains(error.trim()), "{shown}");
}

async fn answering(routes: axum::Router) -> std::net::SocketAddr {
    use tidegate_server::net::http::{HttpSettings, serve};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, routes, HttpSettings::default(), std::future::pending()));
    address
}

#[tokio::test]
async fn the_client_asks_for_the_address_without_the_login_of_the_url() {
    use axum::http::HeaderMap;
    use axum::routing::get;

    let host =
        get(|fields: HeaderMap| async move { json!(fields["host"].to_str().unwrap()).to_string() });
    let address = answering(axum::Router::new().route("/activity", host)).await;
    let client =
        Client::new(&format!("http://user:S3CRET@{address}"), None, &TopTls::default()).unwrap();
    assert_eq!(client.fetch().await.unwrap(), json!(address.to_string()));
    let address = answering(axum::Router::new()).await;
    let client =
        Client::new(&format!("http://user:S3CRET@{address}"), None, &TopTls::default()).unwrap();
    let error = client.fetch().await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("http://{address}: 404")), "{error}");
}

#[tokio::test]
async fn the_client_takes_no_answer_without_a_bound_and_shows_no_hostile_error() {
    use axum::http::StatusCode;
    use axum::routing::get;

    let large = get(|| async { format!("\"{}\"", "x".repeat(9 << 20)) });
    let address = answering(axum::Router::new().route("/activity", large)).await;
    let client = Client::new(&format!("http://{address}"), None, &TopTls::default()).unwrap();
    let error = client.fetch().await.unwrap_err().to_string();
    assert!(error.contains("limit"), "{error}");
    let hostile = get(|| async { (StatusCode::FORBIDDEN, "\u{1b}]0;title\u{7}\u{202e}") });
    let address = answering(axum::Router::new().route("/activity", hostile)).await;
    let client = Client::new(&format!("http://{address}"), None, &TopTls::default()).unwrap();
    let error = client.fetch().await.unwrap_err().to_string();
    assert!(error.ends_with("403 Forbidden: \u{fffd}]0;title\u{fffd}\u{fffd}"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_client_waits_four_seconds_for_an_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let start = tokio::time::Instant::now();
    let error =
        Client::new(&url, None, &TopTls::default()).unwrap().fetch().await.unwrap_err().to_string();
    assert!(error.ends_with("no answer within 4s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}
