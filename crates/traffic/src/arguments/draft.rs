//! What has been read of a line so far, and the plan it makes.

use super::{ArgumentError, Dialect, Output, Request};
use crate::plan::{CONNECTIONS_MAX, DATAGRAM_MAX, Family, Length, Mapping, Plan, Role, Transport};
use std::net::IpAddr;

/// Windows NTttcp's `-n`.
const BUFFERS_DEFAULT: u64 = 20 * 1024;
/// ntttcp-for-linux's `-t`.
const SECONDS_DEFAULT: u32 = 60;
const BASE_PORT: u16 = 5001;

/// Only what was typed; [`Draft::finish`] has the defaults.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) help: bool,
    pub(super) verbose: bool,
    pub(super) dialect: Option<Dialect>,
    pub(super) sender: bool,
    pub(super) receiver: bool,
    pub(super) mappings: Vec<Mapping>,
    pub(super) host: Option<IpAddr>,
    pub(super) v6: bool,
    pub(super) udp: bool,
    pub(super) base_port: Option<u16>,
    pub(super) ports: Option<u16>,
    pub(super) threads_per_port: Option<u32>,
    pub(super) connections_per_thread: Option<u32>,
    pub(super) buffer_bytes: Option<usize>,
    pub(super) buffers: Option<u64>,
    pub(super) outstanding: Option<u32>,
    pub(super) receive_socket_bytes: Option<usize>,
    pub(super) send_socket_bytes: Option<usize>,
    pub(super) no_delay: bool,
    pub(super) congestion: Option<String>,
    pub(super) warm_up_s: u32,
    pub(super) seconds: Option<u32>,
    pub(super) cool_down_s: u32,
    pub(super) no_sync: bool,
    pub(super) multi_client: bool,
    pub(super) last_client: bool,
    pub(super) bandwidth_bits_per_s: Option<u64>,
    /// Of each thread.
    pub(super) kibibytes_per_s: Option<u32>,
    pub(super) pacing_bytes_per_s: Option<u64>,
    pub(super) source: Option<IpAddr>,
    pub(super) source_port: Option<u16>,
    pub(super) verify: bool,
    pub(super) latency: bool,
    pub(super) request_times: bool,
    pub(super) wait_s: Option<u64>,
    pub(super) connect_attempts: Option<u32>,
    pub(super) interface: Option<String>,
    pub(super) interrupts: Option<String>,
    pub(super) output: Output,
    pub(super) notes: Vec<String>,
}

impl Draft {
    pub(super) fn finish(self, dialect: Dialect) -> Result<Request, ArgumentError> {
        let role = self.role(dialect)?;
        let mappings = self.mappings(dialect)?;
        let transport = if self.udp { Transport::Udp } else { Transport::Tcp };
        let buffer_bytes = self.buffer_bytes.unwrap_or(match (dialect, transport, role) {
            (Dialect::Windows, Transport::Tcp, _) | (Dialect::Linux, _, Role::Receiver) => {
                64 * 1024
            }
            (Dialect::Windows, Transport::Udp, _) => 128,
            (Dialect::Linux, Transport::Tcp, Role::Sender) => 128 * 1024,
            (Dialect::Linux, Transport::Udp, Role::Sender) => DATAGRAM_MAX,
        });
        let mut plan = Plan {
            role,
            mappings,
            base_port: self.base_port.unwrap_or(BASE_PORT),
            transport,
            threads_per_port: self.threads_per_port(dialect),
            connections_per_thread: self.connections_per_thread.unwrap_or(1),
            buffer_bytes: if self.udp { buffer_bytes.min(DATAGRAM_MAX) } else { buffer_bytes },
            outstanding: self.outstanding.unwrap_or(if dialect == Dialect::Windows {
                2
            } else {
                4
            }),
            receive_socket_bytes: self.receive_socket_bytes,
            send_socket_bytes: self.send_socket_bytes,
            no_delay: self.no_delay,
            congestion: self.congestion,
            warm_up_s: self.warm_up_s,
            length: length(dialect, self.seconds, self.buffers),
            cool_down_s: self.cool_down_s,
            sync: !self.no_sync,
            tokens: dialect == Dialect::Windows && !self.no_sync,
            multi_client: self.multi_client,
            last_client: self.last_client,
            bandwidth_bits_per_s: self.bandwidth_bits_per_s,
            pacing_bytes_per_s: self.pacing_bytes_per_s,
            source: self.source,
            source_port: self.source_port,
            verify: self.verify,
            latency: self.latency,
            request_times: self.request_times,
            wait_s: self.wait_s.unwrap_or(0),
            connect_attempts: self.connect_attempts.unwrap_or(100),
            interface: self.interface,
            interrupts: self.interrupts,
            decimal_megabytes: dialect == Dialect::Linux,
            notes: self.notes,
            stop: std::sync::Arc::default(),
        };
        if let Some(each) = self.kibibytes_per_s.filter(|_| plan.bandwidth_bits_per_s.is_none()) {
            plan.bandwidth_bits_per_s = Some(u64::from(each) * 1024 * 8 * plan.threads());
        }
        if self.verbose {
            let details = details(&plan);
            plan.notes.extend(details);
        }
        plan.check().map_err(|error| ArgumentError::Plan(error.to_string()))?;
        Ok(Request { plan, dialect, output: self.output })
    }

    fn role(&self, dialect: Dialect) -> Result<Role, ArgumentError> {
        match (self.sender, self.receiver) {
            (true, true) => Err(ArgumentError::Plan(
                "-s and -r: one run is either a sender or a receiver".into(),
            )),
            (true, false) => Ok(Role::Sender),
            (false, true) => Ok(Role::Receiver),
            // As ntttcp-for-linux has it.
            (false, false) if dialect == Dialect::Linux => Ok(Role::Receiver),
            (false, false) => {
                Err(ArgumentError::Plan("say -s for a sender or -r for a receiver".into()))
            }
        }
    }

    fn mappings(&self, dialect: Dialect) -> Result<Vec<Mapping>, ArgumentError> {
        let family = if self.v6 { Family::V6 } else { Family::V4 };
        let mut mappings = self.mappings.clone();
        if mappings.is_empty() {
            if dialect == Dialect::Windows {
                return Err(ArgumentError::Plan(
                    "Windows NTttcp needs -m THREADS,PROCESSOR,ADDRESS, such as -m 8,*,192.168.1.1"
                        .into(),
                ));
            }
            let ports = self.ports.unwrap_or(16);
            mappings.push(Mapping { ports, processor: None, host: family.unspecified() });
        }
        for mapping in &mut mappings {
            mapping.ports = self.ports.unwrap_or(mapping.ports);
            mapping.host = self.host.unwrap_or(mapping.host);
            if self.v6 && mapping.host.is_ipv4() {
                return Err(ArgumentError::Plan(format!(
                    "-6 with the IPv4 address {}: leave out one of them",
                    mapping.host
                )));
            }
        }
        Ok(mappings)
    }

    /// ntttcp-for-linux has four, unless a mapping says how many ports there are.
    fn threads_per_port(&self, dialect: Dialect) -> u32 {
        let default = if dialect == Dialect::Linux && self.mappings.is_empty() { 4 } else { 1 };
        self.threads_per_port
            .unwrap_or(default)
            .min(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX) + 1)
    }
}

/// What `-v` and `-V` add to the notes: what each mapping has come to.
fn details(plan: &Plan) -> Vec<String> {
    let of = |mapping: &Mapping| {
        let each = match plan.role {
            Role::Sender => format!(
                "{} threads at each, {} connections of each thread",
                plan.threads_per_port, plan.connections_per_thread
            ),
            Role::Receiver => "a thread at each".to_owned(),
        };
        format!(
            "{} ports of {}, {each}, on {}; the first port of an address is {}, buffers are of {} bytes, up to {} calls are made for a ready connection",
            mapping.ports,
            mapping.host,
            mapping
                .processor
                .map_or("any processor".into(), |number| format!("processor {number}")),
            plan.base_port,
            plan.buffer_bytes,
            plan.outstanding,
        )
    };
    plan.mappings.iter().map(of).collect()
}

fn length(dialect: Dialect, seconds: Option<u32>, buffers: Option<u64>) -> Length {
    match (seconds, buffers, dialect) {
        (Some(0), _, _) => Length::UntilStopped,
        (Some(seconds), _, _) => Length::Seconds(seconds),
        (None, Some(buffers), _) => Length::Buffers(buffers),
        (None, None, Dialect::Windows) => Length::Buffers(BUFFERS_DEFAULT),
        (None, None, Dialect::Linux) => Length::Seconds(SECONDS_DEFAULT),
    }
}
