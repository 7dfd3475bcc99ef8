//! The measurements of one interval.

use std::fmt;
use std::time::Duration;

/// One worker. Its number is its place in [`Measurement::workers`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worker {
    /// The physical core: workers with the same one are SMT siblings.
    pub core: usize,
    /// The NUMA node.
    pub node: usize,
    /// Share of the time it had its processor that it was busy, 0 to 1, its items' included.
    pub busy: f64,
    /// Share of the interval for which it waited for its processor, 0 to 1.
    pub waited: f64,
    /// Whether it is excluded: nothing is moved to it, and active items are moved away.
    pub excluded: bool,
}

/// The identity of an item, which is what can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// The vNIC that the traffic belongs to.
    pub vnic: u32,
    /// The part of its traffic.
    pub part: Part,
}

/// A part of a vNIC's traffic that one worker executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// One ingress queue of a guest, which moves whole.
    Queue(u16),
    /// One entry of the vNIC's indirection table at the uplink.
    Entry(u8),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Queue(number) => write!(f, "queue {number}"),
            Part::Entry(number) => write!(f, "entry {number}"),
        }
    }
}

/// Whether the balancer may move a vNIC's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They stay on their workers.
    #[default]
    Static,
    /// They follow the load.
    Dynamic,
}

/// A queue or an entry as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// Its identity. Each occurs once.
    pub id: ItemId,
    /// The number of its worker; an item of a worker that does not exist is ignored.
    pub worker: usize,
    /// Share of the time its worker had its processor that it spent on the item, 0 to 1.
    pub busy: f64,
    /// Whether it may move.
    pub mode: Mode,
    /// The NUMA node of the guest's memory, if known.
    pub home: Option<usize>,
    /// The workers that it can move to. An entry's are those that serve a queue of its uplink.
    pub reach: Reach,
}

/// A set of workers, of which a switch has 64 at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach(u64);

impl Reach {
    /// Every worker.
    pub const ALL: Reach = Reach(u64::MAX);

    /// Returns whether a worker is among them.
    pub fn has(self, worker: usize) -> bool {
        worker < 64 && self.0 >> worker & 1 == 1
    }
}

/// Collects worker numbers. Those of 64 and above are ignored.
impl FromIterator<usize> for Reach {
    fn from_iter<I: IntoIterator<Item = usize>>(workers: I) -> Reach {
        let workers = workers.into_iter().filter(|worker| *worker < 64);
        Reach(workers.fold(0, |set, worker| set | 1 << worker))
    }
}

/// One interval. Items that were idle for longer than [`Settings::settle`](crate::Settings::settle)
/// may be left out.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'m> {
    /// When the interval ended, on any monotonic clock.
    pub at: Duration,
    /// All workers.
    pub workers: &'m [Worker],
    /// The items in any order.
    pub items: &'m [Item],
}
