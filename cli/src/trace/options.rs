//! The options of the reader: the subject, the cost of a request, the notation of times.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use regex::bytes::Regex;

/// The options of the reader. By default, everything is detected.
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
    /// The subject.
    pub by: By,
    /// The cost of a request.
    pub cost: Cost,
    /// The fields whose sum is the late cost, the part of the cost that is known only when a
    /// request ends. If there are such fields and `cost` is not set, the other part of the cost is
    /// 0.
    pub late_cost: Vec<String>,
    /// The field with the duration of a request. The late cost of a record is then this duration in
    /// milliseconds, rounded down. It does not add to the cost.
    pub duration: Option<Duration>,
    /// The field with the time. By default, it is the first field that has a usual name of a time
    /// field.
    pub time: Option<String>,
    /// The unit of times that are plain numbers. By default, the size of the first number in the
    /// input determines the unit.
    pub time_unit: Option<TimeUnit>,
    /// The format of all inputs. By default, the reader detects the format of each input.
    pub format: Option<Format>,
    /// A pattern of the lines, instead of a format.
    pub pattern: Option<Pattern>,
    /// Whether the first malformed line is an error.
    pub strict: bool,
}

/// The field with the duration of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duration {
    /// The name of the field.
    pub field: String,
    /// The unit of its values, which can have a fraction.
    pub unit: TimeUnit,
}

/// The subject of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The client's address or, if there is none, a field `subject`. An input with neither is an
    /// error.
    #[default]
    Auto,
    /// The client's address.
    Ip,
    /// The name of the user, which is the third field of an access log. If it is `-`, the line has
    /// no user, and the reader counts and skips it.
    User,
    /// All requests together are one subject, called `all`.
    All,
    /// The field with this name.
    Field(String),
}

/// The cost of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// Every request costs 1.
    #[default]
    One,
    /// The sum of these fields, such as `bytes` in an access log.
    Fields(Vec<String>),
}

/// The unit of times that are plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Seconds.
    #[value(name = "s")]
    Seconds,
    /// Milliseconds.
    #[value(name = "ms")]
    Milliseconds,
    /// Microseconds.
    #[value(name = "us", alias = "µs")]
    Microseconds,
    /// Nanoseconds.
    #[value(name = "ns")]
    Nanoseconds,
}

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The common and the combined format of Apache, nginx and others. A virtual host or other
    /// words can precede the fields, and further fields can follow.
    #[value(name = "log")]
    AccessLog,
    /// JSON objects: one per line, over several lines, or in an array.
    #[value(name = "json")]
    JsonLines,
    /// Fields separated by `,` or `;`, with a header.
    Csv,
    /// Fields separated by tabs, with a header.
    Tsv,
    /// The W3C extended log format of IIS and CloudFront. The line `#Fields` names the fields.
    W3c,
    /// Application Load Balancers of AWS.
    Alb,
    /// Classic Load Balancers of AWS.
    Elb,
    /// HAProxy's `option httplog` and `option tcplog`.
    #[value(name = "haproxy")]
    HaProxy,
    /// The default format of Envoy, and the format of Istio.
    Envoy,
    /// `key=value` pairs.
    Logfmt,
    /// The format of a [`Pattern`].
    #[value(skip)]
    Pattern,
}

/// A regular expression that splits a line into fields. Each named group is a field. The group
/// `time` is the time, and `ip` or `subject` is the subject, unless the options name another field.
/// A group `cost`, if there is one, is the cost.
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

    /// Returns the rule of the cost. If the option has no rule, it is the group `cost` of the
    /// pattern, unless this group is the late cost.
    #[must_use]
    pub fn cost(&self, option: &Cost, late_cost: &[String]) -> Cost {
        let has_cost = self.0.capture_names().flatten().any(|name| name == "cost");
        match has_cost && *option == Cost::One && late_cost.iter().all(|name| name != "cost") {
            true => Cost::Fields(vec!["cost".to_owned()]),
            false => option.clone(),
        }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The order of time. Records with the same time stay in the order of the input.
    #[default]
    Time,
    /// The order of the input, with a clock that never decreases. A record that is earlier than a
    /// previous record gets the latest previous time.
    File,
}

/// The error of an invalid option.
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

/// Implements `FromStr` and `Display` of an option with the words of the command line.
macro_rules! words {
    ($($option:ty: $what:literal;)+) => {$(
        impl FromStr for $option {
            type Err = BadOption;

            fn from_str(text: &str) -> Result<Self, BadOption> {
                ValueEnum::from_str(text, false).map_err(|_| {
                    let values = Self::value_variants().iter().filter_map(Self::to_possible_value);
                    let names = values.map(|value| format!("`{}`", value.get_name()));
                    BadOption::new(text, &format!("{}: {}", $what, names.collect::<Vec<_>>().join(", ")))
                })
            }
        }

        impl fmt::Display for $option {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value = self.to_possible_value();
                // Only `Format::Pattern` has no word on the command line.
                f.write_str(value.as_ref().map_or("pattern", PossibleValue::get_name))
            }
        }
    )+};
}

words! {
    TimeUnit: "a unit of time";
    Format: "a format";
    Order: "an order";
}
