//! What the reader is told: who is the subject, what a request costs, how times are written.

use std::fmt;
use std::str::FromStr;

use regex::bytes::Regex;

/// How to read the input. The default looks for everything itself.
///
/// ```
/// use tidegate::trace::{By, Options};
///
/// let options = Options {
///     by: By::All,
///     cost: "ContextTokens+GeneratedTokens".parse()?,
///     ..Options::default()
/// };
/// # assert_eq!(options.cost.to_string(), "ContextTokens+GeneratedTokens");
/// # Ok::<(), tidegate::trace::BadOption>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Who is limited.
    pub by: By,
    /// What one request costs.
    pub cost: Cost,
    /// The field that holds the time; none: the first of the usual names that is there.
    pub time: Option<String>,
    /// The unit of times that are plain numbers; none: the unit that is plain from their size.
    pub time_unit: Option<TimeUnit>,
    /// The format of every input; none: found by looking, for each input on its own.
    pub format: Option<Format>,
    /// What the lines look like, in place of a format.
    pub pattern: Option<Pattern>,
    /// Whether the first malformed line is an error that ends the reading.
    pub strict: bool,
}

/// Who is limited: what makes two requests belong to one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The client's address, or else a field called `subject`. An input that has neither is an error.
    #[default]
    Auto,
    /// The client's address.
    Ip,
    /// The user's name. In an access log that is the third field. Lines without a user, which say `-`
    /// there, are counted and not handed out.
    User,
    /// All requests together are one subject, called `all`.
    All,
    /// The field of that name.
    Field(String),
}

/// What one request costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// Every request costs 1.
    #[default]
    One,
    /// The sum of these fields (`bytes` in an access log).
    Fields(Vec<String>),
}

/// The unit of times that are plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// `s`
    Seconds,
    /// `ms`
    Milliseconds,
    /// `us`
    Microseconds,
    /// `ns`
    Nanoseconds,
}

/// A format the reader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The common and combined formats of Apache, nginx and others, with or without a virtual host or
    /// other words in front and further fields behind.
    AccessLog,
    /// JSON objects: one a line, over several lines, or in an array.
    JsonLines,
    /// Fields parted by `,` or `;`, with a header.
    Csv,
    /// Fields parted by tabs, with a header.
    Tsv,
    /// W3C extended log files, which IIS and CloudFront write: the fields are named by `#Fields`.
    W3c,
    /// Application Load Balancers of AWS.
    Alb,
    /// Classic Load Balancers of AWS.
    Elb,
    /// HAProxy's `option httplog` and `option tcplog`.
    HaProxy,
    /// Envoy's default format, and that of Istio.
    Envoy,
    /// `key=value` pairs.
    Logfmt,
    /// What a [`Pattern`] says.
    Pattern,
}

/// A regular expression that takes a line apart. The names of its groups are those of the fields:
/// `time` is the time, `ip` or `subject` the subject, unless the options name another, and `cost`, if
/// there is such a group, the cost.
///
/// ```
/// use tidegate::trace::Pattern;
///
/// let pattern: Pattern = r"^(?<time>\S+) \w+ (?<ip>\S+) (?<cost>\d+)$".parse()?;
/// assert!("^.* .*$".parse::<Pattern>().is_err(), "no field has a name");
/// # Ok::<(), tidegate::trace::BadOption>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    pub(super) fn regex(&self) -> &Regex {
        &self.0
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl FromStr for Pattern {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        let regex = Regex::new(text).map_err(|error| BadOption { message: error.to_string() })?;
        if regex.capture_names().flatten().next().is_none() {
            let wanted = "a pattern with named groups, such as `(?<time>\\S+) (?<ip>\\S+)`";
            return Err(BadOption::new(text, wanted));
        }
        Ok(Self(regex))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// The order in which records are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By time; records of one time stay in the order of the input.
    #[default]
    Time,
    /// As the input has them, with a clock that never steps back: a record that is late takes the
    /// largest time seen before it.
    File,
}

/// The text of an option that says nothing the reader understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOption {
    message: String,
}

impl BadOption {
    fn new(text: &str, wanted: &str) -> Self {
        Self { message: format!("`{text}` is not {wanted}") }
    }
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadOption {}

impl FromStr for By {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        match text {
            "" => Err(BadOption::new(text, "`ip`, `user`, `all` or the name of a field")),
            "ip" => Ok(Self::Ip),
            "user" => Ok(Self::User),
            "all" => Ok(Self::All),
            name => Ok(Self::Field(name.to_owned())),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Ip => "ip",
            Self::User => "user",
            Self::All => "all",
            Self::Field(name) => name,
        })
    }
}

impl FromStr for Cost {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        if text == "1" {
            return Ok(Self::One);
        }
        let fields: Vec<String> = text.split('+').map(|name| name.trim().to_owned()).collect();
        if fields.iter().any(String::is_empty) {
            return Err(BadOption::new(text, "`1`, a field's name, or several joined by `+`"));
        }
        Ok(Self::Fields(fields))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("1"),
            Self::Fields(fields) => f.write_str(&fields.join("+")),
        }
    }
}

impl FromStr for TimeUnit {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        match text {
            "s" => Ok(Self::Seconds),
            "ms" => Ok(Self::Milliseconds),
            "us" | "µs" => Ok(Self::Microseconds),
            "ns" => Ok(Self::Nanoseconds),
            _ => Err(BadOption::new(text, "a unit of time: `s`, `ms`, `us` or `ns`")),
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
        })
    }
}

impl Format {
    /// The formats that can be named, with their names.
    const NAMES: [(Self, &str); 10] = [
        (Self::AccessLog, "log"),
        (Self::JsonLines, "json"),
        (Self::Csv, "csv"),
        (Self::Tsv, "tsv"),
        (Self::W3c, "w3c"),
        (Self::Alb, "alb"),
        (Self::Elb, "elb"),
        (Self::HaProxy, "haproxy"),
        (Self::Envoy, "envoy"),
        (Self::Logfmt, "logfmt"),
    ];
}

impl FromStr for Format {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        let named = Self::NAMES.iter().find(|(_, name)| *name == text);
        named.map(|(format, _)| *format).ok_or_else(|| {
            let names = Self::NAMES.map(|(_, name)| format!("`{name}`"));
            BadOption::new(text, &format!("a format: {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().find(|(format, _)| format == self);
        f.write_str(named.map_or("pattern", |(_, name)| name))
    }
}

impl FromStr for Order {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        match text {
            "time" => Ok(Self::Time),
            "file" => Ok(Self::File),
            _ => Err(BadOption::new(text, "an order: `time` or `file`")),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::File => "file",
        })
    }
}
