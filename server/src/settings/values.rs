//! The values of all settings, with their origins, and the functions that read their texts.

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::{format_duration, parse_duration};
use tidegate_server::envoy::decide::NearLimitRatio;
use tidegate_server::observe::activity::without_secrets;

use super::Mistake;
use super::file::{Item, items};

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    /// A place in the settings file, such as `tidegate.toml:3:8`.
    File(String),
    Variable(&'static str),
    Flag(&'static str),
}

impl Origin {
    /// Returns the precedence of the origin. If a setting has several values, the value with the
    /// greatest precedence is used.
    fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(_) => 1,
            Self::Variable(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => f.write_str(place),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// The form of a value in a settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A number, or `true` or `false`, without quotation marks.
    Bare,
    Text,
    /// The URL of a store, which is shown without its login.
    Url,
    /// A text that is never shown.
    Secret,
}

/// A setting, and its value as text.
struct Entry {
    /// The section and the name of the setting, such as `grpc.address`.
    key: String,
    /// The form of the value; `None` until the program reads the setting.
    form: Option<Form>,
    text: String,
    origin: Origin,
}

impl Entry {
    /// Returns the value as it is written in a settings file. Secrets are hidden.
    fn literal(&self) -> String {
        let is_number = self.text.bytes().next().is_some_and(|first| first.is_ascii_digit());
        let is_bare = is_number || matches!(&*self.text, "true" | "false");
        match self.form {
            Some(Form::Bare) if is_bare => self.text.clone(),
            Some(Form::Secret) if !self.text.is_empty() => "\"***\"".to_owned(),
            Some(Form::Url) => format!("{:?}", without_secrets(&self.text)),
            _ => format!("{:?}", self.text),
        }
    }

    /// Returns the name of the flag or variable that set the value, or else the key of the setting.
    fn name(&self) -> &str {
        match self.origin {
            Origin::Variable(name) | Origin::Flag(name) => name,
            Origin::Default | Origin::File(_) => &self.key,
        }
    }

    fn mistake(&self, bound: &str) -> Mistake {
        let place = match &self.origin {
            Origin::File(place) => format!("{place}: "),
            _ => String::new(),
        };
        let value = match self.form {
            Some(Form::Bare | Form::Text) => &self.text,
            _ => "***",
        };
        Mistake::value(format!("{place}{} is `{value}`; it must be {bound}", self.name()))
    }
}

/// All settings, in the order of the file with the defaults.
pub(super) struct Values(Vec<Entry>);

impl Values {
    /// Reads the file with the defaults, which contains all settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not valid.
    pub(super) fn from_defaults(file: &str) -> Result<Self, Mistake> {
        let items = items(file, "defaults")?.into_iter().filter(|item| item.key.contains('.'));
        let entry = |Item { key, text, .. }| {
            let origin = Origin::Default;
            Entry { key, form: None, text, origin }
        };
        Ok(Self(items.map(entry).collect()))
    }

    /// Reads the setting `key`.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is not valid. The error contains the value and describes valid
    /// values.
    pub(super) fn get<T>(
        &mut self,
        key: &str,
        Kind { form, read }: Kind<impl Fn(&str) -> Result<T, String>>,
    ) -> Result<T, Mistake> {
        let entry = self.0.iter_mut().find(|entry| entry.key == key);
        let entry = entry.ok_or_else(|| format!("the setting {key} has no default"))?;
        entry.form = Some(form);
        read(&entry.text).map_err(|bound| entry.mistake(&bound))
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// Sets a value if `origin` has a greater precedence than the origin of the present value.
    /// Returns `false` if the setting does not exist.
    pub(super) fn set(&mut self, key: &str, text: impl Into<String>, origin: Origin) -> bool {
        let Some(entry) = self.0.iter_mut().find(|entry| entry.key == key) else { return false };
        if origin.rank() > entry.origin.rank() {
            (entry.text, entry.origin) = (text.into(), origin);
        }
        true
    }

    /// Returns the value of `key` as text; empty if the setting does not exist.
    pub(super) fn text(&self, key: &str) -> &str {
        self.entry(key).map_or("", |entry| &entry.text)
    }

    pub(super) fn origin(&self, key: &str) -> &Origin {
        self.entry(key).map_or(&Origin::Default, |entry| &entry.origin)
    }

    /// Returns the name of the flag or variable that set `key`, or else `key`.
    pub(super) fn name<'a>(&'a self, key: &'a str) -> &'a str {
        self.entry(key).map_or(key, Entry::name)
    }

    /// Returns `true` if the file must have the value of `key` in quotation marks.
    pub(super) fn is_quoted(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|entry| entry.form != Some(Form::Bare))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| &*entry.key)
    }

    /// Returns one line for each setting, with its value and its origin. Secrets are `***`.
    pub(super) fn print(&self) -> String {
        let line =
            |entry: &Entry| format!("{} = {}  # {}\n", entry.key, entry.literal(), entry.origin);
        self.0.iter().map(line).collect()
    }
}

/// The form of a value, and the function that reads it.
pub(super) struct Kind<F> {
    form: Form,
    pub(super) read: F,
}

/// Reads a switch. An unknown word is an error, because a typing mistake must not turn limits off.
pub(super) fn switch() -> Kind<impl Fn(&str) -> Result<bool, String>> {
    let read = |text: &str| match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(false),
        _ => Err("true or false".to_owned()),
    };
    Kind { form: Form::Bare, read }
}

pub(super) fn number<T>(min: T, max: T) -> Kind<impl Fn(&str) -> Result<T, String>>
where
    T: FromStr + PartialOrd + Display,
{
    let read = move |text: &str| {
        let number = text.parse().ok().filter(|number| (&min..=&max).contains(&number));
        number.ok_or_else(|| format!("a whole number from {min} to {max}"))
    };
    Kind { form: Form::Bare, read }
}

/// Reads a maximum number of connections; `auto` is `None`.
pub(super) fn connections() -> Kind<impl Fn(&str) -> Result<Option<usize>, String>> {
    let number = number(1, usize::MAX).read;
    let read = move |text: &str| match text {
        "auto" => Ok(None),
        text => number(text).map(Some).map_err(|bound| format!("{bound}, or \"auto\"")),
    };
    Kind { form: Form::Bare, read }
}

/// Reads a number that is not negative, such as `0.5`.
pub(super) fn factor() -> Kind<impl Fn(&str) -> Result<f64, String>> {
    let read = |text: &str| {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| "a number from 0 on, such as 0.5".to_owned())
    };
    Kind { form: Form::Bare, read }
}

pub(super) fn ratio() -> Kind<impl Fn(&str) -> Result<NearLimitRatio, String>> {
    let bound = "a number from 0 to 1 with at most six decimals, such as 0.8";
    let read = move |text: &str| NearLimitRatio::parse(text).ok_or_else(|| bound.to_owned());
    Kind { form: Form::Bare, read }
}

/// Reads a span of time above zero.
pub(super) fn span() -> Kind<impl Fn(&str) -> Result<Duration, String>> {
    let bound = "a span of time from 1us to 71 years, such as 250ms, 90s or 1h30m";
    let read = move |text: &str| parse_duration(text).map_err(|_| bound.to_owned());
    Kind { form: Form::Text, read }
}

/// Reads a span from `min` to `max`.
pub(super) fn span_within(
    min: Duration,
    max: Duration,
) -> Kind<impl Fn(&str) -> Result<Duration, String>> {
    text_as(move |text: &str| {
        let span = (span().read)(text)?;
        let bound = || format!("from {} to {}", format_duration(min), format_duration(max));
        (min..=max).contains(&span).then_some(span).ok_or_else(bound)
    })
}

/// Reads a span of time, or `0s`.
pub(super) fn span_or_zero() -> Kind<impl Fn(&str) -> Result<Duration, String>> {
    let span = span().read;
    let read = move |text: &str| match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => span(text).map_err(|bound| format!("0s, or {bound}")),
    };
    Kind { form: Form::Text, read }
}

/// Reads an empty text as `None`, and every other text with `kind`.
pub(super) fn optional<T, F>(kind: Kind<F>) -> Kind<impl Fn(&str) -> Result<Option<T>, String>>
where
    F: Fn(&str) -> Result<T, String>,
{
    let read = move |text: &str| match text {
        "" => Ok(None),
        text => (kind.read)(text).map(Some),
    };
    Kind { form: kind.form, read }
}

#[allow(clippy::unnecessary_wraps, reason = "other kinds have bounds")]
fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

pub(super) fn text() -> Kind<impl Fn(&str) -> Result<String, String>> {
    Kind { form: Form::Text, read: any }
}

/// Reads the name of a header field.
pub(super) fn header_name() -> Kind<impl Fn(&str) -> Result<String, String>> {
    let read = |text: &str| match axum::http::HeaderName::from_bytes(text.as_bytes()) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("the name of a header field".to_owned()),
    };
    Kind { form: Form::Text, read }
}

pub(super) fn url() -> Kind<impl Fn(&str) -> Result<String, String>> {
    Kind { form: Form::Url, read: any }
}

pub(super) fn secret() -> Kind<impl Fn(&str) -> Result<String, String>> {
    Kind { form: Form::Secret, read: any }
}

/// Reads a secret with the function `read`. If the secret is not valid, `read` returns a
/// description of valid secrets for the message, which does not show the secret.
pub(super) fn secret_as<T>(
    read: impl Fn(&str) -> Result<T, String>,
) -> Kind<impl Fn(&str) -> Result<T, String>> {
    Kind { form: Form::Secret, read }
}

/// Reads a text with the function `read`. If the text is not valid, `read` returns a description of
/// valid texts for the message.
pub(super) fn text_as<T>(
    read: impl Fn(&str) -> Result<T, String>,
) -> Kind<impl Fn(&str) -> Result<T, String>> {
    Kind { form: Form::Text, read }
}

/// Reads the path of a file; an empty text is `None`.
pub(super) fn file() -> Kind<impl Fn(&str) -> Result<Option<PathBuf>, String>> {
    optional(Kind { form: Form::Text, read: |text: &str| Ok(PathBuf::from(text)) })
}

/// Reads one of some words.
pub(super) fn choice<T: Copy>(
    choices: &[(&'static str, T)],
) -> Kind<impl Fn(&str) -> Result<T, String>> {
    let read = move |text: &str| {
        let found = choices.iter().find(|(word, _)| *word == text);
        let words = || choices.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        found.map(|(_, choice)| *choice).ok_or_else(|| match &*words() {
            [first @ .., last] => format!("{} or {last}", first.join(", ")),
            [] => String::new(),
        })
    };
    Kind { form: Form::Text, read }
}

/// A host, a port, and the name of the setting that contains both. Error messages use the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) name: String,
}

impl Values {
    /// Reads the setting `key` as an address, `HOST:PORT`; an empty text is `None`.
    pub(super) fn get_address(&mut self, key: &str) -> Result<Option<Address>, Mistake> {
        let read = |text: &str| {
            let (host, port) = text.rsplit_once(':')?;
            let host = if host.is_empty() { "0.0.0.0" } else { host };
            // An IPv6 address must be in brackets. Otherwise, its last part would be read as the
            // port.
            let is_host = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
            is_host.then_some((host.to_owned(), port.parse().ok()?))
        };
        let bound = "HOST:PORT, such as 127.0.0.1:8080";
        let read = |text: &str| read(text).ok_or_else(|| bound.to_owned());
        let parts = self.get(key, optional(text_as(read)))?;
        let name = self.name(key).to_owned();
        Ok(parts.map(|(host, port)| Address { host, port, name }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DEFAULTS, Settings};
    use super::*;

    #[test]
    fn the_file_with_the_defaults_has_the_settings_that_are_read_and_no_other() {
        let mut values = Values::from_defaults(DEFAULTS).unwrap();
        Settings::read(&mut values).unwrap();
        let unread: Vec<_> = values.0.iter().filter(|entry| entry.form.is_none()).collect();
        assert!(unread.is_empty(), "{:?}", unread[0].key);
        let before = DEFAULTS.lines().zip(DEFAULTS.lines().skip(1));
        for (before, line) in
            before.filter(|(_, line)| !line.starts_with('#') && line.contains(" = "))
        {
            assert!(before.starts_with("# "), "{line} has no description");
        }
    }

    #[test]
    fn an_address_is_a_host_or_none_and_a_port() {
        let read = |text: &str| {
            let file = format!("[a]\naddress = '{text}'");
            Values::from_defaults(&file).unwrap().get_address("a.address")
        };
        for (text, host, port) in [
            (":9090", "0.0.0.0", 9090),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("[::1]:65535", "[::1]", 65535),
            ("localhost:80", "localhost", 80),
        ] {
            let name = "a.address".to_owned();
            let expected = Address { host: host.to_owned(), port, name };
            assert_eq!(read(text).unwrap(), Some(expected));
        }
        for text in ["9090", "a:", ":65536", ":-1", "a:b", "::1:80"] {
            let expected =
                format!("a.address is `{text}`; it must be HOST:PORT, such as 127.0.0.1:8080");
            assert_eq!(read(text).unwrap_err().message, expected);
        }
        assert_eq!(read("").unwrap(), None);
    }

    #[test]
    fn the_value_of_the_origin_with_the_greatest_precedence_counts() {
        let mut values = Values::from_defaults("[a]\nb = 0").unwrap();
        let mut read = |text: &str, origin| {
            assert!(values.set("a.b", text, origin));
            values.get("a.b", number(0, 9)).map_err(|mistake| mistake.message)
        };
        assert_eq!(read("1", Origin::Variable("B")), Ok(1));
        assert_eq!(read("2", Origin::File("f:1:1".into())), Ok(1));
        assert_eq!(read("3", Origin::Flag("--b")), Ok(3));
        assert_eq!(read("4", Origin::Variable("B")), Ok(3));
        assert!(!values.set("a.c", "", Origin::Default));
        let mut values = Values::from_defaults("[a]\nb = 0").unwrap();
        values.set("a.b", "10", Origin::File("f:1:5".into()));
        let error = values.get("a.b", number(0, 9)).unwrap_err().message;
        assert_eq!(error, "f:1:5: a.b is `10`; it must be a whole number from 0 to 9");
    }
}
