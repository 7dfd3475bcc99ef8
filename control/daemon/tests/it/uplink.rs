//! Tests dynamic VMMQ at an uplink of two queues on two workers, a veth pair. Load on two entries
//! of one queue is spread over both queues, and every frame comes once and in order. Frames go to
//! three TAP devices, so that the switch is the bottleneck.

use api::body::VmmqMoveBody;
use config::{Config, PortConfig, Scale};
use daemon::running::Running;
use devices::{HostDevices, OpenError, Opened, Opener};
use ports::packet::{self, PacketOptions, Spread};
use ports::steering::{Steering, Vnic};
use ports::{Burst, EgressQueue, IngressQueue, Nanos, Outgoing, namespace};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::vnet::VnetHeader;

const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const VM_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// The only vNIC, as the uplink numbers it.
const VNIC: Vnic = Vnic { number: 1, generation: 0 };
/// Offset of a frame's number in the frame.
const NUMBER: usize = 42;
/// Most frames under way: what every ring and queue has room for.
const WINDOW: u64 = 400;
/// Time without progress after which a test fails.
const TRAFFIC_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens devices of this host, and keeps the steering of the uplink.
#[derive(Clone, Default)]
struct Devices {
    steering: Arc<Mutex<Option<Arc<dyn Steering>>>>,
}

impl Opener for Devices {
    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        let opened = HostDevices::default().open(port, scale)?;
        if let Spread::Tables(steering) = opened.watch.spread() {
            *self.steering.lock().unwrap() = Some(steering);
        }
        Ok(opened)
    }
}

struct Bench {
    running: Running,
    steering: Arc<dyn Steering>,
    sender: EgressQueue,
    vm: IngressQueue,
}

/// Runs a test in a network namespace, or says why not.
fn with_bench(vmmq: &str, test: impl FnOnce(Bench) + Send) {
    let run = || {
        for words in ["add mill0 type veth peer name mill1", "set mill0 up", "set mill1 up"] {
            let mut ip = Command::new("ip");
            let ip = ip.arg("link").args(words.split(' ')).status().expect("ip, of iproute2");
            assert!(ip.success(), "ip link {words}");
        }
        let text = format!(
            "[switch]\nworkers=2\n[[port]]\nname='up'\npacket='mill1'\nqueues=2\nvmmq='{vmmq}'\n\
             mirror-to='m1'\n[[port]]\nname='vm'\ntap='vm'\nmac='02:00:00:00:00:03'\nmirror-to='m2'\n\
             queues=1\nvmmq='{vmmq}'\n[[port]]\nname='m1'\ntap='m1'\nqueues=1\nvmmq='static'\n\
             [[port]]\nname='m2'\ntap='m2'\nqueues=1\nvmmq='static'\n"
        );
        let devices = Devices::default();
        let config = Config::from_toml("t", &text).unwrap();
        let running = Running::start(config, Box::new(devices.clone()), Instant::now()).unwrap();
        let vm = packet::open(&PacketOptions::new("vm")).expect("open").device.ingress.remove(0);
        let mut sender = packet::open(&PacketOptions::new("mill0")).expect("open");
        let sender = sender.device.egress.remove(0);
        let Some(steering) = devices.steering.lock().unwrap().clone() else {
            return eprintln!("skipped: needs the right to load eBPF programs");
        };
        test(Bench { running, steering, sender, vm });
    };
    if let Err(error) = namespace::fresh(run) {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}

/// Returns a UDP frame of a flow.
fn frame(flow: u8, number: u32) -> Vec<u8> {
    let ip = [0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 9, flow, 2, 10, 9, 0, 1];
    let udp = [0x10, 0, 0x20, 0, 0, 26, 0, 0];
    let mut frame = [&VM_MAC[..], &OUR_MAC, &[8, 0], &ip, &udp, &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

fn send(sender: &mut EgressQueue, frames: &[Vec<u8>]) {
    let outgoing = |header| Outgoing { vnet: VnetHeader::default(), header, payload: &[], len: 60 };
    let outgoing: Vec<_> = frames.iter().map(|frame| outgoing(frame.as_slice())).collect();
    let mut drops = Vec::new();
    sender.deliver(&outgoing, &mut drops).expect("deliver");
    assert_eq!(drops, []);
}

/// Returns the flow and number of each frame that came.
fn receive(vm: &mut IngressQueue) -> Vec<(u8, u32)> {
    let mut burst = Burst::new();
    vm.take(Nanos(1), &mut burst).expect("take");
    let frame = |frame| {
        let mut bytes = Vec::new();
        burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
        let number = bytes.get(NUMBER..NUMBER + 4)?.try_into().ok()?;
        (bytes[6..12] == OUR_MAC).then(|| (bytes[28], u32::from_be_bytes(number)))
    };
    let came = burst.frames().iter().filter_map(frame).collect();
    drop(burst);
    vm.release();
    came
}

impl Bench {
    /// Returns the entry that a flow hits, as the program counts it.
    fn entry(&mut self, flow: u8) -> usize {
        let start = Instant::now();
        loop {
            let before = self.steering.frames(VNIC).unwrap();
            send(&mut self.sender, &[frame(flow, 0)]);
            let after = self.steering.frames(VNIC).unwrap();
            if let Some(entry) = (0..128).find(|&entry| after[entry] != before[entry]) {
                return entry;
            }
            // The link may not carry frames yet.
            assert!(start.elapsed() < TRAFFIC_TIMEOUT, "no frame comes");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns two flows of different entries that name the same queue.
    fn two_of_one_queue(&mut self) -> [(u8, usize); 2] {
        let table = self.steering.table(VNIC).unwrap();
        let first = (0, self.entry(0));
        let other = (1..=255).find_map(|flow| {
            let entry = self.entry(flow);
            (entry != first.1 && table[entry] == table[first.1]).then_some((flow, entry))
        });
        // Wait for the frames sent to find out, and discard them.
        std::thread::sleep(Duration::from_millis(100));
        while !receive(&mut self.vm).is_empty() {}
        [first, other.expect("some flow")]
    }

    fn are_apart(&self, entries: [usize; 2]) -> bool {
        let table = self.steering.table(VNIC).unwrap();
        table[entries[0]] != table[entries[1]]
    }

    /// Loads two flows of one queue for as long as `goes_on` returns true. Each frame has to come
    /// once and in order.
    fn load(&mut self, flows: [(u8, usize); 2], mut goes_on: impl FnMut(&Bench) -> bool) {
        let (sent, came, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let (sent, came, done) = (&sent, &came, &done);
        let mut sender = std::mem::replace(&mut self.sender, open_sender());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    if sent.load(Ordering::Relaxed) - came.load(Ordering::Relaxed) + 16 > WINDOW {
                        std::thread::sleep(Duration::from_micros(50));
                        continue;
                    }
                    let numbers = number..number + 8;
                    let pair = |number| flows.map(|(flow, _)| frame(flow, number));
                    send(&mut sender, &numbers.flat_map(pair).collect::<Vec<_>>());
                    number += 8;
                    sent.fetch_add(16, Ordering::Relaxed);
                }
            });
            let _end = EndsAtDrop(done);
            let mut next = [0; 2];
            let mut balance_at = Instant::now();
            let mut last = Instant::now();
            loop {
                let frames = receive(&mut self.vm);
                if frames.is_empty() {
                    std::thread::sleep(Duration::from_micros(200));
                }
                for (flow, number) in frames {
                    let place = flows.iter().position(|&(known, _)| known == flow).unwrap();
                    assert_eq!(number, next[place], "flow {flow}: not the next");
                    next[place] += 1;
                    came.fetch_add(1, Ordering::Relaxed);
                    last = Instant::now();
                }
                let now = Instant::now();
                if now >= balance_at {
                    balance_at = now + self.running.balance(now);
                    let ends = !goes_on(self);
                    done.fetch_or(ends, Ordering::Relaxed);
                }
                let all = sent.load(Ordering::Relaxed) == came.load(Ordering::Relaxed);
                if done.load(Ordering::Relaxed) && all {
                    break;
                }
                assert!(last.elapsed() < TRAFFIC_TIMEOUT, "{sent:?} frames sent, {came:?} came");
            }
        });
    }
}

/// Stops the sender on drop, so also when a check fails.
struct EndsAtDrop<'f>(&'f AtomicBool);

impl Drop for EndsAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn open_sender() -> EgressQueue {
    packet::open(&PacketOptions::new("mill0")).expect("open").device.egress.remove(0)
}

#[test]
fn two_busy_entries_of_one_queue_are_spread_and_their_flows_stay_in_order() {
    with_bench("dynamic", |mut bench| {
        let flows = bench.two_of_one_queue();
        let entries = flows.map(|(_, entry)| entry);
        assert!(!bench.are_apart(entries));
        let (start, mut apart) = (Instant::now(), None);
        bench.load(flows, |bench| {
            assert!(start.elapsed() < TRAFFIC_TIMEOUT, "they share a queue for good");
            if bench.are_apart(entries) {
                apart.get_or_insert_with(Instant::now);
            }
            // Both queues carry their flows for a while.
            apart.is_none_or(|apart| apart.elapsed() < Duration::from_millis(500))
        });
        eprintln!("spread after {:?}", apart.unwrap() - start);
        let moves = bench.running.vmmq_moves();
        let names = entries.map(|entry| format!("entry {entry} of vm"));
        let mut items = moves.iter().flat_map(|moved| moved.items());
        assert!(items.any(|item| names.contains(&item)), "{moves:?}");
        assert!(moves.iter().any(|moved| moved.vnic.as_deref() == Some("vm")), "{moves:?}");
        // Besides entries at the uplink, the vNIC's own queue may move, and nothing else.
        let is_own = |moved: &VmmqMoveBody| moved.port == "vm" && moved.vnic.is_none();
        assert!(moves.iter().all(|moved| moved.port == "up" || is_own(moved)), "{moves:?}");
        recorded(&mut bench, entries, true);
    });
}

/// Checks that the bodies from which recordings are made contain the moves, and the table's frames
/// by entry.
fn recorded(bench: &mut Bench, entries: [usize; 2], dynamic: bool) {
    let load = bench.running.vmmq_load(Instant::now());
    assert_eq!((load.moves > 0, load.workers.len()), (dynamic, 2));
    let table = load.tables.iter().find(|table| table.vnic.as_deref() == Some("vm")).unwrap();
    assert_eq!((table.uplink.as_str(), table.dynamic), ("up", dynamic));
    assert_eq!((table.number, table.generation), (VNIC.number, VNIC.generation));
    assert_eq!(table.queues, bench.steering.table(VNIC).unwrap());
    assert_eq!(table.frames, bench.steering.frames(VNIC).unwrap());
    assert!(entries.iter().all(|entry| table.frames[*entry] > 1000), "{table:?}");
    let up = load.queues.iter().filter(|queue| queue.port == "up");
    assert!(up.clone().count() == 2 && up.clone().all(|queue| !queue.dynamic), "entries move");
    let busy: u64 = load.queues.iter().map(|queue| queue.busy_ns).sum();
    // A worker's counter is read before those of its queues.
    let workers: u64 = load.workers.iter().map(|worker| worker.busy_ns).sum();
    assert!(workers > 0 && workers <= busy, "{workers} and {busy}");
}

#[test]
fn entries_of_a_static_uplink_stay() {
    with_bench("static", |mut bench| {
        let flows = bench.two_of_one_queue();
        let start = Instant::now();
        bench.load(flows, |_| start.elapsed() < Duration::from_secs(2));
        assert!(!bench.are_apart(flows.map(|(_, entry)| entry)));
        assert_eq!(bench.running.vmmq_moves().len(), 0);
        recorded(&mut bench, flows.map(|(_, entry)| entry), false);
    });
}
