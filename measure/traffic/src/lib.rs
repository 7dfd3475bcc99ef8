//! NTttcp-style sender and receiver, and what they measure.
//!
//! [`arguments::parse`] takes a command line as NTttcp users type it, in the Windows or the Linux
//! dialect, and returns a [`Plan`]; [`run`] carries it out and returns a [`Report`], which turns
//! into text, JSON or XML. The [`measure`] module (processor time, cycles, kernel counters) can be
//! used without a run.
//!
//! A run has two kinds of threads:
//! - one **payload thread** per NTttcp thread: an epoll loop over its connections, which counts
//!   into a cache line of its own and never reads a clock;
//! - the **conductor** (the caller's thread): it walks through warm-up, the measured interval and
//!   cool-down, and reads all counters at the two ends of the measured interval. It also serves the
//!   synchronisation with the peer (module [`sync`]).
//!
//! ```no_run
//! use traffic::arguments::{Invocation, parse};
//!
//! let line = "-r -m 1,*,192.168.24.102 -l 64k -a 6 -t 30";
//! if let Invocation::Run(request) = parse(line.split(' ').map(String::from))? {
//!     let report = traffic::run(&request.plan, &mut |progress| eprintln!("{progress:?}"))?;
//!     print!("{}", report.to_text()?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is surprising: throughput counts the bytes that *this end's application* moved between the
//! two reads. A sender says "sent", never "received". If both ends are Millrace's they exchange
//! their figures after the run, and each report has both.

pub mod arguments;
mod conduct;
mod connect;
mod error;
mod event_fd;
mod host;
mod latency;
mod load;
pub mod measure;
mod payload;
mod plan;
mod progress;
mod receive;
mod receiver;
pub mod report;
mod run;
pub mod schema;
mod send;
mod sender;
mod shared;
mod snapshot;
mod socket;
mod stopwatch;
mod stream;
pub mod sync;
mod thread;

pub use error::TrafficError;
pub use load::Load;
pub use plan::{Family, Length, Mapping, Plan, Role, Transport};
pub use progress::{Progress, Wait};
pub use report::Report;
pub use run::run;
