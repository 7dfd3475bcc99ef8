//! QEMU's virtio-net device at a TAP, with this test as its driver: the queue each frame arrives
//! at, and its hash.
//!
//! The driver speaks virtio-mmio (virtio 1.2, section 4.2.2) to a `microvm`, whose memory it
//! shares. If the hash is to be reported QEMU computes it; otherwise the kernel's TAP chooses the
//! queue, by a program that QEMU loads.

use super::qtest::Qtest;
use super::{QUEUES, Setting};
use crate::common::packet::{VLAN, memory_frame};
use crate::common::{ALL, Bench, trunk};
use guestmem::{Gpa, GuestMemory, Region, UserAddress};
use ports::link::Link;
use ports::packet::{self, PacketOptions};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use test_guest::driver::{Buffer, Driver, RingLayout, Shape};

/// Registers of the transports, each a slot.
const SLOTS: std::ops::Range<u64> = 0..24;
const FIRST_SLOT: u64 = 0xfeb0_0000;
const SLOT: u64 = 512;
const DEVICE_ID: u64 = 0x008;
const DEVICE_FEATURES: u64 = 0x010;
const DRIVER_FEATURES: u64 = 0x020;
const QUEUE: u64 = 0x030;
const QUEUE_SIZE: u64 = 0x038;
const QUEUE_READY: u64 = 0x044;
const NOTIFY: u64 = 0x050;
const STATUS: u64 = 0x070;
const DESCRIPTORS: u64 = 0x080;
const DRIVER_AREA: u64 = 0x090;
const DEVICE_AREA: u64 = 0x0a0;

/// The feature bits that are taken, of each word of 32.
const CTRL_VQ: u32 = 1 << 17;
const VERSION_1: u32 = 1;
const HASH_REPORT: u32 = 1 << (57 - 32);
const RSS: u32 = 1 << (60 - 32);

/// The machine's memory, and a ring's part of it.
const MEMORY: u64 = 64 << 20;
const FIRST_RING: u64 = 1 << 20;
const RING: u64 = 1 << 18;
const SIZE: u16 = 64;
const BUFFERS: u64 = 1 << 16;
const BUFFER: u64 = 2048;

const DEVICE_TIMEOUT: Duration = Duration::from_secs(10);
const TAP: &str = "tap0";

/// The device, and a switch that sends to it.
pub(crate) struct Device {
    qtest: Qtest,
    /// Where its registers are.
    slot: u64,
    memory: Arc<GuestMemory>,
    receiving: Vec<Ring>,
    control: Ring,
    /// Bytes before a frame.
    header: usize,
    /// A station at port 0, the TAP at port 1.
    bench: Bench,
    _link: Link,
}

/// A ring and its buffers.
struct Ring {
    number: u32,
    layout: RingLayout,
    driver: Driver,
    /// Where buffers are that the device has not.
    free: Vec<u64>,
    /// Where those are that it has, by id.
    buffers: Vec<u64>,
}

impl Device {
    /// Returns a device in the caller's network namespace, which computes hashes itself or not; or
    /// what it needs.
    pub(crate) fn start(folder: &Path, reports: bool) -> Result<Device, String> {
        let tun = File::options().read(true).write(true).open("/dev/net/tun");
        tun.map_err(|error| format!("/dev/net/tun: {error}"))?;
        let file = File::from(memfd_create("machine", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY).unwrap();
        let memory = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let options = format!(
            "-machine microvm,memory-backend=memory -m {} -global virtio-mmio.force-legacy=false \
             -object memory-backend-file,id=memory,size={MEMORY},share=on,mem-path={memory} \
             -netdev tap,id=net,ifname={TAP},script=no,downscript=no,vhost=off,queues={QUEUES} \
             -device virtio-net-device,netdev=net,mq=on,rss=on,hash=on",
            MEMORY >> 20,
        );
        let options: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        let mut qtest = Qtest::start(folder, &options)?;
        let memory = map(file);
        let slot = find(&mut qtest);
        let control = Ring::new(&memory, 2 * u32::from(QUEUES));
        let receiving = (0..u32::from(QUEUES)).map(|pair| Ring::new(&memory, 2 * pair)).collect();
        let (bench, link) = sender();
        let header = if reports { 20 } else { 12 };
        let mut device =
            Device { qtest, slot, memory, receiving, control, header, bench, _link: link };
        device.negotiate(reports)?;
        Ok(device)
    }

    fn negotiate(&mut self, reports: bool) -> Result<(), String> {
        const READY: [u32; 4] = [1, 3, 11, 15];
        let wanted = [CTRL_VQ, VERSION_1 | RSS | if reports { HASH_REPORT } else { 0 }];
        self.set(STATUS, READY[0]);
        self.set(STATUS, READY[1]);
        for (half, wanted) in (0..).zip(wanted) {
            self.set(DEVICE_FEATURES + 4, half);
            let offered = self.qtest.read(self.slot + DEVICE_FEATURES);
            if offered & wanted != wanted {
                return Err(format!("a QEMU whose virtio-net has RSS: {offered:#x} offered"));
            }
            self.set(DRIVER_FEATURES + 4, half);
            self.set(DRIVER_FEATURES, wanted);
        }
        self.set(STATUS, READY[2]);
        let rings = self.receiving.iter().chain([&self.control]);
        let rings: Vec<_> = rings.map(|ring| (ring.number, ring.layout)).collect();
        for (number, layout) in rings {
            self.set(QUEUE, number);
            self.set(QUEUE_SIZE, SIZE.into());
            let parts = [
                (DESCRIPTORS, layout.descriptors),
                (DRIVER_AREA, layout.driver),
                (DEVICE_AREA, layout.device),
            ];
            for (register, place) in parts {
                self.set(register, u32::try_from(place.0).unwrap());
                self.set(register + 4, 0);
            }
            self.set(QUEUE_READY, 1);
        }
        self.set(STATUS, READY[3]);
        (0..self.receiving.len()).for_each(|queue| self.offer(queue));
        Ok(())
    }

    /// Returns what QEMU printed.
    pub(crate) fn said(&self) -> String {
        self.qtest.said()
    }

    /// Has it spread frames in another way (section 5.1.6.5.7.1).
    pub(crate) fn set_up(&mut self, setting: &Setting) {
        let mut command = vec![4, 1];
        command.extend(u32::from(setting.types.bits()).to_le_bytes());
        let last = u16::try_from(setting.table.len() - 1).unwrap();
        // What has no hash goes by the first entry, as ours does.
        command.extend([last, setting.table[0].into()].map(u16::to_le_bytes).concat());
        command.extend(setting.table.iter().flat_map(|queue| u16::from(*queue).to_le_bytes()));
        command.extend(u16::from(QUEUES).to_le_bytes());
        command.push(40);
        command.extend(setting.key);
        let [question, answer] = [0, 1].map(|place| Gpa(self.control.free[place]));
        self.memory.write(question, &command);
        self.memory.write(answer, &[0xff]);
        let len = u32::try_from(command.len()).unwrap();
        let question = Buffer { gpa: question, len, writable: false };
        let answer = Buffer { gpa: answer, len: 1, writable: true };
        self.control.driver.add(&[question, answer], Shape::Direct).unwrap();
        self.control.driver.publish();
        self.set(NOTIFY, self.control.number);
        let start = Instant::now();
        while self.control.driver.reap().is_none() {
            assert!(start.elapsed() < DEVICE_TIMEOUT, "no answer: {}", self.said());
        }
        let mut answered = [0xff];
        self.memory.read(answer.gpa, &mut answered);
        assert_eq!(answered, [0], "{setting:?}");
    }

    /// Sends a frame to the device: the queue by which it arrives, and its hash, if that is
    /// reported.
    pub(crate) fn receives(&mut self, frame: &[u8]) -> (usize, Option<u32>) {
        self.bench.send(0, &[memory_frame(frame.to_vec())]);
        let start = Instant::now();
        while start.elapsed() < DEVICE_TIMEOUT {
            for queue in 0..self.receiving.len() {
                while let Some(bytes) = self.take(queue) {
                    let (header, arrived) = bytes.split_at(self.header);
                    // The kernel may have something of its own to say at a TAP.
                    if arrived == frame {
                        return (queue, reported(header));
                    }
                }
            }
        }
        panic!("{frame:02x?} did not arrive: {}", self.said());
    }

    fn take(&mut self, queue: usize) -> Option<Vec<u8>> {
        let bytes = self.receiving[queue].take(&self.memory)?;
        self.offer(queue);
        Some(bytes)
    }

    /// Gives the device all buffers of a queue that it has not.
    fn offer(&mut self, queue: usize) {
        let ring = &mut self.receiving[queue];
        while ring.offer() {}
        if ring.driver.publish() {
            let number = ring.number;
            self.set(NOTIFY, number);
        }
    }

    fn set(&mut self, register: u64, word: u32) {
        self.qtest.write(self.slot + register, word);
    }
}

impl Ring {
    fn new(memory: &Arc<GuestMemory>, number: u32) -> Ring {
        let start = FIRST_RING + u64::from(number) * RING;
        let place = |offset| Gpa(start + offset);
        let layout = RingLayout {
            size: SIZE,
            descriptors: place(0),
            driver: place(0x1000),
            device: place(0x2000),
            tables: place(0x3000),
            features: 0,
        };
        let driver = Driver::new(memory.clone(), layout);
        let free = (0..u64::from(SIZE)).map(|number| start + BUFFERS + number * BUFFER).collect();
        Ring { number, layout, driver, free, buffers: vec![0; SIZE.into()] }
    }

    /// Gives the device a buffer; `false`: all are with it.
    fn offer(&mut self) -> bool {
        let Some(place) = self.free.pop() else { return false };
        let len = u32::try_from(BUFFER).unwrap();
        let buffer = Buffer { gpa: Gpa(place), len, writable: true };
        let id = self.driver.add(&[buffer], Shape::Direct).unwrap();
        self.buffers[usize::from(id)] = place;
        true
    }

    /// Returns the bytes that came in the next buffer, which is free again.
    fn take(&mut self, memory: &GuestMemory) -> Option<Vec<u8>> {
        let used = self.driver.reap()?;
        let place = self.buffers[usize::from(used.id)];
        let mut bytes = vec![0; used.len as usize];
        memory.read(Gpa(place), &mut bytes);
        self.free.push(place);
        Some(bytes)
    }
}

/// Maps the memory of QEMU's machine.
fn map(file: File) -> Arc<GuestMemory> {
    let (gpa, user) = (Gpa(0), UserAddress(0));
    let file = Arc::new(file.into());
    GuestMemory::map(vec![Region { gpa, size: MEMORY, user, file_offset: 0, file }]).unwrap()
}

/// Returns the transport of the network device.
fn find(qtest: &mut Qtest) -> u64 {
    const NETWORK: u32 = 1;
    let mut slots = SLOTS.map(|slot| FIRST_SLOT + slot * SLOT);
    slots.find(|slot| qtest.read(slot + DEVICE_ID) == NETWORK).unwrap()
}

/// Returns a switch with a station that sends to the TAP.
fn sender() -> (Bench, Link) {
    let up = Command::new("ip").args(["link", "set", TAP, "up"]).status().unwrap();
    assert!(up.success());
    let opened = packet::open(&PacketOptions::new(TAP)).unwrap();
    let mut bench = Bench::new(&[(trunk(0, &[VLAN]), ALL)]);
    bench.switch.add_port(TAP, opened.device, trunk(0, &[VLAN])).unwrap();
    (bench, opened.link)
}

/// Returns the hash in a header; `None` if it has none (section 5.1.6.4.3).
fn reported(header: &[u8]) -> Option<u32> {
    let (hash, kind) = header.get(12..)?.split_first_chunk()?;
    (kind[..2] != [0, 0]).then(|| u32::from_le_bytes(*hash))
}
