//! What a rehearsal says of frames is what the switch then does with them: what leaves by which
//! queue, byte for byte, every counter of every port, drops by reason among them, which rule
//! decided, and what is learned.

use crate::common::{ALL, Bench, access, plain, rsc, trunk};
use crate::frames::{Frame, mac};
use bolero::TypeGenerator;
use datapath::{
    AclAction, AclEnd, AclMark, AclProtocol, AclRule, DropReason, Guards, MacEntry, PathMtu,
    PortCounters, PortId, PortRole, PortSettings, Prefix, Rehearsal, RscPolicy, Rss, Steer,
    StormLimit, Switch, SwitchOptions,
};
use ports::capture::Direction;
use ports::memory::{self, MemoryFrame};
use ports::{Nanos, Offloads};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wire::Mac;

/// Number of queues of each port, by number.
const QUEUES: [u16; 9] = [1, 4, 1, 1, 1, 2, 1, 1, 3];

/// Returns a switch with ports that together have every setting that decides about a frame.
#[allow(clippy::too_many_lines, reason = "a table of ports")]
fn world() -> Bench {
    let own = |number: u8, settings: PortSettings| PortSettings {
        mac: Some(Mac(mac(number))),
        ..settings
    };
    let rule = |action, direction, protocol| {
        let (from, to) =
            (AclEnd::default(), AclEnd { ports: Some(0..=30_000), ..AclEnd::default() });
        AclRule { action, direction, protocol, from, to }
    };
    let follow = Rss { steer: Steer::Follow, ..Rss::default() };
    let own_addresses = Prefix::new([10, 0, 0, 0].into(), 24).into_iter().collect();
    let guards = Guards { dhcp: true, router: true, addresses: Some(own_addresses) };
    let mark = AclMark { dscp: Some(46), pcp: Some(5) };
    let acl = vec![
        rule(AclAction::Mark(mark), Direction::Ingress, AclProtocol::Ip(17)),
        rule(AclAction::Deny, Direction::Ingress, AclProtocol::Ip(6)),
        rule(AclAction::Deny, Direction::Egress, AclProtocol::Ip(17)),
    ];
    let storm = StormLimit { frames_per_second: 50_000, bytes_per_second: 50_000_000 };
    let uplink = PortSettings { role: PortRole::Uplink, ..trunk(0, &[10, 20]) };
    let settings = [
        (PortSettings { rsc: rsc(RscPolicy::Gro), ..uplink.clone() }, ALL),
        (PortSettings { rsc: rsc(RscPolicy::Ndis), rss: follow, ..own(1, access(10)) }, ALL),
        (PortSettings { guards, acl, ..access(10) }, Offloads::CSUM),
        (
            PortSettings { mac_guard: true, rate_to: Some(2_000_000), ..trunk(20, &[10]) },
            Offloads::empty(),
        ),
        (PortSettings { isolated: true, mac_limit: 2, storm: Some(storm), ..plain() }, ALL),
        (
            PortSettings {
                mtu: 900,
                path_mtu: PathMtu::On,
                isolated: true,
                ..own(5, trunk(0, &[10]))
            },
            ALL,
        ),
        (
            PortSettings { mirror_to: Some(PortId(7)), ..trunk(10, &[4, 20]) },
            Offloads::CSUM | Offloads::TSO4,
        ),
        (trunk(0, &[1, 4, 10, 20]), Offloads::empty()),
        (PortSettings { rss: follow, mac_limit: 5, ..trunk(0, &[10, 20]) }, ALL),
    ];
    let mut bench = Bench::new(&[]);
    bench.switch = Switch::stepped(SwitchOptions { mac_entries: 256, ..SwitchOptions::default() });
    for ((settings, offloads), queues) in settings.into_iter().zip(QUEUES) {
        let open = || memory::open(1 << 20, offloads, settings.mtu).unwrap();
        let (devices, peers): (Vec<_>, Vec<_>) = (0..queues).map(|_| open()).unzip();
        let mut devices = devices.into_iter();
        let mut device = devices.next().unwrap();
        for more in devices {
            device.ingress.extend(more.ingress);
            device.egress.extend(more.egress);
        }
        device.live.set_queues(queues);
        let name = format!("p{}", bench.ids.len());
        bench.ids.push(bench.switch.add_port(&name, device, settings).unwrap());
        bench.peers.extend(peers);
    }
    bench
}

/// What is seen of a turn.
#[derive(Debug, PartialEq, Default)]
struct Seen {
    /// By port and queue.
    left: BTreeMap<(u16, usize), Vec<Vec<u8>>>,
    /// By port, in the order of the fields.
    counters: Vec<Vec<u64>>,
    hits: Vec<Vec<u64>>,
    macs: Vec<(String, u16, PortId)>,
}

/// Returns all counters, in the order of the fields.
fn numbers(counters: &PortCounters) -> Vec<u64> {
    let text = format!("{counters:?}");
    let numbers = text.split(|letter: char| !letter.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

fn since(now: &[u64], before: &[u64]) -> Vec<u64> {
    now.iter().zip(before).map(|(now, before)| now - before).collect()
}

fn bytes(frame: &MemoryFrame) -> Vec<u8> {
    [format!("{:?} ", frame.vnet).as_bytes(), &frame.bytes].concat()
}

fn known(mut macs: Vec<MacEntry>, named: &[MemoryFrame]) -> Vec<(String, u16, PortId)> {
    macs.retain(|entry| {
        named.iter().any(|frame| frame.bytes.chunks(6).take(2).any(|mac| mac == entry.mac.0))
    });
    let mut macs: Vec<_> = macs.iter().map(|it| (it.mac.to_string(), it.vlan, it.port)).collect();
    macs.sort();
    macs
}

/// Returns the result of a rehearsal.
fn rehearsed(bench: &Bench, from: PortId, frames: &[MemoryFrame], now: Nanos) -> Seen {
    let mut rehearsal: Rehearsal = bench.switch.snapshot(from, frames.to_vec(), now).rehearse();
    assert_eq!(rehearsal.turn(frames.len()), frames.len());
    let mut seen = Seen { macs: known(rehearsal.macs(), frames), ..Seen::default() };
    for port in &bench.ids {
        for (queue, frame) in rehearsal.received(*port) {
            seen.left.entry((port.0, queue)).or_default().push(bytes(&frame));
        }
        seen.counters.push(numbers(&rehearsal.switch().counters(*port).unwrap()));
        seen.hits.push(rehearsal.switch().acl_hits(*port));
    }
    seen
}

/// Returns the result of the switch itself.
fn done(bench: &mut Bench, from: usize, frames: &[MemoryFrame], now: Nanos) -> Seen {
    let counters = |bench: &Bench, port| numbers(&bench.switch.counters(port).unwrap());
    let before: Vec<_> = bench.ids.iter().map(|port| counters(bench, *port)).collect();
    let hits: Vec<_> = bench.ids.iter().map(|port| bench.switch.acl_hits(*port)).collect();
    let first = QUEUES[..from].iter().sum::<u16>() as usize;
    frames.iter().for_each(|frame| assert!(bench.peers[first].send(frame.vnet, &frame.bytes)));
    let mut left = frames.len();
    while left > 0 {
        left -= bench.switch.step(now);
    }
    // What is above a port's `rate-to` leaves later; a rehearsal does not wait for it.
    for later in 1..64 {
        bench.switch.step(now + Nanos(later * 20_000_000));
    }
    let mut seen = Seen::default();
    let mut peer = 0;
    for ((port, queues), (before, old)) in
        bench.ids.clone().iter().zip(QUEUES).zip(before.iter().zip(&hits))
    {
        for queue in 0..usize::from(queues) {
            let received = bench.received(peer);
            if !received.is_empty() {
                seen.left.insert((port.0, queue), received.iter().map(bytes).collect());
            }
            peer += 1;
        }
        seen.counters.push(since(&counters(bench, *port), before));
        seen.hits.push(since(&bench.switch.acl_hits(*port), old));
    }
    seen.macs = known(bench.switch.macs(), frames);
    seen
}

/// Some frames that enter by a port in one burst, a while after the last.
#[derive(Clone, Debug, TypeGenerator)]
struct Arrival {
    from: u8,
    after: u16,
    count: u8,
    frames: [Frame; 3],
}

/// Frames so far, and drops by reason.
static MET: Mutex<(usize, [u64; DropReason::ALL.len()])> =
    Mutex::new((0, [0; DropReason::ALL.len()]));

/// Returns all drops, by reason.
fn drops(bench: &Bench) -> Vec<u64> {
    let mut all = vec![0; DropReason::ALL.len()];
    for port in &bench.ids {
        let drops = bench.switch.counters(*port).unwrap().drops;
        all.iter_mut().zip(drops).for_each(|(all, more)| *all += more);
    }
    all
}

/// As many as the test is about: how many a case has is up to chance.
const ENOUGH: usize = 10_000;

/// Rehearses the arrivals and then has them arrive, one after the other.
fn arrive(arrivals: &[Arrival]) {
    let mut bench = world();
    for arrival in arrivals {
        if MET.lock().unwrap_or_else(PoisonError::into_inner).0 >= ENOUGH {
            return;
        }
        let from = usize::from(arrival.from) % bench.ids.len();
        let frames = arrival.frames.iter().take(1 + usize::from(arrival.count) % 3);
        let build = |(id, frame): (u32, &Frame)| {
            let (vnet, bytes) = frame.build(from as u8, id);
            MemoryFrame { vnet, bytes }
        };
        let frames: Vec<_> = (0..).zip(frames).map(build).collect();
        bench.now = bench.now + Nanos(u64::from(arrival.after) * 1000);
        let now = bench.now;
        let before = drops(&bench);
        let said = rehearsed(&bench, bench.ids[from], &frames, now);
        let did = done(&mut bench, from, &frames, now);
        assert_eq!(said, did, "{arrival:?}");
        let mut met = MET.lock().unwrap_or_else(PoisonError::into_inner);
        met.0 += frames.len();
        let more = since(&drops(&bench), &before);
        met.1.iter_mut().zip(more).for_each(|(all, more)| *all += more);
    }
}

#[test]
fn a_rehearsal_says_what_10_000_random_frames_then_meet() {
    bolero::check!()
        .with_iterations(250)
        .with_shrink_time(Duration::from_secs(2))
        .with_max_len(16_384)
        .with_type::<Vec<Arrival>>()
        .for_each(|arrivals| arrive(arrivals));
    let (frames, met) = *MET.lock().unwrap_or_else(PoisonError::into_inner);
    let met: Vec<_> = DropReason::ALL.iter().zip(met).filter(|(_, drops)| *drops > 0).collect();
    println!("{frames} frames, dropped for {} reasons: {met:?}", met.len());
    assert!(frames >= ENOUGH, "only {frames} frames");
    assert!(met.len() >= 12, "only {met:?}");
}
