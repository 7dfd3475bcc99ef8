//! Guests of several queue pairs: every queue carries traffic both ways, with `steer = "rss"` and
//! with `steer = "follow"`.
//!
//! If all entries of the table name queue 0, only `follow` brings frames to the other queues. So
//! the story shows which of the two decides, and that a silent queue is noticed.

use crate::guest::Guest;
use crate::host::Host;
use crate::qemu::{self, Machine};
use crate::sandbox::{Need, story};
use crate::shell::Shell;
use crate::switch::Switch;
use crate::testpmd::{Form, Testpmd};
use crate::uml;
use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;
use waiting::eventually;

/// Least frames within [`LOOK`] of a queue that carries traffic. testpmd begins with 8 on each
/// queue, and then sends only what came by the same queue.
const BUSY: u64 = 200;
const LOOK: Duration = Duration::from_millis(300);

#[test]
fn all_eight_queues_of_dpdk_carry_traffic_both_ways() {
    story(&[Need::Guest("testpmd")], || {
        // With this key each queue gets the same number of testpmd's flows, which differ in one
        // byte.
        let port = |name: &str| {
            format!(
                "[[port]]\nname = '{name}'\nvhost-user = '/run/{name}.sock'\nqueues = 8\nsteer = 'rss'\n"
            )
        };
        let switch = Switch::start(&(port("a") + &port("b")));
        let form = Form { queues: 8, ..Form::default() };
        let mut testpmd = Testpmd::start("guest", &["/run/a.sock", "/run/b.sock"], form);
        busy(&switch, &mut testpmd, [8, 8]);
        switch.tell("rss set a --equal 7");
        busy(&switch, &mut testpmd, [7, 8]);
        for port in ["a", "b"] {
            switch.tell(&format!("port set {port} steer=follow"));
        }
        for port in ["a", "b"] {
            switch.tell(&format!("rss set {port} --equal 1"));
        }
        busy(&switch, &mut testpmd, [8, 8]);
    });
}

/// Waits until each of the first `queues` queues of `a` and `b` carries traffic, and the others
/// have become silent.
fn busy(switch: &Switch, testpmd: &mut Testpmd, queues: [usize; 2]) {
    let mut seen = [vec![], vec![]];
    let are_so = || {
        // Frames that were under way while a ring was full are lost.
        testpmd.burst();
        thread::sleep(LOOK);
        let before = ["a", "b"].map(|port| taken(switch, port));
        thread::sleep(LOOK);
        seen = ["a", "b"].map(|port| taken(switch, port));
        seen.iter_mut().zip(before).for_each(|(now, before)| subtract(now, &before));
        let is_so = |(frames, queues): (&Vec<u64>, usize)| {
            let (carrying, silent) = frames.split_at(queues);
            carrying.iter().all(|frames| *frames > BUSY) && silent.iter().all(|frames| *frames == 0)
        };
        seen.iter().zip(queues).all(is_so).then_some(())
    };
    assert!(eventually(are_so).is_some(), "{queues:?} queues are to carry traffic: {seen:?}");
}

#[test]
fn all_four_queues_of_an_emulated_machine_carry_traffic_both_ways() {
    story(&[Need::Guest("qemu"), Need::Tap], || {
        if qemu::old() {
            println!("skipped: needs QEMU 8 or newer, whose vNICs have interrupt vectors");
            return;
        }
        let (switch, mut guest) = linux(|| Machine::boot_wide("vm", &["vm"], 4).guest);
        for (steer, entries, receiving) in [("rss", 1, 1), ("rss", 4, 4), ("follow", 1, 4)] {
            switch.tell(&format!("port set vm steer={steer}"));
            switch.tell(&format!("rss set vm --equal {entries}"));
            let before = [taken(&switch, "vm"), received(&mut guest)];
            let mut seen = [vec![], vec![]];
            let are_so = || {
                guest.run(CONNECT);
                seen = [taken(&switch, "vm"), received(&mut guest)];
                seen.iter_mut().zip(&before).for_each(|(now, before)| subtract(now, before));
                let carry = |frames: &[u64]| frames.iter().all(|frames| *frames > 0);
                (carry(&seen[0]) && carry(&seen[1][..receiving])).then_some(())
            };
            assert!(eventually(are_so).is_some(), "{steer}, {receiving} to receive: {seen:?}");
            assert!(seen[1][receiving..].iter().all(|frames| *frames == 0), "{steer}: {seen:?}");
        }
    });
}

/// The guest's kernel does not show by which queue frames come, so all entries of the table name one
/// queue at a time.
#[test]
fn all_four_queues_of_user_mode_linux_carry_traffic_both_ways() {
    story(&[Need::Guest("uml"), Need::Tap], || {
        let (switch, mut guest) = linux(|| uml::boot("vm", &["/run/vm.sock"]));
        for steer in ["rss", "follow"] {
            switch.tell(&format!("port set vm steer={steer}"));
            let before = taken(&switch, "vm");
            for queue in 0..4 {
                let entries: Vec<_> = (0..128).map(|entry| format!("{entry}={queue}")).collect();
                switch.tell(&format!("rss set vm --entry {}", entries.join(",")));
                guest.run(CONNECT);
            }
            let mut frames = taken(&switch, "vm");
            subtract(&mut frames, &before);
            assert!(frames.iter().all(|frames| *frames > 0), "{steer}: {frames:?}");
        }
    });
}

/// Linux sets a table as soon as it is offered one, takes hash reports beside it, and asks for packed
/// rings. Its queues are told apart by their threads.
#[test]
fn user_mode_linux_receives_by_the_table_that_its_driver_sets() {
    story(&[Need::Guest("uml"), Need::Tap], || {
        let (switch, mut guest) = linux(|| uml::boot("vm", &["/run/vm.sock"]));
        let port = switch.ask("port show vm");
        let taken = port["guest"]["taken"].as_array().unwrap();
        assert!(["rss", "hash-report"].iter().all(|name| taken.iter().any(|it| it == name)));
        guest.run("echo 1 >/sys/class/net/eth0/threaded");
        guest.run(CONNECT);
        let tables = [
            ("equal 1", [true, false, false, false]),
            ("weight 0 0 0 1", [false, false, false, true]),
            ("weight 0 1 1 0", [false, true, true, false]),
            ("equal 4", [true; 4]),
        ];
        for (table, receiving) in tables {
            guest.run(&format!("ethtool -X eth0 {table}"));
            let rss = switch.ask("rss show vm");
            assert_eq!(rss[0]["guest"]["in_force"], true, "{rss}");
            let mut seen = vec![];
            let are_so = || {
                let before = wakes(&mut guest);
                guest.run(CONNECT);
                seen = wakes(&mut guest);
                subtract(&mut seen, &before);
                // Frames without a hash, such as ARP, lead to queue 0.
                let few = seen.iter().sum::<u64>() / 16;
                let is_so = |(wakes, receives): (&u64, bool)| (*wakes > few) == receives;
                seen.iter().zip(receiving).all(is_so).then_some(())
            };
            assert!(eventually(are_so).is_some(), "{table}: {seen:?}");
        }
        guest.run("ethtool -C eth0 rx-usecs 200 rx-frames 64");
        guest.run(CONNECT);
        switch.tell("port set vm steer=rss");
        assert_eq!(switch.ask("rss show vm")[0]["guest"]["in_force"], false);
        guest.run(CONNECT);
    });
}

/// Returns how often the thread of each receiving queue of a Linux guest went to sleep.
fn wakes(guest: &mut Guest) -> Vec<u64> {
    let threads = "for p in /proc/[0-9]*; do \
        grep -q napi/eth0 $p/comm && echo $(cat $p/comm) $(grep ^voluntary $p/status); done; true";
    let text = guest.run(threads);
    let of = |line: &str| {
        let mut words = line.split_whitespace();
        let number: u32 = words.next()?.strip_prefix("napi/eth0-")?.parse().ok()?;
        // Those of sending queues have no number.
        (number > 0).then_some((number, words.nth(1)?.parse().ok()?))
    };
    let mut all: Vec<(u32, u64)> = text.lines().filter_map(of).collect();
    all.sort_unstable();
    assert_eq!(all.len(), 4, "{text}");
    all.into_iter().map(|(_, wakes)| wakes).collect()
}

/// Starts a Linux guest of four queue pairs at the port `vm`, and a host that echoes its bytes.
fn linux(boot: impl FnOnce() -> Guest) -> (Switch, Guest) {
    let far = Host::new("far");
    let switch = Switch::start(
        "[[port]]\nname = 'vm'\nvhost-user = '/run/vm.sock'\nqueues = 4\nmac = '52:54:00:00:00:01'\n\
         [[port]]\nname = 'far'\ntap = 'tap0'\nnetns = 'far'\n",
    );
    far.assign_addresses("tap0", 9);
    echo(&far);
    let mut guest = boot();
    guest.run("ethtool -L eth0 combined 4");
    guest.assign_addresses("eth0", 1);
    guest.run("head -c 65536 /bin/busybox >/tmp/sent");
    (switch, guest)
}

/// Opens connections, the same number from each processor, and checks that their bytes come back.
const CONNECT: &str = "i=0; while [ $i -lt 16 ]; do \
    taskset -c $((i % $(nproc))) nc 10.9.0.9 7000 </tmp/sent | cmp - /tmp/sent || exit 1; \
    i=$((i + 1)); done";

/// Starts a server on port 7000 of a host that sends back what it gets.
fn echo(host: &Host) {
    let listener = host.within(|| TcpListener::bind(("0.0.0.0", 7000))).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || io::copy(&mut &stream, &mut &stream).unwrap());
        }
    });
}

/// Returns the number of frames that the switch took from each queue of a port.
fn taken(switch: &Switch, port: &str) -> Vec<u64> {
    let queues = switch.ask(&format!("queue show {port}"));
    queues.as_array().unwrap().iter().map(|queue| queue["frames"].as_u64().unwrap()).collect()
}

/// Returns the interrupts of each of the guest's receive queues: at least one if frames came.
fn received(guest: &mut Guest) -> Vec<u64> {
    let all = guest.run("cat /proc/interrupts");
    // The format is `25:  7  0  4  0  PCI-MSI …  virtio0-input.1`, with a column per processor.
    let count = |line: &str| {
        let counts = line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        counts.sum()
    };
    let queue = |number: usize| {
        let name = format!("-input.{number}");
        let line = all.lines().find(|line| line.ends_with(&name));
        line.map(count).unwrap_or_else(|| panic!("{name}: {all}"))
    };
    (0..4).map(queue).collect()
}

fn subtract(frames: &mut [u64], before: &[u64]) {
    frames.iter_mut().zip(before).for_each(|(frames, before)| *frames -= before);
}
