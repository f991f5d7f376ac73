//! Tests the table: its content, its alignment, and its escapes.

use proptest::prelude::*;
use tidegate::report::table::{self, Options};
use tidegate::report::{Report, Timeline};

use super::{arbitrary, fixtures, markup};

fn table(report: &Report, width: usize, colour: bool) -> String {
    let mut text = Vec::new();
    table::write(report, &mut text, Options { width, colour }).expect("a vector takes everything");
    String::from_utf8(text).expect("a table is UTF-8")
}

#[test]
fn a_day_reads_like_this() {
    let mut report = fixtures::suggesting();
    report.policies.truncate(2);
    report.policies[1].never = 7;
    assert_eq!(
        table(&report, 80, false),
        "\
Read      access.log (combined), 152,916 lines, 12 malformed
Requests  152,904 from 3,201 subjects (by ip), in order of time
Time      2025-11-03 00:00:04 to 23:59:58 UTC (1d)

POLICY              ADMITTED  DENIED  SHARE  NEVER FIT  SUBJECTS  LONGEST WAIT
fixed-window 60/1m   146,617   6,287  4.1 %          0        31         59.9s
sliding-log 60/1m    146,286   6,618  4.3 %          7        34         58.2s

MOST DENIED SUBJECTS
fixed-window 60/1m
  1,887 of 2,476   76.2 %  2001:db8:85a3:8d3:1319:8a2e:370:7348
  1,384 of 1,973   70.1 %  203.0.113.9
    818 of 1,407   58.1 %  2001:db8:0:1::dead:beef
sliding-log 60/1m
  1,986 of 2,540   78.2 %  2001:db8:85a3:8d3:1319:8a2e:370:7348
  1,456 of 2,010   72.4 %  203.0.113.9
    861 of 1,415   60.8 %  2001:db8:0:1::dead:beef

SUGGESTED LIMITS
The smallest limit of each kind under which at least 99.9 % of the
subjects would never have been denied.
POLICY                LIMIT  NEVER DENIED  OF SUBJECTS    SHARE
fixed-window 212/1m     212         3,198        3,201  >99.9 %
sliding-log 187/1m      187         3,198        3,201  >99.9 %
token-bucket 1204/1m  1,204         3,198        3,201  >99.9 %
"
    );
}

#[test]
fn the_shares_of_a_pool_read_like_this() {
    let mut report = fixtures::sharing();
    let text = table(&report, 80, false);
    let (_, section) = text.split_once("\n\nSHARES").unwrap();
    assert_eq!(
        section,
        " OF pool: fair-pool 1000/1m
The pool has 1,203 members. It refused requests in 12 of 1,440 windows.
SUBJECT       DEMAND  ADMITTED  OF DEMAND  OF POOL
acme          90,000    40,000     44.4 %   81.6 %
globex         1,200     1,200      100 %    2.4 %
initech          900         0        0 %      0 %
1,200 others   7,900     7,800     98.7 %   15.9 %
"
    );
    report.policies[0].shares.as_mut().unwrap().subjects = 3;
    assert!(!table(&report, 80, false).contains("other"));
}

#[test]
fn nothing_read_is_told_plainly() {
    assert_eq!(
        table(&fixtures::empty(), 80, false),
        "\
Read      standard input, 0 lines
Requests  0 from 0 subjects (by ip), in order of time

POLICY             ADMITTED  DENIED  SHARE  SUBJECTS  LONGEST WAIT
sliding-log 60/1m         0       0      –         0             –
"
    );
}

#[test]
fn lines_fit_the_width_at_every_width_from_80() {
    let cases = [
        fixtures::suggesting(),
        fixtures::settling(),
        fixtures::leased(),
        fixtures::sharing(),
        fixtures::all_denied(),
        fixtures::none_denied(),
    ];
    for (report, width) in
        cases.iter().flat_map(|report| [80, 100, 200].map(|width| (report, width)))
    {
        let text = table(report, width, false);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{longest} > {width}:\n{text}");
    }
}

#[test]
fn columns_end_where_their_heads_end() {
    for width in [80, 120] {
        let text = table(&fixtures::twelve_policies(), width, false);
        let rows: Vec<_> = text.lines().skip_while(|line| !line.starts_with("POLICY")).collect();
        let rows = rows.split(|line| line.is_empty()).next().unwrap();
        let length = rows[0].chars().count();
        let whole = rows.iter().filter(|line| line.chars().count() == length).count();
        // A policy that is too long for its column has its own line.
        let own = rows.iter().filter(|line| line.ends_with("shadow")).count();
        assert_eq!((whole, own), if width == 80 { (13, 1) } else { (13, 0) }, "{text}");
    }
}

#[test]
fn a_long_subject_keeps_both_its_ends_within_the_width() {
    let mut report = fixtures::day();
    report.policies.truncate(1);
    report.policies[0].offenders[0].subject = format!("begin{}end", "x".repeat(300));
    let text = table(&report, 80, false);
    let line = text.lines().find(|line| line.contains("begin")).unwrap();
    assert!(line.contains('…') && line.ends_with("end"));
    assert_eq!(line.chars().count(), 80);
}

#[test]
fn colour_only_adds_to_the_same_text() {
    let report = fixtures::suggesting();
    let mut coloured = table(&report, 80, true);
    assert!(coloured.contains("\u{1b}[33m"));
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[33m"] {
        coloured = coloured.replace(code, "");
    }
    assert_eq!(coloured, table(&report, 80, false));
}

#[test]
fn a_hostile_subject_cannot_steer_the_terminal() {
    let text = table(&fixtures::hostile(), 80, false);
    assert!(text.contains(r"\u{1b}]0;owned\u{7}\u{1b}[2J\u{d}\u{a}root\u{9b}31m"));
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_makes_a_table_of_visible_text(report in arbitrary::report(), width in 0_usize..200) {
        let text = table(&report, width, false);
        let hidden = text.chars().find(|c| (c.is_control() && *c != '\n') || markup::is_invisible(*c));
        prop_assert_eq!(hidden, None);
    }

    #[test]
    fn the_timeline_does_not_matter_to_the_table(report in arbitrary::report()) {
        let mut other = report.clone();
        for policy in &mut other.policies {
            policy.timeline = Timeline::default();
        }
        prop_assert_eq!(table(&report, 80, false), table(&other, 80, false));
    }
}

#[test]
fn the_days_of_a_quota_are_at_most_sixty_two_lines() {
    for (days, last, more) in [(62, "day-61", None), (70, "day-61", Some("8 days more"))] {
        let mut report = fixtures::day();
        report.policies[1].days = fixtures::days(days);
        let table = table(&report, 80, false);
        assert!(table.contains("day-00") && table.contains(last), "{table}");
        assert!(!table.contains("day-62"), "{table}");
        assert_eq!(table.contains("more: see --json"), more.is_some(), "{table}");
        assert!(more.is_none_or(|more| table.contains(more)), "{table}");
    }
}
