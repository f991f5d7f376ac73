//! Writes the report as one self-contained page.
//!
//! The page loads no files and runs no scripts: styles are inline, and plots are inline SVG and
//! plain boxes. Its content security policy forbids everything else. Plots contain only shapes, and
//! use the available width. Their labels are text of the page, so that they keep their size on a
//! phone.
//!
//! | file | what it makes |
//! |---|---|
//! | `page` | the frame: head, summary, footer |
//! | `headline` | the summary in plain language |
//! | `compare` | algorithms side by side |
//! | `timeline`, `bars` | admitted and denied over time |
//! | `scale` | where times fall, and the ticks |
//! | `subjects` | the most limited subjects |
//! | `suggest` | suggested limits |
//! | `settling` | costs that are known only afterwards |
//! | `slots` | requests at a time |
//! | `shares` | the shares of the members of each fair pool |
//! | `days` | the days of each quota |
//! | `details` | all the numbers |
//! | `escape` | text of others in HTML |

mod bars;
mod compare;
mod days;
mod details;
mod escape;
mod headline;
mod leased;
mod page;
mod scale;
mod settling;
mod shares;
mod slots;
mod subjects;
mod suggest;
mod timeline;

use std::io;

use super::Report;

/// Writes the report as an HTML page.
///
/// # Errors
///
/// Returns the error of the writer.
pub fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    page::write(report, out)
}
