//! Several ingress queues of one interface: a fan-out group of packet sockets, one a queue (Linux
//! `Documentation/networking/packet_mmap.rst`).
//!
//! The group picks one socket for each frame: by our program ([`steering`](super::steering)), or by
//! the kernel's own hash of the flow if this process may not load a program.
//!
//! One surprise: the program names a socket by its place in the group, and places change. When the
//! link comes up the kernel adds the sockets to the group again, in the order they were made; when
//! one leaves, the last takes its place. So the sockets are made in the order of the queues, and
//! leave only all together.

use super::fence::Fence;
use super::gate::Gate;
use super::ingress::Member;
use super::ring::Ring;
use super::socket::{ALL_PROTOCOLS, Fanout, Filter, PacketSocket, processors};
use super::steering::ProgramSteering;
use super::{Interface, PacketError, PacketIngress};
use crate::side_by_side;
use crate::steering::random_key;
use std::io;
use std::sync::Arc;

/// The queues of a group, and their steering.
pub(super) struct Group {
    pub(super) ingress: Vec<PacketIngress>,
    /// The program, or why there is none.
    pub(super) steering: Result<ProgramSteering, io::Error>,
}

/// Opens a queue for each socket. Fails if the kernel refuses a step, or the link must be up for
/// it.
pub(super) fn open(interface: &Interface<'_>) -> Result<Group, PacketError> {
    let options = interface.options;
    let sockets = prepare(interface)?;
    let gates = sockets.iter().map(|(_, ring)| Gate::new(ring.slots())).collect();
    let fence = Arc::new(Fence::new(gates, processors()));
    let set_error = |doing| interface.set_error(doing);
    let key = options.key.unwrap_or_else(random_key);
    let watched = sockets.iter().map(|(socket, _)| socket.clone()).collect();
    let steering = ProgramSteering::load(options.queues, &key, fence.clone())
        .map(|steering| steering.watching(watched));
    let fanout = if steering.is_ok() { Fanout::Program } else { Fanout::Hash };
    let mut group = None;
    for (socket, _) in &sockets {
        // Between binding and joining, a socket would get every frame that the other sockets get as
        // well.
        socket.filter(Filter::Nothing).map_err(set_error("refuse frames at first"))?;
        socket.bind(interface.index, ALL_PROTOCOLS).map_err(set_error("bind to the interface"))?;
        let refused = |error| refused(interface, error, interface.link.is_up().unwrap_or(true));
        group = Some(join(socket, fanout, group).map_err(refused)?);
    }
    if let (Ok(steering), Some((first, _))) = (&steering, sockets.first()) {
        first.steer(steering.program()).map_err(set_error("attach the steering program"))?;
    }
    for (socket, _) in &sockets {
        socket.filter(Filter::Received).map_err(set_error("receive frames"))?;
    }
    let ingress = |(queue, (socket, ring))| {
        // Without tables no flow moves.
        let member = steering.is_ok().then(|| Member { fence: fence.clone(), queue });
        PacketIngress::new(socket, ring, interface.index, member)
    };
    Ok(Group { ingress: sockets.into_iter().enumerate().map(ingress).collect(), steering })
}

/// Opens sockets with their rings, in the order of the queues.
fn prepare(interface: &Interface<'_>) -> Result<Vec<(Arc<PacketSocket>, Ring)>, PacketError> {
    let sockets = (0..interface.options.queues).map(|_| interface.open_ingress_socket());
    let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
    let rings = side_by_side::map(&sockets, |socket| interface.map_ring(socket));
    let rings = rings.into_iter().collect::<Result<Vec<_>, _>>()?;
    // One promiscuous socket is enough for the interface.
    sockets.first().map_or(Ok(()), |first| interface.make_promiscuous(first))?;
    Ok(sockets.into_iter().zip(rings).collect())
}

/// Joins a group, a new one if `group` is `None`. Returns its number.
fn join(socket: &PacketSocket, fanout: Fanout, group: Option<u16>) -> io::Result<u16> {
    socket.join(fanout, group)?;
    group.map_or_else(|| socket.group(), Ok)
}

/// Returns why a socket may not join. Before Linux 6.13 the kernel refuses one without a running
/// interface as invalid.
fn refused(interface: &Interface<'_>, error: io::Error, is_up: bool) -> PacketError {
    if error.kind() == io::ErrorKind::InvalidInput && !is_up {
        return PacketError::Down { interface: interface.options.interface.clone() };
    }
    interface.set_error("join the fan-out group")(error)
}

#[cfg(test)]
mod tests {
    use super::super::PacketOptions;
    use super::*;
    use crate::link::Link;
    use wire::toeplitz::Key;

    /// The kernel's message for this, `Invalid argument`, did not say that the link must be up.
    #[test]
    fn a_link_that_has_to_be_up_is_named_as_the_reason() {
        let (options, link) = (PacketOptions::new("eth1"), Link::open("lo", None).unwrap());
        let interface = Interface { options: &options, link: &link, index: 1, mtu: 1500 };
        let refused = |errno, is_up| {
            refused(&interface, io::Error::from_raw_os_error(errno), is_up).to_string()
        };
        let told = refused(libc::EINVAL, false);
        assert!(told.contains("eth1 is down") && told.contains("ip link set eth1 up"), "{told}");
        for other in [refused(libc::EINVAL, true), refused(libc::ENOMEM, false)] {
            assert!(other.contains("cannot join the fan-out group"), "{other}");
        }
    }

    #[test]
    fn each_uplink_draws_a_key_of_its_own() {
        let [one, other] = [(); 2].map(|()| random_key());
        assert_ne!(one, other);
        assert_ne!(one, Key([0; 40]));
    }
}
