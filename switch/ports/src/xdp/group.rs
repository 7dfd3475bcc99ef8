//! The queues of one interface: a socket for each receive queue, all with one UMEM.
//!
//! A frame reaches only sockets of its receive queue; without one it is lost and not counted. So
//! every queue has a socket, and the device is reopened if its number of queues changes
//! ([`Fit`](super::Fit)).

use super::program::{Attached, Program};
use super::socket::{Rings, Share, XdpSocket};
use super::umem::{EgressChunks, Shape, Umem};
use super::{Mode, XdpEgress, XdpError, XdpIngress, XdpOptions};
use crate::bpf::Hook;
use crate::link::Link;
use crate::packet::socket::PacketSocket;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Most queue pairs of a port.
const MOST_QUEUES: u32 = 64;

/// An interface during its opening.
pub(super) struct Interface<'o> {
    pub(super) options: &'o XdpOptions,
    pub(super) index: u32,
    /// Largest IP packet in bytes.
    pub(super) mtu: u32,
    /// Receive queues of the device.
    pub(super) queues: u32,
    /// Whether the kernel finishes checksums where it copies what is sent: known of veth only. It
    /// did not at first for drivers that take frames in pieces (virtio-net), and the receiver
    /// dropped the frames.
    pub(super) copies_finished: bool,
}

/// The bound queues of an interface.
pub(super) struct Group {
    pub(super) queues: (Vec<XdpIngress>, Vec<XdpEgress>),
    pub(super) mode: Mode,
    /// Why the driver does not run the program, if it does not.
    pub(super) refused: Option<io::Error>,
    /// Whether the kernel finishes checksums of what is sent.
    pub(super) finishes_checksums: bool,
}

/// A socket bound to its queue.
struct Bound {
    socket: XdpSocket,
    rings: Rings,
}

impl Interface<'_> {
    /// Checks that there is one socket for each queue. Fails if another number was asked for, or
    /// the device has too many.
    pub(super) fn check_queues(&self) -> Result<(), XdpError> {
        let (interface, seen) = (self.options.interface.clone(), self.queues);
        match self.options.queues {
            Some(wanted) if wanted != seen => Err(XdpError::Queues { interface, seen, wanted }),
            _ if seen > MOST_QUEUES => {
                Err(XdpError::TooManyQueues { interface, seen, most: MOST_QUEUES })
            }
            _ => Ok(()),
        }
    }

    /// Returns the chunks that frames of the MTU fit into. Fails if the MTU is too large.
    pub(super) fn shape(&self) -> Result<Shape, XdpError> {
        let (interface, seen) = (self.options.interface.clone(), self.mtu);
        let most = Shape::LARGEST_MTU;
        Shape::fitting(seen, self.options.ring_bytes).ok_or(XdpError::Mtu { interface, seen, most })
    }

    /// Attaches the program, binds a socket to each queue, and then lets frames come. Fails if the
    /// kernel refuses a step.
    pub(super) fn open(&self, shape: Shape) -> Result<Group, XdpError> {
        let umem = Umem::map(self.queues, shape).map_err(self.set_error("map its memory"))?;
        let umem = Arc::new(umem);
        let program = Program::load(self.queues).map_err(|source| XdpError::Program {
            interface: self.options.interface.clone(),
            source,
        })?;
        let (link, refused) = self.attach(&program)?;
        let (bound, has_metadata) = self.bind(&umem, refused.is_some())?;
        for (queue, bound) in (0..).zip(&bound) {
            let redirected = program.redirect(queue, &bound.socket);
            redirected.map_err(self.set_error("have the program redirect to its sockets"))?;
        }
        let zero_copy = bound.first().is_some_and(|bound| bound.socket.is_zero_copy());
        let attached = Arc::new(program.keep(link, self.promiscuous()?));
        Ok(Group {
            queues: queues(bound, &attached, &umem),
            mode: Mode { native: refused.is_none(), zero_copy },
            refused,
            finishes_checksums: has_metadata && !zero_copy && self.copies_finished,
        })
    }

    /// Attaches in the driver if possible, else in the stack. Returns the link, and why the driver
    /// refused.
    fn attach(&self, program: &Program) -> Result<(OwnedFd, Option<io::Error>), XdpError> {
        let interface = || self.options.interface.clone();
        let native = match self.options.native {
            true => program.attach(self.netns(), self.index, Hook::Native),
            false => Err(io::Error::other("it was not asked to")),
        };
        let native = match native {
            Ok(link) => return Ok((link, None)),
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => {
                return Err(XdpError::DriverMtu { interface: interface(), seen: self.mtu });
            }
            Err(error) => error,
        };
        match program.attach(self.netns(), self.index, Hook::Generic) {
            Ok(link) => Ok((link, Some(native))),
            Err(generic) => Err(XdpError::Attach { interface: interface(), native, generic }),
        }
    }

    /// Binds a socket to each queue. Returns them, and whether egress frames may have metadata.
    fn bind(&self, umem: &Umem, copy: bool) -> Result<(Vec<Bound>, bool), XdpError> {
        let mut all: Vec<Bound> = Vec::new();
        let link = Link::open(&self.options.interface, self.netns())?;
        let (link, mut has_metadata) = (Arc::new(link), false);
        for queue in 0..self.queues {
            let socket = XdpSocket::open(link.clone(), self.netns())
                .map_err(self.set_error("open a socket"))?;
            if all.is_empty() {
                has_metadata = socket.register(umem).map_err(self.set_error(
                    "register its memory (LimitMEMLOCK, or CAP_IPC_LOCK, may be what lacks)",
                ))?;
            }
            let mut rings = socket.map_rings(umem).map_err(self.set_error("make its rings"))?;
            umem.ingress_chunks(queue).for_each(|chunk| rings.fill.put(chunk));
            rings.fill.publish();
            let share = all.first().map_or(Share::Own, |first| Share::With(&first.socket));
            socket
                .bind((self.index, queue), share, copy)
                .map_err(|error| self.bind_error(queue, error))?;
            all.push(Bound { socket, rings });
        }
        Ok((all, has_metadata))
    }

    /// Returns the interface's namespace.
    fn netns(&self) -> Option<&Path> {
        self.options.netns.as_deref()
    }

    fn bind_error(&self, queue: u32, source: io::Error) -> XdpError {
        let interface = self.options.interface.clone();
        match source.raw_os_error() {
            Some(libc::EBUSY) => XdpError::Busy { interface, queue },
            _ => XdpError::Set { interface, doing: "bind to a queue of the interface", source },
        }
    }

    /// Opens a packet socket that receives nothing and makes the interface take frames for all
    /// addresses.
    fn promiscuous(&self) -> Result<Option<PacketSocket>, XdpError> {
        if !self.options.promiscuous {
            return Ok(None);
        }
        let doing = "make the interface promiscuous";
        let socket = PacketSocket::open(self.netns())
            .map_err(|refusal| refusal.told(self.set_error(doing)))?;
        socket.make_promiscuous(self.index).map_err(self.set_error(doing))?;
        Ok(Some(socket))
    }

    fn set_error(&self, doing: &'static str) -> impl Fn(io::Error) -> XdpError {
        let interface = self.options.interface.clone();
        move |source| XdpError::Set { interface: interface.clone(), doing, source }
    }
}

/// Returns both sides of each queue.
fn queues(
    bound: Vec<Bound>,
    attached: &Arc<Attached>,
    umem: &Arc<Umem>,
) -> (Vec<XdpIngress>, Vec<XdpEgress>) {
    let queue = |(queue, Bound { socket, rings })| {
        let socket = Arc::new(socket);
        let Rings { fill, receive, transmit, completion } = rings;
        let ingress = XdpIngress::new(
            attached.clone(),
            (fill, receive),
            socket.clone(),
            (umem.clone(), queue),
        );
        let chunks = EgressChunks::new(umem.clone(), queue);
        let egress = XdpEgress::new((transmit, completion), socket, chunks);
        (ingress, egress)
    };
    (0..).zip(bound).map(queue).unzip()
}
