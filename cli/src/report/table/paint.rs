//! Colors for a terminal.

use anstyle::{AnsiColor, Style};

/// The meaning of a piece of text, which determines its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Quiet,
    Warning,
}

/// Adds colors to text, if colors are enabled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    colour: bool,
}

impl Paint {
    pub(super) fn new(colour: bool) -> Self {
        Paint { colour }
    }

    pub(super) fn text(self, text: &str, tone: Tone) -> String {
        if !self.colour || tone == Tone::Plain {
            return text.to_owned();
        }
        // The color is one of the sixteen named colors, because a terminal adapts these to its
        // light or dark theme.
        let style = match tone {
            Tone::Plain => Style::new(),
            Tone::Heading => Style::new().bold(),
            Tone::Quiet => Style::new().dimmed(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
        };
        format!("{style}{text}{style:#}")
    }
}
