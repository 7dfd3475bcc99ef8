//! A guest with a front end of ours that sends what another one sends, in the same order and with
//! the same features.

use crate::driver::RingLayout;
use crate::front_end::{Acknowledged, Base, Calls, FrontEnd, RingStep, Step};
use crate::guest_ring::{GuestRing, RING_BYTES, SIZE};
use crate::wire::{self, Request};
use crate::{GuestError, feature};
use guestmem::{Gpa, GuestMemory, Region, UserAddress};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// How long to wait for an answer.
const ANSWERS: Duration = Duration::from_secs(60);

/// A guest behind a front end that is named for another.
pub struct Replay {
    front_end: &'static FrontEnd,
    connection: UnixStream,
    /// The features that the guest's driver takes, if they are offered and the front end knows them.
    driver: u64,
    pairs: u16,
    file: Arc<OwnedFd>,
    memory: Arc<GuestMemory>,
    offered: u64,
    protocol: u64,
    /// Each pair's receiving ring and its sending ring, then the control queue if it is passed on.
    rings: Vec<GuestRing>,
    /// The other ends of rings' call descriptors, where those are sockets.
    calls: Vec<UnixStream>,
    inflight: Option<(Vec<u8>, OwnedFd)>,
    channel: Option<UnixStream>,
    /// Whether a driver has begun at this connection.
    has_begun: bool,
}

impl Replay {
    /// Connects and greets as this front end does, for a guest with a driver that takes these
    /// features and uses so many pairs, all of the port's.
    ///
    /// # Errors
    /// Fails if the back end cannot be reached, refuses a message, or has too few queues.
    pub fn connect(
        front_end: &'static FrontEnd,
        socket: &Path,
        driver: u64,
        pairs: u16,
    ) -> Result<Replay, GuestError> {
        let bytes = u64::from(2 * pairs + 1) * RING_BYTES;
        let file = Arc::new(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        ftruncate(&*file, bytes)?;
        let user = UserAddress(front_end.user);
        let region = Region { gpa: Gpa(0), size: bytes, user, file_offset: 0, file: file.clone() };
        let mut replay = Replay {
            front_end,
            connection: connect(socket)?,
            driver,
            pairs,
            file,
            memory: GuestMemory::map(vec![region])?,
            offered: 0,
            protocol: 0,
            rings: Vec::new(),
            calls: Vec::new(),
            inflight: None,
            channel: None,
            has_begun: false,
        };
        replay.make_rings()?;
        replay.all(front_end.greets)?;
        Ok(replay)
    }

    /// Starts the rings, with a driver that begins.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn start(&mut self) -> Result<(), GuestError> {
        self.make_rings()?;
        for ring in self.rings.iter_mut().take(2 * usize::from(self.pairs)).step_by(2) {
            ring.offer_all();
        }
        self.all(self.front_end.starts)?;
        self.has_begun = true;
        Ok(())
    }

    /// Stops the rings, as at a reset of the device.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn stop(&mut self) -> Result<(), GuestError> {
        self.all(self.front_end.stops)?;
        let zeros = vec![0; usize::try_from(self.memory.bytes()).unwrap_or(0)];
        self.memory.write(Gpa(0), &zeros);
        Ok(())
    }

    /// Connects again to a back end that was restarted, with a guest that has noticed nothing.
    ///
    /// # Errors
    /// Fails if the back end cannot be reached, or refuses.
    pub fn come_back(&mut self, socket: &Path) -> Result<(), GuestError> {
        (self.connection, self.has_begun) = (connect(socket)?, false);
        self.all(self.front_end.returns)?;
        self.has_begun = true;
        Ok(())
    }

    /// Returns the features offered last, and those that are in use.
    pub fn features(&self) -> (u64, u64) {
        (self.offered, self.taken())
    }

    /// Sends a frame by a pair. Returns `false` if the ring is full.
    pub fn send(&mut self, pair: usize, frame: &[u8]) -> bool {
        let features = self.taken();
        let ring = self.rings.get_mut(2 * pair + 1);
        ring.is_some_and(|ring| ring.send_frame(&self.memory, features, &[0; 12], frame))
    }

    /// Returns the next frame that a pair has received.
    pub fn receive(&mut self, pair: usize) -> Option<Vec<u8>> {
        let features = self.taken();
        Some(self.rings.get_mut(2 * pair)?.receive_frame(&self.memory, features)?.1)
    }

    /// Sends a command over the control queue and waits for the answer. Returns whether it is
    /// granted; `false` too if the front end keeps the queue.
    pub fn command(&mut self, class: u8, command: u8, content: &[u8]) -> bool {
        let control = self.rings.get_mut(2 * usize::from(self.pairs));
        control.is_some_and(|control| control.command(&self.memory, [class, command], content))
    }

    /// Returns the front end's end of its channel, if it gave one.
    pub fn channel(&self) -> Option<&UnixStream> {
        self.channel.as_ref()
    }

    fn taken(&self) -> u64 {
        let all = self.offered & self.driver & self.front_end.features;
        all | (self.offered & feature::PROTOCOL_FEATURES)
    }

    fn make_rings(&mut self) -> Result<(), GuestError> {
        let count = 2 * usize::from(self.pairs) + usize::from(self.front_end.passes_commands);
        (self.rings, self.calls) = (Vec::new(), Vec::new());
        for number in 0..count {
            let files = [EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?];
            let place = (number, number);
            self.rings.push(GuestRing::new(&self.memory, place, self.taken(), files));
        }
        Ok(())
    }

    fn all(&mut self, steps: &[Step]) -> Result<(), GuestError> {
        let rings = 0..self.rings.len();
        steps.iter().try_for_each(|step| self.step(step, &rings))
    }

    /// Carries out a step, of those for each ring at these.
    fn step(&mut self, step: &Step, rings: &Range<usize>) -> Result<(), GuestError> {
        match step {
            Step::Tell(request) => self.tell(*request, &[], &[]),
            Step::AskFeatures => {
                self.offered = self.ask(Request::GetFeatures)?;
                Ok(())
            }
            Step::TakeFeatures => self.tell(Request::SetFeatures, &self.taken().to_ne_bytes(), &[]),
            Step::AskProtocol => {
                self.protocol = 0;
                let offered = self.ask(Request::GetProtocol)?;
                self.protocol = offered & self.front_end.protocol;
                Ok(())
            }
            Step::TakeProtocol => {
                self.tell(Request::SetProtocol, &self.protocol.to_ne_bytes(), &[])
            }
            Step::AskQueues => self.ask_queues(),
            Step::AskSlots => self.ask(Request::GetSlots).map(drop),
            Step::AskConfig(len) => self.ask_config(*len),
            Step::GiveChannel => self.give_channel(),
            Step::GiveMemory => self.give_memory(Request::GiveMemory, [1, 0]),
            Step::AddMemory => self.give_memory(Request::AddMemory, [0, 0]),
            Step::AskInflight => self.ask_inflight(),
            Step::GiveInflight => self.give_inflight(),
            Step::AskStatus => self.ask(Request::GetStatus).map(drop),
            Step::SetStatus(status) => self.tell(Request::SetStatus, &status.to_ne_bytes(), &[]),
            Step::SetMtu(mtu) => self.tell(Request::SetMtu, &mtu.to_ne_bytes(), &[]),
            Step::Each(steps) => rings
                .clone()
                .try_for_each(|ring| steps.iter().try_for_each(|step| self.ring_step(ring, step))),
            Step::Pairs(steps) => rings.clone().step_by(2).try_for_each(|first| {
                steps.iter().try_for_each(|step| self.step(step, &(first..first + 2)))
            }),
            Step::Once(steps) if rings.start == 0 => {
                steps.iter().try_for_each(|step| self.step(step, rings))
            }
            Step::Others(steps) if rings.start > 0 => {
                steps.iter().try_for_each(|step| self.step(step, rings))
            }
            Step::FirstTime(steps) if !self.has_begun => {
                steps.iter().try_for_each(|step| self.step(step, rings))
            }
            Step::Once(_) | Step::Others(_) | Step::FirstTime(_) => Ok(()),
        }
    }

    fn ring_step(&mut self, place: usize, step: &RingStep) -> Result<(), GuestError> {
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        let state = |value: u32| [number, value].map(u32::to_ne_bytes).concat();
        match step {
            RingStep::Size => self.tell(Request::Size, &state(SIZE.into()), &[]),
            RingStep::Addresses => self.tell(Request::Addresses, &self.addresses(place), &[]),
            RingStep::Base(base) => {
                let base = self.base(place, *base);
                self.tell(Request::SetBase, &state(base), &[])
            }
            RingStep::Kick => {
                let Some(ring) = self.rings.get(place) else { return Ok(()) };
                self.tell_file(Request::Kick, place, &ring.kick)
            }
            RingStep::Call => self.call(place),
            RingStep::Error => {
                let error = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.tell_file(Request::Error, place, &error)
            }
            RingStep::Enable(enable) => self.tell(Request::Enable, &state((*enable).into()), &[]),
            RingStep::AskBase => {
                wire::send(&self.connection, Request::GetBase, self.asks_all(), &state(0), &[])?;
                let (answer, _) = wire::answer(&self.connection, Request::GetBase)?;
                let is_of_ring = answer.get(..4) == Some(&number.to_ne_bytes()[..]);
                let wrong = || io::Error::other("another ring has stopped").into();
                is_of_ring.then_some(()).ok_or_else(wrong)
            }
        }
    }

    fn call(&mut self, place: usize) -> Result<(), GuestError> {
        if self.front_end.calls == Calls::Stream {
            let (ours, theirs) = UnixStream::pair()?;
            self.calls.push(ours);
            return self.tell_file(Request::Call, place, &theirs);
        }
        let Some(ring) = self.rings.get(place) else { return Ok(()) };
        self.tell_file(Request::Call, place, &ring.call)
    }

    fn addresses(&self, place: usize) -> Vec<u8> {
        let Some(ring) = self.rings.get(place) else { return Vec::new() };
        let RingLayout { descriptors, driver, device, .. } = ring.layout;
        let user = |gpa: Gpa| self.front_end.user + gpa.0;
        let head = u64::try_from(place).unwrap_or(u64::MAX);
        [head, user(descriptors), user(device), user(driver), 0].map(u64::to_ne_bytes).concat()
    }

    fn base(&self, place: usize, base: Base) -> u32 {
        let packed = self.taken() & feature::RING_PACKED != 0;
        let index = |part: fn(&RingLayout) -> Gpa| {
            let mut bytes = [0; 2];
            if let Some(ring) = self.rings.get(place) {
                self.memory.read(Gpa(part(&ring.layout).0 + 2), &mut bytes);
            }
            u16::from_le_bytes(bytes).into()
        };
        match base {
            Base::Zero if packed => 0x8000,
            Base::ZeroTwice if packed => 0x8000_8000,
            Base::Zero | Base::ZeroTwice => 0,
            Base::Available => index(|layout| layout.driver),
            Base::Used => index(|layout| layout.device),
        }
    }

    fn asks_all(&self) -> bool {
        self.has_acknowledgements() && matches!(self.front_end.acknowledged, Acknowledged::All)
    }

    /// `VHOST_USER_PROTOCOL_F_REPLY_ACK`.
    fn has_acknowledgements(&self) -> bool {
        self.protocol & 1 << 3 != 0
    }

    /// Sends a message and waits for its acknowledgement, if this front end does.
    fn tell(&self, request: Request, body: &[u8], files: &[RawFd]) -> Result<(), GuestError> {
        let waits = match self.front_end.acknowledged {
            // The flag is set once the protocol features were.
            Acknowledged::All => request != Request::SetProtocol && request != Request::SetOwner,
            Acknowledged::Among(some) => some.contains(&request),
        };
        let waits = waits && self.has_acknowledgements();
        wire::send(&self.connection, request, waits, body, files)?;
        if !waits {
            return Ok(());
        }
        match number(&wire::answer(&self.connection, request)?.0) {
            0 => Ok(()),
            result => Err(io::Error::other(format!("{request:?} was answered by {result}")).into()),
        }
    }

    fn tell_file(
        &self,
        request: Request,
        place: usize,
        file: &impl AsRawFd,
    ) -> Result<(), GuestError> {
        let body = u64::try_from(place).unwrap_or(u64::MAX).to_ne_bytes();
        self.tell(request, &body, &[file.as_raw_fd()])
    }

    fn ask(&self, request: Request) -> Result<u64, GuestError> {
        wire::send(&self.connection, request, self.asks_all(), &[], &[])?;
        Ok(number(&wire::answer(&self.connection, request)?.0))
    }

    fn ask_queues(&self) -> Result<(), GuestError> {
        let wanted = match self.front_end.counts_pairs {
            true => u64::from(self.pairs),
            false => self.rings.len() as u64,
        };
        let seen = self.ask(Request::GetQueues)?;
        let text = || format!("{seen} queues are offered, {wanted} wanted");
        (wanted <= seen).then_some(()).ok_or_else(|| io::Error::other(text()).into())
    }

    fn ask_config(&self, len: u32) -> Result<(), GuestError> {
        let head = [0, len, 1].map(u32::to_ne_bytes).concat();
        let body = [head, vec![0; len as usize]].concat();
        wire::send(&self.connection, Request::GetConfig, self.asks_all(), &body, &[])?;
        let (answer, _) = wire::answer(&self.connection, Request::GetConfig)?;
        let is_whole = answer.len() == body.len() && answer.get(4..8) == body.get(4..8);
        let wrong = || io::Error::other("the configuration space has another size").into();
        is_whole.then_some(()).ok_or_else(wrong)
    }

    fn give_channel(&mut self) -> Result<(), GuestError> {
        // `VHOST_USER_PROTOCOL_F_BACKEND_REQ`.
        if self.protocol & 1 << 5 == 0 {
            return Ok(());
        }
        let (ours, theirs) = UnixStream::pair()?;
        self.channel = Some(ours);
        self.tell(Request::SetChannel, &[], &[theirs.as_raw_fd()])
    }

    /// Gives the one region of memory, behind what stands before it in this message.
    fn give_memory(&self, request: Request, head: [u32; 2]) -> Result<(), GuestError> {
        let region = [0, self.memory.bytes(), self.front_end.user, 0].map(u64::to_ne_bytes);
        let body = [head.map(u32::to_ne_bytes).as_flattened(), region.as_flattened()].concat();
        self.tell(request, &body, &[self.file.as_raw_fd()])
    }

    fn ask_inflight(&mut self) -> Result<(), GuestError> {
        if self.inflight.is_some() {
            return Ok(());
        }
        let rings = u16::try_from(self.rings.len()).unwrap_or(u16::MAX);
        let mut body = vec![0; 16];
        [rings, SIZE, 0, 0].iter().for_each(|word| body.extend(word.to_ne_bytes()));
        wire::send(&self.connection, Request::GetInflight, self.asks_all(), &body, &[])?;
        let (said, file) = wire::answer(&self.connection, Request::GetInflight)?;
        self.inflight = file.map(|file| (said, file));
        Ok(())
    }

    fn give_inflight(&self) -> Result<(), GuestError> {
        let Some((said, file)) = &self.inflight else { return Ok(()) };
        self.tell(Request::SetInflight, said, &[file.as_raw_fd()])
    }
}

/// Connects to a back end that has to answer in time.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let connection = UnixStream::connect(socket)?;
    connection.set_read_timeout(Some(ANSWERS))?;
    Ok(connection)
}

/// Returns the number of 8 bytes that an answer has.
fn number(body: &[u8]) -> u64 {
    body.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}
