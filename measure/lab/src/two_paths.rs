//! Two paths through one switch that carry load at the same time, one of them with jumbo frames.
//!
//! ```text
//! sender A wire0 ── uplink0 ┐          ┌ vnic0 (TAP) receiver A
//!                           ├ millrace ┤
//! sender B wire0 ── uplink1 ┘          └ vnic0 (TAP) receiver B
//! ```
//!
//! Each path has hosts and a VLAN of its own, so the two share the switch and the processors only,
//! as two NICs of one host do. Called by the campaign as a [`Site`] of its own; an interval reads
//! both paths, and its sample has the figures of its arm's path.

use crate::bulk_flows::{BulkFlows, Endpoints};
use crate::host::{Command, Host, Reading};
use crate::interrupt::Interrupt;
use crate::load::{Bulk, Load};
use crate::options::Options;
use crate::plan::{Arm, Bench, Measured, Plan, Values};
use crate::port::switch_error;
use crate::report::{Account, BenchFacts};
use crate::site::{self, RunResult, Site, Tell};
use crate::switch_counters::put_ratio;
use crate::topology::{
    ETHERNET, IP_AND_TCP, STANDARD_MTU, VNIC, WIRE, address, congestion, offloads, wire,
};
use crate::vnic::Vnic;
use crate::{LabError, daemon};
use api::body::{PortBody, StateBody};
use api::client::Client;
use serde_json::json;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Labels of the paths' arms, which do not say which one has jumbo frames.
pub(crate) const LABELS: [&str; 2] = ["Path A", "Path B"];
/// Keys of both paths' rates in each interval, for the line on the terminal.
pub(crate) const RATES: [&str; 2] = ["path_a_bps", "path_b_bps"];
/// The switch's links to the senders, which are also the names of their ports.
const UPLINKS: [&str; 2] = ["uplink0", "uplink1"];
/// The ports of the receivers.
const VNICS: [&str; 2] = ["path0", "path1"];
/// Networks of the paths: `10.NETWORK.0.STATION`. The VLANs have the same numbers.
const NETWORKS: [u8; 2] = [74, 75];
/// Last bytes of the addresses of a path's sender and receiver.
const STATIONS: [u8; 2] = [1, 2];

/// The running bench. Fields are dropped in this order: first the hosts, and the directory last.
pub(crate) struct TwoPaths {
    paths: [Path; 2],
    client: Client,
    switch: Host,
    /// MTU of the path with jumbo frames, in bytes.
    mtu: u16,
    interrupt: Interrupt,
    begin: Instant,
    _directory: tempfile::TempDir,
}

/// One path: its hosts, and the connections over it.
struct Path {
    sender: Host,
    receiver: Host,
    /// The receiver's address.
    to: IpAddr,
    carried: BulkFlows,
}

impl Path {
    fn begin(&mut self, bulk: Bulk, interrupt: &Interrupt) -> Result<(), LabError> {
        let Path { sender, receiver, to, carried } = self;
        *carried = BulkFlows::default();
        carried.begin(Endpoints { sender, receiver, to: *to, link: VNIC }, bulk, interrupt)
    }

    fn end(&mut self, interrupt: &Interrupt) {
        let Path { sender, receiver, to, carried } = self;
        let endpoints = Endpoints { sender, receiver, to: *to, link: VNIC };
        carried.end(endpoints, interrupt, |before, after| {
            let (frames, bytes) = after.arrived_since(before);
            // A TAP counts the Ethernet header.
            bytes.saturating_sub(frames * (ETHERNET + IP_AND_TCP))
        });
    }

    /// Reads the sender and the receiver.
    fn read(&mut self) -> Result<[Reading; 2], LabError> {
        Ok([self.sender.read(WIRE)?, self.receiver.read(VNIC)?])
    }
}

impl TwoPaths {
    /// Starts the hosts and the switch. Call it while this process has one thread.
    ///
    /// # Errors
    /// A TAP cannot be created, namespaces are refused, or a host or a port does not start.
    pub(crate) fn make(
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn Site>, LabError> {
        let why =
            |error| LabError::Switch(format!("two paths end at TAPs, but /dev/net/tun: {error}"));
        Vnic::tap().map_err(why)?;
        let directory = site::prepare(interrupt)?;
        let at = directory.path();
        let start = |name: &str| Host::start(name, &options.program, at);
        let mut switch = start("switch")?;
        let mut paths = [
            path(start("sender A")?, start("receiver A")?, NETWORKS[0]),
            path(start("sender B")?, start("receiver B")?, NETWORKS[1]),
        ];
        for ((path, uplink), network) in paths.iter_mut().zip(UPLINKS).zip(NETWORKS) {
            wire(&mut path.sender, WIRE, uplink, switch.process(), STANDARD_MTU)?;
            address(&mut path.sender, WIRE, network, STATIONS[0])?;
            // Frames leave at MTU size, as from a NIC onto its wire.
            path.sender.set_offloads(WIRE, &offloads(false, false))?;
            switch.run(&format!("ip link set {uplink} mtu {STANDARD_MTU} up"))?;
            switch.set_offloads(uplink, &offloads(false, false))?;
        }
        let at = at.join("switch");
        let text = configuration(&at.with_extension("api"), &paths);
        let are_up = |ports: &[PortBody]| {
            ports.len() == 2 * paths.len() && ports.iter().all(|port| port.state == StateBody::Up)
        };
        let client = daemon::run(&mut switch, &options.program, (&at, &text), interrupt, are_up)?;
        for (path, network) in paths.iter_mut().zip(NETWORKS) {
            path.receiver.run(&format!("ip link set {VNIC} up"))?;
            address(&mut path.receiver, VNIC, network, STATIONS[1])?;
        }
        Ok(Box::new(TwoPaths {
            paths,
            client,
            switch,
            mtu: options.mtu,
            interrupt: interrupt.clone(),
            begin: Instant::now(),
            _directory: directory,
        }))
    }

    /// Gives the path with this place the jumbo frames, and the other one MTU 1500. No load runs.
    fn set_mtus(&mut self, jumbo: usize) -> Result<(), LabError> {
        for (place, path) in self.paths.iter_mut().enumerate() {
            let mtu = if place == jumbo { self.mtu } else { STANDARD_MTU };
            self.switch.set_mtu(UPLINKS[place], mtu)?;
            for port in [UPLINKS[place], VNICS[place]] {
                self.client.change_port(port, &json!({ "mtu": mtu })).map_err(switch_error)?;
            }
            path.sender.set_mtu(WIRE, mtu)?;
        }
        Ok(())
    }

    fn read(&mut self) -> Result<[[Reading; 2]; 2], LabError> {
        let [one, other] = &mut self.paths;
        Ok([one.read()?, other.read()?])
    }

    /// Returns the account of both paths; `None` if a host did not report.
    fn account(&self) -> Option<Account> {
        let [one, other] = &self.paths;
        Some(one.carried.account()?.plus(other.carried.account()?))
    }
}

fn path(sender: Host, receiver: Host, network: u8) -> Path {
    let to = IpAddr::from([10, network, 0, STATIONS[1]]);
    Path { sender, receiver, to, carried: BulkFlows::default() }
}

/// Returns the switch's configuration: an uplink and a vNIC for each path, in a VLAN of their own.
fn configuration(api: &std::path::Path, paths: &[Path; 2]) -> String {
    let mut text = format!("[switch]\nsocket = {api:?}\n");
    for (place, path) in paths.iter().enumerate() {
        let (uplink, vnic, vlan) = (UPLINKS[place], VNICS[place], NETWORKS[place]);
        let netns = format!("/proc/{}/ns/net", path.receiver.process());
        text += &format!("[[port]]\nname = \"{uplink}\"\npacket = \"{uplink}\"\nvlan = {vlan}\n");
        text += &format!("[[port]]\nname = \"{vnic}\"\ntap = \"{VNIC}\"\nnetns = \"{netns}\"\n");
        text += &format!("vlan = {vlan}\n");
    }
    text
}

/// Returns the place of an arm's path.
fn place(arm: &Arm) -> usize {
    LABELS.iter().position(|label| *label == arm.label).unwrap_or(0)
}

/// Returns the figures of one path between two readings of its hosts.
fn figures(before: &[Reading; 2], after: &[Reading; 2]) -> Values {
    let ([sent_before, got_before], [sent, got]) = (before, after);
    let seconds = (got.at_ns.saturating_sub(got_before.at_ns) as f64 / 1e9).max(1e-9);
    let bytes = got.received_bytes.saturating_sub(got_before.received_bytes) as f64;
    let mut values = Values::from([
        ("seconds".to_owned(), seconds),
        ("received_bytes".to_owned(), bytes),
        ("throughput_bps".to_owned(), bytes * 8.0 / seconds),
    ]);
    let frames = sent.sent_frames.saturating_sub(sent_before.sent_frames);
    let bytes = sent.sent_bytes.saturating_sub(sent_before.sent_bytes);
    put_ratio(&mut values, "frame_bytes_on_the_wire", bytes, frames);
    values.extend(sent.sent_since(sent_before));
    values
}

impl Bench for TwoPaths {
    /// Changes nothing: both paths carry their load all the time.
    fn switch_to(&mut self, _arm: &Arm) -> Result<(), LabError> {
        Ok(())
    }

    fn pass(&mut self, time: Duration) -> Result<(), LabError> {
        self.interrupt.pass(time)?;
        self.switch.check()
    }

    fn measure(&mut self, arm: &Arm, interval: Duration) -> Result<Measured, LabError> {
        let before = self.read()?;
        self.pass(interval)?;
        let after = self.read()?;
        let both = [figures(&before[0], &after[0]), figures(&before[1], &after[1])];
        let rates = both.each_ref().map(|path| path["throughput_bps"]);
        let [one, other] = both;
        let mut values = if place(arm) == 0 { one } else { other };
        values.extend(RATES.map(str::to_owned).into_iter().zip(rates));
        Ok(Measured { values, usage: Vec::new() })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Site for TwoPaths {
    fn facts(&self) -> BenchFacts {
        let mtu = self.mtu;
        BenchFacts {
            description: format!(
                "Two paths carry their load at the same time: each from a sender over a wire, an uplink and a vNIC of its own to a \
                 receiver of its own, through one switch. One path has MTU {mtu}, the other MTU {STANDARD_MTU}; which is which is \
                 drawn by lot. All of them share this machine's processors."
            ),
            mtu: Some(mtu),
            vnic: Some("tap".into()),
            congestion: congestion(),
            ..BenchFacts::default()
        }
    }

    fn run(
        &mut self,
        load: Load,
        plan: &Plan,
        interrupt: &Interrupt,
        progress: Tell<'_>,
    ) -> RunResult {
        self.set_mtus(plan.arms.first().map_or(0, place))?;
        for path in &mut self.paths {
            load.carried().map_or(Ok(()), |bulk| path.begin(bulk, interrupt))?;
        }
        let run = plan.run(self, progress);
        self.paths.iter_mut().for_each(|path| path.end(interrupt));
        Ok((run, self.account()))
    }

    fn commands(&self) -> Vec<Command> {
        let hosts = self.paths.iter().flat_map(|path| [&path.sender, &path.receiver]);
        let all = std::iter::once(&self.switch).chain(hosts);
        all.flat_map(|host| host.commands().iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paths_figures_are_its_own_clocks_and_its_wires() {
        let before = [Reading::default(); 2];
        let sent = Reading { sent_frames: 10, sent_bytes: 90_140, ..Reading::default() };
        let got = Reading { at_ns: 500_000_000, received_bytes: 89_480, ..Reading::default() };
        let values = figures(&before, &[sent, got]);
        assert_eq!(values["frame_bytes_on_the_wire"], 9014.0);
        assert_eq!(values["throughput_bps"], 2.0 * 8.0 * 89_480.0);
    }
}
