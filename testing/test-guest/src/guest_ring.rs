//! One ring of a [`Guest`](crate::Guest): its driver, its eventfds, and the buffers it has for
//! frames.

use crate::driver::{Buffer, Driver, RingLayout, Shape, TABLE_BYTES};
use crate::feature;
use guestmem::{Gpa, GuestMemory};
use std::sync::Arc;
use vmm_sys_util::eventfd::EventFd;

/// Descriptors of each ring.
pub(crate) const SIZE: u16 = 256;
/// Bytes of a buffer.
const BUFFER: u16 = 4096;
/// Offsets of the parts of a ring's memory.
const DRIVER_AREA: u64 = 0x2000;
const DEVICE_AREA: u64 = 0x3000;
const TABLES: u64 = 0x4000;
const BUFFERS: u64 = TABLES + SIZE as u64 * TABLE_BYTES;
/// Bytes of a ring's memory.
pub(crate) const RING_BYTES: u64 = BUFFERS + SIZE as u64 * BUFFER as u64;

/// Returns the length in bytes of the virtio-net header with these features.
pub(crate) fn header_len(features: u64) -> usize {
    if features & feature::HASH_REPORT != 0 {
        20
    } else if features & (feature::VERSION_1 | feature::MRG_RXBUF) != 0 {
        12
    } else {
        10
    }
}

/// A driver with its eventfds and buffers.
pub(crate) struct GuestRing {
    pub(crate) number: usize,
    pub(crate) layout: RingLayout,
    driver: Driver,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    /// Buffers of each chain, by id; empty if the id is free.
    chains: Vec<Vec<u64>>,
    free: Vec<u64>,
}

impl GuestRing {
    /// Makes the ring of a number, with all its buffers free, at a place of the memory.
    pub(crate) fn new(
        memory: &Arc<GuestMemory>,
        (number, place): (usize, usize),
        features: u64,
        [kick, call]: [EventFd; 2],
    ) -> GuestRing {
        let start = place as u64 * RING_BYTES;
        let layout = RingLayout {
            size: SIZE,
            descriptors: Gpa(start),
            driver: Gpa(start + DRIVER_AREA),
            device: Gpa(start + DEVICE_AREA),
            tables: Gpa(start + TABLES),
            features,
        };
        let driver = Driver::new(memory.clone(), layout);
        let buffer = |place| start + BUFFERS + place * u64::from(BUFFER);
        let free = (0..u64::from(SIZE)).map(buffer).collect();
        let chains = vec![Vec::new(); usize::from(SIZE)];
        GuestRing { number, layout, driver, kick, call, chains, free }
    }

    /// Goes on in a copy of the memory.
    pub(crate) fn move_to(&mut self, memory: Arc<GuestMemory>) {
        self.driver.move_to(memory);
    }

    /// Makes all free buffers available for the device to write.
    pub(crate) fn offer_all(&mut self) {
        while let Some(gpa) = self.free.pop() {
            let buffer = Buffer { gpa: Gpa(gpa), len: BUFFER.into(), writable: true };
            if !self.add(&[buffer], vec![gpa], Shape::Direct) {
                break;
            }
        }
        self.publish();
    }

    /// Makes a frame available for the device to read. Returns `false` if there is no room.
    pub(crate) fn send(&mut self, memory: &GuestMemory, frame: &[u8], indirect: bool) -> bool {
        self.reclaim();
        let count = frame.len().div_ceil(BUFFER.into());
        if self.free.len() < count {
            return false;
        }
        let places = self.free.split_off(self.free.len() - count);
        let parts = frame.chunks(BUFFER.into()).zip(&places);
        let buffers: Vec<_> = parts
            .map(|(part, gpa)| {
                memory.write(Gpa(*gpa), part);
                let len = u32::try_from(part.len()).unwrap_or(0);
                Buffer { gpa: Gpa(*gpa), len, writable: false }
            })
            .collect();
        let shape = if indirect && count > 1 { Shape::Indirect } else { Shape::Direct };
        let added = self.add(&buffers, places, shape);
        if added {
            self.publish();
        }
        added
    }

    /// Sends a frame by a sending ring, with the bytes of its virtio header. Returns `false` if the
    /// ring is full.
    pub(crate) fn send_frame(
        &mut self,
        memory: &GuestMemory,
        features: u64,
        header: &[u8; 12],
        frame: &[u8],
    ) -> bool {
        let mut bytes = header.to_vec();
        bytes.resize(header_len(features), 0);
        bytes.extend_from_slice(frame);
        self.send(memory, &bytes, features & feature::INDIRECT_DESC != 0)
    }

    /// Returns the next frame of a receiving ring, after all bytes of its virtio header, and makes
    /// its buffers available again.
    pub(crate) fn receive_frame(
        &mut self,
        memory: &GuestMemory,
        features: u64,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let header_len = header_len(features);
        let mut header = self.reap(memory)?;
        let mut frame = (header.len() >= header_len).then(|| header.split_off(header_len))?;
        if let Some(buffers) = header.get(10..12).and_then(<[u8]>::first_chunk) {
            for _ in 1..u16::from_le_bytes(*buffers) {
                frame.extend(self.reap(memory)?);
            }
        }
        self.offer_all();
        Some((header, frame))
    }

    /// Sends a command over a control queue and waits for the answer. Returns whether the device
    /// grants it.
    pub(crate) fn command(
        &mut self,
        memory: &GuestMemory,
        command: [u8; 2],
        content: &[u8],
    ) -> bool {
        let bytes = [&command, content].concat();
        let answer = self.request(memory, &bytes).expect("room in the control queue");
        waiting::until("the command is answered", || self.is_answered());
        let mut granted = [u8::MAX];
        memory.read(answer, &mut granted);
        granted == [0]
    }

    /// Makes a request available, with room for an answer of a byte behind it. Returns where the
    /// answer will be.
    pub(crate) fn request(&mut self, memory: &GuestMemory, bytes: &[u8]) -> Option<Gpa> {
        let count = bytes.len().div_ceil(BUFFER.into()) + 1;
        let places = self.free.split_off(self.free.len().checked_sub(count)?);
        let parts = bytes.chunks(BUFFER.into()).zip(&places);
        let mut buffers: Vec<_> = parts
            .map(|(part, gpa)| {
                memory.write(Gpa(*gpa), part);
                let len = u32::try_from(part.len()).unwrap_or(0);
                Buffer { gpa: Gpa(*gpa), len, writable: false }
            })
            .collect();
        let gpa = Gpa(*places.last()?);
        memory.write(gpa, &[u8::MAX]);
        buffers.push(Buffer { gpa, len: 1, writable: true });
        let added = self.add(&buffers, places, Shape::Direct);
        self.publish();
        added.then_some(gpa)
    }

    /// Returns whether a request was answered since the last call.
    pub(crate) fn is_answered(&mut self) -> bool {
        let Some(used) = self.driver.reap() else { return false };
        if let Some(chain) = self.chains.get_mut(usize::from(used.id)) {
            self.free.append(chain);
        }
        true
    }

    /// Returns the bytes of the next used buffer.
    pub(crate) fn reap(&mut self, memory: &GuestMemory) -> Option<Vec<u8>> {
        let used = self.driver.reap()?;
        let place = self.chains.get_mut(usize::from(used.id))?.pop()?;
        let mut bytes = vec![0; used.len as usize];
        memory.read(Gpa(place), &mut bytes);
        self.free.push(place);
        Some(bytes)
    }

    /// Adds a chain and notes its places. If the ring is full, frees the places and returns
    /// `false`.
    fn add(&mut self, buffers: &[Buffer], mut places: Vec<u64>, shape: Shape) -> bool {
        let id = self.driver.add(buffers, shape);
        let chain = id.and_then(|id| self.chains.get_mut(usize::from(id)));
        match chain {
            Some(chain) => *chain = places,
            None => self.free.append(&mut places),
        }
        id.is_some()
    }

    fn publish(&mut self) {
        if self.driver.publish() {
            let _ = self.kick.write(1);
        }
    }

    fn reclaim(&mut self) {
        while let Some(used) = self.driver.reap() {
            if let Some(chain) = self.chains.get_mut(usize::from(used.id)) {
                self.free.append(chain);
            }
        }
    }
}
