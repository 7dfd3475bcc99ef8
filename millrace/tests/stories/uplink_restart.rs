//! A packet uplink over restarts. A host behind it sends numbered datagrams every millisecond; each
//! comes once and in order, also those sent while no daemon runs.

use crate::outage::{Probe, restarts, told};
use crate::sandbox::{Need, story};
use crate::switch::{FILE, Switch, write};
use crate::systemd::Systemd;
use crate::topology::{Family, Topology};
use rustix::process::Signal;
use std::collections::BTreeSet;
use waiting::until;

const NEEDS: [Need; 3] = [Need::Tap, Need::Program("ethtool"), Need::Program("bash")];

/// Counts of what happened to the datagrams.
#[derive(Debug, PartialEq, Eq)]
struct Fate {
    lost: u64,
    /// Datagrams that came more than once.
    repeated: u64,
    /// Datagrams that came for the first time after a later one.
    overtaken: u64,
}

fn fate(sent: u64, came: &[u64]) -> Fate {
    let (mut seen, mut overtaken) = (BTreeSet::new(), 0);
    for number in came {
        let is_late = seen.last().is_some_and(|last| number < last);
        overtaken += u64::from(seen.insert(*number) && is_late);
    }
    let different = seen.len() as u64;
    Fate { lost: sent - different, repeated: came.len() as u64 - different, overtaken }
}

/// Restarts a switch repeatedly while datagrams come, and prints the outages.
fn restart_all(
    how: &str,
    topology: Topology,
    mut restart: impl FnMut(Switch) -> Switch,
) -> (Switch, Fate) {
    let Topology { switch, far, guest } = topology;
    let probe = Probe::start((far, guest, Family::V4.guest()));
    until("datagrams come", || (probe.arrivals.count() > 100).then_some(()));
    let mut running = Some(switch);
    let outage = |_| probe.arrivals.outage_ms(|| running = running.take().map(&mut restart));
    let outages = (0..restarts()).map(outage).collect();
    let (sent, came) = probe.end();
    let fate = fate(sent, &came);
    println!(
        "measured: restarts of a packet uplink by {how}: {}; {sent} datagrams, {fate:?}",
        told(outages)
    );
    (running.unwrap(), fate)
}

fn by_systemd(systemd: &Systemd) -> Topology {
    let topology = Topology::started("packet", "", "", |configuration| {
        write(configuration);
        systemd.start()
    });
    systemd.wait_for(&ALL);
    topology
}

const ALL: [&str; 4] = ["guest.0", "manifest", "uplink.0", "uplink.1"];
const NOTHING: Fate = Fate { lost: 0, repeated: 0, overtaken: 0 };

#[test]
fn a_successor_takes_every_datagram_once_and_in_order() {
    story(&NEEDS, || {
        let (_, fate) = restart_all("hand-over", Topology::new(""), Switch::take_over);
        assert_eq!(fate, NOTHING);
    });
}

#[test]
fn the_next_daemon_of_a_service_manager_takes_every_datagram_once_and_in_order() {
    story(&NEEDS, || {
        let systemd = Systemd::new();
        let restart = |switch| systemd.restart(switch, Signal::TERM);
        let (switch, fate) = restart_all("SIGTERM", by_systemd(&systemd), restart);
        assert_eq!(fate, NOTHING);
        systemd.wait_for(&ALL);
        switch.tell("port remove uplink");
        systemd.wait_for(&["guest.0", "manifest"]);
    });
}

/// Datagrams that the daemon had delivered and not given back come once more.
#[test]
fn after_a_crash_no_datagram_is_lost_or_overtaken() {
    story(&NEEDS, || {
        let systemd = Systemd::new();
        let mut signals = [Signal::KILL, Signal::ABORT].into_iter().cycle();
        let restart = |switch| systemd.restart(switch, signals.next().unwrap());
        let (_, fate) = restart_all("SIGKILL and SIGABRT", by_systemd(&systemd), restart);
        assert_eq!((fate.lost, fate.overtaken), (0, 0), "{fate:?}");
        systemd.wait_for(&ALL);
    });
}

/// The port's configuration changes meanwhile, or its ring gets slots of another size.
#[test]
fn an_uplink_that_differs_is_opened_anew() {
    story(&NEEDS, || {
        let systemd = Systemd::new();
        let Topology { mut switch, far, guest } = by_systemd(&systemd);
        let carries = || {
            until("datagrams come", || {
                let probe = Probe::start((far, guest, Family::V4.guest()));
                std::thread::sleep(std::time::Duration::from_millis(50));
                (!probe.end().1.is_empty()).then_some(())
            });
        };
        let text = std::fs::read_to_string(FILE).unwrap();
        std::fs::write(FILE, text.replace("packet = ", "promiscuous = false\npacket = ")).unwrap();
        switch = systemd.restart(switch, Signal::TERM);
        carries();
        for end in ["ip link set uplink mtu 9000", "ip link set uplink mtu 1500"] {
            crate::sandbox::run(end);
            switch = systemd.restart(switch, Signal::KILL);
            carries();
        }
        systemd.wait_for(&ALL);
        switch.end(Signal::TERM);
    });
}
