// UNSAFETY: copies to and from the guest's buffers of one request.
//! Reading and answering the request of a control queue. Not for frames: a port copies those
//! itself.
#![allow(unsafe_code)]

use crate::ControlChain;

impl ControlChain<'_> {
    /// Returns the bytes of the driver's request.
    pub fn len(&self) -> usize {
        self.readable.iter().fold(0, |sum, element| element.len.saturating_add(sum))
    }

    /// Returns whether there is no request, but at most room for an answer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns at most `most` bytes of the driver's request.
    pub fn read(&self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for element in self.readable {
            let (from, len) = (bytes.len(), element.len.min(most - bytes.len()));
            bytes.resize(from + len, 0);
            let Some(to) = bytes.get_mut(from..) else { break };
            // SAFETY: the element is mapped for as long as the queue lends the request; `to` is as
            // long as what is copied, and ours.
            unsafe { std::ptr::copy_nonoverlapping(element.start, to.as_mut_ptr(), len) };
        }
        bytes
    }

    /// Writes the answer as far as the driver left room for it; the bytes written.
    pub fn write(&self, answer: &[u8]) -> u32 {
        let mut left = answer;
        for element in self.writable {
            let (now, later) = left.split_at(left.len().min(element.len));
            // SAFETY: as above; the guest may read and write the same bytes at any time, so they
            // are never a reference.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), element.start, now.len()) };
            left = later;
        }
        u32::try_from(answer.len() - left.len()).unwrap_or(u32::MAX)
    }
}
