//! Sockets with a plan's options, bound and listening where needed; errors name the refused option.

use crate::TrafficError;
use crate::measure::{set_largest_segment, set_pacing_rate};
use crate::plan::{Plan, Transport};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Length of the accept queue; the kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 8192;
/// Keep-alive settings, which determine when a silent peer is probed and given up.
struct KeepAlive {
    /// Silence before the first probe.
    idle: Duration,
    /// Time between two probes.
    interval: Duration,
    /// Unanswered probes after which the connection is given up.
    probes: u32,
}

/// Keep-alive of payload connections. They may starve for long where frames get lost, but a live
/// host answers one of so many probes.
const PAYLOAD: KeepAlive =
    KeepAlive { idle: Duration::from_secs(60), interval: Duration::from_secs(15), probes: 8 };
/// Keep-alive of synchronisation connections: a peer that is gone is noticed within a minute.
const SYNC: KeepAlive =
    KeepAlive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 8 };

/// Opens a non-blocking socket of the plan's transport for the family of `address`, with the
/// options that must be set before connecting.
///
/// # Errors
/// Fails if the kernel refuses the socket or an option of the plan.
pub(crate) fn data_socket(plan: &Plan, address: IpAddr) -> Result<OwnedFd, TrafficError> {
    let kind = match plan.transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let socket = socket(address, kind)?;
    if let Some(bytes) = plan.receive_socket_bytes {
        // With CAP_NET_ADMIN the forced variant is not capped by net.core.rmem_max.
        sockopt::set_socket_recv_buffer_size_force(&socket, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, bytes))
            .map_err(setting("SO_RCVBUF", bytes.to_string(), "use a smaller -rb"))?;
    }
    if let Some(bytes) = plan.send_socket_bytes {
        sockopt::set_socket_send_buffer_size_force(&socket, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, bytes))
            .map_err(setting("SO_SNDBUF", bytes.to_string(), "use a smaller -sb"))?;
    }
    if plan.transport == Transport::Tcp {
        stream_options(plan, &socket)?;
    }
    if let Some(rate) = plan.pacing_bytes_per_s {
        set_pacing_rate(&socket, rate).map_err(setting(
            "SO_MAX_PACING_RATE",
            rate.to_string(),
            "leave out --fq-rate-limit",
        ))?;
    }
    Ok(socket)
}

fn stream_options(plan: &Plan, socket: &OwnedFd) -> Result<(), TrafficError> {
    if plan.no_delay || plan.latency {
        sockopt::set_tcp_nodelay(socket, true).map_err(setting(
            "TCP_NODELAY",
            "on".into(),
            "leave out -ndl or --no-delay",
        ))?;
    }
    if let Some(bytes) = plan.segment_bytes {
        set_largest_segment(socket, bytes).map_err(setting(
            "TCP_MAXSEG",
            bytes.to_string(),
            "use --mss of 88 to 32767",
        ))?;
    }
    if let Some(name) = &plan.congestion {
        sockopt::set_tcp_congestion(socket, name).map_err(setting(
            "TCP_CONGESTION",
            name.clone(),
            "net.ipv4.tcp_available_congestion_control lists what this kernel has; load the module tcp_NAME for another",
        ))?;
    }
    // No TCP_USER_TIMEOUT: of thousands of connections over a path too narrow for them, most make
    // no progress for long and are still alive. The conductor watches all of them together to see
    // whether the receiver is gone.
    keep_alive(socket, &PAYLOAD)
}

fn keep_alive(socket: &OwnedFd, how: &KeepAlive) -> Result<(), TrafficError> {
    let set = || {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, how.idle)?;
        sockopt::set_tcp_keepintvl(socket, how.interval)?;
        sockopt::set_tcp_keepcnt(socket, how.probes)
    };
    set().map_err(setting("SO_KEEPALIVE", "on".into(), "a newer kernel is needed"))
}

/// Opens a listening TCP socket, or a bound UDP socket, for payload.
///
/// # Errors
/// Fails if the address is taken or the kernel refuses an option of the plan.
pub(crate) fn data_listener(plan: &Plan, address: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let socket = data_socket(plan, address.ip())?;
    bind_listener(&socket, address)?;
    if plan.transport == Transport::Tcp {
        listen(&socket, BACKLOG).map_err(|source| bind_error(address, source))?;
    }
    Ok(socket)
}

/// Opens a listening TCP socket for synchronisation.
///
/// # Errors
/// Fails if the address is taken.
pub(crate) fn sync_listener(address: SocketAddr) -> Result<OwnedFd, TrafficError> {
    // Accepted sockets inherit these options.
    let socket = sync_socket(address.ip())?;
    bind_listener(&socket, address)?;
    listen(&socket, 64).map_err(|source| bind_error(address, source))?;
    Ok(socket)
}

/// Opens a TCP socket for synchronisation, not yet connected.
///
/// # Errors
/// Fails if the kernel refuses the socket.
pub(crate) fn sync_socket(address: IpAddr) -> Result<OwnedFd, TrafficError> {
    let socket = socket(address, SocketType::STREAM)?;
    keep_alive(&socket, &SYNC)?;
    Ok(socket)
}

fn socket(address: IpAddr, kind: SocketType) -> Result<OwnedFd, TrafficError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
        .map_err(TrafficError::system("make a socket"))
}

fn bind_listener(socket: &OwnedFd, address: SocketAddr) -> Result<(), TrafficError> {
    let prepare = || {
        sockopt::set_socket_reuseaddr(socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(socket, true)?;
        }
        bind(socket, &address)
    };
    prepare().map_err(|source| bind_error(address, source))
}

pub(crate) fn bind_error(address: SocketAddr, source: Errno) -> TrafficError {
    let remedy = match source {
        Errno::ADDRINUSE => "something uses this port already: end it, or use another -p",
        Errno::ADDRNOTAVAIL => "the address is not one of this host's: `ip address` lists them",
        Errno::ACCESS => "ports below 1024 need privileges: use another -p",
        _ => "check the address and the port",
    };
    TrafficError::Bind { address, source, remedy }
}

fn setting(
    what: &'static str,
    value: String,
    remedy: &'static str,
) -> impl FnOnce(Errno) -> TrafficError {
    move |source| TrafficError::Setting { what, value, source, remedy }
}

/// Returns a sentence for each socket buffer that is smaller than asked for; the kernel caps them
/// without an error.
pub(crate) fn buffer_notes(plan: &Plan, socket: impl AsFd) -> Vec<String> {
    let asked = [
        (
            "receive",
            "rmem_max",
            plan.receive_socket_bytes,
            sockopt::socket_recv_buffer_size(&socket),
        ),
        ("send", "wmem_max", plan.send_socket_bytes, sockopt::socket_send_buffer_size(&socket)),
    ];
    let mut notes = Vec::new();
    for (name, limit, wanted, effective) in asked {
        let (Some(wanted), Ok(effective)) = (wanted, effective) else { continue };
        // The kernel doubles the number for its own overhead (socket(7)).
        if effective / 2 < wanted {
            notes.push(format!(
                "the {name} socket buffer is {} bytes, {wanted} were asked for: raise net.core.{limit}",
                effective / 2
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Role;
    use std::net::Ipv4Addr;

    #[test]
    fn one_connection_that_starves_among_many_is_not_given_up() {
        let here = Ipv4Addr::LOCALHOST.into();
        let socket = data_socket(&Plan::new(Role::Sender, here, 5001, 1), here).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(0));
        let asked = sockopt::tcp_keepidle(&socket).unwrap()
            + PAYLOAD.interval * sockopt::tcp_keepcnt(&socket).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap() && asked >= Duration::from_secs(120));
    }

    #[test]
    fn whoever_waits_for_a_word_learns_within_a_minute_that_nobody_will_speak() {
        let listener = sync_listener(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let caller = std::net::TcpStream::connect(
            std::net::TcpListener::from(listener.try_clone().unwrap()).local_addr().unwrap(),
        )
        .unwrap();
        rustix::event::poll(
            &mut [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)],
            None,
        )
        .unwrap();
        let accepted = rustix::net::accept(&listener).unwrap();
        let own = sync_socket(Ipv4Addr::LOCALHOST.into()).unwrap();
        for socket in [&accepted, &own] {
            assert!(sockopt::socket_keepalive(socket).unwrap());
            let asked = sockopt::tcp_keepidle(socket).unwrap()
                + sockopt::tcp_keepintvl(socket).unwrap() * sockopt::tcp_keepcnt(socket).unwrap();
            assert!(asked <= Duration::from_secs(60), "{asked:?}");
        }
        drop(caller);
    }
}
