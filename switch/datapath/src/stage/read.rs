//! Read: copies and parses the headers of a burst.

use crate::counters::{PortCell, count_drop};
use crate::frame::Frame;
use crate::frame::headers::Span;
use crate::frame::parts::Parts;
use crate::turn::Turn;
use ports::Burst;

impl Turn<'_> {
    /// Copies and parses each frame of the burst into its place in `frames`, and returns those.
    #[inline(never)]
    pub(crate) fn read<'f, 'q>(
        &self,
        burst: &Burst<'q>,
        parts: &mut Parts<'q>,
        frames: &'f mut Vec<Frame>,
        cell: &PortCell,
    ) -> &'f mut [Frame] {
        cell.ingress_frames.add(burst.frames().len() as u64);
        cell.ingress_bytes.add(burst.bytes() as u64);
        frames.extend((frames.len()..burst.frames().len()).map(Frame::at));
        parts.headers.make_room(burst.frames().len());
        // Not zipped: two pointers that advance take fewer registers than an index into both.
        let mut places = frames.iter_mut();
        for raw in burst.frames() {
            let Some(frame) = places.next() else { break };
            if let Err(reason) = frame.read(burst, raw, parts, cell) {
                count_drop(cell, reason, 1);
                frame.header = Span::default();
            }
        }
        frames.get_mut(..burst.frames().len()).unwrap_or_default()
    }
}
