//! What a session asks of its ferry.

use crate::carrier::{CarrierError, Reader, Writer};
use guestmem::{Gpa, Region, UserAddress};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use virtqueue::{RingAddresses, RingFeatures, Setup};

/// A request. The answer begins with 0, or with 1 if it is refused.
#[derive(Debug)]
pub(crate) enum Order {
    /// Map a region. Answered with its address.
    Map(Region),
    /// From now on pages may be missing: the front end serves them.
    Listen,
    /// Carry a ring's frames. Answered with the ring's position.
    Start(Box<Start>),
    /// Carry what was taken, and end. Answered with [`Stopped`].
    Stop(u32),
    /// Take chains of a ring, or none.
    Enable(u32, bool),
    /// Interrupt the guest by another descriptor.
    Call(u32, Option<Arc<OwnedFd>>),
}

/// Where a ring stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// The guest's ring.
    pub(crate) position: u32,
    /// The relay: the first used buffer that was not carried.
    pub(crate) relay: u16,
}

impl Stopped {
    pub(crate) fn number(self) -> u64 {
        u64::from(self.relay) << 32 | u64::from(self.position)
    }

    #[allow(clippy::cast_possible_truncation, reason = "taking the number apart again")]
    pub(crate) fn of(number: u64) -> Stopped {
        Stopped { position: number as u32, relay: (number >> 32) as u16 }
    }
}

/// A ring to carry.
#[derive(Debug)]
pub(crate) struct Start {
    /// Its place among the port's rings: the guest's receive rings are even.
    pub(crate) place: u32,
    pub(crate) setup: Setup,
    pub(crate) is_enabled: bool,
    /// Most buffers that a frame to the guest may have.
    pub(crate) buffers: u16,
    /// Whether its virtio header counts them.
    pub(crate) is_counted: bool,
    pub(crate) files: Files,
}

/// The descriptors of a ring. Those without a word are eventfds.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) kick: Arc<OwnedFd>,
    pub(crate) call: Option<Arc<OwnedFd>>,
    /// The relay's memory.
    pub(crate) relay: Arc<OwnedFd>,
    pub(crate) to_worker: Arc<OwnedFd>,
    pub(crate) from_worker: Arc<OwnedFd>,
}

impl Order {
    pub(crate) fn write(&self) -> Writer<'_> {
        let mut record = Writer::default();
        match self {
            Order::Map(region) => {
                record.number(0u64);
                record.number(region.gpa.0);
                record.number(region.size);
                record.number(region.user.0);
                record.number(region.file_offset);
                record.file(region.file.as_fd());
            }
            Order::Listen => record.number(1u64),
            Order::Start(start) => {
                record.number(2u64);
                start.write(&mut record);
            }
            Order::Stop(place) => {
                record.number(3u64);
                record.number(*place);
            }
            Order::Enable(place, is_enabled) => {
                record.number(4u64);
                record.number(*place);
                record.number(*is_enabled);
            }
            Order::Call(place, call) => {
                record.number(5u64);
                record.number(*place);
                record.file_option(call.as_ref().map(|call| call.as_fd()));
            }
        }
        record
    }

    pub(crate) fn read(mut record: Reader) -> Result<Order, CarrierError> {
        let order = match record.number::<u64>()? {
            0 => Order::Map(Region {
                gpa: Gpa(record.number()?),
                size: record.number()?,
                user: UserAddress(record.number()?),
                file_offset: record.number()?,
                file: Arc::new(record.file()?),
            }),
            1 => Order::Listen,
            2 => Order::Start(Box::new(Start::read(&mut record)?)),
            3 => Order::Stop(record.number()?),
            4 => Order::Enable(record.number()?, record.flag()?),
            5 => Order::Call(record.number()?, record.file_option()?.map(Arc::new)),
            number => return Err(CarrierError::Number(number)),
        };
        record.close()?;
        Ok(order)
    }
}

impl Start {
    fn write<'f>(&'f self, record: &mut Writer<'f>) {
        let Setup { size, rings, features, base } = self.setup;
        let RingAddresses { descriptors, driver, device } = rings;
        record.number(self.place);
        record.number(size);
        [descriptors, driver, device].into_iter().for_each(|address| record.number(address.0));
        record.number(features.bits());
        record.number(base);
        record.number(self.is_enabled);
        record.number(self.buffers);
        record.number(self.is_counted);
        let Files { kick, call, relay, to_worker, from_worker } = &self.files;
        [kick, relay, to_worker, from_worker]
            .into_iter()
            .for_each(|file| record.file(file.as_fd()));
        record.file_option(call.as_ref().map(|call| call.as_fd()));
    }

    fn read(record: &mut Reader) -> Result<Start, CarrierError> {
        let (place, size) = (record.number()?, record.number()?);
        let mut address = || record.number().map(Gpa);
        let rings =
            RingAddresses { descriptors: address()?, driver: address()?, device: address()? };
        let features = RingFeatures::from_bits_truncate(record.number()?);
        let setup = Setup { size, rings, features, base: record.number()? };
        let is_enabled = record.flag()?;
        let (buffers, is_counted) = (record.number()?, record.flag()?);
        let mut file = || record.file().map(Arc::new);
        let (kick, relay, to_worker, from_worker) = (file()?, file()?, file()?, file()?);
        let call = record.file_option()?.map(Arc::new);
        let files = Files { kick, call, relay, to_worker, from_worker };
        Ok(Start { place, setup, is_enabled, buffers, is_counted, files })
    }
}
