//! Restarts while traffic flows: by hand-over to a successor, and by a service manager that keeps the descriptors.

use crate::host::Host;
use crate::patience::until;
use crate::qemu::Machine;
use crate::sandbox::{Need, story};
use crate::switch::{FILE, Switch};
use crate::systemd::Systemd;
use crate::transfer::transfer_during;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::Signal;
use std::env;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PORTS: &str = "[[port]]\nname = 'a'\ntap = 'tap0'\nnetns = 'a'\n\
    [[port]]\nname = 'b'\ntap = 'tap0'\nnetns = 'b'\nqueues = 2\n";

fn restarts() -> u32 {
    if env::var_os("MILLRACE_LONG").is_some() { 20 } else { 3 }
}

/// What comes, and the longest time in which nothing came.
#[derive(Default)]
struct Arrivals {
    longest_us: AtomicU64,
    count: AtomicU64,
    stop: AtomicBool,
}

impl Arrivals {
    fn note(&self, last: &mut Instant) {
        let gap = u64::try_from(last.elapsed().as_micros()).unwrap();
        *last = Instant::now();
        self.longest_us.fetch_max(gap, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// How long nothing came at most while `work` went on, until more came after it, in milliseconds.
    #[allow(clippy::cast_precision_loss, reason = "microseconds of seconds")]
    fn outage_ms(&self, work: impl FnOnce()) -> f64 {
        self.longest_us.store(0, Ordering::Relaxed);
        work();
        let seen = self.count.load(Ordering::Relaxed);
        until("something comes again", || {
            (self.count.load(Ordering::Relaxed) > seen + 100).then_some(())
        });
        self.longest_us.load(Ordering::Relaxed) as f64 / 1000.0
    }
}

/// Datagrams every millisecond from one host to another.
struct Probe {
    arrivals: Arc<Arrivals>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<()>,
}

impl Probe {
    fn start((from, to, address): (Host, Host, IpAddr)) -> Probe {
        let socket = to.within(|| UdpSocket::bind((address, 0))).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let end = socket.local_addr().unwrap();
        let arrivals = Arc::new(Arrivals::default());
        let seen = arrivals.clone();
        let receiver = thread::spawn(move || {
            let mut last = Instant::now();
            loop {
                match socket.recv(&mut [0; 8]) {
                    Ok(_) => seen.note(&mut last),
                    // None is on its way any more.
                    Err(_) if seen.is_over() => return,
                    Err(_) => {}
                }
            }
        });
        let socket = from.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        let seen = arrivals.clone();
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while !seen.is_over() {
                sent += u64::from(socket.send_to(&[0; 8], end).is_ok());
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        Probe { arrivals, sender, receiver }
    }

    /// Datagrams sent, and those that came.
    fn end(self) -> (u64, u64) {
        self.arrivals.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        self.receiver.join().unwrap();
        (sent, self.arrivals.count.load(Ordering::Relaxed))
    }
}

/// A guest that answers pings, one every 5 ms.
struct Pinged {
    arrivals: Arc<Arrivals>,
    ping: Child,
}

impl Pinged {
    fn start(from: Host, address: IpAddr) -> Pinged {
        let mut command = from.command("ping");
        command.args(["-n", "-i", "0.005", &address.to_string()]).stdout(Stdio::piped());
        let mut ping = command.spawn().unwrap();
        let answers = BufReader::new(ping.stdout.take().unwrap());
        let arrivals = Arc::new(Arrivals::default());
        let seen = arrivals.clone();
        thread::spawn(move || {
            let mut last = Instant::now();
            let is_answer = |line: &String| line.contains("bytes from");
            answers
                .lines()
                .map_while(Result::ok)
                .filter(is_answer)
                .for_each(|_| seen.note(&mut last));
        });
        Pinged { arrivals, ping }
    }
}

impl Drop for Pinged {
    fn drop(&mut self) {
        self.ping.kill().unwrap();
        self.ping.wait().unwrap();
    }
}

/// How many outages there were, and how long.
fn told(mut outages: Vec<f64>) -> String {
    outages.sort_by(f64::total_cmp);
    let (median, most) = (outages[outages.len() / 2], outages.last().unwrap());
    format!("{} outages, {median:.1} ms at the median, {most:.1} ms at most", outages.len())
}

/// Restarts a switch repeatedly while a connection carries bytes that are checked, and tells the outages.
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
            // The connection is in the middle of its bytes at each restart.
            let before = checked();
            until("bytes come", || (checked() > before + (1 << 20)).then_some(()));
            let arrivals = &probe.arrivals;
            outages.push(arrivals.outage_ms(|| running = running.take().map(&mut restart)));
        }
    });
    let (sent, came) = probe.end();
    println!(
        "measured: restarts by {how}: {}; {} MiB over one connection, all as sent; {came} of {sent} datagrams came",
        told(outages),
        bytes >> 20,
    );
    running.unwrap()
}

/// Two hosts with TAP devices, and the route between them.
fn two_taps(start: impl FnOnce() -> Switch) -> (Switch, (Host, Host, IpAddr)) {
    let (a, b) = (Host::new("a"), Host::new("b"));
    std::fs::write(FILE, PORTS).unwrap();
    let switch = start();
    a.address("tap0", 1);
    b.address("tap0", 2);
    switch.wait_for("a", "up");
    switch.wait_for("b", "up");
    (switch, (a, b, IpAddr::from([10, 9, 0, 2])))
}

/// The index of a device, which another one of the same name has not.
fn index(host: Host) -> String {
    let shown = host.run("ip -oneline link show tap0");
    shown.split(':').next().unwrap().to_owned()
}

#[test]
fn a_successor_takes_over_and_no_connection_is_closed() {
    story(&[Need::Tap], || {
        let (switch, route) = two_taps(|| Switch::start(PORTS));
        let before = [index(route.0), index(route.1)];
        let switch = restart_all("hand-over", route, switch, Switch::take_over);
        assert_eq!([index(route.0), index(route.1)], before, "the devices are the same");
        // Ports of a successor close as those of any daemon.
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

/// The port has another number of queues: with the old descriptors open the device would be busy.
#[test]
fn a_port_that_is_configured_anew_meanwhile_is_opened_anew() {
    story(&[Need::Tap, Need::Program("bash")], || {
        let systemd = Systemd::new();
        let (switch, (a, b, _)) = two_taps(|| systemd.start());
        systemd.wait_for(&["a.0", "b.0", "b.1", "manifest"]);
        let before = index(a);
        std::fs::write(FILE, PORTS.replace("queues = 2", "queues = 3")).unwrap();
        let switch = systemd.restart(switch, Signal::KILL);
        assert_eq!(switch.state("b").0, "up", "at once");
        assert_eq!(index(a), before);
        assert!(!b.run("ip -brief address show dev tap0").contains("10.9.0.2"), "a new device");
        systemd.wait_for(&["a.0", "b.0", "b.1", "b.2", "manifest"]);
    });
}

/// An upgrade, or a downgrade, to a version that would take the descriptors for something else.
#[test]
fn a_list_of_another_version_is_refused_and_all_is_opened_anew() {
    story(&[Need::Tap, Need::Program("bash")], || {
        let systemd = Systemd::new();
        let (mut switch, (a, ..)) = two_taps(|| systemd.start());
        let all = ["a.0", "b.0", "b.1", "manifest"];
        for list in [r#"{"version":0}"#, r#"{"version":2,"ports":{}}"#, "", "{"] {
            systemd.wait_for(&all);
            a.address("tap0", 3);
            systemd.rewrite("manifest", list);
            switch = systemd.restart(switch, Signal::TERM);
            assert_eq!([switch.state("a").0, switch.state("b").0], ["up", "up"], "at once: {list}");
            assert!(!a.run("ip -brief address show dev tap0").contains("10.9.0.3"), "a new device");
        }
        systemd.wait_for(&all);
    });
}

/// A successor of another version would take the descriptors for something else.
#[test]
fn one_that_speaks_another_version_is_refused_and_the_daemon_goes_on() {
    story(&[Need::Tap], || {
        let (switch, (a, ..)) = two_taps(|| Switch::start(PORTS));
        let before = index(a);
        for said in ["millrace hand-over 0", "millrace hand-over 2", ""] {
            let answer = ask(said);
            assert!(answer.starts_with("refused: "), "{said}: {answer}");
        }
        assert_eq!((switch.state("a").0, index(a)), ("up".into(), before));
        switch.take_over().end(Signal::TERM);
    });
}

/// The sessions end, and the rings go on where they were.
#[test]
fn guests_connect_again_to_a_successor() {
    story(&[Need::Tap, Need::Guest("qemu")], || {
        let a = Host::new("a");
        let mut switch = Switch::start(
            "[[port]]\nname = 'a'\ntap = 'tap0'\nnetns = 'a'\n\
             [[port]]\nname = 'connects'\nvhost-user = '/run/connects.sock'\nmac = '52:54:00:00:00:02'\n\
             [[port]]\nname = 'listens'\nvhost-user = '/run/listens.sock'\nvhost-client = true\n\
             mac = '52:54:00:00:00:03'\n",
        );
        let mut machines = Vec::new();
        for (name, number) in [("connects", 2), ("listens", 3)] {
            let mut machine = Machine::boot(name, &[name]);
            machine.guest.address("eth0", number);
            machines.push(machine);
        }
        switch.wait_for("a", "up");
        a.address("tap0", 1);
        for (name, number) in [("connects", 2), ("listens", 3)] {
            let pinged = Pinged::start(a, IpAddr::from([10, 9, 0, number]));
            let seen = || pinged.arrivals.count.load(Ordering::Relaxed);
            until("the guest answers", || (seen() > 100).then_some(()));
            let mut outages = Vec::new();
            for _ in 0..restarts() {
                let mut old = Some(switch);
                let mut next = None;
                outages.push(pinged.arrivals.outage_ms(|| {
                    let new = old.take().map(Switch::take_over).unwrap();
                    new.wait_for(name, "up");
                    next = Some(new);
                }));
                switch = next.unwrap();
            }
            println!("measured: hand-over, a QEMU that {name}: {}", told(outages));
        }
    });
}

/// What the daemon answers to a successor that says this.
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
