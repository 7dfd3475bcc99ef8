//! A guest goes from Open vSwitch with DPDK to Millrace and back, or the other way round, with
//! unchanged QEMU options. So a host moves to Millrace one guest at a time.

use crate::host::Host;
use crate::migration::Place;
use crate::qemu::{Machine, options_as};
use crate::sandbox::{Need, output_of, run, story};
use crate::shell::Shell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use waiting::until;

/// Path of the program: Debian's `ovs-vswitchd` is the one without DPDK.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const NEEDS: [Need; 6] = [
    Need::Guest("qemu"),
    Need::Tap,
    Need::Root,
    Need::Program("ethtool"),
    Need::Program("ovs-vsctl"),
    Need::Program(VSWITCHD),
];
const COMPAT: &str = "mac = '52:54:00:00:00:01'\ncompat = 'ovs-dpdk'\n";
/// Path at which QEMU listens for the other switch.
const SOCKET: &str = "/run/ovs.vm";

/// Runs a host on Open vSwitch. One guest needs no huge pages.
struct OpenVswitch {
    processes: [Child; 2],
}

impl OpenVswitch {
    fn start() -> OpenVswitch {
        let host = Host::new("ovs");
        run("ip link add ovs-out type veth peer name wire netns ovs");
        run("ip link set ovs-out up master physical");
        host.run("ip link set wire up");
        std::fs::create_dir("/run/ovs").unwrap();
        run("ovsdb-tool create /run/ovs/db /usr/share/openvswitch/vswitch.ovsschema");
        let start = |program: &str, line: &str| {
            let mut command = host.command(program);
            command.args(line.split(' ')).env("OVS_RUNDIR", "/run/ovs").spawn().unwrap()
        };
        let database = start(
            "ovsdb-server",
            "/run/ovs/db --remote=punix:/run/ovs/sock --unixctl=/run/ovs/db.ctl -vconsole:off",
        );
        let tell = |line: &str| {
            let mut command = Command::new("ovs-vsctl");
            command.args(["--db=unix:/run/ovs/sock", "--retry", "--timeout=30"]);
            output_of(command.args(line.split(' ')));
        };
        tell("--no-wait init");
        tell("--no-wait set Open_vSwitch . other_config:dpdk-init=true");
        let mut extra = Command::new("ovs-vsctl");
        extra.args(["--db=unix:/run/ovs/sock", "--no-wait", "set", "Open_vSwitch", "."]);
        output_of(extra.arg("other_config:dpdk-extra=--legacy-mem --no-huge --no-pci -m 1024"));
        let switch = start(
            VSWITCHD,
            "unix:/run/ovs/sock --unixctl=/run/ovs/ctl --log-file=/run/ovs/log -vconsole:off",
        );
        tell(&format!(
            "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 wire -- add-port br0 vm \
             -- set Interface vm type=dpdkvhostuserclient options:vhost-server-path={SOCKET}"
        ));
        OpenVswitch { processes: [database, switch] }
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Connects to the guest, which sends back what it gets, and compares every byte.
struct Echo {
    stop: Arc<AtomicBool>,
    chunks: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Echo {
    fn start() -> Echo {
        let connection = || {
            TcpStream::connect_timeout(&"10.9.0.1:7000".parse().unwrap(), Duration::from_secs(2))
        };
        let mut connection = until("the guest takes a connection", || connection().ok());
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (stop, chunks): (Arc<AtomicBool>, Arc<AtomicUsize>) = Default::default();
        let (ends, count) = (stop.clone(), chunks.clone());
        let thread = thread::spawn(move || {
            while !ends.load(Relaxed) {
                let first = count.load(Relaxed);
                let byte = |place: usize| (first * 7 + place / 3).to_le_bytes()[0];
                let sent: Vec<u8> = (0..6000).map(byte).collect();
                connection.write_all(&sent).expect("the connection lasts");
                let mut back = vec![0; sent.len()];
                connection.read_exact(&mut back).expect("all comes back");
                assert!(back == sent, "what came back of chunk {first} is not what was sent");
                count.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        Echo { stop, chunks, thread }
    }

    /// Waits until more bytes have come back. Returns the number so far.
    fn goes_on(&self) -> usize {
        let before = self.chunks.load(Relaxed);
        until("the stream goes on", || (self.chunks.load(Relaxed) > before + 20).then_some(()));
        self.chunks.load(Relaxed) * 6000
    }
}

#[test]
fn a_guest_goes_from_open_vswitch_to_millrace_and_back() {
    story(&NEEDS, || there_and_back(true));
}

#[test]
fn a_guest_goes_from_millrace_to_open_vswitch_and_back() {
    story(&NEEDS, || there_and_back(false));
}

fn there_and_back(begins_at_ovs: bool) {
    run("ip link add physical type bridge forward_delay 0 stp_state 0");
    run("ip address add 10.9.0.2/24 dev physical");
    run("ip link set physical up");
    // Open vSwitch passes partial checksums on unchanged.
    run("ethtool -K physical tx off");
    let place = Place::new("millrace", 3, COMPAT);
    let _ovs = OpenVswitch::start();
    let here = options_as(&output_of(&mut place.command("port show vm --qemu")));
    let other = |option: &String| match option.starts_with("-chardev") {
        true => format!("-chardev socket,id=vm-socket,path={SOCKET},server=on"),
        false => option.clone(),
    };
    let there: Vec<String> = here.iter().map(other).collect();
    let [first, second] = if begins_at_ovs { [&there, &here] } else { [&here, &there] };
    let mut begins = Machine::boot_movable("begins", first, false);
    begins.guest.run("ip address add 10.9.0.1/24 dev eth0; ip link set eth0 up");
    begins.guest.run("nc -l -p 7000 -e cat >/dev/null 2>&1 &");
    begins.guest.run("until netstat -ltn | grep -q ':7000 '; do sleep 0.1; done");
    let echo = Echo::start();
    echo.goes_on();
    let mut visits = Machine::boot_movable("visits", second, true);
    let out = begins.migrate_to(&mut visits);
    echo.goes_on();
    drop(begins);
    let mut returns = Machine::boot_movable("returns", first, true);
    let back = visits.migrate_to(&mut returns);
    let bytes = echo.goes_on();
    echo.stop.store(true, Relaxed);
    echo.thread.join().unwrap();
    println!(
        "measured: downtime {out} ms out and {back} ms back, {bytes} bytes of one connection as they were sent"
    );
}
