//! Resumes the ring of an earlier process, if the kernel confirms that its socket is such a one.
//! The process that passed the descriptors is not trusted, except for two facts that the kernel
//! does not tell: how the ring's memory is divided into slots (the kernel confirms the sum), and
//! the slots' contents, which that process could write. Whatever those are, all accesses stay
//! inside the mapping.

use super::ring::{Ring, Shape};
use super::socket::{ALL_PROTOCOLS, PacketSocket, Question, namespace};
use super::{Interface, PacketError, PacketIngress};
use crate::kept::Flaw;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Interface<'_> {
    /// Opens a queue that first takes the frames that arrived meanwhile. The files are the socket
    /// and its position. Fails if the files do not fit.
    pub(super) fn resume_ingress(
        &self,
        files: &[Arc<OwnedFd>],
    ) -> Result<PacketIngress, PacketError> {
        let interface = || self.options.interface.clone();
        let (socket, ring) = self.find_ring(files).map_err(|flaw| {
            flaw.told(
                |flaw| PacketError::Kept { interface: interface(), flaw },
                self.set_error("resume with its kept ring"),
            )
        })?;
        // The kernel does not tell whether the other process set the same.
        self.set_up_ingress(&socket)?;
        self.make_promiscuous(&socket)?;
        Ok(PacketIngress::resumed(socket, ring, self.index, self.options.longest_wait))
    }

    fn find_ring(&self, files: &[Arc<OwnedFd>]) -> Result<(Arc<PacketSocket>, Ring), Flaw> {
        let [socket, position] = files else {
            return Err(format!("{} in the place of a socket and its position", files.len()).into());
        };
        let socket = socket.try_clone().map_err(|error| Flaw::of("it cannot be used", &error))?;
        let socket = Arc::new(PacketSocket::of(socket));
        self.check(&socket)?;
        socket.remove_filter().map_err(|error| Flaw::of("its filter cannot be removed", &error))?;
        let shape = Shape::fitting(self.mtu, self.options.ring_bytes);
        let ring = Ring::resume(&socket, shape, position)?;
        Ok((socket, ring))
    }

    fn check(&self, socket: &PacketSocket) -> Result<(), Flaw> {
        let kind = (sockopt::socket_domain(socket), sockopt::socket_type(socket));
        if kind != (Ok(AddressFamily::PACKET), Ok(SocketType::RAW)) {
            return Err("it is not a raw packet socket".into());
        }
        let unknown = |error: io::Error| Flaw::of("the kernel does not describe it", &error);
        if socket.bound_to().map_err(unknown)? != (self.index, ALL_PROTOCOLS) {
            return Err("it is of another interface".into());
        }
        if namespace(socket).map_err(unknown)? != namespace(self.link.socket()).map_err(unknown)? {
            return Err("it is of another network namespace".into());
        }
        let version_2 = libc::tpacket_versions::TPACKET_V2 as i32;
        for (question, wanted, flaw) in [
            (Question::RingVersion, version_2, "its ring is of another version"),
            (Question::VnetHeader, 1, "its frames have no virtio-net header"),
            (Question::IgnoreOutgoing, 1, "it shows frames that are sent"),
            (Question::Group, 0, "it is one of a group"),
        ] {
            if socket.ask(question).map_err(unknown)? != wanted {
                return Err(flaw.into());
            }
        }
        Ok(())
    }
}
