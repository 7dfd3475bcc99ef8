//! Gathers the payload of frames into private memory, for what must not wait for a guest's pages.

use crate::{Outgoing, Slice, recycle};

/// The buffers of gathering, kept from call to call.
pub struct Gatherer {
    /// Payloads, one behind the other.
    bytes: Vec<u8>,
    slices: Vec<Slice<'static>>,
    frames: Vec<Outgoing<'static>>,
}

impl Gatherer {
    /// A gatherer without memory.
    pub const EMPTY: Gatherer =
        Gatherer { bytes: Vec::new(), slices: Vec::new(), frames: Vec::new() };

    /// Calls `use_them` with the same frames, where the payload of those that `is_gathered` is one
    /// private slice.
    pub fn gather<Answer>(
        &mut self,
        frames: &[Outgoing<'_>],
        is_gathered: impl Fn(&Outgoing<'_>) -> bool,
        use_them: impl FnOnce(&[Outgoing<'_>]) -> Answer,
    ) -> Answer {
        self.bytes.clear();
        let mut slices: Vec<Slice<'_>> = recycle(std::mem::take(&mut self.slices));
        let mut gathered: Vec<Outgoing<'_>> = recycle(std::mem::take(&mut self.frames));
        let chosen = || frames.iter().filter(|frame| is_gathered(frame));
        for piece in chosen().flat_map(|frame| frame.payload) {
            piece.append_to(&mut self.bytes);
        }
        let mut rest = self.bytes.as_slice();
        slices.extend(chosen().map(|frame| {
            let len = frame.payload.iter().map(Slice::len).sum::<usize>();
            let (payload, others) = rest.split_at_checked(len).unwrap_or_default();
            rest = others;
            Slice::from(payload)
        }));
        let mut payloads = slices.chunks(1);
        gathered.extend(frames.iter().map(|frame| match is_gathered(frame) {
            true => Outgoing { payload: payloads.next().unwrap_or_default(), ..*frame },
            false => *frame,
        }));
        let answer = use_them(&gathered);
        self.frames = recycle(gathered);
        self.slices = recycle(slices);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use wire::vnet::VnetHeader;

    proptest! {
        #[test]
        fn frames_stay_as_they_are_and_gathered_ones_have_one_piece(
            payloads in vec(vec(vec(any::<u8>(), 0..9), 0..9), 0..9),
            most in 0usize..9,
        ) {
            let slices = payloads.iter().map(|payload| payload.iter().map(|piece| Slice::from(&piece[..])).collect());
            let slices: Vec<Vec<Slice<'_>>> = slices.collect();
            let frames = slices.iter().map(|payload| {
                Outgoing { vnet: VnetHeader::default(), header: &[7], payload, len: 1 }
            });
            let frames: Vec<Outgoing<'_>> = frames.collect();
            let bytes = |frame: &Outgoing<'_>| {
                let mut bytes = frame.header.to_vec();
                frame.payload.iter().for_each(|piece| piece.append_to(&mut bytes));
                bytes
            };
            let mut gatherer = Gatherer::EMPTY;
            for _ in 0..2 {
                gatherer.gather(&frames, |frame| frame.payload.len() > most, |gathered| {
                    prop_assert!(gathered.iter().map(bytes).eq(frames.iter().map(bytes)));
                    prop_assert!(gathered.iter().all(|frame| frame.payload.len() <= most.max(1)));
                    Ok(())
                })?;
            }
        }
    }
}
