//! Formats numbers for people, with integer arithmetic only.

/// Returns a number with separators: `1,234,567`.
///
/// ```
/// assert_eq!(tidegate::report::number::thousands(1_234_567), "1,234,567");
/// ```
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number in at most five characters, for the ends of a scale: `9,999`, `12.3k`, `456k`,
/// `7.8M`. Further digits are cut off, so that the number is never rounded up.
///
/// ```
/// assert_eq!(tidegate::report::number::compact(12_399), "12.3k");
/// ```
#[must_use]
pub fn compact(number: u64) -> String {
    if number < 10_000 {
        return thousands(number);
    }
    let (mut unit, mut suffix) = (1_000, 'k');
    for next in ['M', 'G', 'T', 'P', 'E'] {
        if number / unit < 1_000 {
            break;
        }
        (unit, suffix) = (unit * 1_000, next);
    }
    let (whole, tenth) = (number / unit, number % unit / (unit / 10));
    if whole >= 100 || tenth == 0 {
        format!("{whole}{suffix}")
    } else {
        format!("{whole}.{tenth}{suffix}")
    }
}

/// Returns a share in percent, to the nearest tenth: `12.3 %`.
///
/// Only zero is `0 %`, and only the whole is `100 %`. A share that would round to one of these is
/// `<0.1 %` or `>99.9 %`. If the whole is zero, the share is `–`.
///
/// ```
/// use tidegate::report::number::share;
///
/// assert_eq!(share(1, 8), "12.5 %");
/// assert_eq!(share(1, 1_000_000), "<0.1 %");
/// ```
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part.min(whole)), u128::from(whole));
    if whole == 0 {
        return "–".to_owned();
    }
    if part == 0 {
        return "0 %".to_owned();
    }
    if part == whole {
        return "100 %".to_owned();
    }
    if part * 1_000 < whole {
        return "<0.1 %".to_owned();
    }
    if (whole - part) * 1_000 < whole {
        return ">99.9 %".to_owned();
    }
    let permille = (part * 2_000 + whole) / (whole * 2);
    format!("{}.{} %", permille / 10, permille % 10)
}

/// Returns the ratio of `count` to `each`, rounded to hundredths. If `each` is zero, the ratio is
/// `–`.
///
/// ```
/// use tidegate::report::number::ratio;
///
/// assert_eq!(ratio(2_047, 2_000), "1.02");
/// assert_eq!(ratio(1, 1_000_000), "<0.01");
/// ```
#[must_use]
pub fn ratio(count: u64, each: u64) -> String {
    let (count, each) = (u128::from(count), u128::from(each));
    if each == 0 {
        return "–".to_owned();
    }
    if count > 0 && count * 100 < each {
        return "<0.01".to_owned();
    }
    let hundredths = (count * 200 + each) / (each * 2);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Returns `part / whole` of `length`, rounded down, and at most `length`.
#[must_use]
pub fn scaled(part: u64, whole: u64, length: u32) -> u32 {
    if part >= whole {
        return if whole == 0 { 0 } else { length };
    }
    let units = u128::from(part) * u128::from(length) / u128::from(whole);
    u32::try_from(units).unwrap_or(length)
}

/// Returns a number with its noun: `1 subject`, `2 subjects`.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}
