//! The two sets of rules by which a segment may join a train.
//!
//! [`ndis`] has the rules of NDIS for a receiver ("Rules for Coalescing TCP/IP Segments",
//! MicrosoftDocs): segments may differ in size, advance the acknowledgement and carry later
//! timestamps; the train shows the last of each. [`gro`] is stricter, like Linux GRO: segmenting a
//! train restores its segments byte for byte.

use super::candidate::Candidate;
use super::train::Train;
use crate::counters::RscException;
use crate::frame::offload::SMALLEST;
use crate::stage::segment::next_identification;
use std::ops::Range;
use wire::tcp::TcpFlags;
use wire::{Parsed, Traits};

/// The decision of the rules about a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Join {
    /// It joins.
    Append,
    /// It joins, and the train ends with it.
    AppendLast,
    /// The train ends, and the segment starts the next one. Counted under the reason.
    Start(RscException),
}

/// Returns the reason why both sets of rules keep a segment out: a limit, or headers that no train
/// may mix.
fn barred(train: &Train, next: &Candidate, limit: u32) -> Option<RscException> {
    let (last, ecn_flags) = (&train.last, TcpFlags::ECE | TcpFlags::CWR);
    if last.class != next.class {
        let ecn_only = (last.class ^ next.class) & !next.ecn_mask() == 0;
        return Some(if ecn_only { RscException::Ecn } else { RscException::HeaderChange });
    }
    if (last.flags ^ next.flags).intersects(ecn_flags) || last.reserved != next.reserved {
        return Some(RscException::Ecn);
    }
    if last.dont_fragment != next.dont_fragment
        || last.header_len != next.header_len
        || last.timestamps.is_some() != next.timestamps.is_some()
    {
        return Some(RscException::HeaderChange);
    }
    (train.payload + next.payload > limit).then_some(RscException::Length)
}

/// Applies the NDIS rules. `limit` is the most payload bytes of a train; for `ack_limit` see
/// [`crate::Rsc::ack_limit`].
pub(crate) fn ndis(train: &Train, next: &Candidate, limit: u32, ack_limit: u16) -> Join {
    if let Some(reason) = barred(train, next, limit) {
        return Join::Start(reason);
    }
    let last = &train.last;
    if let (Some((earlier, _)), Some((later, _))) = (last.timestamps, next.timestamps)
        && later.wrapping_sub(earlier) > u32::MAX / 2
    {
        return Join::Start(RscException::HeaderChange);
    }
    if next.payload > 0 {
        // Data never joins a train of plain ACKs.
        let in_order = next.sequence == train.next_sequence;
        return match (in_order, train.payload > 0) {
            (true, true) => Join::Append,
            (true, false) => Join::Start(RscException::PureAck),
            (false, _) => Join::Start(RscException::OutOfOrder),
        };
    }
    let window_update = next.sequence == train.next_sequence
        && next.acknowledgement == last.acknowledgement
        && next.window != last.window;
    match (window_update, ack_limit > 0 && train.segments + 1 >= ack_limit) {
        (true, false) => Join::Append,
        (true, true) => Join::AppendLast,
        // A duplicate ACK, or an ACK of more data. The sender counts each, so each is delivered.
        (false, _) => Join::Start(RscException::PureAck),
    }
}

/// Applies the Linux GRO rules. `same_headers` is what [`are_same`] says about the train's first
/// segment and this one.
pub(crate) fn gro(train: &Train, next: &Candidate, limit: u32, same_headers: bool) -> Join {
    if train.payload == 0 || next.payload == 0 {
        return Join::Start(RscException::PureAck);
    }
    if let Some(reason) = barred(train, next, limit) {
        return Join::Start(reason);
    }
    if next.sequence != train.next_sequence {
        return Join::Start(RscException::OutOfOrder);
    }
    let last = &train.last;
    // The virtio-net header cannot express an identification that stays, so it has to count.
    let counts =
        next.key.is_v6() || next.identification == next_identification(last.identification, 1);
    let same_headers = same_headers && counts && !(next.flags | last.flags).contains(TcpFlags::CWR);
    // All segments have one size that segmentation accepts; only the last may be smaller. PSH is
    // only on the last, where it stays when the train is segmented again.
    let ended = train.first_payload < SMALLEST.into()
        || last.payload < train.first_payload
        || last.flags.contains(TcpFlags::PSH);
    if !same_headers || ended || next.payload > train.first_payload {
        return Join::Start(RscException::HeaderChange);
    }
    if next.payload < train.first_payload || next.flags.contains(TcpFlags::PSH) {
        return Join::AppendLast;
    }
    Join::Append
}

/// Whether two headers of the same layout differ in nothing but what segmentation writes anew:
/// lengths, the IPv4 identification, sequence number, PSH and checksums.
pub(crate) fn are_same(first: (&Parsed, &[u8]), next: (&Parsed, &[u8])) -> bool {
    let ((parsed, first), (other, next)) = (first, next);
    if (parsed.l3, parsed.l4, parsed.payload) != (other.l3, other.l4, other.payload) {
        return false;
    }
    let [l3, l4, end] = [parsed.l3, parsed.l4, parsed.payload].map(usize::from);
    let network = match parsed.traits.contains(Traits::IPV4) {
        true => [0..l3 + 2, l3 + 6..l3 + 10, l3 + 12..l4 + 4],
        false => [0..l3 + 4, l3 + 6..l4 + 4, 0..0],
    };
    let transport = [l4 + 8..l4 + 13, l4 + 14..l4 + 16, l4 + 18..end];
    let same = |range: Range<usize>| first.get(range.clone()) == next.get(range);
    let flags = |header: &[u8]| header.get(l4 + 13).map(|flags| flags & !TcpFlags::PSH.bits());
    network.into_iter().chain(transport).all(same) && flags(first) == flags(next)
}
