//! AF_XDP: a port on any network interface of the host that bypasses the host's stack; the uplink
//! with the least work per frame.
//!
//! Our program (`program`) redirects every frame of a receive queue to a socket of that queue. So
//! there are as many queues as the device has receive queues; those beyond its transmit queues send
//! nothing. Frames lie in a UMEM that all sockets share (`umem`): ingress lends them from there,
//! egress copies into it. The driver runs the program itself if it can (native), else the stack
//! does (generic). The driver fills the UMEM itself if it can (zero-copy), else the kernel copies.
//!
//! Three surprises. The host's own stack no longer sees any frame of the interface. The program is
//! gone with the process. AF_XDP carries no metadata of a received frame: no checksum state, no
//! segment size, no VLAN tag beside the frame. A checksum that a peer on this host left unfinished
//! is recognised (`checksum`). A tag beside the frame and the segments of a train are lost;
//! [`Opened::limits`] lists such losses.

mod checksum;
mod egress;
mod group;
mod ingress;
mod program;
mod ring;
mod socket;
#[cfg(test)]
mod tests;
mod umem;

use crate::link::{Link, LinkError};
use crate::{Capabilities, Device, EgressQueue, IngressQueue, Offloads};
pub use egress::XdpEgress;
use group::Interface;
pub use ingress::XdpIngress;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of [`open`].
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// The network namespace it is in; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// Queue pairs. `None`: as many as the device has receive queues; any other number is refused.
    pub queues: Option<u32>,
    /// Take frames for all addresses, as an uplink must.
    pub promiscuous: bool,
    /// Whether the driver runs the program, if it can; else the stack does.
    pub native: bool,
    /// Memory of a queue's ingress chunks, in bytes, half of it for egress.
    pub ring_bytes: u32,
}

impl XdpOptions {
    /// Returns options for all queues, promiscuous, in this namespace, with 12 MiB of chunks a
    /// queue (4096 for ingress at MTU 1500).
    pub fn new(interface: &str) -> XdpOptions {
        XdpOptions {
            interface: interface.to_owned(),
            netns: None,
            queues: None,
            promiscuous: true,
            native: true,
            ring_bytes: 8 << 20,
        }
    }
}

/// How the kernel passes frames between the device and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The driver runs the program; else the stack does.
    pub native: bool,
    /// The driver uses the UMEM; else the kernel copies.
    pub zero_copy: bool,
}

/// An opened interface.
pub struct Opened {
    /// The port.
    pub device: Device,
    /// The link behind it.
    pub link: Link,
    /// How frames pass between the device and the port.
    pub mode: Mode,
    /// The link properties that the port was opened for; the link may change later.
    pub fit: Fit,
    /// What frames lose here and how to avoid it, as text for people.
    pub limits: Vec<String>,
}

/// Link properties that the port relies on to see all of its frames.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    queues: u32,
    /// Queues that send. The kernel drops frames sent on a queue beyond the device's transmit
    /// queues, and reports them as sent.
    sending: u32,
    /// Largest MTU that fits a chunk.
    mtu: u32,
}

impl Fit {
    /// Returns why the port must be reopened for this link; `None` if it need not.
    pub fn fault(&self, link: &Link) -> Option<String> {
        let (queues, mtu) = (link.receive_queues(), link.mtu().unwrap_or_default());
        if let Some(now) = queues.filter(|now| *now != self.queues) {
            let known = self.queues;
            return Some(format!(
                "the device has {now} receive queues now, it was opened with {known}"
            ));
        }
        let sending = link.transmit_queues();
        if let Some(now) = sending.filter(|now| (*now).min(self.queues) != self.sending) {
            let known = self.sending;
            return Some(format!(
                "the device has {now} transmit queues now, it was opened for {known}"
            ));
        }
        let most = self.mtu;
        (mtu > most)
            .then(|| format!("the device has MTU {mtu} now, it was opened for {most} at most"))
    }

    /// Returns a sentence for people if the device has fewer transmit queues than receive queues.
    fn limit(&self, interface: &str) -> Option<String> {
        let Fit { queues, sending, .. } = self;
        (sending < queues).then(|| {
            format!(
                "{interface}: the device has {queues} receive queues and {sending} to transmit, so frames leave by {sending}: \
                 `ethtool -L {interface} tx {queues}`"
            )
        })
    }
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The kernel refused a step.
    #[error("AF_XDP on {interface}: cannot {doing}: {source}")]
    Set {
        /// The interface.
        interface: String,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The process lacks the privilege to load a program.
    #[error(
        "AF_XDP on {interface}: cannot load the redirect program: {source}: it needs CAP_BPF and CAP_NET_ADMIN on the host"
    )]
    Program {
        /// The interface.
        interface: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The program can be attached neither in the driver nor in the stack.
    #[error(
        "AF_XDP on {interface}: cannot attach the redirect program: in the driver: {native}; in the stack: {generic}"
    )]
    Attach {
        /// The interface.
        interface: String,
        /// The kernel's error in native mode.
        native: io::Error,
        /// The kernel's error in generic mode.
        #[source]
        generic: io::Error,
    },
    /// A frame of this MTU does not fit a chunk.
    #[error(
        "AF_XDP on {interface}: its MTU is {seen}, and a frame has to fit one piece of memory: lower it to {most}, or use \
         a packet port"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        seen: u32,
        /// The largest MTU that fits.
        most: u32,
    },
    /// The driver runs no program at this MTU.
    #[error(
        "AF_XDP on {interface}: its MTU is {seen}, and its driver runs no program with frames longer than it puts into one page \
         (a veth: MTU 3506 at most, the peer's as well): lower it at both ends, or use a packet port"
    )]
    DriverMtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        seen: u32,
    },
    /// Fewer or more queues were asked for than the device has: a queue without a socket would lose
    /// its frames.
    #[error(
        "AF_XDP on {interface}: {wanted} queues are wanted and the device has {seen} receive queues, each of which needs \
         one: leave out `queues`, or `ethtool -L {interface} combined {wanted}` (`rx {wanted}` where that is refused)"
    )]
    Queues {
        /// The interface.
        interface: String,
        /// Receive queues that the device has.
        seen: u32,
        /// Queues that were asked for.
        wanted: u32,
    },
    /// The device has more receive queues than a port can have.
    #[error(
        "AF_XDP on {interface}: the device has {seen} receive queues, and a port has {most} at most: `ethtool -L {interface} \
         combined {most}`"
    )]
    TooManyQueues {
        /// The interface.
        interface: String,
        /// Receive queues that the device has.
        seen: u32,
        /// Most queues of a port.
        most: u32,
    },
    /// Another socket is bound to the queue.
    #[error(
        "AF_XDP on {interface}: queue {queue} is in use by another AF_XDP socket: stop the program that has it \
         (`ss --xdp -p` tells)"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// An operation on the link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl XdpError {
    /// Whether the interface can still be a packet port: only AF_XDP is unavailable. `false` where
    /// another program has the interface, as it takes the frames before a packet port sees them.
    pub fn leaves_packet(&self) -> bool {
        let is_taken =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        match self {
            XdpError::Link(_) | XdpError::Queues { .. } | XdpError::Busy { .. } => false,
            XdpError::Attach { native, generic, .. } => !is_taken(native) && !is_taken(generic),
            _ => true,
        }
    }
}

/// Opens an interface as a port. The interface may be down: the port works once it comes up.
///
/// # Errors
///
/// Fails if the interface does not exist, its MTU or number of queues does not fit, a queue is in
/// use by another socket, or the program cannot be loaded or attached. [`XdpError::leaves_packet`]
/// tells whether a packet port is still possible.
pub fn open(options: &XdpOptions) -> Result<Opened, XdpError> {
    let link = Link::open(&options.interface, options.netns.as_deref())?;
    let (index, mtu) = (link.index()?, link.mtu()?);
    let told = link.receive_queues();
    let (queues, copies_finished) = (told.unwrap_or(1), link.is_veth());
    let interface = Interface { options, index, mtu, queues, copies_finished };
    interface.check_queues()?;
    let shape = interface.shape()?;
    let opened = interface.open(shape)?;
    let (mode, queues) = (opened.mode, interface.queues);
    let sending = link.transmit_queues().map_or(queues, |sending| sending.min(queues));
    let fit = Fit { queues, sending, mtu: shape.largest_mtu() };
    let (ingress, mut egress) = opened.queues;
    egress.truncate(sending as usize);
    let offloads = if opened.finishes_checksums { Offloads::CSUM } else { Offloads::empty() };
    let device = Device {
        ingress: ingress.into_iter().map(IngressQueue::Xdp).collect(),
        egress: egress.into_iter().map(EgressQueue::Xdp).collect(),
        live: Arc::new(Capabilities::of_kernel(
            offloads,
            u16::try_from(sending).unwrap_or(u16::MAX),
        )),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        mac: Some(link.mac()?),
        hook: None,
    };
    let mut limits = limits(&options.interface, &link, told.is_some(), opened.refused);
    limits.extend(fit.limit(&options.interface));
    Ok(Opened { device, link, mode, fit, limits })
}

/// Returns what a frame can lose on its way into the port and how to avoid it, as text for people.
fn limits(
    interface: &str,
    link: &Link,
    queues_told: bool,
    refused: Option<io::Error>,
) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(error) = refused {
        limits.push(format!(
            "{interface}: its driver does not run the redirect program ({error}), so the stack does (generic mode): trains of \
             a peer on this host are dropped and counted as lost by the device: `ethtool -K PEER tso off gso off` at the peer, \
             or a packet port"
        ));
    }
    if link.strips_tags() {
        limits.push(format!(
            "{interface}: a VLAN tag beside a frame is lost, and the frame counts as untagged: `ethtool -K {interface} rxvlan \
             off` at a NIC, `ethtool -K PEER txvlan off` at a peer on this host"
        ));
    }
    if !queues_told {
        limits.push(format!(
            "{interface}: its driver does not tell how many receive queues it has: queue 0 is read, and frames of others go \
             to the host's stack"
        ));
    }
    limits
}
