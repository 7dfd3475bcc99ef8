//! Tests that a packet port resumes the ring of an earlier process, as `open_kept` says.

use crate::support::{Taken, deliver, in_namespace, ip, take_until, udp_header, udp_vnet};
use crate::veth::{ADDRESSES, OUR_MAC, THEIR_MAC, is_ours};
use ports::packet::{self, Opened, PacketError, PacketOptions};
use ports::{Burst, IngressQueue, Nanos, Offloads, Slice, namespace};
use std::env;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a train, which does not fit a slot.
const TRAIN: usize = 9000;

/// Returns options for a ring of 32 slots.
fn options() -> PacketOptions {
    PacketOptions { ring_bytes: 0, kept: true, ..PacketOptions::new("mill1") }
}

/// Opens the sender and the kept port.
fn pair() -> (Opened, Opened) {
    pair_by(&options())
}

fn pair_by(kept: &PacketOptions) -> (Opened, Opened) {
    ip("link add mill0 type veth peer name mill1");
    ip("link set mill0 up");
    ip("link set mill1 up");
    let here = packet::open(&PacketOptions::new("mill0")).expect("open");
    (here, packet::open(kept).expect("open"))
}

/// Sends a numbered frame, or a train.
fn send(here: &mut Opened, number: u16) {
    let len = length(here, number);
    let header = udp_header(THEIR_MAC, OUR_MAC, ADDRESSES, len);
    let mut payload = vec![7; len];
    payload[..2].copy_from_slice(&number.to_be_bytes());
    let gso_size = if len > 1472 { 1400 } else { 0 };
    deliver(&mut here.device.egress[0], udp_vnet(gso_size), &header, &[Slice::from(&payload[..])]);
}

fn numbers(queue: &mut IngressQueue, enough: usize) -> Vec<(u16, usize)> {
    let frames = take_until(queue, enough, is_ours);
    frames.iter().map(number).collect()
}

/// Returns the number of a frame and the length of its payload.
fn number(frame: &Taken) -> (u16, usize) {
    (u16::from_be_bytes([frame.bytes[42], frame.bytes[43]]), frame.bytes.len() - 42)
}

/// Returns copies of the descriptors, as another process gets them.
fn files(opened: &Opened) -> Vec<Arc<OwnedFd>> {
    opened.files.iter().map(|file| Arc::new(file.try_clone().expect("a copy"))).collect()
}

/// Reopens the port as the next process does.
fn next(opened: Opened) -> Opened {
    let files = files(&opened);
    drop(opened);
    packet::open_kept(&options(), &files).expect("goes on")
}

/// Returns the length of the frame with this number: a train's, if the kernel accepts trains.
fn length(here: &Opened, number: u16) -> usize {
    let is_train = number % 5 == 3 && here.device.live.offloads().contains(Offloads::USO);
    if is_train { TRAIN + usize::from(number) } else { 18 }
}

/// Enough times that the ring turns over, at a position that differs each time.
#[test]
fn each_frame_comes_once_and_in_order_whoever_has_the_ring() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        let (mut sent, mut came) = (0u16, Vec::new());
        for round in 0..30 {
            for step in [3 + round % 4, 5, 2] {
                for _ in 0..step {
                    send(&mut here, sent);
                    sent += 1;
                }
                // Frames that arrived meanwhile wait; at the last step there are none.
                there = next(there);
                let enough = if step == 5 { 4 } else { usize::from(sent) - came.len() };
                came.extend(numbers(&mut there.device.ingress[0], enough));
            }
        }
        let all: Vec<_> = (0..sent).map(|number| (number, length(&here, number))).collect();
        assert_eq!(came, all);
    });
}

/// The process dies in the middle of a turn: frames it had not given back come once more, except
/// trains, which it had received.
#[test]
fn after_a_crash_frames_come_again_and_no_train_comes_in_another_one_s_place() {
    in_namespace(|| {
        let (mut here, mut there) = pair();
        (0..10).for_each(|number| send(&mut here, number));
        let mut burst = Burst::new();
        there.device.ingress[0].take(Nanos(1), &mut burst).expect("take");
        assert!(burst.frames().len() >= 10);
        drop(burst);
        (10..20).for_each(|number| send(&mut here, number));
        there = next(there);
        let wanted = |number: &u16| *number >= 10 || length(&here, *number) == 18;
        let wanted: Vec<_> = (0..20).filter(wanted).collect();
        let came = numbers(&mut there.device.ingress[0], wanted.len());
        let all: Vec<_> = wanted.iter().map(|number| (*number, length(&here, *number))).collect();
        assert_eq!(came, all);
    });
}

/// Environment variable of a reader that is to be killed: the file with the ring's position. The
/// socket is its standard input.
const POSITION: &str = "KEPT_POSITION";

/// Returns options for a ring of 512 slots. A reader that dies while it gives slots back of a
/// nearly full ring is not followed.
fn large() -> PacketOptions {
    PacketOptions { ring_bytes: 1 << 20, ..options() }
}

/// Frames that a reader reported come in order and without a gap; those it had not given back come
/// once more.
#[test]
fn a_reader_that_is_killed_at_any_moment_loses_nothing() {
    if let Some(position) = env::var_os(POSITION) {
        return read_until_killed(Path::new(&position));
    }
    in_namespace(|| {
        let (mut here, there) = pair_by(&large());
        let (mut sent, mut next) = (0, 0);
        for reader in 0..40 {
            let (mut reader, enough) = (start_reader(&there), next + 200 + 11 * reader);
            let mut lines = BufReader::new(reader.stdout.take().expect("its output")).lines();
            let note = |line: &str, next: &mut u16| {
                let number = line.strip_prefix('#').and_then(|number| number.parse::<u16>().ok());
                let number = number.filter(|number| number % 5 != 3);
                number.into_iter().for_each(|number| {
                    *next += u16::from(*next % 5 == 3);
                    assert!(number <= *next, "{next} is lost, {number} came");
                    *next += u16::from(number == *next);
                });
            };
            while next < enough {
                while sent < next + 64 {
                    send(&mut here, sent);
                    sent += 1;
                }
                note(&lines.next().expect("it reads").expect("it reads"), &mut next);
            }
            reader.kill().expect("kill");
            assert_eq!(reader.wait().expect("wait").signal(), Some(9));
            lines.map_while(Result::ok).for_each(|line| note(&line, &mut next));
        }
    });
}

fn start_reader(ring: &Opened) -> Child {
    let [socket, position] = &ring.files[..] else { panic!("two files") };
    let position = format!("/proc/{}/fd/{}", std::process::id(), position.as_raw_fd());
    let name = "kept::a_reader_that_is_killed_at_any_moment_loses_nothing";
    let mut command = Command::new(env::current_exe().expect("a path"));
    command.args(["--exact", name, "--nocapture"]).env(POSITION, position);
    command.stdin(socket.try_clone().expect("a copy")).stdout(Stdio::piped());
    command.spawn().expect("spawn")
}

/// Reports the numbers of each burst before it gives the burst back.
fn read_until_killed(position: &Path) {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("a copy");
    let position = File::options().read(true).write(true).open(position).expect("open");
    let files = [socket, position.into()].map(Arc::new);
    let mut opened = packet::open_kept(&large(), &files).expect("goes on");
    let (queue, start) = (&mut opened.device.ingress[0], Instant::now());
    while start.elapsed() < Duration::from_secs(20) {
        let (mut burst, mut report) = (Burst::new(), String::new());
        queue.take(Nanos(1), &mut burst).expect("take");
        for frame in burst.frames() {
            let mut bytes = Vec::new();
            burst.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
            let frame = Taken { raw: frame.clone(), bytes };
            if is_ours(&frame) {
                writeln!(report, "\n#{}", number(&frame).0).expect("a string");
            }
        }
        drop(burst);
        if !report.is_empty() {
            rustix::io::write(std::io::stdout(), report.as_bytes()).expect("report");
        }
        queue.release();
    }
}

/// After an outage of hours the oldest frames were delivered, when they had lost their meaning.
#[test]
fn frames_that_waited_too_long_are_lost_with_their_trains_and_newer_ones_come() {
    in_namespace(|| {
        let (mut here, there) = pair();
        (0..20).for_each(|number| send(&mut here, number));
        let files = files(&there);
        drop(there);
        // All waiting frames have waited for longer.
        let strict = PacketOptions { longest_wait: Duration::ZERO, ..options() };
        let mut there = packet::open_kept(&strict, &files).expect("goes on");
        let lost = there.device.ingress[0].lost();
        assert!(lost >= 20, "{lost}");
        (20..40).for_each(|number| send(&mut here, number));
        let came = numbers(&mut there.device.ingress[0], 20);
        let all: Vec<_> = (20..40).map(|number| (number, length(&here, number))).collect();
        assert_eq!(came, all);
        assert_eq!(there.device.ingress[0].lost(), lost);
    });
}

/// A process that passes a ring may not have made its interface promiscuous, and the kernel does
/// not tell.
#[test]
fn an_interface_is_promiscuous_again_whatever_the_earlier_process_did() {
    in_namespace(|| {
        let (_here, there) = pair_by(&PacketOptions { promiscuous: false, ..options() });
        let is_promiscuous = |is| {
            let wanted = format!("promiscuity {}", u8::from(is));
            let told = Command::new("ip").args(["-details", "link", "show", "mill1"]).output();
            String::from_utf8_lossy(&told.expect("ip").stdout).contains(&wanted)
        };
        assert!(is_promiscuous(false));
        let _there = next(there);
        assert!(is_promiscuous(true));
    });
}

/// Returns why the descriptors are refused.
fn refusal(files: Vec<Arc<OwnedFd>>) -> String {
    let refused = packet::open_kept(&options(), &files).err().expect("refused");
    assert!(matches!(refused, PacketError::Kept { .. }), "{refused}");
    refused.to_string()
}

#[test]
fn descriptors_that_are_not_of_the_port_s_ring_are_refused() {
    in_namespace(|| {
        let (_here, there) = pair();
        let own = || files(&there);
        let other = packet::open(&PacketOptions { interface: "mill0".into(), ..options() });
        let other = files(&other.expect("open"));
        let elsewhere = namespace::fresh(|| files(&pair().1)).expect("a namespace");
        let mut udp = own();
        udp[0] = Arc::new(UdpSocket::bind("0.0.0.0:0").expect("bind").into());
        let mut without_ring = own();
        without_ring[1] = Arc::new(File::open("/dev/null").expect("open").into());
        for (files, flaw) in [
            (Vec::new(), "0 for 1 queue"),
            (own().into_iter().take(1).collect(), "1 in the place"),
            (own().into_iter().rev().collect(), "not a raw packet socket"),
            (udp, "not a raw packet socket"),
            (other, "another interface"),
            (elsewhere, "another network namespace"),
            (without_ring, "not in a memory file"),
        ] {
            let told = refusal(files);
            assert!(told.contains(flaw), "{flaw}: {told}");
        }
        let position = File::from(there.files[1].try_clone().expect("a copy"));
        position.write_at(&99u64.to_ne_bytes(), 8).expect("write");
        assert!(refusal(own()).contains("not one of this ring"));
        position.write_at(&0u64.to_ne_bytes(), 8).expect("write");
        drop(packet::open_kept(&options(), &own()).expect("goes on"));
        ip("link set mill1 mtu 9000");
        assert!(refusal(own()).contains("of another size or number"));
    });
}
