//! The limit of open files. Each connection needs a file descriptor. If no descriptor is free, a
//! new connection waits without an answer.

/// The default maximum number of connections of a protocol, if enough descriptors are available.
const DEFAULT: usize = 10_000;

/// The smallest maximum number of connections that [`fit`] chooses, even if there are fewer
/// descriptors.
const MIN: usize = 100;

/// The number of descriptors that [`fit`] reserves for other purposes: files, listeners,
/// connections to stores, and 100 connections each for the page and for the metrics on their own
/// port.
const OTHERS: u64 = 400;

/// The name of the setting for the maximum number of connections of a protocol, and its value if it
/// is set.
pub type MaxConnections<'a> = (&'static str, &'a mut Option<usize>);

/// Raises the limit of open files as far as the system permits. Then chooses a value for each
/// maximum number of connections that is not set, so that each connection can have a descriptor.
/// Returns a warning if there are not enough descriptors for the sum of all maximums.
#[must_use]
pub fn fit(maximums: Vec<MaxConnections<'_>>) -> Option<String> {
    fit_to(maximums, raise())
}

/// Raises the limit of open files and returns it. Returns `None` if there is no limit.
#[cfg(unix)]
fn raise() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_raised = current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    if is_raised { maximum } else { current }
}

#[cfg(not(unix))]
fn raise() -> Option<u64> {
    None
}

fn fit_to(mut maximums: Vec<MaxConnections<'_>>, limit: Option<u64>) -> Option<String> {
    let set: Vec<String> = maximums
        .iter()
        .filter_map(|(variable, number)| Some(format!("{variable} ({})", number.as_ref()?)))
        .collect();
    let sum = |maximums: &[MaxConnections<'_>]| {
        let numbers = maximums.iter().filter_map(|(_, number)| **number);
        numbers.fold(OTHERS, |sum, number| sum.saturating_add(number as u64))
    };
    let rest = limit.map_or(u64::MAX, |limit| limit.saturating_sub(sum(&maximums)));
    let unset = (maximums.len() - set.len()).max(1) as u64;
    let share = usize::try_from(rest / unset).unwrap_or(usize::MAX).clamp(MIN, DEFAULT);
    for (_, number) in &mut maximums {
        number.get_or_insert(share);
    }
    let needed = sum(&maximums);
    let limit = limit.filter(|limit| *limit < needed)?;
    let lower =
        if set.is_empty() { String::new() } else { format!(", or lower {}", set.join(", ")) };
    Some(format!(
        "the limit of open files is {limit}; it must be at least {needed} for the maximum numbers of connections: raise \
         it (ulimit -n, LimitNOFILE){lower}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(numbers: &mut [Option<usize>], limit: Option<u64>) -> Option<String> {
        let variables = ["A", "B", "C"].into_iter();
        fit_to(variables.zip(numbers).collect(), limit)
    }

    #[test]
    fn unset_numbers_share_the_descriptors_and_only_set_numbers_are_a_reason_to_warn() {
        let all = Some(DEFAULT);
        for (limit, set, expected) in [
            (None, [None, None, None], [all, all, all]),
            (Some(30_400), [None, None, None], [all, all, all]),
            (Some(20_000), [None, None, None], [Some(6_533), Some(6_533), Some(6_533)]),
            (Some(4_096), [None, Some(3_000), None], [Some(348), Some(3_000), Some(348)]),
            (Some(700), [None, None, None], [Some(MIN), Some(MIN), Some(MIN)]),
            (None, [Some(usize::MAX), Some(1), None], [Some(usize::MAX), Some(1), all]),
        ] {
            let mut numbers = set;
            assert_eq!(fitted(&mut numbers, limit), None);
            assert_eq!(numbers, expected, "{limit:?}");
        }
    }

    #[test]
    fn a_warning_names_the_limit_the_bound_and_the_settings_that_are_too_large() {
        let too_large = fitted(&mut [None, Some(5_000), Some(usize::MAX)], Some(4_096)).unwrap();
        let expected = format!(
            "the limit of open files is 4096; it must be at least {} for the maximum numbers of connections: raise it \
             (ulimit -n, LimitNOFILE), or lower B (5000), C ({})",
            u64::MAX,
            usize::MAX,
        );
        assert_eq!(too_large, expected);
        let too_few = fitted(&mut [None, None, None], Some(256)).unwrap();
        let expected = "the limit of open files is 256; it must be at least 700 for the maximum numbers of \
            connections: raise it (ulimit -n, LimitNOFILE)";
        assert_eq!(too_few, expected);
    }
}
