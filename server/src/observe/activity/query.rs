use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::counts::{History, Kind, Widths};

/// The number of limits that a snapshot lists by default.
const DEFAULT_ROWS: usize = 50;

/// The maximum number of limits that a snapshot lists.
const MAX_ROWS: usize = 500;

/// The limits that a snapshot lists, and their order: the query of `GET /activity`.
///
/// ```
/// use tidegate_server::observe::activity::{LimitColumn, LimitsQuery};
///
/// let query: LimitsQuery = "name=login&sort=admitted".parse()?;
/// assert_eq!((&*query.name, query.sort), ("login", LimitColumn::Admitted));
/// assert_eq!(query.to_string(), "name=login&sort=admitted&reversed=false&rows=50");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitsQuery {
    /// A text; only limits whose names contain it are listed. Upper and lower case are equal. If
    /// the text is empty, all limits are listed.
    pub name: String,
    /// The column by which the limits are sorted.
    pub sort: LimitColumn,
    /// Whether the order is reversed. By default, names are in ascending order, and numbers in
    /// descending order.
    pub is_reversed: bool,
    /// The maximum number of listed limits.
    pub rows: usize,
}

/// A column of the table of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LimitColumn {
    /// The name.
    Limit,
    /// The rate of admitted requests.
    Admitted,
    /// The rate of refused requests.
    #[default]
    Refused,
    /// The rate of requests that a limit in shadow would refuse.
    Shadow,
    /// The number of decisions in the last minute.
    Minute,
}

impl LimitColumn {
    /// All columns, and the name of each column in a query.
    const ALL: [(Self, &'static str); 5] = [
        (Self::Limit, "limit"),
        (Self::Admitted, "admitted"),
        (Self::Refused, "refused"),
        (Self::Shadow, "shadow"),
        (Self::Minute, "minute"),
    ];
}

impl FromStr for LimitColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let column = Self::ALL.iter().find(|(_, name)| *name == text).map(|(column, _)| *column);
        column.ok_or_else(|| {
            format!("sort is `{text}`; it must be limit, admitted, refused, shadow or minute")
        })
    }
}

impl fmt::Display for LimitColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(column, _)| column == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl Default for LimitsQuery {
    fn default() -> Self {
        Self {
            name: String::new(),
            sort: LimitColumn::default(),
            is_reversed: false,
            rows: DEFAULT_ROWS,
        }
    }
}

impl FromStr for LimitsQuery {
    type Err = String;

    /// Parses the query of a URL.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut query = Self::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            match key {
                "name" => query.name = value.into_owned(),
                "sort" => query.sort = value.parse()?,
                "reversed" => {
                    query.is_reversed = value
                        .parse()
                        .map_err(|_| format!("reversed is `{value}`; it must be true or false"))?;
                }
                "rows" => {
                    let rows = value.parse().ok().filter(|rows| (1..=MAX_ROWS).contains(rows));
                    query.rows = rows.ok_or_else(|| {
                        format!("rows is `{value}`; it must be a whole number from 1 to {MAX_ROWS}")
                    })?;
                }
                _ => {
                    let message = "it must be name, sort, reversed or rows";
                    return Err(format!("a parameter is `{key}`; {message}"));
                }
            }
        }
        Ok(query)
    }
}

/// Formats the query of a URL.
impl fmt::Display for LimitsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, sort, is_reversed, rows } = self;
        let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
        write!(f, "name={name}&sort={sort}&reversed={is_reversed}&rows={rows}")
    }
}

/// A key that sorts limits: by the selected column, then by the decisions in the last minute, then
/// by name.
#[derive(Debug, PartialEq, PartialOrd)]
pub(super) struct SortKey {
    /// The numbers are negated, so that limits with large numbers come first.
    figures: [f64; 4],
    name: String,
}

impl LimitsQuery {
    /// Returns the key that sorts a limit, or `None` if the query does not select the limit's name.
    #[expect(clippy::float_arithmetic, reason = "the figures are only compared")]
    pub(super) fn key(&self, name: String, history: &History, widths: &Widths) -> Option<SortKey> {
        if !self.selects(&name) {
            return None;
        }
        let sum = |kind: Kind| history.series(kind).sum() as f64;
        let (all, refused) = (history.sum() as f64, sum(Kind::Refused));
        let rate = |kind: Kind| [history.series(kind).rate_now(widths), sum(kind)];
        let [figure, of_minute] = match self.sort {
            LimitColumn::Limit => return Some(SortKey { figures: [0.0; 4], name }),
            LimitColumn::Admitted => rate(Kind::Admitted),
            LimitColumn::Refused => rate(Kind::Refused),
            LimitColumn::Shadow => rate(Kind::Shadow),
            LimitColumn::Minute => [all, all],
        };
        Some(SortKey { figures: [figure, of_minute, refused, all].map(|number| -number), name })
    }

    /// Returns `true` if the query selects a limit with this name.
    pub(super) fn selects(&self, name: &str) -> bool {
        name.to_lowercase().contains(&self.name.to_lowercase())
    }

    /// Returns the order of two limits.
    pub(super) fn compare(&self, a: &SortKey, b: &SortKey) -> Ordering {
        // `partial_cmp` always returns an order, because no number in a key is NaN.
        let order = a.partial_cmp(b).unwrap_or(Ordering::Equal);
        if self.is_reversed { order.reverse() } else { order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_it_is_written_and_errors_name_the_value_and_the_bound() {
        let query = LimitsQuery {
            name: "Zoë & co=100%".into(),
            sort: LimitColumn::Minute,
            is_reversed: true,
            rows: MAX_ROWS,
        };
        assert_eq!(query.to_string().parse(), Ok(query));
        for (column, name) in LimitColumn::ALL {
            assert_eq!(name.parse(), Ok(column));
        }
        assert_eq!("".parse(), Ok(LimitsQuery::default()));
        for (text, error) in [
            ("sort=x", "sort is `x`; it must be limit, admitted, refused, shadow or minute"),
            ("reversed=1", "reversed is `1`; it must be true or false"),
            ("rows=0", "rows is `0`; it must be a whole number from 1 to 500"),
            ("rows=501", "rows is `501`; it must be a whole number from 1 to 500"),
            ("a=b", "a parameter is `a`; it must be name, sort, reversed or rows"),
        ] {
            assert_eq!(text.parse::<LimitsQuery>(), Err(error.to_owned()));
        }
    }
}
