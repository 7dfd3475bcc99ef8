//! Delivers through a team: each frame to one member that is alive.
//!
//! Workers deliver in parallel: each call has its own scratch, and the members' queues have their
//! own locks. A member found down in the middle of a call is taken out, and frames that it did not
//! take go to the others in the same call.

use super::Shared;
use super::choose::{Chooser, Way};
use super::mask::{Mask, PLACES, Place};
use super::place::Slot;
use super::state::count;
use crate::{Egress, EgressDrop, Nanos, Outgoing, PortFault, Room, lock, recycle};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The egress side of a team. See [`Egress`].
pub struct TeamEgress {
    shared: Arc<Shared>,
    /// One for each worker that was delivering at a time.
    scratch: Mutex<Vec<Scratch>>,
    /// The largest number of members that a room was summed over.
    most_members: AtomicUsize,
}

/// Scratch of one call, kept for its allocations.
#[derive(Default)]
struct Scratch {
    /// The frames to deliver, as their places in the burst, with the members they leave by.
    leaving: Vec<Leaving>,
    /// Frames that a down member did not take.
    left_over: Vec<usize>,
    /// Headers with a changed source, one behind the other.
    headers: Vec<u8>,
    list: Vec<Outgoing<'static>>,
    /// The place in the burst of each frame of `list`.
    numbers: Vec<usize>,
    drops: Vec<(usize, EgressDrop)>,
}

/// Arguments of one call.
#[derive(Clone, Copy)]
struct Call<'c, 'f> {
    shared: &'c Shared,
    now: Nanos,
    frames: &'c [Outgoing<'f>],
}

/// A frame and the member it leaves by.
#[derive(Clone, Copy)]
struct Leaving {
    number: usize,
    place: Place,
    /// Range of its header in [`Scratch::headers`], if its source is changed.
    header: Option<(usize, usize)>,
}

impl TeamEgress {
    pub(super) fn new(shared: Arc<Shared>) -> TeamEgress {
        TeamEgress { shared, scratch: Mutex::default(), most_members: AtomicUsize::new(0) }
    }
}

impl Egress for TeamEgress {
    /// Delivers without a clock: all frames have the same time.
    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        self.deliver_at(Nanos(0), frames, drops)
    }

    fn deliver_at(
        &self,
        now: Nanos,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        let mut scratch = lock(&self.scratch).pop().unwrap_or_default();
        scratch.left_over.extend(0..frames.len());
        let before = drops.len();
        let call = Call { shared: &self.shared, now, frames };
        // Each round has one member less.
        for _ in 0..=PLACES {
            let alive = self.shared.state.alive();
            scratch.choose(call, alive, drops);
            for place in alive.places() {
                scratch.deliver(call, place, drops);
            }
            if scratch.left_over.is_empty() {
                break;
            }
        }
        drops.extend(scratch.left_over.drain(..).map(|number| (number, EgressDrop::Down)));
        drops.get_mut(before..).unwrap_or_default().sort_unstable_by_key(|(number, _)| *number);
        lock(&self.scratch).push(scratch);
        Ok(())
    }

    fn kernel_ns(&self) -> u32 {
        self.shared.kernel_ns
    }

    /// Returns the sum of the rooms of all members that are alive: a member without room drops only
    /// frames of its own flows. A member that went away counts as the average of the others;
    /// otherwise the rest would be short for good compared with the former sum.
    fn room(&self) -> Option<Room> {
        let of = |place| self.shared.slot(place)?.egress().as_ref()?.room();
        let rooms = self.shared.state.alive().places().filter_map(of).map(|room| (room, 1));
        let (room, count) = rooms.reduce(|(sum, count), (room, _)| (plus(sum, room), count + 1))?;
        let most = self.most_members.fetch_max(count, Relaxed).max(count);
        let of_most = |amount: usize| amount * most / count;
        Some(Room { buffers: of_most(room.buffers), bytes: of_most(room.bytes), ..room })
    }
}

impl Scratch {
    /// Chooses a member for each frame that is left over.
    fn choose(&mut self, of: Call<'_, '_>, alive: Mask, drops: &mut Vec<(usize, EgressDrop)>) {
        self.leaving.clear();
        self.headers.clear();
        let state = &of.shared.state;
        let mut chooser = Chooser::new(state, alive, of.now);
        for number in self.left_over.drain(..) {
            let Some(frame) = of.frames.get(number) else { continue };
            match chooser.choose(frame) {
                Err(drop) => drops.push((number, drop)),
                Ok(Way { place, is_home }) => {
                    let header = (!is_home).then(|| {
                        let start = self.headers.len();
                        self.headers.extend_from_slice(frame.header);
                        let source = self.headers.get_mut(start + 6..start + 12);
                        let mac = state.mac(place).0;
                        source.into_iter().for_each(|source| source.copy_from_slice(&mac));
                        (start, self.headers.len())
                    });
                    self.leaving.push(Leaving { number, place, header });
                }
            }
        }
    }

    /// Delivers the frames that leave by one member.
    fn deliver(&mut self, of: Call<'_, '_>, place: Place, drops: &mut Vec<(usize, EgressDrop)>) {
        let mut list: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.list));
        self.numbers.clear();
        let mut replaced = 0;
        for leaving in self.leaving.iter().filter(|leaving| leaving.place == place) {
            let Some(frame) = of.frames.get(leaving.number) else { continue };
            let other = leaving.header.and_then(|(start, end)| self.headers.get(start..end));
            replaced += u64::from(other.is_some());
            list.push(Outgoing { header: other.unwrap_or(frame.header), ..*frame });
            self.numbers.push(leaving.number);
        }
        if !list.is_empty() {
            let lost = hand_over(of.shared, place, &list, &mut self.drops);
            let size = |at: &usize| list.get(*at).map_or(0, |frame| u64::from(frame.len));
            let bytes: u64 = (0..list.len()).map(|at| size(&at)).sum();
            let dropped: u64 = self.drops.iter().map(|(at, _)| size(at)).sum();
            let sent = list.len().saturating_sub(self.drops.len());
            of.count(place, sent as u64, bytes.saturating_sub(dropped), replaced);
            for (at, drop) in self.drops.drain(..) {
                let Some(number) = self.numbers.get(at) else { continue };
                match drop {
                    EgressDrop::Down if lost => drops.push((*number, EgressDrop::PathDown)),
                    EgressDrop::Down => self.left_over.push(*number),
                    other => drops.push((*number, other)),
                }
            }
        }
        self.list = recycle(list);
    }
}

impl Call<'_, '_> {
    fn count(&self, place: Place, frames: u64, bytes: u64, replaced: u64) {
        let Call { shared, now, .. } = self;
        if shared.state.is_dynamic() {
            let room = shared.slot(place).and_then(|slot| slot.egress().as_ref()?.room());
            let waiting = room.map_or(0, |room| room.waiting as u64);
            shared.state.flowlets.count(place, bytes, waiting, *now);
        }
        if let Some(counters) = shared.state.counters(place) {
            count(&counters.egress_frames, frames);
            count(&counters.egress_bytes, bytes);
            count(&counters.replaced_sources, replaced);
        }
    }
}

fn plus(one: Room, other: Room) -> Room {
    Room {
        buffers: one.buffers + other.buffers,
        bytes: one.bytes + other.bytes,
        waiting: one.waiting + other.waiting,
    }
}

/// Gives frames to a member; those not taken are in `drops`. Returns `true` if the member failed:
/// which frames it took is not known, so all count as lost.
fn hand_over(
    shared: &Shared,
    place: Place,
    list: &[Outgoing<'_>],
    drops: &mut Vec<(usize, EgressDrop)>,
) -> bool {
    let slot = shared.slot(place).map(Slot::egress);
    let queue = slot.as_ref().and_then(|queue| queue.as_ref());
    // No queue: the member left the team in this moment.
    let fault = queue.and_then(|queue| queue.deliver(list, drops).err());
    if matches!(fault, Some(PortFault::Gone(_))) {
        shared.state.has_gone(place);
    }
    let failed = fault.is_some();
    if failed || queue.is_none() {
        drops.clear();
        drops.extend((0..list.len()).map(|at| (at, EgressDrop::Down)));
    }
    if drops.iter().any(|(_, drop)| *drop == EgressDrop::Down) {
        shared.state.fell(place);
    }
    failed
}
