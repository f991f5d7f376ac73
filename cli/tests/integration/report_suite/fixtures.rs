//! Reports for the tests of the formats: an ordinary day, and extreme values.

use tidegate::report::{
    Day, Fill, LeasedReport, LeasedRun, Member, Offender, PolicyReport, Report, SettlingReport,
    SettlingRun, SharesReport, SlotsReport, SlotsRun, Source, Spread, Suggestion, Timeline, Way,
};

/// 2025-11-03 00:00:00 UTC.
pub(crate) const START: u64 = 1_762_128_000_000_000;
pub(crate) const MINUTE: u64 = 60_000_000;

/// For each policy: the policy, its algorithm, the denied requests per 3,000 requests of the
/// crawler and per 1,000 requests of the burst, and the longest wait in microseconds.
const POLICIES: [(&str, &str, u64, u64, u64); 6] = [
    ("fixed-window 60/1m", "fixed-window", 310, 820, 59_812_000),
    ("sliding-log 60/1m", "sliding-log", 345, 861, 58_120_444),
    ("sliding-counter 60/1m", "sliding-counter", 338, 858, 31_200_000),
    ("token-bucket 1/s burst 20", "token-bucket", 372, 890, 998_000),
    ("gcra 1/s burst 20", "gcra", 372, 890, 998_001),
    ("sliding-log 60/1m grain 1s", "sliding-log", 349, 863, 59_000_000),
];

const SUBJECTS: [(&str, u64); 14] = [
    ("2001:db8:85a3:8d3:1319:8a2e:370:7348", 30),
    ("203.0.113.9", 22),
    ("2001:db8:0:1::dead:beef", 13),
    ("198.51.100.77", 9),
    ("192.0.2.41", 7),
    ("2001:db8::ff00:42:8329", 5),
    ("198.51.100.3", 4),
    ("203.0.113.200", 3),
    ("192.0.2.9", 2),
    ("203.0.113.17", 1),
    ("192.0.2.118", 1),
    ("2001:db8:2:7::1", 1),
    ("198.51.100.250", 1),
    ("192.0.2.55", 1),
];

/// Returns the report about a day of a site that is quiet at night. A crawler visits the site every
/// four hours, and there is a burst in the afternoon.
pub(crate) fn day() -> Report {
    let policies: Vec<_> = POLICIES.iter().map(|policy| day_policy(*policy)).collect();
    let requests = policies[0].requests();
    Report {
        source: Source {
            inputs: vec!["access.log".into()],
            formats: vec!["combined".into()],
            lines: requests + 12,
            malformed: 12,
            without_subject: 0,
            requests,
            cost: requests,
            subjects: 3_201,
            by: "ip".into(),
            cost_of: "1".into(),
            order: "time".into(),
            first: Some(START + 4_210_000),
            last: Some(START + 1_439 * MINUTE + 58_000_000),
        },
        policies,
        suggestions: vec![],
        settling: None,
        slots: None,
        leased: None,
    }
}

fn day_policy(
    (policy, algorithm, crawl, burst, wait): (&str, &str, u64, u64, u64),
) -> PolicyReport {
    let mut timeline = Timeline { start: START, step: 5 * MINUTE, ..Timeline::default() };
    let mut noise = 88_172_645_463_325_252_u64;
    for step in 0_u64..288 {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let light = 144 - step.abs_diff(170).min(140);
        let visitors = 90 + light * 5 + noise % (40 + light);
        let crawler = if step % 48 < 5 { 60 + noise % 30 } else { 0 };
        let attack = if (186..192).contains(&step) { 900 + noise % 700 } else { 0 };
        let denied = crawler * crawl / 3_000 + attack * burst / 1_000;
        timeline.admitted.push(visitors + crawler + attack - denied);
        timeline.denied.push(denied);
    }
    let admitted = timeline.admitted.iter().sum();
    let denied: u64 = timeline.denied.iter().sum();
    let offenders = SUBJECTS.iter().map(|(subject, part)| Offender {
        subject: (*subject).into(),
        requests: denied * part / 100 + 900 - crawl,
        denied: denied * part / 100 + 1,
    });
    let offenders: Vec<_> = offenders.take(10 + (crawl % 5) as usize).collect();
    PolicyReport {
        policy: policy.into(),
        algorithm: algorithm.into(),
        admitted,
        denied,
        cost_admitted: admitted,
        cost_denied: denied,
        never: 0,
        subjects_denied: crawl / 10,
        max_wait: Some(wait),
        offenders,
        timeline,
        days: vec![],
        shares: None,
        grants: None,
        warnings: None,
        pool: None,
        compared: None,
    }
}

/// Returns the report of [`day`] with suggestions for `--suggest 99.9`.
pub(crate) fn suggesting() -> Report {
    let limits = [("fixed-window", 212), ("sliding-log", 187), ("token-bucket", 1_204)];
    let suggestion = |(algorithm, limit): (&str, u64)| Suggestion {
        algorithm: algorithm.into(),
        policy: format!("{algorithm} {limit}/1m"),
        limit,
        asked: "99.9".into(),
        subjects_content: 3_198,
        subjects: 3_201,
    };
    Report { suggestions: limits.map(suggestion).into(), ..day() }
}

/// Returns the report of [`day`] with a section about late costs. The late costs are the tokens
/// that a language model generates.
pub(crate) fn settling() -> Report {
    let ways = [(Way::Check, 24_271, 0), (Way::Fixed, 0, 3_484), (Way::Learned, 1_674, 284)];
    let run = |(way, overshoot, idle_cost)| SettlingRun {
        policy: "sliding-log 90000/1m grain 1s".into(),
        limit: 90_000,
        way,
        admitted: 1_128,
        denied: 281,
        cost_admitted: 2_040_708,
        cost_denied: 724_557,
        overshoot,
        overshoot_of_overage: if way == Way::Learned { overshoot } else { 0 },
        overage: 9_000,
        falsely_denied: 39,
        idle_cost_seconds: idle_cost * 86_400,
        idle_cost,
        fill: Fill {
            start: START,
            step: 5 * MINUTE,
            used: (0..288).map(|step| 60_000 + step % 40 * 1_000 + overshoot).collect(),
            idle: (0..288).map(|step| idle_cost * 2 + step % 7).collect(),
        },
    };
    let settling = SettlingReport {
        late_cost_of: "GeneratedTokens".into(),
        late_cost: 147_351,
        pace: "50/1s".into(),
        estimate: 1_200,
        cover: "9/10".into(),
        runs: ways.map(run).into(),
    };
    Report { settling: Some(settling), ..day() }
}

/// Returns the report of [`day`] with a section about eight nodes with leases.
pub(crate) fn leased() -> Report {
    let run = |policy: PolicyReport| LeasedRun {
        policy: policy.policy.clone(),
        admitted: policy.admitted - 7,
        denied: policy.denied + 7,
        cost_admitted: policy.admitted - 7,
        cost_denied: policy.denied + 7,
        denied_without: policy.denied,
        denied_too_early: 9,
        cost_denied_too_early: 9,
        admitted_instead: 2,
        from_chunks: 100_000,
        store_calls: 78_000,
        chunks: 1_200,
        chunks_not_granted: 3,
        granted: 101_000,
        given_back: 950,
        stranded: 50,
    };
    let leased = LeasedReport {
        nodes: 8,
        spread: Spread::InTurn,
        span: "1s".into(),
        share: "1/200".into(),
        hot_after: 32,
        sliding: false,
        runs: day().policies.into_iter().map(run).collect(),
    };
    Report { leased: Some(leased), ..day() }
}

/// Returns the report of [`day`] with the shares of one fair pool.
pub(crate) fn sharing() -> Report {
    let members = [("acme", 90_000, 40_000), ("globex", 1_200, 1_200), ("initech", 900, 0)];
    let member = |(subject, demand, admitted): (&str, u64, u64)| Member {
        subject: subject.into(),
        demand,
        admitted,
    };
    let shares = SharesReport {
        subjects: 1_203,
        demand: 100_000,
        admitted: 49_000,
        windows: 1_440,
        windows_refused: 12,
        members: members.map(member).into(),
    };
    let mut report = day();
    report.policies.truncate(1);
    report.policies[0].policy = "pool: fair-pool 1000/1m".into();
    report.policies[0].algorithm = "fair-pool".into();
    report.policies[0].shares = Some(shares);
    report
}

/// Returns the report of an empty input.
pub(crate) fn empty() -> Report {
    let policy = PolicyReport {
        policy: "sliding-log 60/1m".into(),
        algorithm: "sliding-log".into(),
        ..PolicyReport::default()
    };
    Report {
        source: Source {
            inputs: vec!["-".into()],
            by: "ip".into(),
            cost_of: "1".into(),
            order: "time".into(),
            ..Source::default()
        },
        policies: vec![policy],
        suggestions: vec![],
        settling: None,
        slots: None,
        leased: None,
    }
}

/// Returns the report of one request, which one policy admitted.
pub(crate) fn one_request() -> Report {
    let mut report = empty();
    let source = &mut report.source;
    (source.lines, source.requests, source.cost, source.subjects) = (1, 1, 1, 1);
    (source.first, source.last) = (Some(START), Some(START));
    report.policies[0].admitted = 1;
    report.policies[0].timeline =
        Timeline { start: START, step: 1_000_000, admitted: vec![1], denied: vec![0] };
    report
}

/// Returns a day without denials.
pub(crate) fn none_denied() -> Report {
    let mut report = day();
    for policy in &mut report.policies {
        policy.admitted += policy.denied;
        (policy.denied, policy.cost_denied, policy.subjects_denied) = (0, 0, 0);
        policy.max_wait = None;
        policy.offenders.clear();
        let timeline = &mut policy.timeline;
        for (admitted, denied) in timeline.admitted.iter_mut().zip(&mut timeline.denied) {
            *admitted += std::mem::take(denied);
        }
    }
    report
}

/// Returns the report about a day on which every request was denied, because its cost exceeds the
/// capacity.
pub(crate) fn all_denied() -> Report {
    let mut report = day();
    report.source.cost_of = "ContextTokens+GeneratedTokens".into();
    report.source.cost = report.source.requests * 2_311;
    for policy in &mut report.policies {
        policy.denied += std::mem::take(&mut policy.admitted);
        policy.never = policy.denied;
        (policy.cost_admitted, policy.cost_denied) = (0, policy.denied * 2_311);
        policy.subjects_denied = 3_201;
        policy.max_wait = None;
        let timeline = &mut policy.timeline;
        for (admitted, denied) in timeline.admitted.iter_mut().zip(&mut timeline.denied) {
            *denied += std::mem::take(admitted);
        }
    }
    report
}

/// Returns a report with twelve policies, each with 512 steps of time. One policy has a very long
/// text.
pub(crate) fn twelve_policies() -> Report {
    let mut report = day();
    report.policies.extend(report.policies.clone());
    report.policies[7].policy =
        "sliding-log 100000/24h grain 15m block for 15m after a refusal, shadow".into();
    for policy in &mut report.policies {
        let timeline = &mut policy.timeline;
        timeline.step = 60 * MINUTE;
        timeline.admitted.resize(512, 77);
        timeline.denied.resize(512, 0);
        timeline.denied[500] = 1;
    }
    report.source.last = Some(START + 512 * 60 * MINUTE);
    report
}

/// Texts that attack the program that shows them.
pub(crate) const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"onmouseover=\"alert(1)\" '><img src=x onerror=alert(1)>",
    "\u{1b}]0;owned\u{7}\u{1b}[2J\r\nroot\u{9b}31m",
    "user\u{202e}gnp.exe\u{2066}\u{200b}\u{feff}",
    "</style></title></svg>&lt;b&gt;&#0;",
    "\u{0}\u{7f}\u{85}\u{2028}日本語 משתמש 👩‍💻",
];

/// Returns the report about a day in which all texts are hostile, and some texts are very long.
pub(crate) fn hostile() -> Report {
    let mut report = suggesting();
    report.source.inputs = HOSTILE.map(String::from).into();
    report.source.formats = HOSTILE.map(String::from).into();
    (report.source.by, report.source.cost_of) = (HOSTILE[0].into(), HOSTILE[2].into());
    report.source.order = HOSTILE[3].into();
    report.policies.truncate(2);
    let mut shares = sharing().policies.remove(0).shares.unwrap();
    for (member, subject) in shares.members.iter_mut().zip(HOSTILE) {
        member.subject = subject.into();
    }
    report.policies[1].shares = Some(shares);
    for policy in &mut report.policies {
        policy.policy = HOSTILE.concat();
        policy.algorithm = HOSTILE[0].into();
        for (index, one) in policy.offenders.iter_mut().enumerate() {
            one.subject = match HOSTILE.get(index) {
                Some(subject) => (*subject).into(),
                None => format!("{index}{}", "very-long-subject-".repeat(60)),
            };
        }
    }
    let mut settling = settling().settling.unwrap();
    settling.late_cost_of = HOSTILE.concat();
    (settling.pace, settling.cover) = (HOSTILE[0].into(), HOSTILE[2].into());
    settling.runs[1].policy = HOSTILE.concat();
    report.settling = Some(settling);
    let mut leased = leased().leased.unwrap();
    (leased.span, leased.share) = (HOSTILE[1].into(), HOSTILE[2].into());
    leased.runs[0].policy = HOSTILE.concat();
    report.leased = Some(leased);
    let run = SlotsRun { policy: HOSTILE.concat(), admitted: 6, denied: 3, ..SlotsRun::default() };
    let duration_of = HOSTILE[2].into();
    report.slots = Some(SlotsReport { duration_of, peak_wanted: 9, runs: vec![run] });
    for one in &mut report.suggestions {
        (one.algorithm, one.policy) = (HOSTILE[0].into(), HOSTILE[1].into());
        one.asked = HOSTILE[4].into();
    }
    report
}

/// Returns all reports with their names.
pub(crate) fn all() -> Vec<(&'static str, Report)> {
    let one_policy = Report { policies: day().policies[..1].to_vec(), ..day() };
    vec![
        ("day", day()),
        ("suggesting", suggesting()),
        ("settling", settling()),
        ("leased", leased()),
        ("sharing", sharing()),
        ("empty", empty()),
        ("no-policy", Report { policies: vec![], ..day() }),
        ("default", Report::default()),
        ("one-request", one_request()),
        ("one-policy", one_policy),
        ("none-denied", none_denied()),
        ("all-denied", all_denied()),
        ("twelve-policies", twelve_policies()),
        ("hostile", hostile()),
    ]
}

/// Returns a number of days with the dates `day-00`, `day-01` and so on.
pub(crate) fn days(count: u64) -> Vec<Day> {
    let day = |number| Day { date: format!("day-{number:02}"), admitted: number, denied: 1 };
    (0..count).map(day).collect()
}
