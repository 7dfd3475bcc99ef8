//! Telling the network outside that addresses are behind another member now.

use super::Shared;
use super::homes::Moved;
use super::state::count;
use crate::{Outgoing, lock};
use wire::vnet::VnetHeader;

/// Announces addresses from the members they moved to, each with what its station told of itself.
pub(super) fn announce(shared: &Shared, moved: &[Moved]) {
    let now_ms = shared.state.now_ms();
    if !moved.is_empty() {
        shared.state.changed();
    }
    for Moved { mac, to } in moved {
        let mut frames: Vec<Vec<u8>> = Vec::new();
        lock(&shared.state.stations).announce(*mac, now_ms, |frame| frames.push(frame.to_vec()));
        let outgoing: Vec<Outgoing<'_>> = frames.iter().map(|frame| whole(frame)).collect();
        let Some(slot) = shared.slot(*to) else { continue };
        let egress = slot.egress();
        let Some(queue) = &*egress else { continue };
        let mut drops = Vec::new();
        // A member that is down by now is looked at again, and the addresses move on.
        let sent = match queue.deliver(&outgoing, &mut drops) {
            Ok(()) => outgoing.len() - drops.len().min(outgoing.len()),
            Err(_) => 0,
        };
        if let Some(counters) = shared.state.counters(*to) {
            count(&counters.announcements, sent as u64);
        }
    }
}

fn whole(frame: &[u8]) -> Outgoing<'_> {
    #[allow(clippy::cast_possible_truncation, reason = "an announcement has at most 90 bytes")]
    let len = frame.len() as u32;
    Outgoing { vnet: VnetHeader::default(), header: frame, payload: &[], len }
}
