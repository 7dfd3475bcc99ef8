//! Numbered frames from an uplink to two veth ports, by a running switch with the kernel path,
//! while the configuration changes: no frame comes twice, none overtakes another of its flow, none
//! is lost but by a change that forbids it or by a full queue of a processor, and none arrives that
//! was sent after the call that forbids it has returned.
//!
//! `ONCE_FRAMES` sets the number of frames, for runs by hand.

use crate::fuzz_kernel_path::plain;
use datapath::{
    AclAction, AclEnd, AclProtocol, AclRule, PortId, PortRole, RateLimit, RscPolicy, Switch,
    SwitchOptions, Vlan,
};
use ports::capture::{Capture, CaptureOptions, Direction};
use ports::kernel_path::KernelPath;
use ports::packet::{self, Opened, PacketOptions};
use ports::{Burst, EgressQueue, IngressQueue, Nanos, Outgoing, Slice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use wire::vnet::VnetHeader;

/// Receivers, and the flows to each.
const RECEIVERS: usize = 2;
const FLOWS: usize = 4;

/// Frames of a flow that may be under way: all together are fewer than the kernel queues for a
/// processor (`net.core.netdev_max_backlog`, 1000).
const WINDOW: u64 = 64;

const SENDER: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn receiver_mac(receiver: usize) -> [u8; 6] {
    [2, 0, 0, 0, 9, receiver as u8]
}

/// What the control thread says about a receiver's frames; each carries it.
const ALLOWED: u8 = 0;
const CHANGING: u8 = 1;
const FORBIDDEN: u8 = 2;

#[derive(Default)]
struct Flow {
    /// The number of the next frame to be sent, and of the next to be received.
    sent: AtomicU64,
    seen: AtomicU64,
    lost: AtomicU64,
    /// Frames below this number may be lost.
    forgiven: AtomicU64,
}

#[derive(Default)]
struct Receiver {
    verdict: AtomicU8,
    flows: [Flow; FLOWS],
}

struct Shared {
    receivers: [Receiver; RECEIVERS],
    /// What the kernel's queues had dropped at the start, and how many lost frames are excused by
    /// what they have dropped since.
    dropped: u64,
    excused: AtomicU64,
    is_over: AtomicBool,
    /// Set by the control thread, and answered by the sender.
    shall_pause: AtomicBool,
    is_paused: AtomicBool,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            receivers: Default::default(),
            dropped: dropped(),
            excused: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            shall_pause: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
        }
    }

    /// Whether as many frames were dropped by the processors' queues, which the whole machine
    /// shares: other tests may fill one.
    fn excuses(&self, lost: u64) -> bool {
        self.excused.fetch_add(lost, SeqCst) + lost <= dropped() - self.dropped
    }

    fn sent(&self) -> u64 {
        self.flows().map(|flow| flow.sent.load(SeqCst)).sum()
    }

    fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.receivers.iter().flat_map(|receiver| &receiver.flows)
    }
}

/// Returns the frames that the kernel has dropped because a processor's queue was full
/// (`net.core.netdev_max_backlog`).
fn dropped() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let second = |line: &str| u64::from_str_radix(line.split(' ').nth(1)?, 16).ok();
    text.lines().filter_map(second).sum()
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn open(name: &str, path: Option<&KernelPath>) -> Opened {
    let options = PacketOptions { kernel_path: path.cloned(), ..PacketOptions::new(name) };
    packet::open(&options).unwrap()
}

/// A namespace that lasts as long as its thread waits.
struct Container {
    path: PathBuf,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Container {
    /// Moves an interface of the calling thread's namespace into a new one.
    fn with(interface: &'static str) -> Container {
        let (made, known) = mpsc::channel();
        let (moved, is_moved) = mpsc::channel::<()>();
        let (up, is_up) = mpsc::channel();
        let (stop, is_over) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let live = move || {
                made.send(rustix::thread::gettid()).unwrap();
                is_moved.recv().unwrap();
                ip(&format!("link set {interface} up"));
                up.send(()).unwrap();
                let _ = is_over.recv();
            };
            ports::namespace::fresh(live).unwrap();
        });
        let number = known.recv().unwrap().as_raw_nonzero();
        ip(&format!("link set {interface} netns {number}"));
        moved.send(()).unwrap();
        is_up.recv().unwrap();
        let path = format!("/proc/{}/task/{number}/ns/net", std::process::id()).into();
        Container { path, stop, thread }
    }

    fn open(&self, name: &str) -> Opened {
        let netns = Some(self.path.clone());
        packet::open(&PacketOptions { netns, ..PacketOptions::new(name) }).unwrap()
    }

    fn end(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}

/// Returns a frame to a receiver: its flow's number in the port, its own in the payload.
fn frame(receiver: usize, flow: usize, number: u64, verdict: u8) -> Vec<u8> {
    let mut bytes = [&receiver_mac(receiver)[..], &SENDER, &[8, 0]].concat();
    bytes.extend([0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0x10, 0, 0x20, flow as u8, 0, 26, 0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.extend([verdict; 10]);
    bytes
}

/// Sends frames of all flows in turn, each flow at most [`WINDOW`] ahead of its receiver.
fn send(queue: &EgressQueue, shared: &Shared, frames: u64) {
    let mut drops = vec![];
    let mut total = 0;
    while total < frames && !shared.is_over.load(SeqCst) {
        if shared.shall_pause.load(SeqCst) {
            shared.is_paused.store(true, SeqCst);
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        shared.is_paused.store(false, SeqCst);
        let before = total;
        for (number, receiver) in shared.receivers.iter().enumerate() {
            for (place, flow) in receiver.flows.iter().enumerate() {
                let verdict = receiver.verdict.load(SeqCst);
                let next = flow.sent.load(SeqCst);
                let base = flow.seen.load(SeqCst).max(flow.forgiven.load(SeqCst));
                if next >= base + WINDOW {
                    continue;
                }
                let bytes = frame(number, place, next, verdict);
                // Before it is sent: what is forgiven covers it.
                flow.sent.store(next + 1, SeqCst);
                let (vnet, len) = (VnetHeader::default(), bytes.len() as u32);
                let payload: &[Slice<'_>] = &[];
                let out = Outgoing { vnet, header: &bytes, payload, len };
                queue.deliver(&[out], &mut drops).unwrap();
                if drops.is_empty() {
                    total += 1;
                } else {
                    // Nothing got it: the same number goes again.
                    flow.sent.store(next, SeqCst);
                    assert!(shared.excuses(drops.len() as u64), "FINDING (lost) at the sender");
                    drops.clear();
                }
            }
        }
        if total == before {
            std::thread::yield_now();
        }
    }
}

/// Receives until all is over, and checks each frame.
fn receive(queue: &mut IngressQueue, shared: &Shared, number: usize) {
    let receiver = &shared.receivers[number];
    while !shared.is_over.load(SeqCst) {
        let mut burst = Burst::new();
        queue.take(Nanos(1), &mut burst).unwrap();
        for raw in burst.frames() {
            let mut bytes = vec![];
            burst.slices(raw).iter().for_each(|slice| slice.append_to(&mut bytes));
            if bytes.get(..12) == Some(&[receiver_mac(number), SENDER].concat()[..])
                && bytes.len() == 60
            {
                check(shared, receiver, &bytes);
            }
        }
        let is_empty = burst.frames().is_empty();
        drop(burst);
        queue.release();
        if is_empty && !queue.arm() {
            let fd = queue.ready_fd().unwrap();
            let wait = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)).unwrap();
        }
    }
}

fn check(shared: &Shared, receiver: &Receiver, bytes: &[u8]) {
    let place = usize::from(bytes[37]);
    let (flow, verdict) = (&receiver.flows[place], bytes[50]);
    let number = u64::from_be_bytes(*bytes[42..].first_chunk().unwrap());
    let expected = flow.seen.load(SeqCst);
    assert!(
        number >= expected,
        "FINDING (twice or overtaken) {number} after {expected} in flow {place}"
    );
    assert!(verdict != FORBIDDEN, "FINDING (forbidden) {number} of flow {place}");
    if number > expected {
        let forgiven = flow.forgiven.load(SeqCst);
        assert!(
            number <= forgiven
                || receiver.verdict.load(SeqCst) != ALLOWED
                || shared.excuses(number - expected),
            "FINDING (lost) {expected} to {number} of flow {place}, forgiven below {forgiven}"
        );
        flow.lost.fetch_add(number - expected, SeqCst);
    }
    flow.seen.store(number + 1, SeqCst);
}

struct Control {
    switch: Switch,
    path: KernelPath,
    uplink: PortId,
    ports: [PortId; RECEIVERS],
    machines: [Opened; RECEIVERS],
    shared: Arc<Shared>,
    random: u64,
    changes: u64,
}

impl Control {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Waits until more frames were sent.
    fn wait(&mut self, frames: u64) {
        let until = self.shared.sent() + frames;
        let start = Instant::now();
        while self.shared.sent() < until && !self.shared.is_over.load(SeqCst) {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "frames are stuck: {:?}",
                self.lags()
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn lags(&self) -> Vec<(u64, u64)> {
        self.shared.flows().map(|flow| (flow.sent.load(SeqCst), flow.seen.load(SeqCst))).collect()
    }

    /// A change that keeps all frames.
    fn harmless(&mut self) {
        let port = match self.random(3) {
            0 => self.uplink,
            1 => self.ports[0],
            _ => self.ports[1],
        };
        let role = if port == self.uplink { PortRole::Uplink } else { PortRole::Vnic };
        let mut settings = plain(role);
        match self.random(6) {
            0 => settings.rsc.policy = RscPolicy::Off,
            1 => {
                let limit = RateLimit { bits_per_second: 100_000_000_000, burst_bytes: 1 << 30 };
                settings.rate = Some(limit);
            }
            2 => settings.rate_to = Some(100_000_000_000),
            3 => settings.kernel_path = false,
            4 => {
                let capture =
                    Capture::start(std::io::sink(), CaptureOptions::new("p", SystemTime::now()));
                let capture = Arc::new(capture.unwrap());
                self.switch.set_capture(port, Some(capture.clone())).unwrap();
                self.wait(200);
                self.switch.set_capture(port, None).unwrap();
                capture.stop();
            }
            _ => settings.acl.push(deny_ipv6()),
        }
        self.switch.change_port(port, settings).unwrap();
        let frames = self.random(2000);
        self.wait(frames);
        self.switch.change_port(port, plain(role)).unwrap();
    }

    /// A change that forbids all frames to a receiver, and its end.
    fn forbid(&mut self, receiver: usize) {
        self.shared.receivers[receiver].verdict.store(CHANGING, SeqCst);
        let port = self.ports[receiver];
        let mut settings = plain(PortRole::Vnic);
        let kind = self.random(3);
        match kind {
            0 => settings.acl.push(AclRule { protocol: AclProtocol::Ipv4, ..deny_ipv6() }),
            1 => settings.vlan = Vlan::Access(7),
            _ => self.switch.remove_port(port).unwrap(),
        }
        if kind < 2 {
            self.switch.change_port(port, settings).unwrap();
        }
        self.shared.receivers[receiver].verdict.store(FORBIDDEN, SeqCst);
        let frames = self.random(500);
        self.wait(frames);
        self.shared.receivers[receiver].verdict.store(CHANGING, SeqCst);
        // A frame sent before may wait in the uplink's ring.
        self.drain();
        if kind < 2 {
            self.switch.change_port(port, plain(PortRole::Vnic)).unwrap();
        } else {
            self.add(receiver);
        }
        self.forgive(receiver);
    }

    /// Pauses the sender until the switch or the kernel has taken all that it has sent.
    fn drain(&mut self) {
        self.shared.shall_pause.store(true, SeqCst);
        let start = Instant::now();
        while !self.shared.is_paused.load(SeqCst) || self.taken() < self.shared.sent() {
            assert!(start.elapsed() < Duration::from_secs(20), "FINDING (lost) before the switch");
            if self.shared.is_over.load(SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.switch.tend_kernel_path();
        }
        self.shared.shall_pause.store(false, SeqCst);
    }

    /// Returns the frames from the uplink that were taken by the switch or carried.
    fn taken(&self) -> u64 {
        self.switch.counters(self.uplink).unwrap().ingress_frames
    }

    fn add(&mut self, receiver: usize) {
        let opened = open(&format!("once{receiver}"), Some(&self.path));
        let name = format!("g{receiver}");
        self.ports[receiver] =
            self.switch.add_port(&name, opened.device, plain(PortRole::Vnic)).unwrap();
        self.speak(receiver);
    }

    /// Lets the switch learn a receiver's address.
    fn speak(&self, receiver: usize) {
        let bytes = [&SENDER[..], &receiver_mac(receiver), &[0x88, 0xb5], &[0; 46]].concat();
        let out = Outgoing { vnet: VnetHeader::default(), header: &bytes, payload: &[], len: 60 };
        self.machines[receiver].device.egress[0].deliver(&[out], &mut vec![]).unwrap();
    }

    /// Forgives what was lost until now, and waits until frames arrive again or the last was sent.
    fn forgive(&mut self, receiver: usize) {
        let of = &self.shared.receivers[receiver];
        let start = Instant::now();
        let arrives = |flow: &Flow, from: u64| flow.seen.load(SeqCst) > from;
        let from: Vec<u64> = of.flows.iter().map(|flow| flow.sent.load(SeqCst)).collect();
        while !self.shared.is_over.load(SeqCst) {
            for (flow, from) in of.flows.iter().zip(&from) {
                if !arrives(flow, *from) {
                    flow.forgiven.store(flow.sent.load(SeqCst), SeqCst);
                }
            }
            if of.flows.iter().zip(&from).all(|(flow, from)| arrives(flow, *from)) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no frame arrives any more");
            std::thread::sleep(Duration::from_millis(1));
        }
        of.verdict.store(ALLOWED, SeqCst);
    }
}

fn deny_ipv6() -> AclRule {
    AclRule {
        action: AclAction::Deny,
        direction: Direction::Egress,
        protocol: AclProtocol::Ipv6,
        from: AclEnd::default(),
        to: AclEnd::default(),
    }
}

#[test]
fn each_frame_arrives_once_and_in_order_while_everything_changes() {
    let tested = ports::namespace::fresh(|| match KernelPath::load() {
        Ok(path) => run(path),
        Err(error) => eprintln!("skipped: needs CAP_BPF and CAP_NET_ADMIN: {error}"),
    });
    if let Err(error) = tested {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}

#[allow(clippy::too_many_lines, reason = "one run: its bed, its threads, its figures")]
fn run(path: KernelPath) {
    let frames = std::env::var("ONCE_FRAMES").ok().and_then(|frames| frames.parse().ok());
    let frames: u64 = frames.unwrap_or(200_000);
    for (port, machine) in [("onceu", "onceum"), ("once0", "oncem0"), ("once1", "oncem1")] {
        ip(&format!("link add {port} type veth peer name {machine}"));
        // The kernel sends nothing of its own, so that counts are exact.
        ip(&format!("link set {port} addrgenmode none"));
        ip(&format!("link set {machine} addrgenmode none"));
        ip(&format!("link set {port} up"));
        ip(&format!("link set {machine} up"));
    }
    let mut switch = Switch::start(SwitchOptions::default()).unwrap();
    switch.use_kernel_path(path.clone());
    let sender = open("onceum", None);
    // To one receiver frames are redirected by its pair, to the other into its namespace.
    let container = Container::with("oncem1");
    let open_both = || [open("oncem0", None), container.open("oncem1")];
    let machines = open_both();
    let mut add = |name: &str, interface: &str, role| {
        switch.add_port(name, open(interface, Some(&path)).device, plain(role)).unwrap()
    };
    let uplink = add("uplink", "onceu", PortRole::Uplink);
    let ports = [add("g0", "once0", PortRole::Vnic), add("g1", "once1", PortRole::Vnic)];
    let shared = Arc::new(Shared::new());
    let mut queues = open_both();
    let mut control = Control {
        switch,
        path,
        uplink,
        ports,
        machines,
        shared,
        random: 88_172_645_463_325_252,
        changes: 0,
    };
    for receiver in 0..RECEIVERS {
        control.speak(receiver);
    }
    let learned = Instant::now();
    while control.switch.macs().len() < RECEIVERS {
        assert!(learned.elapsed() < Duration::from_secs(10), "addresses are learned");
        std::thread::sleep(Duration::from_millis(1));
    }
    let shared = control.shared.clone();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let over = || OnExit(&shared);
        let shared = &*shared;
        for (number, opened) in queues.iter_mut().enumerate() {
            let guard = over();
            scope.spawn(move || {
                let _guard = guard;
                receive(&mut opened.device.ingress[0], shared, number);
            });
        }
        let guard = over();
        let queue = &sender.device.egress[0];
        scope.spawn(move || {
            let _guard = guard;
            // A sender that moves to another processor overtakes itself where the queue of the
            // first is not empty.
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            sched_setaffinity(None, &here).unwrap();
            send(queue, shared, frames);
            // What is under way arrives.
            let start = Instant::now();
            let is_done = |flow: &Flow| flow.seen.load(SeqCst) == flow.sent.load(SeqCst);
            while !shared.flows().all(is_done) && start.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _guard = over();
        let mut tended = Instant::now();
        while !shared.is_over.load(SeqCst) {
            if tended.elapsed() > Duration::from_millis(300) {
                control.switch.tend_kernel_path();
                tended = Instant::now();
            }
            control.changes += 1;
            match control.random(4) {
                0 => {
                    let receiver = control.random(2) as usize;
                    control.forbid(receiver);
                }
                1 => control.harmless(),
                _ => {
                    let frames = control.random(20_000);
                    control.wait(frames);
                }
            }
        }
    });
    control.switch.tend_kernel_path();
    let carried = control.switch.carried(control.uplink).ingress.frames;
    let lost: u64 = shared.flows().map(|flow| flow.lost.load(SeqCst)).sum();
    let sent = shared.sent();
    eprintln!(
        "{sent} frames in {:.1} s, {} changes, {carried} carried by the kernel, {lost} lost by changes and {} by full queues, \
         unmatched {}",
        start.elapsed().as_secs_f64(),
        control.changes,
        shared.excused.load(SeqCst),
        control.path.unmatched()
    );
    assert!(carried > 0, "the kernel carries nothing");
    assert_eq!(control.path.unmatched(), 0);
    container.end();
}

/// Ends the run when a thread ends, by a finding too.
struct OnExit<'s>(&'s Shared);

impl Drop for OnExit<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}
