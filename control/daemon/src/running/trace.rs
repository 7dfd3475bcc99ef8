//! Prepares a trace: copies the switch, by the thread that owns it.

use super::port::RunningPort;
use super::report::Report;
use crate::trace::{Addresses, Expression, MOST_BYTES, MOST_FRAMES, Prepared};
use api::body::TraceRequest;
use datapath::{MacEntry, PortId, Vlan};
use problem::Problem;
use std::cell::LazyCell;
use std::net::IpAddr;
use wire::Mac;

/// Source address of frames from a port whose station's address is unknown.
const ANY: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Destination address of frames that name none; no station has it.
const NO_ONE: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Reads the frames of a trace, and copies the state that decides about them.
///
/// # Errors
/// A port is not there or not open, a frame cannot be read, or there are too many.
pub(crate) fn prepare(report: &Report<'_>, request: &TraceRequest) -> Result<Prepared, Problem> {
    let open = report.ports.open_port(&request.port)?;
    let (from, vlan) = (open.id, open.settings.vlan.clone());
    // Checked before any frame is read, because this takes time of the switch's thread.
    let most = |count: usize| match count {
        1..=MOST_FRAMES => Ok(()),
        _ => Err(Problem::new("the trace has too many frames")
            .seen(count)
            .wanted(format!("1 to {MOST_FRAMES} frames"))
            .remedy("trace fewer frames at a time")),
    };
    most(request.frames.len())?;
    let expressions: Result<Vec<_>, _> =
        request.frames.iter().map(|text| Expression::parse(text)).collect();
    let expressions = expressions?;
    let count = expressions.iter().map(|expression| expression.count).sum();
    most(count)?;
    let macs = LazyCell::new(|| report.switch.macs());
    let station = |name: &str| station(report, name, || macs.iter());
    let source = station(&request.port).unwrap_or(ANY);
    let mut frames = Vec::with_capacity(count);
    let mut notes = Vec::new();
    for expression in &expressions {
        let destination = match &expression.to {
            Some(port) => {
                report.ports.port(port)?;
                station(port).ok_or_else(|| no_station(port))?
            }
            None => {
                let known = expression
                    .receiver()
                    .and_then(|ip| guarded(report, ip, expression.entered(&vlan)?));
                let known = known.and_then(|port| Some((port, station(port)?)));
                if expression.names_no_destination() {
                    notes.push(told(expression.receiver(), known));
                }
                known.map_or(NO_ONE, |(_, mac)| mac)
            }
        };
        frames.extend(expression.frames(Addresses { source, destination }));
    }
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    if bytes > MOST_BYTES {
        return Err(Problem::new("the trace's frames have too many bytes")
            .seen(bytes)
            .wanted(format!("at most {MOST_BYTES} together"))
            .remedy("trace fewer frames at a time"));
    }
    let turns = match request.burst {
        true => vec![count],
        false => expressions.iter().map(|expression| expression.count).collect(),
    };
    let ports = report.ports.iter();
    let open = ports.filter_map(|(_, port)| Some((port.open()?.id, port.config.clone())));
    notes.extend(frames.iter().filter_map(|frame| carried(report, from, &frame.bytes)));
    let snapshot = report.switch.snapshot(from, frames.clone(), report.switch.now());
    notes.dedup();
    Ok(Prepared { from, configs: open.collect(), frames, turns, snapshot, notes })
}

/// Returns what is said of a frame whose flow the kernel carries.
fn carried(report: &Report<'_>, from: PortId, frame: &[u8]) -> Option<String> {
    let flow = report.switch.carried_flow(from, frame)?;
    Some(format!(
        "the kernel carries this flow since {} s, {} frames so far: it decided as shown here, and later frames do not reach the switch",
        flow.age / 1_000_000_000,
        flow.tally.frames
    ))
}

/// The port whose `ip-guard` names this address alone, in the VLAN of the frame: tenants may have
/// the same addresses.
fn guarded<'r>(report: &Report<'r>, ip: IpAddr, vlan: u16) -> Option<&'r str> {
    let names = |port: &RunningPort| {
        let carries =
            port.open().is_some_and(|open| open.settings.vlan.overlaps(&Vlan::Access(vlan)));
        let guard = port.config.ip_guard.as_ref();
        let mut prefixes = guard.into_iter().flat_map(|guard| guard.prefixes());
        carries && prefixes.any(|prefix| prefix.first == ip && prefix.last == ip)
    };
    report.ports.iter().find(|(_, port)| names(port)).map(|(name, _)| name.as_str())
}

/// What is said of a frame that names no destination.
fn told(ip: Option<IpAddr>, known: Option<(&str, Mac)>) -> String {
    match (ip, known) {
        (Some(ip), Some((port, mac))) => {
            format!("no `eth MAC > MAC` given: {ip} is taken to be {mac}, by ip-guard of port {port}")
        }
        _ => "no `eth MAC > MAC` and no `to PORT` given: the destination is shown as unknown, and so as \
              flooded; a real sender learns the address by ARP or neighbour discovery"
            .to_owned(),
    }
}

/// The address of a station behind a port: the port's own, otherwise the one learned last,
/// otherwise the device's.
fn station<'m, Macs: Iterator<Item = &'m MacEntry>>(
    report: &Report<'_>,
    name: &str,
    macs: impl FnOnce() -> Macs,
) -> Option<Mac> {
    let (_, port) = report.ports.find(name)?;
    let open = port.open()?;
    let info = port.info_in(&report.infos)?;
    let learned = || {
        let macs = macs().filter(|entry| entry.port == open.id);
        macs.min_by_key(|entry| (entry.age_s, entry.mac)).map(|entry| entry.mac)
    };
    info.settings.mac.or(info.held_mac).or_else(learned).or(open.mac)
}

fn no_station(name: &str) -> Problem {
    Problem::new(format!("no address is known behind port {name}"))
        .seen(format!("to {name}"))
        .wanted("a port with `mac`, or one whose station has sent a frame")
        .remedy("name the addresses, such as eth 02:00:00:00:00:01 > 02:00:00:00:00:02")
}
