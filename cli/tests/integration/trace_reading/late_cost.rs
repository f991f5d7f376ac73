//! Tests the late cost, the part of the cost that is known only when the request ends.

use super::*;

/// The costs and late costs of the records.
#[derive(Default)]
struct Costs(Vec<(u64, u32)>);

impl Sink for Costs {
    type Error = Error;

    fn record(&mut self, record: Record, _: &Subjects) -> Result<(), Error> {
        self.0.push((record.cost, record.late_cost));
        Ok(())
    }

    fn restart(&mut self) {
        self.0.clear();
    }
}

fn late(cost: &str, late_cost: &[&str]) -> Options {
    let late_cost = late_cost.iter().map(|name| (*name).to_owned()).collect();
    Options { late_cost, ..costing_together(cost) }
}

fn costs(text: &str, options: &Options, order: Order) -> Vec<(u64, u32)> {
    let mut costs = Costs::default();
    let summary = replay_in_order(vec![bytes(text)], options, order, &mut costs).unwrap();
    assert_eq!(summary.first_malformed, []);
    costs.0
}

#[test]
fn every_format_has_a_late_cost() {
    let pattern = Options {
        pattern: Some(r"^(?<time>\S+) (?<in>\S+) (?<out>\S+)".parse().unwrap()),
        ..late("in", &["out"])
    };
    let log = "::1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let cases = [
        ("time,in,out\n2026-05-01 10:00:00,3,4\n", late("in", &["out"]), (7, 4)),
        ("time\tin\tout\n2026-05-01 10:00:00\t3\t4\n", late("in", &["out"]), (7, 4)),
        ("{\"time\":\"2026-05-01T10:00:00Z\",\"in\":3,\"out\":4}\n", late("in", &["out"]), (7, 4)),
        ("time=2026-05-01T10:00:00Z in=3 out=4\n", late("in", &["out"]), (7, 4)),
        ("2026-05-01T10:00:00Z 3 4\n", pattern, (7, 4)),
        ("#Fields: date time in out\n2026-05-01 10:00:00 3 4\n", late("in", &["out"]), (7, 4)),
        (log, late("1", &["bytes"]), (5, 5)),
        // If the cost is `1`, only the late cost counts. Several fields of the late cost are added.
        ("time,in,out\n2026-05-01 10:00:00,3,4\n", late("1", &["out"]), (4, 4)),
        ("time,in,out\n2026-05-01 10:00:00,3,4\n", late("1", &["in", "out"]), (7, 7)),
        ("time,in,out\n2026-05-01 10:00:00,3,4\n", late("in+out", &[]), (7, 0)),
    ];
    for (text, options, expected) in cases {
        assert_eq!(costs(text, &options, Order::File), [expected], "{text}");
    }
}

#[test]
fn it_stays_with_its_request_when_records_are_sorted() {
    let text = "time,in,out\n2026-05-01 10:00:02,3,4\n2026-05-01 10:00:03,30,40\n2026-05-01 10:00:00,1,2\n";
    assert_eq!(costs(text, &late("in", &["out"]), Order::Time), [(3, 2), (7, 4), (70, 40)]);
}

#[test]
fn one_that_is_too_large_or_missing_is_malformed() {
    let row = |out: &str| format!("time,in,out\n2026-05-01 10:00:00,3,{out}\n");
    let why = |text: &str, names: &[&str]| reason(text, &late("in", names));
    let too_much = "the cost `4294967296` of `out` brings the sum above 4294967295";
    assert_eq!(why(&row("4294967296"), &["out"]), too_much);
    let too_much = "the cost `4294967295` of `out` brings the sum above 4294967295";
    assert_eq!(why(&row("4294967295"), &["in", "out"]), too_much);
    assert_eq!(why(&row("-1"), &["out"]), "the cost `-1` of `out` is below 0");
    assert_eq!(why(&row(""), &["out"]), "the cost `` of `out` is not a number");
    let message = error(row("1"), &late("in", &["tokens"]));
    assert!(message.contains("`tokens` for the late cost"), "{message}");
}
