//! Tests two kernels' TCP through a TAP port and an uplink, joined by a loop. Every byte arrives:
//! as trains by a packet port, in segments by an xdp port.

use crate::support::{in_namespace, ip};
use ports::link::{Link, LinkOffload};
use ports::packet::{self, PacketOptions};
use ports::tap::{self, TapOptions};
use ports::xdp::{self, XdpError, XdpOptions};
use ports::{Burst, Device, EgressQueue, IngressQueue, Nanos, Outgoing, namespace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use wire::vnet::GsoType;

const BYTES: usize = 8 << 20;

/// Returns bytes with values that depend on their position.
fn pattern() -> Vec<u8> {
    (0..BYTES).map(|at| ((at * 31) >> 7).to_le_bytes()[0]).collect()
}

/// Runs the far kernel, which sends back what it received, in a namespace that it names by its
/// thread. `moved` tells that the link is in its namespace; when it closes, the link is no longer
/// used.
fn echo(thread: &Sender<i32>, moved: &Receiver<()>, ready: &Sender<()>) {
    thread.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("told");
    moved.recv().expect("the link is here");
    ip("addr add 10.9.0.2/24 dev mill2");
    ip("link set mill2 up");
    let listener = TcpListener::bind("10.9.0.2:5001").expect("bind");
    ready.send(()).expect("told");
    let (mut stream, _) = listener.accept().expect("accept");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("read");
    stream.write_all(&got).expect("write");
    drop(stream);
    // The veth pair goes with this namespace: it stays until the relay no longer uses it and drops
    // the sender.
    let _ = moved.recv();
}

/// Runs the near kernel, which sends and checks what comes back.
fn talk() {
    let mut stream = TcpStream::connect("10.9.0.2:5001").expect("connect");
    let sent = pattern();
    stream.write_all(&sent).expect("write");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("read");
    assert!(got == sent, "{} bytes came back, and not those", got.len());
}

/// Runs one turn of one direction. Returns the trains it saw.
fn forward(from: &mut IngressQueue, to: &mut EgressQueue) -> usize {
    let mut burst = Burst::new();
    from.take(Nanos(0), &mut burst).expect("take");
    let outgoing = |frame| {
        let payload = burst.slices(frame);
        Outgoing { vnet: frame.vnet, header: &[], payload, len: frame.len }
    };
    let frames: Vec<Outgoing<'_>> = burst.frames().iter().map(outgoing).collect();
    to.deliver(&frames, &mut Vec::new()).expect("deliver");
    let trains = frames.iter().filter(|frame| frame.vnet.gso() == GsoType::Tcp4).count();
    drop(burst);
    from.release();
    trains
}

/// Joins two ports until told to end. Returns the trains seen from each.
fn relay(near: &mut ports::Device, far: &mut ports::Device, done: &AtomicBool) -> [usize; 2] {
    let mut trains = [0, 0];
    while !done.load(Ordering::Acquire) {
        trains[0] += forward(&mut near.ingress[0], &mut far.egress[0]);
        trains[1] += forward(&mut far.ingress[0], &mut near.egress[0]);
        let fds = [&near.ingress[0], &far.ingress[0]]
            .map(|queue| queue.ready_fd().expect("a descriptor"));
        let soon = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let mut polled = fds.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        poll(&mut polled, Some(&soon)).expect("poll");
    }
    trains
}

/// Connects two kernels through a TAP that accepts the uplink's frames, and the uplink that `open`
/// returns. Returns the trains seen from each.
fn between_kernels(tap: &TapOptions, open: impl FnOnce() -> Device + Send) -> [usize; 2] {
    let mut near = tap::open(tap).expect("open");
    ip("addr add 10.9.0.1/24 dev mill0");
    ip("link add mill1 type veth peer name mill2");
    let (thread, threads) = channel();
    let (go, moved) = channel();
    let (ready, is_ready) = channel();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || namespace::fresh(move || echo(&thread, &moved, &ready)));
        let thread = threads.recv().expect("the other namespace");
        ip(&format!("link set mill2 netns {thread}"));
        ip("link set mill1 up");
        go.send(()).expect("told");
        is_ready.recv().expect("listening");
        let mut far = open();
        let client = scope.spawn(|| {
            // The relay must end after a failed check as well.
            struct Done<'a>(&'a AtomicBool);
            impl Drop for Done<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Release);
                }
            }
            let _done = Done(&done);
            talk();
        });
        let trains = relay(&mut near.device, &mut far, &done);
        drop(go);
        client.join().expect("the bytes came back");
        assert_eq!(far.ingress[0].lost(), 0);
        trains
    })
}

#[test]
fn tcp_of_two_kernels_passes_as_trains_both_ways() {
    in_namespace(|| {
        let mut watcher = None;
        let trains = between_kernels(&TapOptions::new("mill0"), || {
            // Another listener makes the kernel share each frame between the two.
            watcher = packet::open(&PacketOptions::new("mill1")).ok();
            packet::open(&PacketOptions::new("mill1")).expect("open").device
        });
        assert!(watcher.is_some());
        // If all frames were full trains there would be 128.
        assert!(trains.iter().all(|&count| count > 30), "{trains:?}");
    });
}

/// The relay cuts no train, so the near kernel must send none: an xdp port lacks segmentation by
/// the device.
#[test]
fn tcp_of_two_kernels_passes_through_an_xdp_port() {
    in_namespace(|| {
        ip("link add mill8 type veth peer name mill9");
        if let Err(XdpError::Program { source, .. }) = xdp::open(&XdpOptions::new("mill8")) {
            return eprintln!("skipped: needs the right to load eBPF programs: {source}");
        }
        let near = Link::open("mill0", None).expect("a name");
        let trains = between_kernels(&TapOptions::new("mill0"), || {
            for offload in [LinkOffload::Tso, LinkOffload::Gso] {
                near.set_offload(offload, false).expect("set");
            }
            let opened = xdp::open(&XdpOptions::new("mill1")).expect("open");
            assert!(opened.mode.native);
            opened.device
        });
        assert_eq!(trains, [0, 0]);
    });
}
