//! Random driver programs against the device, in both formats with every combination of features.
//!
//! A program is a list of steps that driver and device take in turns of any order. The model behind
//! it is two queues of serial numbers: what was added must be taken in that order, what was taken
//! must come back once and in that order. And a side that went to sleep must be woken by the step
//! of the other that gives it something to do.

use crate::guest::{self, BUFFER_REGION, Guest, readable, writable};
use guestmem::Gpa;
use proptest::prelude::*;
use std::collections::VecDeque;
use test_guest::driver::{Buffer, Driver, Shape};
use virtqueue::{BatchNumber, FrameBuffers, Limit, Queue, Reserved, RingFeatures};

/// Bytes of buffer memory a chain in flight has to itself.
const STRIDE: u64 = 16 * 1024;

#[derive(Clone, Debug)]
enum Step {
    /// The driver adds a chain with buffers of these lengths.
    Add(Vec<u16>, bool),
    Publish,
    Reap,
    DriverSleeps,
    DriverWakes,
    /// The device takes so many chains, or delivers so many frames.
    Take(usize),
    /// The device gives so many back, or publishes.
    Complete(usize),
    /// What was delivered is a batch; one of those that are open ends.
    BeginBatch,
    EndBatch(usize),
    DeviceSleeps,
    DeviceWakes,
    /// The device is replaced by a successor at its base.
    Resume,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lengths = proptest::collection::vec(1u16..800, 1..7);
    let step = prop_oneof![
        6 => (lengths, any::<bool>()).prop_map(|(lengths, indirect)| Step::Add(lengths, indirect)),
        3 => Just(Step::Publish),
        2 => Just(Step::Reap),
        1 => Just(Step::DriverSleeps),
        1 => Just(Step::DriverWakes),
        3 => (1usize..12).prop_map(Step::Take),
        3 => (1usize..12).prop_map(Step::Complete),
        2 => Just(Step::BeginBatch),
        2 => (0usize..4).prop_map(Step::EndBatch),
        1 => Just(Step::DeviceSleeps),
        1 => Just(Step::DeviceWakes),
        1 => Just(Step::Resume),
    ];
    proptest::collection::vec(step, 1..300)
}

fn features() -> impl Strategy<Value = RingFeatures> {
    (0u8..16).prop_map(|bits| {
        let all = [
            RingFeatures::RING_PACKED,
            RingFeatures::EVENT_IDX,
            RingFeatures::IN_ORDER,
            RingFeatures::INDIRECT_DESC,
        ];
        all.into_iter()
            .enumerate()
            .filter(|(place, _)| bits & 1 << place != 0)
            .map(|(_, bit)| bit)
            .collect()
    })
}

/// A chain the driver has in the ring.
struct InFlight {
    id: u16,
    serial: u32,
    buffers: Vec<Buffer>,
}

/// The guest, its driver, and what must be true about them.
struct World {
    guest: Guest,
    driver: Driver,
    write: bool,
    /// Added, oldest first; the front part may be published, taken, completed.
    in_flight: VecDeque<InFlight>,
    published: usize,
    /// Given back by the device, not reaped.
    returned: usize,
    serial: u32,
    driver_sleeps: bool,
    device_sleeps: bool,
}

impl World {
    fn new(size: u16, features: RingFeatures, write: bool) -> World {
        let guest = Guest::new(size, features);
        let mut driver = guest.driver();
        driver.disarm();
        World {
            guest,
            driver,
            write,
            in_flight: VecDeque::new(),
            published: 0,
            returned: 0,
            serial: 0,
            driver_sleeps: false,
            device_sleeps: false,
        }
    }

    fn add(&mut self, lengths: &[u16], indirect: bool) {
        let slots = guest::BUFFER_REGION_SIZE / STRIDE;
        if self.in_flight.len() as u64 >= slots {
            return;
        }
        let mut gpa = BUFFER_REGION + u64::from(self.serial) % slots * STRIDE;
        let mut buffers = Vec::new();
        for (place, len) in lengths.iter().enumerate() {
            // The first one has room for a serial number.
            let len = u32::from(*len) + if place == 0 { 4 } else { 0 };
            buffers.push(if self.write { writable(gpa, len) } else { readable(gpa, len) });
            gpa += u64::from(len) + 3;
        }
        let indirect = indirect && self.guest.setup.features.contains(RingFeatures::INDIRECT_DESC);
        let shape = if indirect { Shape::Indirect } else { Shape::Direct };
        let Some(id) = self.driver.add(&buffers, shape) else { return };
        if !self.write {
            self.guest.memory.write(buffers[0].gpa, &self.serial.to_ne_bytes());
        }
        self.in_flight.push_back(InFlight { id, serial: self.serial, buffers });
        self.serial += 1;
    }

    fn publish(&mut self) {
        let new = self.in_flight.len() > self.published;
        self.published = self.in_flight.len();
        let kick = self.driver.publish();
        assert!(new || !kick, "a kick for nothing");
        assert!(kick || !new || !self.device_sleeps, "the device sleeps through a publish");
        self.device_sleeps &= !kick;
    }

    /// The device has given chains back.
    fn gave_back(&mut self, count: usize, notify: bool) {
        self.returned += count;
        assert!(count > 0 || !notify, "a notification for nothing");
        assert!(notify || count == 0 || !self.driver_sleeps, "the driver sleeps through a publish");
        self.driver_sleeps &= !notify;
    }

    /// Reaps everything; each chain with the bytes written to it.
    fn reap(&mut self) -> Vec<(InFlight, u32)> {
        let mut reaped = Vec::new();
        while let Some(used) = self.driver.reap() {
            let chain = self.in_flight.pop_front().expect("only what was added comes back");
            assert_eq!(used.id, chain.id, "chains come back in the order they were added");
            reaped.push((chain, used.len));
        }
        assert_eq!(reaped.len(), self.returned, "each comes back once");
        self.returned = 0;
        self.published -= reaped.len();
        reaped
    }

    /// Steps that are the same in both directions; `lent` chains are in the device's hands.
    fn common(&mut self, step: &Step, queue: &mut Queue, lent: usize) {
        match step {
            Step::Add(lengths, indirect) => self.add(lengths, *indirect),
            Step::Publish => self.publish(),
            Step::DriverSleeps => {
                let waiting = self.driver.arm();
                assert_eq!(waiting, self.returned > 0, "what is there is seen");
                self.driver_sleeps = !waiting;
            }
            Step::DriverWakes => {
                self.driver.disarm();
                self.driver_sleeps = false;
            }
            Step::DeviceSleeps if lent == 0 => {
                let waiting = queue.arm();
                assert_eq!(waiting, self.published > self.returned, "what is there is seen");
                self.device_sleeps = !waiting;
            }
            Step::DeviceWakes => {
                queue.disarm();
                self.device_sleeps = false;
            }
            Step::Resume if lent == 0 => {
                let setup = virtqueue::Setup { base: queue.base(), ..self.guest.setup };
                *queue = Queue::resume(self.guest.memory.clone(), &setup, None).unwrap();
                queue.set_enabled(true);
            }
            _ => {}
        }
    }
}

/// Guest to switch.
fn run_ingress(world: &mut World, queue: &mut Queue, steps: &[Step]) {
    let mut lent = 0;
    for step in steps {
        match step {
            Step::Reap => world.reap().iter().for_each(|(_, len)| assert_eq!(*len, 0)),
            Step::Take(count) => {
                let limit = Limit { chains: *count, bytes: usize::MAX };
                let taken = queue.take(limit).unwrap();
                let waiting = world.published - world.returned - lent;
                assert_eq!(taken, waiting.min(*count), "all that is there is taken");
                lent += taken;
                let oldest = world.in_flight.iter().skip(world.returned);
                assert_eq!(queue.taken().count(), lent);
                for (elements, chain) in queue.taken().zip(oldest) {
                    check_pieces(&world.guest, elements, chain);
                }
            }
            Step::Complete(count) => {
                let count = (*count).min(lent);
                let notify = queue.complete(count);
                lent -= count;
                world.gave_back(count, notify);
            }
            step => world.common(step, queue, lent),
        }
    }
    world.publish();
    while queue.take(Limit { chains: 7, bytes: 1 }).unwrap() > 0 {}
    let left = queue.taken().count();
    world.returned += left;
    queue.complete(left);
    world.reap();
    assert!(world.in_flight.is_empty(), "nothing is lost");
}

fn check_pieces(guest: &Guest, elements: &[virtqueue::ChainElement], chain: &InFlight) {
    let found: Vec<_> =
        elements.iter().map(|element| (guest.gpa_of(element), element.len)).collect();
    let expected: Vec<_> =
        chain.buffers.iter().map(|buffer| (buffer.gpa.0, buffer.len as usize)).collect();
    assert_eq!(found, expected);
    assert_eq!(guest.read(found[0].0, 4), chain.serial.to_ne_bytes());
}

/// Switch to guest: frame after frame into mergeable buffers; the bytes that come back are
/// compared.
fn run_egress(world: &mut World, queue: &mut Queue, steps: &[Step]) {
    let mut sent: VecDeque<Vec<u8>> = VecDeque::new();
    // Buffers of each frame that is published, and of those that are not.
    let (mut buffers, mut unpublished) = (VecDeque::new(), Vec::new());
    let mut batches = Batches::default();
    for (turn, step) in steps.iter().enumerate() {
        match step {
            Step::Reap => receive(world, &mut sent, &mut buffers),
            Step::Take(count) => {
                for frame in 0..*count {
                    let bytes: Vec<u8> =
                        (0..turn * 7 % 1500 + frame * 31).map(|byte| (byte ^ turn) as u8).collect();
                    let Reserved::Buffers(room) = queue.reserve(bytes.len() as u32, 3).unwrap()
                    else {
                        continue;
                    };
                    copy_in(&world.guest, room, &bytes);
                    sent.push_back(bytes);
                    unpublished.push(room.buffers);
                }
            }
            Step::Complete(_) => {
                batches.0.push_back((None, std::mem::take(&mut unpublished)));
                let notify = queue.publish();
                batches.publish(world, &mut buffers, notify);
            }
            Step::BeginBatch => {
                let number = queue.begin_batch();
                batches.0.push_back((Some(number), std::mem::take(&mut unpublished)));
            }
            Step::EndBatch(place) => {
                if let Some(number) = batches.take_open(*place) {
                    let notify = queue.end_batch(number);
                    batches.publish(world, &mut buffers, notify);
                }
            }
            // What was looked up ahead and is not used is found again by a successor.
            step => world.common(
                step,
                queue,
                unpublished.len()
                    + batches.0.len()
                    + usize::from(matches!(step, Step::DeviceSleeps)),
            ),
        }
    }
    world.publish();
    batches.0.push_back((None, unpublished));
    let notify = queue.publish();
    batches.publish(world, &mut buffers, notify);
    while let Some(number) = batches.take_open(0) {
        let notify = queue.end_batch(number);
        batches.publish(world, &mut buffers, notify);
    }
    receive(world, &mut sent, &mut buffers);
    assert!(sent.is_empty(), "no frame is lost");
}

/// What was published or begun and is not handed over, oldest first: the number of a batch that is
/// open, and the buffers of each frame.
#[derive(Default)]
struct Batches(VecDeque<(Option<BatchNumber>, Vec<u16>)>);

impl Batches {
    /// Returns the number of one of the open batches, which is written now.
    fn take_open(&mut self, place: usize) -> Option<BatchNumber> {
        let open = self.0.iter_mut().filter(|(number, _)| number.is_some());
        let mut open: Vec<_> = open.collect();
        let place = place % open.len().max(1);
        open.get_mut(place)?.0.take()
    }

    /// All up to the first open one are handed over.
    fn publish(&mut self, world: &mut World, buffers: &mut VecDeque<u16>, notify: bool) {
        let mut count = 0;
        while self.0.front().is_some_and(|(number, _)| number.is_none()) {
            let (_, written) = self.0.pop_front().unwrap();
            count += written.iter().map(|buffers| usize::from(*buffers)).sum::<usize>();
            buffers.extend(written);
        }
        world.gave_back(count, notify);
    }
}

fn copy_in(guest: &Guest, room: FrameBuffers<'_>, bytes: &[u8]) {
    let mut left = bytes;
    for element in room.elements {
        let (now, later) = left.split_at(left.len().min(element.len));
        assert!(guest.memory.write(Gpa(guest.gpa_of(element)), now));
        left = later;
    }
    assert!(left.is_empty(), "there is room for the frame");
}

/// The guest puts frames together from the buffers that came back.
fn receive(world: &mut World, sent: &mut VecDeque<Vec<u8>>, buffers: &mut VecDeque<u16>) {
    let mut chains = world.reap().into_iter();
    while let Some(count) = (chains.len() > 0).then(|| buffers.pop_front().unwrap()) {
        let mut bytes = Vec::new();
        for (chain, mut len) in chains.by_ref().take(usize::from(count)) {
            for buffer in chain.buffers {
                let part = len.min(buffer.len);
                bytes.extend(world.guest.read(buffer.gpa.0, part as usize));
                len -= part;
            }
            assert_eq!(len, 0, "no more than fits was written");
        }
        assert_eq!(Some(bytes), sent.pop_front());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn ingress_programs(features in features(), size in 1u16..40, power in 0u32..7, steps in steps()) {
        run(features, size, power, false, &steps);
    }

    #[test]
    fn egress_programs(features in features(), size in 1u16..40, power in 0u32..7, steps in steps()) {
        run(features, size, power, true, &steps);
    }
}

/// A packed ring may have any size, a split ring a power of two.
fn run(features: RingFeatures, size: u16, power: u32, write: bool, steps: &[Step]) {
    let packed = features.contains(RingFeatures::RING_PACKED);
    let mut world = World::new(if packed { size } else { 1 << power }, features, write);
    let mut queue = world.guest.queue();
    queue.disarm();
    match write {
        false => run_ingress(&mut world, &mut queue, steps),
        true => run_egress(&mut world, &mut queue, steps),
    }
}
