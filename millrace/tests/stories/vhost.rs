//! DPDK guests through the switch: every form of the rings, and either side lost in the middle of
//! the traffic.

use crate::idle::processor_time;
use crate::sandbox::{Need, story};
use crate::switch::Switch;
use crate::testpmd::{Form, Testpmd};
use rustix::process::Signal;
use std::thread;
use std::time::Duration;
use waiting::until;

const NEEDS: [Need; 1] = [Need::Guest("testpmd")];
const SOCKETS: [&str; 2] = ["/run/a.sock", "/run/b.sock"];

#[test]
fn split_rings() {
    story(&NEEDS, || forms(&["", ",mrg_rxbuf=0", ",in_order=0", ",mrg_rxbuf=0,in_order=0"]));
}

#[test]
fn packed_rings() {
    story(&NEEDS, || {
        forms(&[",packed_vq=1", ",packed_vq=1,mrg_rxbuf=0", ",packed_vq=1,in_order=0"]);
    });
}

#[test]
fn vectorized_drivers() {
    let packed = ",packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1";
    story(&NEEDS, || forms(&[",mrg_rxbuf=0,in_order=0,vectorized=1", packed]));
}

#[test]
fn two_to_eight_queues() {
    story(&NEEDS, || {
        let switch = Switch::start(&ports("queues = 8\n"));
        for queues in [2, 4, 8] {
            let form = Form { queues, ..Form::default() };
            let mut testpmd = Testpmd::start("guest", &SOCKETS, form);
            flows(&switch, &mut testpmd);
            let shown = switch.ask("port show a");
            assert_eq!(shown["guest"]["queues"], queues, "{}", shown["guest"]);
        }
    });
}

#[test]
fn a_guest_that_crashes_comes_back() {
    story(&NEEDS, || {
        let switch = Switch::start(&ports(""));
        for _ in 0..3 {
            let mut testpmd = Testpmd::start("guest", &SOCKETS, Form::default());
            flows(&switch, &mut testpmd);
            testpmd.kill();
            let reason = switch.wait_for("a", "down");
            assert!(reason.contains("waiting for a guest to connect to /run/a.sock"), "{reason}");
            let left = || {
                let events = switch.ask("status")["switch"]["events"].to_string();
                events.contains("port a: its guest disconnected").then_some(())
            };
            until("an event tells that the guest is gone", left);
        }
    });
}

#[test]
fn a_switch_that_is_killed_is_followed_by_another_under_a_listening_guest() {
    story(&NEEDS, || {
        let configuration = ports("vhost-client = true\n");
        let mut switch = Switch::start(&configuration);
        let reason = switch.wait_for("a", "down");
        assert!(reason.contains("waiting for a guest to listen on /run/a.sock"), "{reason}");
        let form = Form { listens: true, ..Form::default() };
        let mut testpmd = Testpmd::start("guest", &SOCKETS, form);
        for _ in 0..3 {
            flows(&switch, &mut testpmd);
            switch.end(Signal::KILL);
            switch = Switch::start(&configuration);
        }
        flows(&switch, &mut testpmd);
    });
}

#[test]
fn a_port_shows_what_its_guest_took() {
    story(&NEEDS, || {
        let switch = Switch::start(&ports(""));
        let before = switch.ask("port show a");
        assert_eq!(
            (&before["guest"]["connected"], &before["state"]),
            (&false.into(), &"down".into())
        );
        let form = Form { options: ",mrg_rxbuf=0", ..Form::default() };
        let mut testpmd = Testpmd::start("guest", &SOCKETS, form);
        flows(&switch, &mut testpmd);
        let shown = switch.ask("port show a");
        let has = |list: &str, name: &str| {
            shown["guest"][list].as_array().unwrap().iter().any(|taken| taken == name)
        };
        assert!(has("offered", "mrg-rxbuf") && !has("taken", "mrg-rxbuf"), "{}", shown["guest"]);
        assert!(has("taken", "version-1"), "{}", shown["guest"]);
        assert_eq!(shown["guest"]["queues"], 1);
        let follows = shown["guest"]["follows"].to_string();
        assert!(follows.contains("one of its receive buffers"), "{follows}");
        // testpmd takes no trains unless told to.
        assert!(follows.contains("no TCP trains over IPv4"), "{follows}");
        let rsc = &switch.ask("rsc show a")[0];
        assert_eq!(rsc["IPv4OperationalState"], false, "{rsc}");
        assert_eq!(rsc["IPv4FailureReason"], "Capability", "{rsc}");
    });
}

/// Processor time comes in ticks of 10 ms: a hundred a second.
#[test]
fn between_silent_guests_the_switch_sleeps_unless_it_is_to_poll() {
    const SECONDS: u64 = 3;
    story(&NEEDS, || {
        for poll in ["never", "adaptive", "always"] {
            let switch = Switch::start(&format!("[switch]\npoll = '{poll}'\n{}", ports("")));
            let mut testpmd = Testpmd::start("guest", &SOCKETS, Form::default());
            flows(&switch, &mut testpmd);
            testpmd.rest();
            let taken = || switch.counter("a", "/ingress_frames");
            until("silence", || {
                let before = taken();
                thread::sleep(Duration::from_millis(200));
                (taken() == before).then_some(())
            });
            let before = processor_time(&switch);
            thread::sleep(Duration::from_secs(SECONDS));
            let used = processor_time(&switch) - before;
            if poll == "always" {
                // At least a tenth, because other programs use the processors too.
                assert!(used > 10 * SECONDS, "{used} ticks, polling");
            } else {
                assert!(used <= SECONDS, "{used} ticks, poll = {poll}");
            }
            drop(testpmd);
            assert!(switch.end(Signal::TERM).success());
        }
    });
}

fn forms(all: &[&'static str]) {
    let switch = Switch::start(&ports(""));
    for options in all {
        let form = Form { options, ..Form::default() };
        flows(&switch, &mut Testpmd::start("guest", &SOCKETS, form));
    }
}

/// Returns the two ports, with more keys for each.
fn ports(more: &str) -> String {
    let port = |name| format!("[[port]]\nname = '{name}'\nvhost-user = '/run/{name}.sock'\n{more}");
    format!("{}{}", port('a'), port('b'))
}

/// Waits until frames go round: each port has sent and received many more frames than the guest
/// started with.
fn flows(switch: &Switch, testpmd: &mut Testpmd) {
    let count = || {
        ["a", "b"].map(|port| {
            let frames = |path| switch.counter(port, path);
            frames("/ingress_frames").min(frames("/egress_frames"))
        })
    };
    let before = count();
    until("frames go round", || {
        // Frames that were under way while one side was absent are lost.
        testpmd.burst();
        thread::sleep(Duration::from_millis(200));
        count().iter().zip(before).all(|(now, before)| *now > before + 10_000).then_some(())
    });
    for port in ["a", "b"] {
        assert_eq!(switch.wait_for(port, "up"), "");
    }
}
