//! The values of arguments and variables.

use tidegate_server::decide::NearLimitRatio;

/// A setting that is on or off. Another word is an error: a mistyped `SHADOW_MODE` must not turn the limits off.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "" | "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

/// A maximum. With 0 of them nothing would be served, and 0 stands for no limit elsewhere.
pub(super) fn maximum(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("it must be a whole number from 1 to {}", usize::MAX))
}

pub(super) fn ratio(text: &str) -> Result<NearLimitRatio, String> {
    let expected = "it must be a number from 0 to 1 with at most six decimals, such as 0.8";
    NearLimitRatio::parse(text).ok_or_else(|| expected.to_owned())
}

/// A variable that is set and empty is not given.
pub(super) fn given(value: &Option<String>) -> Option<&String> {
    value.as_ref().filter(|value| !value.is_empty())
}
