//! NTttcp-style sender and receiver, and what they measure.
//!
//! [`arguments::parse`] takes a command line as NTttcp users type it, in the Windows or the Linux
//! dialect, and returns a [`Plan`]; [`run`] carries it out and returns a [`Report`], which turns
//! into text, JSON or XML. The [`measure`] part (processor time, cycles, kernel counters) stands
//! alone, for whoever wants to measure something else.
//!
//! A run has three kinds of threads:
//! - one **lane** per NTttcp thread: a loop over its connections, by epoll, which counts into its
//!   own cache line and never reads a clock;
//! - the **conductor** (the caller's thread): it walks through warm-up, the measured interval and
//!   cool-down, and reads all counters at the two ends of the measured interval;
//! - no others: the synchronisation with the peer (module [`sync`]) is served by the conductor too.
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
//! What is surprising: throughput is what *this end's application* moved between the two reads. A
//! sender says "sent", never "received"; when both ends are Millrace's they exchange their figures
//! after the run, and each report has both.

pub mod arguments;
mod bell;
mod conduct;
mod connect;
mod error;
mod host;
mod lane;
mod latency;
mod load;
pub mod measure;
mod payload;
mod plan;
mod receive;
mod receiver;
pub mod report;
mod run;
pub mod schema;
mod send;
mod sender;
mod snapshot;
mod socket;
pub mod sync;

pub use error::TrafficError;
pub use load::Load;
pub use plan::{Family, Length, Mapping, Plan, Role, Transport};
pub use report::Report;
pub use run::{Progress, run};
