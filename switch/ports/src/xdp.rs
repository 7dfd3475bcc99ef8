//! AF_XDP: a port on any network interface of the host that bypasses the host's stack; the uplink
//! with the least work per frame.
//!
//! A program of ours (`program`) redirects every frame of a receive queue to a socket of that
//! queue, so there are as many queues as the device has receive queues; those beyond its transmit
//! queues send nothing. Frames lie in a UMEM that all sockets share (`umem`); ingress lends them
//! from there, egress copies into it. The driver runs the program itself where it can (native),
//! else the stack does (generic); it fills the UMEM itself where it can (zero-copy), else the
//! kernel copies.
//!
//! What surprises: the host's own stack sees no frame of the interface any more, the program is
//! gone with the process, and nothing is said about a frame: no checksum, no segment size, no tag
//! that travels beside it. What a peer on this host left unfinished is recognised (`checksum`); a
//! tag beside the frame and the segments of a train are lost, which [`Opened::limits`] tells.

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

/// What to open.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// The network namespace it is in; `None` is that of the calling thread.
    pub netns: Option<PathBuf>,
    /// Queue pairs; `None`: as many as the device has receive queues, and no other number will do.
    pub queues: Option<u32>,
    /// Take frames for all addresses, as an uplink must.
    pub promiscuous: bool,
    /// Have the driver run the program where it can.
    pub native: bool,
    /// Memory of a queue's ingress chunks, in bytes, half of it for egress.
    pub ring_bytes: u32,
}

impl XdpOptions {
    /// All queues, promiscuous, in this namespace, 12 MiB of chunks a queue (4096 for ingress at
    /// MTU 1500).
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

/// How frames come from the device.
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
    /// How its frames come.
    pub mode: Mode,
    /// What it was opened for, which the link may stop to be.
    pub fit: Fit,
    /// What is lost here and how that is avoided, for people.
    pub limits: Vec<String>,
}

/// What a link has to be for the port to see all of its frames.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    queues: u32,
    /// Those of them that send: the kernel drops what is sent by a queue beyond the device's
    /// transmit queues, and says that it was sent.
    sending: u32,
    /// The largest that a chunk holds.
    mtu: u32,
}

impl Fit {
    /// Why the port has to be opened anew, if it has.
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

    /// What a device with fewer transmit queues than receive queues cannot do.
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
    /// Something was refused.
    #[error("AF_XDP on {interface}: cannot {doing}: {source}")]
    Set {
        /// The interface.
        interface: String,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Loading a program is a privilege.
    #[error(
        "AF_XDP on {interface}: cannot load the redirect program: {source}: it needs CAP_BPF and CAP_NET_ADMIN on the host"
    )]
    Program {
        /// The interface.
        interface: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Neither way of attaching it works.
    #[error(
        "AF_XDP on {interface}: cannot attach the redirect program: in the driver: {native}; in the stack: {generic}"
    )]
    Attach {
        /// The interface.
        interface: String,
        /// What the kernel said of native mode.
        native: io::Error,
        /// And of generic mode.
        #[source]
        generic: io::Error,
    },
    /// A frame does not fit a chunk.
    #[error(
        "AF_XDP on {interface}: its MTU is {seen}, and a frame has to fit one piece of memory: lower it to {most}, or use \
         a packet port"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        seen: u32,
        /// The largest that can be.
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
    /// A queue without a socket would lose its frames.
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
    /// More than a port can have.
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
    /// Another socket has the queue.
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
    /// The link behind it.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl XdpError {
    /// Whether the interface could still be a packet port: only AF_XDP is not to be had. Where
    /// another program has the interface it takes the frames before a packet port sees them.
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

/// Opens an interface as a port. It may be down: the port works when it comes up.
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
        live: Arc::new(Capabilities::new(offloads, u16::try_from(sending).unwrap_or(u16::MAX))),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        mac: Some(link.mac()?),
    };
    let mut limits = limits(&options.interface, &link, told.is_some(), opened.refused);
    limits.extend(fit.limit(&options.interface));
    Ok(Opened { device, link, mode, fit, limits })
}

/// What a frame can lose on its way into the port, and how that is avoided.
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
