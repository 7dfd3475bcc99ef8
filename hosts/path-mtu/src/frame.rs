//! The messages between a checker and responders, and between responders.
//!
//! Over TCP, from the checker to a responder: one [`Hello`], then an [`Order`] for each direction
//! to be probed. Each is answered by one [`Answer`], and all three have the same length. Over UDP,
//! from responder to responder: a [`Probe`] at the start of a datagram of any size, answered by the
//! same bytes with another first word and, if the probe is as long, the name of the device that it
//! arrived by. The functions that read them are fuzzed (`tests/fuzz_frame.rs`).

use crate::attachment::{Attachment, BELOW, Below, Neighbour};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of each message over TCP, in bytes.
pub const LEN: usize = 192;
/// Most sizes in one order.
pub const SIZES: usize = 32;
/// The smallest size that can be asked for: every link of IPv4 has to carry it.
pub const SMALLEST: u16 = 68;
/// The largest size that can be asked for. One byte more is used to make a device refuse a packet.
pub const LARGEST: u16 = u16::MAX - 1;
/// First bytes of a connection: the protocol and its version.
const MAGIC: [u8; 8] = *b"mrmtu\0\0\x01";
/// First bytes of a probe, and of its acknowledgement.
const PROBE: [u8; 4] = *b"mrp?";
const ACKNOWLEDGEMENT: [u8; 4] = *b"mrp!";

/// A random number that the checker draws for a run. A responder acknowledges only probes with the
/// badge of an open session.
pub type Badge = [u8; 16];

/// Opens a session.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Hello {
    magic: [u8; 8],
    /// The token, padded with zero bytes.
    token: [u8; 128],
    /// The badge of this run.
    pub badge: Badge,
    unused: [u8; 40],
}

/// Asks a responder to probe one peer.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Order {
    /// The peer's IPv6 address; an IPv4 address is mapped.
    to: [u8; 16],
    scope: U32,
    port: U16,
    count: U16,
    /// Sizes of IP packets, in bytes.
    sizes: [U16; SIZES],
    timeout_ms: U16,
    unused: [u8; 102],
}

/// A responder's answer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Answer {
    status: u8,
    unused: u8,
    device_mtu: U16,
    arrived: U32,
    told_mtu: U16,
    told_by: [u8; 16],
    interface: [u8; 16],
    /// Where the listening address is attached, in the answer to a [`Hello`]: the length of its
    /// prefix and 1 more, or 0 if it is not known; and the number of the host.
    prefix: u8,
    neighbour: u8,
    host: U64,
    arrives_by: [u8; 16],
    below: [NarrowDevice; BELOW],
    rest: [u8; 16],
}

/// A device below the one with the listening address, with a smaller MTU.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct NarrowDevice {
    name: [u8; 16],
    /// 0 if there is none.
    mtu: U16,
}

/// A probe or its acknowledgement, between responders.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Probe {
    kind: [u8; 4],
    badge: Badge,
    /// Size of the IP packet, in bytes.
    size: U16,
    /// The number of the order, so that a late acknowledgement is not counted for the next order.
    order: U16,
}

const _: () =
    assert!(size_of::<Hello>() == LEN && size_of::<Order>() == LEN && size_of::<Answer>() == LEN);
// An acknowledgement is never longer than the smallest probe.
const _: () = assert!(size_of::<Probe>() + 28 <= SMALLEST as usize);

/// An order that was read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// The peer's responder.
    pub to: SocketAddr,
    /// Sizes of IP packets in bytes, at most [`SIZES`], each from [`SMALLEST`] to [`LARGEST`].
    pub sizes: Vec<u16>,
    /// How long to wait for acknowledgements, over all tries.
    pub timeout_ms: u16,
}

/// The result of probing one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// MTU of the device that the probes left by; 0 if it is not known.
    pub device_mtu: u16,
    /// Name of that device; empty if it is not known.
    pub interface: String,
    /// For each size of the order, whether it arrived whole.
    pub arrived: Vec<bool>,
    /// The smallest MTU that a hop on the path reported, with the hop's address.
    pub told: Option<(IpAddr, u16)>,
    /// Name of the peer's device that the probes arrived by; empty if it is not known.
    pub arrives_by: String,
    /// Whether the peer answered ARP or neighbour discovery, if no probe arrived.
    pub neighbour: Neighbour,
}

impl Hello {
    /// Returns the opening of a session of the run with this badge.
    pub fn new(token: &str, badge: Badge) -> Hello {
        let mut hello = Hello { magic: MAGIC, token: [0; 128], badge, unused: [0; 40] };
        hello.token.iter_mut().zip(token.bytes()).for_each(|(place, byte)| *place = byte);
        hello
    }

    /// Returns the token that a client sent; `None` if it speaks another protocol.
    pub fn token(&self) -> Option<&str> {
        let end = self.token.iter().position(|byte| *byte == 0).unwrap_or(self.token.len());
        (self.magic == MAGIC).then(|| std::str::from_utf8(self.token.get(..end)?).ok())?
    }
}

impl Order {
    /// Returns the message of an order. Sizes beyond [`SIZES`] are left out.
    pub fn new(request: &ProbeRequest) -> Order {
        let mut order = Order {
            to: mapped(request.to.ip()),
            scope: U32::new(if let SocketAddr::V6(to) = request.to { to.scope_id() } else { 0 }),
            port: U16::new(request.to.port()),
            count: U16::new(u16::try_from(request.sizes.len().min(SIZES)).unwrap_or_default()),
            sizes: [U16::ZERO; SIZES],
            timeout_ms: U16::new(request.timeout_ms),
            unused: [0; 102],
        };
        order.sizes.iter_mut().zip(&request.sizes).for_each(|(place, size)| place.set(*size));
        order
    }

    /// Checks an order that a client sent: the target must be one station, and the sizes those of
    /// IP packets.
    ///
    /// # Errors
    /// Returns the status of the refusal.
    pub fn read(&self) -> Result<ProbeRequest, Status> {
        let ip = unmapped(self.to);
        let to = match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, self.port.get()),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, self.port.get(), 0, self.scope.get()).into(),
        };
        let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        if ip.is_multicast() || ip.is_unspecified() || is_broadcast || to.port() == 0 {
            return Err(Status::BadOrder);
        }
        let sizes = self.sizes.get(..self.count.get().into()).ok_or(Status::BadOrder)?;
        let sizes: Vec<u16> = sizes.iter().map(|size| size.get()).collect();
        if sizes.iter().any(|size| !(SMALLEST..=LARGEST).contains(size)) {
            return Err(Status::BadOrder);
        }
        Ok(ProbeRequest { to, sizes, timeout_ms: self.timeout_ms.get() })
    }
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A session is open, or probes were sent.
    Done,
    /// The order breaks a rule.
    BadOrder,
    /// The responder could not send: no route, or no rights.
    Unable,
}

impl Answer {
    /// Makes an answer without a result.
    pub fn only(status: Status) -> Answer {
        let status = match status {
            Status::Done => 0,
            Status::BadOrder => 1,
            Status::Unable => 2,
        };
        Answer { status, ..Answer::new_zeroed() }
    }

    /// Makes an answer with a result.
    pub fn new(outcome: &Outcome) -> Answer {
        let mut answer = Answer::only(Status::Done);
        answer.device_mtu.set(outcome.device_mtu);
        let bits = outcome.arrived.iter().take(SIZES).enumerate();
        answer
            .arrived
            .set(bits.fold(0, |bits, (place, arrived)| bits | u32::from(*arrived) << place));
        if let Some((by, mtu)) = outcome.told {
            answer.told_mtu.set(mtu);
            answer.told_by = mapped(by);
        }
        answer.interface = padded(&outcome.interface);
        answer.arrives_by = padded(&outcome.arrives_by);
        answer.neighbour = match outcome.neighbour {
            Neighbour::Unknown => 0,
            Neighbour::Answers => 1,
            Neighbour::Silent => 2,
        };
        answer
    }

    /// Makes the answer to a [`Hello`], which says where the listening address is attached.
    pub fn attached(at: &Attachment) -> Answer {
        let mut answer = Answer::only(Status::Done);
        answer.interface = padded(&at.interface);
        answer.device_mtu.set(at.mtu);
        answer.host.set(at.host);
        answer.prefix = at.prefix.map_or(0, |prefix| prefix.saturating_add(1));
        for (place, device) in answer.below.iter_mut().zip(&at.below) {
            *place = NarrowDevice { name: padded(&device.name), mtu: U16::new(device.mtu) };
        }
        answer
    }

    /// Reads the answer to a [`Hello`]. A responder of another version says less.
    ///
    /// # Errors
    /// Returns the answer's status if it has no result.
    pub fn attachment(&self) -> Result<Attachment, Status> {
        let Outcome { interface, device_mtu: mtu, .. } = self.read(0)?;
        let below = self.below.iter().filter(|it| it.mtu.get() > 0);
        let below = below.map(|it| Below { name: plain(&it.name), mtu: it.mtu.get() });
        let prefix = self.prefix.checked_sub(1).filter(|prefix| *prefix <= 128);
        let (host, below) = (self.host.get(), below.collect());
        Ok(Attachment { host, interface, mtu, prefix, below })
    }

    /// Reads an answer to an order of this many sizes.
    ///
    /// # Errors
    /// Returns the answer's status if it has no result.
    pub fn read(&self, sizes: usize) -> Result<Outcome, Status> {
        match self.status {
            0 => {}
            1 => return Err(Status::BadOrder),
            _ => return Err(Status::Unable),
        }
        let told = self.told_mtu.get();
        Ok(Outcome {
            device_mtu: self.device_mtu.get(),
            interface: plain(&self.interface),
            arrived: (0..sizes.min(SIZES))
                .map(|place| self.arrived.get() >> place & 1 != 0)
                .collect(),
            told: (told != 0).then(|| (unmapped(self.told_by), told)),
            arrives_by: plain(&self.arrives_by),
            neighbour: match self.neighbour {
                1 => Neighbour::Answers,
                2 => Neighbour::Silent,
                _ => Neighbour::Unknown,
            },
        })
    }
}

/// A device's name as it is sent, padded with zero bytes.
fn padded(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    bytes
}

/// Reads a device's name. Filtered, because it is printed.
fn plain(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = String::from_utf8_lossy(name.get(..end).unwrap_or_default());
    name.chars().filter(|letter| letter.is_ascii_graphic()).collect()
}

impl Probe {
    /// Length of a probe at the start of a datagram, in bytes.
    pub const LEN: usize = size_of::<Probe>();

    /// Returns the probe for one size of an order.
    pub fn new(badge: Badge, size: u16, order: u16) -> Probe {
        Probe { kind: PROBE, badge, size: U16::new(size), order: U16::new(order) }
    }

    /// Reads the probe at the start of a datagram; `None` if there is none.
    pub fn read(datagram: &[u8]) -> Option<Probe> {
        let (probe, _) = Probe::read_from_prefix(datagram).ok()?;
        (probe.kind == PROBE).then_some(probe)
    }

    /// Returns the acknowledgement of this probe.
    pub fn acknowledgement(self) -> Probe {
        Probe { kind: ACKNOWLEDGEMENT, ..self }
    }

    /// Returns the datagram that acknowledges this probe, with the name of the device that it
    /// arrived by. It is never longer than the probe's datagram, of `most` bytes.
    pub fn reply(self, device: &str, most: usize) -> Vec<u8> {
        let mut reply = self.acknowledgement().as_bytes().to_vec();
        // A name that is cut would be another device's.
        if reply.len() + 16 <= most {
            reply.extend(padded(device));
        }
        reply
    }

    /// Returns the name of the device that a probe arrived by, from its acknowledgement; empty if
    /// it does not say.
    pub fn arrival(datagram: &[u8]) -> String {
        datagram.get(Probe::LEN..).map(plain).unwrap_or_default()
    }

    /// Returns the probe's size, if a datagram acknowledges a probe of this badge and order.
    pub fn acknowledged(datagram: &[u8], badge: Badge, order: u16) -> Option<u16> {
        let (probe, _) = Probe::read_from_prefix(datagram).ok()?;
        let size = probe.size.get();
        (probe == Probe::new(badge, size, order).acknowledgement()).then_some(size)
    }

    /// Returns the badge it carries.
    pub fn badge(&self) -> &Badge {
        &self.badge
    }

    /// Returns the number of the order it belongs to.
    pub fn order(&self) -> u16 {
        self.order.get()
    }

    /// Whether a datagram of this many bytes from this address is the whole packet.
    pub fn is_whole(&self, datagram: usize, from: IpAddr) -> bool {
        usize::from(self.size.get()) == datagram + usize::from(overhead(from))
    }
}

/// Returns the bytes of IP and UDP headers toward or from an address.
pub fn overhead(peer: IpAddr) -> u16 {
    if peer.to_canonical().is_ipv4() { 28 } else { 48 }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn unmapped(octets: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_order_is_read_as_it_was_written(
            ip: IpAddr, port in 1..=u16::MAX, sizes in prop::collection::vec(SMALLEST..=LARGEST, 0..=SIZES), timeout_ms: u16,
        ) {
            let ip = ip.to_canonical();
            let is_station = !ip.is_multicast() && !ip.is_unspecified() && ip != IpAddr::from([255; 4]);
            let request = ProbeRequest { to: SocketAddr::new(ip, port), sizes, timeout_ms };
            let read = Order::new(&request).read();
            prop_assert_eq!(read, if is_station { Ok(request) } else { Err(Status::BadOrder) });
        }

        #[test]
        fn an_answer_is_read_as_it_was_written(
            device_mtu: u16, arrived in prop::collection::vec(any::<bool>(), 0..=SIZES), told: Option<(IpAddr, u16)>,
            silent: bool,
        ) {
            let told = told.filter(|told| told.1 > 0).map(|(by, mtu)| (by.to_canonical(), mtu));
            let neighbour = if silent { Neighbour::Silent } else { Neighbour::Answers };
            let (interface, arrives_by) = ("eth0".into(), "a-name-of-15-by".into());
            let outcome = Outcome { device_mtu, interface, arrived, told, arrives_by, neighbour };
            prop_assert_eq!(Answer::new(&outcome).read(outcome.arrived.len()), Ok(outcome));
        }
    }

    proptest! {
        #[test]
        fn an_attachment_is_read_as_it_was_written(
            host: u64, mtu: u16, prefix in prop::option::of(0..=128u8), mtus in prop::collection::vec(1..=u16::MAX, 0..=BELOW),
        ) {
            let below = mtus.iter().enumerate().map(|(place, mtu)| Below { name: format!("eth{place}"), mtu: *mtu });
            let at = Attachment { host, interface: "bond0".into(), mtu, prefix, below: below.collect() };
            prop_assert_eq!(Answer::attached(&at).attachment(), Ok(at));
        }

        #[test]
        fn a_reply_is_no_longer_than_its_probe_and_names_whole_devices(most in Probe::LEN.., size: u16) {
            let reply = Probe::new([7; 16], size, 3).reply("enp65s0f1np1", most);
            prop_assert!(reply.len() <= most);
            prop_assert_eq!(Probe::acknowledged(&reply, [7; 16], 3), Some(size));
            prop_assert!(["", "enp65s0f1np1"].contains(&Probe::arrival(&reply).as_str()));
            prop_assert_eq!(Probe::arrival(&reply).is_empty(), most < Probe::LEN + 16);
        }
    }

    #[test]
    fn a_responder_of_another_version_says_nothing_about_its_place() {
        assert_eq!(Answer::only(Status::Done).attachment(), Ok(Attachment::default()));
    }

    #[test]
    fn a_token_is_read_back_and_another_protocol_has_none() {
        let hello = Hello::new("0123456789abcdef", [7; 16]);
        assert_eq!(hello.token(), Some("0123456789abcdef"));
        assert_eq!(Hello::new_zeroed().token(), None);
    }
}
