//! Parses numbers with units: `100M` subjects, `500k/s`, `16GiB`.

/// Parses a count: digits, at most one point, and `k`, `M` or `B` (a thousand, a million, a
/// billion).
///
/// # Errors
///
/// Returns an error if the text is not a count, if the count is not a whole number, or if it is
/// above 10^15.
///
/// ```
/// use tidegate::plan::units::count;
///
/// assert_eq!(count("1.5M"), Ok(1_500_000));
/// assert!(count("many").is_err());
/// ```
pub fn count(text: &str) -> Result<u64, String> {
    let units = [("k", 1_000), ("M", 1_000_000), ("B", 1_000_000_000), ("", 1)];
    whole(text, &units).ok_or_else(|| {
        format!("`{text}` is not a count; write 20000, 20k, 1.5M or 1B, at most 10^15")
    })
}

/// Parses a rate: a count, `/`, and `s`, `m` or `h`. Returns the requests per hour, so that a small
/// rate such as `7/h` is a whole number.
///
/// # Errors
///
/// Returns an error if the text is not a rate, or if the rate is above 10^15 per hour.
///
/// ```
/// use tidegate::plan::units::rate_per_hour;
///
/// assert_eq!(rate_per_hour("500k/s"), Ok(500_000 * 3_600));
/// assert_eq!(rate_per_hour("7/h"), Ok(7));
/// ```
pub fn rate_per_hour(text: &str) -> Result<u64, String> {
    let read = || {
        let (number, unit) = text.split_once('/')?;
        let times = match unit {
            "s" => 3_600,
            "m" => 60,
            "h" => 1,
            _ => return None,
        };
        count(number).ok()?.checked_mul(times).filter(|&rate| rate <= MOST)
    };
    read().ok_or_else(|| {
        format!("`{text}` is not a rate; write 500k/s, 20M/m or 100/h, at most 10^15 per hour")
    })
}

/// Parses a number of bytes: a number and `GiB`, `MiB`, `KiB`, `GB`, `MB`, `kB` or `B`.
///
/// # Errors
///
/// Returns an error if the text is not a number of bytes, or if the number is above 10^15.
///
/// ```
/// use tidegate::plan::units::bytes;
///
/// assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
/// assert!(bytes("16").is_err());
/// ```
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("kB", 1_000),
        ("B", 1),
    ];
    whole(text, &units).ok_or_else(|| {
        format!("`{text}` is not a number of bytes; write 16GiB, 512MiB or 16GB, at most 10^15")
    })
}

const MOST: u64 = 1_000_000_000_000_000;

fn whole(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) =
        units.iter().find_map(|(word, unit)| Some((text.strip_suffix(word)?, *unit)))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| {
        let fits = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        fits.then(|| text.parse::<u128>().ok()).flatten()
    };
    let tenths = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let sum = (digits(whole)? * tenths + digits(part)?).checked_mul(unit.into())?;
    if !sum.is_multiple_of(tenths) {
        return None;
    }
    u64::try_from(sum / tenths).ok().filter(|&sum| sum <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(count("0"), Ok(0));
        assert_eq!(count("20k"), Ok(20_000));
        assert_eq!(count("1B"), Ok(1_000_000_000));
        assert_eq!(count("1000000000000000"), Ok(MOST));
        assert_eq!(rate_per_hour("1.5k/m"), Ok(90_000));
        assert_eq!(bytes("16GB"), Ok(16_000_000_000));
        assert_eq!(bytes("1KiB"), Ok(1_024));
        assert_eq!(bytes("7B"), Ok(7));
    }

    #[test]
    fn what_is_none_is_refused_by_name() {
        for text in
            ["", "k", ".5k", "5.k", "-1", "+1", "1 k", "1kk", "0.5", "1.2345k", "1e6", "9999999B"]
        {
            let error = count(text).unwrap_err();
            assert!(error.starts_with(&format!("`{text}` is not a count")), "{error}");
        }
        for text in ["5", "5/", "/s", "5/d", "5/s/s", "1000000000000000/s"] {
            assert!(rate_per_hour(text).unwrap_err().contains("write 500k/s"), "{text}");
        }
        for text in ["16", "GiB", "16G", "1.0000000001B", "2000000GiB"] {
            assert!(bytes(text).unwrap_err().contains("write 16GiB"), "{text}");
        }
    }
}
