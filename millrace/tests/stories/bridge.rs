//! The Linux bridge as an oracle: what the kernel has merged, or not yet segmented, comes through
//! the switch as it comes through a bridge of the same topology with the same offloads.
//!
//! ```text
//! a [va] ── [pa] millrace or a bridge [pb] ── [vb] b
//! ```
//!
//! A side is a veth, or a TAP device of the switch; the bridge always has a veth, since nothing would
//! read its TAP device. Every combination is drawn from its number, so a failure names what to repeat.
//! `MILLRACE_LONG=1` draws a hundred, and prints the table of docs/offloads.md.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::Switch;
use crate::topology::Family;
use crate::transfer::transfer;
use rustix::process::Signal;
use std::net::IpAddr;

/// Segments that may be sent again beyond those through the bridge: a switch is one more queue, and
/// slow start finds its end once.
const MORE: u64 = 20;
/// Bytes of each transfer.
const BYTES: usize = 4 << 20;

/// What is drawn.
#[derive(Debug)]
struct Combination {
    /// Whether each side is a TAP device.
    taps: [bool; 2],
    /// Whether TCP goes through a VXLAN tunnel between the hosts.
    vxlan: bool,
    family: Family,
    mtu: u32,
    /// How the sender hands frames over.
    sender: Sender,
    /// What the switch's device merges.
    merging: Merging,
    /// The sender's largest segment by the receiver's word; 0: by its MTU.
    mss: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sender {
    Segments,
    Trains,
    /// Trains beyond 64 KiB.
    BigTrains,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Merging {
    Nothing,
    Gro,
    /// `rx-gro-list`.
    GroList,
}

impl Combination {
    /// Draws by a number, with Marsaglia's xorshift.
    fn draw(number: u64) -> Combination {
        let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(number + 1);
        let mut choose = |count: u64| -> usize {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from((state >> 33) % count).unwrap()
        };
        let taps = [choose(3) == 0, choose(2) == 0];
        Combination {
            taps,
            vxlan: choose(2) == 0,
            family: if choose(2) == 0 { Family::V4 } else { Family::V6 },
            mtu: [1500, 1500, 1500, 9000, 1280][choose(5)],
            sender: [Sender::Segments, Sender::Trains, Sender::BigTrains][choose(3)],
            merging: [Merging::Nothing, Merging::Gro, Merging::GroList][choose(3)],
            mss: [0, 0, 0, 88, 536][choose(5)],
        }
    }

    /// Transfers between two hosts. Returns the segments that were sent again, and those that came
    /// damaged.
    fn measure(&self, is_bridge: bool) -> [u64; 2] {
        let hosts = [Host::new("a"), Host::new("b")];
        let mut ports = String::new();
        for ((host, name), is_tap) in hosts.iter().zip(["a", "b"]).zip(self.taps) {
            if is_tap && !is_bridge {
                ports += &format!(
                    "[[port]]\nname = '{name}'\ntap = 'v{name}'\nnetns = '{name}'\nmtu = {}\n",
                    self.mtu
                );
                continue;
            }
            run(&format!("ip link add p{name} type veth peer name v{name} netns {name}"));
            run(&format!("ip link set p{name} mtu {} up", self.mtu));
            host.run(&format!("ip link set v{name} mtu {}", self.mtu));
            ports += &format!(
                "[[port]]\nname = '{name}'\npacket = 'p{name}'\nrole = 'vnic'\nmac-spoofing = 'allow'\nmtu = {}\n",
                self.mtu
            );
            if name == "a" {
                self.set_offloads(*host);
            }
        }
        let switch = (!is_bridge).then(|| Switch::start(&ports));
        if is_bridge {
            run("ip link add br0 type bridge");
            run("ip link set br0 mtu 9000 up");
            for port in ["pa", "pb"] {
                run(&format!("ip link set {port} master br0"));
            }
        }
        for (host, number) in hosts.iter().zip([1, 2]) {
            host.assign_addresses(["va", "vb"][number as usize - 1], number);
        }
        if let Some(switch) = &switch {
            for port in ["a", "b"] {
                switch.wait_for(port, "up");
            }
        }
        let address = self.address(hosts);
        transfer((hosts[0], hosts[1], address), BYTES);
        let resent = tcp(hosts[0], "RetransSegs");
        let damaged = tcp(hosts[1], "InCsumErrors");
        if let Some(switch) = switch {
            switch.end(Signal::TERM);
        }
        for host in ["a", "b"] {
            run(&format!("ip netns del {host}"));
        }
        for device in ["pa", "pb", "br0"] {
            // The veths may have gone with their hosts.
            let _ = std::process::Command::new("ip").args(["link", "del", device]).output();
        }
        [resent, damaged]
    }

    fn set_offloads(&self, sender: Host) {
        match self.sender {
            Sender::Segments => drop(sender.run("ethtool -K va tso off gso off")),
            Sender::Trains => {}
            Sender::BigTrains => {
                sender.run("ip link set va gso_max_size 200000");
            }
        }
        let merging = match self.merging {
            Merging::Nothing => return,
            Merging::Gro => "gro on rx-gro-list off",
            Merging::GroList => "gro on rx-gro-list on",
        };
        run(&format!("ethtool -K pa {merging}"));
        // Segments that wait a little are merged even if they come one by one.
        std::fs::write("/sys/class/net/pa/gro_flush_timeout", "200000").ok();
    }

    /// Returns where the second host listens: in the tunnel, if there is one.
    fn address(&self, hosts: [Host; 2]) -> IpAddr {
        let advise = |device: &str, network: &str| {
            if self.mss > 0 {
                let line = format!("ip route replace {network} dev {device} advmss {}", self.mss);
                hosts[1].run(&line);
            }
        };
        if !self.vxlan {
            match self.family {
                Family::V4 => advise("vb", "10.9.0.0/24"),
                Family::V6 => advise("vb", "fd09::/64"),
            }
            return self.family.guest();
        }
        for (host, [own, other, device]) in hosts.iter().zip([["1", "2", "va"], ["2", "1", "vb"]]) {
            let network = match self.family {
                Family::V4 => "10.9.0.",
                Family::V6 => "fd09::",
            };
            host.run(&format!(
                "ip link add tunnel type vxlan id 7 dstport 4789 local {network}{own} remote {network}{other} dev {device}"
            ));
            host.run(&format!("ip address add 10.8.0.{own}/24 dev tunnel"));
            host.run("ip link set tunnel up");
        }
        advise("tunnel", "10.8.0.0/24");
        IpAddr::from([10, 8, 0, 2])
    }
}

/// Returns a counter of a host's TCP.
fn tcp(host: Host, name: &str) -> u64 {
    let text = host.run("cat /proc/net/snmp");
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|it| it == name).unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

#[test]
fn what_the_kernel_has_merged_comes_through_as_through_a_bridge() {
    let needs = [Need::Tap, Need::Root, Need::Program("ethtool")];
    story(&needs, || {
        let count = if std::env::var_os("MILLRACE_LONG").is_some() { 100 } else { 6 };
        let mut wrong = Vec::new();
        for number in 0..count {
            let combination = Combination::draw(number);
            let [bridge, _] = combination.measure(true);
            let [switch, damaged] = combination.measure(false);
            println!("{number} | {combination:?} | {bridge} | {switch}");
            if switch > bridge + MORE || damaged > 0 {
                wrong.push((number, combination, bridge, switch, damaged));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}
