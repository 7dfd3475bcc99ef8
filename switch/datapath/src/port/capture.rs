//! Shows frames to the capture of a port.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::frame::parts::Parts;
use crate::port::view::Port;
use ports::Nanos;
use ports::capture::Direction;

/// Shows a frame of the burst to a port's capture, if it has one.
pub(crate) fn show(
    port: &Port,
    direction: Direction,
    frame: &Frame,
    parts: &Parts<'_>,
    now: Nanos,
    reason: Option<DropReason>,
) {
    if let Some(capture) = &port.capture {
        let (header, rest) = (parts.headers.get(frame.header), parts.slices(frame.rest));
        capture.offer(now, direction, header, rest, reason.map(DropReason::name));
    }
}
