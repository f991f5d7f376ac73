//! Parses numbers in decimal notation exactly, without floating-point numbers.
//!
//! The crate `rust_decimal` is not used, because it rounds beyond 28 digits and does not report it.

/// The maximum number of significant digits that are stored; they fit into a `u128`. A valid time
/// or cost has at most 16 digits before its point. So the digits after the 36th digit are part of
/// the fraction, which is dropped when the number is rounded down.
const DIGITS: u32 = 36;

/// The number `digits · 10^exponent`, with its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: u128,
    exponent: i32,
    /// Whether a digit other than 0 follows the stored digits. Such a digit is not stored.
    dropped: bool,
}

/// The result of scaling a number and rounding it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Negative,
    /// The rounded number. `exact` is `true` if rounding did not change the number.
    Number {
        floor: u64,
        exact: bool,
    },
    TooLarge,
}

impl Decimal {
    /// Parses `123`, `-1.5`, `+.5` or `1.431857103E9`. Returns `None` if the text is not a number.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let split = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = match split {
            Some(at) => (unsigned.get(..at)?, small_integer(unsigned.get(at + 1..)?)?),
            None => (unsigned, 0),
        };
        let mut number = Self { negative, digits: 0, exponent, dropped: false };
        let mut kept = 0;
        let mut any = false;
        let mut behind_point = false;
        for &byte in mantissa {
            match byte {
                b'.' if !behind_point => behind_point = true,
                b'0'..=b'9' => {
                    any = true;
                    number.push(byte - b'0', behind_point, &mut kept);
                }
                _ => return None,
            }
        }
        any.then_some(number)
    }

    fn push(&mut self, digit: u8, behind_point: bool, kept: &mut u32) {
        if *kept < DIGITS {
            self.digits = self.digits * 10 + u128::from(digit);
            *kept += u32::from(self.digits != 0);
            self.exponent = self.exponent.saturating_sub(i32::from(behind_point));
        } else {
            self.dropped |= digit != 0;
            self.exponent = self.exponent.saturating_add(i32::from(!behind_point));
        }
    }

    /// Multiplies the number by `10^shift` and rounds it down.
    pub(super) fn whole(self, shift: i32) -> Whole {
        if self.digits == 0 {
            return Whole::Number { floor: 0, exact: true };
        }
        if self.negative {
            return Whole::Negative;
        }
        let exponent = self.exponent.saturating_add(shift);
        let power = 10_u128.checked_pow(exponent.unsigned_abs());
        let (floor, rest) = match (exponent >= 0, power) {
            (true, Some(power)) => (self.digits.checked_mul(power), 0),
            (true, None) => (None, 0),
            (false, Some(power)) => (Some(self.digits / power), self.digits % power),
            (false, None) => (Some(0), 1),
        };
        match floor.map(u64::try_from) {
            Some(Ok(floor)) => Whole::Number { floor, exact: rest == 0 && !self.dropped },
            _ => Whole::TooLarge,
        }
    }
}

/// Parses a whole number of at most 4 digits, with its sign.
fn small_integer(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.is_empty() || digits.len() > 4 {
        return None;
    }
    digits
        .iter()
        .try_fold(0_i32, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i32::from(byte - b'0'))
        })
        .map(|size| sign * size)
}

/// Parses a whole number of 1 to 18 digits without a sign. This function is the fast path for usual
/// numbers.
#[inline]
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| sum * 10 + u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str, shift: i32) -> Option<Whole> {
        Decimal::parse(text.as_bytes()).map(|number| number.whole(shift))
    }

    fn number(floor: u64, exact: bool) -> Option<Whole> {
        Some(Whole::Number { floor, exact })
    }

    #[test]
    fn decimals_are_cut_and_never_rounded() {
        assert_eq!(whole("1431857103.1234569", 6), number(1_431_857_103_123_456, false));
        assert_eq!(whole("9007199254740993", 0), number(9_007_199_254_740_993, true));
        assert_eq!(whole("1.431857103E9", 6), number(1_431_857_103_000_000, true));
        assert_eq!(whole("1431857103123456789", -3), number(1_431_857_103_123_456, false));
        assert_eq!(whole("0.0000009", 6), number(0, false));
        assert_eq!(whole("12.000", 0), number(12, true));
        assert_eq!(whole(".5", 1), number(5, true));
        assert_eq!(whole("5.", 0), number(5, true));
        assert_eq!(whole("-0.0", 0), number(0, true));
    }

    #[test]
    fn any_number_of_digits_is_read() {
        let long = format!("1.{}1", "0".repeat(500));
        assert_eq!(whole(&long, 6), number(1_000_000, false));
        assert_eq!(whole(&format!("{}7", "0".repeat(500)), 0), number(7, true));
        assert_eq!(whole(&"9".repeat(500), 0), Some(Whole::TooLarge));
        assert_eq!(whole("1e9999", 0), Some(Whole::TooLarge));
        assert_eq!(whole("1e-9999", 0), number(0, false));
        assert_eq!(whole("-1e-9", 0), Some(Whole::Negative));
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in
            ["", ".", "-", "1.2.3", "1e", "e5", "0x10", "1_000", "NaN", "inf", " 1", "1e99999"]
        {
            assert_eq!(whole(text, 0), None, "{text}");
        }
    }
}
