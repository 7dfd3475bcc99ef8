//! Resources that an idle switch takes. The bounds are on resources, not on speed.

use crate::sandbox::{Need, run, story};
use crate::switch::Switch;
use std::thread;
use std::time::Duration;
use waiting::until;

/// Limit for the resident memory with 16 ports, in KiB, without rings.
const MOST_MEMORY: u64 = 64 << 10;
/// A ring of a packet port, in KiB.
const RING: u64 = 8 << 10;
/// Seconds for which processor time is measured.
const SECONDS: u64 = 5;

#[test]
fn sixteen_idle_ports_take_little_memory_and_no_processor() {
    story(&[Need::Tap], || {
        // Router solicitations are turned off, so that hosts are idle.
        run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        let ports: String =
            (0..16).map(|n| format!("[[port]]\nname = 'vm{n}'\ntap = 'tap{n}'\n")).collect();
        is_idle(&Switch::start(&ports), 16, MOST_MEMORY);
    });
}

/// What a large host has without a key of ours: four workers, ports of several queues that may move,
/// and guests that have not come.
#[test]
fn four_workers_sleep_beside_queues_that_may_move() {
    story(&[Need::Tap], || {
        run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        run("ip link add up0 type veth peer name up1");
        run("ip link set up0 up");
        run("ip link set up1 up");
        let guests: String = (0..8)
            .map(|n| {
                format!(
                    "[[port]]\nname = 'tap{n}'\ntap = 'tap{n}'\n\
                     [[port]]\nname = 'vm{n}'\nvhost-user = '/run/vm{n}.sock'\n"
                )
            })
            .collect();
        let switch = Switch::start(&format!(
            "[switch]\nworkers = 4\n[[port]]\nname = 'up'\npacket = 'up0'\n{guests}"
        ));
        is_idle(&switch, 9, MOST_MEMORY + 4 * RING);
        let queues = switch.ask("queue show");
        let of = |port| queues.as_array().unwrap().iter().filter(|it| it["port"] == port).count();
        assert_eq!((of("vm3"), of("up")), (8, 4));
        let moving = switch.ask("port show tap0")["config"]["vmmq"].clone();
        assert!(moving.is_null(), "the default");
    });
}

/// Asserts that a switch takes little while nothing arrives.
fn is_idle(switch: &Switch, up: u64, most_memory: u64) {
    until("all ports are up", || (switch.ask("status")["switch"]["ports_up"] == up).then_some(()));
    let before = processor_time(switch);
    thread::sleep(Duration::from_secs(SECONDS));
    let used = processor_time(switch) - before;
    assert!(resident(switch) < most_memory, "{} KiB are resident", resident(switch));
    // One tick is 10 ms, so one per cent of a second.
    assert!(used <= SECONDS, "{used} ticks of 10 ms in {SECONDS} s");
}

/// Returns user and system time in ticks: fields 14 and 15 of `/proc/PID/stat`.
pub(crate) fn processor_time(switch: &Switch) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", switch.process())).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Returns `VmRSS`, in KiB.
fn resident(switch: &Switch) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", switch.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
