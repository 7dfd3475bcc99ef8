//! The decision about a frame: whether it may enter the switch, and to which ports it goes.

use crate::counters::{DropReason, PortCell};
use crate::frame::Frame;
use crate::frame::addresses::Addresses;
use crate::frame::headers::Headers;
use crate::port::bucket::Storm;
use crate::port::macs::{Insertion, MacKey};
use crate::port::view::{Port, destination};
use crate::settings::vlan::Tagging;
use crate::settings::{PortId, PortRole};
use crate::stage::steer::Steerer;
use crate::turn::Turn;
use crate::turn::floods::{self, Floods};
use crate::turn::guests::Guests;
use crate::turn::outbox::{Cause, Outbox, Run, Target};
use crate::turn::work::{self, Meter};
use ports::{Locked, lock};
use std::sync::Arc;
use wire::Mac;

/// The error is the reason why the frame is dropped.
type Verdict = Result<(), DropReason>;

/// The context of decisions, made once for a burst.
pub(crate) struct Decider<'t> {
    turn: &'t Turn<'t>,
    second: u64,
    cell: &'t PortCell,
    /// The port's storm control, refilled; locked from the first flooded frame to the end of the
    /// burst, or until a frame is shown to a capture.
    storm: Option<Locked<'t, Storm>>,
    /// The source address learned last in this burst: most frames have the same.
    learned: Option<MacKey>,
    /// Whether the port has neither an address of its own nor a guard that lets it hold one.
    takes_any_source: bool,
    /// Cost of flooding in this turn, by the low bits of the VLAN; see [`work::TURN_LIMIT`].
    flooded: [u64; 16],
    floods: &'t mut Floods,
    guests: &'t mut Guests,
    meter: &'t mut Meter,
    /// The decision for the last frame that went to one port: most frames are like it.
    last: Option<Decision<'t>>,
    steerer: Steerer,
    /// Whether the frame before the last went to the same port, as far as is known. If it did not,
    /// the next frame is unlikely to.
    keeps_port: bool,
}

/// The decision for a frame that goes to one port. Within a burst it holds for every frame with the
/// same addresses and tag.
struct Decision<'t> {
    addresses: Addresses,
    /// The tags, see [`wire::Parsed::tags`]. The decision does not hold for a frame with another
    /// number of tags.
    tags: u32,
    vlan: u16,
    to: &'t Port,
    /// The fast path: the one egress queue of all such frames. `None` if frames have to be decided
    /// one by one, by a mirror or a choice of queues.
    sole_queue: Option<Target>,
}

impl Decision<'_> {
    /// Admits the frames at the front of the list that the decision holds for. Returns their
    /// number.
    #[inline]
    fn admit(&self, frames: &mut [Frame], headers: &Headers) -> usize {
        let mut count = 0;
        for frame in frames {
            let addresses = Addresses::read(headers.get(frame.header));
            if addresses != Some(self.addresses) || frame.parsed.tags() != self.tags {
                break;
            }
            frame.vlan = self.vlan;
            count += 1;
        }
        count
    }
}

impl<'t> Decider<'t> {
    pub(crate) fn new(
        turn: &'t Turn<'t>,
        cell: &'t PortCell,
        floods: &'t mut Floods,
        guests: &'t mut Guests,
        meter: &'t mut Meter,
    ) -> Decider<'t> {
        let second = turn.now.as_secs();
        let takes_any_source = turn.from.own_mac().is_none() && !turn.from.settings.mac_guard;
        let (storm, learned, last, flooded) = (None, None, None, [0; 16]);
        Decider {
            turn,
            second,
            cell,
            storm,
            learned,
            takes_any_source,
            flooded,
            floods,
            guests,
            meter,
            last,
            steerer: Steerer::new(turn.now),
            keeps_port: true,
        }
    }

    /// Gives the port's storm control back, for others and for whatever touches payload.
    pub(crate) fn unlock(&mut self) {
        self.storm = None;
    }

    /// Puts the first of the frames, at `place` of the turn, into the outbox, once for each queue
    /// that gets it, together with the frames right behind it that take the same fast path. Returns
    /// the number of frames, and the reason if the first is dropped.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        place: usize,
        frames: &mut [Frame],
        headers: &Headers,
        outbox: &mut Outbox,
    ) -> (usize, Verdict) {
        let count = self.admit_alike(frames, headers);
        if count > 0
            && let Some(queue) = self.last.as_ref().and_then(|last| last.sole_queue)
        {
            outbox.push(queue, Run::new(place, count, Cause::Addressed));
            return (count, Ok(()));
        }
        let Some(frame) = frames.first_mut() else { return (1, Ok(())) };
        (1, self.decide_one(frame, headers.get(frame.header), outbox))
    }

    /// Admits the frames at the front of the list that take the same fast path as the last frame.
    /// Returns their number.
    #[inline]
    fn admit_alike(&mut self, frames: &mut [Frame], headers: &Headers) -> usize {
        let mut count = 0;
        while let Some(last) = self.last.as_ref().filter(|last| last.sole_queue.is_some())
            && let Some(rest) = frames.get_mut(count..)
        {
            count += last.admit(rest, headers);
            let next = frames.get(count).filter(|_| self.keeps_port);
            if !next.is_some_and(|next| self.goes_along(next, headers.get(next.header))) {
                break;
            }
        }
        count
    }

    /// Returns whether the last decision holds for a frame with other addresses. If so, the
    /// decision holds for these addresses from now on.
    ///
    /// The tag must be the same, the source known to be at this port, and the destination at the
    /// last frame's port. Group addresses are in no table.
    #[inline]
    fn goes_along(&mut self, frame: &Frame, header: &[u8]) -> bool {
        let Turn { macs, owners, from, .. } = self.turn;
        let (Some(last), Some(addresses)) = (&mut self.last, Addresses::read(header)) else {
            return false;
        };
        let (source, destination) = (addresses.source(), addresses.destination());
        if frame.parsed.tags() != last.tags || is_group(source) || owners.include(destination) {
            return false;
        }
        let [from_key, to_key] = [source, destination].map(|mac| MacKey::new(mac, last.vlan));
        let is_known = || {
            self.takes_any_source
                && !owners.include(source)
                && macs.is_recent(from_key, from.shared.id, self.second)
        };
        if self.learned != Some(from_key) && !is_known() {
            return false;
        }
        self.learned = Some(from_key);
        let alike = macs.lookup(to_key, self.second) == Some(last.to.shared.id);
        if alike {
            last.addresses = addresses;
        }
        alike
    }

    fn decide_one(&mut self, frame: &mut Frame, header: &[u8], outbox: &mut Outbox) -> Verdict {
        // The frame was dropped when it was read, and counted.
        let Some(addresses) = Addresses::read(header) else { return Ok(()) };
        let (vlan, to) = match &self.last {
            Some(last) if last.addresses == addresses && last.tags == frame.parsed.tags() => {
                (last.vlan, last.to)
            }
            _ => return self.decide_anew(frame, addresses, header, outbox),
        };
        frame.vlan = vlan;
        self.mirror(self.turn.from, frame, outbox);
        self.send(to, Cause::Addressed, frame, header, outbox);
        Ok(())
    }

    /// Decides about a frame that is not like the last. Every check that depends on addresses and
    /// tag alone belongs here: it is made once for a run of like frames.
    #[inline(never)]
    fn decide_anew(
        &mut self,
        frame: &mut Frame,
        addresses: Addresses,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Verdict {
        let destination = addresses.destination();
        DropReason::ReservedAddress.when(is_reserved(destination))?;
        self.admit(frame, addresses.source())?;
        self.mirror(self.turn.from, frame, outbox);
        if is_group(destination) {
            return self.flood(frame, header, outbox);
        }
        let Some(to) = self.find(destination, frame)? else {
            return self.flood(frame, header, outbox);
        };
        if !self.is_wanted(to, frame, destination, true) {
            return Ok(());
        }
        let (tags, vlan, sole_queue) = (frame.parsed.tags(), frame.vlan, self.sole_queue(to));
        self.keeps_port = self.last.as_ref().is_none_or(|last| std::ptr::eq(last.to, to));
        self.last = Some(Decision { addresses, tags, vlan, to, sole_queue });
        self.send(to, Cause::Addressed, frame, header, outbox);
        Ok(())
    }

    /// Returns the one egress queue of all frames like this, see [`Decision::sole_queue`].
    fn sole_queue(&self, to: &Port) -> Option<Target> {
        let mirrored = |port: &Port| port.settings.mirror_to.is_some();
        let asked = mirrored(self.turn.from) || mirrored(to);
        Target::sole(to).filter(|_| !asked)
    }

    /// Checks a frame on its way in, cheapest check first. Addresses are learned last.
    fn admit(&mut self, frame: &mut Frame, source: u64) -> Verdict {
        DropReason::BadSource.when(is_group(source))?;
        let vlan = self.turn.from.settings.vlan.admit(&frame.parsed);
        frame.vlan = vlan.ok_or(DropReason::VlanNotAllowed)?;
        self.guard_mac(source)?;
        self.learn(source, frame.vlan)
    }

    /// Applies the MAC-spoofing guard.
    fn guard_mac(&self, source: u64) -> Verdict {
        if !self.turn.from.settings.mac_guard {
            return Ok(());
        }
        let only = self.turn.from.own_mac().map_or_else(|| self.hold(source), Ok)?;
        if source == only { Ok(()) } else { Err(DropReason::MacSpoofed) }
    }

    /// Holds the port to an address, unless another port of one of its VLANs owns it.
    #[cold]
    fn hold(&self, mac: u64) -> Result<u64, DropReason> {
        let Turn { view, owners, from, macs, .. } = self.turn;
        let shares_vlan = |owner: &&Arc<Port>| {
            owner.shared.id != from.shared.id && owner.settings.vlan.overlaps(&from.settings.vlan)
        };
        DropReason::AddressTaken.when(owners.of(view, mac).any(|owner| shares_vlan(&owner)))?;
        // `owners` was read at the round's start. One port at a time checks whether another holds
        // the address since.
        macs.change_owners(|| {
            let mut others = view.all().filter(shares_vlan);
            DropReason::AddressTaken.when(others.any(|other| other.own_mac() == Some(mac)))?;
            macs.has_moved(Mac::from_u64(mac));
            Ok(from.shared.held_mac.get_or_hold(mac, from.shared.live.guest()))
        })
    }

    #[inline]
    fn learn(&mut self, source: u64, vlan: u16) -> Verdict {
        let key = MacKey::new(source, vlan);
        if self.learned != Some(key) {
            if self.turn.from.own_mac() == Some(source) {
                // A port's own address needs no entry. If there is one, the address was behind
                // another port before.
                self.turn.macs.remove(key, self.second);
                self.last = None;
            } else {
                self.refuse_owned(source, vlan)?;
                if !self.turn.macs.refresh(key, self.turn.from.seen(), self.second) {
                    self.learn_anew(key);
                }
            }
            self.learned = Some(key);
        }
        Ok(())
    }

    /// Refuses a source address that belongs to another port, which the port
    /// [may not use](Port::may_not_send_as).
    fn refuse_owned(&self, source: u64, vlan: u16) -> Verdict {
        let is_vnic = self.turn.from.settings.role == PortRole::Vnic;
        let owner = self.owner(source, vlan);
        let refused = owner.is_some_and(|owner| self.turn.from.may_not_send_as(owner));
        if refused && !is_vnic {
            self.cell.returned_frames.add(1);
        }
        DropReason::AddressTaken.when(refused)
    }

    /// Learns an address that is new, or new at this port.
    #[cold]
    fn learn_anew(&mut self, key: MacKey) {
        let (seen, limit) = (self.turn.from.seen(), self.turn.from.settings.mac_limit);
        if self.turn.from.settings.role == PortRole::Uplink && self.is_of_vnic(key) {
            self.cell.returned_frames.add(1);
        }
        self.meter.add(work::OF_LEARNING);
        // The address may have been the last frame's destination.
        self.last = None;
        // A table without room is no reason to drop: frames to the address are flooded.
        if self.turn.macs.insert(key, seen, limit, self.second) == Insertion::Evicted {
            self.cell.evicted_addresses.add(1);
        }
    }

    /// Returns whether an address is learned at a vNIC, or one that runs is held to it.
    fn is_of_vnic(&self, key: MacKey) -> bool {
        let at = self.turn.macs.lookup(key, self.second).and_then(|at| self.turn.view.port(at));
        let holder = || self.owner(key.mac().to_u64(), key.vlan()).map(|owner| &**owner);
        let is_here = |port: &Port| port.settings.role == PortRole::Vnic && port.shared.is_ready();
        at.is_some_and(|at| at.settings.role == PortRole::Vnic) || holder().is_some_and(is_here)
    }

    /// Returns the port of a VLAN that an address belongs to.
    fn owner(&self, mac: u64, vlan: u16) -> Option<&'t Arc<Port>> {
        self.turn.owners.in_vlan(self.turn.view, mac, vlan)
    }

    /// Takes the tokens of a flooded frame out of the port's storm control.
    fn pay_storm(&mut self, frame: &Frame) -> Verdict {
        let Some(storm) = &self.turn.from.storm else { return Ok(()) };
        let now = self.turn.now;
        let storm = self.storm.get_or_insert_with(|| {
            let mut storm = lock(storm);
            storm.refill(now);
            storm
        });
        if storm.take(frame.len.into()) { Ok(()) } else { Err(DropReason::Storm) }
    }

    /// Returns the port that an address is behind, if it is known, carries frames and may be
    /// reached.
    fn find(&self, mac: u64, frame: &Frame) -> Result<Option<&'t Port>, DropReason> {
        let learned = || {
            let port = self.turn.macs.lookup(MacKey::new(mac, frame.vlan), self.second);
            port.and_then(|port| self.turn.view.port(port)).map(|port| &**port)
        };
        let owner = self.owner(mac, frame.vlan).map(|owner| &**owner);
        let Some(to) = destination(owner, learned) else { return Ok(None) };
        DropReason::SamePort.when(to.shared.id == self.turn.from.shared.id)?;
        // Its guest may run on another host by now, so the frame is flooded.
        if !to.shared.is_ready() {
            return Ok(None);
        }
        self.turn.from.may_reach(to)?;
        DropReason::NoPort.when(to.settings.vlan.tagging(frame.vlan).is_none())?;
        Ok(Some(to))
    }

    /// Sends a frame to every port of its VLAN but the one it came from. A frame to a port's own
    /// address goes to that port and the uplinks only.
    fn flood(&mut self, frame: &Frame, header: &[u8], outbox: &mut Outbox) -> Verdict {
        // A VLAN may use half of what the others leave of the limit: one that storms leaves the
        // other half to the VLANs that share the burst.
        let slot = usize::from(frame.vlan) % self.flooded.len();
        let of_vlan = self.flooded.get(slot).copied().unwrap_or_default();
        let spent = self.flooded.iter().sum::<u64>() + of_vlan;
        DropReason::WorkLimit.when(spent >= work::TURN_LIMIT)?;
        let (view, from) = (self.turn.view, self.turn.from);
        let destination = Addresses::read(header).map_or(0, Addresses::destination);
        let owner = self.owner(destination, frame.vlan).map(|owner| owner.shared.id);
        let in_vlan = |to: &&Port| {
            to.shared.id != from.shared.id
                && to.settings.vlan.tagging(frame.vlan).is_some()
                && (to.settings.role == PortRole::Uplink
                    || owner.is_none_or(|owner| owner == to.shared.id))
        };
        let members = || view.all().map(|port| &**port).filter(in_vlan);
        let receivers = || members().filter(|to| from.may_reach(to).is_ok());
        self.meter.add(view.ports.len() as u64 * work::OF_ASKING);
        let count = receivers().take(floods::MANY).count();
        if count == 0 {
            let barred = members().find_map(|to| from.may_reach(to).err());
            return Err(barred.unwrap_or(DropReason::NoPort));
        }
        let is_to_many = count == floods::MANY;
        let is_allowed = !is_to_many || self.floods.allows(from.shared.id, self.turn.now);
        DropReason::WorkLimit.when(!is_allowed)?;
        if is_group(destination) || count > 1 {
            self.pay_storm(frame)?;
        }
        let mut cost = 0;
        for to in receivers() {
            if !self.is_wanted(to, frame, destination, false) {
                continue;
            }
            self.send(to, Cause::Flooded, frame, header, outbox);
            let rests = to.shared.is_at_rest(0, self.turn.now);
            let copy = work::of_copy(frame.len, to.shared.kernel_ns);
            let rules = if to.filter.egress.is_some() { work::OF_FILTERING_ANEW } else { 0 };
            let steering = if Target::sole(to).is_some() { 0 } else { work::OF_STEERING };
            cost += if rests { work::OF_REST } else { copy + rules + steering };
        }
        self.flooded.get_mut(slot).into_iter().for_each(|of_vlan| *of_vlan += cost);
        if is_to_many {
            self.floods.pay(from.shared.id, cost);
        }
        Ok(())
    }

    /// Returns whether the guest at a port wants a frame; one that it does not want is counted.
    /// `is_known`: the destination is at the port.
    #[inline]
    fn is_wanted(&mut self, to: &Port, frame: &Frame, destination: u64, is_known: bool) -> bool {
        !to.shared.live.settings_version().filters()
            || self.ask_filter(to, frame, destination, is_known)
    }

    #[cold]
    #[inline(never)]
    fn ask_filter(&mut self, to: &Port, frame: &Frame, destination: u64, is_known: bool) -> bool {
        let settings = self.guests.settings(&to.shared);
        let Some(filter) = settings.and_then(|settings| settings.filter.as_ref()) else {
            return true;
        };
        let vlan = match to.settings.vlan.tagging(frame.vlan) {
            Some(Tagging::Tagged(vlan)) => Some(vlan),
            _ => None,
        };
        let is_wanted = filter.wants(Mac::from_u64(destination), vlan, is_known);
        if !is_wanted {
            to.cell(self.turn.worker).into_iter().for_each(|cell| cell.unwanted_frames.add(1));
        }
        is_wanted
    }

    #[inline(always)]
    fn send(&mut self, to: &Port, cause: Cause, frame: &Frame, header: &[u8], outbox: &mut Outbox) {
        let run = Run::new(frame.place.into(), 1, cause);
        outbox.push(self.steerer.target(to, frame, header, self.guests), run);
        self.mirror(to, frame, outbox);
    }

    /// Sends a copy to the mirror of a port, if it has one. A mirror's own mirror is not followed.
    #[inline]
    fn mirror(&self, of: &Port, frame: &Frame, outbox: &mut Outbox) {
        if let Some(mirror) = of.settings.mirror_to {
            self.mirror_to(mirror, frame, outbox);
        }
    }

    #[cold]
    fn mirror_to(&self, mirror: PortId, frame: &Frame, outbox: &mut Outbox) {
        let Some(to) = self.turn.view.port(mirror) else { return };
        if to.shared.id != self.turn.from.shared.id {
            outbox.push(Target::first(to), Run::new(frame.place.into(), 1, Cause::Mirrored));
        }
    }
}

/// Returns whether the address is multicast or broadcast.
#[inline]
fn is_group(address: u64) -> bool {
    address >> 40 & 1 != 0
}

/// Returns whether the address is one of 01:80:C2:00:00:00 to 0F: spanning tree, pause, LACP,
/// 802.1X, LLDP.
///
/// No bridge forwards them (IEEE 802.1Q, table 8-1): they are for the next device, which is the
/// switch. The same holds between two uplinks, which such frames would join. A guest may neither
/// send nor see them, so there is no exception.
#[inline]
fn is_reserved(address: u64) -> bool {
    address & !0xf == 0x0180_C200_0000
}
