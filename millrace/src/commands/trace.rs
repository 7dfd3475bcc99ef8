//! `millrace trace`: shows what the switch would do with a frame, and why.

use crate::commands::names;
use crate::global::Global;
use crate::output::{self, Failure, Outcome, table};
use api::body::{PortBody, TraceBody, TraceRequest, TraceTurnBody};
use clap::Args;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use problem::Problem;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace trace --from web --to db      # a TCP connection between two ports
  millrace trace vm1 'tcp 10.0.0.1:1 > 10.0.0.2:80 vlan 10'
  millrace trace vm1 'udp 10.0.0.1:68 > 255.255.255.255:67 len 300'
  millrace trace vm1 'tcp 10.0.0.1 > 10.0.0.2 to vm2 len 1448 count 8'     # 8 segments in one burst
  millrace trace vm1 'tcp 10.0.0.1 > 10.0.0.2 to vm2 len 60000 gso 1448'   # a train
  millrace trace vm1 -r vm1.pcapng --count 3 --json

A frame consists of these, in any order:
  tcp|udp ADDRESS[:PORT] > ADDRESS[:PORT]    an IPv6 address with a port is [fd00::1]:80
  icmp|ip ADDRESS > ADDRESS                  `ip` takes proto N, `icmp` takes type N
  arp ADDRESS > ADDRESS [reply]
  type N                                     any other EtherType, such as type 0x88b5
  hex BYTES                                  the whole frame
  eth MAC > MAC                              [default: the port's address > the address of the port
                                             whose `ip-guard` names the IP address, or unknown]
  to PORT                                    destination: the address behind that port
  vlan N, pcp N                              a tag; give it twice for two tags
  len N                                      bytes of payload
  flags LETTERS                              TCP flags of SFRPAUEC [default: S, with payload A]
  ttl N, dscp N, seq N
  gso N, partial                             a train of N-byte segments; a partial checksum
  count N                                    N frames in one burst, each with the next bytes

The switch's own code decides, on a copy of its settings and addresses: nothing is sent, learned or
counted. A trace does not predict drops for lack of room in a device.")]
pub(crate) struct Arguments {
    /// The port through which the frame would enter.
    #[arg(add = names::ports(), required_unless_present = "from")]
    port: Option<String>,
    /// The frame.
    #[arg(required_unless_present_any = ["read", "from", "to"])]
    frame: Option<String>,
    /// The port through which the frame would enter, by an option.
    #[arg(long, value_name = "PORT", add = names::ports())]
    from: Option<String>,
    /// The port behind which the destination is; without FRAME a TCP connection to it is traced.
    #[arg(long, value_name = "PORT", conflicts_with = "read", add = names::ports())]
    to: Option<String>,
    /// Read the frames from this pcap or pcapng file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "frame")]
    read: Option<PathBuf>,
    /// Skip this many frames of the file.
    #[arg(long, value_name = "FRAMES", default_value_t = 0, requires = "read")]
    skip: usize,
    /// Read at most this many frames of the file.
    #[arg(long, value_name = "FRAMES", default_value_t = 64, requires = "read",
          value_parser = clap::value_parser!(u8).range(1..=64))]
    count: u8,
    /// Let all frames of the file arrive in one burst, so that segments can coalesce.
    #[arg(long, requires = "read")]
    burst: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let (port, frame) = arguments.port_and_frame()?;
    let frames = match (&arguments.read, frame, &arguments.to) {
        (Some(file), ..) => read(file, arguments.skip, arguments.count.into())?,
        (None, Some(frame), Some(to)) => vec![format!("{frame} to {to}")],
        (None, Some(frame), None) => vec![frame],
        (None, None, Some(to)) => {
            let client = global.client()?;
            vec![connection(&client.port(&port)?, &client.port(to)?)]
        }
        (None, None, None) => return Err(Failure::Usage(no_frame())),
    };
    let burst = arguments.burst;
    let body = global.client()?.trace(&TraceRequest { port, frames, burst })?;
    output::show(global, &body, text)
}

impl Arguments {
    /// Returns the port, and the frame if one was typed. With `--from` the only word is the frame.
    fn port_and_frame(&self) -> Result<(String, Option<String>), Failure> {
        match (&self.from, &self.port, &self.frame) {
            (Some(_), Some(port), Some(_)) => Err(Failure::Usage(
                Problem::new("the port was given twice")
                    .seen(port)
                    .wanted("a port, or --from")
                    .remedy("leave out one of the two"),
            )),
            (Some(from), frame, None) => Ok((from.clone(), frame.clone())),
            (from, port, frame) => {
                Ok((port.clone().or(from.clone()).unwrap_or_default(), frame.clone()))
            }
        }
    }
}

fn no_frame() -> Problem {
    Problem::new("no frame was given")
        .wanted("a frame, --to PORT or --read FILE")
        .remedy("write, for example, millrace trace --from web --to db")
}

/// Returns the frame that opens a TCP connection between the stations of two ports: with the first
/// addresses that their `ip-guard` allows, or with two of RFC 5737.
fn connection(from: &PortBody, to: &PortBody) -> String {
    let address = |port: &PortBody| {
        let prefixes = port.config.ip_guard.as_ref().map(|guard| guard.prefixes());
        prefixes.into_iter().flatten().map(|prefix| prefix.first).collect::<Vec<_>>()
    };
    let (ours, theirs) = (address(from), address(to));
    let other = |own: IpAddr, last| match own {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, last]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]),
    };
    let pairs = ours.iter().flat_map(|own| theirs.iter().map(move |their| (*own, *their)));
    let same = pairs.into_iter().find(|(own, their)| own.is_ipv4() == their.is_ipv4());
    let (own, their) = same.unwrap_or_else(|| match (ours.first(), theirs.first()) {
        (Some(own), _) => (*own, other(*own, 2)),
        (None, Some(their)) => (other(*their, 1), *their),
        (None, None) => (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])),
    });
    format!("tcp {own} > {their} to {}", to.name)
}

/// Returns the frames of a file, as expressions.
fn read(file: &Path, skip: usize, count: usize) -> Result<Vec<String>, Problem> {
    let unreadable = |seen: String| {
        Problem::new(format!("{} cannot be read", file.display()))
            .seen(seen)
            .wanted("a pcap or pcapng file of Ethernet frames")
            .remedy("write one with `millrace capture PORT -w FILE` or tcpdump")
    };
    let bytes = fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    let frames = frames(&bytes, skip.saturating_add(count));
    let frames = frames.map_err(|error| unreadable(error.to_string()))?;
    let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let frames: Vec<_> =
        frames.iter().skip(skip).map(|frame| format!("hex {}", hex(frame))).collect();
    if frames.is_empty() {
        return Err(unreadable("no frames".to_owned()));
    }
    Ok(frames)
}

/// Returns the first frames of a file in either format.
fn frames(file: &[u8], most: usize) -> Result<Vec<Vec<u8>>, PcapError> {
    const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
    let mut frames = Vec::new();
    if file.starts_with(&PCAPNG) {
        let mut reader = PcapNgReader::new(file)?;
        while frames.len() < most
            && let Some(block) = reader.next_block()
        {
            if let Block::EnhancedPacket(packet) = block? {
                frames.push(packet.data.into_owned());
            }
        }
        return Ok(frames);
    }
    let mut reader = PcapReader::new(file)?;
    if reader.header().datalink != DataLink::ETHERNET {
        return Err(PcapError::InvalidField("the frames are not Ethernet"));
    }
    while frames.len() < most
        && let Some(packet) = reader.next_packet()
    {
        frames.push(packet?.data.into_owned());
    }
    Ok(frames)
}

/// Returns the steps of each burst, and where its frames leave or are dropped.
pub(super) fn text(body: &TraceBody) -> String {
    let turns: Vec<_> = body.turns.iter().map(turn).collect();
    let notes = body.notes.iter().map(|note| format!("note: {note}\n")).collect::<String>();
    format!("{notes}{}", turns.join("\n\n"))
}

fn turn(turn: &TraceTurnBody) -> String {
    let steps = turn.steps.iter();
    let rows = steps.map(|step| vec![step.port.clone(), step.stage.clone(), step.text.clone()]);
    let mut lines = vec![table(&["PORT", "STEP", ""], rows), String::new()];
    for frame in &turn.delivered {
        let how = if frame.unknown_destination {
            "destination unknown, may leave through"
        } else {
            "leaves through"
        };
        lines.push(format!("{how} {} (queue {}): {}", frame.port, frame.queue, frame.text));
    }
    for drop in &turn.drops {
        lines.push(format!("dropped at {}: {} ({})", drop.port, drop.reason, drop.text));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcap::{PcapPacket, PcapWriter};
    use std::time::Duration;

    #[test]
    fn frames_are_read_from_both_formats() {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        for number in 0..3 {
            writer.write_packet(&PcapPacket::new(Duration::ZERO, 14, &[number; 14])).unwrap();
        }
        let file = writer.into_writer();
        assert_eq!(frames(&file, 2).unwrap(), [vec![0; 14], vec![1; 14]]);
        assert_eq!(frames(&file, 9).unwrap().len(), 3);
        assert!(frames(b"no capture", 9).is_err());
        assert!(frames(&[0x0a, 0x0d, 0x0d, 0x0a], 9).is_err());
    }
}
