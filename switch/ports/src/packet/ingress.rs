//! Takes from an interface: frames lent from the ring, trains from a buffer of the queue.

use super::VNET_LEN;
use super::fence::Fence;
use super::gate::Gate;
use super::ring::{Filled, Ring};
use super::socket::PacketSocket;
use super::sparse::Sparse;
use super::stall::Watched;
use crate::{Burst, Ingress, Nanos, PortFault, Slice, VlanTag};
use rustix::io::Errno;
use rustix::net::{RecvFlags, netdevice, recv};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Default of the longest time that a frame may have waited in a kept ring. Longer than a restart
/// takes, even one that systemd tries again after a second, and shorter than a client waits for an
/// answer. An older frame was meant for an earlier configuration and peers that have given up.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The longest wait that is believed: a whole ring takes a fraction of it. A longer one says that
/// the clock was set.
const LONGEST_BELIEVED: Duration = Duration::from_secs(1);

/// Interval between two checks of the socket for an error, for a queue that is only polled.
const LOOK: Nanos = Nanos(100 * Nanos::MILLISECOND.0);

/// The ingress side of a queue pair. See [`Ingress`]. Reports once that the interface went down;
/// frames come again when it is up.
pub struct PacketIngress {
    /// Declared first, so that the mapping is dropped before the socket.
    ring: Ring,
    socket: Arc<PacketSocket>,
    /// Buffer for frames longer than a slot. Pages that no train reaches take no memory.
    trains: Vec<u8>,
    /// Frames that could not be received so far; the kernel counts its own drops.
    lost: u64,
    /// The fault that the next call reports.
    fault: Option<PortFault>,
    /// An error of the socket that was returned in place of a train.
    error: Option<Errno>,
    /// When the socket was last checked for an error.
    looked: Nanos,
    /// Whether a fault was seen before.
    was_down: bool,
    /// The kernel's number of the interface.
    index: u32,
    /// The queue's fence, if there are several queues.
    member: Option<Member>,
    /// Whether another process had the ring and no train has been received since: trains that it
    /// received are no longer beside the ring.
    is_resumed: bool,
    sparse: Sparse,
}

/// A queue of a group, which a fence can hold.
pub(super) struct Member {
    pub(super) fence: Arc<Fence>,
    pub(super) queue: usize,
}

impl Member {
    fn gate(&self) -> Option<&Gate> {
        self.fence.gate(self.queue)
    }

    /// Returns how many slots may be taken now.
    fn enter(&self) -> u64 {
        let Some(gate) = self.gate() else { return u64::MAX };
        if gate.is_held() {
            self.fence.advance();
        }
        gate.enter()
    }
}

impl PacketIngress {
    pub(super) fn new(
        socket: Arc<PacketSocket>,
        ring: Ring,
        index: u32,
        member: Option<Member>,
    ) -> PacketIngress {
        PacketIngress {
            ring,
            socket,
            trains: vec![0; Burst::BYTES + Burst::LARGEST_TRAIN],
            lost: 0,
            fault: None,
            error: None,
            looked: Nanos::default(),
            was_down: false,
            index,
            member,
            is_resumed: false,
            sparse: Sparse::new(),
        }
    }

    /// Resumes a ring that another process had. Frames that have waited for longer are lost.
    pub(super) fn resumed(
        socket: Arc<PacketSocket>,
        ring: Ring,
        index: u32,
        longest_wait: Duration,
    ) -> PacketIngress {
        let new = PacketIngress::new(socket, ring, index, None);
        let mut queue = PacketIngress { is_resumed: true, ..new };
        let now = since_1970();
        queue.discard(|header| is_stale(header, now, longest_wait));
        queue
    }

    /// Gives back the oldest slots while they are stale, with their trains, and counts them as
    /// lost.
    fn discard(&mut self, is_stale: impl Fn(&libc::tpacket2_hdr) -> bool) {
        loop {
            if self.ring.was_taken() {
                self.ring.skip();
                continue;
            }
            let Some(slot) = self.ring.take_if(&is_stale) else { break };
            self.lost += 1;
            if slot.bytes.len() != slot.header.tp_len as usize {
                let (room, told) = (&mut self.trains.as_mut_slice(), &mut self.error);
                receive_train(&self.socket, &slot, room, &mut self.is_resumed, told);
            }
        }
        self.ring.release();
    }

    /// Creates a file that records the ring's position from now on. Returns the socket and the
    /// file. Fails if a descriptor or the file cannot be created.
    pub(super) fn keep(&mut self) -> io::Result<[OwnedFd; 2]> {
        Ok([self.socket.as_fd().try_clone_to_owned()?, self.ring.keep()?])
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Returns its ring and socket for a [`StallWatch`](super::stall::StallWatch).
    pub(super) fn watched(&self) -> Watched {
        Watched::new(self.ring.slots(), self.socket.clone())
    }

    /// Checks the socket for an error of the interface. A deleted interface goes down first, and
    /// only that is reported; so an interface that was down is also looked up.
    fn look_for_fault(&mut self) {
        let error = self.error.take().or_else(|| self.socket.take_error());
        if error.is_none() && !self.was_down {
            return;
        }
        self.fault = match error.unwrap_or(Errno::NODEV) {
            Errno::NETDOWN | Errno::NODEV => {
                match netdevice::index_to_name(&*self.socket, self.index) {
                    Err(gone) => Some(PortFault::Gone(gone.into())),
                    Ok(_) => error.map(|_| PortFault::Down),
                }
            }
            other => {
                Some(PortFault::Io { doing: "receive from the interface", source: other.into() })
            }
        };
        self.was_down = true;
    }
}

impl Ingress for PacketIngress {
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        if !self.ring.has_filled() && now.since(self.looked) >= LOOK {
            self.looked = now;
            self.look_for_fault();
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let most = self.member.as_ref().map_or(u64::MAX, Member::enter);
        let (ring, sparse) = (&self.ring, &mut self.sparse);
        if !Gate::is_limit(most) {
            sparse.look(ring);
            take_ahead(ring, sparse, burst);
        }
        let ahead = burst.frames().len();
        burst.limit_bytes(sparse.most_bytes(ahead, now));
        let (mut taken, mut room) = (0, self.trains.as_mut_slice());
        while taken < most && !burst.is_full() && room.len() >= Burst::LARGEST_TRAIN {
            if sparse.skip(ring) {
                taken += 1;
                continue;
            }
            let Some(slot) = ring.take() else { break };
            sparse.advance();
            if burst.frames().len() == ahead {
                burst.set_waited(waited(&slot.header, since_1970()));
            }
            taken += 1;
            let len = slot.header.tp_len as usize;
            let frame = if slot.bytes.len() == len {
                Some(slot.bytes)
            } else {
                let (is_resumed, told) = (&mut self.is_resumed, &mut self.error);
                receive_train(&self.socket, &slot, &mut room, is_resumed, told)
            };
            match frame {
                Some(frame) => burst.push(slot.vnet, tag(&slot.header), &[frame]),
                None => self.lost += 1,
            }
        }
        if let Some(gate) = self.member.as_ref().and_then(Member::gate) {
            gate.leave(taken);
        }
        Ok(())
    }

    fn release(&mut self) {
        let gate = self.member.as_ref().and_then(Member::gate);
        if let Some(gate) = gate {
            gate.begin_release();
        }
        self.sparse.release(&self.ring);
        let count = self.ring.release();
        if let Some(gate) = gate {
            gate.release(count.into());
        }
    }

    fn arm(&mut self) -> bool {
        self.look_for_fault();
        self.fault.is_some() || self.ring.has_filled()
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    /// Costs a system call each time.
    fn lost(&self) -> u64 {
        self.lost + self.socket.statistics().1
    }
}

/// Takes frames of sparse flows before their turn, as far as their share of the burst goes.
fn take_ahead<'q>(ring: &'q Ring, sparse: &mut Sparse, burst: &mut Burst<'q>) {
    let (frames, bytes) = (Sparse::share(burst.room()), Sparse::share(burst.room_bytes()));
    while burst.frames().len() < frames && burst.bytes() < bytes {
        let Some(slot) = sparse.take(ring) else { break };
        burst.push(slot.vnet, tag(&slot.header), &[slot.bytes]);
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns when the kernel filled a slot, since 1970.
fn filled_at(header: &libc::tpacket2_hdr) -> Duration {
    Duration::new(header.tp_sec.into(), header.tp_nsec)
}

/// Returns how long ago the kernel filled a slot. `None` if the clock was set meanwhile, as far as
/// that can be seen.
fn waited(header: &libc::tpacket2_hdr, now: Duration) -> Option<Nanos> {
    let waited = now.checked_sub(filled_at(header))?;
    (waited <= LONGEST_BELIEVED).then(|| waited.into())
}

/// Whether the kernel filled a slot longer ago than `longest_wait`. Both times count from 1970, by
/// a clock that can be set meanwhile: a frame from the future is as doubtful as an old one.
fn is_stale(header: &libc::tpacket2_hdr, now: Duration, longest_wait: Duration) -> bool {
    filled_at(header).abs_diff(now) > longest_wait
}

/// Receives the frame that did not fit its slot, if the kernel still has it.
fn receive_train<'q>(
    socket: &PacketSocket,
    slot: &Filled<'_>,
    room: &mut &'q mut [u8],
    is_resumed: &mut bool,
    told: &mut Option<Errno>,
) -> Option<Slice<'q>> {
    let len = slot.header.tp_len as usize;
    if slot.header.tp_status & libc::TP_STATUS_COPY == 0 {
        return None;
    }
    if *is_resumed && is_next(socket, slot.bytes, room, len, told) {
        *is_resumed = false;
    }
    if *is_resumed { None } else { receive(socket, room, len, told) }
}

/// Receives the first waiting frame. Such frames wait whole beside the ring, in the order of the
/// slots.
fn receive<'q>(
    socket: &PacketSocket,
    room: &mut &'q mut [u8],
    len: usize,
    told: &mut Option<Errno>,
) -> Option<Slice<'q>> {
    let count = receive_into(socket, room, RecvFlags::empty(), told)?;
    if count != VNET_LEN + len || count > room.len() {
        return None;
    }
    let (received, rest) = std::mem::take(room).split_at_mut(count);
    *room = rest;
    let received: &'q [u8] = received;
    received.get(VNET_LEN..).map(Slice::from)
}

/// Whether the first waiting frame belongs to a slot, which holds its beginning. A process that had
/// the ring before and died may have received a frame without giving its slot back.
fn is_next(
    socket: &PacketSocket,
    slot: Slice<'_>,
    room: &mut [u8],
    len: usize,
    told: &mut Option<Errno>,
) -> bool {
    let mut start = Vec::new();
    slot.append_to(&mut start);
    let room = room.get_mut(..VNET_LEN + start.len()).unwrap_or_default();
    receive_into(socket, room, RecvFlags::PEEK, told) == Some(VNET_LEN + len)
        && room.get(VNET_LEN..) == Some(&start)
}

/// Receives as much of a frame as there is room for. Returns the frame's whole length.
fn receive_into(
    socket: &PacketSocket,
    room: &mut [u8],
    flags: RecvFlags,
    told: &mut Option<Errno>,
) -> Option<usize> {
    // An error of the socket is returned first, once, and the frame waits behind it.
    for _ in 0..2 {
        match recv(socket, &mut *room, flags | RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, count)) => return Some(count),
            Err(Errno::AGAIN) => return None,
            Err(error) => *told = Some(error),
        }
    }
    None
}

/// Returns the tag that the interface or the kernel took out of the frame.
fn tag(header: &libc::tpacket2_hdr) -> Option<VlanTag> {
    let has = |bit| header.tp_status & bit != 0;
    has(libc::TP_STATUS_VLAN_VALID).then(|| VlanTag {
        tpid: if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.tp_vlan_tpid } else { 0x8100 },
        tci: header.tp_vlan_tci,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tp_status: u32) -> libc::tpacket2_hdr {
        libc::tpacket2_hdr {
            tp_status,
            tp_len: 0,
            tp_snaplen: 0,
            tp_mac: 0,
            tp_net: 0,
            tp_sec: 0,
            tp_nsec: 0,
            tp_vlan_tci: 0x2064,
            tp_vlan_tpid: 0x88a8,
            tp_padding: [0; 4],
        }
    }

    #[test]
    fn a_frame_is_stale_after_its_time_and_if_it_is_of_the_future() {
        let at = |tp_sec, tp_nsec| libc::tpacket2_hdr { tp_sec, tp_nsec, ..header(0) };
        let is_stale = |slot| is_stale(&slot, Duration::new(1000, 500), LONGEST_WAIT);
        assert!(
            ![at(990, 500), at(1000, 0), at(1000, 500), at(1010, 500)]
                .map(is_stale)
                .contains(&true)
        );
        assert!(
            ![at(990, 499), at(0, 0), at(1010, 501), at(u32::MAX, u32::MAX)]
                .map(is_stale)
                .contains(&false)
        );
    }

    #[test]
    fn a_wait_is_known_unless_the_clock_was_set() {
        let waited = |tp_sec, tp_nsec| {
            let slot = libc::tpacket2_hdr { tp_sec, tp_nsec, ..header(0) };
            waited(&slot, Duration::new(1000, 500))
        };
        assert_eq!(waited(1000, 500), Some(Nanos(0)));
        assert_eq!(waited(999, 999_999_900), Some(Nanos(600)));
        assert_eq!(waited(999, 500), Some(Nanos(1_000_000_000)));
        assert_eq!(
            [waited(999, 499), waited(0, 0), waited(1000, 501), waited(u32::MAX, u32::MAX)],
            [None; 4]
        );
    }

    #[test]
    fn a_tag_is_one_only_where_the_status_says_so() {
        assert_eq!(tag(&header(libc::TP_STATUS_USER)), None);
        let valid = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(tag(&header(valid)), Some(VlanTag { tpid: 0x8100, tci: 0x2064 }));
        let typed = valid | libc::TP_STATUS_VLAN_TPID_VALID;
        assert_eq!(tag(&header(typed)), Some(VlanTag { tpid: 0x88a8, tci: 0x2064 }));
    }
}
