//! The layout of stored values, which the scripts, this crate and the documentation share.
//!
//! `scripts/README.md` describes every kind of value. The macro call below defines the values that
//! have a fixed size. `rules/sliding_log.lua` describes a log, `lib/state_holds.lua` a state with
//! holds, and `id.lua` and `hold.lua` a record under an id.
//!
//! # Foreign values
//!
//! A value is foreign if no call of Tidegate can have written it. `lib/value.lua` checks the kind
//! of a value, its size and the end of its block. In its part `check`, each rule checks the numbers
//! that it has read, by the same bounds as
//! [`Record::restore`](tidegate_core::engine::Record::restore):
//!
//! * A count, a debt and a sum are 1 to 2^52, and a time is before 2^52.
//! * A window ends before 2^52 plus its length. An aligned window ends at a multiple of its length.
//! * The window of a quota is at most 26 hours longer than the longest window of its unit.
//! * The time at which a bucket recovers is after the time of its debt.
//!
//! A time in the future is valid, because the clock of a server can step back by any span.
//!
//! A script checks the foot of a log, which is the fixed-size end of the value, and the records
//! that the script reads. The script for a single charge reads only the end of a string. When this
//! script writes the end, the server replies with the size of the string. If the string is longer
//! than the size in its foot, the call fails, and the written bytes are not removed.

use std::borrow::Cow;

pub(crate) mod bytes;
pub(crate) mod layout;

use bytes::{NUMBER, Reader};

macro_rules! values {
    ($($(#[$about:meta])* $name:ident { $($field:ident),+ } = $size:ident: $($kind:ident)|+;)+) => {
        /// A value of a fixed size: a byte for the kind of the value, followed by its fields as
        /// numbers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Value {
            $($(#[$about])* $name { $($field: u64),+ }),+
        }

        impl Value {
            /// Reads a value that has no block. Returns `None` if the value ends too early or is of
            /// another kind.
            pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
                Some(match reader.byte()? {
                    $($(layout::$kind)|+ => Self::$name { $($field: reader.number()?),+ },)+
                    _ => return None,
                })
            }
        }

        /// The layouts of the values of a fixed size.
        const LAYOUTS: &[Layout] = &[$(Layout {
            size_name: stringify!($size),
            #[cfg(test)]
            kinds: &[$((stringify!($kind), layout::$kind)),+],
            fields: &[$(stringify!($field)),+],
        }),+];
    };
}

struct Layout {
    /// The name of the constant for the size of the value, such as `WINDOW_SIZE`.
    size_name: &'static str,
    /// The names and numbers of the kinds that a value of this layout can have.
    #[cfg(test)]
    kinds: &'static [(&'static str, u8)],
    fields: &'static [&'static str],
}

values! {
    Window { ends, count } = WINDOW_SIZE: FIXED_ALIGNED | FIXED_PHASED | FIXED_ANCHORED;
    Counter { ends, previous, current } = COUNTER_SIZE: COUNTER;
    /// A token bucket with continuous refill, or GCRA.
    Bucket { time, debt, unit, recovers_at, expires_at } = BUCKET_SIZE: BUCKET;
    /// A token bucket that is refilled once per period.
    Interval { anchor, debt, recovers_at, expires_at } = INTERVAL_SIZE: INTERVAL;
    Slots { count } = SLOTS_SIZE: SLOTS;
    /// A quota whose callers have named the same end of the window.
    Calendar { start, ends, count } = CALENDAR_SIZE: CALENDAR;
    /// A quota whose callers have named different ends.
    Drift { start, earliest_end, ends, count, carry } = DRIFT_SIZE: DRIFT;
}

impl Layout {
    const fn size(&self) -> usize {
        1 + self.fields.len() * NUMBER
    }
}

/// Returns the literal of a number that the scripts and this crate share.
pub(crate) fn literal(name: &str) -> Option<Cow<'static, str>> {
    let size = || LAYOUTS.iter().find(|layout| layout.size_name == name).map(Layout::size);
    match layout::literal(name) {
        Some(literal) => Some(Cow::Borrowed(literal)),
        None => size().map(|size| Cow::Owned(size.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes::put;
    use super::*;

    #[test]
    fn a_value_has_the_fields_that_its_rule_packs() {
        let file = |name: &str| {
            let path = format!("{}/src/scripts/rules/{name}.lua", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        let packs = LAYOUTS.iter().map(|layout| {
            let kind = match layout.kinds {
                [(kind, _)] => kind,
                _ => "start",
            };
            let (format, fields) = ("I7".repeat(layout.fields.len()), layout.fields.join(", "));
            let pack = format!("pack('<B{format}', {kind}, {fields})");
            (pack, format!("parse('<{format}', value, 2)"))
        });
        let rules = [
            "fixed_window",
            "sliding_counter",
            "token_bucket",
            "interval_bucket",
            "concurrent",
            "quota",
            "quota",
        ];
        for (rule, (pack, parse)) in rules.map(file).iter().zip(packs) {
            assert!(rule.contains(&pack), "{pack}\n{rule}");
            assert!(rule.contains(&parse), "{parse}\n{rule}");
        }
    }

    #[test]
    fn the_readme_of_the_scripts_has_the_fields_of_each_value() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/README.md");
        let readme = std::fs::read_to_string(path).unwrap();
        for layout in LAYOUTS {
            let kinds: Vec<_> =
                layout.kinds.iter().map(|(_, number)| format!("`{number:02x}`")).collect();
            let fields: Vec<_> = layout.fields.iter().map(|field| format!("`{field}`")).collect();
            let row =
                format!("| {} | {} | {} |", kinds.join(", "), layout.size(), fields.join(", "));
            assert!(readme.contains(&row), "the README has no row {row}");
        }
    }

    #[test]
    fn a_value_is_read_by_its_kind_and_not_if_it_ends_too_early() {
        let mut bytes = vec![layout::COUNTER];
        [7, 8, 9].iter().for_each(|&number| put(&mut bytes, number));
        let counter = Value::Counter { ends: 7, previous: 8, current: 9 };
        assert_eq!(Value::read(&mut Reader(&bytes)), Some(counter));
        assert_eq!(Value::read(&mut Reader(&bytes[..bytes.len() - 1])), None);
        bytes[0] = layout::LOG;
        assert_eq!(Value::read(&mut Reader(&bytes)), None);
    }

    #[test]
    fn a_size_is_a_literal_of_the_scripts() {
        assert_eq!(literal("BUCKET_SIZE").as_deref(), Some("36"));
        assert_eq!(literal("BUCKET").as_deref(), Some("0x96"));
        assert_eq!(literal("BUCKETS"), None);
    }
}
