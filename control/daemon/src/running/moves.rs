//! The moves that `millrace vmmq explain` shows.
//!
//! Entries of a vNIC that moved together for one reason are one record. The number of records is
//! bounded over all ports. When there are too many, the ports with most lose their oldest, and
//! within an uplink the vNICs with most. So a port that moves all the time does not displace other
//! ports' moves, nor does a peer that makes the entries of a thousand vNICs move.

use super::fair_share::fair_share;
use api::body::{HeldBody, OrderBody, VmmqMoveBody};
use balance::Move;
use std::collections::HashMap;
use std::time::Duration;

/// Records kept when twice as many are trimmed.
const MOST: usize = 512;

/// A queue that moved, or entries of a vNIC that moved together for one reason.
pub(super) struct Record {
    pub(super) port: String,
    /// For entries: the port of their vNIC, if any.
    pub(super) vnic: Option<String>,
    /// Empty if a queue moved.
    pub(super) entries: Vec<u8>,
    /// The move of all of them together.
    pub(super) moved: Move,
    /// For entries: the effect on their new queue.
    pub(super) held: Option<HeldBody>,
    /// If frames were lost or order was given up: how long the vNIC's entries rest for it.
    pub(super) rest: Option<Duration>,
}

/// The recorded moves.
#[derive(Default)]
pub(super) struct Moves {
    /// Oldest first; at most twice [`MOST`].
    kept: Vec<VmmqMoveBody>,
    /// Queues and single entries moved so far.
    count: u64,
}

impl Moves {
    pub(super) fn add(&mut self, record: Record, at_s: f64) {
        self.count += record.entries.len().max(1) as u64;
        self.kept.push(record.body(self.count, at_s));
        if self.kept.len() > 2 * MOST {
            self.trim();
        }
    }

    /// Keeps the newest records of each port, and within it of each vNIC, in fair shares.
    fn trim(&mut self) {
        let mut ports: HashMap<&str, HashMap<Option<&str>, usize>> = HashMap::new();
        for body in &self.kept {
            *ports.entry(&body.port).or_default().entry(body.vnic.as_deref()).or_default() += 1;
        }
        let most = fair_share(ports.values().map(|vnics| vnics.values().sum()), MOST);
        let mut left: HashMap<&str, (usize, HashMap<Option<&str>, usize>)> = HashMap::new();
        for (port, mut vnics) in ports {
            let most_of_vnic = fair_share(vnics.values().copied(), most);
            vnics.values_mut().for_each(|count| *count = most_of_vnic);
            left.insert(port, (most, vnics));
        }
        let mut is_kept = Vec::with_capacity(self.kept.len());
        for body in self.kept.iter().rev() {
            let Some((of_port, vnics)) = left.get_mut(body.port.as_str()) else { continue };
            let Some(of_vnic) = vnics.get_mut(&body.vnic.as_deref()) else { continue };
            let keeps = *of_port > 0 && *of_vnic > 0;
            *of_port -= usize::from(keeps);
            *of_vnic -= usize::from(keeps);
            is_kept.push(keeps);
        }
        self.kept.retain(|_| is_kept.pop().unwrap_or_default());
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Oldest first.
    pub(super) fn bodies(&self) -> Vec<VmmqMoveBody> {
        self.kept.clone()
    }
}

impl Record {
    fn body(self, number: u64, at_s: f64) -> VmmqMoveBody {
        let text = self.text();
        let Record { port, vnic, entries, moved, held, rest: _ } = self;
        let of = vnic.as_ref().map(|vnic| format!(" of {vnic}")).unwrap_or_default();
        let item = match entries.len() {
            0 | 1 => format!("{}{of}", moved.item.part),
            count => format!("{count} entries{of}"),
        };
        VmmqMoveBody {
            number,
            at_s,
            port,
            vnic,
            item,
            entries,
            from: moved.from,
            to: moved.to,
            reason: moved.reason.to_string(),
            threshold: moved.threshold,
            load: moved.load,
            from_load: [moved.from_load.0, moved.from_load.1],
            to_load: [moved.to_load.0, moved.to_load.1],
            held,
            text,
        }
    }

    fn text(&self) -> String {
        let mut text = self.moved.to_string();
        if let Some(HeldBody { order: OrderBody::GivenUp, .. }) = self.held {
            text += "; its flows may be out of order";
        }
        if let Some(HeldBody { lost: lost @ 1.., .. }) = self.held {
            text += &format!("; its new queue's full ring lost {lost} frames meanwhile");
        }
        if let Some(rest) = self.rest {
            text += &format!(", so the vNIC's entries stay for {} s", rest.as_secs());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use balance::{ItemId, Part, Reason};
    use proptest::prelude::*;

    fn record(vnic: Option<usize>, entries: Vec<u8>) -> Record {
        let part = entries.first().map_or(Part::Queue(0), |entry| Part::Entry(*entry));
        Record {
            port: "up".into(),
            vnic: vnic.map(|number| format!("vm{number}")),
            entries,
            moved: Move {
                item: ItemId { vnic: 1, part },
                from: 0,
                to: 1,
                reason: Reason::Relieve,
                threshold: 0.8,
                load: 0.3,
                from_load: (0.9, 0.6),
                to_load: (0.1, 0.4),
            },
            held: None,
            rest: None,
        }
    }

    #[test]
    fn a_record_says_what_moved_with_its_figures() {
        let mut moves = Moves::default();
        let held = HeldBody { us: 150, frames: 9, lost: 3, order: OrderBody::GivenUp };
        moves.add(record(None, Vec::new()), 1.0);
        moves.add(Record { held: Some(held), ..record(Some(1), vec![17]) }, 2.0);
        moves.add(record(Some(1), vec![3, 17, 5]), 3.0);
        moves.add(record(None, vec![6, 7]), 4.0);
        let bodies = moves.bodies();
        let told: Vec<(u64, &str)> =
            bodies.iter().map(|body| (body.number, body.item.as_str())).collect();
        let wanted =
            [(1, "queue 0"), (2, "entry 17 of vm1"), (5, "3 entries of vm1"), (7, "2 entries")];
        assert_eq!((told.as_slice(), moves.count()), (wanted.as_slice(), 7));
        let items: Vec<String> = bodies.iter().flat_map(VmmqMoveBody::items).collect();
        let of_vm1 = ["entry 17 of vm1", "entry 3 of vm1", "entry 17 of vm1", "entry 5 of vm1"];
        assert_eq!(items, [&["queue 0"], &of_vm1[..], &["entry 6", "entry 7"]].concat());
        assert!(bodies[0].text.starts_with("relieve: worker 0 at 90 %"), "{}", bodies[0].text);
        assert!(!bodies[0].text.contains("lost") && !bodies[0].text.contains("out of order"));
        let told = &bodies[1].text;
        assert!(told.contains("lost 3 frames") && told.contains("out of order"), "{told}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        /// The last 256 moves of all were kept, which one vNIC at an uplink made in a second.
        #[test]
        fn one_that_moves_all_the_time_hides_no_other_s_moves(
            owners in proptest::collection::vec(prop_oneof![9 => Just(0usize), 1 => 0..7usize], 0..4000),
        ) {
            let mut moves = Moves::default();
            let mut made = [0; 7];
            for owner in owners {
                moves.add(record(Some(owner), vec![0]), 0.0);
                made[owner] += 1;
            }
            let bodies = moves.bodies();
            prop_assert!(bodies.len() <= 2 * MOST && bodies.len() >= made.iter().sum::<usize>().min(MOST - 6));
            prop_assert!(bodies.is_sorted_by(|one, other| one.number < other.number));
            for (owner, made) in made.into_iter().enumerate() {
                let name = Some(format!("vm{owner}"));
                let own = bodies.iter().filter(|body| body.vnic == name).count();
                prop_assert!(own >= made.min(MOST / 7), "{} of {} of vm{}", own, made, owner);
            }
        }
    }

    /// A peer sprays flows over all vNICs of an uplink: each has a few moves there.
    #[test]
    fn moves_of_a_thousand_vnics_at_an_uplink_hide_no_port_s() {
        let mut moves = Moves::default();
        let own = |moves: &Moves| moves.bodies().iter().filter(|body| body.port == "vm9").count();
        (0..5).for_each(|_| moves.add(Record { port: "vm9".into(), ..record(None, vec![]) }, 0.0));
        for number in 0..5000 {
            moves.add(record(Some(number % 1000), vec![0]), 0.0);
            assert_eq!((own(&moves), moves.bodies().len() <= 2 * MOST), (5, true), "{number}");
        }
        let newest = moves.bodies().iter().rev().take(MOST - 5).map(|body| body.number).min();
        assert_eq!(newest, Some(5005 - (MOST as u64 - 5) + 1), "of vNICs with one each the newest");
    }
}
