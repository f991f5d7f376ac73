//! A share of the subjects, in percent.

use std::fmt;
use std::str::FromStr;

use super::Error;

/// The maximum number of decimals.
const DECIMALS: usize = 9;

/// A hundred percent, in units of the last decimal.
const WHOLE: u64 = 100_000_000_000;

/// A share from 0 to 100 percent, with up to 9 decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u64);

impl Share {
    /// Returns the smallest of `numbers` such that at least this share of the numbers does not
    /// exceed it. For 50 % of the numbers 3 and 7, it is 3.
    pub(super) fn smallest(self, mut numbers: Vec<u64>) -> u64 {
        let needed = (numbers.len() as u128 * u128::from(self.0)).div_ceil(u128::from(WHOLE));
        let place = usize::try_from(needed).ok().and_then(|needed| needed.checked_sub(1));
        match place.filter(|&place| place < numbers.len()) {
            Some(place) => *numbers.select_nth_unstable(place).1,
            None => 0,
        }
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error {
            message: format!(
                "`{text}` is not a share; it must be a number from 0 to 100, in percent, with at most {DECIMALS} decimals"
            ),
        };
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !are_digits(whole) || !are_digits(decimals) || decimals.len() > DECIMALS {
            return Err(wrong());
        }
        let units: u64 = format!("{whole}{decimals:0<DECIMALS$}").parse().map_err(|_| wrong())?;
        if units > WHOLE { Err(wrong()) } else { Ok(Self(units)) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = WHOLE / 100;
        let decimals = format!("{:0DECIMALS$}", self.0 % unit);
        match decimals.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / unit),
            decimals => write!(f, "{}.{decimals}", self.0 / unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smallest(share: &str, numbers: &[u64]) -> u64 {
        share.parse::<Share>().unwrap().smallest(numbers.to_vec())
    }

    #[test]
    fn a_share_is_met_exactly_and_never_by_rounding() {
        let thousand: Vec<u64> = (1..=1000).collect();
        assert_eq!(smallest("99.9", &thousand), 999);
        assert_eq!(smallest("99.900000001", &thousand), 1000);
        assert_eq!(smallest("99.899999999", &thousand), 999);
        assert_eq!(smallest("100", &thousand), 1000);
        assert_eq!(smallest("0.1", &thousand), 1);
        assert_eq!(smallest("0", &thousand), 0);
        assert_eq!(smallest("50", &[7, 3]), 3);
        assert_eq!(smallest("50.1", &[7, 3]), 7);
        assert_eq!(smallest("100", &[]), 0);
    }

    #[test]
    fn a_share_prints_as_it_is_read() {
        for text in ["0", "99.9", "100", "0.000000001", "12.05"] {
            assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in
            ["", "100.1", "-1", "99,9", "1e1", ".5", "5.", "0.0000000001", "999999999999999999999"]
        {
            let error = text.parse::<Share>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is not a share")), "{error}");
        }
    }
}
