//! Generates arbitrary reports, even reports that a replay cannot produce.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate::report::{
    ComparedReport, ComparedSubject, Day, Fill, GrantsReport, LeasedReport, LeasedRun, Member,
    Offender, PolicyReport, PoolReport, Report, SettlingReport, SettlingRun, SharesReport,
    SlotsReport, SlotsRun, Source, Spread, Suggestion, Timeline, WarningsReport, Way,
};

/// Generates small, large and extreme numbers.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..5, 0_u64..100_000, any::<u64>(), Just(u64::MAX)]
}

/// Generates text with characters that control a terminal or a browser.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<char>().prop_map(String::from),
        "[a-z0-9.:/ ]{0,20}",
        prop::sample::select(super::fixtures::HOSTILE.to_vec()).prop_map(String::from),
    ];
    vec(part, 0..6).prop_map(|parts| parts.concat())
}

prop_compose! {
    fn source()(
        inputs in vec(text(), 0..3),
        formats in vec(text(), 0..3),
        numbers in [number(), number(), number(), number(), number()],
        words in [text(), text(), text()],
        first in prop::option::of(number()),
        last in prop::option::of(number()),
    ) -> Source {
        let [lines, malformed, requests, cost, subjects] = numbers;
        let [by, cost_of, order] = words;
        Source {
            inputs, formats, lines, malformed, without_subject: 0, requests, cost, subjects, by, cost_of, order, first, last,
        }
    }
}

prop_compose! {
    fn offender()(subject in text(), requests in number(), denied in number()) -> Offender {
        Offender { subject, requests, denied }
    }
}

prop_compose! {
    fn day()(date in text(), admitted in number(), denied in number()) -> Day {
        Day { date, admitted, denied }
    }
}

prop_compose! {
    fn timeline()(
        start in number(),
        step in number(),
        admitted in vec(number(), 0..400),
        denied in vec(number(), 0..400),
    ) -> Timeline {
        Timeline { start, step, admitted, denied }
    }
}

prop_compose! {
    fn compared()(
        numbers in [number(), number(), number(), number()],
        subjects in vec((text(), number(), number(), number()), 0..4),
    ) -> ComparedReport {
        let [subjects_new, subjects_more, subjects_fewer, denied_before] = numbers;
        let subject = |(subject, requests, denied_before, denied)| {
            ComparedSubject { subject, requests, denied_before, denied }
        };
        let subjects = subjects.into_iter().map(subject).collect();
        ComparedReport { subjects_new, subjects_more, subjects_fewer, denied_before, subjects }
    }
}

prop_compose! {
    fn shares()(
        numbers in [number(), number(), number(), number(), number()],
        members in vec((text(), number(), number()), 0..4),
    ) -> SharesReport {
        let [subjects, demand, admitted, windows, windows_refused] = numbers;
        let member = |(subject, demand, admitted)| Member { subject, demand, admitted };
        let members = members.into_iter().map(member).collect();
        SharesReport { subjects, demand, admitted, windows, windows_refused, members }
    }
}

prop_compose! {
    fn policy()(
        words in [text(), text()],
        numbers in [number(), number(), number(), number(), number(), number()],
        max_wait in prop::option::of(number()),
        offenders in vec(offender(), 0..5),
        timeline in timeline(),
        days in vec(day(), 0..4),
        shares in prop::option::of(shares()),
        grants in prop::option::of([number(), number(), number()]),
        warnings in prop::option::of([number(), number()]),
        pool in prop::option::of((text(), number(), number(), prop::option::of(shares()))),
        compared in prop::option::of(compared()),
    ) -> PolicyReport {
        let [policy, algorithm] = words;
        let [admitted, denied, cost_admitted, cost_denied, never, subjects_denied] = numbers;
        PolicyReport {
            policy, algorithm, admitted, denied, cost_admitted, cost_denied, never,
            subjects_denied, max_wait, offenders, timeline, days, shares,
            grants: grants.map(|[amount, made, refused]| GrantsReport { amount, made, refused }),
            warnings: warnings.map(|[requests, subjects]| WarningsReport { requests, subjects }),
            compared,
            pool: pool.map(|(policy, admitted, cost_admitted, shares)| {
                PoolReport { policy, admitted, cost_admitted, shares }
            }),
        }
    }
}

prop_compose! {
    fn suggestion()(
        words in [text(), text(), text()],
        numbers in [number(), number(), number()],
    ) -> Suggestion {
        let [algorithm, policy, asked] = words;
        let [limit, subjects_content, subjects] = numbers;
        Suggestion { algorithm, policy, limit, asked, subjects_content, subjects }
    }
}

prop_compose! {
    fn fill()(
        start in number(),
        step in number(),
        used in vec(number(), 0..400),
        idle in vec(number(), 0..400),
    ) -> Fill {
        Fill { start, step, used, idle }
    }
}

prop_compose! {
    fn run()(
        policy in text(),
        way in prop::sample::select(vec![Way::Check, Way::Fixed, Way::Learned]),
        counts in [number(), number(), number(), number(), number(), number()],
        numbers in [number(), number(), number(), number(), number()],
        fill in fill(),
    ) -> SettlingRun {
        let [admitted, denied, cost_admitted, cost_denied, falsely_denied, limit] = counts;
        let [overshoot, overshoot_of_overage, overage, idle_cost_seconds, idle_cost] = numbers;
        SettlingRun {
            policy, limit, way, admitted, denied, cost_admitted, cost_denied, overshoot,
            overshoot_of_overage, overage, falsely_denied, idle_cost_seconds, idle_cost, fill,
        }
    }
}

prop_compose! {
    fn settling()(
        words in [text(), text(), text()],
        late_cost in number(),
        estimate in number(),
        runs in vec(run(), 0..4),
    ) -> SettlingReport {
        let [late_cost_of, pace, cover] = words;
        SettlingReport { late_cost_of, late_cost, pace, estimate, cover, runs }
    }
}

prop_compose! {
    fn leased_run()(
        policy in text(),
        decided in [number(), number(), number(), number(), number(), number(), number(), number()],
        chunks in [number(), number(), number(), number(), number(), number(), number()],
    ) -> LeasedRun {
        let [admitted, denied, cost_admitted, cost_denied, denied_without, ..] = decided;
        let [.., denied_too_early, cost_denied_too_early, admitted_instead] = decided;
        let [from_chunks, store_calls, chunks, chunks_not_granted, granted, given_back, stranded] = chunks;
        LeasedRun {
            policy, admitted, denied, cost_admitted, cost_denied, denied_without, denied_too_early,
            cost_denied_too_early, admitted_instead, from_chunks, store_calls, chunks, chunks_not_granted, granted,
            given_back, stranded,
        }
    }
}

prop_compose! {
    fn leased()(
        nodes in any::<u16>(),
        spread in prop_oneof![Just(Spread::InTurn), any::<u64>().prop_map(Spread::Seed)],
        words in [text(), text()],
        hot_after in any::<u32>(),
        sliding in any::<bool>(),
        runs in vec(leased_run(), 0..4),
    ) -> LeasedReport {
        let [span, share] = words;
        LeasedReport { nodes, spread, span, share, hot_after, sliding, runs }
    }
}

prop_compose! {
    fn slots_run()(
        policy in text(),
        counts in any::<[u64; 5]>(),
    ) -> SlotsRun {
        let [limit, admitted, denied, subjects_denied, peak] = counts;
        SlotsRun { policy, limit, admitted, denied, subjects_denied, peak }
    }
}

prop_compose! {
    fn slots()(
        duration_of in text(),
        peak_wanted in any::<u64>(),
        runs in vec(slots_run(), 0..3),
    ) -> SlotsReport {
        SlotsReport { duration_of, peak_wanted, runs }
    }
}

prop_compose! {
    pub(crate) fn report()(
        source in source(),
        policies in vec(policy(), 0..4),
        suggestions in vec(suggestion(), 0..3),
        settling in prop::option::of(settling()),
        slots in prop::option::of(slots()),
        leased in prop::option::of(leased()),
    ) -> Report {
        Report { source, policies, suggestions, settling, slots, leased }
    }
}
