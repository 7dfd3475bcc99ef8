//! The process that has a guest's memory mapped while pages of it are missing. It waits for pages;
//! nothing else waits for it but its own session.
//!
//! It begins by sending its userfaultfd, and then does what the session orders, one [`Order`] at a
//! time. It ends when the session closes its end of the link, also while it waits for a page.

use super::carried::Carried;
use super::faults;
use super::link::Link;
use super::order::{Order, Start};
use crate::carrier::Writer;
use guestmem::{GrowingMemory, GuestMemory, Region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

type Answered = Result<Option<u64>, Box<dyn Error>>;

/// The guest's memory, before and after the front end serves its pages.
enum Memory {
    Growing(GrowingMemory, OwnedFd),
    Served(Arc<GuestMemory>),
    /// It could not be set up.
    None,
}

/// The state of the process.
pub(super) struct Ferry {
    memory: Memory,
    rings: BTreeMap<u32, Carried>,
}

impl Ferry {
    /// Begins with a descriptor that hears of missing pages, and sends it to the session.
    pub(super) fn begin(link: &Link, faults: OwnedFd) -> io::Result<Ferry> {
        let memory = GrowingMemory::new().map_err(io::Error::other)?;
        let mut hello = Writer::default();
        hello.number(0u64);
        hello.file(faults.as_fd());
        link.send(hello)?;
        Ok(Ferry { memory: Memory::Growing(memory, faults), rings: BTreeMap::new() })
    }

    /// Does what the session orders until the session closes its end.
    pub(super) fn serve(mut self, link: &Link) -> io::Result<()> {
        loop {
            let may_be_more = self.rings.values_mut().fold(false, |more, ring| ring.carry() | more);
            if self.wait(link, may_be_more)? {
                let Some(record) = link.receive()? else { return Ok(()) };
                let order = Order::read(record).map_err(io::Error::other)?;
                answer(link, self.obey(order))?;
            }
        }
    }

    /// Waits for an order, or for frames if none are there. Returns whether there is an order.
    fn wait(&self, link: &Link, is_busy: bool) -> io::Result<bool> {
        let sources = self.rings.values().flat_map(Carried::sources);
        let all = std::iter::once(link.as_fd()).chain(sources);
        let mut polled: Vec<_> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, is_busy.then_some(&at_once)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().filter(|fd| !fd.revents().is_empty());
        let is_order = polled.first().is_some_and(|first| !first.revents().is_empty());
        if is_order {
            ready.next();
        }
        // Read before the rings are looked at, so that no later kick is missed.
        ready.for_each(|fd| {
            let _ = rustix::io::read(fd.as_fd(), &mut [0; 8]);
        });
        Ok(is_order)
    }

    fn obey(&mut self, order: Order) -> Answered {
        let no_ring = || io::Error::other("no such ring");
        match order {
            Order::Map(region) => self.map(region).map(Some),
            Order::Listen => self.listen().map(|()| None),
            Order::Start(start) => self.start(*start).map(Some),
            Order::Stop(place) => {
                let mut ring = self.rings.remove(&place).ok_or_else(no_ring)?;
                if place.is_multiple_of(2) {
                    ring.carry();
                }
                Ok(Some(ring.stopped().number()))
            }
            Order::Enable(place, is_enabled) => {
                self.rings.get_mut(&place).ok_or_else(no_ring)?.enable(is_enabled);
                Ok(None)
            }
            Order::Call(place, call) => {
                self.rings.get_mut(&place).ok_or_else(no_ring)?.call_by(call);
                Ok(None)
            }
        }
    }

    fn map(&mut self, region: Region) -> Result<u64, Box<dyn Error>> {
        match &mut self.memory {
            Memory::Growing(memory, _) => Ok(memory.add(region)?),
            _ => Err("its pages are served already".into()),
        }
    }

    /// Has accesses to missing pages wait. This process's own descriptor for them is closed, so that
    /// nothing waits any more once the front end has closed its.
    fn listen(&mut self) -> Result<(), Box<dyn Error>> {
        let Memory::Growing(memory, faults) = std::mem::replace(&mut self.memory, Memory::None)
        else {
            return Err("its pages are served already".into());
        };
        memory.mapped().iter().try_for_each(|range| faults::register(&faults, range))?;
        self.memory = Memory::Served(memory.finish());
        Ok(())
    }

    fn start(&mut self, start: Start) -> Result<u64, Box<dyn Error>> {
        let Memory::Served(memory) = &self.memory else { return Err("no memory is known".into()) };
        let place = start.place;
        let ring = Carried::new(memory.clone(), start)?;
        let position = ring.position();
        self.rings.insert(place, ring);
        Ok(position.into())
    }
}

fn answer(link: &Link, answered: Answered) -> io::Result<()> {
    let mut record = Writer::default();
    record.number(answered.is_err());
    if let Ok(number) = answered {
        record.number(number.unwrap_or(0));
    }
    link.send(record)
}
