//! Whether a filter keeps packets from a listening address, as `IPAddressDeny` of a systemd unit
//! does: clients then wait in vain, and nothing on this side shows why.
//!
//! The kernel refuses to send what such a filter denies, so one empty datagram to this host's own
//! address tells. It goes over the loopback device, to a port without a reader.

use config::Section;
use problem::Problem;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Returns a problem for each address that clients beyond this host cannot reach. Called before the
/// process restricts itself.
pub(super) fn problems(listening: &[(Section, Option<SocketAddr>)]) -> Vec<Problem> {
    let listening = listening.iter().filter_map(|(section, at)| Some((*section, (*at)?)));
    listening.filter_map(|(section, at)| judge(section, at, &try_to_send(at))).collect()
}

fn judge(section: Section, at: SocketAddr, sent: &io::Result<()>) -> Option<Problem> {
    let is_denied =
        sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    (is_denied && !at.ip().is_loopback()).then(|| {
        Problem::new(format!("{} is served at {at}, but a filter drops the packets", section.option()))
            .seen("sending to this host's own address is not permitted")
            .wanted("the addresses of the clients in the unit's IPAddressAllow")
            .remedy("add a drop-in (`systemctl edit millrace`) with [Service] and a line such as `IPAddressAllow=192.0.2.0/24`, and restart; or listen on 127.0.0.1")
    })
}

/// Sends an empty datagram to the address, or for a wildcard to the address by which this host
/// would reach others.
fn try_to_send(at: SocketAddr) -> io::Result<()> {
    let (any, documented): (IpAddr, IpAddr) = match at {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        SocketAddr::V6(_) => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let socket = UdpSocket::bind((any, 0))?;
    let own = if at.ip().is_unspecified() {
        // Sends nothing: a datagram socket only notes the peer, and its own address for it.
        let asks = UdpSocket::bind((any, 0))?;
        asks.connect((documented, at.port()))?;
        asks.local_addr()?.ip()
    } else {
        at.ip()
    };
    socket.send_to(&[], (own, at.port())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_refused_beyond_this_host_is_a_problem() {
        let judge = |at: &str, sent| judge(Section::Metrics, at.parse().unwrap(), &sent);
        let denied = || Err(io::ErrorKind::PermissionDenied.into());
        let problem = judge("0.0.0.0:9477", denied()).unwrap();
        assert!(problem.remedy.contains("IPAddressAllow="), "{problem}");
        assert!(judge("192.0.2.1:9477", denied()).is_some());
        assert_eq!(judge("127.0.0.1:9477", denied()), None);
        assert_eq!(judge("0.0.0.0:9477", Ok(())), None);
        let unreachable = Err(io::ErrorKind::NetworkUnreachable.into());
        assert_eq!(judge("0.0.0.0:9477", unreachable), None, "there is no network");
    }

    #[test]
    fn where_nothing_is_filtered_nothing_is_told() {
        let at = |text: &str| Some(text.parse().unwrap());
        let all = [at("127.0.0.1:9477"), at("[::1]:9477"), None];
        assert_eq!(problems(&all.map(|at| (Section::Web, at))), []);
    }
}
