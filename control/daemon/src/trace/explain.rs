//! Explains what a copy of the switch did with the frames of a burst, as steps: the checks at each
//! port, and their results.

use super::reasons::{Stage, meaning};
use super::seen::{Seen, done_for, left, state};
use super::words;
use api::body::{TraceDropBody, TraceStepBody, TraceTurnBody};
use config::{PortConfig, Rule};
use datapath::{DropReason, MacEntry, PortCounters, PortId, PortInfo, PortState, Rehearsal};
use ports::memory::MemoryFrame;
use std::collections::BTreeMap;
use wire::{Mac, Parsed, parse};

/// Most frames listed per port and turn; the step gives the number of the others. A train may leave
/// as thousands of segments.
const TOLD: usize = 64;

/// One turn, and what is known about it.
struct Turn<'r> {
    frames: &'r [MemoryFrame],
    from: Seen<'r>,
    others: Vec<Seen<'r>>,
    /// Learned addresses before the turn, and after it.
    known: Vec<MacEntry>,
    learned: Vec<MacEntry>,
    steps: Vec<TraceStepBody>,
}

/// Lets the frames enter, and explains what happened to them.
pub(super) fn turn(
    rehearsal: &mut Rehearsal,
    from: PortId,
    configs: &BTreeMap<PortId, PortConfig>,
    frames: &[MemoryFrame],
) -> TraceTurnBody {
    let known = rehearsal.macs();
    let ports = rehearsal.switch().ports();
    let before: Vec<_> = ports.iter().map(|info| state(rehearsal, info.id)).collect();
    rehearsal.turn(frames.len());
    let seen = |(info, (before, hits)): (PortInfo, (PortCounters, Vec<u64>))| {
        let (after, now) = state(rehearsal, info.id);
        let hits = now.iter().zip(hits).map(|(now, before)| now - before).collect();
        let (config, out) = (configs.get(&info.id)?, rehearsal.received(info.id));
        Some(Seen { info, config, before, after, hits, out })
    };
    let seen: Vec<_> = ports.into_iter().zip(before).filter_map(seen).collect();
    let (own, others): (Vec<_>, _) = seen.into_iter().partition(|port| port.info.id == from);
    let Some(from) = own.into_iter().next() else { return nothing(frames) };
    let learned = rehearsal.macs();
    Turn { frames, from, others, known, learned, steps: Vec::new() }.tell()
}

fn nothing(frames: &[MemoryFrame]) -> TraceTurnBody {
    let frames = frames.iter().map(words::of).collect();
    TraceTurnBody { frames, steps: Vec::new(), delivered: Vec::new(), drops: Vec::new() }
}

/// Returns where in the switch frames of a VLAN are. 0 is the VLAN of untagged frames.
fn in_vlan(vlan: u16) -> String {
    if vlan == 0 { "without a VLAN".to_owned() } else { format!("in VLAN {vlan}") }
}

/// Returns the ports that get what is flooded in a VLAN.
fn ports_of(vlan: u16) -> String {
    if vlan == 0 {
        "all ports without a VLAN".to_owned()
    } else {
        format!("all ports of VLAN {vlan}")
    }
}

impl Turn<'_> {
    fn tell(mut self) -> TraceTurnBody {
        self.enter();
        for port in std::mem::take(&mut self.others) {
            if port.was_reached() {
                self.leave(&port);
            }
            self.others.push(port);
        }
        self.answer();
        let all = || std::iter::once(&self.from).chain(&self.others);
        let delivered =
            all().flat_map(|port| port.out.iter().take(TOLD).map(|out| left(port, out)));
        let drops = all().flat_map(|port| {
            port.drops().map(|(reason, frames)| TraceDropBody {
                port: port.name(),
                reason: reason.name().to_owned(),
                frames,
                text: meaning(reason).1.to_owned(),
            })
        });
        TraceTurnBody {
            frames: self.frames.iter().map(words::of).collect(),
            delivered: delivered.collect(),
            drops: drops.collect(),
            steps: self.steps,
        }
    }

    fn step(&mut self, port: String, stage: &str, text: impl Into<String>) {
        let (stage, text) = (stage.to_owned(), text.into());
        self.steps.push(TraceStepBody { port, stage, drops: false, text });
    }

    /// Reports drops at an ingress stage. Returns whether frames are left.
    fn drops_at(&mut self, stage: Stage, name: &str, left: &mut u64) -> bool {
        for (reason, frames) in self.from.drops().collect::<Vec<_>>() {
            let (at, means) = meaning(reason);
            if at == stage {
                *left = left.saturating_sub(frames);
                self.drop(self.from.name(), name, reason, frames, means);
            }
        }
        *left > 0
    }

    fn drop(&mut self, port: String, stage: &str, reason: DropReason, frames: u64, means: &str) {
        let count = if frames == 1 { String::new() } else { format!(", {frames} frames") };
        let text = format!("dropped: {}{count} ({means})", reason.name());
        self.steps.push(TraceStepBody { port, stage: stage.to_owned(), drops: true, text });
    }

    /// Reports the ingress stages, as far as frames get.
    fn enter(&mut self) {
        let stages = [
            (Stage::Read, "read"),
            (Stage::Guards, "guards"),
            (Stage::Acl, "acl"),
            (Stage::Address, "address"),
            (Stage::Vlan, "vlan"),
            (Stage::Spoofing, "spoofing"),
            (Stage::Rate, "rate"),
            (Stage::Learn, "learn"),
            (Stage::Lookup, "lookup"),
        ];
        let mut left = self.frames.len() as u64;
        for (stage, name) in stages {
            for (name, text) in self.asked(stage) {
                self.step(self.from.name(), name, text);
            }
            if !self.drops_at(stage, name, &mut left) {
                return;
            }
        }
    }

    /// Returns the checks of a stage, and their results.
    fn asked(&self, stage: Stage) -> Vec<(&'static str, String)> {
        match stage {
            Stage::Read => self.read(),
            Stage::Guards => self.guards(),
            Stage::Acl => self.rules(),
            Stage::Vlan => self.vlans(),
            Stage::Spoofing => self.spoofing(),
            Stage::Rate => self.rate(),
            Stage::Learn => self.learning(),
            Stage::Lookup => self.lookup(),
            Stage::Address | Stage::Egress => Vec::new(),
        }
    }

    fn read(&self) -> Vec<(&'static str, String)> {
        self.frames.iter().map(|frame| ("read", words::of(frame))).collect()
    }

    fn guards(&self) -> Vec<(&'static str, String)> {
        let guards = &self.from.info.settings.guards;
        let all = [
            (guards.dhcp, "dhcp-guard"),
            (guards.router, "router-guard"),
            (guards.addresses.is_some(), "ip-guard"),
        ];
        let on: Vec<_> = all.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
        if on.is_empty() {
            Vec::new()
        } else {
            vec![("guards", format!("checked: {}", on.join(", ")))]
        }
    }

    fn rules(&self) -> Vec<(&'static str, String)> {
        let decides = self.from.deciding_rules(false).map(|text| ("acl", text));
        let marks = self.from.rules(Rule::marks, "no rule marks it").map(|text| ("mark", text));
        decides.into_iter().chain(marks).collect()
    }

    /// Returns the frames' tags, and the resulting VLAN.
    fn vlans(&self) -> Vec<(&'static str, String)> {
        let mode = self.from.config.vlan_text();
        let told = |parsed: Parsed| {
            let tag = match parsed.vlan_id() {
                0 => "untagged".to_owned(),
                tag => format!("tagged {tag}"),
            };
            match self.from.info.settings.vlan.admit(&parsed) {
                Some(0) => format!("{tag} on a port in mode {mode}: no VLAN"),
                Some(vlan) => format!("{tag} on a port in mode {mode}: VLAN {vlan} in the switch"),
                None => format!("{tag} on a port in mode {mode}"),
            }
        };
        self.distinct("vlan", self.parsed().map(|(parsed, _)| told(parsed)))
    }

    fn spoofing(&self) -> Vec<(&'static str, String)> {
        let own = match self.from.own_mac() {
            Some(mac) => format!("the port may send from {mac}"),
            None => "the port is held to the first address from which it sends".to_owned(),
        };
        if self.from.info.settings.mac_guard { vec![("spoofing", own)] } else { Vec::new() }
    }

    fn rate(&self) -> Vec<(&'static str, String)> {
        let limit = self.from.info.settings.rate;
        let told = |bits| {
            let text = format!("the port may send {bits} bits per second: frames above wait in it");
            ("rate", text)
        };
        limit.map(|limit| told(limit.bits_per_second)).into_iter().collect()
    }

    /// Returns what is known about the sources, and what is learned.
    fn learning(&self) -> Vec<(&'static str, String)> {
        let own = self.from.own_mac();
        let told = |(parsed, bytes): (Parsed, &[u8])| {
            let (_, source) = words::addresses(bytes)?;
            let vlan = self.from.info.settings.vlan.admit(&parsed)?;
            let at = |macs: &[MacEntry]| {
                macs.iter().find(|it| it.mac == source && it.vlan == vlan).map(|it| it.port)
            };
            let here = Some(self.from.info.id);
            Some(match (at(&self.known), at(&self.learned)) {
                _ if own == Some(source) => format!("{source} is the port's own address"),
                (before, after) if after == here && before == here => {
                    format!("{source} is known to be here, {}", in_vlan(vlan))
                }
                (None, after) if after == here => {
                    format!("{source} is learned {}", in_vlan(vlan))
                }
                (Some(before), after) if after == here => {
                    let before = self.name_of(before);
                    format!("{source} is learned {}; it was at {before}", in_vlan(vlan))
                }
                _ => return None,
            })
        };
        self.distinct("learn", self.parsed().filter_map(told))
    }

    /// Returns where the destinations are.
    fn lookup(&self) -> Vec<(&'static str, String)> {
        let told = |(parsed, bytes): (Parsed, &[u8])| {
            let (destination, _) = words::addresses(bytes)?;
            let vlan = self.from.info.settings.vlan.admit(&parsed)?;
            if destination.is_group() {
                return Some(format!("{destination} is a group address: to {}", ports_of(vlan)));
            }
            Some(format!("{destination} {}", self.place(destination, vlan)))
        };
        self.distinct("lookup", self.parsed().filter_map(told))
    }

    /// Returns where an address is, and the consequence.
    fn place(&self, mac: Mac, vlan: u16) -> String {
        let all = std::iter::once(&self.from).chain(&self.others);
        let owns = |port: &&Seen<'_>| port.own_mac() == Some(mac);
        let owner = all.clone().find(|port| {
            owns(port) && port.info.settings.vlan.overlaps(&datapath::Vlan::Access(vlan))
        });
        let entry = self.known.iter().find(|it| it.mac == mac && it.vlan == vlan);
        let (port, place) = match (owner, entry) {
            (Some(owner), _) => (Some(owner), format!("is {}'s own address", owner.info.name)),
            (None, Some(entry)) => {
                let name = self.name_of(entry.port);
                let place = format!("was seen at {name} {} s ago", entry.age_s);
                (all.clone().find(|port| port.info.id == entry.port), place)
            }
            (None, None) => {
                return format!("is unknown: to {} that may receive it", ports_of(vlan));
            }
        };
        match port.map(|port| &port.info.state) {
            Some(PortState::Up) | None => place,
            Some(_) => format!("{place}, which is not up: to all ports that may receive it"),
        }
    }

    fn name_of(&self, port: PortId) -> String {
        let mut all = std::iter::once(&self.from).chain(&self.others);
        all.find(|seen| seen.info.id == port)
            .map_or_else(|| "a port that is gone".into(), Seen::name)
    }

    fn parsed(&self) -> impl Iterator<Item = (Parsed, &[u8])> {
        let bytes = self.frames.iter().map(|frame| frame.bytes.as_slice());
        bytes.filter_map(|bytes| Some((parse(bytes, bytes.len())?, bytes)))
    }

    /// Returns each text once, in the order of the frames.
    fn distinct(
        &self,
        stage: &'static str,
        texts: impl Iterator<Item = String>,
    ) -> Vec<(&'static str, String)> {
        let mut told = Vec::new();
        texts.for_each(|text| {
            if !told.contains(&(stage, text.clone())) {
                told.push((stage, text));
            }
        });
        told
    }

    /// Reports the egress stages of a port.
    fn leave(&mut self, port: &Seen<'_>) {
        let name = port.name();
        if let Some(text) = port.deciding_rules(true) {
            self.step(name.clone(), "acl", text);
        }
        for (stage, text) in done_for(port) {
            self.step(name.clone(), stage, text);
        }
        for (reason, frames) in port.drops() {
            let (stage, means) = meaning(reason);
            let stage = if stage == Stage::Acl { "acl" } else { "deliver" };
            self.drop(name.clone(), stage, reason, frames, means);
        }
        let causes = [
            (port.more(|it| it.mirrored_frames), "a copy for the mirror"),
            (port.more(|it| it.flooded_frames), "flooded"),
        ];
        let cause = causes.iter().find(|(frames, _)| *frames > 0).map(|(_, cause)| *cause);
        for (queue, frame) in port.out.iter().take(TOLD) {
            let cause = cause.map_or_else(String::new, |cause| format!(", {cause}"));
            let text = format!("by queue {queue}{cause}: {}", words::of(frame));
            self.step(name.clone(), "deliver", text);
        }
        if let Some(more) = port.out.len().checked_sub(TOLD).filter(|more| *more > 0) {
            self.step(name, "deliver", format!("and {more} more frames, not listed"));
        }
    }

    /// Reports the ICMP answer to the sender.
    fn answer(&mut self) {
        let answers = self.from.more(|it| it.path_mtu_messages);
        let answers = self.from.out.iter().take(usize::try_from(answers).unwrap_or(usize::MAX));
        let told = |(_, frame): &(usize, MemoryFrame)| {
            format!("the sender is told the MTU: {}", words::of(frame))
        };
        for text in answers.map(told).collect::<Vec<_>>() {
            self.step(self.from.name(), "answer", text);
        }
    }
}
