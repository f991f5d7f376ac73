//! Summarizes the decisions of the policies in sentences.

use crate::report::number::{counted, share, thousands};
use crate::report::time::micros_text;
use crate::report::{PolicyReport, Report};

/// Returns one sentence about the denied requests.
pub(super) fn headline(report: &Report) -> String {
    let requests = counted(report.source.requests, "request", "requests");
    let ranked = ranked(&report.policies);
    let (Some(least), Some(most)) = (ranked.first(), strictest(&ranked)) else {
        return format!("{requests} read, and no policy to hold them to.");
    };
    if report.source.requests == 0 {
        return "There were no requests to replay.".to_owned();
    }
    let count = ranked.len();
    if most.denied == 0 {
        let name =
            if count == 1 { most.policy.clone() } else { format!("Each of {count} policies") };
        let what = match report.source.requests {
            1 => "the only request".to_owned(),
            _ => format!("all {requests}"),
        };
        return format!("{name} would have admitted {what}.");
    }
    if least.denied == most.denied {
        let name =
            if count == 1 { most.policy.clone() } else { format!("Each of {count} policies") };
        let what = match most.admitted {
            0 => format!("all {requests}"),
            _ => format!("{} of {requests} ({})", thousands(most.denied), share_of(most)),
        };
        return format!("{name} would have denied {what}.");
    }
    format!(
        "{count} policies would have denied between {} and {} of {requests}.",
        share_of(least),
        share_of(most),
    )
}

/// Returns sentences about the most lenient and the strictest policies, and about the subjects that
/// they deny.
pub(super) fn remarks(report: &Report) -> Vec<String> {
    let ranked = ranked(&report.policies);
    let (Some(least), Some(most)) = (ranked.first(), strictest(&ranked)) else {
        return Vec::new();
    };
    let mut remarks = Vec::new();
    if least.denied < most.denied {
        remarks.push(format!(
            "The most lenient is {} with {} denied, the strictest {} with {}.",
            names(&ranked, least.denied),
            thousands(least.denied),
            names(&ranked, most.denied),
            thousands(most.denied),
        ));
    }
    remarks.extend(concentration(report, most));
    if let (1, Some(wait)) = (ranked.len(), most.max_wait) {
        remarks.push(format!(
            "The longest wait {} asks for is {}.",
            most.policy,
            micros_text(wait)
        ));
    }
    let never = report.policies.iter().map(|policy| policy.never).max().unwrap_or(0);
    if never > 0 {
        let verb = if never == 1 { "costs" } else { "cost" };
        remarks.push(format!(
            "Up to {} {verb} more than a policy ever grants and could never pass.",
            counted(never, "request", "requests"),
        ));
    }
    remarks
}

/// Returns the names of the policies that deny `denied` requests, such as `gcra 1/s (like 2
/// others)`.
fn names(ranked: &[&PolicyReport], denied: u64) -> String {
    let tied: Vec<_> = ranked.iter().filter(|policy| policy.denied == denied).collect();
    match tied.as_slice() {
        [] => String::new(),
        [one] => one.policy.clone(),
        [one, other] => format!("{} (like {})", one.policy, other.policy),
        [one, others @ ..] => format!("{} (like {} others)", one.policy, others.len()),
    }
}

/// Returns a sentence about the subjects that the strictest policy denies.
fn concentration(report: &Report, strictest: &PolicyReport) -> Option<String> {
    let worst = strictest.offenders.first()?;
    let subjects = counted(report.source.subjects, "subject", "subjects");
    let (met, policy) = (thousands(strictest.subjects_denied), &strictest.policy);
    if strictest.subjects_denied == 1 {
        return Some(format!("Under {policy}, one of {subjects} takes all denials."));
    }
    let part = share(worst.denied, strictest.denied);
    Some(format!(
        "Under {policy}, {met} of {subjects} would have been denied at least once, and the most \
         limited of them takes {part} of all denials."
    ))
}

fn share_of(policy: &PolicyReport) -> String {
    share(policy.denied, policy.requests())
}

/// Returns the first of the policies that deny the most requests.
fn strictest<'a>(ranked: &[&'a PolicyReport]) -> Option<&'a PolicyReport> {
    let most = ranked.last()?.denied;
    ranked.iter().find(|policy| policy.denied == most).copied()
}

/// Returns the policies from the most lenient to the strictest.
fn ranked(policies: &[PolicyReport]) -> Vec<&PolicyReport> {
    let mut ranked: Vec<_> = policies.iter().collect();
    ranked.sort_by_key(|policy| policy.denied);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Offender, Source};

    fn report(requests: u64, denied: &[u64]) -> Report {
        let policies = denied.iter().enumerate().map(|(index, denied)| PolicyReport {
            policy: format!("gcra {index}/s"),
            admitted: requests - denied,
            denied: *denied,
            subjects_denied: 2,
            offenders: vec![Offender { denied: denied / 2, ..Offender::default() }],
            ..PolicyReport::default()
        });
        Report {
            source: Source { requests, subjects: 40, ..Source::default() },
            policies: policies.collect(),
            ..Report::default()
        }
    }

    #[test]
    fn the_headline_fits_what_there_is() {
        let cases = [
            (report(1, &[0]), "gcra 0/s would have admitted the only request."),
            (report(0, &[0]), "There were no requests to replay."),
            (report(5, &[]), "5 requests read, and no policy to hold them to."),
            (report(1_000, &[0]), "gcra 0/s would have admitted all 1,000 requests."),
            (report(1_000, &[0, 0]), "Each of 2 policies would have admitted all 1,000 requests."),
            (report(1_000, &[10]), "gcra 0/s would have denied 10 of 1,000 requests (1.0 %)."),
            (report(1_000, &[1_000]), "gcra 0/s would have denied all 1,000 requests."),
            (
                report(1_000, &[10, 10]),
                "Each of 2 policies would have denied 10 of 1,000 requests (1.0 %).",
            ),
            (
                report(1_000, &[30, 0, 10]),
                "3 policies would have denied between 0 % and 3.0 % of 1,000 requests.",
            ),
        ];
        for (report, expected) in cases {
            assert_eq!(headline(&report), expected);
        }
    }

    #[test]
    fn remarks_name_the_ends_and_the_most_limited() {
        let mut report = report(1_000, &[30, 10]);
        report.policies[0].never = 1;
        assert_eq!(
            remarks(&report),
            [
                "The most lenient is gcra 1/s with 10 denied, the strictest gcra 0/s with 30.",
                "Under gcra 0/s, 2 of 40 subjects would have been denied at least once, and the \
                 most limited of them takes 50.0 % of all denials.",
                "Up to 1 request costs more than a policy ever grants and could never pass.",
            ]
        );
    }

    #[test]
    fn policies_that_deny_alike_are_named_together() {
        let report = report(100, &[1, 5, 5, 5, 1]);
        let remarks = remarks(&report);
        assert_eq!(
            remarks[0],
            "The most lenient is gcra 0/s (like gcra 4/s) with 1 denied, the strictest gcra 1/s \
             (like 2 others) with 5."
        );
    }

    #[test]
    fn a_single_policy_tells_its_max_wait() {
        let mut report = report(100, &[4]);
        report.policies[0].max_wait = Some(12_500_000);
        assert_eq!(remarks(&report)[1], "The longest wait gcra 0/s asks for is 12.5s.");
    }
}
