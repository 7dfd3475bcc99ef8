//! The options read so far, and the plan they make.

use super::{ArgumentError, Dialect, Output, Request};
use crate::plan::{CONNECTIONS_MAX, DATAGRAM_MAX, Family, Length, Mapping, Plan, Role, Transport};
use std::net::IpAddr;

/// Windows NTttcp's `-n`.
const BUFFERS_DEFAULT: u64 = 20 * 1024;
/// ntttcp-for-linux's `-t`.
const SECONDS_DEFAULT: u32 = 60;
const BASE_PORT: u16 = 5001;

/// Options as typed; [`Draft::finish`] adds the defaults.
#[derive(Default)]
pub(super) struct Draft {
    /// The plan so far. Options with one default in both dialects are written straight into it.
    pub(super) plan: Plan,
    pub(super) help: bool,
    pub(super) verbose: bool,
    pub(super) dialect: Option<Dialect>,
    pub(super) sender: bool,
    pub(super) receiver: bool,
    pub(super) host: Option<IpAddr>,
    pub(super) v6: bool,
    pub(super) ports: Option<u16>,
    pub(super) threads_per_port: Option<u32>,
    pub(super) buffer_bytes: Option<usize>,
    pub(super) buffers: Option<u64>,
    pub(super) outstanding: Option<u32>,
    pub(super) seconds: Option<u32>,
    /// Limit of each thread, in KiB per second.
    pub(super) kibibytes_per_s: Option<u32>,
    pub(super) output: Output,
}

impl Draft {
    pub(super) fn new() -> Draft {
        let any = Family::V4.unspecified();
        let plan = Plan { mappings: Vec::new(), ..Plan::new(Role::Receiver, any, BASE_PORT, 0) };
        Draft { plan, ..Draft::default() }
    }

    pub(super) fn finish(self, dialect: Dialect) -> Result<Request, ArgumentError> {
        let windows = dialect == Dialect::Windows;
        let role = self.role(dialect)?;
        let mappings = self.mappings(dialect)?;
        let udp = self.plan.transport == Transport::Udp;
        let buffer_bytes = self.buffer_bytes.unwrap_or(match (dialect, udp, role) {
            (Dialect::Windows, true, _) => 128,
            (Dialect::Windows, false, _) | (Dialect::Linux, _, Role::Receiver) => 64 * 1024,
            (Dialect::Linux, false, Role::Sender) => 128 * 1024,
            (Dialect::Linux, true, Role::Sender) => DATAGRAM_MAX,
        });
        let mut plan = Plan {
            role,
            threads_per_port: self.threads_per_port(dialect),
            mappings,
            buffer_bytes: if udp { buffer_bytes.min(DATAGRAM_MAX) } else { buffer_bytes },
            outstanding: self.outstanding.unwrap_or(if windows { 2 } else { 4 }),
            length: length(dialect, self.seconds, self.buffers),
            tokens: windows && self.plan.sync,
            decimal_megabytes: !windows,
            ..self.plan
        };
        if let Some(each) = self.kibibytes_per_s {
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
            (true, true) => {
                Err(ArgumentError::Plan("-s and -r: a run is either a sender or a receiver".into()))
            }
            (true, false) => Ok(Role::Sender),
            (false, true) => Ok(Role::Receiver),
            // ntttcp-for-linux's default.
            (false, false) if dialect == Dialect::Linux => Ok(Role::Receiver),
            (false, false) => {
                Err(ArgumentError::Plan("add -s for a sender or -r for a receiver".into()))
            }
        }
    }

    fn mappings(&self, dialect: Dialect) -> Result<Vec<Mapping>, ArgumentError> {
        let family = if self.v6 { Family::V6 } else { Family::V4 };
        let mut mappings = self.plan.mappings.clone();
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
                    "-6 with the IPv4 address {}: omit one of them",
                    mapping.host
                )));
            }
        }
        Ok(mappings)
    }

    /// Returns ntttcp-for-linux's four, unless a mapping says how many ports there are.
    fn threads_per_port(&self, dialect: Dialect) -> u32 {
        let default =
            if dialect == Dialect::Linux && self.plan.mappings.is_empty() { 4 } else { 1 };
        self.threads_per_port
            .unwrap_or(default)
            .min(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX) + 1)
    }
}

/// Returns what `-v` and `-V` add to the notes: the ports and connections of each mapping.
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
            "{} ports of {}, {each}, on {}; the first port of the first mapping is {}, buffers are of {} bytes, up to {} calls are made for a ready connection",
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
