//! AF_PACKET: a port on any network interface of the host; the uplink if AF_XDP is not available.
//!
//! Ingress is a mapped ring of slots, which lends frames; trains longer than a slot arrive by
//! `recv` in a buffer of the queue. The ring has version 2: version 3 hands over blocks of frames,
//! the last one only when its timer fires, which would add latency. Egress is one `sendmmsg` for up
//! to 64 frames of a burst.
//!
//! Two surprises: the host's own stack sees every ingress frame as well, so an uplink should have
//! no addresses; and the ring is kernel memory that counts as resident from the start.
//!
//! The ring of a port of one queue can outlive the process: see [`open_kept`].

mod batch;
mod egress;
mod fence;
mod gate;
mod group;
mod ingress;
mod kept;
mod position;
mod ring;
pub(crate) mod socket;
mod sparse;
mod stall;
pub(crate) mod steering;

use crate::kernel_path::{Hook, KernelPath};
use crate::link::{Link, LinkError};
use crate::probe::{self, Taken};
use crate::steering::Steering;
use crate::{Device, EgressQueue, IngressQueue, lock, namespace};
pub use egress::PacketEgress;
pub use ingress::PacketIngress;
use ring::{Ring, Shape};
use socket::{PacketSocket, Setting};
pub use stall::StallWatch;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::toeplitz::Key;
use wire::vnet::VnetHeader;

/// Sends frames through an interface of the calling thread's namespace, without a port. Each is
/// handed to the kernel once; one that it has no room for is lost.
///
/// # Errors
/// Fails if the process may not open a socket for it, or there is no such interface.
pub fn send_once(index: u32, frames: &[Vec<u8>]) -> io::Result<()> {
    let socket = PacketSocket::open(None)?;
    socket.bind(index, socket::NO_PROTOCOL)?;
    frames.iter().try_for_each(|frame| socket.send(frame))
}

/// Opens an interface of the calling thread's namespace for sending alone, without a port.
///
/// # Errors
/// Fails if there is no such interface, or the process may not open a socket for it.
pub fn open_egress(interface: &str) -> Result<PacketEgress, PacketError> {
    let link = Link::open(interface, None)?;
    let options = PacketOptions::new(interface);
    let (index, mtu) = (link.index()?, link.mtu()?);
    Interface { options: &options, link: &link, index, mtu }.open_egress()
}

/// Options of [`open`].
#[derive(Clone, Debug)]
pub struct PacketOptions {
    /// The interface's name.
    pub interface: String,
    /// The network namespace it is in; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// Queue pairs, at least 1. Each has a ring, and a socket for each direction.
    pub queues: u8,
    /// Take frames for all addresses, as an uplink must.
    pub promiscuous: bool,
    /// Most memory the ingress ring of a queue may take, in bytes. A slot holds a frame of the
    /// interface's MTU, at least 2 KiB.
    pub ring_bytes: usize,
    /// The key of the hash that spreads flows over several queues, for tests that choose flows by
    /// it. `None` draws it at random, so that no peer can aim its flows at one queue.
    pub key: Option<Key>,
    /// Whether to provide [`Opened::files`], with which another process can resume. Only with one
    /// queue.
    pub kept: bool,
    /// Longest time that a frame may have waited in a ring that [`open_kept`] resumes.
    pub longest_wait: Duration,
    /// The kernel path to attach the port to. Only without `netns`.
    pub kernel_path: Option<KernelPath>,
    /// Whether what is behind the interface is one station, such as a container behind a veth pair.
    /// The kernel path puts frames straight into the pair's other end, past the queueing, cutting
    /// and captures of this one. An uplink has to pass these.
    pub is_station: bool,
}

impl PacketOptions {
    /// Returns options for one queue, promiscuous, in this namespace, with a ring of 8 MiB (4096
    /// slots at MTU 1500). Frames of a resumed ring may be 10 s old.
    pub fn new(interface: &str) -> PacketOptions {
        PacketOptions {
            interface: interface.to_owned(),
            netns: None,
            queues: 1,
            promiscuous: true,
            ring_bytes: 8 << 20,
            key: None,
            kept: false,
            longest_wait: ingress::LONGEST_WAIT,
            kernel_path: None,
            is_station: false,
        }
    }
}

/// An opened interface.
pub struct Opened {
    /// The port.
    pub device: Device,
    /// The link behind it.
    pub link: Link,
    /// What is done in software because this kernel does not do it, as text for people; usually
    /// empty.
    pub degraded: Vec<String>,
    /// How flows are spread.
    pub spread: Spread,
    /// Detects when the port must be reopened.
    pub stalls: StallWatch,
    /// The socket of its ring and the ring's position if they are [kept](PacketOptions::kept), for
    /// [`open_kept`].
    pub files: Vec<Arc<OwnedFd>>,
}

/// How the flows of an interface are spread over the port's ingress queues.
#[derive(Clone)]
pub enum Spread {
    /// There is one queue.
    Single,
    /// Our own tables spread flows, one table for each vNIC.
    Tables(Arc<dyn Steering>),
    /// The kernel's hash spreads flows, for this reason: flows keep their queue, and none can be
    /// moved.
    Hash(String),
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The process lacks the privilege to open raw sockets.
    #[error(
        "cannot open a packet socket for {interface}: {source}: it needs CAP_NET_RAW in its network namespace"
    )]
    Socket {
        /// The interface.
        interface: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A setting was refused.
    #[error("packet socket for {interface}: cannot {doing}: {source}")]
    Set {
        /// The interface.
        interface: String,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The ring was refused.
    #[error(
        "packet socket for {interface}: cannot map a ring of {slots} slots of {slot_size} bytes: {source}: give it less \
         memory, or free some"
    )]
    Ring {
        /// The interface.
        interface: String,
        /// Slots wanted.
        slots: u32,
        /// Bytes of each.
        slot_size: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Several queues were asked for, and this kernel needs the link up for that.
    #[error(
        "{interface} is down: before Linux 6.13 a packet port of several queues opens only while it is up: \
         `ip link set {interface} up`"
    )]
    Down {
        /// The interface.
        interface: String,
    },
    /// The kept descriptors do not belong to such a ring.
    #[error("packet socket for {interface}: the descriptors that were kept do not fit: {flaw}")]
    Kept {
        /// The interface.
        interface: String,
        /// What does not fit.
        flaw: String,
    },
    /// An operation on the link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Length of the virtio-net header of packet sockets, which here lacks `num_buffers`: nothing more
/// of it is needed, and every kernel supports this one.
const VNET_LEN: usize = VnetHeader::LEGACY_LEN;
/// Most bytes that may wait outside the ring in either direction: trains in, and frames that the
/// device has not sent yet. Memory is only used by what waits.
const SOCKET_BUFFER: i32 = 16 << 20;

/// Opens an interface as a port. The interface may be down: the port works when it comes up. With
/// several queues this needs Linux 6.13.
///
/// # Errors
///
/// Fails if the interface does not exist, the process lacks CAP_NET_RAW, or the kernel refuses a
/// setting or the ring.
pub fn open(options: &PacketOptions) -> Result<Opened, PacketError> {
    open_with(options, &[])
}

/// Resumes the ring of an earlier process, by its [`Opened::files`]. First come the frames that it
/// had not given back, then those that arrived meanwhile; frames that waited for too long are lost.
/// Frames that it had sent belong to the kernel, with or without the sockets.
///
/// # Errors
///
/// Fails with [`PacketError::Kept`] if the descriptors are not of such a ring of the interface.
/// After any other error they can be tried again.
pub fn open_kept(options: &PacketOptions, files: &[Arc<OwnedFd>]) -> Result<Opened, PacketError> {
    if files.is_empty() || options.queues > 1 {
        let flaw = format!("{} for {} queue(s)", files.len(), options.queues);
        return Err(PacketError::Kept { interface: options.interface.clone(), flaw });
    }
    open_with(options, files)
}

fn open_with(options: &PacketOptions, files: &[Arc<OwnedFd>]) -> Result<Opened, PacketError> {
    let link = Link::open(&options.interface, options.netns.as_deref())?;
    let (index, mtu) = (link.index()?, link.mtu()?);
    let interface = Interface { options, link: &link, index, mtu };
    let mut degraded = Vec::new();
    let taken = egress_offloads(&options.interface, &mut degraded);
    let mut files = files.to_vec();
    let (mut ingress, spread) = if files.is_empty() {
        interface.open_ingress()?
    } else {
        (vec![interface.resume_ingress(&files)?], Spread::Single)
    };
    if let ([single], true, []) = (&mut ingress[..], options.kept, &files[..]) {
        match single.keep() {
            Ok(kept) => files = kept.map(Arc::new).into(),
            Err(error) => degraded.push(format!(
                "{}: a restart loses frames that arrive meanwhile: {error}",
                options.interface
            )),
        }
    }
    let hook = interface.hook(&ingress, &mut degraded);
    let stalls = StallWatch::new(ingress.iter().map(PacketIngress::watched).collect());
    let egress = (0..options.queues.max(1)).map(|_| interface.open_egress());
    let egress: Vec<_> = egress.collect::<Result<_, _>>()?;
    let device = Device {
        ingress: ingress.into_iter().map(IngressQueue::Packet).collect(),
        egress: egress.into_iter().map(EgressQueue::Packet).collect(),
        live: Arc::new(taken.capabilities(options.queues.max(1).into())),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        mac: Some(link.mac()?),
        hook,
    };
    Ok(Opened { device, link, degraded, spread, stalls, files })
}

/// An interface during its opening.
struct Interface<'o> {
    options: &'o PacketOptions,
    link: &'o Link,
    index: u32,
    /// Largest IP packet in bytes.
    mtu: u32,
}

impl Interface<'_> {
    fn open_ingress(&self) -> Result<(Vec<PacketIngress>, Spread), PacketError> {
        if self.options.queues > 1 {
            let group = group::open(self)?;
            let spread = match group.steering {
                Ok(steering) => Spread::Tables(Arc::new(steering)),
                Err(error) => Spread::Hash(format!("cannot load the steering program: {error}")),
            };
            return Ok((group.ingress, spread));
        }
        let socket = self.open_ingress_socket()?;
        let ring = self.map_ring(&socket)?;
        self.make_promiscuous(&socket)?;
        // Frames may arrive only now: one that arrived before the ring was there would wait where
        // no code looks for it.
        socket
            .bind(self.index, socket::ALL_PROTOCOLS)
            .map_err(self.set_error("bind to the interface"))?;
        Ok((vec![PacketIngress::new(socket, ring, self.index, None)], Spread::Single))
    }

    /// Opens a socket for ingress, without a ring and not bound yet.
    fn open_ingress_socket(&self) -> Result<Arc<PacketSocket>, PacketError> {
        let socket = self.open_socket()?;
        let version_2 = libc::tpacket_versions::TPACKET_V2 as i32;
        socket
            .set(Setting::RingVersion, version_2)
            .map_err(self.set_error("choose ring version 2"))?;
        self.set_up_ingress(&socket)?;
        Ok(Arc::new(socket))
    }

    /// Applies the settings that a socket may change even when it has its ring.
    fn set_up_ingress(&self, socket: &PacketSocket) -> Result<(), PacketError> {
        for (doing, setting, value) in [
            ("leave out its own frames", Setting::IgnoreOutgoing, 1),
            ("receive trains longer than a slot", Setting::CopyThreshold, 1),
            ("size its receive buffer", Setting::ReceiveBuffer, SOCKET_BUFFER),
        ] {
            socket.set(setting, value).map_err(self.set_error(doing))?;
        }
        Ok(())
    }

    /// Makes the socket's ring, which takes the kernel a grace period.
    fn map_ring(&self, socket: &PacketSocket) -> Result<Ring, PacketError> {
        let shape = Shape::fitting(self.mtu, self.options.ring_bytes);
        Ring::map(socket, shape).map_err(|source| PacketError::Ring {
            interface: self.options.interface.clone(),
            slots: shape.slots,
            slot_size: shape.slot_size,
            source,
        })
    }

    /// Makes the interface take frames for all addresses as long as this socket lives, if the
    /// options say so.
    fn make_promiscuous(&self, socket: &PacketSocket) -> Result<(), PacketError> {
        if !self.options.promiscuous {
            return Ok(());
        }
        socket
            .make_promiscuous(self.index)
            .map_err(self.set_error("make the interface promiscuous"))
    }

    /// Attaches the port to the kernel path. The reason is noted if that fails: then the switch
    /// carries all frames.
    fn hook(&self, ingress: &[PacketIngress], degraded: &mut Vec<String>) -> Option<Arc<Hook>> {
        let path = self.options.kernel_path.as_ref().filter(|_| self.options.netns.is_none())?;
        let sockets: Vec<&PacketSocket> = ingress.iter().map(PacketIngress::socket).collect();
        match path.attach(self.link, self.index, &sockets, self.options.is_station) {
            Ok(hook) => Some(Arc::new(hook)),
            Err(error) => {
                degraded.push(format!("{error}: the switch carries all frames"));
                None
            }
        }
    }

    /// Opens a separate socket for egress, bound to no protocol: nothing is ever received on it,
    /// and the two sides share no lock.
    fn open_egress(&self) -> Result<PacketEgress, PacketError> {
        let socket = self.open_socket()?;
        socket
            .set(Setting::SendBuffer, SOCKET_BUFFER)
            .map_err(self.set_error("size its send buffer"))?;
        socket
            .bind(self.index, socket::NO_PROTOCOL)
            .map_err(self.set_error("bind to the interface"))?;
        Ok(PacketEgress::new(socket))
    }

    fn open_socket(&self) -> Result<PacketSocket, PacketError> {
        let interface = || self.options.interface.clone();
        let refused = |source| PacketError::Socket { interface: interface(), source };
        let socket = PacketSocket::open(self.options.netns.as_deref())
            .map_err(|refusal| refusal.told(refused))?;
        socket.set(Setting::VnetHeader, 1).map_err(self.set_error("use virtio-net headers"))?;
        Ok(socket)
    }

    fn set_error(&self, doing: &'static str) -> impl Fn(io::Error) -> PacketError {
        let interface = self.options.interface.clone();
        move |source| PacketError::Set { interface: interface.clone(), doing, source }
    }
}

/// Finds the trains that this kernel accepts, for all later openings. A process that gives up
/// CAP_SYS_ADMIN calls this first.
pub fn try_trains() {
    // If this fails, the next opening reports the reason.
    let _ = kernel_offloads();
}

/// Returns what this kernel accepts on a packet socket.
fn egress_offloads(interface: &str, degraded: &mut Vec<String>) -> Taken {
    match kernel_offloads() {
        Ok(taken) => {
            degraded.extend(probe::refused(interface, taken.offloads));
            taken
        }
        Err(error) => {
            degraded.push(format!(
                "{interface}: cannot try what trains this kernel takes ({error}): UDP trains are segmented in software"
            ));
            Taken::by_all()
        }
    }
}

/// Returns what the kernel accepts, tried on the loopback of a temporary namespace: a probe on a
/// real interface would be on the wire. Tried once: making and removing a namespace takes the
/// kernel long, and the answer is the same for all interfaces.
fn kernel_offloads() -> io::Result<Taken> {
    static TRIED: Mutex<Option<Taken>> = Mutex::new(None);
    let mut tried = lock(&TRIED);
    if let Some(taken) = *tried {
        return Ok(taken);
    }
    let taken = namespace::fresh(try_offloads).and_then(|taken| taken)?;
    Ok(*tried.insert(taken))
}

fn try_offloads() -> io::Result<Taken> {
    let loopback = Link::open("lo", None).map_err(io::Error::other)?;
    loopback.set_up(true).map_err(io::Error::other)?;
    let socket = PacketSocket::open(None)?;
    socket.set(Setting::VnetHeader, 1)?;
    socket.bind(loopback.index().map_err(io::Error::other)?, socket::NO_PROTOCOL)?;
    Ok(probe::egress(&socket, VNET_LEN))
}
