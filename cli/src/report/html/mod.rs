//! The report as one self-contained page.
//!
//! The page loads nothing and runs nothing: styles are inline, plots are inline SVG and plain
//! boxes, and its content security policy forbids the rest. Plots hold shapes only and stretch to
//! the width there is; their labels are text of the page, so they keep their size on a phone.
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
//! | `details` | all the numbers |
//! | `escape` | text of others in HTML |

mod bars;
mod compare;
mod details;
mod escape;
mod headline;
mod leased;
mod page;
mod scale;
mod settling;
mod subjects;
mod suggest;
mod timeline;

use std::io;

use super::Report;

/// Writes the report as an HTML page.
///
/// # Errors
///
/// The writer's.
pub fn write(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    page::write(report, out)
}
