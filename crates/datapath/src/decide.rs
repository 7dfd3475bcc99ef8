//! Admit and look up: whether a frame may enter, and where it is to go.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::macs::{MacTable, Station};
use crate::outbox::{Cause, Entry, Outbox, Target};
use crate::rate::Bucket;
use crate::steer;
use crate::view::{Port, View};
use std::sync::MutexGuard;
use wire::Mac;

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
}

impl Decider<'_> {
    /// Puts a frame into the outbox, as often as it is to go out, or says why it is dropped.
    #[inline]
    pub(crate) fn decide(
        &mut self,
        place: u16,
        frame: &mut Frame,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.admit(frame, header)?;
        self.mirror(self.from, place, outbox);
        let destination = Frame::destination(header);
        if !destination.is_group() {
            let station = Station::new(destination, frame.vlan);
            if let Some(port) =
                self.macs.lookup(station, self.second).and_then(|port| self.view.port(port))
            {
                return self.unicast(port, place, frame, header, outbox);
            }
        }
        self.flood(place, frame, header, outbox)
    }

    #[inline]
    fn admit(&mut self, frame: &mut Frame, header: &[u8]) -> Result<(), DropReason> {
        let source = Frame::source_mac(header);
        if source.is_group() {
            return Err(DropReason::BadSource);
        }
        let settings = &self.from.settings;
        frame.vlan =
            settings.vlan.admit(frame.parsed.vlan_id()).ok_or(DropReason::VlanNotAllowed)?;
        if settings.allowed_macs.as_ref().is_some_and(|allowed| !allowed.contains(&source)) {
            return Err(DropReason::MacSpoofed);
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.admit(frame.len)) {
            return Err(DropReason::RateLimited);
        }
        self.learn(source, frame.vlan);
        Ok(())
    }

    #[inline]
    fn learn(&mut self, source: Mac, vlan: u16) {
        let station = Station::new(source, vlan);
        if self.learned != Some(station) {
            // A table without room is no reason to drop: the station's own traffic is flooded.
            self.macs.learn(station, self.from.shared.id, self.second);
            self.learned = Some(station);
        }
    }

    #[inline]
    fn unicast(
        &self,
        to: &Port,
        place: u16,
        frame: &Frame,
        header: &[u8],
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        if to.shared.id == self.from.shared.id {
            return Err(DropReason::SamePort);
        }
        if !self.from.may_reach(to) {
            return Err(DropReason::Isolated);
        }
        if to.settings.vlan.tagging(frame.vlan).is_none() {
            return Err(DropReason::NoPort);
        }
        self.send(to, place, Cause::Addressed, (header, frame), outbox);
        Ok(())
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
        self.mirror(to, place, outbox);
    }

    /// A copy for the mirror of a port. A mirror's own mirror is not followed.
    #[inline]
    fn mirror(&self, of: &Port, place: u16, outbox: &mut Outbox) {
        let Some(to) = of.settings.mirror_to.and_then(|port| self.view.port(port)) else { return };
        if to.shared.id != self.from.shared.id {
            let target = Target { slot: to.slot, port: to.shared.id, queue: 0 };
            outbox.push(target, Entry { place, cause: Cause::Mirrored });
        }
    }
}
