//! Writes rows with a name and right-aligned numbers.
//!
//! The crate `comfy-table` is not used, because it wraps long cells. This module writes a long name
//! on its own line, above its numbers.

use std::io;

use unicode_width::UnicodeWidthStr;

use super::paint::{Paint, Tone};

const GAP: usize = 2;

/// A number as text, and its meaning.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(text: String, tone: Tone) -> Self {
        Cell { text, tone }
    }

    pub(super) fn plain(text: String) -> Self {
        Cell::new(text, Tone::Plain)
    }
}

/// A table whose first column is a name.
#[derive(Debug)]
pub(super) struct Grid {
    name: &'static str,
    head: Vec<&'static str>,
    rows: Vec<(String, Vec<Cell>)>,
}

impl Grid {
    pub(super) fn new(name: &'static str, head: Vec<&'static str>) -> Self {
        Grid { name, head, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, name: String, cells: Vec<Cell>) {
        self.rows.push((name, cells));
    }

    /// Writes the rows in `width` columns. A name that does not fit next to its numbers has its own
    /// line, because a truncated policy would be useless.
    pub(super) fn write(
        &self,
        out: &mut impl io::Write,
        width: usize,
        paint: Paint,
    ) -> io::Result<()> {
        let widths = self.widths();
        let numbers: usize = widths.iter().map(|width| width + GAP).sum();
        let longest = self.rows.iter().map(|(name, _)| length(name)).max().unwrap_or(0);
        let room = width.saturating_sub(numbers).max(self.name.len());
        let names = longest.clamp(self.name.len(), room);

        let mut line = format!("{:<names$}", self.name);
        for (head, width) in self.head.iter().zip(&widths) {
            line.push_str(&format!("{head:>0$}", width + GAP));
        }
        writeln!(out, "{}", paint.text(&line, Tone::Heading))?;
        for (name, cells) in &self.rows {
            if length(name) > names {
                writeln!(out, "{name}")?;
                write!(out, "{:names$}", "")?;
            } else {
                write!(out, "{name}{:1$}", "", names - length(name))?;
            }
            for (cell, width) in cells.iter().zip(&widths) {
                let text =
                    format!("{:1$}{text}", "", width + GAP - length(&cell.text), text = cell.text);
                write!(out, "{}", paint.text(&text, cell.tone))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |column: usize, head: &str| {
            let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(column));
            cells.map(|cell| length(&cell.text)).max().unwrap_or(0).max(length(head))
        };
        self.head.iter().enumerate().map(|(column, head)| widest(column, head)).collect()
    }
}

/// Returns the number of columns that a text has on a terminal. A Chinese character has two
/// columns, and a combining accent has none.
fn length(text: &str) -> usize {
    text.width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_are_aligned_by_columns() {
        let mut grid = Grid::new("name", vec!["count"]);
        grid.push("\u{4f60}\u{597d}".to_owned(), vec![Cell::plain("1".to_owned())]);
        grid.push("e\u{301}t".to_owned(), vec![Cell::plain("22".to_owned())]);
        let mut out = Vec::new();
        grid.write(&mut out, 80, Paint::new(false)).unwrap();
        let lines = String::from_utf8(out).unwrap();
        assert_eq!(lines, "name  count\n\u{4f60}\u{597d}      1\ne\u{301}t       22\n");
    }
}
