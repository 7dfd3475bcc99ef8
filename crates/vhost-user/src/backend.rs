//! What each message of a front end does: the state of one connection.

use crate::control::{self, Command};
use crate::ring::never_block;
use crate::session::Shared;
use crate::vring::{Addresses, Vring};
use crate::{Features, Negotiated, Ring, State, config_space};
use guestmem::{DirtyLog, Gpa, GuestMemory, Region, UserAddress};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

/// Memory regions that are served.
const MEMORY_SLOTS: u64 = 32;
/// Descriptors of the largest ring of either format (virtio 1.2, sections 2.7 and 2.8.10.1).
const LARGEST_RING: u32 = 32768;

/// The state of one connection; with it go the rings.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    memory: Option<Arc<GuestMemory>>,
    taken: Features,
    /// Receive offloads as the guest has set them by command.
    offloads: Option<Features>,
    /// Queue pairs the guest has asked for by command.
    wished_pairs: Option<u16>,
    log: Option<Arc<DirtyLog>>,
    vrings: Vec<Vring>,
}

/// A message that is refused, with the reason.
fn refused(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(reason))
}

impl Backend {
    pub(crate) fn new(shared: Arc<Shared>) -> Backend {
        let vrings = shared.rings.iter().map(|_| Vring::default()).collect();
        let backend = Backend {
            shared,
            memory: None,
            taken: Features::empty(),
            offloads: None,
            wished_pairs: None,
            log: None,
            vrings,
        };
        backend.tell(State::Connected);
        backend
    }

    /// The place of a ring, by its number in messages. The control queue comes after the pairs the guest knows of, ours
    /// after all pairs there can be.
    fn place(&self, number: u32) -> Result<usize> {
        let own = self.vrings.len() - 1;
        let number = number as usize;
        let control = if self.taken.contains(Features::MQ) { own } else { 2 };
        if number == control {
            return Ok(own);
        }
        if number < own {
            return Ok(number);
        }
        Err(refused(format!("ring {number}: this port has {own}, and a control queue")))
    }

    fn vring(&mut self, number: u32) -> Result<(&mut Vring, &Arc<Ring>)> {
        let place = self.place(number)?;
        let ring = self.shared.rings.get(place);
        self.vrings.get_mut(place).zip(ring).ok_or_else(|| refused("no such ring"))
    }

    fn active_log(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref().filter(|_| self.taken.contains(Features::LOG_ALL))
    }

    /// Starts a ring of which all is known.
    fn start(&mut self, number: u32) -> Result<()> {
        let place = self.place(number)?;
        let always_enabled = !self.taken.contains(Features::PROTOCOL_FEATURES);
        let log = self.active_log().cloned();
        let (Some(vring), Some(ring)) = (self.vrings.get_mut(place), self.shared.rings.get(place))
        else {
            return Ok(());
        };
        vring.enabled |= always_enabled;
        drop(ring.stop());
        let running = vring
            .build(self.memory.as_ref(), self.taken, log.as_ref())
            .map_err(|error| refused(format!("ring {number}: {error}")))?;
        vring.started = true;
        ring.start(running).map_err(refused)?;
        self.tell(State::Connected);
        Ok(())
    }

    /// Every ring that runs, with no worker using it meanwhile.
    fn each_running(
        &self,
        mut change: impl FnMut(&mut crate::Running) -> Result<()>,
    ) -> Result<()> {
        self.shared
            .rings
            .iter()
            .try_for_each(|ring| ring.change(|running| running.map_or(Ok(()), &mut change)))
    }

    fn replace_memory(&mut self, memory: Arc<GuestMemory>) -> Result<()> {
        self.each_running(|running| running.queue.remap(memory.clone()).map_err(refused))?;
        self.memory = Some(memory);
        Ok(())
    }

    fn apply_log(&self) -> Result<()> {
        let log = self.active_log();
        self.each_running(|running| {
            running.queue.set_log(log.cloned());
            Ok(())
        })
    }

    /// Takes all rings away.
    pub(crate) fn stop_all(&mut self) {
        self.shared.rings.iter().for_each(|ring| drop(ring.stop()));
        self.vrings.iter_mut().for_each(|vring| *vring = Vring::default());
        (self.offloads, self.wished_pairs) = (None, None);
    }

    /// Pairs that run and are enabled, as far as the guest uses them.
    fn pairs(&self) -> u16 {
        let ready = |pair: &[Vring]| pair.iter().all(|vring| vring.started && vring.enabled);
        let (pairs, _control) = self.vrings.split_at(self.vrings.len() - 1);
        let ready = pairs.chunks(2).take_while(|pair| ready(pair)).count();
        let ready = u16::try_from(ready).unwrap_or(u16::MAX);
        let serves_commands = self.vrings.last().is_some_and(|vring| vring.started);
        let asked = self.wished_pairs.or(serves_commands.then_some(1));
        asked.map_or(ready, |asked| ready.min(asked))
    }

    /// Lets the port and whoever looks know what holds now.
    fn tell(&self, state: State) {
        let features = match self.offloads {
            Some(offloads) => (self.taken - Features::GUEST_OFFLOADS) | offloads,
            None => self.taken,
        };
        let negotiated = Negotiated { features, pairs: self.pairs() };
        (self.shared.options.changed)(&negotiated);
        let state = if negotiated.pairs > 0 { State::Running } else { state };
        let memory = self.memory.as_ref().map_or(0, |memory| memory.bytes());
        self.shared.note(|status| {
            status.state = state;
            (status.taken, status.negotiated, status.memory) = (self.taken, negotiated, memory);
        });
    }

    /// Serves the commands that wait in the control queue.
    pub(crate) fn serve_control(&mut self) {
        let Some(ring) = self.shared.rings.last().cloned() else { return };
        ring.forget_kicks();
        ring.with(|running| control::serve(running, |command| self.carry_out(command)));
        self.tell(State::Connected);
    }

    fn carry_out(&mut self, command: Command) -> bool {
        match command {
            Command::Noted => true,
            Command::SetMac(mac) => self.shared.options.mac.is_none_or(|own| own == mac),
            Command::SetPairs(pairs) => {
                let known = (1..=self.shared.options.pairs).contains(&pairs);
                if known {
                    self.wished_pairs = Some(pairs);
                }
                known
            }
            Command::SetOffloads(offloads) => {
                let known = self.taken.contains(offloads);
                if known {
                    self.offloads = Some(offloads);
                }
                known
            }
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop_all();
        (self.memory, self.taken) = (None, Features::empty());
        self.tell(State::Waiting);
    }
}

fn region(said: &VhostUserMemoryRegion, file: File) -> Region {
    Region {
        gpa: Gpa(said.guest_phys_addr),
        size: said.memory_size,
        user: UserAddress(said.user_addr),
        file_offset: said.mmap_offset,
        file: Arc::new(OwnedFd::from(file)),
    }
}

fn descriptor(file: Option<File>) -> Option<Arc<OwnedFd>> {
    file.map(|file| Arc::new(OwnedFd::from(file)))
}

impl VhostUserBackendReqHandlerMut for Backend {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.tell(State::Connected);
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.shared.options.offered().bits())
    }

    fn set_features(&mut self, bits: u64) -> Result<()> {
        let strange = bits & !self.shared.options.offered().bits();
        if strange != 0 {
            return Err(refused(format!("features {strange:#x} were taken and not offered")));
        }
        self.taken = Features::from_bits_truncate(bits);
        self.apply_log()?;
        self.tell(State::Connected);
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        said: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let regions = said.iter().zip(files).map(|(said, file)| region(said, file)).collect();
        self.replace_memory(GuestMemory::map(regions).map_err(refused)?)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, number: u32, size: u32) -> Result<()> {
        let fits = u16::try_from(size).ok().filter(|_| size <= LARGEST_RING);
        let size = fits.ok_or_else(|| refused(format!("ring {number} of {size} descriptors")))?;
        self.vring(number)?.0.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        number: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        device: u64,
        driver: u64,
        _log: u64,
    ) -> Result<()> {
        let addresses = Addresses {
            descriptors: UserAddress(descriptors),
            driver: UserAddress(driver),
            device: UserAddress(device),
        };
        self.vring(number)?.0.addresses = Some(addresses);
        Ok(())
    }

    fn set_vring_base(&mut self, number: u32, base: u32) -> Result<()> {
        self.vring(number)?.0.base = base;
        Ok(())
    }

    fn get_vring_base(&mut self, number: u32) -> Result<VhostUserVringState> {
        let (vring, ring) = self.vring(number)?;
        if let Some(running) = ring.stop() {
            vring.base = running.queue.base();
        }
        vring.started = false;
        let base = vring.base;
        self.tell(State::Connected);
        Ok(VhostUserVringState::new(number, base))
    }

    fn set_vring_kick(&mut self, number: u8, file: Option<File>) -> Result<()> {
        let kick = descriptor(file).ok_or_else(|| {
            refused(format!(
                "ring {number} has no kick descriptor: rings that must be polled are not served"
            ))
        })?;
        self.vring(number.into())?.0.kick = Some(kick);
        self.start(number.into())
    }

    fn set_vring_call(&mut self, number: u8, file: Option<File>) -> Result<()> {
        let call = descriptor(file);
        call.iter().try_for_each(|call| never_block(call)).map_err(refused)?;
        let (vring, ring) = self.vring(number.into())?;
        vring.call.clone_from(&call);
        ring.change(|running| {
            if let Some(running) = running {
                running.call = call;
                // What was published while there was nobody to tell.
                running.notify();
            }
        });
        Ok(())
    }

    fn set_vring_err(&mut self, number: u8, file: Option<File>) -> Result<()> {
        let error = descriptor(file);
        let (vring, ring) = self.vring(number.into())?;
        vring.error.clone_from(&error);
        ring.change(|running| {
            running.into_iter().for_each(|running| running.error.clone_from(&error))
        });
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        // QEMU and DPDK take it for pairs, user-mode Linux and Cloud Hypervisor for rings: the larger number serves all,
        // and who starts a ring that is not there is told so.
        Ok(self.shared.rings.len() as u64)
    }

    fn set_vring_enable(&mut self, number: u32, enable: bool) -> Result<()> {
        let (vring, ring) = self.vring(number)?;
        vring.enabled = enable;
        ring.change(|running| {
            running.into_iter().for_each(|running| running.queue.set_enabled(enable));
        });
        ring.look_again();
        self.tell(State::Connected);
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        Ok(config_space::read(&self.shared.options, offset, size))
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _bytes: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        // Nothing of a modern device's configuration is the driver's to write.
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(Error::InvalidMessage)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidMessage)
    }

    fn get_inflight_fd(
        &mut self,
        _wanted: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidMessage)
    }

    fn set_inflight_fd(&mut self, _said: &VhostUserInflight, _file: File) -> Result<()> {
        Err(Error::InvalidMessage)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MEMORY_SLOTS)
    }

    fn add_mem_region(
        &mut self,
        said: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        let region = region(said, file);
        let memory = match &self.memory {
            Some(memory) => memory.with_region(region),
            None => GuestMemory::map(vec![region]),
        };
        self.replace_memory(memory.map_err(refused)?)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, said: &VhostUserSingleMemoryRegion) -> Result<()> {
        let Some(memory) = &self.memory else { return Err(refused("there is no memory yet")) };
        let (gpa, user) = (Gpa(said.guest_phys_addr), UserAddress(said.user_addr));
        let memory = memory.without_region(gpa, said.memory_size, user).map_err(refused)?;
        self.replace_memory(memory)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidMessage)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidMessage)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidMessage)
    }

    fn set_log_base(&mut self, said: &VhostUserLog, file: File) -> Result<()> {
        let Some(memory) = &self.memory else {
            return Err(refused("there is no memory to log yet"));
        };
        let log = DirtyLog::map(file.as_fd(), said.mmap_offset, said.mmap_size, memory);
        self.log = Some(log.map_err(refused)?);
        self.apply_log()
    }
}
