//! Who was connected to whom, as a picture that `report.html` draws.

use super::{HostFacts, Report};
use crate::placement::list;
use crate::topology::Way;
use serde::Serialize;

/// Three boxes and the links between them, in the direction of the load.
#[derive(Serialize)]
pub(super) struct Picture {
    title: String,
    /// What it says to those who cannot see it.
    words: String,
    /// Name of each host, and where it ran.
    boxes: [(&'static str, String); 3],
    links: [String; 2],
    /// `MTU 1500`; empty where it is not known.
    mtu: String,
}

/// Sender, switch and receiver.
pub(super) fn picture(report: &Report) -> Picture {
    let bench = &report.bench;
    let of =
        |role: &str| -> Option<&HostFacts> { bench.hosts.iter().find(|host| host.role == role) };
    let kind = bench.kind();
    let pinned = |processors: &[usize]| format!("processor {}", list(processors));
    let placed = bench.placement.as_ref();
    let place = |role: &str| match (of(role), placed) {
        (Some(host), _) if !host.same_machine => "a machine of its own".to_owned(),
        (Some(_), _) => "this machine".to_owned(),
        (None, _) if bench.in_process => "smoltcp".to_owned(),
        (None, Some(all)) => pinned(if role == "sender" { &all.sender } else { &all.receiver }),
        (None, None) => "a namespace".to_owned(),
    };
    let vnic = bench.vnic.clone().unwrap_or_else(|| "vNIC".into());
    let links = match report.cases.first().and_then(|case| case.setting.way) {
        Some(Way::FromVnic) => [vnic, "uplink".to_owned()],
        _ => ["uplink".to_owned(), vnic],
    };
    let mtu = bench.mtu.map_or(String::new(), |mtu| format!("MTU {mtu}"));
    let usable = report.machine.usable.unwrap_or(report.machine.processors);
    let all = format!("any of {usable} processors");
    let processors = placed.map_or(all, |placed| pinned(&placed.switch));
    let [sender, receiver] = ["sender", "receiver"].map(place);
    let [from, to] = &links;
    let words = format!(
        "{kind}: sender ({sender}), {from}, millrace, {to}, receiver ({receiver}); {mtu}; {processors}"
    );
    let boxes = [("Sender", sender), ("Millrace", processors), ("Receiver", receiver)];
    Picture { title: format!("Topology, {kind}"), words, boxes, links, mtu }
}
