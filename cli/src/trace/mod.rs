//! Reads real traffic: the logs of web servers, proxies and load balancers, JSON, CSV and TSV, plain
//! or packed, and whatever a regular expression describes ([`Format`] lists the formats, [`Envelope`]
//! what may be around each line).
//!
//! [`replay_in_order`] reads [`Input`]s as [`Options`] say and hands each request, as a [`Record`],
//! to a [`Sink`] in the [`Order`] asked for. What it saw on the way is in the [`Summary`].
//!
//! ```
//! use tidegate::trace::{Error, Input, Options, Order, Record, Sink, Subjects, replay_in_order};
//!
//! /// Adds up what each subject costs.
//! #[derive(Default)]
//! struct Costs(Vec<u64>);
//!
//! impl Sink for Costs {
//!     type Error = Error;
//!
//!     fn record(&mut self, record: Record, subjects: &Subjects) -> Result<(), Error> {
//!         self.0.resize(subjects.len(), 0);
//!         self.0[record.subject as usize] += record.cost;
//!         Ok(())
//!     }
//!
//!     fn restart(&mut self) {
//!         self.0.clear();
//!     }
//! }
//!
//! let csv = "time,ip,tokens\n2023-11-16 18:17:04,192.0.2.7,5\n2023-11-16 18:17:03,192.0.2.7,2\n";
//! let options = Options { cost: "tokens".parse().unwrap(), ..Options::default() };
//! let mut costs = Costs::default();
//! let inputs = vec![Input::once("example", csv.as_bytes())];
//! let summary = replay_in_order(inputs, &options, Order::Time, &mut costs)?;
//! assert_eq!(costs.0, [7]);
//! assert_eq!(summary.subjects.get(0), Some(&b"192.0.2.7"[..]));
//! assert!(summary.sorted);
//! # Ok::<(), Error>(())
//! ```
//!
//! # How it reads
//!
//! * Packing is recognised by the first bytes (gzip of any number of members, zstd), then UTF-16 by
//!   its byte-order mark, JSON that is laid out over several lines by how it begins, and the format by
//!   the first lines: for each input on its own. A packed input that stops in the middle is an
//!   error; an empty one is not.
//! * The subject is the client's address, without port or brackets, or the field that the options
//!   name. Nothing else is taken in its place: an input without a field that usually holds an address is
//!   an error that lists the fields, and requests that have `-` or nothing for a subject are counted
//!   ([`Summary::without_subject`]) and not handed out.
//! * Of a list of addresses, as in `X-Forwarded-For`, the last is taken: the nearest proxy added it.
//! * Nothing is allocated for a line of an access log and lines need not be UTF-8. A line may be
//!   16 MiB long, and a CSV record may reach 1 MiB over further lines; what is longer is malformed and
//!   skipped.
//! * Blank lines and comments are passed over. Any other line that cannot be understood is counted, and
//!   the first few are kept with their reasons.
//! * JSON and logfmt without a time get the time that syslog, the journal or a container wrote
//!   before the line. A year that syslog leaves out is the last possible one.
//! * Times are cut to whole microseconds, UTC. Costs are whole numbers of at most 2^52. A line with
//!   another cost is malformed, except that `-` for a number of bytes is 0.

mod bounds;
mod decimal;
mod error;
mod formats;
mod input;
mod malformed;
mod options;
mod order;
mod read;
mod record;
mod subjects;
mod time;

pub use bounds::{COST_MAX, LATE_COST_MAX, TIME_MAX};
pub use error::{Error, ErrorKind};
pub use formats::Envelope;
pub use input::{Input, Stop};
pub use malformed::{MalformedLine, shown};
pub use options::{BadOption, By, Cost, Format, Options, Order, Pattern, TimeUnit};
pub use read::replay_in_order;
pub use record::{FileSummary, Progress, Record, Sink, Summary};
pub use subjects::Subjects;
