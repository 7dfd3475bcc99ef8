// UNSAFETY: an element goes along when its queue is handed to another worker.
//! One descriptor of a chain, translated: an address range of host memory.
#![allow(unsafe_code)]

/// Bytes of a guest's buffer. They stay mapped until the queue that gave them out is remapped or
/// dropped, and the guest may change them at any time. Laid out as `struct iovec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChainElement {
    /// Start of the bytes.
    pub start: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

impl Default for ChainElement {
    /// Returns an element without bytes.
    fn default() -> ChainElement {
        ChainElement { start: std::ptr::null_mut(), len: 0 }
    }
}

// SAFETY: an address and a length; using the bytes needs unsafe code of its own.
unsafe impl Send for ChainElement {}
// SAFETY: as above.
unsafe impl Sync for ChainElement {}
