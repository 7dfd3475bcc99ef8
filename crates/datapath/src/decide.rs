//! Admit and look up: whether a frame may enter, and where it is to go.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::macs::{MacTable, Station};
use crate::outbox::{Cause, Entry, Outbox, Target};
use crate::rate::Bucket;
use crate::steer;
use crate::view::{Port, View};
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
    /// Where the last frame to one station went: most frames go there too.
    pub(crate) found: Option<(Station, &'t Port)>,
}

impl<'t> Decider<'t> {
    /// Puts a frame into the outbox, as often as it is to go out, or says why it is dropped.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        place: u16,
        frame: &mut Frame,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        let Addresses { destination, source } = Addresses::read(header).ok_or(DropReason::Runt)?;
        self.admit(frame, source)?;
        if self.from.settings.mirror_to.is_some() {
            self.mirror(self.from, place, outbox);
        }
        if is_group(destination) {
            return self.flood(place, frame, header, outbox);
        }
        let station = Station::new(destination, frame.vlan);
        let to = match self.found {
            Some((last, to)) if last == station => to,
            _ => match self.find(station, frame)? {
                Some(to) => to,
                None => return self.flood(place, frame, header, outbox),
            },
        };
        self.send(to, place, Cause::Addressed, (header, frame), outbox);
        Ok(())
    }

    #[inline]
    fn admit(&mut self, frame: &mut Frame, source: u64) -> Result<(), DropReason> {
        if is_group(source) {
            return Err(DropReason::BadSource);
        }
        let settings = &self.from.settings;
        let vlan = settings.vlan.admit(frame.parsed.vlan_id());
        frame.vlan = vlan.ok_or(DropReason::VlanNotAllowed)?;
        if let Some(allowed) = &settings.allowed_macs
            && !allowed.iter().any(|mac| mac.to_u64() == source)
        {
            return Err(DropReason::MacSpoofed);
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.admit(frame.len)) {
            return Err(DropReason::RateLimited);
        }
        let station = Station::new(source, frame.vlan);
        if self.learned != Some(station) {
            // A table without room is no reason to drop: the station's own traffic is flooded.
            self.macs.learn(station, self.from.shared.id, self.second);
            self.learned = Some(station);
        }
        Ok(())
    }

    /// The port a station lives behind, if it is known and may be reached.
    fn find(&mut self, station: Station, frame: &Frame) -> Result<Option<&'t Port>, DropReason> {
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
        self.found = Some((station, to));
        Ok(Some(to))
    }

    /// To every port of the VLAN but the one it came from.
    fn flood(
        &self,
        place: u16,
        frame: &Frame,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
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
            sent = true;
        }
        match (sent, isolated) {
            (true, _) => Ok(()),
            (false, true) => Err(DropReason::Isolated),
            (false, false) => Err(DropReason::NoPort),
        }
    }

    #[inline]
    fn send(
        &self,
        to: &Port,
        place: u16,
        cause: Cause,
        (header, frame): (&[u8], &Frame),
        outbox: &mut Outbox,
    ) {
        let queue = steer::queue(to, header, &frame.parsed);
        let target = Target { slot: to.slot + queue, port: to.shared.id, queue };
        outbox.push(target, Entry { place, cause });
        if to.settings.mirror_to.is_some() {
            self.mirror(to, place, outbox);
        }
    }

    /// A copy for the mirror of a port. A mirror's own mirror is not followed.
    #[cold]
    fn mirror(&self, of: &Port, place: u16, outbox: &mut Outbox) {
        let Some(to) = of.settings.mirror_to.and_then(|port| self.view.port(port)) else { return };
        if to.shared.id != self.from.shared.id {
            let target = Target { slot: to.slot, port: to.shared.id, queue: 0 };
            outbox.push(target, Entry { place, cause: Cause::Mirrored });
        }
    }
}

/// The addresses of a frame as numbers, first byte highest.
struct Addresses {
    destination: u64,
    source: u64,
}

impl Addresses {
    #[inline]
    fn read(header: &[u8]) -> Option<Addresses> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *header.first_chunk()?;
        let destination = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 16;
        let source = u64::from_be_bytes([g, h, i, j, k, l, m, n]) >> 16;
        Some(Addresses { destination, source })
    }
}

/// Multicast or broadcast.
#[inline]
fn is_group(address: u64) -> bool {
    address >> 40 & 1 != 0
}
