use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::{format_duration, parse_duration};

/// The speed at which a request uses its late cost, such as `50/1s` for the tokens of an answer.
///
/// ```
/// use tidegate::replay::Pace;
///
/// let pace: Pace = "50/1s".parse()?;
/// assert_eq!(pace.micros(75), 1_500_000);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The amount that a request uses within `span`; at least 1.
    count: u64,
    span: Duration,
}

impl Pace {
    /// Returns the time in which a request uses `late_cost`, in microseconds, rounded up.
    #[must_use]
    pub fn micros(self, late_cost: u32) -> u64 {
        let micros = self.span.as_micros().saturating_mul(late_cost.into());
        u64::try_from(micros.div_ceil(self.count.max(1).into())).unwrap_or(u64::MAX)
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let count = parts.and_then(|(count, _)| count.parse().ok()).filter(|&count| count > 0);
        let (Some(count), Some((_, span))) = (count, parts) else {
            return Err("a pace is a count above 0 in a time, such as `50/1s`".to_owned());
        };
        let span = parse_duration(span).map_err(|error| error.to_string())?;
        Ok(Self { count, span })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, format_duration(self.span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_read_as_it_is_shown() {
        for text in ["50/1s", "1/250ms", "18446744073709551615/7d"] {
            assert_eq!(text.parse::<Pace>().unwrap().to_string(), text);
        }
        for text in ["", "50", "0/1s", "-1/1s", "50/", "50/1", "1.5/1s"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_rounded_up_and_bounded() {
        let pace = |text: &str| text.parse::<Pace>().unwrap();
        assert_eq!(pace("3/1s").micros(1), 333_334);
        assert_eq!(pace("3/1s").micros(0), 0);
        assert_eq!(pace("1/25000d").micros(u32::MAX), u64::MAX);
    }
}
