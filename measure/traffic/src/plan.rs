//! A run's options, independent of the dialect they were typed in.

use crate::TrafficError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Which end of the connections this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Connects and sends.
    Sender,
    /// Listens and receives.
    #[default]
    Receiver,
}

/// What carries the payload. Synchronisation is always TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// A byte stream.
    #[default]
    Tcp,
    /// Datagrams of one buffer each.
    Udp,
}

/// The address family, for sockets without a given address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Returns the address that stands for all addresses of this host.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// When the measured interval ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// After so many seconds (`-t`).
    Seconds(u32),
    /// When each sending thread has sent so many buffers (Windows `-n`); a receiver measures until
    /// its peers are done.
    Buffers(u64),
    /// When the run is stopped (`-t 0`).
    #[default]
    UntilStopped,
}

/// NTttcp's `-m threads,processor,host`.
///
/// Ports are numbered on through all mappings, as Windows NTttcp does: the first port of a mapping
/// follows the last one of the mapping before, whether the host is the same (this is how threads
/// are pinned to several processors) or another receiver, which then has that port as its `-p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Receiver ports, one receiver thread each. 1 to 1024.
    pub ports: u16,
    /// The processor the threads are pinned to; `None` (`*`) lets the scheduler choose.
    pub processor: Option<usize>,
    /// The receiver's address: where a sender connects, what a receiver binds.
    pub host: IpAddr,
}

/// Options of a run. The default asks for no connection, which [`Plan::check`] refuses; start from
/// [`Plan::new`].
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Which end this is.
    pub role: Role,
    /// The `-m` mappings of threads to processors and addresses. Never empty.
    pub mappings: Vec<Mapping>,
    /// The first data port of the first mapping; synchronisation uses the port below the first of
    /// each host.
    pub base_port: u16,
    /// What carries the payload.
    pub transport: Transport,
    /// Sender: threads for each receiver port (Linux `-n`).
    pub threads_per_port: u32,
    /// Sender: connections of each thread (Linux `-l`).
    pub connections_per_thread: u32,
    /// Bytes of one send or receive call, and of one UDP datagram.
    pub buffer_bytes: usize,
    /// Calls made for a ready connection before the next one is served (`-a`).
    pub outstanding: u32,
    /// SO_RCVBUF; `None` leaves the host's default.
    pub receive_socket_bytes: Option<usize>,
    /// SO_SNDBUF; `None` leaves the host's default.
    pub send_socket_bytes: Option<usize>,
    /// TCP_MAXSEG, the largest segment in bytes without options; `None` leaves it to TCP.
    pub segment_bytes: Option<u16>,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CONGESTION; `None` leaves the host's default.
    pub congestion: Option<String>,
    /// Seconds of traffic before the measured interval.
    pub warm_up_s: u32,
    /// The measured interval.
    pub length: Length,
    /// Seconds of traffic after the measured interval.
    pub cool_down_s: u32,
    /// Whether begin and end are agreed with the peer (off with `-ns` and `-N`).
    pub sync: bool,
    /// Receiver: take Windows NTttcp's synchronisation too.
    pub tokens: bool,
    /// Receiver: wait for several senders (Linux `-M`), until one says it is the last.
    pub multi_client: bool,
    /// Sender: this is the last of several (Linux `-L`).
    pub last_client: bool,
    /// Sender: bits per second of all connections together (Linux `-B`).
    pub bandwidth_bits_per_s: Option<u64>,
    /// Sender: SO_MAX_PACING_RATE of each socket, in bytes per second (`--fq-rate-limit`).
    pub pacing_bytes_per_s: Option<u64>,
    /// Sender: the address to send from (`--bind`, Linux `-a`).
    pub source: Option<IpAddr>,
    /// Sender: the first source port (Linux `-f`).
    pub source_port: Option<u16>,
    /// Whether the sender sends a known pattern and the receiver checks every byte.
    pub verify: bool,
    /// Whether round trips of one byte are timed instead of sending bulk data.
    pub latency: bool,
    /// Whether each request of the bulk data is timed (Windows `-lm`).
    pub request_times: bool,
    /// Receiver: seconds to wait for a sender; 0 waits for ever.
    pub wait_s: u64,
    /// Sender: connection attempts, 100 ms apart, before it gives up.
    pub connect_attempts: u32,
    /// An interface whose packet counters go into the report.
    pub interface: Option<String>,
    /// What a line of /proc/interrupts must contain to be counted; `None` counts all interrupts.
    pub interrupts: Option<String>,
    /// Whether MB in the XML are 10^6 bytes, as in ntttcp-for-linux; otherwise 2^20, as in Windows
    /// NTttcp.
    pub decimal_megabytes: bool,
    /// Sentences for the report's notes: how an option of the command line was understood.
    pub notes: Vec<String>,
    /// Stop flag: setting it (from a signal handler, for example) ends the run. The figures so far
    /// are reported.
    pub stop: Arc<AtomicBool>,
}

/// Most connections of one sender, all threads together: beyond it one source address runs out of
/// ports.
pub(crate) const CONNECTIONS_MAX: u64 = 65_536;

/// Distance from a data port to the port of its Windows NTttcp token.
const TOKEN_PORT_OFFSET: u16 = 1000;

impl Plan {
    /// Makes a plan of one TCP connection for `seconds` (0: until stopped), all options at their
    /// defaults.
    pub fn new(role: Role, host: IpAddr, base_port: u16, seconds: u32) -> Plan {
        Plan {
            role,
            mappings: vec![Mapping { ports: 1, processor: None, host }],
            base_port,
            threads_per_port: 1,
            connections_per_thread: 1,
            buffer_bytes: 64 * 1024,
            outstanding: 2,
            length: if seconds == 0 { Length::UntilStopped } else { Length::Seconds(seconds) },
            sync: true,
            connect_attempts: 100,
            ..Plan::default()
        }
    }

    /// Returns the number of threads that move payload.
    pub fn threads(&self) -> u64 {
        let ports: u64 = self.mappings.iter().map(|mapping| u64::from(mapping.ports)).sum();
        match self.role {
            Role::Sender => ports * u64::from(self.threads_per_port),
            Role::Receiver => ports,
        }
    }

    /// Returns the number of connections a sender opens; for a receiver it is unknown until they
    /// come.
    pub fn connections(&self) -> u64 {
        self.threads() * u64::from(self.connections_per_thread)
    }

    /// Returns the receivers' addresses, each once, in the order of the mappings.
    pub fn hosts(&self) -> Vec<IpAddr> {
        let mut hosts = Vec::new();
        for mapping in &self.mappings {
            if !hosts.contains(&mapping.host) {
                hosts.push(mapping.host);
            }
        }
        hosts
    }

    /// Returns the number of ports used at one host.
    pub fn ports_at(&self, host: IpAddr) -> u32 {
        self.mappings.iter().filter(|m| m.host == host).map(|m| u32::from(m.ports)).sum()
    }

    /// Returns each data port and the processor of its threads, in the order of the mappings.
    pub(crate) fn data_ports(&self) -> Vec<(SocketAddr, Option<usize>)> {
        let threads = self.mappings.iter().flat_map(|mapping| {
            std::iter::repeat_n((mapping.host, mapping.processor), mapping.ports.into())
        });
        let number = |(port, (host, processor))| (SocketAddr::new(host, port), processor);
        (self.base_port..=u16::MAX).zip(threads).map(number).collect()
    }

    /// Returns the first data port of a host.
    pub(crate) fn first_port(&self, host: IpAddr) -> SocketAddr {
        let of_host = |(address, _): &(SocketAddr, _)| address.ip() == host;
        let found = self.data_ports().into_iter().find(of_host);
        found.map_or(SocketAddr::new(host, self.base_port), |(address, _)| address)
    }

    /// Returns the address at which a host is synchronised with: the port below its first data
    /// port.
    pub(crate) fn sync_port(&self, host: IpAddr) -> SocketAddr {
        SocketAddr::new(host, self.first_port(host).port().saturating_sub(1))
    }

    /// Returns the first and the last port of a receiver, which a firewall has to open: that of the
    /// synchronisation and those of the data. Windows NTttcp's tokens have ports of their own.
    pub fn ports(&self) -> [u16; 2] {
        let last = self.data_ports().last().map_or(self.base_port, |(address, _)| address.port());
        let first = if self.sync { self.base_port.saturating_sub(1) } else { self.base_port };
        [first, last]
    }

    /// Returns the ports at which the tokens of a host's data ports are exchanged; none if the
    /// numbers exceed 65535.
    pub(crate) fn token_ports(&self, host: IpAddr) -> Vec<SocketAddr> {
        let of_host = self.data_ports().into_iter().filter(|(address, _)| address.ip() == host);
        let token = |port: u16| port.checked_add(TOKEN_PORT_OFFSET);
        let ports = of_host.map(|(address, _)| Some(SocketAddr::new(host, token(address.port())?)));
        ports.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// Returns warm-up, measured interval and cool-down together, in seconds; 0 if only a stop or
    /// the last buffer ends the run.
    pub fn total_s(&self) -> u32 {
        match self.length {
            Length::Seconds(seconds) => self.warm_up_s + seconds + self.cool_down_s,
            Length::Buffers(_) | Length::UntilStopped => 0,
        }
    }

    /// Checks that the plan can be carried out.
    ///
    /// # Errors
    /// [`TrafficError::Plan`] with the value seen and the value wanted.
    pub fn check(&self) -> Result<(), TrafficError> {
        let refuse = |text: String| Err(TrafficError::Plan(text));
        if self.mappings.is_empty() || self.threads() == 0 || self.connections() == 0 {
            return refuse(
                "no connections: use at least one mapping, thread and connection".into(),
            );
        }
        if self.role == Role::Sender && self.connections() > CONNECTIONS_MAX {
            return refuse(format!(
                "{} connections exceed the maximum of {CONNECTIONS_MAX}: use fewer ports, threads or connections",
                self.connections()
            ));
        }
        let ports: u32 = self.mappings.iter().map(|mapping| u32::from(mapping.ports)).sum();
        let last = u32::from(self.base_port) + ports.saturating_sub(1);
        if last > u32::from(u16::MAX) || self.base_port < 2 {
            return refuse(format!(
                "ports {} to {last} are out of range: use another -p",
                self.base_port
            ));
        }
        for host in self.hosts() {
            if self.role == Role::Sender && host.is_unspecified() {
                return refuse(format!(
                    "a sender needs the receiver's address, not {host}: give it after -s or in -m"
                ));
            }
        }
        if self.latency && self.request_times {
            return refuse(
                "-lm times the requests of bulk data, but --latency sends none: omit one of them"
                    .into(),
            );
        }
        let largest = if self.transport == Transport::Udp { DATAGRAM_MAX } else { BUFFER_MAX };
        if self.buffer_bytes == 0 || self.buffer_bytes > largest {
            return refuse(format!(
                "a buffer of {} bytes: 1 to {largest} are possible",
                self.buffer_bytes
            ));
        }
        Ok(())
    }
}

/// The largest UDP payload over IPv4: 65535 less the IP and UDP headers.
pub(crate) const DATAGRAM_MAX: usize = 65_507;
/// The largest buffer of a TCP call.
pub(crate) const BUFFER_MAX: usize = 64 * 1024 * 1024;
