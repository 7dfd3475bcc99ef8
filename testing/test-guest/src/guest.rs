//! A running guest: the front end of a vhost-user session, and the driver of its rings.

use crate::arrival::{self, Arrival};
use crate::driver::RingLayout;
use crate::feature;
use crate::guest_ring::{GuestRing, RING_BYTES, SIZE};
use guestmem::{Gpa, GuestMemory, MemoryError, Region, UserAddress};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use vhost::vhost_user::message::{
    FrontendReq, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The user address of the guest's memory, as its front end would have it mapped.
const USER: UserAddress = UserAddress(0x7000_0000_0000);

/// Bytes of sparse memory.
const SPARSE: u64 = 1 << 30;

/// Errors of a test's guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The session.
    #[error("vhost-user: {0}")]
    Session(#[from] vhost::Error),
    /// The socket.
    #[error("vhost-user: {0}")]
    Socket(#[from] vhost::vhost_user::Error),
    /// The guest's memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The kernel.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for GuestError {
    fn from(error: rustix::io::Errno) -> GuestError {
        GuestError::Io(error.into())
    }
}

/// A running guest.
pub struct Guest {
    frontend: Frontend,
    connection: UnixStream,
    file: Arc<OwnedFd>,
    memory: Arc<GuestMemory>,
    features: u64,
    /// The inflight region, kept for the next back end that serves the rings.
    inflight: (VhostUserInflight, File),
    /// Whether the back end is given `inflight`.
    journaled: bool,
    /// Two rings for each pair: receiving, sending.
    rings: Vec<GuestRing>,
    /// The control queue, if the front end passes it on.
    control: Option<GuestRing>,
}

/// What sets one kind of guest apart from another.
#[derive(Clone, Copy)]
struct Kind {
    /// Whether the front end has a region by which rings are resumed.
    journaled: bool,
    /// Whether it passes the control queue on.
    commands: bool,
    least_bytes: u64,
}

impl Kind {
    const USUAL: Kind = Kind { journaled: true, commands: false, least_bytes: 0 };
}

/// Begins a session. Returns the acknowledged features.
fn shake_hands(
    socket: &Path,
    wanted: u64,
    rings: u16,
) -> Result<(Frontend, UnixStream, u64), GuestError> {
    let connection = UnixStream::connect(socket)?;
    let mut frontend = Frontend::from_stream(connection.try_clone()?, rings.into());
    frontend.set_owner()?;
    let features = frontend.get_features()? & (wanted | feature::PROTOCOL_FEATURES);
    frontend.set_features(features)?;
    let protocol = frontend.get_protocol_features()?
        & (VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::MTU
            | VhostUserProtocolFeatures::STATUS
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::PAGEFAULT
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS);
    frontend.set_protocol_features(protocol)?;
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    Ok((frontend, connection, features))
}

impl Guest {
    /// Connects, takes those of the wanted features that are offered, and starts `pairs` queue
    /// pairs.
    ///
    /// # Errors
    /// Fails if the back end cannot be reached or refuses a request.
    pub fn connect(socket: &Path, wanted: u64, pairs: u16) -> Result<Guest, GuestError> {
        Guest::begin_session(socket, wanted, pairs, Kind::USUAL)
    }

    /// Connects like [`Guest::connect`], with 1 GiB of memory. Behind the rings nobody has touched
    /// it.
    ///
    /// # Errors
    /// Fails as `connect` does.
    pub fn connect_sparsely(socket: &Path, wanted: u64, pairs: u16) -> Result<Guest, GuestError> {
        Guest::begin_session(socket, wanted, pairs, Kind { least_bytes: SPARSE, ..Kind::USUAL })
    }

    /// Connects like [`Guest::connect`], without a region by which rings are resumed. Most front
    /// ends have none.
    ///
    /// # Errors
    /// Fails as `connect` does.
    pub fn connect_plainly(socket: &Path, wanted: u64, pairs: u16) -> Result<Guest, GuestError> {
        Guest::begin_session(socket, wanted, pairs, Kind { journaled: false, ..Kind::USUAL })
    }

    /// Connects like [`Guest::connect`], with a front end that passes the control queue on, as
    /// those of OpenVMM, crosvm and user-mode Linux do.
    ///
    /// # Errors
    /// Fails as `connect` does.
    pub fn connect_with_commands(
        socket: &Path,
        wanted: u64,
        pairs: u16,
    ) -> Result<Guest, GuestError> {
        Guest::begin_session(socket, wanted, pairs, Kind { commands: true, ..Kind::USUAL })
    }

    fn begin_session(
        socket: &Path,
        wanted: u64,
        pairs: u16,
        kind: Kind,
    ) -> Result<Guest, GuestError> {
        let Kind { journaled, commands, least_bytes } = kind;
        let rings = 2 * pairs;
        let (mut frontend, connection, features) = shake_hands(socket, wanted, rings)?;
        let bytes = least_bytes.max(u64::from(rings + 1) * RING_BYTES);
        let file = Arc::new(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        ftruncate(&*file, bytes)?;
        let user = USER;
        let region = Region { gpa: Gpa(0), size: bytes, user, file_offset: 0, file: file.clone() };
        let memory = GuestMemory::map(vec![region])?;
        let wanted =
            VhostUserInflight { num_queues: rings, queue_size: SIZE, ..Default::default() };
        let inflight = frontend.get_inflight_fd(&wanted)?;
        let mut guest = Guest {
            frontend,
            connection,
            file,
            memory,
            features,
            inflight,
            journaled,
            rings: Vec::new(),
            control: None,
        };
        guest.share_memory()?;
        for number in 0..usize::from(rings) {
            guest.start(number)?;
        }
        if commands {
            guest.start_control()?;
        }
        Ok(guest)
    }

    /// Reconnects to a back end that has restarted, with rings that continue where they were. It
    /// sends the base at which each ring began, which is all that a front end knows by itself.
    ///
    /// # Errors
    /// Fails like [`Guest::connect`].
    pub fn reconnect(&mut self, socket: &Path) -> Result<(), GuestError> {
        let rings = std::mem::take(&mut self.rings);
        let count = u16::try_from(rings.len()).unwrap_or(u16::MAX);
        (self.frontend, self.connection, _) = shake_hands(socket, self.features, count)?;
        self.share_memory()?;
        for ring in &rings {
            self.begin(ring)?;
        }
        self.rings = rings;
        if let Some(control) = self.control.take() {
            self.begin(&control)?;
            self.control = Some(control);
        }
        Ok(())
    }

    /// Moves to another back end, where the guest runs before its memory has arrived.
    ///
    /// # Errors
    /// Fails like [`Guest::connect`], and if the back end refuses post-copy.
    pub fn move_by_post_copy(&mut self, socket: &Path) -> Result<Arrival, GuestError> {
        self.move_to(socket, true)
    }

    /// Does what [`Guest::move_by_post_copy`] does, and starts its rings before it says that it
    /// serves pages.
    ///
    /// # Errors
    /// Fails like that.
    pub fn move_hastily(&mut self, socket: &Path) -> Result<Arrival, GuestError> {
        self.move_to(socket, false)
    }

    fn move_to(&mut self, socket: &Path, serves: bool) -> Result<Arrival, GuestError> {
        let (mut rings, control) = (std::mem::take(&mut self.rings), self.control.take());
        rings.extend(control);
        let bases = rings.iter().map(|ring| self.stop(ring.number));
        let bases = bases.collect::<Result<Vec<_>, _>>()?;
        let file = Arc::new(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        let size = self.memory.bytes();
        ftruncate(&*file, size)?;
        let region = Region { gpa: Gpa(0), size, user: USER, file_offset: 0, file: file.clone() };
        let new = GuestMemory::map(vec![region])?;
        let own = arrival::watch(&new)?;
        let count = u16::try_from(rings.len()).unwrap_or(u16::MAX);
        (self.frontend, self.connection, _) = shake_hands(socket, self.features, count)?;
        let back_ends = OwnedFd::from(self.frontend.postcopy_advise()?);
        self.frontend.postcopy_listen()?;
        let old = std::mem::replace(&mut self.memory, new.clone());
        self.file = file;
        let base = self.table()?.and_then(|bases| bases.first().copied()).unwrap_or(0);
        let arrival = Arrival::serve([old, new.clone()], [own, back_ends], base)?;
        if serves {
            self.frontend.postcopy_ack_mem_regions(FrontendReq::SET_MEM_TABLE)?;
        }
        for (ring, base) in rings.iter_mut().zip(bases) {
            ring.move_to(new.clone());
            // The other half of a packed ring's base repeats it.
            self.begin_at(ring, u16::try_from(base & 0xffff).unwrap_or(0))?;
        }
        self.rings = rings;
        Ok(arrival)
    }

    /// Sends all of the memory after a guest that has moved.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn arrive(&mut self, arrival: Arrival) -> Result<(), GuestError> {
        arrival.finish();
        Ok(self.frontend.postcopy_end()?)
    }

    fn share_memory(&mut self) -> Result<(), GuestError> {
        if self.journaled {
            self.give_inflight()?;
        }
        self.give_memory()
    }

    /// Gives the back end the guest's memory. It may be called again at any time.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn give_memory(&mut self) -> Result<(), GuestError> {
        self.table().map(drop)
    }

    /// Gives the back end the guest's memory. In post-copy it returns where it has the memory.
    fn table(&mut self) -> Result<Option<Vec<u64>>, GuestError> {
        Ok(self.frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: self.memory.bytes(),
            userspace_addr: USER.0,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }])?)
    }

    /// Returns the number of memory regions that the back end serves.
    ///
    /// # Errors
    /// Fails if it does not answer.
    pub fn memory_slots(&mut self) -> Result<u64, GuestError> {
        Ok(self.frontend.get_max_mem_slots()?)
    }

    /// Gives the back end one more page, with this number.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn plug_memory(&mut self, number: u64) -> Result<(), GuestError> {
        let page = self.page(number);
        self.frontend.add_mem_region(&page)?;
        Ok(())
    }

    /// Takes the page with this number from the back end.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn unplug_memory(&mut self, number: u64) -> Result<(), GuestError> {
        let page = self.page(number);
        Ok(self.frontend.remove_mem_region(&page)?)
    }

    /// Returns the region of a page, apart from all others and from the guest's own memory.
    fn page(&self, number: u64) -> VhostUserMemoryRegionInfo {
        let place = (1 << 40) + (number << 20);
        VhostUserMemoryRegionInfo {
            guest_phys_addr: place,
            memory_size: 4096,
            userspace_addr: place,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    /// Gives the back end the region by which rings are resumed.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn give_inflight(&mut self) -> Result<(), GuestError> {
        let (said, file) = &self.inflight;
        Ok(self.frontend.set_inflight_fd(said, file.as_raw_fd())?)
    }

    fn start(&mut self, number: usize) -> Result<(), GuestError> {
        let files = [EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?];
        let ring = GuestRing::new(&self.memory, (number, number), self.features, files);
        self.begin(&ring)?;
        self.rings.push(ring);
        if number.is_multiple_of(2) {
            self.offer(number);
        }
        Ok(())
    }

    /// Starts the control queue, which comes after all pairs of the port, or after the first one.
    fn start_control(&mut self) -> Result<(), GuestError> {
        let rings = usize::try_from(self.frontend.get_queue_num()?).unwrap_or(0);
        let number = if self.has(feature::MQ) { rings.saturating_sub(1) } else { 2 };
        let files = [EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?];
        let place = (number, self.rings.len());
        let ring = GuestRing::new(&self.memory, place, self.features, files);
        self.begin(&ring)?;
        self.control = Some(ring);
        Ok(())
    }

    fn begin(&mut self, ring: &GuestRing) -> Result<(), GuestError> {
        // Bit 15 of a packed ring's base is its wrap counter.
        let base = if self.has(feature::RING_PACKED) { 1 << 15 } else { 0 };
        self.begin_at(ring, base)
    }

    fn begin_at(&mut self, ring: &GuestRing, base: u16) -> Result<(), GuestError> {
        let frontend = &mut self.frontend;
        let RingLayout { descriptors, driver, device, .. } = ring.layout;
        frontend.set_vring_num(ring.number, SIZE)?;
        frontend.set_vring_addr(
            ring.number,
            &VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: USER.0 + descriptors.0,
                used_ring_addr: USER.0 + device.0,
                avail_ring_addr: USER.0 + driver.0,
                log_addr: None,
            },
        )?;
        frontend.set_vring_base(ring.number, base)?;
        frontend.set_vring_call(ring.number, &ring.call)?;
        frontend.set_vring_kick(ring.number, &ring.kick)?;
        frontend.set_vring_enable(ring.number, true)?;
        Ok(())
    }

    /// Makes all free buffers of a receiving ring available.
    fn offer(&mut self, number: usize) {
        if let Some(ring) = self.rings.get_mut(number) {
            ring.offer_all();
        }
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Returns the features taken of those offered.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the front end, for other messages of a test.
    pub fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend
    }

    /// Returns the front end's socket, for bytes that are no message.
    pub fn connection(&self) -> &UnixStream {
        &self.connection
    }

    /// Returns the file of the guest's memory.
    pub fn memory_file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the file of the inflight region.
    pub fn inflight_file(&self) -> &File {
        &self.inflight.1
    }

    /// Returns the guest's memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Returns where a ring's parts are.
    pub fn rings(&self, number: usize) -> Option<RingLayout> {
        self.rings.get(number).map(|ring| ring.layout)
    }

    /// Sends a frame by a pair, with the bytes of its virtio header. Returns `false` if the ring is
    /// full.
    pub fn send(&mut self, pair: usize, header: &[u8; 12], frame: &[u8]) -> bool {
        let ring = self.rings.get_mut(2 * pair + 1);
        ring.is_some_and(|ring| ring.send_frame(&self.memory, self.features, header, frame))
    }

    /// Returns the next frame that a pair has received, with its virtio header.
    pub fn receive(&mut self, pair: usize) -> Option<([u8; 12], Vec<u8>)> {
        let (bytes, frame) = self.receive_with_header(pair)?;
        let mut header = [0; 12];
        header.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Some((header, frame))
    }

    /// Returns the next frame that a pair has received, with all bytes of its virtio header.
    pub fn receive_with_header(&mut self, pair: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        self.rings.get_mut(2 * pair)?.receive_frame(&self.memory, self.features)
    }

    /// Sends a command over the control queue and waits for the answer. Returns whether the device
    /// grants it; `false` too if the front end keeps the queue.
    pub fn command(&mut self, class: u8, command: u8, content: &[u8]) -> bool {
        let control = self.control.as_mut();
        control.is_some_and(|control| control.command(&self.memory, [class, command], content))
    }

    /// Kicks a ring, whether or not there is something in it.
    pub fn kick(&self, number: usize) {
        if let Some(ring) = self.rings.get(number) {
            let _ = ring.kick.write(1);
        }
    }

    /// Returns whether the device has signalled a ring since the last call.
    pub fn was_called(&self, number: usize) -> bool {
        self.rings.get(number).is_some_and(|ring| ring.call.read().is_ok())
    }

    /// Returns how often a ring was kicked since the last call.
    pub fn kicks(&self, number: usize) -> u64 {
        self.rings.get(number).and_then(|ring| ring.kick.read().ok()).unwrap_or(0)
    }

    /// Gives the device a ring's kick descriptor once more, as a front end may at any time.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn kick_anew(&mut self, number: usize) -> Result<(), GuestError> {
        let Some(ring) = self.rings.get(number) else { return Ok(()) };
        Ok(self.frontend.set_vring_kick(number, &ring.kick)?)
    }

    /// Sends a request that the `vhost` crate lacks, with a number of 8 bytes or without a body.
    /// Returns the answer.
    ///
    /// # Errors
    /// Fails if the connection does.
    pub fn ask(&mut self, request: u32, number: Option<u64>) -> io::Result<u64> {
        let size = if number.is_some() { 8 } else { 0 };
        // Version 1, and an answer is wanted.
        let head = [request, 1 | 1 << 3, size].map(u32::to_ne_bytes);
        let number = number.map(u64::to_ne_bytes);
        let number = number.as_ref().map_or(&[][..], |bytes| bytes);
        (&self.connection).write_all(&[head.as_flattened(), number].concat())?;
        let mut reply = [0; 20];
        (&self.connection).read_exact(&mut reply)?;
        Ok(reply.last_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }

    /// Gives the back end a channel for messages to the front end. Returns this end.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn give_channel(&mut self) -> Result<UnixStream, GuestError> {
        let (ours, theirs) = UnixStream::pair()?;
        self.frontend.set_backend_request_fd(&theirs)?;
        Ok(ours)
    }

    /// Asks to have an address announced (`VHOST_USER_SEND_RARP`). Returns the answer.
    ///
    /// # Errors
    /// Fails if the connection does.
    pub fn announce(&mut self, mac: [u8; 6]) -> io::Result<u64> {
        let [a, b, c, d, e, f] = mac;
        self.ask(19, Some(u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])))
    }

    /// Turns on the logging of writes to guest memory. Returns the log, a byte for 8 pages, which
    /// starts at `offset` in its file.
    ///
    /// # Errors
    /// Fails if the file cannot be made or the back end refuses it.
    pub fn log(&mut self, offset: u64) -> Result<File, GuestError> {
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC)?);
        let bytes = self.memory.bytes().div_ceil(4096 * 8);
        file.set_len(offset + bytes)?;
        let region = VhostUserDirtyLogRegion {
            mmap_size: bytes,
            mmap_offset: offset,
            mmap_handle: file.as_raw_fd(),
        };
        self.frontend.set_log_base(0, Some(region))?;
        Ok(file)
    }

    /// Stops all rings, as a front end does that pauses its guest.
    ///
    /// # Errors
    /// Fails if the back end does not answer.
    pub fn pause(&mut self) -> Result<(), GuestError> {
        let all = self.rings.iter().chain(&self.control);
        let numbers: Vec<_> = all.map(|ring| ring.number).collect();
        numbers.into_iter().try_for_each(|number| self.stop(number).map(drop))
    }

    /// Starts the rings of a guest that was paused where they were, with the features that its driver
    /// took.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn resume(&mut self) -> Result<(), GuestError> {
        self.frontend.set_features(self.features)?;
        let (rings, control) = (std::mem::take(&mut self.rings), self.control.take());
        rings.iter().chain(&control).try_for_each(|ring| self.begin(ring))?;
        (self.rings, self.control) = (rings, control);
        Ok(())
    }

    /// Has the driver begin anew, with fresh rings in zeroed memory and no word about a reset.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn load_driver_anew(&mut self) -> Result<(), GuestError> {
        self.pause()?;
        let commands = self.control.take().is_some();
        let rings = std::mem::take(&mut self.rings).len();
        let zeros = vec![0; usize::try_from(self.memory.bytes()).unwrap_or(0)];
        self.memory.write(Gpa(0), &zeros);
        self.frontend.set_features(self.features)?;
        (0..rings).try_for_each(|number| self.start(number))?;
        if commands { self.start_control() } else { Ok(()) }
    }

    /// Has the driver of one ring, which was [stopped](Guest::stop), begin anew in zeroed memory while
    /// the others run: what a front end does for a driver that resets a queue.
    ///
    /// # Errors
    /// Fails if the back end refuses.
    pub fn restart_ring(&mut self, number: usize) -> Result<(), GuestError> {
        let zeros = vec![0; usize::try_from(RING_BYTES).unwrap_or(0)];
        self.memory.write(Gpa(number as u64 * RING_BYTES), &zeros);
        let files = [EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?];
        let ring = GuestRing::new(&self.memory, (number, number), self.features, files);
        self.begin(&ring)?;
        if let Some(old) = self.rings.get_mut(number) {
            *old = ring;
        }
        if number.is_multiple_of(2) {
            self.offer(number);
        }
        Ok(())
    }

    /// Stops a ring, as before a migration. Returns where it stopped.
    ///
    /// # Errors
    /// Fails if the back end does not answer.
    pub fn stop(&mut self, number: usize) -> Result<u32, GuestError> {
        Ok(self.frontend.get_vring_base(number)?)
    }
}
