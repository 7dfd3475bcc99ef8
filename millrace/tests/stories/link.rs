//! A virtual machine with two paths, each pinned to a member of a team. Its guest sees the link of
//! a lost path go down.

use crate::host::Host;
use crate::qemu::Machine;
use crate::sandbox::{Need, run, story};
use crate::shell::Shell;
use crate::switch::{Switch, cli};
use crate::uml;
use std::time::Instant;
use waiting::until;

/// far [10.9.1.1, 10.9.2.1] ─ p1, p2 ═ eth1, eth2 ─ millrace ─ vm1, vm2 ─ guest's eth0 [10.9.1.2],
/// eth1 [10.9.2.2]
#[test]
fn a_guest_sees_the_link_of_its_lost_path_down() {
    story(&[Need::Guest("qemu"), Need::Guest("uml")], || {
        let far = Host::new("far");
        let mut file =
            "[[port]]\nname = 'team'\nteam = ['eth1', 'eth2']\nteam-fail-back = 0\n".to_owned();
        for path in 1..=2 {
            run(&format!("ip link add eth{path} type veth peer name p{path} netns far"));
            run(&format!("ip link set eth{path} up"));
            far.run(&format!("ip address add 10.9.{path}.1/24 dev p{path}"));
            far.run(&format!("ip link set p{path} up"));
            file += &format!(
                "[[port]]\nname = 'vm{path}'\nvhost-user = '/run/vm{path}'\nmac = '52:54:00:00:00:0{path}'\n\
                 team-member = 'eth{path}'\nfollow-uplink = true\n"
            );
        }
        let switch = Switch::start(&file);
        let mut machine = Machine::boot("guest", &["vm1", "vm2"]);
        let guest = &mut machine.guest;
        for (device, path) in [("eth0", 1), ("eth1", 2)] {
            guest.run(&format!(
                "ip address add 10.9.{path}.2/24 dev {device}; ip link set {device} up"
            ));
            guest.run(&format!("ping -c 1 -W 5 10.9.{path}.1"));
        }
        let text = String::from_utf8(cli("check").stdout).unwrap();
        assert!(!text.contains("one guest"), "{text}");
        let (begin, carrier) = (Instant::now(), "cat /sys/class/net/eth0/carrier");
        far.run("ip link set p1 down");
        until("its link is down", || guest.run(carrier).contains('0').then_some(()));
        println!("measured: its guest's link is down {:?} after the pull", begin.elapsed());
        assert!(guest.run("cat /sys/class/net/eth1/carrier").contains('1'));
        guest.run("ping -c 1 -W 5 10.9.2.1");
        // QEMU tries to connect each second, and is not served.
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert!(guest.run(carrier).contains('0'));
        let shown = String::from_utf8(cli("port show vm1").stdout).unwrap();
        assert!(shown.contains("follow-uplink"), "{shown}");
        far.run("ip link set p1 up");
        until("its link is up", || guest.run(carrier).contains('1').then_some(()));
        guest.run("ping -c 1 -W 5 10.9.1.1");
        // Both paths at one member are a finding.
        switch.tell("team map team vm1 eth2");
        let text = String::from_utf8(cli("check").stdout).unwrap();
        assert!(
            text.contains("ports vm1 and vm2 of one guest are pinned to the same member"),
            "{text}"
        );
    });
}

/// far [10.9.1.1] ─ p1 ═ eth1 ─ millrace ─ vm ─ guest's eth0 [10.9.1.2]
///
/// User-mode Linux does not connect again, so its guest lost its network with the link.
#[test]
fn a_user_mode_linux_hears_of_its_link_and_keeps_its_network() {
    story(&[Need::Guest("uml")], || {
        let far = Host::new("far");
        run("ip link add eth1 type veth peer name p1 netns far");
        run("ip link set eth1 up");
        far.run("ip address add 10.9.1.1/24 dev p1");
        far.run("ip link set p1 up");
        let switch = Switch::start(
            "[[port]]\nname = 'out'\npacket = 'eth1'\n\
             [[port]]\nname = 'vm'\nvhost-user = '/run/vm.sock'\nfollow-uplink = true\nrate = '2Gbit'\n",
        );
        let mut guest = uml::boot("vm", &["/run/vm.sock"]);
        guest.run("ip address add 10.9.1.2/24 dev eth0; ip link set eth0 up");
        guest.run("ping -c 1 -W 5 10.9.1.1");
        let (speed, duplex) = ("cat /sys/class/net/eth0/speed", "cat /sys/class/net/eth0/duplex");
        assert!(guest.run(speed).contains("2000") && guest.run(duplex).contains("full"));
        switch.tell("port set vm rate=3Gbit");
        let carrier = "cat /sys/class/net/eth0/carrier";
        for _ in 0..3 {
            let begin = Instant::now();
            far.run("ip link set p1 down");
            until("its link is down", || guest.run(carrier).contains('0').then_some(()));
            println!("measured: its guest's link is down {:?} after the pull", begin.elapsed());
            let shown = String::from_utf8(cli("port show vm").stdout).unwrap();
            assert!(shown.contains("follow-uplink"), "{shown}");
            far.run("ip link set p1 up");
            until("its link is up", || guest.run(carrier).contains('1').then_some(()));
            guest.run("ping -c 1 -W 5 10.9.1.1");
            // Linux reads it again when its link comes up.
            assert!(guest.run(speed).contains("3000"));
        }
    });
}
