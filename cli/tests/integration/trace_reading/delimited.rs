use tidegate::trace::{ErrorKind, Format};

use super::*;

#[test]
fn tokens_of_two_fields_add_up() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n";
    let found = records(text, &costing_together("ContextTokens+GeneratedTokens"));
    assert_eq!(found, [(1_700_158_623_979_960, "all".into(), 4818)]);
}

#[test]
fn the_delimiter_is_found_and_a_byte_order_mark_passed_over() {
    for (mark, delimiter, format) in
        [("", ",", Format::Csv), ("\u{feff}", ";", Format::Csv), ("\u{feff}", "\t", Format::Tsv)]
    {
        let text = format!("{mark}time{delimiter}ip\n2015-05-17{delimiter}::1\n");
        let (kept, summary) = read(text, &Options::default()).unwrap();
        assert_eq!(kept.records, [(1_431_820_800_000_000, "::1".into(), 1)]);
        assert_eq!(summary.files[0].format, Some(format));
    }
}

#[test]
fn quoted_fields_hold_anything() {
    let text = "time,\"who, \"\"really\"\"\",n\n\
        2015-05-17,\"a,\"\"b\"\"\nc\",1\n\
        2015-05-17,x\"y,\"2\"\n\
        \n\
        2015-05-17,\"\",3\n\
        2015-05-17,\"a\"b,4";
    let options = Options { cost: "n".parse().unwrap(), ..by("who, \"really\"") };
    // A field with an empty text in quotes is not a subject.
    let (kept, summary) = read(text, &options).unwrap();
    assert_eq!((summary.malformed, summary.without_subject), (0, 1));
    let found: Vec<_> = kept.records.iter().map(|record| (record.1.as_str(), record.2)).collect();
    assert_eq!(found, [("a,\"b\"\nc", 1), ("x\"y", 2), ("ab", 4)]);
}

#[test]
fn a_header_may_hold_newlines_and_be_of_one_field() {
    let text = "\n\"time\",\"a\nb\"\n2015-05-17,5\n";
    assert_eq!(records(text, &costing_together("a\nb"))[0].2, 5);
    assert_eq!(records("time\n2015-05-17\n", &together()).len(), 1);
}

#[test]
fn names_are_found_in_either_case_but_the_exact_one_first() {
    let text = "Time,IP,n,N\n2015-05-17,::1,1,2\n";
    assert_eq!(records(text, &costing("N"))[0], (1_431_820_800_000_000, "::1".into(), 2));
    assert_eq!(records(text, &by("Ip"))[0].1, "::1");
}

#[test]
fn a_field_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let text = "when,who\n2015-05-17,1\n";
    let time = || Some("when".to_owned());
    let failed =
        read(text, &Options { time: time(), ..costing_together("who+tokens") }).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UnknownField);
    assert_eq!(
        failed.to_string(),
        "input: there is no field `tokens` for the cost; the fields are `when`, `who`"
    );
    assert!(error(text, &Options::default()).contains("see --time"));
    for by in ["ip", "user"] {
        assert!(error(text, &Options { time: time(), ..super::by(by) }).contains("--by all"));
    }
    assert!(error(text, &Options { time: time(), ..by("x") }).contains("`x` for the subject"));
}

#[test]
fn costs_are_whole_and_bounded() {
    for (cost, wanted) in [
        ("1.5", "the cost `1.5` of `n` is not whole"),
        ("-1", "the cost `-1` of `n` is below 0"),
        ("", "the cost `` of `n` is not a number"),
        ("many", "the cost `many` of `n` is not a number"),
        (
            "4503599627370497",
            "the cost `4503599627370497` of `n` brings the sum above 4503599627370496",
        ),
        (
            "99999999999999999999",
            "the cost `99999999999999999999` of `n` is above 4503599627370496",
        ),
        ("1e40", "the cost `1e40` of `n` is above 4503599627370496"),
    ] {
        assert_eq!(reason(format!("time,n\n2015-05-17,{cost}\n"), &costing_together("n")), wanted);
    }
    let text = "time,n\n2015-05-17,4503599627370496\n2015-05-17, 7.000 \n2015-05-17,0\n";
    let costs: Vec<u64> =
        records(text, &costing_together("n")).iter().map(|record| record.2).collect();
    assert_eq!(costs, [4_503_599_627_370_496, 7, 0]);
    let text = "time,n\n2015-05-17,4503599627370496\n";
    assert!(reason(text, &costing_together("n+n")).contains("brings the sum above"));
}

#[test]
fn records_of_another_width_are_malformed_but_for_empty_fields_behind() {
    assert_eq!(reason("time,n\n2015-05-17\n", &by("n")), "1 fields where the header has 2");
    assert_eq!(reason("time,n\n2015-05-17,1,2\n", &by("n")), "3 fields where the header has 2");
    assert_eq!(records("time,n\n2015-05-17,1,,\n", &by("n"))[0].1, "1");
}

#[test]
fn a_quote_that_is_never_closed_costs_its_own_line_only() {
    let text = "time,n\n2015-05-17,\"1\n2015-05-17,2\n2015-05-17,3\n";
    let (kept, summary) = read(text, &by("n")).unwrap();
    assert_eq!(kept.records.len(), 2);
    assert_eq!(summary.first_malformed[0].line, 2);
    assert!(summary.first_malformed[0].reason.contains("is not closed"));

    let long = format!("time,n\n2015-05-17,\"1\n{}", "2015-05-17,2\n".repeat(200_000));
    let (kept, summary) = read(long, &by("n")).unwrap();
    assert_eq!((kept.records.len(), summary.malformed), (200_000, 1));
}

#[test]
fn the_line_number_is_that_of_the_file() {
    let text = "time,n\n2015-05-17,\"a\nb\nc\"\nbad\n";
    assert_eq!(read(text, &by("n")).unwrap().1.first_malformed[0].line, 5);
}

#[test]
fn a_header_that_fits_tells_the_format_whatever_the_fields_hold() {
    let line = r#"::9 - - [17/May/2015:10:05:03 +0000] ""GET / HTTP/1.1"" 200 5"#;
    let text = format!("line,time,ip\n\"{line}\",2015-05-17,::1\n{{\"a\":1}},2015-05-17,::2\n");
    let names: Vec<String> =
        records(text, &Options::default()).into_iter().map(|record| record.1).collect();
    assert_eq!(names, ["::1", "::2"]);
}

/// Regression test: if no field was known to be the subject, all requests were one subject. Only
/// one word of the report showed it.
#[test]
fn a_file_without_a_usual_field_for_the_subject_needs_to_be_told_what_it_is() {
    let failed = read("time,who,n\n2015-05-17,::1,2\n", &Options::default()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::UnknownSubject);
    assert_eq!(
        failed.to_string(),
        "input: no field is known to hold an address; the fields are `time`, `who`, `n`; choose one \
         with --by, or limit all requests together with --by all"
    );
    assert_eq!(records("time,subject\n2015-05-17,a\n", &Options::default())[0].1, "a");
}

#[test]
fn a_name_that_may_mean_the_server_is_taken_where_it_holds_addresses() {
    for name in ["host", "client", "remote_host"] {
        let text = format!("time,{name}\n2015-05-17,web-1\n");
        assert!(read(&text, &Options::default()).is_err(), "{name}");
        let text = format!("time,{name}\n2015-05-17,[::1]:80\n");
        assert_eq!(records(&text, &Options::default())[0].1, "::1", "{name}");
        assert_eq!(records(&text, &by(name))[0].1, "::1", "{name}");
    }
}

#[test]
fn an_address_loses_its_port_and_other_text_stays() {
    let text = "time,ip,user\n2015-05-17,203.0.113.9:80,203.0.113.9:80\n2015-05-17,hashed,-\n";
    let subject = |by: &str| read(text, &super::by(by)).unwrap().0.records[0].1.clone();
    assert_eq!(subject("ip"), "203.0.113.9");
    assert_eq!(subject("user"), "203.0.113.9:80");
    assert_eq!(records(text, &Options::default())[1].1, "hashed");
}
