//! Colour, where there is any.

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
        // Only the sixteen named colours: they follow the theme of the terminal, light or dark.
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Heading => "1",
            Tone::Quiet => "2",
            Tone::Warning => "33",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
