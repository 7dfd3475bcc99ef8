//! A port during a turn: its counters, the rules that matched, and the frames that left.

use super::words;
use api::body::TraceFrameBody;
use config::{PortConfig, Rule};
use datapath::{DropReason, PortCounters, PortId, PortInfo, Rehearsal, RscException};
use ports::memory::MemoryFrame;
use wire::vnet::{Flags, GsoType};
use wire::{Mac, parse};

/// Bytes of a frame that are shown.
const SHOWN: usize = 128;

/// A port during the turn.
pub(super) struct Seen<'r> {
    pub(super) info: PortInfo,
    pub(super) config: &'r PortConfig,
    pub(super) before: PortCounters,
    pub(super) after: PortCounters,
    /// Number of frames that each of the port's rules matched.
    pub(super) hits: Vec<u64>,
    pub(super) out: Vec<(usize, MemoryFrame)>,
}

/// Returns a port's counters, and the number of frames that each of its rules matched.
pub(super) fn state(rehearsal: &Rehearsal, port: PortId) -> (PortCounters, Vec<u64>) {
    let switch = rehearsal.switch();
    (switch.counters(port).unwrap_or_default(), switch.acl_hits(port))
}

impl Seen<'_> {
    pub(super) fn name(&self) -> String {
        self.info.name.clone()
    }

    pub(super) fn more(&self, counter: impl Fn(&PortCounters) -> u64) -> u64 {
        counter(&self.after) - counter(&self.before)
    }

    pub(super) fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> {
        let counts = self.after.drops.iter().zip(self.before.drops);
        let counts = counts.map(|(after, before)| after - before);
        DropReason::ALL.iter().copied().zip(counts).filter(|(_, frames)| *frames > 0)
    }

    /// Returns whether a frame came to this port, delivered or dropped.
    pub(super) fn was_reached(&self) -> bool {
        !self.out.is_empty() || self.drops().next().is_some()
    }

    /// Returns the address that the port is held to.
    pub(super) fn own_mac(&self) -> Option<Mac> {
        self.info.settings.mac.or(self.info.held_mac)
    }

    /// Returns the matching rules among those that decide which frames pass, toward the port
    /// (`out`) or from it.
    pub(super) fn deciding_rules(&self, out: bool) -> Option<String> {
        self.rules(|rule| rule.decides(out), "no rule matches, so it passes")
    }

    /// Returns the matching rules among those for which `are_meant` is true, or the text `none`.
    /// Returns `None` if there are no such rules.
    pub(super) fn rules(&self, are_meant: impl Fn(&Rule) -> bool, none: &str) -> Option<String> {
        let rules = self.config.acl.iter().zip(&self.hits).enumerate();
        let meant: Vec<_> = rules.filter(|(_, (rule, _))| are_meant(rule)).collect();
        let matched = meant.iter().filter(|(_, (_, hits))| **hits > 0);
        let told = matched.map(|(place, (rule, _))| format!("rule {}: {rule}", place + 1));
        let told: Vec<_> = told.collect();
        let text = if told.is_empty() { none.to_owned() } else { told.join("; ") };
        (!meant.is_empty()).then_some(text)
    }
}

/// Returns what the switch did to frames for the port's other side: coalescing, segmentation and
/// checksums.
pub(super) fn done_for(port: &Seen<'_>) -> Vec<(&'static str, String)> {
    let mut done = Vec::new();
    let (joined, trains) =
        (port.more(|it| it.coalesced_packets), port.more(|it| it.coalescing_events));
    if trains > 0 {
        let segments = joined + trains;
        let trains = if trains == 1 { "1 train".to_owned() } else { format!("{trains} trains") };
        done.push(("coalesce", format!("{segments} segments become {trains}")));
    }
    let ended = |(place, reason): (usize, &RscException)| {
        let count = |it: &PortCounters| it.rsc_exceptions.get(place).copied().unwrap_or_default();
        (port.more(count) > 0).then(|| reason.name())
    };
    let ended: Vec<_> = RscException::ALL.iter().enumerate().filter_map(ended).collect();
    if !ended.is_empty() {
        done.push(("coalesce", format!("not coalesced further: {}", ended.join(", "))));
    }
    let (trains, segments) = (port.more(|it| it.segmented_trains), port.more(|it| it.segments));
    if trains > 0 {
        done.push(("fit", format!("cut into {segments} segments")));
    }
    let checksums = port.more(|it| it.checksums);
    if checksums > 0 {
        done.push(("fit", format!("{checksums} transport checksums completed")));
    }
    done
}

/// Returns a frame that left a port, as a body.
pub(super) fn left(port: &Seen<'_>, (queue, frame): &(usize, MemoryFrame)) -> TraceFrameBody {
    let is_flooded = port.more(|it| it.flooded_frames) > 0;
    let MemoryFrame { bytes, vnet } = frame;
    let vlan = parse(bytes, bytes.len()).map_or(0, |parsed| parsed.vlan_id());
    let hex = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    TraceFrameBody {
        port: port.name(),
        queue: *queue,
        length: bytes.len(),
        vlan: (vlan != 0).then_some(vlan),
        unknown_destination: is_flooded
            && words::addresses(bytes).is_some_and(|(destination, _)| !destination.is_group()),
        segment_size: (vnet.gso() != GsoType::None).then(|| vnet.gso_size.get()),
        partial_checksum: vnet.flags().contains(Flags::NEEDS_CSUM),
        text: words::of(frame),
        hex,
    }
}
