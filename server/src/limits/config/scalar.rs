//! Determines the types of YAML values that are written without quotes, by the rules of the YAML
//! library that envoyproxy/ratelimit uses (YAML 1.1).

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Integer,
    Float,
    Text,
}

/// Returns the type of a value that is written without quotes.
pub(super) fn kind_of_plain(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Kind::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Kind::Bool(false)
        }
        _ if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => {
            Kind::Text
        }
        _ if integer(text).is_some() => Kind::Integer,
        _ if text.replace('_', "").parse::<f64>().is_ok_and(f64::is_finite) => Kind::Float,
        _ => Kind::Text,
    }
}

/// Parses a whole number in decimal, or in binary, octal or hexadecimal with a prefix. The digits
/// can be grouped by `_`.
pub(super) fn integer(text: &str) -> Option<i128> {
    let text = text.replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    Some(sign * i128::from(u64::from_str_radix(digits, radix).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        for (text, kind) in [
            ("", Kind::Null),
            ("~", Kind::Null),
            ("null", Kind::Null),
            ("yes", Kind::Bool(true)),
            ("Off", Kind::Bool(false)),
            ("12", Kind::Integer),
            ("-1_000", Kind::Integer),
            ("0x1F", Kind::Integer),
            ("010", Kind::Integer),
            ("0.25", Kind::Float),
            ("1e3", Kind::Float),
            (".5", Kind::Float),
            ("08", Kind::Float),
            ("1.2.3.4", Kind::Text),
            ("+-1", Kind::Text),
            ("-", Kind::Text),
            ("infinity", Kind::Text),
            ("second", Kind::Text),
        ] {
            assert_eq!(kind_of_plain(text), kind, "{text}");
        }
        assert_eq!(integer("0x1F"), Some(31));
        assert_eq!(integer("010"), Some(8));
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("-1_000"), Some(-1000));
        assert_eq!(integer("18446744073709551616"), None);
    }
}
