//! Carries out each message of a front end that the `vhost` crate decodes.

use super::{Backend, Log, refused};
use crate::closer::close_aside;
use crate::inflight::Inflight;
use crate::post_copy::dock;
use crate::signal::{Signal, expect_eventfd};
use crate::vring::Addresses;
use crate::{Features, State, config_space, slots};
use guestmem::{DirtyLog, Gpa, GuestMemory, MemoryError, Region, UserAddress};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

/// Descriptors of the largest ring of either format (virtio 1.2, sections 2.7 and 2.8.10.1).
pub(super) const LARGEST_RING: u32 = 32768;

fn region(said: &VhostUserMemoryRegion, file: File) -> Region {
    Region {
        gpa: Gpa(said.guest_phys_addr),
        size: said.memory_size,
        user: UserAddress(said.user_addr),
        file_offset: said.mmap_offset,
        file: Arc::new(OwnedFd::from(file)),
    }
}

/// Maps regions. If they are refused, another thread closes their files.
pub(super) fn map(
    regions: Vec<Region>,
    map: impl FnOnce(Vec<Region>) -> std::result::Result<Arc<GuestMemory>, MemoryError>,
) -> Result<Arc<GuestMemory>> {
    let files: Vec<_> = regions.iter().map(|region| region.file.clone()).collect();
    map(regions).map_err(|error| {
        close_aside(files);
        refused(error)
    })
}

impl Backend {
    /// Wraps a descriptor that the front end sent for signals to it. Fails if it is neither an
    /// eventfd nor a Unix stream socket.
    pub(super) fn signal(&self, file: Option<File>) -> Result<Option<Arc<Signal>>> {
        let signal = file.map(|file| Signal::new(file.into(), &self.shared.signals)).transpose();
        Ok(signal.map_err(refused)?.map(Arc::new))
    }

    /// Checks that an inflight region has no more rings than the port, and none of more than
    /// [`LARGEST_RING`] descriptors.
    fn check_inflight(&self, said: &VhostUserInflight) -> Result<()> {
        let VhostUserInflight { num_queues: rings, queue_size: size, .. } = *said;
        let own = self.vrings.len();
        if usize::from(rings) > own || u32::from(size) > LARGEST_RING {
            return Err(refused(format!(
                "an inflight region of {rings} rings of {size}: this port has {own}, of at most {LARGEST_RING}"
            )));
        }
        Ok(())
    }
}

impl VhostUserBackendReqHandlerMut for Backend {
    fn set_owner(&mut self) -> Result<()> {
        self.owned = true;
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        if let Some(inflight) = &self.inflight {
            inflight.forget_all();
        }
        self.tell(State::Connected);
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        self.keeps_commands |= self.asked_early && self.owned;
        self.asked_early |= !self.owned;
        let offered = self.offered();
        self.shared.note(|status| status.offered = offered);
        Ok(offered.bits())
    }

    fn set_features(&mut self, bits: u64) -> Result<()> {
        let strange = bits & !self.offered().bits();
        if strange != 0 {
            return Err(refused(format!("features {strange:#x} were taken and not offered")));
        }
        self.taken = Features::from_bits_truncate(bits);
        // What was set by command stays only if the guest acknowledges its feature again.
        self.offloads = self.offloads.map(|offloads| offloads & self.taken);
        self.asked.retain(self.taken, self.shared.options.mac);
        self.publish_asked();
        self.note_channel();
        self.apply_log()?;
        self.start_waiting()?;
        self.tell(State::Connected);
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        said: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        self.expect_whole_memory()?;
        let regions: Vec<_> =
            said.iter().zip(files).map(|(said, file)| region(said, file)).collect();
        if self.lacks_pages() {
            return self.await_table(regions).map(Some);
        }
        let (limit, began) = (self.shared.options.memory_limit, Instant::now());
        let memory = map(regions, |regions| GuestMemory::map_within(limit, regions))?;
        self.replace_memory(memory, began)?;
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
        // A running ring is stopped first: it must not continue and count from the old base.
        self.stop_ring(number)?.base = base;
        self.tell(State::Connected);
        Ok(())
    }

    fn get_vring_base(&mut self, number: u32) -> Result<VhostUserVringState> {
        let base = self.stop_ring(number)?.base;
        self.expect_ferry()?;
        if let Some(inflight) = &self.inflight {
            inflight.forget(number);
        }
        self.tell(State::Connected);
        Ok(VhostUserVringState::new(number, base))
    }

    fn set_vring_kick(&mut self, number: u8, file: Option<File>) -> Result<()> {
        let kick = file.ok_or_else(|| {
            refused(format!(
                "ring {number} has no kick descriptor: rings that need polling are not supported"
            ))
        })?;
        if let Err(error) = expect_eventfd(kick.as_fd()) {
            close_aside(kick);
            return Err(refused(error));
        }
        self.vring(number.into())?.0.kick = Some(Arc::new(kick.into()));
        self.start(number.into())
    }

    fn set_vring_call(&mut self, number: u8, file: Option<File>) -> Result<()> {
        let call = self.signal(file)?;
        let (vring, ring) = self.vring(number.into())?;
        if let Some(crossing) = &vring.crossing {
            crossing.call_by(call.as_ref()).map_err(refused)?;
            vring.call = call;
            return Ok(());
        }
        let replaced = ring.replace_call(call.clone());
        // Used buffers may have been published before there was a call descriptor.
        if replaced.is_some() {
            call.iter().for_each(|call| call.raise());
        }
        vring.call = call;
        Ok(())
    }

    fn set_vring_err(&mut self, number: u8, file: Option<File>) -> Result<()> {
        let error = self.signal(file)?;
        let (vring, ring) = self.vring(number.into())?;
        let replaced = ring.replace_error(error.clone());
        // A fault may have been found before this descriptor came, and the old one was not
        // signalled.
        if replaced.is_some() && ring.fault().is_some() {
            error.iter().for_each(|error| error.raise());
        }
        vring.error = error;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        let mut offered = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::MTU
            | VhostUserProtocolFeatures::STATUS
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        // QEMU, which asks first, would give a channel for a network device and pass nothing on.
        let takes_changes = self.owned && !self.asked_early;
        offered.set(VhostUserProtocolFeatures::BACKEND_REQ, takes_changes);
        offered.set(VhostUserProtocolFeatures::PAGEFAULT, dock::is_there());
        Ok(offered)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol = VhostUserProtocolFeatures::from_bits_truncate(features);
        self.note_channel();
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        // QEMU reads the number as queue pairs, and asks before SET_OWNER. Front ends built on the
        // `vhost` crate (Cloud Hypervisor) read it as rings, and ask after SET_OWNER. DPDK's
        // virtio-user and user-mode Linux do not ask.
        let rings = self.shared.rings.len() as u64;
        Ok(if self.owned { rings } else { self.shared.options.pairs.into() })
    }

    fn set_vring_enable(&mut self, number: u32, enable: bool) -> Result<()> {
        let (vring, ring) = self.vring(number)?;
        vring.enabled = enable;
        if let Some(crossing) = &vring.crossing {
            crossing.enable(enable).map_err(refused)?;
        }
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
        Ok(config_space::read(&self.shared.options, self.link(), offset, size))
    }

    fn set_config(
        &mut self,
        _offset: u32,
        _bytes: &[u8],
        _flags: VhostUserConfigFlags,
    ) -> Result<()> {
        // A driver may write no part of a modern device's configuration.
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(Error::InvalidMessage)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidMessage)
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        self.check_inflight(wanted)?;
        Inflight::create(wanted.num_queues, wanted.queue_size).map_err(refused)
    }

    fn set_inflight_fd(&mut self, said: &VhostUserInflight, file: File) -> Result<()> {
        let file = Arc::new(OwnedFd::from(file));
        // Each ring keeps the region it was started with mapped, and the process has places for so
        // many.
        if let Some(place) = self.vrings.iter().position(|vring| vring.started) {
            close_aside(file);
            return Err(refused(format!(
                "an inflight region was given while ring {place} runs: all rings must be stopped (GET_VRING_BASE) first"
            )));
        }
        let (limit, began) = (self.shared.options.memory_limit, Instant::now());
        let adopted = self
            .check_inflight(said)
            .and_then(|()| Inflight::adopt(said, file.clone(), limit).map_err(refused));
        match adopted {
            Ok(inflight) => self.inflight = Some(inflight),
            Err(error) => {
                close_aside(file);
                return Err(error);
            }
        }
        self.pay(began);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(slots::MOST as u64)
    }

    fn add_mem_region(
        &mut self,
        said: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        self.expect_whole_memory()?;
        if self.lacks_pages() {
            let addresses = self.await_regions(vec![region(said, file)])?;
            return Ok(addresses.first().copied());
        }
        let added = region(said, file);
        // QEMU 7.2 adds each region once for each queue pair.
        if self.memory.as_ref().is_some_and(|memory| memory.has_region(&added)) {
            close_aside(added);
            return Ok(None);
        }
        let slots = self.memory.as_ref().map_or(0, |memory| memory.regions().len());
        if !self.slots.hold(slots + 1) {
            close_aside(added);
            return Err(refused(format!(
                "memory region {} is more than the {} served, or than other front ends leave of those they share",
                slots + 1,
                slots::MOST
            )));
        }
        let began = Instant::now();
        let memory = map(vec![added], |mut regions| match &self.memory {
            Some(memory) => regions
                .pop()
                .map_or_else(|| Ok(memory.clone()), |region| memory.with_region(region)),
            None => GuestMemory::map_within(self.shared.options.memory_limit, regions),
        });
        self.replace_memory(memory?, began)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, said: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.expect_all_pages("a memory region goes")?;
        let Some(memory) = &self.memory else { return Err(refused("there is no memory yet")) };
        let (gpa, user) = (Gpa(said.guest_phys_addr), UserAddress(said.user_addr));
        let began = Instant::now();
        match memory.without_region(gpa, said.memory_size, user) {
            Ok(memory) => self.replace_memory(memory, began),
            // QEMU 7.2 removes each region once for each queue pair.
            Err(MemoryError::NoSuchRegion { .. }) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }

    fn postcopy_advice(&mut self) -> Result<File> {
        self.advise().map(File::from)
    }

    fn postcopy_listen(&mut self) -> Result<()> {
        self.listen()
    }

    fn postcopy_ack_mem_regions(&mut self) -> Result<()> {
        self.serve_pages()
    }

    fn postcopy_end(&mut self) -> Result<()> {
        self.end_post_copy()
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        file: File,
    ) -> Result<Option<File>> {
        close_aside(file);
        Err(Error::InvalidMessage)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidMessage)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidMessage)
    }

    fn set_log_base(&mut self, said: &VhostUserLog, file: File) -> Result<()> {
        self.expect_all_pages("its writes are to be logged")?;
        let Some(memory) = &self.memory else {
            return Err(refused("there is no memory to log yet"));
        };
        let began = Instant::now();
        let log = match DirtyLog::map(file.as_fd(), said.mmap_offset, said.mmap_size, memory) {
            Ok(log) => Log { log, said: *said, file },
            Err(error) => {
                close_aside(file);
                return Err(refused(error));
            }
        };
        // Dropped only after no ring has it: gigabytes must not be unmapped under a ring's lock.
        let old = self.log.replace(log);
        self.apply_log()?;
        self.start_waiting()?;
        drop(old);
        self.pay(began);
        Ok(())
    }
}
