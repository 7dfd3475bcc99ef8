//! Bytes on the wire and their meaning: the lowest crate of Millrace, with no I/O and no allocation per frame.
//!
//! A frame is parsed once, by [`parse`], into a small [`Parsed`] of offsets and facts; everything later in the
//! switch reads that and the private copy of the headers. The other modules are the pieces a switch needs to change a
//! frame: header views, the Internet checksum, the Toeplitz hash and the virtio-net header.

pub mod checksum;
mod mac;
mod parse;
pub mod toeplitz;
pub mod vnet;

pub use mac::Mac;
pub use parse::{Kind, Malformed, Parsed, TcpOptions, Traits, parse};
