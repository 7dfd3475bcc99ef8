//! The text form of a frame, which `millrace trace` and the API accept.
//!
//! ```text
//! tcp|udp ADDRESS[:PORT] > ADDRESS[:PORT]     [len N] [flags LETTERS] [seq N] [gso N] [count N] [partial]
//! icmp ADDRESS > ADDRESS                      [type N] [len N]
//! ip ADDRESS > ADDRESS                        [proto N] [len N]
//! arp ADDRESS > ADDRESS                       [reply]
//! type N                                      [len N]
//! hex BYTES
//! each but hex with                           [eth MAC > MAC] [to PORT] [vlan N]... [pcp N] [ttl N] [dscp N]
//! ```

use config::nearest;
use problem::Problem;
use std::iter::Peekable;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use wire::Mac;
use wire::upper::{ICMP, ICMPV6};

/// Protocol numbers.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// Largest number of frames of an expression, and of a trace.
pub(crate) const MOST_FRAMES: usize = MAX_COUNT as usize;
const MAX_COUNT: u32 = 64;
/// Largest number of bytes of all frames together: two of the longest trains. A flood makes a copy
/// for each port.
pub(crate) const MOST_BYTES: usize = 1 << 17;
/// Largest number of bytes of `hex`: the longest train with its Ethernet header.
const MAX_HEX_BYTES: usize = 65_550;
/// Letters of the TCP flags, from the lowest bit.
const FLAGS: &str = "FSRPAUEC";

/// A frame, or several frames of a flow, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(super) packet: Packet,
    pub(super) source: Option<Mac>,
    pub(super) destination: Option<Mac>,
    /// Name of the port whose address is the frame's destination.
    pub(crate) to: Option<String>,
    /// VLAN ids, the outer one first.
    pub(super) vlans: Vec<u16>,
    pub(super) pcp: u8,
    /// Bytes of payload.
    pub(super) len: usize,
    /// TCP flags.
    pub(super) flags: Option<u8>,
    pub(super) seq: u32,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
    /// Segment size of a train.
    pub(super) gso: Option<u16>,
    /// Whether the transport checksum is left to the switch.
    pub(super) partial: bool,
    /// EtherType, or type of the ICMP message.
    pub(super) kind: Option<u16>,
    /// Number of frames, each with the next bytes of its flow.
    pub(crate) count: usize,
}

/// The contents of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Only an Ethernet header with an EtherType.
    None,
    /// IP with this protocol. The ports are those of TCP and UDP.
    Ip { protocol: u8, from: SocketAddr, to: SocketAddr },
    /// An ARP request, or a reply.
    Arp { from: [u8; 4], to: [u8; 4], reply: bool },
    /// The bytes of the frame.
    Hex(Vec<u8>),
}

impl Default for Expression {
    fn default() -> Expression {
        Expression {
            packet: Packet::None,
            source: None,
            destination: None,
            to: None,
            vlans: Vec::new(),
            pcp: 0,
            len: 0,
            flags: None,
            seq: 1,
            ttl: 64,
            dscp: 0,
            gso: None,
            partial: false,
            kind: None,
            count: 1,
        }
    }
}

/// A word, with its column.
#[derive(Clone, Copy)]
struct Word<'t> {
    text: &'t str,
    column: usize,
}

/// An error in a word.
struct Fault {
    column: usize,
    width: usize,
    error: String,
    wanted: String,
    remedy: String,
}

impl Word<'_> {
    fn fault(self, error: impl Into<String>, wanted: impl Into<String>) -> Fault {
        let (column, width) = (self.column, self.text.chars().count().max(1));
        let (error, wanted) = (error.into(), wanted.into());
        Fault { column, width, error, wanted, remedy: String::new() }
    }
}

impl Fault {
    /// Returns the problem, with the word marked below the text.
    fn problem(self, text: &str) -> Problem {
        let marks = format!("{}{}", " ".repeat(10 + self.column), "^".repeat(self.width));
        let error = format!("the frame, column {}: {}", self.column + 1, self.error);
        let remedy = match self.remedy.is_empty() {
            true => "`millrace trace --help` shows the words of a frame".to_owned(),
            false => self.remedy,
        };
        Problem::new(error).seen(format!("{text}\n{marks}")).wanted(self.wanted).remedy(remedy)
    }
}

/// Splits a text into words; `>` is always a separate word.
fn words(text: &str) -> Vec<Word<'_>> {
    let (mut words, mut start) = (Vec::new(), None);
    let mut column_of_start = 0;
    let ends = text.char_indices().chain([(text.len(), ' ')]).enumerate();
    for (column, (place, letter)) in ends {
        if letter.is_whitespace() || letter == '>' {
            if let Some(start) = start.take() {
                let text = text.get(start..place).unwrap_or_default();
                words.push(Word { text, column: column_of_start });
            }
            if letter == '>' {
                words.push(Word { text: ">", column });
            }
        } else if start.is_none() {
            (start, column_of_start) = (Some(place), column);
        }
    }
    words
}

/// The remaining words, and the column after the last.
struct Rest<'t> {
    words: Peekable<std::vec::IntoIter<Word<'t>>>,
    end: Word<'t>,
}

impl<'t> Rest<'t> {
    fn next(&mut self) -> Word<'t> {
        self.words.next().unwrap_or(self.end)
    }

    /// Parses the next word as a value.
    fn value<T: FromStr>(&mut self, wanted: &str) -> Result<T, Fault> {
        let word = self.next();
        word.text.parse().map_err(|_| match word.text {
            "" => word.fault("the text ends too early", wanted),
            text => word.fault(format!("`{text}` is not {wanted}"), wanted),
        })
    }

    fn number(&mut self, range: RangeInclusive<u32>) -> Result<u32, Fault> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        let word = self.next();
        let hex = word.text.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
        let number = hex.unwrap_or_else(|| word.text.parse());
        number.ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let error = match word.text {
                "" => "the text ends too early".to_owned(),
                text => format!("`{text}` is not {wanted}"),
            };
            word.fault(error, wanted)
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "the range is within the type")]
    fn byte(&mut self, range: RangeInclusive<u8>) -> Result<u8, Fault> {
        self.number((*range.start()).into()..=(*range.end()).into()).map(|number| number as u8)
    }

    #[allow(clippy::cast_possible_truncation, reason = "the range is within the type")]
    fn short(&mut self, range: RangeInclusive<u16>) -> Result<u16, Fault> {
        self.number((*range.start()).into()..=(*range.end()).into()).map(|number| number as u16)
    }

    fn arrow(&mut self) -> Result<(), Fault> {
        let word = self.next();
        let wanted = "`>` between source and destination";
        if word.text == ">" { Ok(()) } else { Err(word.fault("a `>` is missing here", wanted)) }
    }

    /// Parses `FROM > TO`.
    fn ends<T>(
        &mut self,
        mut end: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<(T, T), Fault> {
        let from = end(self)?;
        self.arrow()?;
        Ok((from, end(self)?))
    }

    /// Parses `10.0.0.1:80`, `[fd00::1]:80`, or either without a port, which then is 0.
    fn socket(&mut self) -> Result<SocketAddr, Fault> {
        let wanted = "an IP address; with a port such as 10.0.0.1:80 or [fd00::1]:80";
        let word = self.next();
        let bare = |text: &str| text.parse().ok().map(|address| SocketAddr::new(address, 0));
        let parsed = word.text.parse().ok().or_else(|| bare(word.text));
        parsed.ok_or_else(|| word.fault(format!("`{}` is not an address", word.text), wanted))
    }

    fn address(&mut self) -> Result<SocketAddr, Fault> {
        self.value::<IpAddr>("an IP address").map(|address| SocketAddr::new(address, 0))
    }
}

impl Expression {
    /// Parses a text.
    ///
    /// # Errors
    /// The text is no expression; the problem points at the word.
    pub(crate) fn parse(text: &str) -> Result<Expression, Problem> {
        let end = Word { text: "", column: text.chars().count() };
        let rest = Rest { words: words(text).into_iter().peekable(), end };
        Expression::read(rest).map_err(|fault| fault.problem(text))
    }

    fn read(mut rest: Rest<'_>) -> Result<Expression, Fault> {
        let mut expression = Expression::default();
        let first = rest.words.peek().copied().unwrap_or(rest.end);
        while let Some(word) = rest.words.next() {
            if !expression.take_packet(word, &mut rest)?
                && !expression.take_option(word, &mut rest)?
            {
                return Err(unknown(word));
            }
        }
        if expression.packet == Packet::None && expression.kind.is_none() {
            let wanted = "tcp, udp, icmp, ip, arp, hex, or type N for any other EtherType";
            return Err(first.fault("the kind of frame is missing", wanted));
        }
        Ok(expression)
    }

    /// Takes a word that names the frame's contents. Returns `false` if it is not one.
    fn take_packet(&mut self, word: Word<'_>, rest: &mut Rest<'_>) -> Result<bool, Fault> {
        let packet = match word.text {
            "tcp" => ip(word, TCP, rest.ends(Rest::socket)?)?,
            "udp" => ip(word, UDP, rest.ends(Rest::socket)?)?,
            "icmp" | "icmp6" => {
                let ends = rest.ends(Rest::address)?;
                ip(word, if ends.0.is_ipv6() { ICMPV6 } else { ICMP }, ends)?
            }
            "ip" | "ip6" => ip(word, NO_TRANSPORT, rest.ends(Rest::address)?)?,
            "arp" => arp(rest)?,
            "hex" => Packet::Hex(hex(rest)?),
            _ => return Ok(false),
        };
        if self.packet != Packet::None {
            return Err(word.fault("a frame has one kind", "one of tcp, udp, icmp, ip, arp, hex"));
        }
        self.packet = packet;
        Ok(true)
    }

    /// Takes a word that changes the frame. Returns `false` if it is not one.
    fn take_option(&mut self, word: Word<'_>, rest: &mut Rest<'_>) -> Result<bool, Fault> {
        match word.text {
            "eth" => {
                let mac = |rest: &mut Rest<'_>| rest.value::<Mac>("a MAC address");
                let (source, destination) = rest.ends(mac)?;
                (self.source, self.destination) = (Some(source), Some(destination));
            }
            "to" => self.to = Some(rest.value("the name of a port")?),
            "vlan" if self.vlans.len() < 3 => self.vlans.push(rest.short(0..=4095)?),
            "pcp" => self.pcp = rest.byte(0..=7)?,
            "len" => self.len = rest.number(0..=65_400)? as usize,
            "flags" => self.flags = Some(flags(rest.next())?),
            "seq" => self.seq = rest.number(0..=u32::MAX)?,
            "ttl" => self.ttl = rest.byte(0..=255)?,
            "dscp" => self.dscp = rest.byte(0..=63)?,
            "gso" => self.gso = Some(rest.short(1..=65_535)?),
            "partial" => self.partial = true,
            "type" => self.kind = Some(rest.short(0..=65_535)?),
            "proto" => self.set_protocol(word, rest.byte(0..=255)?)?,
            "count" => self.count = rest.number(1..=MAX_COUNT)? as usize,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_protocol(&mut self, word: Word<'_>, number: u8) -> Result<(), Fault> {
        match &mut self.packet {
            Packet::Ip { protocol, .. } if *protocol == NO_TRANSPORT => *protocol = number,
            _ => {
                return Err(word.fault("`proto` belongs to `ip`", "ip ADDRESS > ADDRESS before it"));
            }
        }
        Ok(())
    }
}

/// The protocol of `ip` without `proto`: RFC 3692 reserves this number for experiments.
const NO_TRANSPORT: u8 = 253;

fn ip(word: Word<'_>, protocol: u8, (from, to): (SocketAddr, SocketAddr)) -> Result<Packet, Fault> {
    if from.is_ipv4() != to.is_ipv4() {
        let error = format!("{} and {} are of different families", from.ip(), to.ip());
        return Err(word.fault(error, "two IPv4 or two IPv6 addresses"));
    }
    Ok(Packet::Ip { protocol, from, to })
}

fn arp(rest: &mut Rest<'_>) -> Result<Packet, Fault> {
    let address = |rest: &mut Rest<'_>| rest.value::<std::net::Ipv4Addr>("an IPv4 address");
    let (from, to) = rest.ends(address)?;
    let reply = rest.words.next_if(|word| word.text == "reply").is_some();
    Ok(Packet::Arp { from: from.octets(), to: to.octets(), reply })
}

fn hex(rest: &mut Rest<'_>) -> Result<Vec<u8>, Fault> {
    let word = rest.next();
    let wanted = "the bytes of a frame as pairs of hexadecimal digits, at most 65,550";
    let (pairs, odd) = word.text.as_bytes().as_chunks::<2>();
    let digit = |letter: u8| char::from(letter).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let bytes = bytes.filter(|bytes| odd.is_empty() && (1..=MAX_HEX_BYTES).contains(&bytes.len()));
    bytes.ok_or_else(|| {
        Word { text: "", ..word }.fault("these are not the bytes of a frame", wanted)
    })
}

fn flags(word: Word<'_>) -> Result<u8, Fault> {
    let bit = |letter: char| match letter {
        '.' => Some(1 << 4),
        letter => FLAGS.find(letter.to_ascii_uppercase()).map(|bit| 1 << bit),
    };
    let wanted = "letters of SFRPAUEC (`.` is A)";
    let bits = word.text.chars().map(bit).try_fold(0, |all, bit| Some(all | bit?));
    let bits = bits.filter(|_| !word.text.is_empty());
    bits.ok_or_else(|| word.fault(format!("`{}` are not TCP flags", word.text), wanted))
}

fn unknown(word: Word<'_>) -> Fault {
    const WORDS: [&str; 22] = [
        "tcp", "udp", "icmp", "icmp6", "ip", "ip6", "arp", "hex", "eth", "to", "vlan", "pcp",
        "len", "flags", "seq", "ttl", "dscp", "gso", "partial", "type", "proto", "count",
    ];
    let mut fault =
        word.fault(format!("`{}` is not a word of a frame", word.text), WORDS.join(", "));
    if let Some(near) = nearest(word.text, &WORDS) {
        fault.remedy = format!("did you mean `{near}`?");
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(text: &str) -> String {
        Expression::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_parts_of_a_frame_are_read_in_any_order() {
        let one = Expression::parse("tcp 10.0.0.1:1 > 10.0.0.2:80 vlan 10 len 5").unwrap();
        let same = Expression::parse(" len 0x5 vlan 10  tcp 10.0.0.1:1>10.0.0.2:80").unwrap();
        assert_eq!(one, same);
        assert_eq!((one.vlans, one.len), (vec![10], 5));
        let v6 = Expression::parse("udp [fd00::1]:53 > fd00::2").unwrap();
        let ends = ("[fd00::1]:53".parse().unwrap(), "[fd00::2]:0".parse().unwrap());
        assert_eq!(v6.packet, Packet::Ip { protocol: 17, from: ends.0, to: ends.1 });
        assert_eq!(Expression::parse("hex 0aFF").unwrap().packet, Packet::Hex(vec![10, 255]));
    }

    #[test]
    fn an_error_points_at_its_word() {
        assert_eq!(
            refused("tpc 10.0.0.1 > 10.0.0.2"),
            "the frame, column 1: `tpc` is not a word of a frame\n  \
               seen:   tpc 10.0.0.1 > 10.0.0.2\n          ^^^\n  \
               wanted: tcp, udp, icmp, icmp6, ip, ip6, arp, hex, eth, to, vlan, pcp, len, flags, seq, ttl, \
             dscp, gso, partial, type, proto, count\n  remedy: did you mean `tcp`?"
        );
        let points = |text: &str| {
            let told = refused(text);
            let marks = told.lines().find(|line| line.trim_start().starts_with('^')).unwrap();
            let column = marks.len() - marks.trim_start().len() - 10;
            (column, marks.trim_start().len())
        };
        assert_eq!(points("tcp 10.0.0.1:1 > 10.0.0.300:80"), (17, 13));
        assert_eq!(points("tcp 10.0.0.1 10.0.0.2"), (13, 8));
        assert_eq!(points("tcp 10.0.0.1 > 10.0.0.2 vlan 4096"), (29, 4));
        assert_eq!(points("tcp 10.0.0.1 >"), (14, 1));
        assert_eq!(points(""), (0, 1));
        assert_eq!(points("arp 10.0.0.1 > 10.0.0.2 udp 1.1.1.1 > 1.1.1.2"), (24, 3));
        assert_eq!(points("tcp 10.0.0.1 > fd00::1"), (0, 3));
        assert_eq!(points("tcp 10.0.0.1 > 10.0.0.2 flags SX"), (30, 2));
        assert_eq!(points("hex 123"), (4, 1));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([a-z0-9.:>\\[\\] ä]{0,6} ?(tcp|udp|arp|ip|eth|vlan|len|hex|1|10.0.0.1| > )?){0,8}") {
            if let Err(problem) = Expression::parse(&text) {
                prop_assert!(problem.error.starts_with("the frame, column "));
            }
        }
    }
}
