//! Tests with a real Redis and a real Prometheus. Prometheus fires an alert after Redis was
//! stopped, and resolves it after Redis is back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod application;
mod http;
mod prometheus;

use std::time::Duration;

use application::Application;
use prometheus::Prometheus;
use tidegate_test_servers::{Data, Redis};

const ALERT: &str = "TidegateStoreDown";

#[tokio::test]
async fn b44_when_redis_is_stopped_the_alert_fires_and_when_it_is_back_it_resolves() {
    let redis = Redis::start().await.unwrap();
    let application = Application::start(&redis.url()).await;
    let prometheus = Prometheus::start(application.port()).await;

    // While Redis is up, decisions are visible and no alert fires.
    let decided = "sum(irate(tidegate_decisions_total[10s])) > 0";
    prometheus.wait_until(Duration::from_secs(10), decided).await;
    assert_eq!(prometheus.alerts().await, []);

    redis.stop().await.unwrap();
    prometheus.wait_for_alert(Duration::from_secs(25), ALERT, "firing").await;
    // The application fails open, so no request was refused and no caller got an error.
    let (passed, others) = application.answers();
    assert!(passed > 0 && others == 0, "{others} requests did not pass");
    for said in [r#"reason="unavailable""#, r#"reason="circuit-open""#] {
        assert!(application.page().contains(said), "{said}");
    }
    let not_closed = r#"sum(tidegate_breaker_state{state=~"open|half-open"}) == 1"#;
    prometheus.wait_until(Duration::from_secs(5), not_closed).await;

    redis.restart(Data::Lost).await.unwrap();
    prometheus.wait_for_alert(Duration::from_secs(20), ALERT, "inactive").await;
    let closed = r#"tidegate_breaker_state{state="closed"} == 1"#;
    prometheus.wait_until(Duration::from_secs(10), closed).await;
    let healthy = "sum(irate(tidegate_degraded_total[10s])) == 0";
    prometheus.wait_until(Duration::from_secs(10), healthy).await;
}

#[tokio::test]
async fn the_page_that_is_scraped_has_only_what_the_table_lists() {
    let redis = Redis::start().await.unwrap();
    let application = Application::start(&redis.url()).await;
    application.wait_for_answers(10).await;
    let table = tidegate_ops::table();
    let series = tidegate_ops::series(&table);
    let page = application.page();
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("tidegate_")).collect();
    for line in &lines {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(series.contains(name), "{name} is not in the table");
    }
    assert!(lines.iter().any(|line| line.starts_with("tidegate_redis_script_seconds_bucket")));
    for row in table.iter().filter(|row| page.contains(&format!("# TYPE {} ", row.name))) {
        assert!(page.contains(&format!("# TYPE {} {}", row.name, row.kind)), "{}", row.name);
        assert!(page.contains(&format!("# HELP {} {}", row.name, row.help)), "{}", row.name);
    }
    assert!(!page.contains("alice"));
}
