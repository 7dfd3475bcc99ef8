//! Bytes on the wire and their meaning: the lowest crate of Millrace, with no I/O and no allocation
//! per frame.
//!
//! A frame is parsed once, by [`parse`], into a small [`Parsed`] of offsets and facts; everything
//! later in the switch reads that and the private copy of the headers. The other modules are the
//! pieces a switch needs to change a frame: header views (one protocol a module, all of them a
//! [`Header`]), the Internet checksum and SCTP's, the headers of tunnels, the Toeplitz hash and the
//! virtio-net header.

pub mod announce;
pub mod checksum;
pub mod crc32c;
pub mod ethernet;
mod header;
pub mod ipv4;
pub mod ipv6;
mod mac;
mod parse;
mod parsed;
mod prefix;
pub mod tcp;
pub mod toeplitz;
pub mod tunnel;
pub mod udp;
pub mod upper;
mod vlan_set;
pub mod vnet;

pub use header::Header;
pub use mac::{Mac, MacParseError};
pub use parse::{Packet, parse};
pub use parsed::{Kind, Malformed, Parsed, TcpOptions, Traits};
pub use prefix::Prefix;
pub use vlan_set::VlanSet;
