//! A team of two members behind a bridge, which acts as a switch outside and knows nothing of the
//! team. Members are pulled and returned while a transfer runs, and a capture shows which member
//! each frame leaves by.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, cli, complaint};
use crate::topology::Family;
use crate::transfer::{transfer, transfer_while};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use waiting::until;

const NEEDS: [Need; 3] = [Need::Tap, Need::Program("ethtool"), Need::Program("tcpdump")];
const MAC: &str = "52:54:00:00:00:02";

/// far [10.9.0.1] ─ bridge ═ p1, p2 ═ eth1, eth2 ─ millrace ─ tap0 [10.9.0.2] guest
struct Network {
    switch: Switch,
    net: Host,
    far: Host,
    guest: Host,
}

impl Network {
    fn new(keys: &str, more: &str) -> Network {
        let (net, far, guest) = (Host::new("net"), Host::new("far"), Host::new("guest"));
        net.run("ip link add br0 type bridge");
        net.run("ip link set br0 up");
        for member in 1..=3 {
            run(&format!("ip link add eth{member} type veth peer name p{member} netns net"));
            run(&format!("ip link set eth{member} up"));
            net.run(&format!("ip link set p{member} master br0 up"));
        }
        far.run("ip link add veth type veth peer name far netns net");
        net.run("ip link set far master br0 up");
        far.assign_addresses("veth", 1);
        far.run("ethtool -K veth tso off gso off");
        let switch = Switch::start(&format!(
            "[[port]]\nname = 'team'\nteam = ['eth1', 'eth2']\n{keys}\
             [[port]]\nname = 'guest'\ntap = 'tap0'\nnetns = 'guest'\nmac = '{MAC}'\n{more}"
        ));
        guest.run(&format!("ip link set tap0 address {MAC}"));
        guest.assign_addresses("tap0", 2);
        switch.wait_for("team", "up");
        switch.wait_for("guest", "up");
        Network { switch, net, far, guest }
    }

    fn team(&self) -> Value {
        self.switch.ask("team show team")[0].clone()
    }

    /// Returns whether a member carries frames.
    fn is_active(&self, name: &str) -> bool {
        member(&self.team(), name)["active"].as_bool().unwrap()
    }

    /// Returns the member that carries the guest's frames.
    fn current(&self) -> String {
        let team = self.team();
        let mappings = team["mappings"].as_array().unwrap();
        let guest = mappings.iter().find(|mapping| mapping["mac"] == MAC).unwrap();
        guest["current"].as_str().unwrap().to_owned()
    }

    fn pull(&self, name: &str) {
        self.net.run(&format!("ip link set {} down", port(name)));
    }

    fn plug(&self, name: &str) {
        self.net.run(&format!("ip link set {} up", port(name)));
    }
}

/// Returns the bridge's side of a member.
fn port(member: &str) -> String {
    member.replace("eth", "p")
}

fn member(team: &Value, name: &str) -> Value {
    let members = team["members"].as_array().unwrap();
    members.iter().find(|member| member["name"] == name).unwrap().clone()
}

fn count(team: &Value, name: &str, counter: &str) -> u64 {
    member(team, name)["counters"][counter].as_u64().unwrap()
}

/// Pulls the members in turn, ten times each for each family and direction, while a transfer is
/// checked.
fn survives(algorithm: &str) {
    let network =
        Network::new(&format!("team-algorithm = '{algorithm}'\nteam-fail-back = 0\n"), "");
    for family in [Family::V4, Family::V6] {
        for (from, to, address) in [
            (network.far, network.guest, family.guest()),
            (network.guest, network.far, family.far()),
        ] {
            let mut pulled = 0;
            // On a fast machine the transfer ends before that.
            while pulled < 20 {
                transfer_while((from, to, address), 96 << 20, || {
                    if pulled < 20 {
                        let name = ["eth1", "eth2"][pulled % 2];
                        network.pull(name);
                        until("the member is down", || (!network.is_active(name)).then_some(()));
                        network.plug(name);
                        until("the member is back", || network.is_active(name).then_some(()));
                        pulled += 1;
                    }
                });
            }
        }
    }
    let team = network.team();
    let announced = count(&team, "eth1", "announcements") + count(&team, "eth2", "announcements");
    assert!(announced > 0);
    println!("measured: {algorithm}: {announced} announcements in 80 pulls");
}

#[test]
fn a_transfer_survives_twenty_pulls_by_hyper_v_port() {
    story(&NEEDS, || survives("hyper-v-port"));
}

#[test]
fn a_transfer_survives_twenty_pulls_by_dynamic() {
    story(&NEEDS, || survives("dynamic"));
}

/// A capture at a device of the bridge.
struct Tap {
    process: Child,
    file: String,
}

impl Tap {
    fn start(host: Host, device: &str) -> Tap {
        let file = format!("/run/{device}.pcap");
        let mut command = host.command("tcpdump");
        command
            .args(["-U", "--immediate-mode", "-Z", "root", "-i", device, "-w", &file])
            .stderr(Stdio::null());
        let process = command.spawn().unwrap();
        until("tcpdump writes", || std::fs::metadata(&file).is_ok().then_some(()));
        Tap { process, file }
    }

    /// Ends the capture. Returns the frames with their Ethernet headers, a line each.
    fn end(mut self) -> Vec<String> {
        let process = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(process, Signal::INT).unwrap();
        self.process.wait().unwrap();
        let text = run(&format!("tcpdump -Z root -e -n -r {}", self.file));
        text.lines().map(str::to_owned).collect()
    }
}

fn has(lines: &[String], words: &[&str]) -> bool {
    lines.iter().any(|line| words.iter().all(|word| line.contains(word)))
}

/// The home member, the source address on the other member, and announcements, as the bridge sees
/// them.
#[test]
fn what_leaves_by_which_member_is_seen_outside() {
    // tcpdump becomes another user, which a user namespace lacks.
    let [tap, ethtool, tcpdump] = NEEDS;
    story(&[tap, ethtool, tcpdump, Need::Root], || {
        let network = Network::new("team-algorithm = 'dynamic'\n", "");
        network.guest.run("ping -c 1 -W 5 10.9.0.1");
        network.guest.run("ping -c 1 -W 5 fd09::1");
        let home = network.current();
        let other = if home == "eth1" { "eth2" } else { "eth1" };
        let taps = [Tap::start(network.net, &port(&home)), Tap::start(network.net, &port(other))];
        // Flows of several ports: by hash some of them leave by either member.
        for _ in 0..24 {
            transfer((network.guest, network.far, Family::V4.far()), 64 << 10);
        }
        network.guest.run("ip neigh flush all");
        network.guest.run("ping -c 1 -W 5 10.9.0.1");
        network.pull(&home);
        until("the guest has moved", || (network.current() == other).then_some(()));
        network.guest.run("ping -c 1 -W 5 10.9.0.1");
        let [at_home, at_other] = taps.map(Tap::end);
        let team = network.team();
        let own = member(&team, other)["mac"].as_str().unwrap().to_owned();
        println!("measured: home {home}; {own} is the address of {other}");
        // Before the home member was pulled, ARP left by it alone, with the guest's own address.
        assert!(
            has(&at_home, &[&format!("{MAC} >"), "who-has 10.9.0.1 tell 10.9.0.2"]),
            "{at_home:#?}"
        );
        assert!(count(&team, other, "replaced_sources") > 0);
        assert!(has(&at_other, &[&format!("{own} >"), "10.9.0.2", "10.9.0.1"]));
        assert!(!has(&at_home, &[&own, "10.9.0.2"]));
        let announced = |words: &[&str]| {
            let frames: Vec<&String> =
                at_other.iter().filter(|line| line.contains(&format!("{MAC} >"))).collect();
            frames.iter().any(|line| words.iter().all(|word| line.contains(word)))
        };
        // Versions of tcpdump name it differently.
        let arp = ["Announcement 10.9.0.2", "who-has 10.9.0.2"];
        assert!(arp.iter().any(|words| announced(&["ARP", words])), "{at_other:#?}");
        assert!(announced(&["ICMP6, neighbor advertisement", "fd09::2"]), "{at_other:#?}");
    });
}

/// Measures how long nothing comes from the guest when its member loses its carrier. The figure is
/// printed, not judged: it depends on the machine.
#[test]
fn the_outage_of_a_failover_is_measured() {
    story(&NEEDS, || {
        let network = Network::new("team-fail-back = 0\n", "");
        transfer((network.guest, network.far, Family::V4.far()), 64 << 10);
        let mut outages = Vec::new();
        for _ in 0..10 {
            let home = network.current();
            outages.push(outage(&network, &home));
            network.plug(&home);
            until("the member is back", || network.is_active(&home).then_some(()));
        }
        outages.sort();
        println!(
            "measured: outage of {} failovers: median {:?}, longest {:?}",
            outages.len(),
            outages[5],
            outages[9]
        );
        transfer((network.guest, network.far, Family::V4.far()), 64 << 10);
    });
}

/// Pulls a member while the guest sends. Returns the longest time without a datagram, until half a
/// second after the pull or until datagrams come again, whichever is later. Fails if none come
/// again.
fn outage(network: &Network, home: &str) -> Duration {
    let socket = network.far.within(|| UdpSocket::bind("10.9.0.1:7000")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sender = network.guest.within(|| UdpSocket::bind("10.9.0.2:0")).unwrap();
    let (start, done) = (Instant::now(), AtomicBool::new(false));
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap();
    thread::scope(|scope| {
        let (tell, hear) = mpsc::channel();
        // Receives while the member is pulled, too: the socket has room for a tenth of a second.
        let ears = scope.spawn(move || {
            let mut sent = [0; 8];
            while socket.recv(&mut sent).is_ok() && tell.send(u64::from_ne_bytes(sent)).is_ok() {}
        });
        // Each datagram says when it was sent.
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let _ = sender.send_to(&now().to_ne_bytes(), "10.9.0.1:7000");
                thread::sleep(Duration::from_micros(250));
            }
        });
        let (mut last, mut longest, mut pulled, mut is_over) = (0, 0, None, false);
        for sent in &hear {
            match pulled {
                // One that waited for the answer to the guest's ARP request begins no pull.
                None if sent > 100_000_000 && now() < sent + 50_000_000 => {
                    pulled = Some(now());
                    network.pull(home);
                }
                None => {}
                Some(pulled) => {
                    longest = longest.max(sent.saturating_sub(last));
                    is_over = sent > pulled + 500_000_000;
                }
            }
            // One that others have overtaken ends no silence.
            last = last.max(sent);
            if is_over {
                break;
            }
        }
        drop(hear);
        // The next datagram ends it.
        ears.join().unwrap();
        done.store(true, Relaxed);
        assert!(is_over, "nothing is heard of the guest any more");
        Duration::from_nanos(longest)
    })
}

/// Members come and go, vNICs are pinned, and the switch outside sends no frame twice.
#[test]
fn members_change_and_vnics_are_pinned_while_the_port_stays() {
    story(&NEEDS, || {
        let network = Network::new("team-fail-back = 0\n", "");
        let route = (network.far, network.guest, Family::V4.guest());
        transfer(route, 1 << 20);
        let id = network.switch.counter("team", "/ingress_frames");
        network.switch.tell("team add team eth3");
        assert_eq!(network.team()["members"].as_array().unwrap().len(), 3);
        network.switch.tell("team map team guest eth3");
        assert_eq!(network.current(), "eth3");
        transfer(route, 1 << 20);
        let (code, told) = complaint("team remove team eth3");
        assert_eq!(code, 1, "{told}");
        assert!(told.contains("team-member"), "{told}");
        network.pull("eth3");
        until("the path is down", || (!network.is_active("eth3")).then_some(()));
        let _ = network.guest.command("ping").args(["-c", "1", "-W", "1", "10.9.0.1"]).output();
        assert!(network.switch.counter("team", "/drops/path_down") > 0);
        let health = String::from_utf8(cli("check").stdout).unwrap();
        assert!(health.contains("eth3") && health.contains("guest"), "{health}");
        network.switch.tell("team map team guest --any");
        network.guest.run("ping -c 1 -W 5 10.9.0.1");
        network.switch.tell("team remove team eth3");
        transfer(route, 1 << 20);
        assert!(network.switch.counter("team", "/ingress_frames") > id, "the port stayed");
        let (code, told) = complaint("team add team nothing0");
        assert!(code == 1 && told.contains("nothing0"), "{told}");
        assert_eq!(network.team()["members"].as_array().unwrap().len(), 2);
        let team = network.team();
        let copies = count(&team, "eth1", "copies") + count(&team, "eth2", "copies");
        let reflected = count(&team, "eth1", "reflected") + count(&team, "eth2", "reflected");
        println!("measured: {copies} copies and {reflected} reflected frames were not taken");
        assert!(
            reflected > 0,
            "the bridge floods what the guest sends to all into the other member"
        );
        // Each request is answered once.
        let text = network.far.run("ping -c 5 -i 0.2 -W 5 10.9.0.2");
        assert!(text.contains("5 received") && !text.contains("duplicates"), "{text}");
    });
}

/// A member in another access VLAN, on another bridge, was never found: each heard broadcasts of
/// its own VLAN without a tag, or nothing. The bridges are then connected, first by a link of a
/// smaller MTU.
#[test]
fn members_in_two_networks_are_found_until_they_are_in_one() {
    story(&NEEDS, || {
        let network = Network::new("", "");
        network.net.run("ip link add br1 type bridge");
        network.net.run("ip link set br1 up");
        network.net.run("ip link set p2 master br1");
        network.net.run("ip link add x0 mtu 1400 type veth peer name x1 mtu 1400");
        // The guest sends, so the team has a VLAN to probe; where its home is does not matter.
        let _ = network.guest.command("ping").args(["-c", "1", "-W", "1", "10.9.0.1"]).output();
        let finds = |words: &[&str]| {
            let found = String::from_utf8(cli("check").stdout).unwrap();
            if words.iter().all(|word| found.contains(word)) { Ok(()) } else { Err(found) }
        };
        until("the members are found apart", || {
            finds(&["do not hear each other", "between eth2 and eth1 (untagged frames)"])
        });
        let connect = "ip link set x0 master br0 up; ip link set x1 master br1 up";
        connect.split("; ").for_each(|line| drop(network.net.run(line)));
        until("the small MTU between them is found", || {
            finds(&["frames of its MTU", "of 1500 bytes between eth2 and eth1 (untagged frames)"])
        });
        for end in ["x0", "x1"] {
            network.net.run(&format!("ip link set {end} mtu 1500"));
        }
        until("nothing is found", || finds(&["nothing found"]));
        let team = network.team();
        assert!(["eth1", "eth2"].iter().all(|name| count(&team, name, "probes") > 0), "{team}");
        let text = network.far.run("ping -c 5 -i 0.2 -W 5 10.9.0.2");
        assert!(text.contains("5 received") && !text.contains("duplicates"), "{text}");
    });
}
