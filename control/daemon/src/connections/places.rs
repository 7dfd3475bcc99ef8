//! The places for connections: how many a client may hold, and which connection makes room.
//!
//! A connection that has not sent a request's head costs its client nothing, so the oldest such
//! connection loses its place to a new one of the same limit.

use crate::peer::{Access, Peer};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Most connections of one reader, of one address, and of all clients without access together.
const OF_ONE: usize = 32;
/// Most connections of one admin.
const OF_AN_ADMIN: usize = 64;
/// Most connections of all addresses.
const OF_ALL_ADDRESSES: usize = 128;
/// Most connections of all readers, of all admins, and of root, whom neither locks out.
const OF_ALL: usize = 256;

/// The kind that a connection counts as. Each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Root,
    Admin(u32),
    /// A user who may read; over TCP, a user of this host.
    Reader(u32),
    /// A client without access. All of them together have the limit of one user, because one user
    /// can have thousands of IDs (`/etc/subuid`).
    Stranger,
    /// A client over TCP of another host, by its address; of IPv6 by its network, because a host can
    /// have any number of addresses there.
    Monitoring(IpAddr),
}

impl From<&Peer> for Kind {
    fn from(peer: &Peer) -> Kind {
        match peer.access {
            Access::Admin if peer.uid == 0 => Kind::Root,
            Access::Admin => Kind::Admin(peer.uid),
            Access::Read => Kind::Reader(peer.uid),
            Access::None => Kind::Stranger,
        }
    }
}

impl From<IpAddr> for Kind {
    fn from(address: IpAddr) -> Kind {
        Kind::Monitoring(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }
}

impl Kind {
    /// Returns the most connections of this kind, and of all kinds like it.
    fn most(self) -> [usize; 2] {
        match self {
            Kind::Root => [OF_ALL, OF_ALL],
            Kind::Admin(_) => [OF_AN_ADMIN, OF_ALL],
            Kind::Reader(_) => [OF_ONE, OF_ALL],
            Kind::Stranger => [OF_ONE, OF_ONE],
            Kind::Monitoring(_) => [OF_ONE, OF_ALL_ADDRESSES],
        }
    }

    /// Returns whether two kinds differ at most in the user or address.
    fn is_like(self, other: Kind) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// The open connections.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    /// By number, so the oldest comes first.
    places: BTreeMap<u64, Held>,
    /// The number of the next one.
    next: u64,
}

struct Held {
    kind: Kind,
    /// Ends the connection; `None` once it has sent a request's head.
    end: Option<oneshot::Sender<()>>,
}

/// A place for one connection.
pub(crate) struct Place {
    pub(super) hold: Hold,
    /// Receives something once another connection has the place.
    pub(super) taken: oneshot::Receiver<()>,
}

/// Holds a place until dropped.
pub(super) struct Hold {
    of: Connections,
    number: u64,
}

impl Connections {
    /// Returns a place for a connection, if need be that of the oldest one without a head; `None`
    /// if there are too many of its kind.
    pub(crate) fn place(&self, kind: Kind) -> Option<Place> {
        let mut open = self.lock();
        let [of_one, of_all] = kind.most();
        open.make_room(of_one, |other| other == kind)?;
        open.make_room(of_all, |other| other.is_like(kind))?;
        let (end, taken) = oneshot::channel();
        let number = open.next;
        open.next += 1;
        open.places.insert(number, Held { kind, end: Some(end) });
        Some(Place { hold: Hold { of: self.clone(), number }, taken })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Makes room for one more of the connections that `counts`; `None` if that cannot be done.
    fn make_room(&mut self, most: usize, counts: impl Fn(Kind) -> bool) -> Option<()> {
        let counted = || self.places.iter().filter(|(_, held)| counts(held.kind));
        if counted().count() < most {
            return Some(());
        }
        let oldest = counted().find(|(_, held)| held.end.is_some()).map(|(number, _)| *number)?;
        let end = self.places.remove(&oldest)?.end?;
        // The connection may be ending already.
        let _ = end.send(());
        Some(())
    }
}

impl Hold {
    /// Keeps the place from now on: the connection has sent a request's head.
    pub(super) fn has_head(&self) {
        if let Some(held) = self.of.lock().places.get_mut(&self.number) {
            held.end = None;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.of.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns places of connections that have sent a head.
    fn places(of: &Connections, kind: Kind, wanted: usize) -> Vec<Place> {
        (0..wanted).filter_map(|_| of.place(kind).inspect(|place| place.hold.has_head())).collect()
    }

    /// 256 connections of one admin locked root out.
    #[test]
    fn no_kind_takes_the_places_of_another_and_no_user_those_of_all() {
        let connections = Connections::default();
        let of = |kind, wanted| places(&connections, kind, wanted);
        let mut all = of(Kind::Stranger, 1000);
        assert_eq!(all.len(), OF_ONE);
        all.extend((0..20).flat_map(|user| of(Kind::Reader(user), 100)));
        assert_eq!(all.len(), OF_ONE + OF_ALL);
        let first = of(Kind::Admin(7), 1000);
        assert_eq!(first.len(), OF_AN_ADMIN);
        let others: Vec<_> = (8..20).flat_map(|user| of(Kind::Admin(user), 100)).collect();
        assert_eq!(first.len() + others.len(), OF_ALL);
        assert_eq!(of(Kind::Root, 1000).len(), OF_ALL);
        let address = |last| Kind::from(IpAddr::from([192, 0, 2, last]));
        let of_addresses: Vec<_> = (0..9).flat_map(|last| of(address(last), 100)).collect();
        assert_eq!(of_addresses.len(), OF_ALL_ADDRESSES);
        assert!(connections.place(Kind::Admin(30)).is_none());
        drop(first);
        assert!(connections.place(Kind::Admin(30)).is_some());
        drop((all, others, of_addresses));
        assert!(connections.lock().places.is_empty());
    }

    /// 32 connections that said nothing kept a liveness probe out.
    #[test]
    fn the_oldest_without_a_head_makes_room() {
        let connections = Connections::default();
        let monitor = Kind::from(IpAddr::from([127, 0, 0, 1]));
        let served = connections.place(monitor).unwrap();
        served.hold.has_head();
        let mut silent: Vec<_> = (1..OF_ONE).map(|_| connections.place(monitor).unwrap()).collect();
        let is_taken = |place: &mut Place| place.taken.try_recv().is_ok();
        let probe = connections.place(monitor).unwrap();
        assert_eq!(silent.iter_mut().map(is_taken).filter(|taken| *taken).count(), 1);
        assert!(connections.lock().places.contains_key(&served.hold.number));
        probe.hold.has_head();
        let more = places(&connections, monitor, 100);
        assert_eq!(more.len(), OF_ONE - 2);
        drop(silent);
        assert_eq!(connections.lock().places.len(), OF_ONE);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_together() {
        let of = |text: &str| Kind::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
