//! Dynamic VMMQ with a guest of four queues. They spread over the workers while it sends much, and
//! share one when it is idle. Each flow's frames arrive once and in order meanwhile.
//!
//! The guest broadcasts to a listener and to many bystanders, so that a frame costs its worker many
//! times what it costs the guest: the switch is the bottleneck on any machine. Storm control, which
//! would drop the broadcasts, is off. Never are more frames sent than the kernel's queues have room
//! for.

use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::switch::{Switch, cli};
use serde_json::Value;
use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use waiting::until;

/// Enough flows to use several queues.
const FLOWS: usize = 8;
/// Most frames of a flow under way: all flows together fit into one queue of the TAP, and a flow's
/// frames into its socket.
const WINDOW: u32 = 48;
/// Ports that get each frame and ignore it.
const BYSTANDERS: usize = 16;
/// Port of the first flow.
const PORT: u16 = 7000;

#[test]
fn queues_spread_while_a_guest_sends_much_and_come_together_when_it_is_idle() {
    story(&[Need::Tap], || {
        let [guest, far, hall] = ["guest", "far", "hall"].map(Host::new);
        hall.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        let bystander = |n| format!("[[port]]\nname = 'b{n}'\ntap = 'b{n}'\nnetns = 'hall'\n");
        let bystanders: String = (0..BYSTANDERS).map(bystander).collect();
        let switch = Switch::start(&format!(
            "[switch]\nworkers = 2\n\
             [[port]]\nname = 'guest'\ntap = 'tap0'\nnetns = 'guest'\nqueues = 4\nvmmq = 'dynamic'\nstorm = 'off'\n\
             [[port]]\nname = 'far'\ntap = 'tap1'\nnetns = 'far'\n{bystanders}"
        ));
        guest.assign_addresses("tap0", 2);
        far.assign_addresses("tap1", 1);
        (0..BYSTANDERS).for_each(|n| drop(hall.run(&format!("ip link set b{n} up"))));
        switch.wait_for("guest", "up");
        switch.wait_for("far", "up");
        switch.wait_for(&format!("b{}", BYSTANDERS - 1), "up");

        until("an idle guest's queues are on one worker", || {
            (in_use(&switch).len() == 1).then_some(())
        });
        let traffic = Traffic::default();
        thread::scope(|scope| {
            let receivers: Vec<_> = (0..FLOWS)
                .map(|flow| {
                    scope.spawn({
                        let socket =
                            far.within(|| UdpSocket::bind(("0.0.0.0", port(flow)))).unwrap();
                        let traffic = &traffic;
                        move || traffic.receive(flow, &socket)
                    })
                })
                .collect();
            scope.spawn(|| traffic.send(&guest));
            let ended = End(&traffic.is_over);
            until("a busy guest's queues are on two workers", || {
                assert!(!receivers.iter().any(thread::ScopedJoinHandle::is_finished));
                (in_use(&switch).len() == 2).then_some(())
            });
            // Both workers carry part of the traffic.
            let before = traffic.sent();
            until("it goes on", || (traffic.sent() > before + 1000).then_some(()));
            drop(ended);
        });
        assert_eq!(traffic.arrived(), traffic.sent(), "frames of each flow");
        until("a guest's queues that have become idle are on one worker", || {
            (in_use(&switch).len() == 1).then_some(())
        });
        explained(&switch);
    });
}

/// Returns the workers that serve the guest's queues.
fn in_use(switch: &Switch) -> HashSet<u64> {
    owners(switch).into_iter().collect()
}

/// Returns the worker of each queue of the guest.
fn owners(switch: &Switch) -> Vec<u64> {
    let queues = switch.ask("queue show guest");
    queues.as_array().unwrap().iter().map(|queue| queue["worker"].as_u64().unwrap()).collect()
}

/// Checks that the moves lead from where each queue was to where it is, and give reasons.
fn explained(switch: &Switch) {
    let (moves, owners) = (switch.ask("vmmq explain guest"), owners(switch));
    let moves = moves.as_array().unwrap();
    let text = String::from_utf8(cli("vmmq explain guest").stdout).unwrap();
    for (queue, owner) in owners.iter().enumerate() {
        let item = format!("queue {queue}");
        let own: Vec<&Value> = moves.iter().filter(|moved| moved["item"] == item).collect();
        assert!(own.windows(2).all(|pair| pair[0]["to"] == pair[1]["from"]), "{own:?}");
        assert!(own.iter().all(|moved| moved["from"] != moved["to"]), "{own:?}");
        assert!(own.last().is_none_or(|last| last["to"] == *owner), "{owner}: {own:?}");
    }
    let number = |moved: &Value, path: &str| moved.pointer(path).unwrap().as_f64().unwrap();
    let (together, apart): (Vec<&Value>, Vec<&Value>) =
        moves.iter().partition(|moved| moved["reason"] == "coalesce");
    assert!(!together.is_empty() && !apart.is_empty(), "{text}");
    // A worker gives away several queues, one after the other. The first was one too many.
    let first = apart[0];
    assert!(number(first, "/from_load/0") > number(first, "/threshold"), "{first}");
    for moved in apart {
        let threshold = number(moved, "/threshold");
        assert!(threshold > 0.5, "{moved}");
        let percent = format!("above {:.0} %", 100.0 * threshold);
        assert!(moved["text"].as_str().unwrap().contains(&percent), "{moved}");
    }
    assert!(
        together.iter().all(|moved| number(moved, "/to_load/1") <= number(moved, "/threshold"))
    );
    assert!(moves.iter().all(|moved| text.contains(moved["text"].as_str().unwrap())), "{text}");
}

fn port(flow: usize) -> u16 {
    PORT + u16::try_from(flow).unwrap()
}

/// Sends and receives numbered frames, flow by flow.
#[derive(Default)]
struct Traffic {
    sent: [AtomicU32; FLOWS],
    arrived: [AtomicU32; FLOWS],
    /// Tells the sender to stop.
    is_over: AtomicBool,
    /// Whether the sender has stopped.
    is_sent: AtomicBool,
}

/// Stops the sender on drop, so also when an assertion fails.
struct End<'t>(&'t AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Traffic {
    /// Sends as much as there is room for. Begins slowly: the switch has to learn what such frames
    /// cost.
    fn send(&self, guest: &Host) {
        let socket = |_| {
            let socket = guest.within(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap();
            socket.set_broadcast(true).unwrap();
            socket
        };
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(socket).collect();
        while !self.is_over.load(SeqCst) {
            for (flow, socket) in sockets.iter().enumerate() {
                let (sent, arrived) =
                    (self.sent[flow].load(SeqCst), self.arrived[flow].load(SeqCst));
                if sent - arrived < WINDOW.min(1 + arrived / 4) {
                    let to = ("10.9.0.255", port(flow));
                    socket.send_to(&sent.to_be_bytes(), to).unwrap();
                    self.sent[flow].store(sent + 1, SeqCst);
                }
            }
            thread::yield_now();
        }
        self.is_sent.store(true, SeqCst);
    }

    /// Receives until all sent frames have arrived, or none arrive any more.
    fn receive(&self, flow: usize, socket: &UdpSocket) {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (mut bytes, mut quiet) = ([0; 4], 0);
        while quiet < 20 {
            let (is_over, is_sent) = (self.is_over.load(SeqCst), self.is_sent.load(SeqCst));
            let arrived = self.arrived[flow].load(SeqCst);
            if is_sent && arrived == self.sent[flow].load(SeqCst) {
                return;
            }
            if socket.recv(&mut bytes).is_err() {
                quiet += u32::from(is_over);
                continue;
            }
            assert_eq!(u32::from_be_bytes(bytes), arrived, "of flow {flow}");
            self.arrived[flow].store(arrived + 1, SeqCst);
        }
    }

    fn sent(&self) -> u32 {
        self.sent.iter().map(|sent| sent.load(SeqCst)).sum()
    }

    fn arrived(&self) -> u32 {
        self.arrived.iter().map(|arrived| arrived.load(SeqCst)).sum()
    }
}
