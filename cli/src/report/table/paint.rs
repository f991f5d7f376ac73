//! Colours in a terminal that has them.

use anstyle::{AnsiColor, Style};

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Heading,
    Quiet,
    Warning,
}

/// Puts text in colour, or leaves it alone.
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
        // Only the sixteen named colours: they follow the theme of the terminal, light or dark.
        let style = match tone {
            Tone::Plain => Style::new(),
            Tone::Heading => Style::new().bold(),
            Tone::Quiet => Style::new().dimmed(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
        };
        format!("{style}{text}{style:#}")
    }
}
