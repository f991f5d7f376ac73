//! Pictures for the documentation: SVG, light or dark as the reader prefers.

use std::fmt::Write;

/// Text and grid, with a place for the colours of a picture's own shapes.
const LIGHT: &str = "\
svg { background: #fff; font: 13px system-ui, sans-serif }
text { fill: #1f2328 } .small { fill: #59636e; font-size: 12px } .title { font-weight: 600 }
.line { stroke: #d1d9e0 }";
const DARK: &str = "\
svg { background: #0d1117 } text { fill: #f0f6fc } .small { fill: #9198a1 } .line { stroke: #3d444d }";

/// A picture that is drawn.
#[derive(Debug, Default)]
pub(crate) struct Picture(String);

impl Picture {
    /// Adds a line of SVG.
    pub(crate) fn add(&mut self, shape: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{shape}");
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, y: u64, text: &str) {
        self.add(format_args!(r#"<text class="title" x="12" y="{y}">{text}</text>"#));
    }

    /// Adds a line of the grid, from one point to another.
    pub(crate) fn grid_line(&mut self, (x1, y1): (u64, u64), (x2, y2): (u64, u64)) {
        self.add(format_args!(r#"<line class="line" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// Adds a small text, which begins (`start`), ends (`end`) or has its middle (`middle`) at `x`.
    pub(crate) fn label(&mut self, (x, y): (u64, u64), anchor: &str, text: &str) {
        self.add(format_args!(
            r#"<text class="small" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// The whole picture, with a style for each of the two backgrounds.
    pub(crate) fn finish(
        self,
        title: &str,
        (width, height): (u64, u64),
        styles: [&str; 2],
    ) -> String {
        let ([light, dark], body) = (styles, self.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{title}</title>\n\
             <style>{LIGHT}\n{light}\n@media (prefers-color-scheme: dark) {{\n{DARK}\n{dark}\n}}</style>\n{body}</svg>\n"
        )
    }
}
