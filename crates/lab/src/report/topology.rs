//! Who was connected to whom, as a picture.

use super::figure::Figure;
use super::{HostFacts, Report};
use crate::topology::Way;
use std::fmt::Write as _;

/// Sender, switch and receiver, in the direction of the load.
pub(super) fn picture(report: &Report) -> Figure {
    let bench = &report.bench;
    let of =
        |role: &str| -> Option<&HostFacts> { bench.hosts.iter().find(|host| host.role == role) };
    let kind = bench.kind();
    let pinned = |processors: &[usize]| {
        let numbers: Vec<String> = processors.iter().map(usize::to_string).collect();
        format!("processor {}", numbers.join(", "))
    };
    let placed = bench.placement.as_ref();
    let own = |role: &str| {
        placed.map(|all| pinned(if role == "sender" { &all.sender } else { &all.receiver }))
    };
    let place = |role: &str| match of(role) {
        Some(host) if !host.same_machine => "a machine of its own".to_owned(),
        Some(_) => "this machine".to_owned(),
        None if bench.in_process => "smoltcp".to_owned(),
        None => own(role).unwrap_or_else(|| "a namespace".to_owned()),
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
    let words = format!(
        "{kind}: sender ({}), {}, millrace, {}, receiver ({}); {mtu}; {processors}",
        place("sender"),
        links[0],
        links[1],
        place("receiver")
    );
    let boxes =
        [("Sender", place("sender")), ("Millrace", processors), ("Receiver", place("receiver"))];
    let mut svg = format!(
        r#"<svg role="img" viewBox="0 0 560 92" aria-label="{}">"#,
        super::figure::escape(&words)
    );
    for (number, (name, below)) in boxes.iter().enumerate() {
        let left = 2.0 + 208.0 * number as f64;
        let middle = left + 70.0;
        let _ = write!(
            svg,
            r#"<rect class="box" x="{left}" y="20" width="140" height="52" rx="6"/><text class="name" text-anchor="middle" x="{middle}" y="42">{name}</text><text class="tick" text-anchor="middle" x="{middle}" y="60">{}</text>"#,
            super::figure::escape(below)
        );
    }
    for (number, link) in links.iter().enumerate() {
        let left = 142.0 + 208.0 * number as f64;
        let (end, middle, tip) = (left + 60.0, left + 34.0, left + 67.0);
        let _ = write!(
            svg,
            r#"<line class="c0" x1="{left}" y1="46" x2="{end}" y2="46"/><path class="tip" d="M{end} 41L{tip} 46L{end} 51Z"/><text class="tick" text-anchor="middle" x="{middle}" y="36">{}</text><text class="tick" text-anchor="middle" x="{middle}" y="64">{mtu}</text>"#,
            super::figure::escape(link)
        );
    }
    svg.push_str("</svg>");
    Figure { title: format!("Topology, {kind}"), legend: Vec::new(), svg }
}
