//! A memory port as a network device of smoltcp.
//!
//! smoltcp has no virtio header: it computes checksums of whole frames, and takes a train as one
//! large frame. This wrapper stands for the guest's driver. A frame without offload flags must have
//! a correct checksum. A frame that was coalesced, or whose checksum the sender left to the device,
//! is accepted without a check.

use ports::memory::{MemoryFrame, Peer};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpPacket};
use wire::vnet::{Flags, VnetHeader};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A memory port with smoltcp's device interface.
pub(super) struct GuestDevice {
    peer: Peer,
    /// Largest IP packet smoltcp may build or take.
    mtu: usize,
    /// Buffer in which a frame is built before it is sent.
    scratch: Vec<u8>,
    /// Frames dropped for a wrong checksum.
    pub(super) bad_checksums: u64,
}

impl GuestDevice {
    pub(super) fn new(peer: Peer, mtu: usize) -> GuestDevice {
        GuestDevice { peer, mtu, scratch: Vec::new(), bad_checksums: 0 }
    }

    fn next(&mut self) -> Option<MemoryFrame> {
        loop {
            let frame = self.peer.receive()?;
            let promised = frame.vnet.flags().intersects(Flags::NEEDS_CSUM | Flags::DATA_VALID);
            if promised || checksum_is_right(&frame.bytes) {
                return Some(frame);
            }
            self.bad_checksums += 1;
            self.peer.recycle(frame);
        }
    }
}

/// Returns whether a TCP segment over IPv4 has the correct checksum; `true` for all other frames.
fn checksum_is_right(bytes: &[u8]) -> bool {
    let tcp = || {
        let frame = EthernetFrame::new_checked(bytes).ok()?;
        let packet = (frame.ethertype() == EthernetProtocol::Ipv4)
            .then(|| Ipv4Packet::new_checked(frame.payload()).ok())??;
        let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
        let segment = (packet.next_header() == IpProtocol::Tcp)
            .then(|| TcpPacket::new_checked(packet.payload()).ok())??;
        Some(segment.verify_checksum(&from, &to))
    };
    tcp().unwrap_or(true)
}

impl Device for GuestDevice {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let frame = self.next()?;
        let received = Received { peer: &self.peer, frame };
        Some((received, Sending { peer: &self.peer, scratch: &mut self.scratch }))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sending<'_>> {
        Some(Sending { peer: &self.peer, scratch: &mut self.scratch })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET;
        // `next` checks TCP checksums, where the virtio header is known.
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

/// A received frame; its buffer returns to the port once smoltcp has read it.
pub(super) struct Received<'a> {
    peer: &'a Peer,
    frame: MemoryFrame,
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(&self.frame.bytes);
        self.peer.recycle(self.frame);
        result
    }
}

/// Permission to send one frame.
pub(super) struct Sending<'a> {
    peer: &'a Peer,
    scratch: &'a mut Vec<u8>,
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        self.scratch.clear();
        self.scratch.resize(len, 0);
        let result = fill(self.scratch);
        // A full port loses the frame, as a full link does; TCP retransmits it.
        let _ = self.peer.send(VnetHeader::default(), self.scratch);
        result
    }
}
