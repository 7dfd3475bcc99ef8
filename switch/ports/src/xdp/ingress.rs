// UNSAFETY: lends frames of the UMEM by the descriptors of its receive ring.
//! Takes from a queue of an interface, and lends the frames from the UMEM.
#![allow(unsafe_code)]

use super::checksum;
use super::program::Attached;
use super::ring::{Reader, Writer};
use super::socket::{TRY_AGAIN, XdpSocket};
use super::umem::Umem;
use crate::{Burst, Ingress, Nanos, PortFault, Slice};
use rustix::net::xdp::XdpDesc;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Interval between two checks of the socket for an error, for a queue that is only polled.
const LOOK: Nanos = Nanos(100 * Nanos::MILLISECOND.0);

/// The ingress side of a queue. See [`Ingress`].
pub struct XdpIngress {
    /// Declared first, so that it is dropped first: then no frame is redirected to a closed socket.
    _attached: Arc<Attached>,
    fill: Writer<u64>,
    receive: Reader<XdpDesc>,
    socket: Arc<XdpSocket>,
    umem: Arc<Umem>,
    queue: u32,
    /// Descriptors of frames that do not lie in a chunk of the queue.
    lost: u64,
    /// The fault that the next call reports.
    fault: Option<PortFault>,
    /// When the socket was last checked for an error.
    looked: Nanos,
    /// Frames left in the transmit ring are not sent again before this time.
    try_at: Nanos,
}

impl XdpIngress {
    pub(super) fn new(
        attached: Arc<Attached>,
        (fill, receive): (Writer<u64>, Reader<XdpDesc>),
        socket: Arc<XdpSocket>,
        (umem, queue): (Arc<Umem>, u32),
    ) -> XdpIngress {
        XdpIngress {
            _attached: attached,
            fill,
            receive,
            socket,
            umem,
            queue,
            lost: 0,
            fault: None,
            looked: Nanos::default(),
            try_at: Nanos::default(),
        }
    }

    /// Checks the socket for an error. An interface that goes down reports none to the socket; one
    /// that is deleted or moved does, once.
    fn look_for_fault(&mut self) {
        if self.fault.is_none() {
            self.fault = self.socket.take_error().map(|error| PortFault::Gone(error.into()));
        }
    }
}

impl Ingress for XdpIngress {
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        if now.since(self.looked) >= LOOK && !self.receive.has_filled() {
            self.looked = now;
            self.look_for_fault();
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if now >= self.try_at && self.socket.send_rest() {
            self.try_at = now + TRY_AGAIN;
        }
        let XdpIngress { receive, umem, queue, lost, .. } = self;
        while !burst.is_full() {
            let Some(entry) = receive.take() else { break };
            // SAFETY: from the receive ring; `release`, which puts it into the fill ring, needs the
            // queue alone.
            match unsafe { umem.received(*queue, entry.addr, entry.len) } {
                Some(frame) => burst.push(checksum::claim(frame), None, &[Slice::from(frame)]),
                None => *lost += 1,
            }
        }
        Ok(())
    }

    fn release(&mut self) {
        let XdpIngress { receive, fill, umem, queue, .. } = self;
        receive.release(|entry| {
            if let Some(chunk) = umem.ingress_chunk(*queue, entry.addr) {
                fill.put(chunk);
            }
        });
        fill.publish();
        if fill.needs_wakeup() {
            self.socket.wake_fill();
        }
    }

    fn arm(&mut self) -> bool {
        self.look_for_fault();
        // Frames left in the transmit ring are no reason to stay awake: the timer wakes the worker.
        self.fault.is_some() || self.receive.has_filled()
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.ready_fd())
    }

    /// Costs a system call each time.
    fn lost(&self) -> u64 {
        self.lost + self.socket.lost()
    }
}
