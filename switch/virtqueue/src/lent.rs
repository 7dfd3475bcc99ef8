//! The buffers and control chains that a queue lends.

use crate::ChainElement;
use std::marker::PhantomData;

/// Room for one frame in a guest's buffers.
#[derive(Clone, Copy, Debug)]
pub struct FrameBuffers<'q> {
    /// Memory for the frame. The last element may be longer than needed.
    pub elements: &'q [ChainElement],
    /// Number of buffers that they belong to (`num_buffers` of the virtio-net header).
    pub buffers: u16,
}

/// The outcome of [`Queue::reserve`](crate::Queue::reserve).
#[derive(Clone, Copy, Debug)]
pub enum Reserved<'q> {
    /// Buffers for the frame.
    Buffers(FrameBuffers<'q>),
    /// The guest has not made enough buffers available.
    Full,
    /// The frame does not fit in the largest number of buffers that one frame may have.
    TooSmall,
}

/// One chain of a control queue.
#[derive(Clone, Copy, Debug)]
pub struct ControlChain<'q> {
    /// The driver's request.
    pub readable: &'q [ChainElement],
    /// Memory for the answer.
    pub writable: &'q [ChainElement],
    /// Only a queue makes requests, so their elements are mapped for as long as they can be looked
    /// at.
    pub(crate) of_queue: PhantomData<&'q mut ()>,
}
