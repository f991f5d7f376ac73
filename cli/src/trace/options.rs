//! What the reader is told: who is the subject, what a request costs, how times are written.

use std::fmt;
use std::str::FromStr;

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
    /// Whether the first malformed line is an error that ends the reading.
    pub strict: bool,
}

/// Who is limited: what makes two requests belong to one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The client's address where the input has one, all requests together where it has none.
    #[default]
    Auto,
    /// The client's address.
    Ip,
    /// The user's name. In an access log that is the third field, and all lines without a user,
    /// which say `-` there, are one subject called `-`: no line is left out silently.
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
    /// Apache's and nginx's common and combined formats, with or without a virtual host in front
    /// and further fields behind.
    AccessLog,
    /// One JSON object a line.
    JsonLines,
    /// Fields parted by `,` or `;`, with a header.
    Csv,
    /// Fields parted by tabs, with a header.
    Tsv,
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

impl FromStr for Format {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Self, BadOption> {
        match text {
            "log" => Ok(Self::AccessLog),
            "json" => Ok(Self::JsonLines),
            "csv" => Ok(Self::Csv),
            "tsv" => Ok(Self::Tsv),
            _ => Err(BadOption::new(text, "a format: `log`, `json`, `csv` or `tsv`")),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AccessLog => "log",
            Self::JsonLines => "json",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
        })
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
