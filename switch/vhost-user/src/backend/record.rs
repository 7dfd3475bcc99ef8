//! The record of a session for the process that serves it next. It is written when the rings have
//! stopped. The next process reads it by carrying out what the front end's messages would do, so it
//! is checked as those are.

use super::{Backend, Log, messages, refused, stop};
use crate::Features;
use crate::asked::read_commands;
use crate::back_channel::BackChannel;
use crate::carrier::{CarrierError, Reader, Writer};
use crate::inflight::Inflight;
use crate::migration::Migration;
use crate::signal::{Signal, expect_eventfd};
use crate::vring::{Addresses, Vring};
use guestmem::{Gpa, GuestMemory, Region, UserAddress};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use vhost::vhost_user::message::{VhostUserInflight, VhostUserLog};
use vhost::vhost_user::{Error, VhostUserBackendReqHandlerMut};

/// Version of the record below. It changes whenever an older or newer Millrace would misread the
/// record.
const VERSION: u64 = 1;
/// Version of a record that ends with what the guest has set by command about the frames that it
/// receives. The others have nothing to say about it, so that the Millrace before can read them.
const VERSION_ASKED: u64 = 2;
/// Version of a record that ends with the front end's channel, after what the guest has set.
const VERSION_CHANNEL: u64 = 3;

/// Why a session cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    #[error(transparent)]
    Refused(#[from] Error),
    #[error("its connection: {0}")]
    Connection(#[from] io::Error),
}

type Resumed<T> = Result<T, ResumeError>;

fn strange(number: u64) -> ResumeError {
    CarrierError::Number(number).into()
}

/// A stopped ring: whether it ran, and its descriptors for signals.
struct Ran {
    began: bool,
    signals: [Option<OwnedFd>; 2],
}

impl Backend {
    /// Stops all rings between turns, when everything taken was given back. Returns a descriptor
    /// with the record, which includes the front end's connection. Fails if a descriptor cannot be
    /// duplicated or the record cannot be written.
    pub(crate) fn suspend(&mut self, connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        self.expect_all_pages("its session goes to another process").map_err(io::Error::other)?;
        self.send_owed();
        let ran = (0..self.vrings.len()).map(|place| self.stop_place(place));
        let ran = ran.collect::<io::Result<Vec<_>>>()?;
        let regions = self.memory.as_ref().map(|memory| memory.regions()).unwrap_or_default();
        let inflight = self.inflight.as_ref().and_then(Inflight::region);
        let mut record = Writer::default();
        let channel = self.channel.as_ref().filter(|_| self.tells_changes());
        let channel = channel.and_then(BackChannel::socket);
        record.number(match (channel, self.asked.is_nothing()) {
            (Some(_), _) => VERSION_CHANNEL,
            (None, false) => VERSION_ASKED,
            (None, true) => VERSION,
        });
        record.file(connection);
        self.write_agreed(&mut record);
        record.number(regions.len() as u64);
        regions.iter().for_each(|region| write_region(&mut record, region));
        record.number(self.log.is_some());
        if let Some(Log { said, file, .. }) = &self.log {
            record.number(said.mmap_offset);
            record.number(said.mmap_size);
            record.file(file.as_fd());
        }
        record.number(inflight.is_some());
        if let Some((said, file)) = &inflight {
            record.number(said.mmap_offset);
            record.number(said.num_queues);
            record.number(said.queue_size);
            record.file(file.as_fd());
        }
        self.vrings.iter().zip(&ran).for_each(|(vring, ran)| write_ring(&mut record, vring, ran));
        if channel.is_some() || !self.asked.is_nothing() {
            self.asked.write(&mut record);
        }
        if let Some(channel) = channel {
            record.file(channel);
        }
        record.close()
    }

    fn stop_place(&mut self, place: usize) -> io::Result<Ran> {
        let waits = self.await_log.contains(&self.number(place));
        let (Some(vring), Some(ring)) = (self.vrings.get_mut(place), self.shared.rings.get(place))
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let began = vring.started || waits;
        stop(vring, ring, &self.shared.reconnect_backoff);
        let file = |signal: &Option<Arc<Signal>>| {
            signal.as_ref().map(|signal| signal.try_clone_file()).transpose()
        };
        Ok(Ran { began, signals: [file(&vring.call)?, file(&vring.error)?] })
    }

    fn write_agreed(&self, record: &mut Writer<'_>) {
        record.number(self.taken.bits());
        record.number(self.protocol.bits());
        record.number(self.owned);
        record.number(self.migration.has_run());
        record.number(self.device_status);
        record.option(self.told_mtu);
        let address = self.address.map(|[a, b, c, d, e, f]| [a, b, c, d, e, f, 0, 0]);
        record.option(address.map(u64::from_le_bytes));
        record.option(self.offloads.map(|offloads| offloads.bits()));
        record.option(self.wished_pairs);
    }

    /// Applies the record to this new session, and starts its rings. Returns the front end's
    /// connection. Fails if the record is malformed, or asks for something that a message may not.
    pub(crate) fn resume(&mut self, mut record: Reader) -> Resumed<OwnedFd> {
        let version = record.number()?;
        if !(VERSION..=VERSION_CHANNEL).contains(&version) {
            return Err(CarrierError::Version { seen: version, wanted: VERSION_CHANNEL }.into());
        }
        let connection = record.file()?;
        let agreed = Agreed::read(&mut record)?;
        self.resume_memory(&mut record, agreed.is_logged())?;
        self.agree(&agreed)?;
        let began: Vec<u32> = (0..self.vrings.len())
            .map(|place| Ok(self.resume_ring(place, &mut record)?.then_some(self.number(place))))
            .filter_map(Resumed::transpose)
            .collect::<Resumed<_>>()?;
        if version >= VERSION_ASKED {
            self.resume_commands(&mut record)?;
        }
        if version == VERSION_CHANNEL {
            self.resume_channel(&mut record)?;
        }
        record.close()?;
        self.goes_on = true;
        began.into_iter().try_for_each(|number| self.start(number))?;
        self.goes_on = false;
        // Not announced: the guest was here before, and the network knows it.
        self.shared.rings.iter().for_each(|ring| ring.announce(Vec::new()));
        Ok(connection)
    }

    fn resume_memory(&mut self, record: &mut Reader, is_logged: bool) -> Resumed<()> {
        let count: usize = record.number()?;
        if !self.slots.hold(count) {
            return Err(strange(count as u64));
        }
        let regions = (0..count).map(|_| read_region(record)).collect::<Resumed<Vec<_>>>()?;
        if !regions.is_empty() {
            let (limit, began) = (self.shared.options.memory_limit, Instant::now());
            let memory = messages::map(regions, |regions| GuestMemory::map_within(limit, regions))?;
            self.replace_memory(memory, began)?;
        }
        if record.flag()? {
            let (offset, size) = (record.number()?, record.number()?);
            let set = self.set_log_base(&VhostUserLog::new(size, offset), record.file()?.into());
            // The log of a migration that failed is dropped: it may not fit the current memory.
            set.or_else(|error| if is_logged { Err(error) } else { Ok(()) })?;
        }
        if record.flag()? {
            let (mmap_offset, num_queues) = (record.number()?, record.number()?);
            let queue_size = record.number()?;
            let mmap_size = Inflight::bytes(num_queues, queue_size);
            let said = VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size };
            self.set_inflight_fd(&said, record.file()?.into())?;
        }
        Ok(())
    }

    fn agree(&mut self, agreed: &Agreed) -> Resumed<()> {
        // Noted as already known: neither the log nor that the guest runs here is a step of a
        // migration.
        let is_logged = agreed.is_logged() && self.log.is_some();
        self.migration = Migration::going_on(agreed.has_run, is_logged);
        self.owned = agreed.owned;
        self.set_features(agreed.features)?;
        self.set_protocol_features(agreed.protocol)?;
        self.device_status = agreed.device_status;
        self.address = agreed.address.and_then(|bytes| bytes.to_le_bytes().first_chunk().copied());
        if let Some(mtu) = agreed.told_mtu {
            self.set_mtu(mtu);
        }
        // Not carried out as commands: the guest may have set the pairs by another command, and need
        // not take the offloads' own feature any more.
        if let Some(bits) = agreed.offloads {
            let most = Features::GUEST_OFFLOADS & self.taken;
            let known = Features::from_bits(bits).filter(|it| most.contains(*it));
            self.offloads = Some(known.ok_or(strange(bits))?);
        }
        if let Some(pairs) = agreed.pairs {
            let is_possible = (1..=self.shared.options.pairs).contains(&pairs);
            self.wished_pairs = Some(is_possible.then_some(pairs).ok_or(strange(pairs.into()))?);
        }
        Ok(())
    }

    /// Carries out the commands about received frames again. They do not change the number of queue
    /// pairs, which may have been set after them.
    fn resume_commands(&mut self, record: &mut Reader) -> Resumed<()> {
        let pairs = self.wished_pairs;
        for command in read_commands(record)? {
            let is_granted = self.carry_out(command);
            is_granted.then_some(()).ok_or(ResumeError::Refused(refused("a command")))?;
        }
        self.wished_pairs = pairs;
        self.publish_asked();
        Ok(())
    }

    /// Takes the channel of the earlier process. The guest reads its configuration space anew, which
    /// may have changed in between.
    fn resume_channel(&mut self, record: &mut Reader) -> Resumed<()> {
        self.channel = Some(BackChannel::new(record.file()?).map_err(refused)?);
        self.note_channel();
        self.shared.note_change();
        Ok(())
    }

    /// Reads the settings of a ring. Returns whether it ran.
    fn resume_ring(&mut self, place: usize, record: &mut Reader) -> Resumed<bool> {
        let began = record.flag()?;
        let size: u16 = record.number()?;
        if u32::from(size) > messages::LARGEST_RING {
            return Err(strange(size.into()));
        }
        let mut address = || record.number().map(UserAddress);
        let [descriptors, driver, device] = [address()?, address()?, address()?];
        let addresses = record.flag()?.then_some(Addresses { descriptors, driver, device });
        let (base, enabled) = (record.number()?, record.flag()?);
        let kick = record.file_option()?.map(Arc::new);
        let [call, error] = [record.file_option()?, record.file_option()?];
        if let Some(kick) = &kick {
            expect_eventfd(kick.as_fd()).map_err(refused)?;
        }
        let call = self.signal(call.map(File::from))?;
        let error = self.signal(error.map(File::from))?;
        if began && kick.is_none() {
            return Err(strange(0));
        }
        if let Some(vring) = self.vrings.get_mut(place) {
            let fresh = Vring::default();
            *vring = Vring { size, addresses, base, kick, call, error, enabled, ..fresh };
        }
        Ok(began)
    }
}

/// The agreement of front end and back end, and other state of the connection.
struct Agreed {
    features: u64,
    protocol: u64,
    owned: bool,
    has_run: bool,
    device_status: u64,
    told_mtu: Option<u64>,
    address: Option<u64>,
    offloads: Option<u64>,
    pairs: Option<u16>,
}

impl Agreed {
    fn is_logged(&self) -> bool {
        self.features & Features::LOG_ALL.bits() != 0
    }

    fn read(record: &mut Reader) -> Resumed<Agreed> {
        Ok(Agreed {
            features: record.number()?,
            protocol: record.number()?,
            owned: record.flag()?,
            has_run: record.flag()?,
            device_status: record.number()?,
            told_mtu: record.option()?,
            address: record.option()?,
            offloads: record.option()?,
            pairs: record.option()?,
        })
    }
}

fn write_region<'f>(record: &mut Writer<'f>, region: &'f Region) {
    record.number(region.gpa.0);
    record.number(region.size);
    record.number(region.user.0);
    record.number(region.file_offset);
    record.file(region.file.as_fd());
}

fn read_region(record: &mut Reader) -> Resumed<Region> {
    Ok(Region {
        gpa: Gpa(record.number()?),
        size: record.number()?,
        user: UserAddress(record.number()?),
        file_offset: record.number()?,
        file: Arc::new(record.file()?),
    })
}

fn write_ring<'f>(record: &mut Writer<'f>, vring: &'f Vring, ran: &'f Ran) {
    record.number(ran.began);
    record.number(vring.size);
    let none = UserAddress(0);
    let absent = Addresses { descriptors: none, driver: none, device: none };
    let Addresses { descriptors, driver, device } = vring.addresses.unwrap_or(absent);
    [descriptors, driver, device].into_iter().for_each(|address| record.number(address.0));
    record.number(vring.addresses.is_some());
    record.number(vring.base);
    record.number(vring.enabled);
    record.file_option(vring.kick.as_ref().map(|kick| kick.as_fd()));
    ran.signals.iter().for_each(|file| record.file_option(file.as_ref().map(AsFd::as_fd)));
}
