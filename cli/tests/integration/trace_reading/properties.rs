use std::fs;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

/// The fields of a line of an access log.
#[derive(Clone, Debug)]
struct Line {
    second: i64,
    zone_minutes: i32,
    subject: usize,
    request: String,
    bytes: Option<u64>,
}

fn line() -> impl Strategy<Value = Line> {
    let request = "[ -!#-\\[\\]-~]{0,30}(\\\\\"|\\\\\\\\)?[ -!#-\\[\\]-~]{0,10}";
    (0_i64..4_000_000_000, -839..840, 0_usize..6, request, prop::option::of(0_u64..1 << 40))
        .prop_map(|(second, zone_minutes, subject, request, bytes)| Line {
            second,
            zone_minutes,
            subject,
            request,
            bytes,
        })
}

const SUBJECTS: [&str; 6] =
    ["192.0.2.1", "2001:db8::1", "::1", "host.example.com", "[2001:db8::2]", "198.51.100.255"];

impl Line {
    fn print(&self) -> String {
        let local =
            Timestamp::from_second(self.second + i64::from(self.zone_minutes) * 60).unwrap();
        let time = local.strftime("%d/%b/%Y:%H:%M:%S").to_string();
        let sign = if self.zone_minutes < 0 { '-' } else { '+' };
        let (hours, minutes) = (self.zone_minutes.abs() / 60, self.zone_minutes.abs() % 60);
        let bytes = self.bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let (subject, request) = (SUBJECTS[self.subject], &self.request);
        format!(
            "{subject} - - [{time} {sign}{hours:02}{minutes:02}] \"{request}\" 200 {bytes} \"-\" \"x\"\n"
        )
    }

    fn record(&self) -> (u64, String, u64) {
        let time = u64::try_from(self.second).unwrap() * 1_000_000;
        (time, SUBJECTS[self.subject].trim_matches(['[', ']']).to_owned(), self.bytes.unwrap_or(0))
    }
}

fn replay(inputs: Vec<Input>, order: Order) -> Kept {
    let mut kept = Kept::default();
    let summary = replay_in_order(inputs, &costing("bytes"), order, &mut kept).unwrap();
    assert_eq!(summary.first_malformed, []);
    kept
}

proptest! {
    #[test]
    fn printed_lines_are_read_back(lines in prop::collection::vec(line(), 1..40)) {
        let text: String = lines.iter().map(Line::print).collect();
        let mut wanted: Vec<_> = lines.iter().map(Line::record).collect();
        let mut clock = 0;
        for record in &mut wanted {
            clock = clock.max(record.0);
            record.0 = clock;
        }
        prop_assert_eq!(replay(vec![bytes(&text)], Order::File).records, wanted);
    }

    #[test]
    fn every_way_to_the_order_of_time_is_a_naive_stable_sort(
        lines in prop::collection::vec(line(), 1..60),
        seconds in prop_oneof![Just(4), Just(4_000_000_000_i64)],
        sorted_up_to in 0_usize..60,
        cut in 0_usize..60,
    ) {
        let mut lines = lines;
        lines.iter_mut().for_each(|line| line.second %= seconds);
        let ordered = sorted_up_to.min(lines.len());
        lines[..ordered].sort_by_key(|line| line.second);
        let text = |lines: &[Line]| lines.iter().map(Line::print).collect::<String>();
        let (first, second) = lines.split_at(cut.min(lines.len()));
        let mut wanted: Vec<_> = lines.iter().map(Line::record).collect();
        wanted.sort_by_key(|record| record.0);

        let spooled = replay(vec![bytes(text(&lines))], Order::Time);
        prop_assert_eq!(&spooled.records, &wanted);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, text(first)).unwrap();
        let reopened = directory.path().join("more");
        fs::write(&reopened, text(second)).unwrap();
        let files = vec![Input::from_arg(&path), Input::from_arg(&reopened)];
        prop_assert_eq!(&replay(files, Order::Time), &spooled);
        let mixed = vec![Input::from_arg(&path), bytes(text(second))];
        prop_assert_eq!(&replay(mixed, Order::Time), &spooled);
    }

    #[test]
    fn no_bytes_make_it_panic(
        head in prop_oneof![
            Just(""), Just("{\"ts\":1431857103,\"ip\":\"x\"}\n"), Just("time,ip,bytes\n"), Just("time\tip\n"),
            Just("::1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n"), Just("\x1f\u{8b}"),
            Just("#Fields: date time c-ip\n"), Just("time=2015-05-17 ip=::1 bytes=5\n"), Just("[{"), Just("{\n"),
            Just("2015-05-17T10:05:03Z stdout P "), Just("web-1 | "), Just("May 17 10:05:03 host app: "),
            Just("<1>1 2015-05-17T10:05:03Z h a p - - "), Just("{\"log\":\""),
        ],
        rest in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(&b"\"\\,\t\n\r[]{}:/-+.eZ 0123456789"[..])],
            0..300,
        ),
        by_user in any::<bool>(),
        bytes_cost in any::<bool>(),
    ) {
        let mut text = head.as_bytes().to_vec();
        text.extend(rest);
        let mut options = if bytes_cost { costing("bytes") } else { Options::default() };
        if by_user {
            options.by = By::User;
        }
        let _ = read(&text, &options);
        for format in
            ["log", "json", "csv", "tsv", "w3c", "alb", "elb", "haproxy", "envoy", "logfmt"]
        {
            let options = Options { format: Some(format.parse().unwrap()), ..options.clone() };
            let mut kept = Kept::default();
            if let Ok(summary) = replay_in_order(vec![bytes(&text)], &options, Order::Time, &mut kept) {
                assert!(kept.records.is_sorted_by_key(|record| record.0));
                assert_eq!(summary.records, kept.records.len() as u64);
            }
        }
    }

    #[test]
    fn damaged_times_never_panic(
        time in prop_oneof![
            "[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2}[.]?[0-9]{0,9} [+-][0-9]{4}",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?([.][0-9]{0,12})?(Z|[+-][0-9:]{2,5})?",
            "[-+]?[0-9]{0,40}[.]?[0-9]{0,40}([eE][-+]?[0-9]{1,4})?",
            "\\PC{0,30}",
        ],
    ) {
        let options = Options { time_unit: Some("ms".parse().unwrap()), ..together() };
        let _ = read(format!("time;x\n{time};\n"), &options);
        let _ = read(format!("::1 - - [{time}] \"-\" 200 5\n"), &options);
    }
}
