//! The user at the other end of a TCP connection within this network namespace, for a server that
//! has both ends on its host.
//!
//! One question to `NETLINK_SOCK_DIAG` about one connection: the kernel looks it up in its table, so
//! the work does not grow with the number of connections. See sock_diag(7) and `linux/inet_diag.h`.
//!
//! Another program may take the client's address and port once its connection is broken off. So both
//! ends have to be there: the client's, connected, and then still the server's own.
//!
//! The kernel reports user 0 for a socket that its program has closed, and for what remains of a
//! connection afterwards. Such a socket has no inode, and counts as one without an owner.

use crate::{ACK, Socket, family, number, octets};
use rustix::io::{Errno, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`: the question, and the kind of its answer.
const BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
const ANY_STATE: u32 = u32::MAX;
/// `INET_DIAG_NOCOOKIE`: whichever socket has these ends.
const NO_COOKIE: u64 = u64::MAX;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;

/// The two ends of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Where the connection was opened from.
    pub client: SocketAddr,
    /// The server's own end of it.
    pub server: SocketAddr,
    /// The kernel's number of the server's socket (`SO_COOKIE`).
    pub cookie: u64,
}

/// Returns the user whose program holds the client's socket of a connection, as the caller's user
/// namespace numbers users. `None` if there is no such socket in the caller's network namespace, no
/// program holds it any more, or the connection has ended.
///
/// # Errors
/// The kernel answers no questions about sockets.
pub fn of_client(ends: Ends) -> Result<Option<u32>> {
    let ends = ends.canonical();
    let socket = Socket::open_about_sockets()?;
    let Some(user) = holder(&socket, Ends { cookie: NO_COOKIE, ..ends })? else { return Ok(None) };
    let own = Ends { client: ends.server, server: ends.client, ..ends };
    Ok(holder(&socket, own)?.map(|_| user))
}

/// Returns the user whose program holds the first socket of these, if it is connected to the second.
fn holder(socket: &Socket, ends: Ends) -> Result<Option<u32>> {
    match socket.ask(BY_FAMILY, ACK, question(ends)) {
        Ok(answers) => Ok(answers.first().and_then(|answer| user(answer, ends))),
        // The second is told of another socket with these ends; the first also where the kernel
        // lacks this kind of question.
        Err(Errno::NOENT | Errno::STALE) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Ends {
    /// Returns the ends with IPv4 addresses as such. A listener of both families has them mapped
    /// into IPv6, while the client's socket is one of IPv4.
    fn canonical(self) -> Ends {
        let canonical = |mut end: SocketAddr| {
            if let IpAddr::V4(ip) = end.ip().to_canonical() {
                end = SocketAddr::from((ip, end.port()));
            }
            end
        };
        Ends { client: canonical(self.client), server: canonical(self.server), ..self }
    }
}

/// Returns the body of the question, a `struct inet_diag_req_v2`.
fn question(Ends { client, server, cookie }: Ends) -> Vec<u8> {
    let mut body = vec![family(client.ip()), TCP, 0, 0];
    body.extend(ANY_STATE.to_ne_bytes());
    body.extend(client.port().to_be_bytes());
    body.extend(server.port().to_be_bytes());
    for end in [client, server] {
        let mut address = octets(end.ip());
        address.resize(16, 0);
        body.extend(address);
    }
    body.extend(device(client).to_ne_bytes());
    body.extend(cookie.to_ne_bytes());
    body
}

/// Returns the device to which a socket with this address is bound: that of a link-local address.
fn device(end: SocketAddr) -> u32 {
    match end {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(end) => end.scope_id(),
    }
}

/// Returns the user in an answer, a `struct inet_diag_msg`, if it is about a socket with these ends
/// that a program holds. The kernel also answers with a listener that would take such a connection.
fn user(answer: &[u8], ends: Ends) -> Option<u32> {
    let at = |place: usize| answer.get(place..place + 4).and_then(number);
    let port =
        |place: usize| Some(u16::from_be_bytes(answer.get(place..)?.first_chunk().copied()?));
    let is_v6 = *answer.first()? != family(Ipv4Addr::UNSPECIFIED.into());
    let address = |place: usize| {
        let bytes = answer.get(place..)?.first_chunk::<16>()?;
        let [a, b, c, d, ..] = *bytes;
        Some(match is_v6 {
            true => Ipv6Addr::from(*bytes).to_canonical(),
            false => Ipv4Addr::from([a, b, c, d]).into(),
        })
    };
    let client = (address(8)?, port(4)?);
    let server = (address(24)?, port(6)?);
    let is_meant = [(client, ends.client), (server, ends.server)]
        .iter()
        .all(|(found, wanted)| *found == (wanted.ip(), wanted.port()));
    let (user, inode) = (at(64)?, at(68)?);
    let is_connected = answer.get(1) == Some(&ESTABLISHED);
    (is_meant && is_connected && inode != 0).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    /// Returns a listener at the address, and a client that it has accepted.
    fn connection(at: &str, to: IpAddr) -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind(at).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        (listener, client, server)
    }

    fn ends(server: &TcpStream) -> Ends {
        let cookie = rustix::net::sockopt::socket_cookie(server).unwrap();
        Ends { client: server.peer_addr().unwrap(), server: server.local_addr().unwrap(), cookie }
    }

    /// The next client from the same port would have lent its user to a request of the first.
    #[test]
    fn a_client_that_takes_the_port_of_one_that_broke_off_is_not_its_owner() {
        let (listener, client, first) = connection("127.0.0.1:0", Ipv4Addr::LOCALHOST.into());
        let ends = ends(&first);
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        let (v4, stream) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
        let next = rustix::net::socket(v4, stream, None).unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&next, true).unwrap();
        rustix::net::bind(&next, &ends.client).unwrap();
        rustix::net::connect(&next, &ends.server).unwrap();
        let (second, from) = listener.accept().unwrap();
        assert_eq!(from, ends.client);
        assert_eq!(of_client(ends), Ok(None));
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(of_client(self::ends(&second)), Ok(Some(own)));
    }

    #[test]
    fn the_owner_of_a_connection_is_the_user_who_opened_it_until_it_is_closed() {
        let own = rustix::process::geteuid().as_raw();
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        for (at, to) in [
            ("127.0.0.1:0", v4.into()),
            ("0.0.0.0:0", Ipv4Addr::new(127, 0, 0, 2).into()),
            ("[::1]:0", v6.into()),
            ("[::]:0", v6.into()),
            ("[::]:0", v4.into()),
            ("[::]:0", v4.to_ipv6_mapped().into()),
        ] {
            let (_listener, client, server) = connection(at, to);
            assert_eq!(of_client(ends(&server)), Ok(Some(own)), "{to} at {at}");
            // The kernel goes on to know the connection, as one of user 0.
            drop(client);
            assert_eq!(of_client(ends(&server)), Ok(None), "{to} at {at}");
        }
    }

    #[test]
    fn a_listener_is_no_client() {
        let (listener, _client, server) = connection("127.0.0.1:0", Ipv4Addr::LOCALHOST.into());
        let (own, other) = (listener.local_addr().unwrap(), ends(&server).client);
        let (free, port) = (other.ip(), other.port() ^ 1);
        for (client, server) in [(own, other), (own, SocketAddr::from((free, port)))] {
            let found = of_client(Ends { client, server, cookie: NO_COOKIE });
            // The server's own end of the connection is a socket, too.
            let is_end = server == other;
            assert_eq!(found.unwrap().is_some(), is_end, "{client} to {server}");
        }
    }

    /// Returns an answer of the kernel about a socket with these ends.
    fn answer(ends: Ends, family: u8, (user, inode): (u32, u32)) -> Vec<u8> {
        let question = question(ends);
        let mut answer = vec![family, 1, 0, 0];
        answer.extend(&question[8..56]);
        answer.extend([0; 12]);
        answer.extend(user.to_ne_bytes());
        answer.extend(inode.to_ne_bytes());
        answer
    }

    fn any_ends() -> impl Strategy<Value = Ends> {
        let end = || any::<(IpAddr, u16)>().prop_map(SocketAddr::from);
        let pair = (end(), end())
            .prop_map(|(client, server)| Ends { client, server, cookie: NO_COOKIE }.canonical());
        pair.prop_filter("one family", |it| it.client.is_ipv4() == it.server.is_ipv4())
    }

    proptest! {
        #[test]
        fn no_bytes_of_an_answer_panic_or_name_a_user_of_other_ends(
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            ends in any_ends(),
        ) {
            prop_assert_eq!(user(&bytes, ends), None);
        }

        #[test]
        fn an_answer_names_the_user_of_its_own_ends_and_only_with_an_inode(
            ends in any_ends(), other in any_ends(), owner in 0u32.., inode in 1u32.., cut in 0usize..72,
        ) {
            let found = answer(ends, family(ends.client.ip()), (owner, inode));
            prop_assert_eq!(found.len(), 72);
            prop_assert_eq!(user(&found, ends), Some(owner));
            prop_assert_eq!(user(&found[..cut], ends), None);
            prop_assert_eq!(user(&answer(ends, found[0], (owner, 0)), ends), None);
            prop_assume!(ends != other);
            prop_assert_eq!(user(&found, other), None);
        }
    }
}
