//! Restarts while traffic flows: by hand-over to a successor, and by a service manager that keeps
//! the descriptors.

use crate::host::Host;
use crate::outage::{Pinged, Probe, is_long, restarts, told};
use crate::qemu::Machine;
use crate::sandbox::{Need, run, story};
use crate::shell::{Transfer, addresses};
use crate::switch::{FILE, Switch, cli, millrace, write};
use crate::systemd::Systemd;
use crate::transfer::transfer_during;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::Signal;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use waiting::until;

/// The file with the host's machine-id.
const ID: &str = "/etc/machine-id";

const PORTS: &str = "[[port]]\nname = 'a'\ntap = 'tap0'\nnetns = 'a'\n\
    [[port]]\nname = 'b'\ntap = 'tap0'\nnetns = 'b'\nqueues = 2\n";

/// Restarts a switch repeatedly while a connection carries bytes that are checked, and prints the
/// outages.
fn restart_all(
    how: &str,
    route: (Host, Host, IpAddr),
    switch: Switch,
    mut restart: impl FnMut(Switch) -> Switch,
) -> Switch {
    let probe = Probe::start(route);
    let (mut outages, mut running) = (Vec::new(), Some(switch));
    let bytes = transfer_during(route, |checked| {
        for _ in 0..restarts() {
            // The connection must be in the middle of its bytes at each restart.
            let before = checked();
            until("bytes come", || (checked() > before + (1 << 20)).then_some(()));
            let arrivals = &probe.arrivals;
            outages.push(arrivals.outage_ms(|| running = running.take().map(&mut restart)));
        }
    });
    let (sent, came) = probe.end();
    let came = came.len();
    println!(
        "measured: restarts by {how}: {}; {} MiB over one connection, all as sent; {came} of {sent} datagrams came",
        told(outages),
        bytes >> 20,
    );
    running.unwrap()
}

/// Starts two hosts with TAP devices. Returns also the route between them.
fn two_taps(start: impl FnOnce() -> Switch) -> (Switch, (Host, Host, IpAddr)) {
    let (a, b) = (Host::new("a"), Host::new("b"));
    write(PORTS);
    let switch = start();
    a.assign_addresses("tap0", 1);
    b.assign_addresses("tap0", 2);
    switch.wait_for("a", "up");
    switch.wait_for("b", "up");
    (switch, (a, b, IpAddr::from([10, 9, 0, 2])))
}

/// Returns the index of a device: another device of the same name has another index.
fn index(host: Host) -> String {
    let shown = host.run("ip -oneline link show tap0");
    shown.split(':').next().unwrap().to_owned()
}

/// Returns the MAC address of a device.
fn mac(host: Host) -> String {
    let shown = host.run("ip -oneline link show tap0");
    shown.split("link/ether ").nth(1).unwrap()[..17].to_owned()
}

#[test]
fn a_successor_takes_over_and_no_connection_is_closed() {
    story(&[Need::Tap], || {
        let (switch, route) = two_taps(|| Switch::start(PORTS));
        let before = [index(route.0), index(route.1)];
        let switch = restart_all("hand-over", route, switch, Switch::take_over);
        assert_eq!([index(route.0), index(route.1)], before, "the devices are the same");
        // A successor's ports close like those of any daemon.
        switch.tell("port remove a");
        assert!(!route.0.run("ip -brief link show").contains("tap0"), "the device stays");
    });
}

#[test]
fn a_service_manager_keeps_the_devices_over_restarts_and_crashes() {
    story(&[Need::Tap, Need::Program("bash")], || {
        let systemd = Systemd::new();
        let (switch, route) = two_taps(|| systemd.start());
        let all = ["a.0", "b.0", "b.1", "manifest"];
        systemd.wait_for(&all);
        let before = [index(route.0), index(route.1)];
        let signals = [Signal::TERM, Signal::KILL, Signal::ABORT];
        let mut signals = signals.iter().cycle();
        let switch = restart_all("a service manager", route, switch, |switch| {
            systemd.restart(switch, *signals.next().unwrap())
        });
        assert_eq!([index(route.0), index(route.1)], before, "the devices are the same");
        systemd.wait_for(&all);
        switch.tell("port remove b");
        systemd.wait_for(&["a.0", "manifest"]);
        assert!(!route.1.run("ip -brief link show").contains("tap0"), "the device stays");
    });
}

/// Each device that the daemon made had a random address, and neighbours that remembered the last
/// one got no answer for up to a minute.
#[test]
fn a_device_that_is_made_anew_has_its_address_again() {
    story(&[Need::Tap], || {
        if !Path::new(ID).is_file() {
            return println!("skipped: needs a file {ID}");
        }
        let is_host = |id: &str| {
            std::fs::write("/run/machine-id", format!("{id}\n")).unwrap();
            run(&format!("mount --bind /run/machine-id {ID}"));
        };
        is_host("0123456789abcdef0123456789abcdef");
        let (switch, (a, b, _)) = two_taps(|| Switch::start(PORTS));
        let (before, device) = ([mac(a), mac(b)], index(b));
        assert_ne!(before[0], before[1]);
        let lost = cli("port set b queues=3");
        let lost = String::from_utf8(lost.stderr).unwrap();
        assert!(lost.contains("10.9.0.2/24") && !lost.contains("MAC address is new"), "{lost}");
        assert_eq!([mac(a), mac(b)], before);
        switch.end(Signal::KILL);
        a.run("ip tuntap add tap0 mode tap");
        let made = mac(a);
        let switch = Switch::start(PORTS);
        switch.wait_for("b", "up");
        assert_ne!(index(b), device, "made anew");
        assert_eq!(mac(b), before[1]);
        assert_eq!(mac(a), made, "a device that is there keeps its own");
        switch.end(Signal::TERM);
        is_host("123456789abcdef0123456789abcdef0");
        let _switch = Switch::start(PORTS);
        assert_ne!(mac(b), before[1], "another host");
    });
}

/// The port has another number of queues. With the old descriptors open the device would be busy.
#[test]
fn a_port_that_is_configured_anew_meanwhile_is_opened_anew() {
    story(&[Need::Tap, Need::Program("bash")], || {
        let systemd = Systemd::new();
        let (switch, (a, b, _)) = two_taps(|| systemd.start());
        systemd.wait_for(&["a.0", "b.0", "b.1", "manifest"]);
        let before = index(a);
        write(&PORTS.replace("queues = 2", "queues = 3"));
        let switch = systemd.restart(switch, Signal::KILL);
        assert_eq!(switch.state("b").0, "up", "at once");
        assert_eq!(index(a), before);
        assert!(!b.run("ip -brief address show dev tap0").contains("10.9.0.2"), "a new device");
        systemd.wait_for(&["a.0", "b.0", "b.1", "b.2", "manifest"]);
    });
}

/// A daemon of the other version, newer or older, would misinterpret the descriptors.
#[test]
fn a_list_of_another_version_is_refused_and_all_is_opened_anew() {
    story(&[Need::Tap, Need::Program("bash")], || {
        let systemd = Systemd::new();
        let (mut switch, (a, ..)) = two_taps(|| systemd.start());
        let all = ["a.0", "b.0", "b.1", "manifest"];
        for list in [r#"{"version":2}"#, r#"{"version":5,"ports":{}}"#, "", "{"] {
            systemd.wait_for(&all);
            a.assign_addresses("tap0", 3);
            systemd.rewrite("manifest", list);
            // A daemon that ends normally would write its list once more.
            switch = systemd.restart(switch, Signal::KILL);
            assert_eq!([switch.state("a").0, switch.state("b").0], ["up", "up"], "at once: {list}");
            assert!(!a.run("ip -brief address show dev tap0").contains("10.9.0.3"), "a new device");
        }
        systemd.wait_for(&all);
    });
}

/// A successor of another version would misinterpret the descriptors.
#[test]
fn one_that_speaks_another_version_is_refused_and_the_daemon_goes_on() {
    story(&[Need::Tap], || {
        let (switch, (a, ..)) = two_taps(|| Switch::start(PORTS));
        let before = index(a);
        for said in ["millrace hand-over 3", "millrace hand-over 5", ""] {
            let answer = ask(said);
            assert!(answer.starts_with("refused: "), "{said}: {answer}");
        }
        assert_eq!((switch.state("a").0, index(a)), ("up".into(), before));
        switch.take_over().end(Signal::TERM);
    });
}

/// The daemon that ran was ended first, so afterwards there was no switch.
#[test]
fn a_successor_that_cannot_start_leaves_the_daemon_running() {
    story(&[Need::Tap], || {
        let (switch, (a, ..)) = two_taps(|| Switch::start(PORTS));
        let before = index(a);
        std::fs::create_dir("/run/open").unwrap();
        std::fs::set_permissions("/run/open", PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::create_dir("/run/locked").unwrap();
        let locked = std::fs::File::open("/run/locked").unwrap();
        locked.lock().unwrap();
        for (key, reason) in [
            ("admin-group = 'no-such-group'", "no-such-group"),
            ("workers = [4095]", "4095"),
            ("# With --state-dir /run/open", "mode 0777"),
            ("# With --state-dir /run/locked", "another process keeps its state"),
        ] {
            std::fs::write("/run/other.toml", format!("[switch]\n{key}\n{PORTS}")).unwrap();
            let mut command = millrace();
            command.args(["run", "-c", "/run/other.toml", "--take-over"]);
            command.args(key.strip_prefix("# With ").iter().flat_map(|more| more.split(' ')));
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && told.contains(reason), "{key}: {told}");
            assert_eq!((switch.state("a").0, index(a)), ("up".into(), before.clone()), "{key}");
        }
        run("mount --bind /run/millrace /run/millrace");
        run("mount -o remount,bind,ro /run/millrace");
        let output = millrace().args(["run", "-c", FILE, "--take-over"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("cannot be created"), "{told}");
        assert_eq!((switch.state("a").0, index(a)), ("up".into(), before));
        run("umount /run/millrace");
        switch.take_over().end(Signal::TERM);
    });
}

/// QEMU's sessions go on, whether it connects or listens, and a connection between two guests is
/// not closed.
#[test]
fn machines_stay_connected_to_a_successor() {
    story(&[Need::Tap, Need::Guest("qemu"), Need::Guest("uml"), Need::Program("bash")], || {
        let a = Host::new("a");
        let mut switch = Switch::start(
            "[[port]]\nname = 'a'\ntap = 'tap0'\nnetns = 'a'\n\
             [[port]]\nname = 'connects'\nvhost-user = '/run/connects.sock'\nmac = '52:54:00:00:00:02'\n\
             [[port]]\nname = 'listens'\nvhost-user = '/run/listens.sock'\nvhost-client = true\n\
             mac = '52:54:00:00:00:03'\n",
        );
        let [mut connects, mut listens] =
            [("connects", 2), ("listens", 3)].map(|(name, number)| {
                let mut machine = Machine::boot(name, &[name]);
                machine.guest.assign_addresses("eth0", number);
                machine
            });
        switch.wait_for("a", "up");
        a.assign_addresses("tap0", 1);
        let pinged = [2, 3].map(|number| Pinged::start(a, IpAddr::from([10, 9, 0, number])));
        for pinged in &pinged {
            until("the guest answers", || (pinged.arrivals.count() > 100).then_some(()));
        }
        let (mib, end) = (if is_long() { 1536 } else { 256 }, (addresses(3)[0], 5001));
        let transfer = Transfer::start(&mut connects.guest, &mut listens.guest, end, mib);
        let before = [connects.guest.sockets(), listens.guest.sockets()];
        let mut outages = [Vec::new(), Vec::new()];
        for restart in 0..restarts() {
            assert!(!transfer.done(&mut listens.guest), "over before restart {restart}");
            let mut old = Some(switch);
            let [one, other] = &pinged;
            let mut times = [0.0; 2];
            times[0] = one.arrivals.outage_ms(|| {
                times[1] = other.arrivals.outage_ms(|| old = old.take().map(Switch::take_over));
            });
            outages.iter_mut().zip(times).for_each(|(outages, time)| outages.push(time));
            switch = old.unwrap();
            for name in ["connects", "listens"] {
                let events = switch.ask("status").to_string();
                assert_eq!(switch.state(name).0, "up", "{events}");
            }
        }
        let after = [connects.guest.sockets(), listens.guest.sockets()];
        assert_eq!(after, before, "no connection is another one");
        transfer.check(&mut connects.guest, &mut listens.guest);
        for (name, outages) in ["connects", "listens"].iter().zip(outages) {
            println!("measured: hand-over, a QEMU that {name}: {}", told(outages));
        }
        println!("measured: {mib} MiB over one connection between the two, all as sent");
    });
}

/// Returns the daemon's answer to a successor that sends this.
fn ask(said: &str) -> String {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    let address = SocketAddrUnix::new("/run/millrace/api.sock.handover").unwrap();
    connect(&socket, &address).unwrap();
    send(&socket, said.as_bytes(), SendFlags::empty()).unwrap();
    let mut answer = [0; 4096];
    let (len, _) = recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    String::from_utf8_lossy(&answer[..len]).into_owned()
}
