//! Announces to the network that addresses are now behind another member.

use super::Shared;
use super::home_members::Moved;
use super::mask::Place;
use super::state::count;
use crate::{Outgoing, lock};
use wire::vnet::VnetHeader;

/// Most frames handed over in one call.
const MOST: usize = 64;

/// Announces moved MAC addresses through their new members. The neighbour cache supplies the VLANs
/// and IP addresses that each station has sent.
pub(super) fn announce(shared: &Shared, moved: &[Moved]) {
    let now_ms = shared.state.now_ms();
    if !moved.is_empty() {
        shared.state.changed();
    }
    for place in (0..8).map(Place) {
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for Moved { mac, .. } in moved.iter().filter(|moved| moved.to == place) {
            let mut keep = |frame: &[u8]| frames.push(frame.to_vec());
            let seen_ms = shared.state.home_members.seen(mac.to_u64()).unwrap_or(now_ms);
            lock(&shared.state.neighbour_cache).announce((*mac, seen_ms), now_ms, &mut keep);
            if frames.len() >= MOST {
                send(shared, place, &mut frames);
            }
        }
        send(shared, place, &mut frames);
    }
}

fn send(shared: &Shared, place: Place, frames: &mut Vec<Vec<u8>>) {
    let outgoing: Vec<Outgoing<'_>> = frames.iter().map(|frame| whole(frame)).collect();
    if let Some(slot) = shared.slot(place).filter(|_| !outgoing.is_empty())
        && let Some(queue) = &*slot.egress()
    {
        let mut drops = Vec::new();
        // A member that went down meanwhile is checked again, and the addresses move on.
        let sent = match queue.deliver(&outgoing, &mut drops) {
            Ok(()) => outgoing.len() - drops.len().min(outgoing.len()),
            Err(_) => 0,
        };
        if let Some(counters) = shared.state.counters(place) {
            count(&counters.announcements, sent as u64);
        }
    }
    frames.clear();
}

fn whole(frame: &[u8]) -> Outgoing<'_> {
    #[allow(clippy::cast_possible_truncation, reason = "an announcement has at most 90 bytes")]
    let len = frame.len() as u32;
    Outgoing { vnet: VnetHeader::default(), header: frame, payload: &[], len }
}
