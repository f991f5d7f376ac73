//! Tests the reader with a few lines in the format of each server.

use tidegate::trace::{ErrorKind, Format, Pattern};

use super::*;

/// 2026-05-01 10:00:00 UTC.
const TEN: u64 = 1_777_629_600_000_000;

/// Returns the format, the field of the subject, and the records of a text without malformed lines.
fn found(text: impl AsRef<[u8]>, options: &Options) -> (Format, String, Vec<(u64, String, u64)>) {
    let (kept, summary) = read(text, options).unwrap();
    assert_eq!(summary.first_malformed, []);
    let file = &summary.files[0];
    let subject = file.subject.clone().unwrap_or_default();
    (file.format.unwrap(), subject, kept.records)
}

/// Checks a text with two requests from different addresses, the first at ten o'clock and the
/// second a second later.
fn check(text: impl AsRef<[u8]>, format: Format, subject: &str) {
    let (is, by, records) = found(text, &Options::default());
    assert_eq!((is, by.as_str()), (format, subject));
    let records: Vec<_> = records
        .iter()
        .map(|(time, subject, _)| (time.saturating_sub(TEN) / 1_000_000, subject.as_str()))
        .collect();
    assert_eq!(records, [(0, "203.0.113.5"), (1, "2001:db8::5")]);
}

#[test]
fn iis() {
    let text = "#Software: Microsoft Internet Information Services 10.0\r\n\
        #Version: 1.0\r\n\
        #Date: 2026-05-01 10:00:00\r\n\
        #Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status sc-bytes time-taken\r\n\
        2026-05-01 10:00:00 10.0.0.4 GET /index.html - 443 - 203.0.113.5 Mozilla/5.0+(Windows+NT+10.0) - 200 0 0 5120 15\r\n\
        2026-05-01 10:00:01 10.0.0.4 GET /a.png - 443 CORP\\alice 2001:db8::5 Mozilla/5.0 https://example.com/ 304 0 0 100 2\r\n";
    check(text, Format::W3c, "c-ip");
    assert_eq!(found(text, &costing("bytes")).2[0].2, 5_120);
    let (kept, summary) = read(text, &by("user")).unwrap();
    assert_eq!((kept.records[0].1.as_str(), summary.without_subject), ("CORP\\alice", 1));
}

#[test]
fn iis_whose_fields_change_within_the_file() {
    let text = "#Fields: time c-ip\n\
        #Date: 2026-05-01 00:00:00\n\
        10:00:00 203.0.113.5\n\
        #Fields: c-ip date time sc-bytes\n\
        2001:db8::5 2026-05-01 10:00:01 7\n";
    check(text, Format::W3c, "c-ip");
    let short = format!("{text}2001:db8::5 2026-05-01\n");
    assert_eq!(reason(&short, &Options::default()), "2 values where #Fields has 4");
    let failed = read(format!("{text}#Fields: date time\n"), &Options::default()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UnknownSubject);
    assert!(failed.to_string().starts_with("input:6: no field is known"), "{failed}");
}

#[test]
fn cloudfront() {
    let text = "#Version: 1.0\n\
        #Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent)\n\
        2026-05-01\t10:00:00\tFRA50-C1\t761\t203.0.113.5\tGET\td111.cloudfront.net\t/view/my/file.html\t200\t-\tMozilla/5.0%20(Windows)\n\
        2026-05-01\t10:00:01\tFRA50-C1\t392\t2001:db8::5\tGET\td111.cloudfront.net\t/a.png\t200\twww.example.com/\tcurl/8\n";
    check(text, Format::W3c, "c-ip");
}

#[test]
fn aws_application_load_balancer() {
    let text = r#"https 2026-05-01T10:00:00.186641Z app/my-lb/50dc6c495c0c9188 203.0.113.5:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 34 366 "GET https://www.example.com:443/a?b=c HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:eu:1:targetgroup/t/73 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:eu:1:certificate/1" 1 2026-05-01T10:00:00.100000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
h2 2026-05-01T10:00:01.000001Z app/my-lb/50dc6c495c0c9188 2001:db8::5:2817 - -1 -1 -1 502 - 34 366 "- http://www.example.com:80- -" "-" - - arn:aws:x "Root=1" "-" "-" 0 2026-05-01T10:00:00.100000Z "forward" "-" "-" "-" "-" "-" "-"
"#;
    // The IPv6 address has no brackets, so the reader cannot separate the port from the address.
    let (format, by, records) = found(text, &costing("bytes"));
    assert_eq!((format, by.as_str()), (Format::Alb, "ip"));
    assert_eq!(records[0], (TEN + 186_641, "203.0.113.5".to_owned(), 366));
    assert_eq!(records.len(), 2);
    check(text.replace("2001:db8::5:2817", "[2001:db8::5]:2817"), Format::Alb, "ip");
}

#[test]
fn aws_classic_load_balancer() {
    check(
        r#"2026-05-01T10:00:00.945958Z my-lb 203.0.113.5:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -
2026-05-01T10:00:01.945958Z my-lb [2001:db8::5]:2817 10.0.0.1:80 0.001069 0.000028 0.000041 - - 82 305 "- - - " "-" - -
"#,
        Format::Elb,
        "ip",
    );
}

#[test]
fn haproxy() {
    check(
        r#"203.0.113.5:33317 [01/May/2026:10:00:00.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"
2001:db8::5:33318 [01/May/2026:10:00:01.655] http-in~ http-in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 2/2/0/0/0 0/0 "<BADREQ>"
"#,
        Format::HaProxy,
        "ip",
    );
    check(
        "203.0.113.5:57317 [01/May/2026:10:00:00.003] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0\n\
         2001:db8::5:57318 [01/May/2026:10:00:01.003] fnt bck/srv1 0/0/5007 +212 sD 0/0/0/0/3 0/0\n",
        Format::HaProxy,
        "ip",
    );
}

#[test]
fn envoy() {
    check(
        r#"[2026-05-01T10:00:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 203.0.113.5" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"
[2026-05-01T10:00:01.310Z] "GET / HTTP/1.1" 503 UF,URX 0 91 1 - "2001:db8::5" "curl/8" "cc21d9b0" "locations" "-"
"#,
        Format::Envoy,
        "forwarded",
    );
    check(
        r#"[2026-05-01T10:00:00.127Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/8" "84961386" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 203.0.113.5:46520 - default
[2026-05-01T10:00:01.127Z] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 135 3 1 "-" "curl/8" "84961386" "httpbin:8000" "10.44.1.27:80" inbound|8000|| 10.44.1.23:37652 10.0.45.184:8000 [2001:db8::5]:46520 - default
"#,
        Format::Envoy,
        "ip",
    );
}

/// Envoy does not escape the quotes in the header fields of a client.
#[test]
fn a_header_field_forges_no_address_in_logs_of_envoy() {
    for (good, forged, field) in [
        (
            r#"[2026-05-01T10:00:00.310Z] "GET / HTTP/2" 200 - 154 0 226 100 "203.0.113.5" "curl" "cc21" "locations" "10.0.2.1:80""#,
            r#"[2026-05-01T10:00:00.310Z] "GET / HTTP/2" 200 - 154 0 226 100 "198.51.100.7" "ua" "id" "auth" "up, 203.0.113.9" "curl" "cc21" "locations" "10.0.2.1:80""#,
            "forwarded",
        ),
        (
            r#"[2026-05-01T10:00:00.127Z] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 135 3 1 "-" "curl/8" "84" "httpbin" "10.44.1.27:80" out 10.44.1.23:37652 10.0.45.184:8000 203.0.113.5:46520 - default"#,
            r#"[2026-05-01T10:00:00.127Z] "GET / HTTP/1.1" 200 - via_upstream - "-" 0 135 3 1 "-" "x" "i" "a" "u" c l d 198.51.100.7 " "84" "httpbin" "10.44.1.27:80" out 10.44.1.23:37652 10.0.45.184:8000 203.0.113.5:46520 - default"#,
            "ip",
        ),
    ] {
        let text = format!("{good}\n{forged}\n{good}\n");
        let (kept, summary) = read(text, &by(field)).unwrap();
        let subjects: Vec<&str> = kept.records.iter().map(|record| &*record.1).collect();
        assert_eq!((subjects, summary.malformed), (vec!["203.0.113.5"; 2], 1));
    }
}

#[test]
fn logfmt() {
    let text = "time=2026-05-01T10:00:00Z level=info msg=\"a \\\"b\\\" c\" remote_ip=203.0.113.5:80 user=\"J. \\\"X\\\" Y\" bytes=12\n\
        level=info time=2026-05-01T10:00:01Z quiet msg= remote_ip=\"2001:db8::5\" user=- bytes=7\n";
    check(text, Format::Logfmt, "remote_ip");
    assert_eq!(found(text, &costing("bytes")).2[0].2, 12);
    assert_eq!(read(text, &by("user")).unwrap().0.records[0].1, "J. \"X\" Y");
    let missing = format!("{text}time=2026-05-01T10:00:01Z msg=x\n");
    assert_eq!(reason(missing, &Options::default()), "there is no field `remote_ip`");
}

#[test]
fn json_of_servers_and_clouds() {
    for (line, subject) in [
        (
            r#"{"ClientAddr":"203.0.113.5:51234","ClientHost":"203.0.113.5","ClientPort":"51234","RouterName":"web@docker","StartLocal":"2026-05-01T12:00:00.1+02:00","StartUTC":"2026-05-01T10:00:00.1Z","level":"info","msg":"","time":"2026-05-01T10:00:09Z"}"#,
            "ClientHost",
        ),
        (
            r#"{"httpRequest":{"requestMethod":"GET","remoteIp":"203.0.113.5","serverIp":"10.0.0.1","status":200},"insertId":"1","resource":{"type":"http_load_balancer"},"timestamp":"2026-05-01T10:00:00.123Z","receiveTimestamp":"2026-05-01T10:00:09Z"}"#,
            "httpRequest.remoteIp",
        ),
        (
            r#"{"ClientIP":"203.0.113.5","ClientRequestHost":"example.com","EdgeEndTimestamp":"2026-05-01T10:00:05Z","EdgeResponseBytes":69045,"EdgeStartTimestamp":"2026-05-01T10:00:00Z","RayID":"3a6050bcbe121a87"}"#,
            "ClientIP",
        ),
        (
            r#"{"timestamp":1777629600000,"formatVersion":1,"action":"ALLOW","httpRequest":{"clientIp":"203.0.113.5","country":"DE","headers":[{"name":"Host","value":"example.com"}],"uri":"/"}}"#,
            "httpRequest.clientIp",
        ),
        (
            r#"{"requestId":"1","ip":"203.0.113.5","caller":"-","user":"-","requestTime":"01/May/2026:10:00:00 +0000","httpMethod":"GET","status":"200","responseLength":"12"}"#,
            "ip",
        ),
        (
            r#"{"start_time":"2026-05-01T10:00:00.310Z","method":"GET","downstream_remote_address":"203.0.113.5:40912","upstream_host":"10.0.0.1:80","x_forwarded_for":null}"#,
            "downstream_remote_address",
        ),
        (
            r#"{"level":"info","ts":1777629600.1,"request":{"remote_ip":"10.0.0.9","remote_port":"1","client_ip":"203.0.113.5","proto":"HTTP/2.0"},"status":200}"#,
            "request.client_ip",
        ),
        (
            r#"{"level":30,"time":1777629600000,"hostname":"web-1","req":{"id":1,"method":"GET","remoteAddress":"203.0.113.5","remotePort":1}}"#,
            "req.remoteAddress",
        ),
        (
            r#"{"time":"2026-05-01T10:00:00Z","host":"www.example.com","properties":{"clientIp":"203.0.113.5:51234"}}"#,
            "properties.clientIp",
        ),
        (
            r#"{"time":"2026-05-01T10:00:00Z","host":"web-1","http_x_forwarded_for":"10.1.1.1, 203.0.113.5"}"#,
            "http_x_forwarded_for",
        ),
    ] {
        let (format, by, records) = found(line, &Options::default());
        assert_eq!((format, by.as_str()), (Format::JsonLines, subject), "{line}");
        assert_eq!(records[0].1, "203.0.113.5", "{line}");
        assert_eq!(records[0].0 / 1_000_000, TEN / 1_000_000, "{line}");
    }
}

/// HAProxy writes the fields of `option httplog` as JSON if its configuration has `log-format
/// "%{+json}o %(client_ip)ci … %(request_date)tr …"`.
#[test]
fn haproxy_as_json() {
    check(
        r#"{"client_ip":"203.0.113.5","client_port":33317,"request_date":"01/May/2026:10:00:00.655","fe_name_transport":"http-in","be_name":"static","server_name":"srv1","time_request":10,"status_code":200,"bytes_read":2750,"captured_request_cookie":null,"actconn":1,"srv_queue":0,"request_line":"GET /index.html HTTP/1.1"}
{"client_ip":"2001:db8::5","client_port":33318,"request_date":"01/May/2026:10:00:01.655","fe_name_transport":"http-in~","be_name":"http-in","server_name":"<NOSRV>","time_request":-1,"status_code":400,"bytes_read":0,"captured_request_cookie":null,"actconn":2,"srv_queue":0,"request_line":"<BADREQ>"}
"#,
        Format::JsonLines,
        "client_ip",
    );
    let tcp = r#"{"client_ip":"203.0.113.5","client_port":57317,"accept_date":"01/May/2026:10:00:00.003","frontend":"fnt"}"#;
    assert_eq!(records(tcp, &Options::default())[0].0, TEN + 3_000);
}

/// CloudTrail writes each file as one line. A log can consist of several concatenated files.
#[test]
fn aws_cloudtrail() {
    const FIRST: &str = r#"{"eventVersion":"1.08","userIdentity":{"type":"IAMUser","arn":"arn:aws:iam::1:user/alice","userName":"alice","sessionContext":{"attributes":{"creationDate":"2026-05-01T09:00:00Z"}}},"eventTime":"2026-05-01T10:00:00Z","eventSource":"ec2.amazonaws.com","eventName":"DescribeInstances","awsRegion":"eu-central-1","sourceIPAddress":"203.0.113.5","userAgent":"aws-cli/2.15 {x} [y]","requestParameters":{"filterSet":{"items":[{"name":"tag:Name"}]}},"responseElements":null,"eventID":"1"}"#;
    const SECOND: &str = r#"{"eventVersion":"1.08","userIdentity":{"type":"AssumedRole"},"eventTime":"2026-05-01T10:00:01Z","eventSource":"s3.amazonaws.com","eventName":"GetObject","sourceIPAddress":"2001:db8::5","userAgent":"[aws-sdk]","requestParameters":null,"eventID":"2"}"#;
    for text in [
        format!("{{\"Records\":[{FIRST},{SECOND}]}}"),
        format!("{{\"Records\": [\n  {FIRST},\n  {SECOND}\n]}}\n"),
        format!("{{\"Records\":[{FIRST}]}}{{\"Records\":[{SECOND}]}}\n"),
        format!("{{\"Records\":[{FIRST}]}}\n{{\"Records\":[]}}\n{{\"Records\":[{SECOND}]}}\n"),
    ] {
        check(&text, Format::JsonLines, "sourceIPAddress");
    }
    let by_user = records(format!("{{\"Records\":[{FIRST}]}}"), &by("userIdentity.userName"));
    assert_eq!(by_user[0].1, "alice");
}

/// Azure writes diagnostic logs in this format to files in a storage account.
#[test]
fn azure_records() {
    let text = r#"{"records":[{"time":"2026-05-01T10:00:00.1Z","resourceId":"/x","properties":{"clientIP":"203.0.113.5","clientPort":1}},{"time":"2026-05-01T10:00:01Z","resourceId":"/x","properties":{"clientIP":"2001:db8::5","clientPort":2}}]}"#;
    check(text, Format::JsonLines, "properties.clientIP");
}

#[test]
fn json_without_a_known_subject_says_what_there_is() {
    let line = r#"{"time":"2026-05-01T10:00:00Z","host":"web-1","api_key":"k"}"#;
    let failed = read(line, &Options::default()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UnknownSubject);
    let message = failed.to_string();
    assert!(message.contains("the fields are `api_key`, `host`, `time`"), "{message}");
    assert_eq!(records(line, &by("api_key"))[0].1, "k");
    assert_eq!(records(line, &by("all"))[0].1, "all");
}

const OBJECTS: [&str; 2] = [
    r#"{"time": "2026-05-01T10:00:00Z", "ip": "203.0.113.5", "tags": ["a,b", {"x": "]}"}]}"#,
    r#"{"time": "2026-05-01T10:00:01Z", "ip": "2001:db8::5", "tags": []}"#,
];

#[test]
fn json_in_an_array_and_over_several_lines() {
    let [first, second] = OBJECTS;
    let spread = |object: &str| object.replace(", ", ",\n  ").replace('{', "{\n  ");
    for text in [
        format!("[{first},{second}]"),
        format!("[\n  {first},\r\n  {second}\n]\n"),
        format!("\u{feff}[{first}\n,{second}]\n"),
        format!("[{},{}]", spread(first), spread(second)),
        format!("{}\n{}\n", spread(first), spread(second)),
    ] {
        check(&text, Format::JsonLines, "ip");
    }
    let many = format!("[{}{second}]", format!("{first},").repeat(10_000));
    assert_eq!(records(many, &Options::default()).len(), 10_001);
}

#[test]
fn utf_16_with_a_byte_order_mark() {
    let text = format!("\u{feff}{}\r\n{}\r\n", OBJECTS[0], OBJECTS[1]);
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    check(little, Format::JsonLines, "ip");
    check(big, Format::JsonLines, "ip");
    let array: Vec<u8> = format!("\u{feff}[{},{}]", OBJECTS[0], OBJECTS[1])
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    check(array, Format::JsonLines, "ip");
}

fn pattern(text: &str) -> Options {
    Options { pattern: Some(text.parse().unwrap()), ..Options::default() }
}

#[test]
fn anything_else_is_read_by_a_pattern() {
    let text = "at 2026-05-01T10:00:00Z, took 5ms: 203.0.113.5:80 (alice) 17 tokens\r\n\
        \n\
        at 2026-05-01T10:00:01Z, took 9ms: [2001:db8::5]:80 (-) 4 tokens\n";
    let options = pattern(
        r"^at (?<time>\S+), took (?<took>\d+)ms: (?<ip>\S+) \((?<user>[^)]*)\) (?<cost>\d+)",
    );
    let (format, by, records) = found(text, &options);
    assert_eq!((format, by.as_str()), (Format::Pattern, "ip"));
    assert_eq!(records[0], (TEN, "203.0.113.5".into(), 17));
    assert_eq!(records[1], (TEN + 1_000_000, "2001:db8::5".into(), 4));
    let took = Options { cost: "took".parse().unwrap(), ..options.clone() };
    assert_eq!(found(text, &took).2[1].2, 9);
    let users = Options { by: "user".parse().unwrap(), ..options.clone() };
    assert_eq!(read(text, &users).unwrap().1.without_subject, 1);
    let other = format!("{text}something else\n");
    assert_eq!(reason(other, &options), "the line does not fit the pattern");
    let named = pattern(r"^at (?<time>[^,]+), (?<subject>.*?):");
    assert_eq!(found(text, &named).2[0].1, "took 5ms");
}

#[test]
fn a_pattern_must_name_what_is_needed() {
    let text = "2026-05-01T10:00:00Z 203.0.113.5\n";
    assert!("(".parse::<Pattern>().is_err());
    assert!(".*".parse::<Pattern>().unwrap_err().to_string().contains("named groups"));
    assert!(error(text, &pattern("(?<ip>.*)")).contains("for the time"));
    assert!(error(text, &pattern("(?<time>.*)")).contains("--by all"));
}

#[test]
fn a_format_that_is_named_is_read_as_that() {
    let options = Options { format: Some(Format::HaProxy), ..Options::default() };
    let text = "203.0.113.5 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let (kept, summary) = read(text, &options).unwrap();
    assert_eq!((kept.records.len(), summary.malformed), (0, 1));
    let options = Options { format: Some(Format::W3c), ..Options::default() };
    assert!(error(text, &options).contains("`#Fields`"));
}
