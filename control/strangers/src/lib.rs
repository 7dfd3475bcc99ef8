//! Connections to an agent or a responder that have not shown its token yet.
//!
//! There are few places for them, and anyone who reaches the port can take them all. A new connection
//! is therefore always accepted; if there is no place left, one of the address with most ends.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The connections, oldest first.
#[derive(Default)]
pub struct Strangers(Vec<Weak<Connection>>);

struct Connection {
    stream: TcpStream,
    address: IpAddr,
    is_known: AtomicBool,
}

/// A connection's own part. The connection is a stranger until [`Visit::is_known`], or this is
/// dropped; until then its socket stays open.
pub struct Visit(Arc<Connection>);

impl Visit {
    /// Tells that the client has shown the token.
    pub fn is_known(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
    }
}

impl Strangers {
    /// Adds an accepted connection.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn add(&mut self, stream: &TcpStream, from: IpAddr) -> io::Result<Visit> {
        let (stream, address) = (stream.try_clone()?, network(from));
        let connection = Arc::new(Connection { stream, address, is_known: AtomicBool::new(false) });
        self.0.retain(|one| one.strong_count() > 0);
        self.0.push(Arc::downgrade(&connection));
        Ok(Visit(connection))
    }

    /// Ends the oldest connection of the address that has most.
    pub fn make_room(&mut self) {
        let is_stranger = |one: &Arc<Connection>| !one.is_known.load(Ordering::Relaxed);
        let mut all: Vec<_> = self.0.iter().filter_map(Weak::upgrade).filter(is_stranger).collect();
        let mut counts = HashMap::new();
        all.iter().for_each(|one| *counts.entry(one.address).or_insert(0) += 1);
        let most = counts.values().max().copied();
        let place = all.iter().position(|one| counts.get(&one.address).copied() == most);
        if let Some(place) = place {
            // It may have ended by itself.
            let _ = all.remove(place).stream.shutdown(Shutdown::Both);
        }
        self.0 = all.iter().map(Arc::downgrade).collect();
    }
}

/// Returns what counts as one address: of IPv6 the network, in which a host can have any number.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// Eight silent connections kept everybody with the token away.
    #[test]
    fn the_oldest_of_the_address_with_most_makes_room_and_none_that_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut strangers = Strangers::default();
        let mut come = |last: u8| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_nonblocking(true).unwrap();
            let (stream, _) = listener.accept().unwrap();
            let visit = strangers.add(&stream, IpAddr::from([10, 0, 0, last])).unwrap();
            (client, stream, visit)
        };
        let mut all: Vec<_> = [9, 1, 9, 9, 2].map(&mut come).into();
        all[0].2.is_known();
        let ended = |all: &mut [(TcpStream, TcpStream, Visit)]| -> Vec<usize> {
            let has_ended = |client: &mut TcpStream| matches!(client.read(&mut [0]), Ok(0));
            (0..all.len()).filter(|place| has_ended(&mut all[*place].0)).collect()
        };
        strangers.make_room();
        assert_eq!(ended(&mut all), [2]);
        drop(all.remove(3));
        strangers.make_room();
        assert_eq!(ended(&mut all), [1, 2], "nobody has more than one, so the oldest");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [one, other, apart] =
            ["fd00::1", "fd00::ffff:1", "fd01::1"].map(|at| at.parse().unwrap());
        assert_eq!(network(one), network(other));
        assert_ne!(network(one), network(apart));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), IpAddr::from([10, 0, 0, 1]));
    }
}
