//! Reads real traffic: the logs of web servers, proxies and load balancers, JSON, CSV, TSV, and
//! lines that a regular expression describes. Files can be compressed. [`Format`] lists the
//! formats, and [`Envelope`] lists the texts that can be around each line.
//!
//! [`replay_in_order`] reads [`Input`]s with the given [`Options`]. It sends each request as a
//! [`Record`] to a [`Sink`], in the wanted [`Order`], and returns a [`Summary`].
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
//! * The reader detects compression by the first bytes (gzip with any number of members, zstd),
//!   then UTF-16 by its byte-order mark, then JSON over several lines, and then the format by the
//!   first lines. It detects these for each input separately. A compressed input that ends early is
//!   an error. An empty input is not an error.
//! * The subject is the client's address, without port or brackets, or the field that the options
//!   name. The reader does not guess: an input without a field that usually contains an address is
//!   an error that lists the fields. Requests whose subject is `-` or empty are counted
//!   ([`Summary::without_subject`]) and skipped.
//! * If a field is a list of addresses, such as `X-Forwarded-For`, the subject is the last address,
//!   because the nearest proxy added it.
//! * The reader does not allocate memory for a line of an access log. Lines can contain invalid
//!   UTF-8. A line can have 16 MiB, and a CSV record can have 1 MiB of further lines. A longer line
//!   is malformed and skipped.
//! * Blank lines and comments are skipped. Any other line that cannot be parsed is counted, and the
//!   first few are stored with their reasons.
//! * JSON and logfmt without a time get the time that syslog, the journal or a container wrote
//!   before the line. If syslog omits the year, the reader uses the most recent possible year.
//! * Times are rounded down to whole microseconds, in UTC. Costs are whole numbers of at most 2^52.
//!   A line with another cost is malformed, except that `-` as a number of bytes is 0.

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
pub use options::{BadOption, By, Cost, Duration, Format, Options, Order, Pattern, TimeUnit};
pub use read::replay_in_order;
pub use record::{FileSummary, Progress, Record, Sink, Summary};
pub use subjects::Subjects;
