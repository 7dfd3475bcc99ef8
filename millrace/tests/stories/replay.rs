//! A run of the real switch, predicted by the simulator: a guest's queues under a load that rises
//! and falls, first where they lie, then moved by load. `MILLRACE_LONG=1` runs for minutes and
//! holds the prediction to what docs/vmmq.md says.
//!
//! It is a load that can be predicted. What is offered does not depend on what arrives: frames at a
//! fixed rate, broadcast to many bystanders and to no listener, so that a frame costs the switch
//! much and the rest of the host little. The queues are alike, and in each phase their sum is far
//! from the balancer's thresholds: one placement stays, whichever queue moves first. Neither run
//! saturates a worker but where a load has just risen.

use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::switch::{Switch, cli, millrace};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;
use std::net::UdpSocket;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};
use waiting::until;

const QUEUES: usize = 4;
/// Ports that get each frame for nothing.
const BYSTANDERS: usize = 64;
/// What each queue takes of a worker, phase by phase: one worker has room for all; two are needed;
/// two stay in use.
const PHASES: [f64; 3] = [0.05, 0.3, 0.175];
/// How often.
const ROUNDS: usize = 2;
/// Most that the cost of a frame may differ between the runs: what other programs cost the switch
/// is not predicted.
const SAME_COST: f64 = 0.1;
/// Frames a second of a whole worker, until they are measured.
const GUESS: f64 = 1000.0;

#[test]
fn busy_time_of_queues_that_move_is_predicted_from_a_run_in_which_they_stay() {
    let is_long = std::env::var_os("MILLRACE_LONG").is_some();
    let Some(cores) = two_cores() else {
        println!("skipped: needs two processors");
        return;
    };
    story(&[Need::Tap], || {
        let [guest, hall] = ["guest", "hall"].map(Host::new);
        let switch = start(&cores, &guest, &hall);
        let load = Load::new(&switch, &guest, Duration::from_secs(if is_long { 8 } else { 1 }));
        let stayed = load.record("static");
        switch.tell("port set guest vmmq=dynamic");
        until("idle queues are on one worker", || {
            workers(&switch).windows(2).all(|pair| pair[0] == pair[1]).then_some(())
        });
        let moved = load.record("dynamic");
        assert_eq!(stayed.moves, 0, "static queues stay");
        let replay = "lab vmmq --sim --recorded /run/static.json --real /run/dynamic.json";
        let report = String::from_utf8(cli(replay).stdout).unwrap();
        for line in format!("{stayed:?}\n{moved:?}\n{report}").lines() {
            println!("measured: {line}");
        }
        let found = cli(&format!("{replay} --json"));
        let found: Value = serde_json::from_slice(&found.stdout).unwrap();
        assert_eq!(found["as_placed"].as_array().unwrap().len(), 2, "{found}");
        if is_long {
            assert_eq!((stayed.lost, moved.lost), (0, 0), "all that was offered was taken");
            assert!(moved.moves > 0);
            let off = off_by(&found);
            if off > SAME_COST {
                let percent = 100.0 * off;
                println!(
                    "skipped: needs a machine at rest: frames of the second run cost {percent:.0} % more or less"
                );
                return;
            }
            assert_eq!(found["is_within"], true, "{found:#}");
        }
    });
}

/// As the switch's configuration names them.
fn two_cores() -> Option<String> {
    let allowed = sched_getaffinity(None).unwrap();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    (cores.len() > 1).then(|| format!("{}, {}", cores[0], cores[1]))
}

/// The switch, with a guest and its bystanders.
fn start(cores: &str, guest: &Host, hall: &Host) -> Switch {
    for host in [guest, hall] {
        host.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    }
    let bystander = |n| format!("[[port]]\nname = 'b{n}'\ntap = 'b{n}'\nnetns = 'hall'\n");
    let bystanders: String = (0..BYSTANDERS).map(bystander).collect();
    let switch = Switch::start(&format!(
        "[switch]\nworkers = [{cores}]\n\
         [[port]]\nname = 'guest'\ntap = 'tap0'\nnetns = 'guest'\nqueues = {QUEUES}\nstorm = 'off'\n\
         {bystanders}"
    ));
    guest.run("ip address add 10.9.0.2/24 dev tap0");
    guest.run("ip link set tap0 up");
    (0..BYSTANDERS).for_each(|n| drop(hall.run(&format!("ip link set b{n} up"))));
    until("all ports are up", || {
        (switch.ask("status")["switch"]["ports_up"] == BYSTANDERS + 1).then_some(())
    });
    switch
}

/// The worker of each queue of the guest.
fn workers(switch: &Switch) -> Vec<u64> {
    column(switch, "worker")
}

fn column(switch: &Switch, key: &str) -> Vec<u64> {
    let queues = switch.ask("queue show guest");
    queues.as_array().unwrap().iter().map(|queue| queue[key].as_u64().unwrap()).collect()
}

/// What the guest sends: the same at each queue.
struct Load {
    /// One for each queue.
    sockets: Vec<UdpSocket>,
    /// Frames a second of a whole worker.
    whole: f64,
    /// Of each phase.
    lasts: Duration,
}

/// What became of a run.
#[derive(Debug)]
struct Run {
    moves: usize,
    /// Frames that were offered and not taken.
    lost: u64,
}

impl Load {
    fn new(switch: &Switch, guest: &Host, lasts: Duration) -> Load {
        let mut load = Load { sockets: sockets(switch, guest), whole: GUESS, lasts };
        // A lone frame costs more than one of many: it is measured again at the rate that it leads
        // to.
        (0..2).for_each(|_| load.whole = load.probe());
        load
    }

    /// Frames a second of a whole worker at the highest rate.
    fn probe(&self) -> f64 {
        let recorder = recorder("probe", 2);
        self.send(&[PHASES[1] * self.whole], Duration::from_secs(2));
        let recording = read(recorder, "probe");
        let interval = recording["interval_ms"].as_f64().unwrap() / 1e3;
        guest_sum(&recording, "frames") / (guest_sum(&recording, "busy") * interval)
    }

    /// All phases, recorded.
    fn record(&self, name: &str) -> Run {
        let phases = PHASES.map(|share| share * self.whole).repeat(ROUNDS);
        // What is late has its second.
        let seconds = self.lasts.as_secs() * phases.len() as u64 + 1;
        let recorder = recorder(name, seconds);
        thread::sleep(Duration::from_millis(200));
        let sent = self.send(&phases, self.lasts);
        let recording = read(recorder, name);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "frames")]
        let taken = guest_sum(&recording, "frames") as u64;
        let moves = recording["moves"].as_array().map_or(0, Vec::len);
        Run { moves, lost: sent.saturating_sub(taken) }
    }

    /// Sends so many frames a second at each queue, one phase after the other; how many there were.
    fn send(&self, rates: &[f64], lasts: Duration) -> u64 {
        let begin = Instant::now();
        let mut all = 0;
        for (rate, phase) in rates.iter().zip(1..) {
            let (start, end) = (begin + lasts * (phase - 1), begin + lasts * phase);
            let mut sent = 0;
            while Instant::now() < end {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "frames"
                )]
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                for _ in sent..due {
                    self.sockets.iter().for_each(broadcast);
                }
                all += (due - sent) * QUEUES as u64;
                sent = due;
                thread::sleep(Duration::from_millis(1));
            }
        }
        all
    }
}

fn broadcast(socket: &UdpSocket) {
    socket.send_to(b"any", "10.9.0.255:7000").unwrap();
}

/// The kernel chooses a queue by addresses and ports: a socket for each, found by trying.
fn sockets(switch: &Switch, guest: &Host) -> Vec<UdpSocket> {
    let mut of_queue: Vec<Option<UdpSocket>> = (0..QUEUES).map(|_| None).collect();
    until("each queue has a flow", || {
        let socket = guest.within(|| UdpSocket::bind(("10.9.0.2", 0))).unwrap();
        socket.set_broadcast(true).unwrap();
        let before = column(switch, "frames");
        // More than what the kernel may send of its own.
        (0..20).for_each(|_| broadcast(&socket));
        let queue = until("its frames are taken", || {
            let now = column(switch, "frames");
            now.iter().zip(&before).position(|(now, before)| now - before >= 20)
        });
        of_queue[queue].get_or_insert(socket);
        of_queue.iter().all(Option::is_some).then_some(())
    });
    of_queue.into_iter().flatten().collect()
}

/// By how much a frame cost more or less in the second run, of the queue for which that is most.
fn off_by(replay: &Value) -> f64 {
    let items = replay["items"].as_array().unwrap();
    let off = |item: &Value| {
        let cost = |run: usize| item["ns_per_frame"][run].as_f64().unwrap();
        (cost(1) / cost(0) - 1.0).abs()
    };
    items
        .iter()
        .filter(|item| item["name"].as_str().unwrap().starts_with("guest"))
        .map(off)
        .fold(0.0, f64::max)
}

fn recorder(name: &str, seconds: u64) -> Child {
    let line = format!("vmmq record --seconds {seconds} --output /run/{name}.json");
    millrace().args(line.split(' ')).spawn().unwrap()
}

/// The recording, once it is complete.
fn read(mut recorder: Child, name: &str) -> Value {
    assert!(recorder.wait().unwrap().success(), "{name}");
    let json = std::fs::read(format!("/run/{name}.json")).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// All of a column of the guest's queues.
fn guest_sum(recording: &Value, column: &str) -> f64 {
    let items = recording["items"].as_array().unwrap();
    let of_guest = items.iter().filter(|item| item["vnic"] == "guest");
    let values = of_guest.flat_map(|item| item[column].as_array().unwrap());
    values.map(|value| value.as_f64().unwrap()).sum()
}
