//! pcapng of what passes a port.

/// A running capture.
pub struct Capture {}
