//! Reads the time at which a certificate expires, because rustls does not return it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the `notAfter` of a certificate in DER (RFC 5280, section 4.1). Returns `None` if the
/// bytes are not a certificate or have another form.
///
/// ```text
/// Certificate ::= SEQUENCE { SEQUENCE { [0] version OPTIONAL, serial, algorithm, issuer,
///                                       SEQUENCE { notBefore, notAfter }, ... }, ... }
/// ```
pub(super) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    let (_, certificate, _) = element(certificate).filter(|element| element.0 == SEQUENCE)?;
    let (_, mut rest, _) = element(certificate).filter(|element| element.0 == SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    for _ in ["serial", "algorithm", "issuer"] {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest).filter(|element| element.0 == SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    time(tag, text)
}

/// Returns the tag and the contents of the first DER element, and the bytes after the element.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        // A length with more than 4 bytes would exceed the maximum size of a file.
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit));
        rest = after;
    }
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// Parses a time in the form `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = number(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(text, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let is_valid = (1..=12).contains(&month) && (1..=31).contains(&day) && rest == b"Z";
    let days = days_since_1970(year, month, day).filter(|_| is_valid)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Returns the number of days since 1970 in the Gregorian calendar. The calculation uses years that
/// begin in March, so that a leap day is the last day of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let month_days = (153 * ((month + 9) % 12) + 2) / 5;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + month_days + day;
    // `days` counts from the 1st of March of the year 0, which is day 1. The 1st of January 1970 is
    // day 719,469.
    days.checked_sub(719_469)
}

fn number(text: &[u8], digits: usize) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let value = digits.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0'))
    });
    Some((value?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        let at = time(tag, text.as_bytes())?;
        Some(at.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "700102030405Z", 97_445),
            (UTC_TIME, "000229000000Z", 951_782_400),
            (UTC_TIME, "000301000000Z", 951_868_800),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000228000000Z", 4_107_456_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(seconds(tag, text), Some(expected), "{text}");
        }
        for (tag, text) in [
            (UTC_TIME, "500101000000Z"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "700100000000Z"),
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "700101000000+0100"),
            (UTC_TIME, "70010100000-Z"),
            (GENERALIZED_TIME, "00000101000000Z"),
            (0x16, "700101000000Z"),
            (UTC_TIME, ""),
        ] {
            assert_eq!(seconds(tag, text), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_found_and_no_other_bytes_panic() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let der = certificate.der().to_vec();
        let expected = UNIX_EPOCH + Duration::from_secs(1_927_843_200);
        assert_eq!(not_after(&der), Some(expected));
        for cut in 0..der.len() {
            assert_eq!(not_after(&der[..cut]), None);
            for byte in [0, 0x30, 0x7f, 0x84, 0xff] {
                let mut broken = der.clone();
                broken[cut] = byte;
                let _ = not_after(&broken);
            }
        }
    }
}
