//! What a queue does beside bursts: requests, resuming, changes of memory, the dirty log, sleep;
//! and two threads at it.

use crate::guest::{BUFFER_REGION, Guest, readable, writable};
use guestmem::{DirtyLog, Gpa, Region, UserAddress};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use test_guest::driver::{Driver, Shape};
use virtqueue::{Limit, Queue, Reserved, RingFeatures, Setup, SetupError};

const ALL: Limit = Limit { chains: 256, bytes: usize::MAX };
const FORMATS: [RingFeatures; 2] = [RingFeatures::empty(), RingFeatures::RING_PACKED];

/// One readable buffer, visible to the device.
fn send(driver: &mut Driver, gpa: u64) {
    driver.add(&[readable(gpa, 4)], Shape::Direct).unwrap();
    driver.publish();
}

fn request_and_answer(guest: &Guest, driver: &mut Driver, queue: &mut Queue) {
    assert!(queue.take_control().unwrap().is_none());
    for shape in [Shape::Direct, Shape::Indirect] {
        let id = driver.add(
            &[
                readable(BUFFER_REGION, 2),
                readable(BUFFER_REGION + 8, 3),
                writable(BUFFER_REGION + 16, 1),
            ],
            shape,
        );
        driver.publish();
        for _ in 0..2 {
            let request = queue.take_control().unwrap().unwrap();
            let gpas = |elements: &[virtqueue::ChainElement]| {
                elements
                    .iter()
                    .map(|element| guest.gpa_of(element) - BUFFER_REGION)
                    .collect::<Vec<_>>()
            };
            assert_eq!((gpas(request.readable), gpas(request.writable)), (vec![0, 8], vec![16]));
        }
        queue.answer(1);
        assert!(queue.take_control().unwrap().is_none());
        let used = driver.reap().unwrap();
        assert_eq!((Some(used.id), used.len), (id, 1));
    }
    // To read after to write.
    driver.add(&[writable(BUFFER_REGION, 2), readable(BUFFER_REGION, 2)], Shape::Direct);
    driver.publish();
    assert_eq!(
        queue.take_control().unwrap_err(),
        virtqueue::QueueFault::NotWritable(Gpa(BUFFER_REGION))
    );
}

#[test]
fn requests() {
    let guest = Guest::new(8, FORMATS[0]);
    request_and_answer(&guest, &mut guest.driver(), &mut guest.queue());
    let guest = Guest::new(8, FORMATS[1]);
    request_and_answer(&guest, &mut guest.driver(), &mut guest.queue());
}

#[test]
fn a_disabled_queue_takes_nothing() {
    for format in FORMATS {
        let guest = Guest::new(8, format);
        let (mut driver, mut queue) = (guest.driver(), guest.queue());
        send(&mut driver, BUFFER_REGION);
        queue.set_enabled(false);
        assert_eq!(queue.take(ALL), Ok(0));
        assert!(!queue.arm(), "nothing it would take");
        queue.set_enabled(true);
        assert_eq!(queue.take(ALL), Ok(1));
    }
}

#[test]
fn user_mode_linux_says_base_0_without_the_wrap_counter() {
    let guest = Guest::new(4, RingFeatures::RING_PACKED);
    let mut driver = guest.driver();
    send(&mut driver, BUFFER_REGION);
    let start = |base| {
        let setup = Setup { base, ..guest.setup };
        let mut queue = Queue::resume(guest.memory.clone(), &setup, None).unwrap();
        queue.set_enabled(true);
        queue
    };
    let mut queue = start(0);
    assert_eq!(queue.take(ALL), Ok(1));
    queue.complete(1);
    for gpa in 1..4 {
        send(&mut driver, BUFFER_REGION + gpa);
    }
    assert_eq!(queue.take(ALL), Ok(3));
    queue.complete(3);
    while driver.reap().is_some() {}
    // Once around: now 0 without the wrap counter is the truth.
    assert_eq!(queue.base(), 0);
    send(&mut driver, BUFFER_REGION + 9);
    assert_eq!(start(queue.base()).take(ALL), Ok(1));
}

#[test]
fn memory_changes_between_bursts_only() {
    for format in FORMATS {
        let guest = Guest::new(8, format);
        let (mut driver, mut queue) = (guest.driver(), guest.queue());
        let file = guest.file.clone();
        let more = Region {
            gpa: Gpa(1 << 30),
            size: 4096,
            user: UserAddress(1 << 30),
            file_offset: 0,
            file,
        };
        let memory = guest.memory.with_region(more).unwrap();
        send(&mut driver, BUFFER_REGION);
        assert_eq!(queue.take(ALL), Ok(1));
        assert_eq!(queue.remap(memory.clone()), Err(SetupError::Lent(1)));
        queue.complete(1);
        queue.remap(memory).unwrap();
        send(&mut driver, 1 << 30);
        assert_eq!(queue.take(ALL), Ok(1));
    }
}

#[test]
fn chains_looked_up_ahead_survive_a_change_of_memory() {
    let guest = Guest::new(8, RingFeatures::empty());
    let (mut driver, mut queue) = (guest.driver(), guest.queue());
    for frame in 0..4 {
        driver.add(&[writable(BUFFER_REGION + frame * 100, 100)], Shape::Direct).unwrap();
    }
    driver.publish();
    for frame in 0..4 {
        let Reserved::Buffers(room) = queue.reserve(60, 1).unwrap() else {
            panic!("there is room")
        };
        assert_eq!(guest.gpa_of(&room.elements[0]), BUFFER_REGION + frame * 100);
        queue.publish();
        queue.remap(guest.memory.clone()).unwrap();
    }
    assert!(matches!(queue.reserve(60, 1), Ok(Reserved::Full)));
}

#[test]
fn a_frame_that_no_buffer_holds() {
    let guest = Guest::new(8, RingFeatures::empty());
    let (mut driver, mut queue) = (guest.driver(), guest.queue());
    driver.add(&[writable(BUFFER_REGION, 100)], Shape::Direct).unwrap();
    driver.publish();
    assert!(matches!(queue.reserve(101, 1), Ok(Reserved::TooSmall)));
    assert!(matches!(queue.reserve(101, 2), Ok(Reserved::Full)));
    assert!(matches!(queue.reserve(100, 1), Ok(Reserved::Buffers(_))));
}

#[test]
fn writes_are_logged() {
    for format in FORMATS {
        let guest = Guest::new(8, format);
        let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        let bytes = guest.memory.end().0 / 4096 / 8;
        ftruncate(&file, bytes).unwrap();
        let log = DirtyLog::map(file.as_fd(), 0, bytes, &guest.memory).unwrap();
        let (mut driver, mut queue) = (guest.driver(), guest.queue());
        queue.set_log(Some(log));
        // All of the ring is marked when the log begins.
        rustix::io::pwrite(&file, &vec![0; bytes as usize], 0).unwrap();
        let buffers = [writable(BUFFER_REGION, 4096), writable(BUFFER_REGION + (1 << 20), 4096)];
        driver.add(&buffers, Shape::Direct).unwrap();
        driver.publish();
        queue.reserve(4097, 1).unwrap();
        queue.publish();
        let mut map = vec![0; bytes as usize];
        rustix::io::pread(&file, &mut map, 0).unwrap();
        let pages: Vec<u64> =
            (0..bytes * 8).filter(|page| map[*page as usize / 8] & 1 << (page % 8) != 0).collect();
        let rings = guest.setup.rings;
        let ring = if format.is_empty() { rings.device } else { rings.descriptors };
        let expected = [ring.0, BUFFER_REGION, BUFFER_REGION + (1 << 20)].map(|gpa| gpa / 4096);
        assert_eq!(pages, expected);
    }
}

/// Both sides run at once, each sleeping when it finds nothing. A notification that is missed hangs
/// the test.
fn two_threads(guest: &Guest, mut queue: Queue) {
    const FRAMES: u32 = 10_000;
    let (kick, call) = (AtomicBool::new(false), AtomicBool::new(false));
    let sleep = |flag: &AtomicBool| {
        while !flag.swap(false, Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut expected = 0u32;
            while expected < FRAMES {
                let taken = queue.take(Limit { chains: 7, bytes: usize::MAX }).unwrap();
                for elements in queue.taken() {
                    assert_eq!(guest.read(guest.gpa_of(&elements[0]), 4), expected.to_ne_bytes());
                    expected += 1;
                }
                if queue.complete(taken) {
                    call.store(true, Ordering::Release);
                }
                if taken == 0 && !queue.arm() {
                    sleep(&kick);
                }
            }
        });
        let (mut driver, mut sent, mut back) = (guest.driver(), 0, 0);
        while back < FRAMES {
            while sent < FRAMES {
                let gpa = BUFFER_REGION + u64::from(sent % 64) * 64;
                if driver.add(&[readable(gpa, 4)], Shape::Direct).is_none() {
                    break;
                }
                guest.memory.write(Gpa(gpa), &sent.to_ne_bytes());
                sent += 1;
            }
            if driver.publish() {
                kick.store(true, Ordering::Release);
            }
            let before = back;
            while driver.reap().is_some() {
                back += 1;
            }
            if back == before && !driver.arm() {
                sleep(&call);
            }
        }
    });
}

#[test]
fn nobody_sleeps_for_ever() {
    for extra in [RingFeatures::empty(), RingFeatures::EVENT_IDX] {
        let guest = Guest::new(16, extra);
        two_threads(&guest, guest.queue());
        let guest = Guest::new(13, extra | RingFeatures::RING_PACKED | RingFeatures::IN_ORDER);
        two_threads(&guest, guest.queue());
    }
}
