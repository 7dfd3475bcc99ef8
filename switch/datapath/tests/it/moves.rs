//! Ingress queues that move between workers: every frame arrives once and in order, and a queue
//! takes its debts and its sums along.

use crate::common::{ALL, plain};
use datapath::{PortId, PortSettings, Switch, SwitchError, SwitchOptions, Wait, WorkerOptions};
use ports::Nanos;
use ports::memory::{self, Peer};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use wire::Mac;
use wire::vnet::VnetHeader;

/// The address of the port that gets everything.
const SINK: [u8; 6] = [2, 0xff, 0, 0, 0, 0];

/// Frames that a port holds.
const DEPTH: usize = 4096;

fn options(workers: usize, wait: Wait) -> SwitchOptions {
    let workers = vec![WorkerOptions::default(); workers];
    SwitchOptions { workers, wait, ..SwitchOptions::default() }
}

/// Adds a port with a number of queues. Returns it with the peer of each queue.
fn add(
    switch: &mut Switch,
    name: &str,
    queues: usize,
    settings: PortSettings,
) -> (PortId, Vec<Peer>) {
    let (mut device, peer) = memory::open(DEPTH, ALL, 1500).unwrap();
    let mut peers = vec![peer];
    for _ in 1..queues {
        let (more, peer) = memory::open(DEPTH, ALL, 1500).unwrap();
        device.ingress.extend(more.ingress);
        device.egress.extend(more.egress);
        peers.push(peer);
    }
    device.live.set_queues(queues as u16);
    (switch.add_port(name, device, settings).unwrap(), peers)
}

fn add_sink(switch: &mut Switch) -> Peer {
    let settings = PortSettings { mac: Some(Mac(SINK)), ..plain() };
    add(switch, "sink", 1, settings).1.remove(0)
}

/// Returns frame `sequence` of a flow, for the sink.
fn frame(flow: u32, sequence: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&SINK);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, (flow >> 8) as u8, flow as u8]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&flow.to_be_bytes());
    frame[18..22].copy_from_slice(&sequence.to_be_bytes());
    frame
}

/// Returns the flow and sequence of a frame.
fn read(frame: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (number(14), number(18))
}

#[derive(Clone, Debug)]
enum Action {
    Join { queues: usize },
    Leave { port: usize },
    Send { queue: usize, frames: u32 },
    Move { queue: usize, worker: usize },
    Round,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => (1..5usize).prop_map(|queues| Action::Join { queues }),
        1 => any::<usize>().prop_map(|port| Action::Leave { port }),
        6 => (any::<usize>(), 1..40u32).prop_map(|(queue, frames)| Action::Send { queue, frames }),
        6 => (any::<usize>(), any::<usize>()).prop_map(|(queue, worker)| Action::Move { queue, worker }),
        4 => Just(Action::Round),
    ]
}

/// A port of the model: for each queue its flow, its worker and the frames sent.
struct Member {
    id: PortId,
    peers: Vec<Peer>,
    flows: Vec<u32>,
    workers: Vec<usize>,
    sent: Vec<u32>,
}

/// A stepped switch and what is known of it.
struct Model {
    switch: Switch,
    sink: Peer,
    members: Vec<Member>,
    workers: usize,
    flows: u32,
    joined: u32,
    now: Nanos,
    /// By flow: the next frame to arrive.
    arrived: HashMap<u32, u32>,
}

impl Model {
    fn new(workers: usize) -> Model {
        let mut switch = Switch::stepped(options(workers, Wait::Adaptive));
        let sink = add_sink(&mut switch);
        let (members, arrived, now) = (Vec::new(), HashMap::new(), Nanos::SECOND);
        Model { switch, sink, members, workers, flows: 0, joined: 0, now, arrived }
    }

    fn join(&mut self, queues: usize) {
        self.joined += 1;
        let (id, peers) = add(&mut self.switch, &format!("p{}", self.joined), queues, plain());
        let infos = self.switch.queues();
        let workers = infos.iter().filter(|info| info.port == id).map(|info| info.worker);
        let flows = (self.flows..).take(queues).collect();
        self.flows += queues as u32;
        let sent = vec![0; queues];
        self.members.push(Member { id, peers, flows, workers: workers.collect(), sent });
    }

    /// Returns the member and queue that a random number selects.
    fn pick(&self, number: usize) -> Option<(usize, usize)> {
        let places = self.members.iter().enumerate();
        let all: Vec<_> = places
            .flat_map(|(at, member)| (0..member.flows.len()).map(move |queue| (at, queue)))
            .collect();
        Some(*all.get(number.checked_rem(all.len())?)?)
    }

    fn carry_out(&mut self, action: &Action) {
        match *action {
            Action::Join { queues } => self.join(queues),
            Action::Leave { port } => {
                if let Some(at) = port.checked_rem(self.members.len()) {
                    let member = self.members.swap_remove(at);
                    self.switch.remove_port(member.id).unwrap();
                }
            }
            Action::Send { queue, frames } => {
                let Some((at, queue)) = self.pick(queue) else { return };
                let member = &mut self.members[at];
                for _ in 0..frames {
                    let frame = frame(member.flows[queue], member.sent[queue]);
                    assert!(member.peers[queue].send(VnetHeader::default(), &frame));
                    member.sent[queue] += 1;
                }
            }
            Action::Move { queue, worker } => {
                let Some((at, queue)) = self.pick(queue) else { return };
                let (member, worker) = (&mut self.members[at], worker % self.workers);
                self.switch.move_queue(member.id, queue, worker).unwrap();
                member.workers[queue] = worker;
            }
            Action::Round => self.round(),
        }
        self.check_owners();
    }

    fn round(&mut self) {
        self.now = self.now + Nanos(1000);
        self.switch.step(self.now);
        while let Some(frame) = self.sink.receive() {
            let (flow, sequence) = read(&frame.bytes);
            let next = self.arrived.entry(flow).or_default();
            assert_eq!(sequence, *next, "of flow {flow}");
            *next += 1;
        }
    }

    /// Checks that each queue is listed once, at the worker it was moved to last.
    fn check_owners(&self) {
        let mut infos: Vec<_> = self
            .switch
            .queues()
            .into_iter()
            .map(|info| (info.port, info.queue, info.worker))
            .collect();
        infos.retain(|(port, ..)| port.0 > 0);
        let of = |member: &Member| {
            let (id, workers) = (member.id, member.workers.clone());
            workers.into_iter().enumerate().map(move |(queue, worker)| (id, queue, worker))
        };
        let mut known: Vec<_> = self.members.iter().flat_map(of).collect();
        known.sort_unstable();
        assert_eq!(infos, known);
    }

    /// Checks that everything that members sent has arrived, also by each queue's sums.
    fn check_all_arrived(&mut self) {
        (0..20).for_each(|_| self.round());
        for member in &self.members {
            let infos = self.switch.queues();
            for (queue, (flow, sent)) in member.flows.iter().zip(&member.sent).enumerate() {
                assert_eq!(self.arrived.get(flow).unwrap_or(&0), sent, "of flow {flow}");
                let info = infos.iter().find(|info| (info.port, info.queue) == (member.id, queue));
                let info = info.unwrap();
                assert_eq!((info.frames, info.bytes), (u64::from(*sent), u64::from(*sent) * 60));
                assert_eq!(info.busy > Nanos(0), *sent > 0);
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_moves_joins_and_leaves_each_flow_arrives_once_and_in_order(
        workers in 1..5usize,
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut model = Model::new(workers);
        model.join(4);
        actions.iter().for_each(|action| model.carry_out(action));
        model.check_all_arrived();
    }
}

#[test]
fn a_move_to_nowhere_is_refused_with_what_there_is() {
    let mut switch = Switch::stepped(options(2, Wait::Adaptive));
    let (port, _peers) = add(&mut switch, "p", 2, plain());
    let refused = |result: Result<Nanos, SwitchError>| result.unwrap_err().to_string();
    assert_eq!(
        refused(switch.move_queue(port, 0, 2)),
        "the switch has 2 workers, from 0, and no worker 2"
    );
    assert_eq!(
        refused(switch.move_queue(port, 2, 1)),
        "port 0 has 2 queues, from 0, and no queue 2"
    );
    assert_eq!(refused(switch.move_queue(PortId(7), 0, 1)), "no port with the number 7");
    assert!(switch.queues().iter().all(|info| info.movable));
    let mut alone = Switch::stepped(options(1, Wait::Adaptive));
    add(&mut alone, "p", 1, plain());
    assert!(alone.queues().iter().all(|info| !info.movable));
}

/// Returns the number of frames taken from a port that sends broadcasts to 30 others, beside a busy
/// port at each of two workers.
fn broadcasts(moves: bool) -> u64 {
    let mut switch = Switch::stepped(options(2, Wait::Adaptive));
    let sink = add_sink(&mut switch);
    let mut senders: Vec<_> =
        (0..3).map(|number| add(&mut switch, &format!("s{number}"), 1, plain())).collect();
    let others: Vec<_> =
        (0..30).map(|number| add(&mut switch, &format!("o{number}"), 1, plain())).collect();
    let (loud, quiet) = (senders.remove(0), senders);
    for (worker, (port, _)) in quiet.iter().enumerate() {
        switch.move_queue(*port, 0, worker).unwrap();
    }
    let mut now = Nanos::SECOND;
    for round in 0..400 {
        let mut shout = frame(0, round);
        shout[..6].copy_from_slice(&[255; 6]);
        while loud.1[0].send(VnetHeader::default(), &shout) {}
        for (number, (_, peers)) in quiet.iter().enumerate() {
            while peers[0].send(VnetHeader::default(), &frame(1 + number as u32, round)) {}
        }
        now = now + Nanos(1000);
        switch.step(now);
        if moves {
            switch.move_queue(loud.0, 0, round as usize % 2).unwrap();
        }
        for peer in
            others.iter().chain(&quiet).chain([&loud]).flat_map(|(_, peers)| peers).chain([&sink])
        {
            while let Some(frame) = peer.receive() {
                peer.recycle(frame);
            }
        }
    }
    switch.counters(loud.0).unwrap().ingress_frames
}

/// The account that a moved queue came to was new, and a queue that moved had a turn each round.
#[test]
fn a_queue_takes_its_debt_along() {
    let (stays, moves) = (broadcasts(false), broadcasts(true));
    assert!(moves <= stays + stays / 10, "{moves} broadcasts with a move a round, {stays} without");
}

/// Frames taken from two ports with more to send than is taken, the second of two queues that meet
/// at the first's worker.
#[test]
fn queues_of_a_vnic_that_meet_share_its_account() {
    let mut switch = Switch::stepped(options(2, Wait::Adaptive));
    let sink = add_sink(&mut switch);
    let one = add(&mut switch, "one", 1, plain());
    let two = add(&mut switch, "two", 2, plain());
    for (port, queue) in [(two.0, 0), (one.0, 0), (two.0, 1)] {
        switch.move_queue(port, queue, 1).unwrap();
        switch.move_queue(port, queue, 0).unwrap();
    }
    let mut now = Nanos::SECOND;
    for round in 0..400 {
        for (flow, peer) in one.1.iter().chain(&two.1).enumerate() {
            while peer.send(VnetHeader::default(), &frame(flow as u32, round)) {}
        }
        now = now + Nanos(1000);
        switch.step(now);
        while let Some(frame) = sink.receive() {
            sink.recycle(frame);
        }
    }
    let [one, two] = [one.0, two.0].map(|port| switch.counters(port).unwrap().ingress_frames);
    assert!(one.abs_diff(two) <= one / 20, "{one} and {two}");
}

/// Moves while frames flow: `MILLRACE_LONG` makes it 100,000.
fn moves() -> u32 {
    if std::env::var_os("MILLRACE_LONG").is_some() { 100_000 } else { 1000 }
}

/// Frames of a flow on their way, at most: no queue is ever full.
const WINDOW: u32 = 500;

/// Queues of the port that sends.
const QUEUES: usize = 4;

/// The frames of each queue's flow.
#[derive(Default)]
struct Flows {
    sent: [AtomicU32; QUEUES],
    arrived: [AtomicU32; QUEUES],
    /// No more is to be sent.
    done: AtomicBool,
}

fn count(of: &[AtomicU32]) -> u32 {
    of.iter().map(|one| one.load(Ordering::Relaxed)).sum()
}

impl Flows {
    /// Sends the frames of a flow, with a pause between two frames so that workers sleep.
    fn send(&self, flow: usize, peer: &Peer, pause: Option<Duration>) {
        let (sent, arrived) = (&self.sent[flow], &self.arrived[flow]);
        while !self.done.load(Ordering::Relaxed) {
            let next = sent.load(Ordering::Relaxed);
            if next - arrived.load(Ordering::Relaxed) >= WINDOW {
                std::thread::yield_now();
                continue;
            }
            assert!(peer.send(VnetHeader::default(), &frame(flow as u32, next)));
            sent.store(next + 1, Ordering::Relaxed);
            pause.into_iter().for_each(std::thread::sleep);
        }
    }

    /// Receives until the senders have ended and all has arrived, which may take ten seconds more.
    fn receive(&self, sink: &Peer, senders: &[ScopedJoinHandle<'_, ()>]) {
        let mut end = None;
        while end
            .is_none_or(|end| Instant::now() < end && count(&self.sent) != count(&self.arrived))
        {
            if senders.iter().all(ScopedJoinHandle::is_finished) {
                end = end.or_else(|| Some(Instant::now() + Duration::from_secs(10)));
            }
            let Some(received) = sink.receive() else {
                std::thread::yield_now();
                continue;
            };
            let (flow, sequence) = read(&received.bytes);
            let next = self.arrived[flow as usize].fetch_add(1, Ordering::Relaxed);
            assert_eq!(sequence, next, "of flow {flow}");
            sink.recycle(received);
        }
    }
}

/// Moves queues of a port at random while another port comes and goes; how long each move held its
/// queue.
fn move_at_random(switch: &mut Switch, port: PortId, go_on: impl Fn() -> bool) -> Vec<Nanos> {
    let workers = switch.workers().len();
    let (mut held, mut random) = (Vec::new(), 1u32);
    for round in (0..moves()).take_while(|_| go_on()) {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (queue, worker) = ((random >> 8) as usize % QUEUES, (random >> 16) as usize % workers);
        let owner = switch.queues_of(port)[queue].worker;
        let took = switch.move_queue(port, queue, worker).unwrap();
        if owner != worker {
            held.push(took);
        }
        if round % 64 == 0 {
            let (id, _peers) = add(switch, "passing", 2, plain());
            switch.move_queue(id, 1, worker).unwrap();
            switch.remove_port(id).unwrap();
        }
    }
    held
}

/// Moves queues while a thread sends on each of them.
fn moves_under_load(workers: usize, wait: Wait, pause: Option<Duration>) {
    let mut switch = Switch::start(options(workers, wait)).unwrap();
    let sink = add_sink(&mut switch);
    let (port, peers) = add(&mut switch, "sender", QUEUES, plain());
    let flows = Flows::default();
    let mut held = std::thread::scope(|scope| {
        let (flows, sink) = (&flows, &sink);
        let send = |(flow, peer)| scope.spawn(move || flows.send(flow, peer, pause));
        let senders: Vec<_> = peers.iter().enumerate().map(send).collect();
        let receiver = scope.spawn(move || flows.receive(sink, &senders));
        let held = move_at_random(&mut switch, port, || !receiver.is_finished());
        flows.done.store(true, Ordering::Relaxed);
        held
    });
    let sent = count(&flows.sent);
    assert_eq!(sent, count(&flows.arrived));
    assert_eq!(switch.queues().iter().map(|info| info.frames).sum::<u64>(), u64::from(sent));
    held.sort_unstable();
    let at = |part: usize| held[(held.len() - 1) * part / 1000].0 / 1000;
    eprintln!(
        "{} moves among {workers} workers, {sent} frames: a queue was held {} us at the median, {} at 99 %, {} at most",
        held.len(),
        at(500),
        at(990),
        at(1000),
    );
}

#[test]
fn queues_move_under_load() {
    moves_under_load(2, Wait::Adaptive, None);
    moves_under_load(3, Wait::Never, None);
}

#[test]
fn queues_move_between_workers_that_sleep() {
    moves_under_load(2, Wait::Never, Some(Duration::from_micros(200)));
}

/// What a queue costs is measured at it, wherever it is.
#[test]
fn the_load_of_a_queue_is_the_work_of_its_turns() {
    let mut switch = Switch::stepped(options(2, Wait::Adaptive));
    let _sink = add_sink(&mut switch);
    let (port, peers) = add(&mut switch, "p", 2, plain());
    let load = |switch: &Switch, queue: usize| {
        let infos = switch.queues();
        let info = infos.iter().find(|info| (info.port, info.queue) == (port, queue)).unwrap();
        (info.busy.0, info.frames, info.bytes)
    };
    let send = |switch: &mut Switch, frames: u32| {
        (0..frames).for_each(|next| assert!(peers[0].send(VnetHeader::default(), &frame(0, next))));
        switch.step(Nanos::SECOND);
    };
    send(&mut switch, 1);
    let learned = load(&switch, 0);
    send(&mut switch, 10);
    let before = load(&switch, 0);
    assert_eq!((before.1, before.2), (11, 660));
    let turn = before.0 - learned.0;
    assert!(turn > 10 * 40, "{turn}");
    let owner =
        switch.queues().iter().find(|info| (info.port, info.queue) == (port, 0)).unwrap().worker;
    switch.move_queue(port, 0, 1 - owner).unwrap();
    assert_eq!(load(&switch, 0), before, "a move changes no sum");
    send(&mut switch, 10);
    assert_eq!(load(&switch, 0), (before.0 + turn, 21, 1260));
    assert_eq!(load(&switch, 1), (0, 0, 0));
    let busy = |worker: usize| switch.workers()[worker].busy.0;
    assert_eq!((busy(owner), busy(1 - owner)), (before.0, turn));
}
