//! Tests captures that the library and tcpdump read back, on a full disk, and on a slow disk.

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use ports::capture::{Capture, CaptureOptions, Direction};
use ports::{Nanos, Slice};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// A file in memory that the test can read while the capture has it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options() -> CaptureOptions {
    CaptureOptions::new("vm1", SystemTime::UNIX_EPOCH + EPOCH)
}

/// Returns a capture of two frames: one passed on, one cut and dropped.
fn two_frames() -> Vec<u8> {
    let file = Shared::default();
    let capture = Capture::start(file.clone(), CaptureOptions { snaplen: 64, ..options() });
    let capture = capture.expect("start");
    let header = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..], &[0; 46]].concat();
    let payload = [Slice::from(&[1u8, 2, 3][..]), Slice::from(&[4u8, 5, 6][..])];
    capture.offer(Nanos(5), Direction::Ingress, &header, &[], None);
    capture.offer(Nanos(6), Direction::Egress, &header, &payload, Some("mac_spoofed"));
    let status = capture.stop();
    assert_eq!((status.frames, status.missed, &status.error), (2, 0, &None));
    assert_eq!(capture.stop(), status, "stopping twice is stopping once");
    let bytes = file.0.lock().expect("not poisoned").clone();
    assert!(status.bytes > 0 && status.bytes < bytes.len() as u64);
    bytes
}

#[test]
fn what_is_offered_is_read_back() {
    let file = two_frames();
    let mut reader = PcapNgReader::new(&file[..]).expect("a pcapng file");
    let mut frames = 0;
    while let Some(block) = reader.next_block() {
        match block.expect("a good block") {
            Block::InterfaceDescription(interface) => {
                let name = InterfaceDescriptionOption::IfName("vm1".into());
                assert!(interface.options.contains(&name));
            }
            Block::EnhancedPacket(packet) if frames == 0 => {
                frames += 1;
                assert_eq!(packet.timestamp, EPOCH + Duration::from_nanos(5));
                assert_eq!((packet.data.len(), packet.original_len), (60, 60));
                assert_eq!(packet.options, [EnhancedPacketOption::Flags(1)]);
            }
            Block::EnhancedPacket(packet) => {
                frames += 1;
                assert_eq!((packet.data.len(), packet.original_len), (64, 66));
                assert_eq!(packet.data[60..], [1, 2, 3, 4]);
                let comment = EnhancedPacketOption::Comment("dropped: mac_spoofed".into());
                assert_eq!(packet.options, [EnhancedPacketOption::Flags(2), comment]);
            }
            other => assert!(matches!(other, Block::SectionHeader(_)), "{other:?}"),
        }
    }
    assert_eq!(frames, 2);
}

#[test]
fn tcpdump_reads_it() {
    let file = two_frames();
    let command = std::process::Command::new("tcpdump")
        .args(["-r", "-", "-e", "-n", "--nano", "-tt"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn();
    let Ok(mut tcpdump) = command else {
        eprintln!("skipped: needs tcpdump");
        return;
    };
    tcpdump.stdin.take().expect("piped").write_all(&file).expect("written");
    let output = tcpdump.wait_with_output().expect("tcpdump");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text.lines().filter(|line| line.contains("02:00:00:00:00:02 >")).count(),
        2,
        "{text}"
    );
    assert!(text.contains("1700000000.000000005"), "{text}");
}

#[test]
fn a_full_disk_ends_the_capture_with_its_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let capture = Capture::start(Full, options()).expect("start");
    let status = capture.stop();
    let full = io::Error::from(io::ErrorKind::StorageFull);
    assert_eq!(status.error, Some(format!("cannot write the capture: {full}")));
    capture.offer(Nanos(0), Direction::Ingress, &[0; 60], &[], None);
    assert_eq!(capture.status().missed, status.missed + 1);
}

#[test]
fn a_disk_that_stands_still_costs_frames_and_never_a_worker() {
    /// A disk that writes nothing until told to.
    struct Slow {
        started: Sender<()>,
        go_on: Receiver<()>,
    }
    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.started.send(());
            let _ = self.go_on.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (started, is_started) = channel();
    let (go, go_on) = channel();
    let slow = Slow { started, go_on };
    let capture = Capture::start(slow, CaptureOptions { queue: 10, ..options() }).expect("start");
    // The file's header is being written; from now on no frame leaves the queue.
    is_started.recv().expect("a write");
    for _ in 0..25 {
        capture.offer(Nanos(0), Direction::Ingress, &[0; 60], &[], None);
    }
    assert_eq!(capture.status().missed, 15);
    drop(go);
    assert_eq!(capture.stop().frames, 10);
}

#[test]
fn a_capture_that_is_dropped_writes_what_is_left_and_closes_the_file() {
    /// A file that tells by its drop that it was closed.
    struct Closing(Shared, #[allow(dead_code, reason = "only its end matters")] Sender<()>);
    impl Write for Closing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (file, (open, closed)) = (Shared::default(), channel());
    let capture = Capture::start(Closing(file.clone(), open), options()).expect("start");
    capture.offer(Nanos(0), Direction::Ingress, &[0xab; 60], &[], None);
    drop(capture);
    assert!(closed.recv().is_err(), "closed");
    let bytes = file.0.lock().expect("not poisoned");
    assert!(bytes.windows(60).any(|window| window == [0xab; 60]));
}
