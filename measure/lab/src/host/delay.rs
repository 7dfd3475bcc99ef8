//! A delay line: what a host sends to it leaves over a link after a fixed time. What the link
//! receives reaches the host at once, so the time is added to each round trip once, and bulk data
//! the other way stays in the kernel.
//!
//! The line is a TAP device of the host with the link's address, and a thread that ends with the
//! process. Trains and unfinished checksums pass as they are.

use ports::link::Link;
use ports::packet::PacketEgress;
use ports::tap::TapOptions;
use ports::{Burst, Egress, IngressQueue, Nanos, Outgoing, PortFault, packet, tap};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};
use wire::vnet::VnetHeader;

/// Bytes in the line from which on the device's own queue fills: 20 ms at 10 Gbit/s.
const FULL: usize = 32 << 20;
/// Frames that leave at once at most.
const MOST: usize = 64;

/// A frame in the line.
struct Delayed {
    until: Instant,
    vnet: VnetHeader,
    bytes: Vec<u8>,
}

/// Frames between the device and the link.
struct Line {
    delay: Duration,
    device: IngressQueue,
    link: PacketEgress,
    frames: VecDeque<Delayed>,
    bytes: usize,
}

/// Makes the device, up and without addresses, and starts its thread.
///
/// # Errors
/// There is no such link, or the device cannot be made.
pub(super) fn start(
    device: &str,
    link: &str,
    delay: Duration,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (far, egress) = (Link::open(link, None)?, packet::open_egress(link)?);
    let (mac, mtu) = (far.mac()?, u16::try_from(far.mtu()?).ok());
    let opened = tap::open(&TapOptions { mac: Some(mac), mtu, ..TapOptions::new(device) })?;
    let device = opened.device.ingress.into_iter().next().ok_or("a TAP without a queue")?;
    let line = Line { delay, device, link: egress, frames: VecDeque::new(), bytes: 0 };
    std::thread::Builder::new().name("delay".into()).spawn(|| line.run())?;
    Ok(())
}

impl Line {
    /// Passes frames on until the device or the link has gone.
    fn run(mut self) {
        while self.take().and_then(|()| self.send()).is_ok() {
            self.wait();
        }
    }

    /// Takes what has arrived at the device, as far as the line has room.
    fn take(&mut self) -> Result<(), PortFault> {
        while self.bytes < FULL {
            let (mut burst, until) = (Burst::new(), Instant::now() + self.delay);
            self.device.take(Nanos::default(), &mut burst)?;
            for frame in burst.frames() {
                let mut bytes = Vec::with_capacity(frame.len as usize);
                burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
                self.bytes += bytes.len();
                self.frames.push_back(Delayed { until, vnet: frame.vnet, bytes });
            }
            let is_last = burst.taken() == 0;
            self.device.release();
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Sends the frames whose time has come. A frame that the link refuses is lost, as on a wire.
    fn send(&mut self) -> Result<(), PortFault> {
        let now = Instant::now();
        loop {
            let due = self.frames.iter().take(MOST).take_while(|frame| frame.until <= now);
            let due: Vec<_> = due.map(Delayed::outgoing).collect();
            if due.is_empty() {
                return Ok(());
            }
            self.link.deliver(&due, &mut Vec::new())?;
            let (count, bytes) =
                (due.len(), due.iter().map(|frame| frame.len as usize).sum::<usize>());
            self.frames.drain(..count);
            self.bytes -= bytes;
        }
    }

    /// Waits for the next frame's time, and for frames at the device if the line has room.
    fn wait(&self) {
        let next =
            self.frames.front().map(|frame| frame.until.saturating_duration_since(Instant::now()));
        let timeout = next.and_then(|next| Timespec::try_from(next).ok());
        let device = self.device.ready_fd().filter(|_| self.bytes < FULL);
        let mut waited: Vec<_> =
            device.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut waited, timeout.as_ref());
    }
}

impl Delayed {
    fn outgoing(&self) -> Outgoing<'_> {
        #[allow(clippy::cast_possible_truncation, reason = "a frame has at most 64 KiB")]
        let len = self.bytes.len() as u32;
        Outgoing { vnet: self.vnet, header: &self.bytes, payload: &[], len }
    }
}
