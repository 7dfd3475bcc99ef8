//! The thresholds, each with its reason; docs/vmmq.md has the figures that chose them.

use std::time::Duration;

/// Thresholds of a [`Balancer`](crate::Balancer). Loads are shares of one worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// A worker above this gives items away. Open vSwitch waits until it is above 0.95 for a
    /// minute, and loses frames meanwhile.
    pub high: f64,
    /// A worker above this in one interval is saturated: its items want more than was measured.
    pub saturated: f64,
    /// Items are placed on a worker up to this, so that their usual variation does not take it
    /// above `high`.
    pub fill: f64,
    /// Workers are coalesced while one of them ends up below this. The distance to `high` is the
    /// hysteresis.
    pub low: f64,
    /// If no worker has room, a move must leave its target this much below its source.
    pub margin: f64,
    /// A worker that waited for its processor for more than this share of an interval of late shares
    /// it with other programs: it gets items only if it has room for them at its highest load of late.
    pub shared: f64,
    /// Coalescing uses the highest loads of this time.
    pub settle: Duration,
    /// An item that moved stays for this long.
    pub rest: Duration,
    /// Most moves of all items a second; the moves of one idle second are saved.
    pub moves_a_second: u32,
    /// Cost of work away from the NUMA node of its memory, as a multiple of that at home.
    pub remote: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            high: 0.8,
            saturated: 0.95,
            fill: 0.65,
            low: 0.5,
            margin: 0.1,
            shared: 0.1,
            settle: Duration::from_millis(1600),
            rest: Duration::from_secs(1),
            moves_a_second: 2000,
            remote: 1.3,
        }
    }
}
