//! Tests that the page is complete and safe from hostile text, and that its plots stay within their
//! frames.

use proptest::prelude::*;
use tidegate::report::{Report, html};

use super::{arbitrary, fixtures, markup};

fn page(report: &Report) -> String {
    let mut page = Vec::new();
    html::write(report, &mut page).expect("a vector takes everything");
    String::from_utf8(page).expect("a page is UTF-8")
}

/// Splits an SVG path into its commands, each with its numbers.
fn coordinates(path: &str) -> Vec<(char, Vec<u32>)> {
    let mut commands: Vec<(char, String)> = Vec::new();
    for c in path.chars() {
        match commands.last_mut() {
            Some((_, numbers)) if !c.is_ascii_alphabetic() => numbers.push(c),
            _ => commands.push((c, String::new())),
        }
    }
    let number = |text: &str| text.parse().expect("coordinates are whole and not negative");
    commands
        .into_iter()
        .map(|(command, numbers)| (command, numbers.split_whitespace().map(number).collect()))
        .collect()
}

/// Checks that a page is well formed, harmless, and drawn within its frames.
fn check(report: &Report) -> Result<(), String> {
    let tags = markup::read(&page(report))?;
    let (mut width, mut height) = (0, 0);
    for (name, attributes) in tags {
        if matches!(name.as_str(), "script" | "img" | "link" | "iframe" | "object" | "a" | "base") {
            return Err(format!("the page has a <{name}>"));
        }
        let value =
            |key: &str| attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        if let Some((key, _)) = attributes.iter().find(|(key, _)| key.starts_with("on")) {
            return Err(format!("the page has a handler {key}"));
        }
        if let Some(frame) = value("viewBox") {
            let frame: Vec<u32> = frame.split(' ').map(|number| number.parse().unwrap()).collect();
            (width, height) = (frame[2], frame[3]);
        }
        for (command, numbers) in value("d").map(|path| coordinates(path)).unwrap_or_default() {
            let inside = match (command, numbers.as_slice()) {
                ('M', [x, y]) => *x <= width && *y <= height,
                ('H', [x]) => *x <= width,
                ('V', [y]) => *y <= height,
                ('z', []) => true,
                _ => false,
            };
            if !inside {
                return Err(format!("{command}{numbers:?} is outside of {width} by {height}"));
            }
        }
        if name == "rect" {
            let number = |key| value(key).unwrap().parse::<u32>().unwrap();
            if number("x") + number("width") > width {
                return Err(format!("a bar ends beyond {width}"));
            }
        }
        check_style(value("style").map_or("", |style| style))?;
    }
    Ok(())
}

/// Checks that the style of an element is one length in percent, from 0 to 100.
fn check_style(style: &str) -> Result<(), String> {
    let Some((_, length)) = style.split_once(':') else {
        return if style.is_empty() { Ok(()) } else { Err(style.to_owned()) };
    };
    let tenths = length.strip_suffix('%').and_then(|length| length.replace('.', "").parse().ok());
    match tenths {
        Some(0..=1_000_u32) => Ok(()),
        _ => Err(format!("{length} is not a length")),
    }
}

#[test]
fn every_page_is_well_formed_and_drawn_within_its_frames() {
    for (name, report) in fixtures::all() {
        check(&report).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn hostile_text_is_shown_and_not_obeyed() {
    let page = page(&fixtures::hostile());
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains(r"user\u{202e}gnp.exe\u{2066}"));
    assert!(page.contains(r"\u{1b}]0;owned\u{7}"));
    assert!(!page.contains("<script"));
}

#[test]
fn the_page_forbids_itself_to_load_or_run_anything() {
    let tags = markup::read(&page(&fixtures::day())).unwrap();
    let policy = tags.iter().find(|(_, attributes)| {
        attributes.contains(&("http-equiv".into(), "Content-Security-Policy".into()))
    });
    let (_, attributes) = policy.expect("a policy");
    assert_eq!(
        attributes[1].1,
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    );
    assert!(
        !page(&fixtures::day()).contains("http://") && !page(&fixtures::day()).contains("https://")
    );
}

#[test]
fn each_policy_has_a_panel_with_both_sides_and_values_to_point_at() {
    let page = page(&fixtures::day());
    assert_eq!(page.matches("<figure>").count(), 6);
    assert_eq!(page.matches("<path class=\"denied\" d=\"M").count(), 6);
    assert!(
        page.contains("<title>2025-11-03 15:30:00 UTC, 10m: 1,908 admitted, 1,631 denied</title>")
    );
    assert!(page.contains("<span class=\"inner minor\" style=\"left:12.5%\">03:00</span>"));
}

/// Regression test: `<0.1 %` was not escaped, so the rest of the caption was lost.
#[test]
fn a_share_below_a_tenth_of_a_percent_is_escaped_everywhere() {
    let mut report = fixtures::day();
    for policy in &mut report.policies {
        (policy.admitted, policy.denied) = (1_000_000, 1);
    }
    check(&report).unwrap();
    assert!(page(&report).contains("<small>&lt;0.1 %</small></span></figcaption>"));
}

#[test]
fn each_way_to_settle_has_a_panel_with_what_is_used_idle_and_too_much() {
    let page = page(&fixtures::settling());
    let panels: Vec<&str> =
        page.split("<figure>").filter(|part| part.contains("class=\"limit\"")).collect();
    assert_eq!(panels.len(), 3);
    for (panel, way) in panels.iter().zip(["check", "fixed", "learned"]) {
        assert!(panel.contains(&format!("sliding-log 90000/1m grain 1s, {way}</span>")));
        for class in ["idle", "denied", "admitted"] {
            assert!(panel.contains(&format!("<path class=\"{class}\" d=\"M")), "{way}, {class}");
        }
        // Each bar joins two of the 288 steps.
        assert_eq!(panel.matches("<rect ").count(), 144);
    }
    assert!(panels[1].contains("<title>2025-11-03 00:00:00 UTC: 61,000 used, 6,969 idle</title>"));
}

#[test]
fn sections_without_anything_to_show_are_left_out() {
    let sections = |report: &Report| {
        let page = page(report);
        let ids = ["compare", "time", "subjects", "suggest", "settling", "leased", "details"];
        ids.map(|id| page.contains(&format!("<h2 id=\"{id}\">")))
    };
    assert_eq!(sections(&fixtures::suggesting()), [true, true, true, true, false, false, true]);
    assert_eq!(sections(&fixtures::settling()), [true, true, true, false, true, false, true]);
    assert_eq!(sections(&fixtures::leased()), [true, true, true, false, false, true, true]);
    assert_eq!(sections(&fixtures::day()), [true, true, true, false, false, false, true]);
    assert_eq!(sections(&fixtures::none_denied()), [true, true, false, false, false, false, true]);
    assert_eq!(sections(&fixtures::one_request()), [false, true, false, false, false, false, true]);
    assert_eq!(sections(&fixtures::empty()), [false, false, false, false, false, false, true]);
}

#[test]
fn two_policies_are_compared_and_one_is_not() {
    let compared = |count| {
        let mut report = fixtures::day();
        report.policies.truncate(count);
        page(&report).contains("<h2 id=\"compare\">")
    };
    assert_eq!([1, 2].map(compared), [false, true]);
}

#[test]
fn timelines_that_differ_share_one_axis() {
    let mut report = fixtures::day();
    report.policies.truncate(2);
    let late = &mut report.policies[1].timeline;
    late.start += 1_440 * fixtures::MINUTE;
    late.step = fixtures::MINUTE;
    late.admitted.truncate(60);
    late.denied.truncate(60);
    check(&report).unwrap();
    let page = page(&report);
    assert!(page.contains(">2025-11-03 00:00:00 to 2025-11-04 01:00:00 UTC.<"));
    assert!(page.contains("up to 2,129 in 10m."));
}

#[test]
fn a_subject_missing_from_a_list_that_is_cut_is_bounded_and_not_zero() {
    let mut report = fixtures::day();
    report.policies.truncate(2);
    report.policies[1].offenders.truncate(1);
    report.policies[1].subjects_denied = 30;
    assert!(page(&report).contains(">≤ 1,986</td>"));
    report.policies[1].subjects_denied = 1;
    assert!(page(&report).contains("<td class=\"cell none\">0</td>"));
}

#[test]
fn a_page_stays_small_whatever_the_number_of_steps() {
    let one =
        |report: &Report| Report { policies: report.policies[..1].to_vec(), ..report.clone() };
    let mut report = one(&fixtures::day());
    report.policies[0].timeline.admitted = vec![1; 100_000];
    assert!(page(&report).len() < 60_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_makes_a_page_that_is_well_formed_and_within_its_frames(
        report in arbitrary::report(),
    ) {
        prop_assert_eq!(check(&report), Ok(()));
    }
}

#[test]
fn each_fair_pool_has_a_section_with_its_members() {
    assert!(!page(&fixtures::day()).contains("Shares of"), "only fair pools have shares");
    let page = page(&fixtures::sharing());
    assert_eq!(page.matches("Shares of pool: fair-pool 1000/1m</h2>").count(), 1);
    for row in [
        "acme</th><td class=\"number\">90,000</td><td class=\"number\">40,000</td>",
        "1,200 others</th><td class=\"number\">7,900</td><td class=\"number\">7,800</td>",
    ] {
        assert_eq!(page.matches(row).count(), 1, "{row}");
    }
}

#[test]
fn each_quota_has_a_section_with_its_days() {
    let mut report = fixtures::day();
    assert!(!page(&report).contains("Days of"), "only quotas have days");
    report.policies[1].days = fixtures::days(70);
    let page = page(&report);
    assert_eq!(page.matches("Days of").count(), 1);
    for day in &report.policies[1].days {
        assert_eq!(page.matches(&format!("<th scope=\"row\">{}</th>", day.date)).count(), 1);
    }
}
