//! A move with the figures that caused it: what `millrace vmmq explain` prints.

use crate::measurement::ItemId;
use std::fmt;

/// The reason of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its worker was nearly saturated, and no worker in use had room, so it moves to an unused
    /// one.
    Expand,
    /// Its worker was saturated, so the demand of its items is not known. It moves to an unused
    /// worker, to be measured there.
    Probe,
    /// Its worker was nearly saturated, so it moves to one in use that has room.
    Relieve,
    /// It took most of a worker that it shared with others, so it moves to a worker of its own.
    Isolate,
    /// It moves back to the NUMA node of its guest's memory.
    Home,
    /// Fewer workers suffice, so its worker is emptied.
    Coalesce,
    /// Its worker is excluded.
    Leave,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Expand => "expand",
            Reason::Probe => "probe",
            Reason::Relieve => "relieve",
            Reason::Isolate => "isolate",
            Reason::Home => "home",
            Reason::Coalesce => "coalesce",
            Reason::Leave => "leave",
        })
    }
}

/// A move. Expected loads are shares of one worker; those above 1 are more than a worker can serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The item that moves.
    pub item: ItemId,
    /// The number of its worker.
    pub from: usize,
    /// The number of its next worker.
    pub to: usize,
    /// The reason.
    pub reason: Reason,
    /// The threshold that `from` is above (or, coalescing, that `to` stays below).
    pub threshold: f64,
    /// Load that the item is expected to take on `to`.
    pub load: f64,
    /// Expected load of `from`, before and after the move.
    pub from_load: (f64, f64),
    /// Expected load of `to`, before and after the move.
    pub to_load: (f64, f64),
}

/// A share of a worker, in percent. A worker gives at most all of its time; what is wanted beyond
/// that is an estimate.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        match percent.round() > 100.0 {
            true => write!(f, "100 % (about {percent:.0} % wanted)"),
            false => write!(f, "{percent:.0} %"),
        }
    }
}

/// The figures as one sentence; the caller adds the item and the workers, since it knows their
/// names.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [threshold, load, from, from_then, to, to_then] = [
            self.threshold,
            self.load,
            self.from_load.0,
            self.from_load.1,
            self.to_load.0,
            self.to_load.1,
        ]
        .map(Percent);
        let (source, target) = (self.from, self.to);
        match self.reason {
            Reason::Coalesce => write!(
                f,
                "coalesce: at most {to_then} of worker {target} with it, below {threshold}; worker {source} had {from} at most"
            ),
            Reason::Home => write!(
                f,
                "home: {load} on the node of its memory, where worker {target} goes from {to} to {to_then}"
            ),
            Reason::Leave => {
                write!(f, "leave: worker {source} is excluded; {load} of worker {target}")
            }
            Reason::Probe => write!(
                f,
                "probe: worker {source} is saturated (above {threshold}), {load} of it goes ahead to unused worker {target}"
            ),
            reason => write!(
                f,
                "{reason}: worker {source} at {from}, above {threshold}; {from_then} without it, and worker {target} from {to} to {to_then}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gives_all_of_its_time_at_most() {
        assert_eq!(Percent(0.87).to_string(), "87 %");
        assert_eq!(Percent(1.004).to_string(), "100 %");
        assert_eq!(Percent(1.3).to_string(), "100 % (about 130 % wanted)");
    }
}
