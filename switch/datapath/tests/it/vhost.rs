//! Two vNICs with guests in this process, on a switch that runs by itself: what one guest sends the
//! other receives.

use crate::common::trace::Segment;
use datapath::{
    DropReason, PortId, PortSettings, Rsc, RscPolicy, Switch, SwitchOptions, Wait, WorkerOptions,
};
use ports::vhost::{self, Features, Session, State, VhostOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;

/// Returns the features that a modern Linux driver accepts.
pub(crate) fn modern() -> Features {
    Features::VERSION_1
        | Features::MRG_RXBUF
        | Features::CSUM
        | Features::GUEST_CSUM
        | Features::HOST_TSO4
        | Features::GUEST_TSO4
        | Features::MQ
        | Features::EVENT_IDX
        | Features::INDIRECT_DESC
}

pub(crate) struct Bench {
    folder: TempDir,
    switch: Switch,
    pub(crate) sessions: Vec<Session>,
    ports: Vec<PortId>,
}

impl Bench {
    pub(crate) fn new(vnics: usize, queues: u16) -> Bench {
        Bench::within(TempDir::new().unwrap(), vnics, queues)
    }

    fn within(folder: TempDir, vnics: usize, queues: u16) -> Bench {
        Bench::waiting(folder, vnics, queues, Wait::Adaptive)
    }

    fn waiting(folder: TempDir, vnics: usize, queues: u16, wait: Wait) -> Bench {
        let options = SwitchOptions { wait, ..SwitchOptions::default() };
        Bench::on(Switch::start(options).unwrap(), folder, vnics, queues)
    }

    fn on(mut switch: Switch, folder: TempDir, vnics: usize, queues: u16) -> Bench {
        let (mut sessions, mut ports) = (Vec::new(), Vec::new());
        for number in 0..vnics {
            let name = format!("vm{number}");
            let mut options = VhostOptions::new(folder.path().join(&name));
            options.queues = queues;
            let opened = vhost::open(&options).unwrap();
            let rsc = Rsc { policy: RscPolicy::Ndis, ..Rsc::default() };
            let settings = PortSettings { mtu: 9000, rsc, ..PortSettings::default() };
            ports.push(switch.add_port(&name, opened.device, settings).unwrap());
            sessions.push(opened.session);
        }
        Bench { folder, switch, sessions, ports }
    }

    /// Ends the switch, without a word to the guests.
    fn end(self) -> TempDir {
        self.folder
    }

    pub(crate) fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("vm{number}"))
    }

    /// Frames to a port that the switch dropped because finding the guest's pages took the worker
    /// too long, as it does on a busy host (`work_limit`).
    pub(crate) fn too_dear(&self, number: usize) -> u64 {
        let counters = self.switch.counters(self.ports[number]).unwrap();
        counters.drops[DropReason::WorkLimit as usize]
    }

    pub(crate) fn guest(&self, number: usize, wanted: Features, pairs: u16) -> Guest {
        Guest::connect(&self.path(number), wanted.bits(), pairs).unwrap()
    }
}

/// Longest wait for one state: far longer than it takes on a busy machine, so that only a state
/// that never comes about fails.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls `look` until it returns a value, and returns that.
///
/// # Panics
/// It returns none within [`LIMIT`].
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::sleep(Duration::from_micros(100));
    }
}

pub(crate) fn frame(to: u8, from: u8, len: usize, fill: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
    frame.resize(len.max(14), fill);
    frame
}

fn everything_arrives(wanted: Features) {
    let bench = Bench::new(2, 1);
    let (mut one, mut other) = (bench.guest(0, wanted, 1), bench.guest(1, wanted, 1));
    let lengths = [14, 60, 64, 65, 128, 129, 1514, 4084, 4085, 9014];
    let merging = wanted.contains(Features::MRG_RXBUF);
    for round in 0..200_u32 {
        let len = lengths[round as usize % lengths.len()];
        if len > 4084 && !merging {
            continue;
        }
        let sent = frame(2, 1, len, round as u8);
        until("room to send", || one.send(0, &[0; 12], &sent).then_some(()));
        let (header, received) = until("a frame", || other.receive(0));
        assert!(received == sent, "a frame of {len} bytes");
        assert_eq!(header[..10], [0; 10]);
        let answer = frame(1, 2, 60, round as u8);
        until("room to answer", || other.send(0, &[0; 12], &answer).then_some(()));
        assert!(until("an answer", || one.receive(0)).1 == answer);
    }
    let counters = bench.switch.counters(bench.ports[1]).unwrap();
    assert!(counters.drops.iter().all(|drops| *drops == 0), "{counters:?}");
}

#[test]
fn split_rings() {
    everything_arrives(modern());
}

#[test]
fn packed_rings() {
    everything_arrives(modern() | Features::RING_PACKED);
}

#[test]
fn rings_used_in_order() {
    everything_arrives(modern() | Features::IN_ORDER);
    everything_arrives(modern() | Features::IN_ORDER | Features::RING_PACKED);
}

#[test]
fn one_buffer_a_frame() {
    everything_arrives(modern() - Features::MRG_RXBUF);
}

#[test]
fn the_legacy_header() {
    everything_arrives(Features::ANY_LAYOUT | Features::CSUM);
}

#[test]
fn a_guest_goes_and_comes_again() {
    let bench = Bench::new(2, 1);
    let mut other = bench.guest(1, modern(), 1);
    for round in 0..20 {
        let mut one = bench.guest(0, modern(), 1);
        let sent = frame(2, 1, 100, round);
        assert!(one.send(0, &[0; 12], &sent));
        assert!(until("a frame", || other.receive(0)).1 == sent);
        assert_eq!(bench.sessions[0].status().state, State::Running);
        drop(one);
        until("the end of the connection", || {
            (bench.sessions[0].status().state == State::Waiting).then_some(())
        });
    }
    assert_eq!(bench.sessions[0].status().connections, 20);
}

/// A front end has its own number from before its first frame to after its last.
#[test]
fn an_address_is_held_as_long_as_its_front_end_is_connected() {
    let mut bench = Bench::new(2, 1);
    let guarded = PortSettings { mtu: 9000, mac_guard: true, ..PortSettings::default() };
    bench.switch.change_port(bench.ports[0], guarded).unwrap();
    let mut other = bench.guest(1, modern(), 1);
    let held = |bench: &Bench| bench.switch.ports()[0].held_mac.map(|mac| mac.0[5]);
    for from in [1, 3, 1] {
        let mut one = bench.guest(0, modern(), 1);
        assert_eq!(held(&bench), None, "the guest before is forgotten");
        assert!(one.send(0, &[0; 12], &frame(2, from, 100, from)));
        assert_eq!(until("a frame", || other.receive(0)).1[11], from);
        assert_eq!(held(&bench), Some(from));
        bench.switch.take_events();
        assert_eq!(held(&bench), Some(from));
        drop(one);
        until("the address is free", || held(&bench).is_none().then_some(()));
    }
}

fn rings_outlive_the_switch(wanted: Features) {
    let mut bench = Bench::new(2, 1);
    let (mut one, mut other) = (bench.guest(0, wanted, 1), bench.guest(1, wanted, 1));
    for round in 0..30_u8 {
        for number in 0..round {
            assert!(one.send(0, &[0; 12], &frame(2, 1, 60, number)));
            assert_eq!(until("a frame", || other.receive(0)).1[20], number);
        }
        let folder = bench.end();
        // What is sent meanwhile waits in the ring.
        for number in 0..3 {
            assert!(one.send(0, &[0; 12], &frame(2, 1, 60, 100 + number)));
        }
        bench = Bench::within(folder, 2, 1);
        other.reconnect(&bench.path(1)).unwrap();
        one.reconnect(&bench.path(0)).unwrap();
        for number in 0..3 {
            assert_eq!(until("a frame", || other.receive(0)).1[20], 100 + number);
        }
    }
    assert!(other.receive(0).is_none());
}

#[test]
fn split_rings_outlive_the_switch() {
    rings_outlive_the_switch(modern());
}

#[test]
fn packed_rings_outlive_the_switch() {
    rings_outlive_the_switch(modern() | Features::RING_PACKED);
    rings_outlive_the_switch(modern() | Features::RING_PACKED | Features::IN_ORDER);
}

/// A notification is a system call for a guest that is a process, and leaves the guest where it is
/// a virtual machine.
#[test]
fn nobody_is_asked_for_notifications_that_nobody_waits_for() {
    for (wait, features) in [
        (Wait::Always, modern() - Features::EVENT_IDX),
        (Wait::Always, modern() | Features::RING_PACKED),
        (Wait::Adaptive, modern() - Features::EVENT_IDX),
    ] {
        let bench = Bench::waiting(TempDir::new().unwrap(), 2, 1, wait);
        let (mut one, mut other) = (bench.guest(0, features, 1), bench.guest(1, features, 1));
        let mut cross = || {
            assert!(one.send(0, &[0; 12], &frame(2, 1, 60, 0)));
            until("a frame", || other.receive(0));
            (one.kicks(1), other.kicks(0))
        };
        if wait == Wait::Always {
            until("a worker that has seen the ring", || (cross().0 == 0).then_some(()));
        }
        cross();
        for _ in 0..10 {
            let (send, receive) = cross();
            assert_eq!(receive, 0, "of buffers, {wait:?}");
            assert!(send == 0 || wait != Wait::Always, "of frames");
        }
    }
}

/// A packed ring says nowhere in its memory how far it is: it began at its first base again.
#[test]
fn a_kick_descriptor_given_again_keeps_the_place_in_the_ring() {
    for features in [modern(), modern() | Features::RING_PACKED] {
        let bench = Bench::new(2, 1);
        let (mut one, mut other) = (bench.guest(0, features, 1), bench.guest(1, features, 1));
        for number in 0..40 {
            assert!(one.send(0, &[0; 12], &frame(2, 1, 60, number)));
            assert_eq!(until("a frame", || other.receive(0)).1[20], number);
            if number % 8 == 3 {
                for (guest, ring) in [(&mut one, 1), (&mut other, 0)] {
                    // A front end that keeps no inflight region.
                    rustix::io::pwrite(guest.inflight_file(), &[0; 4096], 0).unwrap();
                    guest.kick_anew(ring).unwrap();
                }
            }
        }
    }
}

/// What one worker copies is published behind what another has reserved before it, and a front end
/// that gives its memory anew waits for both.
#[test]
fn trains_of_two_workers_meet_at_a_ring() {
    for features in [modern(), modern() | Features::RING_PACKED] {
        let workers = vec![WorkerOptions { cpu: None }; 2];
        let options = SwitchOptions { workers, wait: Wait::Never, ..SwitchOptions::default() };
        let mut bench = Bench::on(Switch::start(options).unwrap(), TempDir::new().unwrap(), 3, 1);
        bench.switch.move_queue(bench.ports[1], 0, 1).unwrap();
        let mut receiver = bench.guest(2, features, 1);
        let mut senders = [0, 1].map(|number| bench.guest(number, features, 1));
        let [low, high] = 1460u16.to_le_bytes();
        // NEEDS_CSUM, TCP over IPv4, header length, segment size, start and offset of the checksum,
        // buffers.
        let header = [1, 1, 54, 0, low, high, 34, 0, 16, 0, 0, 0];
        let train = |flow: u8, number: u32| {
            let line = Segment { payload: 60_000, flow, ..Segment::parse(".") };
            let mut frame = line.frame().bytes;
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, flow]);
            frame[54..].fill(number as u8);
            frame[54..58].copy_from_slice(&number.to_le_bytes());
            frame
        };
        const TRAINS: u32 = 1500;
        assert!(receiver.send(0, &[0; 12], &frame(1, 3, 60, 0)));
        let (mut next, mut sent) = ([0; 2], [0; 2]);
        while next != [TRAINS; 2] {
            let before = next;
            until("more trains", || {
                for (flow, sender) in senders.iter_mut().enumerate() {
                    let more = sent[flow] < TRAINS && sent[flow] < next[flow] + 6;
                    if more && sender.send(0, &header, &train(flow as u8, sent[flow])) {
                        sent[flow] += 1;
                    }
                }
                while let Some((_, received)) = receiver.receive(0) {
                    let flow = usize::from(received[11]);
                    assert!(
                        received[54..] == train(flow as u8, next[flow])[54..],
                        "{flow} {next:?}"
                    );
                    next[flow] += 1;
                    if next[flow] % 50 == 0 {
                        receiver.give_memory().unwrap();
                    }
                }
                (next != before).then_some(())
            });
        }
        let counters = bench.switch.counters(bench.ports[2]).unwrap();
        assert_eq!(counters.drops.iter().sum::<u64>(), 0, "{counters:?}");
    }
}

#[test]
fn a_stopped_ring_says_where_it_is() {
    let bench = Bench::new(2, 1);
    let (mut one, mut other) = (bench.guest(0, modern(), 1), bench.guest(1, modern(), 1));
    for _ in 0..5 {
        assert!(one.send(0, &[0; 12], &frame(2, 1, 60, 0)));
        until("a frame", || other.receive(0));
    }
    assert_eq!(one.stop(1).unwrap(), 5);
    assert_eq!(other.stop(0).unwrap(), 5);
}

#[test]
fn a_guest_that_breaks_its_ring_breaks_its_own_vnic() {
    let mut bench = Bench::new(3, 1);
    let (mut one, mut other) = (bench.guest(0, modern(), 1), bench.guest(1, modern(), 1));
    let mut hostile = bench.guest(2, modern(), 1);
    // Descriptor 0 of the sending ring, which a frame of one buffer uses, points nowhere.
    assert!(hostile.send(0, &[0; 12], &frame(2, 3, 60, 0)));
    until("a frame", || other.receive(0));
    let rings = hostile.rings(1).unwrap();
    for place in 0..256 {
        let gpa = guestmem::Gpa(rings.descriptors.0 + 16 * place);
        hostile.memory().write(gpa, &u64::MAX.to_le_bytes());
    }
    // The index alone: the driver would write the descriptor anew.
    let index = guestmem::Gpa(rings.driver.0 + 2);
    hostile.memory().write(index, &2u16.to_le_bytes());
    assert!(one.send(0, &[0; 12], &frame(2, 1, 60, 7)));
    until("a frame", || other.receive(0));
    until("the guest found broken", || {
        hostile.kick(1);
        matches!(bench.sessions[2].status().state, State::Broken(_)).then_some(())
    });
    drop(hostile);
    let mut reformed =
        until("a new connection", || Guest::connect(&bench.path(2), modern().bits(), 1).ok());
    assert!(reformed.send(0, &[0; 12], &frame(2, 3, 60, 9)));
    assert_eq!(until("a frame", || other.receive(0)).1[20], 9);
    for port in bench.ports.drain(..) {
        bench.switch.remove_port(port).unwrap();
    }
}

#[test]
fn a_guest_that_counts_segments_is_told_how_many_a_train_has() {
    for counts in [true, false] {
        let folder = TempDir::new().unwrap();
        let path = |number: usize| folder.path().join(format!("vm{number}"));
        let mut switch = Switch::stepped(SwitchOptions::default());
        let rsc = Rsc { policy: RscPolicy::Ndis, ..Rsc::default() };
        let settings = PortSettings { mtu: 1500, rsc, ..PortSettings::default() };
        let opened = [0, 1].map(|number| vhost::open(&VhostOptions::new(path(number))).unwrap());
        let _sessions = opened.map(|opened| {
            let name = format!("vm{}", switch.ports().len());
            switch.add_port(&name, opened.device, settings.clone()).unwrap();
            opened.session
        });
        let mut one = Guest::connect(&path(0), modern().bits(), 1).unwrap();
        let mut wanted = modern();
        wanted.set(Features::RSC_EXT, counts);
        let mut other = Guest::connect(&path(1), wanted.bits(), 1).unwrap();
        for number in 0..10 {
            let line = Segment { sequence: number * 1000, payload: 1000, ..Segment::parse(".") };
            let mut header = [0; 12];
            header[0] = 2;
            assert!(one.send(0, &header, &line.frame().bytes));
        }
        switch.step(ports::Nanos(1_000_000_000));
        let (header, train) = other.receive(0).unwrap();
        assert_eq!(train.len(), 54 + 10_000);
        // TCP over IPv4, segments of 1000 bytes.
        assert_eq!((header[1], &header[4..6]), (1, &1000u16.to_le_bytes()[..]));
        let [_, _, _, _, _, _, start, _, offset, _, ..] = header;
        if counts {
            assert_eq!((header[0], start, offset), (4 | 2, 10, 0), "RSC_INFO and DATA_VALID");
        } else {
            assert_eq!((header[0], start, offset), (1, 34, 16), "NEEDS_CSUM");
        }
        assert!(other.receive(0).is_none());
    }
}

/// Sends until the sender's own ring is full, or `frames` are sent, on a clock that stands still;
/// how many.
fn send_all(switch: &mut Switch, from: &mut Guest, frames: usize, now: ports::Nanos) -> usize {
    (0..frames)
        .take_while(|number| {
            switch.step(now);
            from.send(0, &[0; 12], &frame(2, 1, 60, *number as u8))
        })
        .count()
}

/// If frames of an accomplice prolonged the time for which a receiver is waited for, it could hold
/// up others for as long as it likes.
#[test]
fn with_back_pressure_a_receiver_is_not_waited_for_by_what_others_send_it() {
    let folder = TempDir::new().unwrap();
    let mut switch = Switch::stepped(SwitchOptions::default());
    let [_victim, (receiver, _r), (accomplice, _a)] = [true, false, false].map(|back_pressure| {
        let name = format!("vm{}", switch.ports().len());
        let opened = vhost::open(&VhostOptions::new(folder.path().join(&name))).unwrap();
        let settings = PortSettings { mtu: 1500, back_pressure, ..PortSettings::default() };
        (switch.add_port(&name, opened.device, settings).unwrap(), opened.session)
    });
    let connect = |number| {
        let path = folder.path().join(format!("vm{number}"));
        Guest::connect(&path, modern().bits(), 1).unwrap()
    };
    let [mut sends, mut reads, mut helps] = [0, 1, 2].map(connect);
    let mut now = ports::Nanos(1_000_000_000);
    assert!(reads.send(0, &[0; 12], &frame(1, 2, 60, 0)));
    switch.step(now);
    send_all(&mut switch, &mut sends, 1000, now);
    for _ in 0..1000 {
        now = now + ports::Nanos(15_000);
        reads.receive(0);
        assert!(helps.send(0, &[0; 12], &frame(2, 3, 60, 0)));
        switch.step(now);
    }
    assert!(switch.counters(accomplice).unwrap().ingress_frames >= 1000);
    assert!(switch.counters(receiver).unwrap().egress_frames >= 1000);
    let dropped = switch.counters(receiver).unwrap().dropped();
    assert!(dropped > 0, "a wait of 15 ms, of 10 at most");
}

#[test]
fn with_back_pressure_what_finds_no_room_waits_at_its_sender() {
    for back_pressure in [false, true] {
        let folder = TempDir::new().unwrap();
        let mut switch = Switch::stepped(SwitchOptions::default());
        let path = |number: usize| folder.path().join(format!("vm{number}"));
        let open = |number| vhost::open(&VhostOptions::new(path(number))).unwrap();
        let settings = PortSettings { mtu: 1500, back_pressure, ..PortSettings::default() };
        let opened = [open(0), open(1)];
        let ids: Vec<_> = opened
            .into_iter()
            .zip(["a", "b"])
            .map(|(opened, name)| {
                (switch.add_port(name, opened.device, settings.clone()).unwrap(), opened.session)
            })
            .collect();
        let connect = |number| Guest::connect(&path(number), modern().bits(), 1).unwrap();
        let (mut one, mut other) = (connect(0), connect(1));
        let mut now = ports::Nanos(1_000_000_000);
        let sent = send_all(&mut switch, &mut one, 1000, now);
        let dropped = |switch: &Switch| switch.counters(ids[1].0).unwrap().dropped();
        switch.step(now);
        if !back_pressure {
            // Its 256 buffers, and no more.
            assert_eq!((sent, dropped(&switch)), (1000, 1000 - 256));
            continue;
        }
        assert!((256..1000).contains(&sent), "{sent}");
        // Once there is room again, all of it arrives. A waiting queue looks again after a moment.
        let mut received = 0;
        while received < sent {
            now = now + ports::Nanos(1_000_000);
            switch.step(now);
            while let Some((_, frame)) = other.receive(0) {
                assert_eq!(frame[20], received as u8);
                received += 1;
            }
        }
        assert_eq!(dropped(&switch), 0);
        // A guest that reads no more holds its sender up for 10 ms and then no longer.
        let sent = send_all(&mut switch, &mut one, 1000, now);
        switch.step(now + ports::Nanos(1_000_000));
        assert_eq!(dropped(&switch), 0);
        switch.step(now + ports::Nanos(12_000_000));
        assert!(dropped(&switch) > 0, "{sent} were sent");
        // Nor does it later, after a frame to another place in between, until it has taken some.
        let mut now = now + ports::Nanos(12_000_000);
        let mut send = |to| {
            assert!(one.send(0, &[0; 12], &frame(to, 1, 60, 0)));
            now = now + ports::Nanos(1_000_000);
            switch.step(now);
            switch.counters(ids[1].0).unwrap().dropped()
        };
        send(1);
        let before = send(2);
        assert_eq!([send(2), send(2)], [before + 1, before + 2]);
    }
}

/// Memory is plugged in and out, as far as KVM has slots, while frames go both ways: none is lost.
#[test]
fn memory_comes_and_goes_under_traffic() {
    for format in [Features::empty(), Features::RING_PACKED] {
        let bench = Bench::new(2, 1);
        let wanted = modern() | format;
        let (mut one, mut other) = (bench.guest(0, wanted, 1), bench.guest(1, wanted, 1));
        let slots = one.memory_slots().unwrap();
        assert_eq!(slots, 509);
        // One is the guest's own memory.
        for round in 0..2 * (slots - 1) {
            match round.checked_sub(slots - 1) {
                None => one.plug_memory(round).unwrap(),
                Some(number) => one.unplug_memory(number).unwrap(),
            }
            let sent = frame(2, 1, 60 + round as usize, round as u8);
            until("room to send", || one.send(0, &[0; 12], &sent).then_some(()));
            assert!(until("a frame", || other.receive(0)).1 == sent);
            until("room to answer", || {
                other.send(0, &[0; 12], &frame(1, 2, 60, round as u8)).then_some(())
            });
            assert!(until("an answer", || one.receive(0)).1 == frame(1, 2, 60, round as u8));
        }
        let counters = bench.switch.counters(bench.ports[1]).unwrap();
        assert_eq!(counters.dropped(), 0, "{counters:?}");
    }
}
