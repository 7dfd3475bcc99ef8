//! Port ACLs: rules are added and removed live, counted, and named where they drop.

use crate::guards::Capture;
use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::switch::complaint;
use crate::topology::{Family, Topology};
use crate::transfer::transfer_while;
use std::net::{IpAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];

/// Repeats a datagram from one host to a port of another, which may have no reader.
struct Talk {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: (IpAddr, u16),
}

impl Talk {
    fn new(from: Host, to: Host, address: IpAddr, port: u16) -> Talk {
        let any = "[::]:0".parse::<std::net::SocketAddr>().unwrap();
        let sender = from.within(|| UdpSocket::bind(any)).unwrap();
        let receiver = to.within(|| UdpSocket::bind((address, port))).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Talk { sender, receiver, to: (address, port) }
    }

    fn send(&self) {
        let _ = self.sender.send_to(b"word", self.to);
    }

    fn heard(&self) -> bool {
        self.receiver.recv(&mut [0; 16]).is_ok()
    }

    fn must_be_heard(&self) {
        until("the datagram arrives", || {
            self.send();
            self.heard().then_some(())
        });
    }

    /// Sends a datagram that must not arrive, and a later one on another way that must.
    fn must_not_be_heard_before(&self, other: &Talk) {
        while self.heard() {}
        self.send();
        other.must_be_heard();
        assert!(!self.heard());
    }
}

fn hits(topology: &Topology) -> Vec<u64> {
    let shown = topology.switch.ask("acl show guest");
    let rules = shown["rules"].as_array().unwrap();
    rules.iter().map(|rule| rule["hits"].as_u64().unwrap()).collect()
}

#[test]
fn acl_rules_deny_count_and_go_live() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let (switch, far) = (&topology.switch, Family::V6.far());
        let denied = Talk::new(topology.guest, topology.far, far, 5001);
        let allowed = Talk::new(topology.guest, topology.far, far, 5002);
        denied.must_be_heard();
        switch.tell("acl add guest deny in udp to fd09::/64 port 5001");
        denied.must_not_be_heard_before(&allowed);
        assert!(hits(&topology)[0] >= 1);
        // The first matching rule decides.
        switch.tell("acl add guest allow in udp from fd09::2 to port 5000-5001 --number 1");
        denied.must_be_heard();
        assert!(hits(&topology)[0] >= 1);
        switch.tell("acl remove guest 1");
        Capture::start("acl").names("acl_denied", || denied.send());
        assert!(switch.counter("guest", "/drops/acl_denied") > 0);
        denied.must_not_be_heard_before(&allowed);
        switch.tell("acl remove guest 1");
        denied.must_be_heard();
    });
}

#[test]
fn acl_rules_toward_a_port_leave_others_alone() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let (switch, guest) = (&topology.switch, Family::V4.guest());
        let denied = Talk::new(topology.far, topology.guest, guest, 5001);
        let allowed = Talk::new(topology.far, topology.guest, guest, 5002);
        denied.must_be_heard();
        let mut number = 0;
        // Rules come and go while bulk traffic passes that none of them matches.
        transfer_while((topology.guest, topology.far, Family::V4.far()), 64 << 20, || {
            switch.tell(&format!(
                "acl add guest deny out udp to 10.9.0.2 port {}",
                5001 + number % 2 * 1000
            ));
            number += 1;
            if number % 2 == 0 {
                switch.tell("acl remove guest 1");
                switch.tell("acl remove guest 1");
            }
        });
        let left = hits(&topology).len();
        (0..left).for_each(|_| switch.tell("acl remove guest 1"));
        switch.tell("acl add guest deny out udp to 10.9.0.2 port 5001");
        denied.must_not_be_heard_before(&allowed);
        assert!(switch.counter("guest", "/drops/acl_denied") > 0);
        Capture::start("acl").names("acl_denied", || denied.send());
    });
}

/// Prints the type of service of the first datagram to port 5001.
const TYPE_OF_SERVICE: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
s.bind(('10.9.0.1', 5001))
print(s.recvmsg(16, 64)[1][0][2][0])
";

#[test]
fn acl_rules_mark_what_a_guest_sends() {
    let [tap, ethtool] = NEEDS;
    story(&[tap, ethtool, Need::Program("python3")], || {
        let topology = Topology::new("");
        topology.switch.tell("acl add guest mark dscp 46 pcp 5 in udp to port 5001");
        let mut command = topology.far.command("python3");
        command.args(["-c", TYPE_OF_SERVICE]).stdout(Stdio::piped());
        let mut reader = command.spawn().unwrap();
        let sender = topology.guest.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        until("the datagram arrives", || {
            let _ = sender.send_to(b"word", "10.9.0.1:5001");
            reader.try_wait().unwrap()
        });
        let read = reader.heard();
        // DSCP 46, and no congestion mark.
        assert_eq!(String::from_utf8(read.stdout).unwrap().trim(), (46 << 2).to_string());
        assert!(hits(&topology)[0] >= 1);
    });
}

#[test]
fn acl_mistakes_name_the_word_and_the_remedy() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let (code, told) = complaint("acl add guest drop in tcp");
        assert!(code == 2 && told.contains("drop") && told.contains("allow or deny"), "{told}");
        topology.switch.tell("acl add guest deny in arp");
        let (code, told) = complaint("acl add guest deny in arp");
        assert!(code == 1 && told.contains("a rule is repeated"), "{told}");
        let (code, told) = complaint("acl remove guest 1 deny in udp");
        assert!(code == 1 && told.contains("deny in arp") && told.contains("acl show"), "{told}");
        assert_eq!(hits(&topology).len(), 1);
        let (code, told) = complaint("acl remove guest 2");
        assert!(code == 1 && told.contains("acl show guest"), "{told}");
        let (code, told) = complaint("acl show gust");
        assert!(code == 1 && told.contains("guest"), "{told}");
        let (code, told) = complaint("port set guest ip-guard=10.9.0.2/8");
        assert!(code == 1 && told.contains("10.9.0.2/8"), "{told}");
    });
}
