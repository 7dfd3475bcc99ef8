//! Tests moves among rings, readers and processors that take their steps in any order. A frame
//! takes three steps: the program reads the entry, the kernel gives it a slot, the slot is filled.
//! Each flow stays on one processor, as in the kernel.

use super::super::batch::{Arrivals, batches};
use super::super::gate::Slots;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const QUEUES: usize = 4;
const FLOWS: usize = 4;
const PROCESSORS: usize = 2;
const SLOTS: usize = 6;

/// Whether each slot is filled.
struct Filled([AtomicBool; SLOTS]);

impl Slots for Filled {
    fn count(&self) -> u64 {
        SLOTS as u64
    }

    fn is_filled(&self, place: u64) -> bool {
        self.0[usize::try_from(place).unwrap() % SLOTS].load(Relaxed)
    }
}

/// A frame: its flow and its number there.
type Frame = (usize, u32);

#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// The frame's entry was read: it goes to this queue.
    Steered(Frame, usize),
    /// The frame has a slot.
    Placed(Frame, usize, usize),
}

#[derive(Clone, Debug)]
enum Event {
    /// A processor does one step. If it begins a frame, that is of one of its own flows.
    Kernel {
        processor: usize,
        flow: usize,
    },
    /// A reader takes at most this many.
    Take {
        queue: usize,
        most: usize,
    },
    /// A reader delivers the frames it took, if it has not yet, and gives at most this many slots
    /// back.
    Release {
        queue: usize,
        most: usize,
    },
    /// Begins the first batch of moves of flows to other queues.
    Move(Vec<(usize, usize)>),
    Advance,
}

/// The way in which order is kept.
#[derive(Clone, Copy, PartialEq)]
enum Closing {
    Nothing,
    /// One round, as in a fence without a grace period.
    OneRound,
    /// The grace period begins when the first entry is stored.
    EarlyGrace,
    /// Old queues may also be new ones.
    OneBatch,
    Rounds,
}

struct Ring {
    filled: Arc<Filled>,
    frames: [Option<Frame>; SLOTS],
    /// Numbers of slots given out, taken, and given back.
    counts: [usize; 3],
    /// Value of the last count once all slots are given back; 0 if the reader gives none back.
    releasing: usize,
}

struct World {
    closing: Closing,
    fence: Fence,
    rings: Vec<Ring>,
    processors: [Option<Step>; PROCESSORS],
    /// The queue of each flow's entry.
    entries: [usize; FLOWS],
    sent: [u32; FLOWS],
    delivered: [u32; FLOWS],
    /// Held queues with entries that are not stored yet.
    held: Vec<Arrivals<usize>>,
    /// Old and new queues of stored entries, before their rounds begin.
    stored: Option<(Vec<usize>, usize)>,
    /// Processors that have been busy since the last store; `None` if no moves have stored yet.
    in_flight: Option<Vec<usize>>,
    /// Deadline of the moves.
    deadline: Instant,
    /// Outcomes of the last moves.
    outcomes: Vec<Outcome>,
    /// Whether any move was given up.
    given_up: bool,
    /// Whether a queue was held that was full and not being read.
    held_full: bool,
    /// Frames that arrived after a later one.
    overtaken: u32,
    moves: usize,
}

impl World {
    fn new(closing: Closing) -> World {
        let filled = || Arc::new(Filled(Default::default()));
        let ring =
            || Ring { filled: filled(), frames: [None; SLOTS], counts: [0; 3], releasing: 0 };
        let rings: Vec<_> = (0..QUEUES).map(|_| ring()).collect();
        let gates = rings.iter().map(|ring| Gate::new(ring.filled.clone())).collect();
        World {
            closing,
            fence: Fence::new(gates, PROCESSORS),
            rings,
            processors: [None; PROCESSORS],
            entries: [0; FLOWS],
            sent: [0; FLOWS],
            delivered: [0; FLOWS],
            held: Vec::new(),
            stored: None,
            in_flight: None,
            deadline: Instant::now() + Duration::from_secs(3600),
            outcomes: Vec::new(),
            given_up: false,
            held_full: false,
            overtaken: 0,
            moves: 0,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Kernel { processor, flow } => self.kernel(processor, flow),
            Event::Take { queue, most } => self.take(queue, most),
            Event::Release { queue, most } => self.release(queue, most),
            Event::Move(moves) => self.begin(&moves),
            Event::Advance => self.advance(),
        }
    }

    fn kernel(&mut self, processor: usize, flow: usize) {
        self.processors[processor] = match self.processors[processor] {
            None => {
                // Each flow belongs to one processor.
                let flow = flow - flow % PROCESSORS + processor;
                self.sent[flow] += 1;
                Some(Step::Steered((flow, self.sent[flow]), self.entries[flow]))
            }
            Some(Step::Steered(frame, queue)) => {
                let [given, _, released] = self.rings[queue].counts;
                let is_full = given - released == SLOTS;
                if is_full && self.rings[queue].filled.0.iter().all(|filled| filled.load(Relaxed)) {
                    // The reader's next look.
                    self.fence.advance();
                    self.held_full |= self.fence.gate(queue).unwrap().is_held();
                }
                self.rings[queue].counts[0] += usize::from(!is_full);
                (!is_full).then_some(Step::Placed(frame, queue, given))
            }
            Some(Step::Placed(frame, queue, place)) => {
                self.rings[queue].frames[place % SLOTS] = Some(frame);
                self.rings[queue].filled.0[place % SLOTS].store(true, Relaxed);
                None
            }
        };
        if let Some(in_flight) = &mut self.in_flight
            && self.processors[processor].is_none()
        {
            in_flight.retain(|&other| other != processor);
        }
    }

    fn take(&mut self, queue: usize, most: usize) {
        if self.rings[queue].releasing > 0 {
            return;
        }
        let gate = self.fence.gate(queue).unwrap();
        if gate.is_held() {
            self.fence.advance();
        }
        let most = gate.enter().min(most as u64);
        let ring = &mut self.rings[queue];
        let mut count = 0;
        // As in the ring: lent slots are not taken again.
        while count < most
            && ring.counts[1] - ring.counts[2] < SLOTS
            && ring.filled.is_filled(ring.counts[1] as u64)
        {
            ring.counts[1] += 1;
            count += 1;
        }
        gate.leave(count);
    }

    fn release(&mut self, queue: usize, most: usize) {
        let ring = &mut self.rings[queue];
        let gate = self.fence.gate(queue).unwrap();
        let [_, taken, released] = ring.counts;
        if ring.releasing == 0 {
            gate.begin_release();
            ring.releasing = taken - released;
            for place in released..taken {
                let (flow, number) = ring.frames[place % SLOTS].take().unwrap();
                self.overtaken += u32::from(number < self.delivered[flow]);
                assert_ne!(number, self.delivered[flow], "delivered twice");
                self.delivered[flow] = number.max(self.delivered[flow]);
            }
        }
        let end = taken.min(released + most);
        (released..end).for_each(|place| ring.filled.0[place % SLOTS].store(false, Relaxed));
        ring.counts[2] = end;
        if end == taken {
            gate.release(ring.releasing as u64);
            ring.releasing = 0;
        }
    }

    fn is_moving(&self) -> bool {
        !self.held.is_empty() || self.stored.is_some() || self.in_flight.is_some()
    }

    /// Begins the first batch of some moves.
    fn begin(&mut self, moves: &[(usize, usize)]) {
        if self.is_moving() {
            return;
        }
        let moves: BTreeMap<usize, usize> = moves.iter().copied().collect();
        let moves = moves.into_iter().map(|(flow, to)| (self.entries[flow], to, flow));
        let batch = if self.closing == Closing::OneBatch {
            let single = |(from, to, flow)| Arrivals { to, from: vec![from], moves: vec![flow] };
            let mut batch: Vec<_> = moves.filter(|(from, to, _)| from != to).map(single).collect();
            batch.sort_by_key(|arrivals| arrivals.to);
            batch.dedup_by_key(|arrivals| arrivals.to);
            batch
        } else {
            batches(moves).into_iter().next().unwrap_or_default()
        };
        self.moves += batch.len();
        if self.closing == Closing::Nothing {
            batch.iter().for_each(|arrivals| self.store(arrivals));
            return;
        }
        for arrivals in &batch {
            self.fence.hold(arrivals.to, self.deadline);
            assert!(self.fence.is_stopped(arrivals.to));
        }
        self.held = batch;
    }

    fn store(&mut self, arrivals: &Arrivals<usize>) {
        arrivals.moves.iter().for_each(|&flow| self.entries[flow] = arrivals.to);
    }

    /// Runs one step of the mover: it stores the entries of a queue, begins its rounds, or checks.
    /// Frames arrive in between.
    fn advance(&mut self) {
        if let Some((from, to)) = self.stored.take() {
            self.fence.begin(to, &from);
            let is_early = self.closing == Closing::EarlyGrace;
            if is_early && self.in_flight.is_none() || !is_early && self.held.is_empty() {
                let busy = |processor: &usize| self.processors[*processor].is_some();
                self.in_flight = Some((0..PROCESSORS).filter(busy).collect());
                if self.closing == Closing::OneRound {
                    self.fence.grace_is_over();
                    self.fence.begin(to, &from);
                }
            }
            return;
        }
        if let Some(arrivals) = self.held.pop() {
            self.store(&arrivals);
            self.stored = Some((arrivals.from, arrivals.to));
            return;
        }
        if self.in_flight.as_ref().is_some_and(Vec::is_empty) {
            self.fence.grace_is_over();
        }
        self.fence.advance();
        if self.in_flight.is_some()
            && let Some(outcomes) = self.fence.outcomes()
        {
            self.given_up |= outcomes.iter().any(|outcome| outcome.given_up);
            (self.in_flight, self.outcomes) = (None, outcomes);
        }
    }

    /// Runs all parts until nothing is left.
    fn settle(&mut self) {
        for processor in 0..PROCESSORS {
            while self.processors[processor].is_some() {
                self.kernel(processor, 0);
            }
        }
        for _ in 0..30 {
            for queue in 0..QUEUES {
                self.take(queue, SLOTS);
                self.release(queue, SLOTS);
            }
            self.advance();
        }
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let queue = || 0..QUEUES;
    let event = prop_oneof![
        12 => (0..PROCESSORS, 0..FLOWS)
            .prop_map(|(processor, flow)| Event::Kernel { processor, flow }),
        3 => (queue(), 1..=SLOTS).prop_map(|(queue, most)| Event::Take { queue, most }),
        4 => (queue(), 1..=SLOTS).prop_map(|(queue, most)| Event::Release { queue, most }),
        1 => vec((0..FLOWS, queue()), 1..6).prop_map(Event::Move),
        2 => Just(Event::Advance),
    ];
    vec(event, 0..400)
}

/// Returns what went wrong at the end of the events, and otherwise whether frames moved in order.
fn judge(closing: Closing, events: Vec<Event>) -> Result<bool, TestCaseError> {
    let mut world = World::new(closing);
    events.into_iter().for_each(|event| world.happen(event));
    world.settle();
    prop_assert!(!world.is_moving(), "a move never ends");
    prop_assert!(
        world.rings.iter().all(|ring| ring.counts[0] == ring.counts[2]),
        "frames are left"
    );
    prop_assert!(!world.held_full, "a full queue is held");
    prop_assert!(world.given_up || world.overtaken == 0, "frames were overtaken");
    Ok(world.moves > 0 && !world.given_up)
}

/// Returns in how many cases frames moved in order.
fn run(closing: Closing, cases: u32) -> Result<u32, String> {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let in_order = Cell::new(0);
    let result = TestRunner::new(config).run(&events(), |events| {
        in_order.set(in_order.get() + u32::from(judge(closing, events)?));
        Ok(())
    });
    result.map(|()| in_order.get()).map_err(|error| error.to_string())
}

/// A full ring was held until the old queue was read, and the kernel dropped meanwhile.
#[test]
fn no_frame_overtakes_another_of_its_flow_and_no_full_ring_is_held_whatever_the_order_of_steps() {
    let in_order = run(Closing::Rounds, 3000).unwrap();
    assert!(in_order > 500, "{in_order}");
}

/// The same events must find the overtaking that the fence prevents, the gap that the grace period
/// closes, and the deadlock that batches prevent.
#[test]
fn less_than_a_fence_lets_frames_overtake_others_and_without_batches_moves_never_end() {
    let [overtaken, endless] = ["overtaken", "never ends"];
    let closings = [
        (Closing::Nothing, overtaken),
        (Closing::OneRound, overtaken),
        (Closing::EarlyGrace, overtaken),
        (Closing::OneBatch, endless),
    ];
    for (closing, what) in closings {
        let found = run(closing, 200_000).unwrap_err();
        assert!(found.contains(what), "{found}");
    }
}

/// The program has read the old entry, and its frame has no slot yet when the old queue is found
/// empty.
#[test]
fn a_frame_in_the_making_is_not_overtaken() {
    let overtaken = |closing| {
        let mut world = World::new(closing);
        world.kernel(0, 0);
        world.begin(&[(0, 1)]);
        (0..2).for_each(|_| world.advance());
        // The frame gets its slot and the next one follows it, to the new queue.
        (0..5).for_each(|_| world.kernel(0, 0));
        for queue in [1, 0, 1] {
            world.take(queue, SLOTS);
            world.release(queue, SLOTS);
        }
        world.settle();
        assert_eq!((world.delivered[0], world.moves), (2, 1));
        world.overtaken
    };
    assert_eq!([Closing::OneRound, Closing::Rounds].map(overtaken), [1, 0]);
}

/// The old queue's ring is full, its reader gives slots back one by one, and the kernel refills the
/// first of them at once. That frame lay behind all slots that the fence had checked, and the next
/// one of its flow overtook it.
#[test]
fn a_frame_in_a_slot_just_given_back_is_not_overtaken() {
    let mut world = World::new(Closing::Rounds);
    (0..3 * SLOTS).for_each(|_| world.kernel(0, 0));
    world.take(0, SLOTS);
    world.release(0, 1);
    // Its entry is read, it gets the slot and fills it; the next one is for the new queue.
    (0..3).for_each(|_| world.kernel(0, 0));
    world.begin(&[(0, 1)]);
    world.advance();
    (0..3).for_each(|_| world.kernel(0, 0));
    world.advance();
    world.release(0, SLOTS);
    world.take(1, SLOTS);
    world.release(1, SLOTS);
    world.settle();
    assert_eq!((world.delivered[0], world.overtaken), (8, 0));
}

#[test]
fn frames_that_waited_are_counted() {
    let mut world = World::new(Closing::Rounds);
    (0..9).for_each(|_| world.kernel(0, 0));
    world.begin(&[(0, 2)]);
    world.advance();
    (0..6).for_each(|_| world.kernel(0, 0));
    world.take(2, SLOTS);
    assert_eq!(world.rings[2].counts[1], 0, "the old queue has not been read");
    assert_eq!(world.fence.outcomes(), None);
    world.settle();
    assert_eq!((world.sent[0], world.delivered[0], world.rings[2].counts[1]), (5, 5, 2));
    let [outcome] = world.outcomes[..] else { panic!("{:?}", world.outcomes) };
    assert_eq!((outcome.held_frames, outcome.given_up), (2, false));
}

/// Only the thread that asked for the move ended it: while that slept the queue was held, for 10 ms
/// and more.
#[test]
fn a_held_queue_s_reader_ends_the_move_by_itself_at_the_deadline() {
    for begins in [true, false] {
        let mut world = World::new(Closing::Rounds);
        let patience = Duration::from_millis(30);
        world.deadline = Instant::now() + patience;
        (0..9).for_each(|_| world.kernel(0, 0));
        world.begin(&[(0, 2)]);
        world.advance();
        if begins {
            world.advance();
        }
        (0..6).for_each(|_| world.kernel(0, 0));
        world.take(2, SLOTS);
        assert_eq!(world.rings[2].counts[1], 0, "it is not time");
        std::thread::sleep(patience);
        world.take(2, SLOTS);
        assert_eq!(world.rings[2].counts[1], 2, "it is");
        world.fence.begin(2, &[0]);
        let [outcome] = world.fence.outcomes().unwrap()[..] else { panic!("one move") };
        assert_eq!((outcome.given_up, outcome.held_frames), (true, 2));
        assert!(outcome.held >= patience && !world.fence.gate(2).unwrap().is_held());
    }
}

/// A queue that is not read blocked unrelated queues.
#[test]
fn each_new_queue_waits_for_its_own_old_ones_only() {
    let mut world = World::new(Closing::Rounds);
    world.entries = [0, 1, 0, 1];
    (0..3).for_each(|_| world.kernel(0, 0));
    (0..3).for_each(|_| world.kernel(1, 1));
    world.begin(&[(0, 2), (1, 3)]);
    (0..4).for_each(|_| world.advance());
    (0..3).for_each(|_| world.kernel(0, 0));
    (0..3).for_each(|_| world.kernel(1, 1));
    // Queue 0 is not read.
    for queue in [1, 3, 3, 2, 2] {
        world.take(queue, SLOTS);
        world.release(queue, SLOTS);
        world.advance();
    }
    assert_eq!([2, 3].map(|queue| world.rings[queue].counts[1]), [0, 1]);
    world.settle();
    assert_eq!((world.delivered, world.overtaken), ([2, 2, 0, 0], 0));
    assert_eq!(
        world.outcomes.iter().map(|outcome| outcome.given_up).collect::<Vec<_>>(),
        [false; 2]
    );
}

/// A queue with a nearly full ring was held, for queues with frames for another whole ring.
#[test]
fn a_move_fits_if_the_new_queue_has_room_for_what_waits_in_both() {
    let mut world = World::new(Closing::Rounds);
    world.entries = [0, 1, 0, 2];
    // Three frames each in queues 0 and 1, one in queue 2.
    (0..9).for_each(|_| world.kernel(0, 0));
    (0..9).for_each(|_| world.kernel(1, 1));
    (0..3).for_each(|_| world.kernel(1, 3));
    let fits = |moves: &[(usize, usize)]| world.fence.fits(moves.iter().copied());
    assert_eq!(fits(&[(0, 2), (1, 2), (0, 2), (3, 2)]), [true, false, true, true]);
    assert_eq!(fits(&[(1, 2), (0, 2), (0, 3), (1, 3)]), [true, false, true, false]);
}

/// No entry of a queue under a flood could ever leave it: its ring never had less.
#[test]
fn a_full_ring_is_relieved_by_one_that_is_half_empty() {
    let mut world = World::new(Closing::Rounds);
    world.entries = [0, 1, 0, 2];
    (0..3 * SLOTS).for_each(|_| world.kernel(0, 0));
    (0..3 * (SLOTS / 2)).for_each(|_| world.kernel(1, 1));
    let fits = |world: &World| world.fence.fits([(0, 1), (0, 3)].into_iter());
    assert_eq!(fits(&world), [true, true]);
    (0..3).for_each(|_| world.kernel(1, 1));
    assert_eq!(fits(&world), [false, true]);
}
