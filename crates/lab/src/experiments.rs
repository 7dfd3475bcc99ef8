//! One small file per experiment: its arms, its measures, its words. A new one is a new file and a line here.

pub mod latency;
pub mod rsc;

/// What runs between sender and receiver while arms change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// So many connections, each as fast as it can.
    Bulk(u32),
    /// One byte to and fro on one connection.
    RoundTrips,
}
