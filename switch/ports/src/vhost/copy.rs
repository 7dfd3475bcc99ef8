// UNSAFETY: copies between our memory and a guest's, which is never a Rust reference because the
// guest may write it too.
//! Copies frames to and from a guest's buffers, which only this file touches.
#![allow(unsafe_code)]

use crate::{Outgoing, Slice, TimeLimit};
use vhost_user::expect_none_held;
use virtqueue::ChainElement;
use wire::vnet::{ReportedHash, VnetHeader};

/// Bytes of the smallest page of guest memory.
const PAGE: usize = 4096;

/// Lends a guest's buffer as bytes, from `from` on.
///
/// # Safety
/// The element stays mapped for `'q`: its queue is neither remapped nor dropped as long.
#[inline(always)]
pub(super) unsafe fn lend<'q>(element: &ChainElement, from: usize) -> Slice<'q> {
    let from = from.min(element.len);
    // SAFETY: within the element, which is mapped for 'q as the caller says.
    unsafe { Slice::from_raw(element.start.add(from), element.len - from) }
}

/// Reads a byte of each page that lent bytes lie in behind their first byte's, so that the kernel
/// finds the pages now.
#[inline(always)]
pub(super) fn touch_rest(bytes: &Slice<'_>) {
    let first = PAGE - bytes.as_ptr().addr() % PAGE;
    if first < bytes.len() {
        touch(&bytes.skip(first));
    }
}

/// Reads a byte of each page that lent bytes lie in.
#[inline(never)]
pub(super) fn touch(bytes: &Slice<'_>) {
    expect_none_held();
    let (start, len) = (bytes.as_ptr(), bytes.len());
    let first = PAGE - start.addr() % PAGE;
    for offset in [0].into_iter().chain((first..len).step_by(PAGE)).filter(|at| *at < len) {
        // SAFETY: within the slice, which is mapped for the loan. Volatile, because nothing uses the
        // byte.
        unsafe { start.add(offset).read_volatile() };
    }
}

/// Writes a frame into the elements of its room, which are as long as the virtio header and the
/// frame together. Returns `false` if the time was over before the end.
#[inline(always)]
pub(super) fn write(
    frame: &Outgoing<'_>,
    buffers: u16,
    header_len: usize,
    room: &[ChainElement],
    time: &TimeLimit,
) -> bool {
    expect_none_held();
    let [element] = room else { return scatter(frame, buffers, header_len, room, time) };
    let mut to = Cursor { start: element.start, left: element.len };
    // Kept in registers: a value stored by bytes and loaded as a word waits until all earlier
    // stores are done, including those into the last frame's buffer.
    let (first, last) = frame.vnet.words();
    let last = last & 0xffff | u32::from(buffers) << 16;
    to.put_array(&first.to_le_bytes());
    match last.to_le_bytes() {
        [low, high, ..] if header_len == VnetHeader::LEGACY_LEN => to.put_array(&[low, high]),
        whole => to.put_array(&whole),
    }
    to.put_short(&Slice::from(frame.header));
    for slice in frame.payload {
        to.put_short(slice);
    }
    true
}

/// Writes a frame that takes several elements.
#[inline(never)]
fn scatter(
    frame: &Outgoing<'_>,
    buffers: u16,
    header_len: usize,
    room: &[ChainElement],
    time: &TimeLimit,
) -> bool {
    let vnet = vnet_of(frame, buffers);
    scatter_behind(vnet.get(..header_len).unwrap_or(&vnet), frame, room, time)
}

/// Writes a frame with a header that reports its hash.
#[inline(never)]
pub(super) fn write_hashed(
    frame: &Outgoing<'_>,
    buffers: u16,
    hash: ReportedHash,
    room: &[ChainElement],
    time: &TimeLimit,
) -> bool {
    expect_none_held();
    let mut header = [0; VnetHeader::HASH_LEN];
    let bytes = vnet_of(frame, buffers).into_iter().chain(hash.encode());
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    scatter_behind(&header, frame, room, time)
}

/// Returns the virtio header of a frame in so many buffers.
fn vnet_of(frame: &Outgoing<'_>, buffers: u16) -> [u8; VnetHeader::LEN] {
    let mut vnet = frame.vnet;
    vnet.num_buffers.set(buffers);
    vnet.encode()
}

/// Writes a virtio header and a frame into any number of elements.
fn scatter_behind(
    header: &[u8],
    frame: &Outgoing<'_>,
    room: &[ChainElement],
    time: &TimeLimit,
) -> bool {
    let mut room = room.iter().enumerate();
    let mut to = Cursor { start: std::ptr::null_mut(), left: 0 };
    let private = [header, frame.header].map(Slice::from);
    for mut bytes in private.iter().chain(frame.payload).copied() {
        while !bytes.is_empty() {
            if to.left == 0 {
                let Some((number, element)) = room.next() else { return true };
                if time.is_over_before(number) {
                    return false;
                }
                to = Cursor { start: element.start, left: element.len };
            }
            let now = bytes.take(to.left);
            to.put(&now);
            bytes = bytes.skip(now.len());
        }
    }
    true
}

/// Address of the next byte, and how many bytes may follow.
struct Cursor {
    start: *mut u8,
    left: usize,
}

impl Cursor {
    /// Copies as much as there is room for: all bytes if the queue reserved enough.
    #[inline(always)]
    fn put(&mut self, bytes: &Slice<'_>) {
        let len = bytes.len().min(self.left);
        // SAFETY: `start` is in an element that the queue has reserved, with `left` bytes to its
        // end; the source is mapped for the loan of its slice. Two guests may share memory, so the
        // ranges may overlap: `copy` allows that.
        unsafe {
            std::ptr::copy(bytes.as_ptr(), self.start, len);
            self.start = self.start.add(len);
        }
        self.left -= len;
    }

    /// Copies a short slice without a call, as two chunks that overlap in the middle.
    #[inline(always)]
    fn put_short(&mut self, bytes: &Slice<'_>) {
        match bytes.len() {
            17..=32 => self.put_ends::<16>(bytes),
            33..=64 => self.put_ends::<32>(bytes),
            65..=128 => self.put_ends::<64>(bytes),
            8..=16 => self.put_ends::<8>(bytes),
            4..=7 => self.put_ends::<4>(bytes),
            0 => {}
            _ => self.put(bytes),
        }
    }

    /// Copies `HALF` to `2 * HALF` bytes, or none if they do not fit.
    #[inline(always)]
    fn put_ends<const HALF: usize>(&mut self, bytes: &Slice<'_>) {
        let len = bytes.len();
        if len < HALF || len > self.left {
            return;
        }
        // SAFETY: as in `put`. Both chunks lie within the `len` bytes of either side, and `len` is
        // at least a chunk's length.
        unsafe {
            let from = bytes.as_ptr().cast::<[u8; HALF]>();
            let (first, last) = (from.read_unaligned(), from.byte_add(len - HALF).read_unaligned());
            self.start.cast::<[u8; HALF]>().write_unaligned(first);
            self.start.add(len - HALF).cast::<[u8; HALF]>().write_unaligned(last);
            self.start = self.start.add(len);
        }
        self.left -= len;
    }

    /// Copies all bytes, or none if they do not fit.
    #[inline(always)]
    fn put_array<const LEN: usize>(&mut self, bytes: &[u8; LEN]) {
        if LEN > self.left {
            return;
        }
        // SAFETY: as in `put`.
        unsafe {
            self.start.cast::<[u8; LEN]>().write_unaligned(*bytes);
            self.start = self.start.add(LEN);
        }
        self.left -= LEN;
    }
}

/// Reads the virtio header at the start of a chain, also across elements. What is behind its first
/// 12 bytes is for received frames. `None`: the chain is shorter.
#[inline(always)]
pub(super) fn read_header(elements: &[ChainElement], header_len: usize) -> Option<VnetHeader> {
    expect_none_held();
    match elements.first() {
        Some(element) if element.len >= VnetHeader::LEN && header_len >= VnetHeader::LEN => {
            // SAFETY: the element is mapped and as long as what is read; any bytes are a header.
            let bytes = unsafe { element.start.cast::<[u8; VnetHeader::LEN]>().read_unaligned() };
            Some(VnetHeader::decode(bytes))
        }
        _ => gather_header(elements, header_len),
    }
}

#[inline(never)]
fn gather_header(elements: &[ChainElement], header_len: usize) -> Option<VnetHeader> {
    let mut bytes = [0; VnetHeader::LEN];
    let (mut have, header_len) = (0, header_len.min(VnetHeader::LEN));
    for element in elements {
        let len = element.len.min(header_len - have);
        let to = bytes.get_mut(have..have + len)?;
        // SAFETY: the element is mapped; `to` is ours and as long as what is copied.
        unsafe { std::ptr::copy_nonoverlapping(element.start, to.as_mut_ptr(), len) };
        have += len;
    }
    (have == header_len).then(|| VnetHeader::decode(bytes))
}
