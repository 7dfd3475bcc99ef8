//! Admit and look up: whether a frame may enter, and where it is to go.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::headers::Headers;
use crate::macs::{MacTable, Station};
use crate::outbox::{Cause, Outbox, Run, Target};
use crate::rate::Bucket;
use crate::settings::PortId;
use crate::view::{Port, View};
use crate::work;
use std::sync::MutexGuard;

/// What deciding needs beside the frame; made once a burst.
pub(crate) struct Decider<'t> {
    pub(crate) view: &'t View,
    /// The port the burst came from.
    pub(crate) from: &'t Port,
    pub(crate) macs: &'t MacTable,
    pub(crate) second: u64,
    /// The port's bucket, refilled.
    pub(crate) bucket: Option<MutexGuard<'t, Bucket>>,
    /// The last source that was learned in this burst: most frames have the same.
    pub(crate) learned: Option<Station>,
    /// What flooding has cost the turn, see [`work::TURN_LIMIT`].
    pub(crate) flooded: u64,
    /// The last frame that went to one port: most frames are like it.
    pub(crate) last: Option<Decided<'t>>,
}

/// What was decided for a frame to one port. Within a burst it holds for every frame with the same addresses and tag.
pub(crate) struct Decided<'t> {
    addresses: Addresses,
    /// See [`wire::Parsed::tags`]: a frame with another number of tags is not decided alike.
    tags: u32,
    vlan: u16,
    to: &'t Port,
    /// Where all such frames go, if there is nothing to be asked about each: no rate, no mirror, no choice of queues.
    straight: Option<Target>,
}

impl Decided<'_> {
    /// How many of the first frames it holds for; they are admitted.
    #[inline]
    fn admit_like(&self, frames: &mut [Frame], headers: &Headers) -> usize {
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
    /// Puts the first of the frames from `place` on into the outbox, as often as it is to go out, or says why it is
    /// dropped. Those right behind it that go the same way go along; how many that are, the first counted.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        place: usize,
        frames: &mut [Frame],
        headers: &Headers,
        outbox: &mut Outbox,
    ) -> (usize, Result<(), DropReason>) {
        if let Some(last) = &self.last
            && let Some(target) = last.straight
        {
            let count = last.admit_like(frames, headers);
            if count > 0 {
                outbox.push(target, Run::new(place, count, Cause::Addressed));
                return (count, Ok(()));
            }
        }
        let Some(frame) = frames.first_mut() else { return (1, Ok(())) };
        (1, self.decide_one(place, frame, headers.get(frame.header), outbox))
    }

    fn decide_one(
        &mut self,
        place: usize,
        frame: &mut Frame,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        // Dropped when it was read, and counted.
        let Some(addresses) = Addresses::read(header) else { return Ok(()) };
        let (vlan, to) = match &self.last {
            Some(last) if last.addresses == addresses && last.tags == frame.parsed.tags() => {
                (last.vlan, last.to)
            }
            _ => return self.decide_anew(place, frame, addresses, header, outbox),
        };
        self.pay(frame)?;
        frame.vlan = vlan;
        self.mirror(self.from, place, outbox);
        self.send(to, place, Cause::Addressed, (header, frame), outbox);
        Ok(())
    }

    /// [`Decider::decide_one`] for a frame that is not like the last.
    #[inline(never)]
    fn decide_anew(
        &mut self,
        place: usize,
        frame: &mut Frame,
        addresses: Addresses,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        let destination = addresses.destination();
        self.admit(frame, addresses.source())?;
        self.mirror(self.from, place, outbox);
        if is_group(destination) {
            return self.flood(place, frame, header, outbox);
        }
        let Some(to) = self.find(Station::new(destination, frame.vlan), frame)? else {
            return self.flood(place, frame, header, outbox);
        };
        let (tags, vlan, straight) = (frame.parsed.tags(), frame.vlan, self.straight(to));
        self.last = Some(Decided { addresses, tags, vlan, to, straight });
        self.send(to, place, Cause::Addressed, (header, frame), outbox);
        Ok(())
    }

    /// See [`Decided::straight`].
    fn straight(&self, to: &Port) -> Option<Target> {
        let mirrored = |port: &Port| port.settings.mirror_to.is_some();
        let asked = self.bucket.is_some() || mirrored(self.from) || mirrored(to);
        Target::sole(to).filter(|_| !asked)
    }

    fn admit(&mut self, frame: &mut Frame, source: u64) -> Result<(), DropReason> {
        if is_group(source) {
            return Err(DropReason::BadSource);
        }
        let settings = &self.from.settings;
        let vlan = settings.vlan.admit(&frame.parsed);
        frame.vlan = vlan.ok_or(DropReason::VlanNotAllowed)?;
        if settings.mac_guard && source != self.only_source(source) {
            return Err(DropReason::MacSpoofed);
        }
        self.pay(frame)?;
        let station = Station::new(source, frame.vlan);
        if self.learned != Some(station) {
            // A table without room is no reason to drop: the station's own traffic is flooded.
            self.macs.learn(station, self.from.shared.id, self.second);
            self.learned = Some(station);
        }
        Ok(())
    }

    /// The address that a guarded port may send from; without a configured one, the first that it sends from.
    fn only_source(&self, source: u64) -> u64 {
        match self.from.settings.mac {
            Some(mac) => mac.to_u64(),
            None => self.from.shared.held_mac.get_or_hold(source),
        }
    }

    /// Takes the frame's tokens out of the port's bucket.
    #[inline]
    fn pay(&mut self, frame: &Frame) -> Result<(), DropReason> {
        let passes = self.bucket.as_mut().is_none_or(|bucket| bucket.admit(frame.len));
        if passes { Ok(()) } else { Err(DropReason::RateLimited) }
    }

    /// The port a station lives behind, if it is known and may be reached.
    fn find(&self, station: Station, frame: &Frame) -> Result<Option<&'t Port>, DropReason> {
        let known = self.macs.lookup(station, self.second).and_then(|port| self.view.port(port));
        let Some(to) = known else { return Ok(None) };
        if to.shared.id == self.from.shared.id {
            return Err(DropReason::SamePort);
        }
        if !self.from.may_reach(to) {
            return Err(DropReason::Isolated);
        }
        if to.settings.vlan.tagging(frame.vlan).is_none() {
            return Err(DropReason::NoPort);
        }
        Ok(Some(to))
    }

    /// To every port of the VLAN but the one it came from.
    fn flood(
        &mut self,
        place: usize,
        frame: &Frame,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        if self.flooded >= work::TURN_LIMIT {
            return Err(DropReason::WorkLimit);
        }
        let (mut sent, mut isolated) = (false, false);
        for to in self.view.all() {
            if to.shared.id == self.from.shared.id || to.settings.vlan.tagging(frame.vlan).is_none()
            {
                continue;
            }
            if !self.from.may_reach(to) {
                isolated = true;
                continue;
            }
            self.send(to, place, Cause::Flooded, (header, frame), outbox);
            self.flooded += work::of_copy(frame.len, to.shared.kernel_ns);
            sent = true;
        }
        match (sent, isolated) {
            (true, _) => Ok(()),
            (false, true) => Err(DropReason::Isolated),
            (false, false) => Err(DropReason::NoPort),
        }
    }

    #[inline(always)]
    fn send(
        &self,
        to: &Port,
        place: usize,
        cause: Cause,
        (header, frame): (&[u8], &Frame),
        outbox: &mut Outbox,
    ) {
        outbox.push(Target::of_flow(to, header, &frame.parsed), Run::new(place, 1, cause));
        self.mirror(to, place, outbox);
    }

    /// A copy for the mirror of a port, if it has one. A mirror's own mirror is not followed.
    #[inline]
    fn mirror(&self, of: &Port, place: usize, outbox: &mut Outbox) {
        if let Some(mirror) = of.settings.mirror_to {
            self.mirror_to(mirror, place, outbox);
        }
    }

    #[cold]
    fn mirror_to(&self, mirror: PortId, place: usize, outbox: &mut Outbox) {
        let Some(to) = self.view.port(mirror) else { return };
        if to.shared.id != self.from.shared.id {
            outbox.push(Target::first(to), Run::new(place, 1, Cause::Mirrored));
        }
    }
}

/// The addresses of a frame as they stand in its first twelve bytes, the middle four twice: compared in two steps.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Addresses(u64, u64);

impl Addresses {
    #[inline]
    fn read(header: &[u8]) -> Option<Addresses> {
        let both: &[u8; 12] = header.first_chunk()?;
        let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        Some(Addresses(both.first_chunk().map(word)?, both.last_chunk().map(word)?))
    }

    /// As [`wire::Mac::to_u64`].
    fn destination(self) -> u64 {
        u64::from_be(self.0) >> 16
    }

    /// As [`wire::Mac::to_u64`].
    fn source(self) -> u64 {
        u64::from_be(self.1) << 16 >> 16
    }
}

/// Multicast or broadcast.
#[inline]
fn is_group(address: u64) -> bool {
    address >> 40 & 1 != 0
}
