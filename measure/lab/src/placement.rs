//! Processors of sender, switch and receiver, so that each works like the separate machine that it
//! stands for.
//!
//! The kernel receives a frame of a virtual link on the processor that sent it. Without placement
//! the sender's TCP would run inside the switch's system calls, and the switch's receive path
//! inside the sender's. So each process is pinned, and frames of a link are received on its owner's
//! processors: by packet steering (`rps_default_mask`), and where the kernel coalesces, which it
//! does before it steers, by a thread of the link's own. All settings belong to the hosts' network
//! namespaces and processes, and end with these.

use crate::LabError;
use crate::host::Host;
use rustix::thread::{CpuSet, sched_getaffinity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Processors by number. The sender shares none with the others, unless the switch has a worker on
/// each.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Placement {
    /// Processors of the sender, with its kernel work.
    pub sender: Vec<usize>,
    /// Processors of the switch under test.
    pub switch: Vec<usize>,
    /// Processors of the receiver; the switch's if no other is left.
    pub receiver: Vec<usize>,
}

impl Placement {
    /// Returns the placement on the processors that this process may use, for a switch with this
    /// many workers; `None` if there is only one processor.
    pub(crate) fn possible(workers: usize) -> Option<Placement> {
        let allowed = sched_getaffinity(None).ok()?;
        let processors = (0..CpuSet::MAX_CPU).filter(|place| allowed.is_set(*place));
        Placement::of(&processors.collect::<Vec<_>>(), workers)
    }

    /// Gives the first processors to the switch, one per worker, and half of the rest each to
    /// receiver and sender. Without a rest, the sender shares the last one with a worker.
    fn of(processors: &[usize], workers: usize) -> Option<Placement> {
        let (last, before) = processors.split_last()?;
        let (switch, others) = processors.split_at(workers.clamp(1, processors.len()));
        let others = if others.is_empty() { std::slice::from_ref(last) } else { others };
        let (receiver, sender) = others.split_at(others.len() / 2);
        let (switch, sender) = (switch.to_vec(), sender.to_vec());
        let receiver = if receiver.is_empty() { switch.clone() } else { receiver.to_vec() };
        (!before.is_empty()).then_some(Placement { sender, switch, receiver })
    }

    /// Returns a sentence for the report.
    pub(crate) fn words(&self) -> String {
        let Placement { sender, switch, receiver } = self;
        format!(
            "With their kernel work, the sender runs on processor {}, the switch on {} and the receiver on {}.",
            list(sender),
            list(switch),
            list(receiver)
        )
    }

    /// Returns the processors used on the receiving side, given the use of each processor: those of
    /// switch and receiver. `None` if the sender shares them.
    pub(crate) fn receiving(&self, used: &[f64]) -> Option<f64> {
        let own: BTreeSet<_> = self.switch.iter().chain(&self.receiver).collect();
        let shares = self.sender.iter().any(|place| own.contains(place));
        (!shares).then(|| own.into_iter().filter_map(|place| used.get(*place)).sum())
    }

    /// Pins a host to processors, before it has a second thread.
    ///
    /// # Errors
    /// `taskset` fails.
    pub(crate) fn pin(host: &mut Host, processors: &[usize]) -> Result<(), LabError> {
        host.run(&format!("taskset -pc {} {}", list(processors), host.process())).map(drop)
    }

    /// Steers receiving to these processors, on all links that the host creates from now on.
    ///
    /// # Errors
    /// The kernel refuses the mask.
    pub(crate) fn steer(host: &mut Host, processors: &[usize]) -> Result<(), LabError> {
        let mask = mask(processors);
        host.shell(&format!("echo {mask} > /proc/sys/net/core/rps_default_mask"))
    }

    /// Gives a link of the host a NAPI thread, in which the kernel receives and coalesces before it
    /// steers.
    ///
    /// # Errors
    /// The kernel refuses the setting.
    pub(crate) fn thread(host: &mut Host, link: &str) -> Result<(), LabError> {
        // Most hosts have it there already.
        let set = format!("mount -t sysfs sysfs /sys; echo 1 > /sys/class/net/{link}/threaded");
        host.shell(&set)
    }

    /// Pins a link's NAPI threads, which the kernel restarts whenever coalescing is turned on.
    /// `host` may be any host. Threads of another experiment's link of the same name are pinned to
    /// the same processors anyway.
    ///
    /// # Errors
    /// `/proc` cannot be read, or `taskset` fails.
    pub(crate) fn pin_threads(
        host: &mut Host,
        link: &str,
        processors: &[usize],
    ) -> Result<(), LabError> {
        let name = format!("napi/{link}-");
        for entry in std::fs::read_dir("/proc").map_err(LabError::io("reading /proc"))?.flatten() {
            let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if comm.starts_with(&name) {
                let thread = entry.file_name();
                host.run(&format!("taskset -pc {} {}", list(processors), thread.display()))?;
            }
        }
        Ok(())
    }
}

/// Returns numbers as `0,1,3`.
pub(crate) fn list<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// Returns a processor mask in the kernel's format: hexadecimal words of 32 processors, the highest
/// first.
fn mask(processors: &[usize]) -> String {
    let words = processors.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |word: usize| {
        let own = processors.iter().filter(|place| *place / 32 == word);
        format!("{:08x}", own.fold(0_u32, |bits, place| bits | 1 << (place % 32)))
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(processors: &[usize], workers: usize) -> Option<[Vec<usize>; 3]> {
        let Placement { sender, switch, receiver } = Placement::of(processors, workers)?;
        Some([sender, switch, receiver])
    }

    #[test]
    fn the_sender_never_shares_and_others_only_where_there_are_two() {
        assert_eq!((of(&[], 1), of(&[3], 1), of(&[3], 2)), (None, None, None));
        assert_eq!(of(&[0, 1], 1), Some([vec![1], vec![0], vec![0]]));
        assert_eq!(of(&[1, 4, 7], 1), Some([vec![7], vec![1], vec![4]]));
        for count in 2..64 {
            let Placement { sender, switch, receiver } =
                Placement::of(&(0..count).collect::<Vec<_>>(), 1).unwrap();
            assert!(
                sender.iter().all(|place| !switch.contains(place) && !receiver.contains(place))
            );
            assert_eq!(receiver == switch, count == 2);
            let all: BTreeSet<usize> = sender.into_iter().chain(switch).chain(receiver).collect();
            assert_eq!(all.len(), count);
        }
    }

    #[test]
    fn workers_come_first_and_the_sender_has_what_is_left_or_the_last() {
        assert_eq!(of(&[0, 1], 2), Some([vec![1], vec![0, 1], vec![0, 1]]));
        assert_eq!(of(&[0, 1], 4), Some([vec![1], vec![0, 1], vec![0, 1]]));
        assert_eq!(of(&[0, 1, 2], 2), Some([vec![2], vec![0, 1], vec![0, 1]]));
        assert_eq!(of(&[0, 1, 2, 3], 2), Some([vec![3], vec![0, 1], vec![2]]));
    }

    #[test]
    fn a_shared_processor_is_counted_once_and_not_beside_the_sender() {
        let receiving = |processors: &[usize], workers, used: &[f64]| {
            Placement::of(processors, workers).unwrap().receiving(used)
        };
        assert_eq!(receiving(&[0, 1], 1, &[0.75, 1.0]), Some(0.75));
        assert_eq!(receiving(&[0, 1, 2], 1, &[0.5, 0.25, 1.0]), Some(0.75));
        assert_eq!(receiving(&[0, 1], 2, &[0.75, 1.0]), None);
    }

    #[test]
    fn masks_are_words_of_32_processors() {
        assert_eq!(mask(&[1]), "00000002");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
    }
}
