//! A port without `host` moves from host to host, and is never on two.

use super::hosts::{
    FOLDER, GUESTS, NAMES, NEEDS, all_have, begin, cli, fleet, places, revisions, start_agent,
    status,
};
use crate::etcd::Etcd;
use crate::host::Host;
use crate::sandbox::{run, story};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use waiting::{eventually, until};

#[test]
fn a_port_moves_and_no_two_hosts_ever_carry_its_address() {
    story(&NEEDS, || {
        let _etcd = Etcd::start();
        let guests = GUESTS.map(Host::new);
        let guest = Host::new("gm");
        let mut places = places();
        begin(&guests);
        write_moving_port();
        let (text, code) = fleet(&format!("apply -f {FOLDER} -m moving"));
        assert_eq!(code, 0, "{text}");
        all_have(2);
        let checker = Checker::start();
        for host in ["b", "c", "b"] {
            let (text, code) = fleet(&format!("move vm-m {host}"));
            let place = fleet("where vm-m").0;
            assert!(place.contains(&format!("is on host {host} (has claimed")), "{place}");
            assert_eq!(code, 0, "{text}");
            it_answers(guest, &guests[0], host);
        }

        // While its host's agent is away the port stays; the move completes when the agent returns.
        places[1].end_agent();
        let (text, code) = fleet("move vm-m c --wait 1");
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("not come to host c") && text.contains("host b has it"), "{text}");
        let moves = status()["moves"].take();
        let waits = [("port", "vm-m"), ("from", "b"), ("to", "c"), ("stage", "waiting-for-claim")];
        assert!(waits.iter().all(|(key, value)| moves[0][key] == *value), "{moves}");
        it_answers(guest, &guests[0], "b");
        places[1].agent = start_agent("b");
        it_answers(guest, &guests[0], "c");

        // A host that is off does not give up its claim. Its state is erased before it returns.
        places[2].end();
        let (text, code) = fleet("move vm-m a --wait 1");
        assert_eq!(code, 1, "{text}");
        let (text, code) = fleet("move vm-m a --take-over");
        assert_eq!(code, 0, "{text}");
        it_answers(guest, &guests[0], "a");
        run("rm -rf /run/c.state /run/c.fleet");
        // An agent without its state counts as another agent until the old one's lease has ended.
        let is_away = || revisions()[2].is_none().then_some(());
        let _ = eventually(is_away);
        until("host c is away", is_away);
        places[2].restart();
        until("host c has its own port again", || {
            (revisions() == [Some(2); 3] && carries_port("c", "vm-c")).then_some(())
        });
        assert!(!carries("c"));
        println!("measured: {} looks at a port that moved", checker.end());
    });
}

/// Waits until this host carries the port and its guest answers.
fn it_answers(guest: Host, from: &Host, host: &str) {
    until("the host carries the port", || carries(host).then_some(()));
    // Each host creates the device anew.
    guest.run("ip link set tapm address 52:54:00:00:00:09");
    guest.run("ip address replace 10.9.0.9/24 dev tapm");
    guest.run("ip link set tapm up");
    until("its guest answers", || {
        let ping = from.command("ping").args(["-c", "1", "-W", "1", "10.9.0.9"]).output();
        ping.unwrap().status.success().then_some(())
    });
}

/// Writes a port without `host`, as another file of the model.
pub(super) fn write_moving_port() {
    let text = "version = 1\n[[port]]\nname = 'vm-m'\nnetwork = 'blue'\n\
                mac = '52:54:00:00:00:09'\ntap = 'tapm'\nnetns = 'gm'\n";
    std::fs::write(format!("{FOLDER}/moving.toml"), text).unwrap();
}

/// Returns whether this host's switch carries the port that moves.
pub(super) fn carries(host: &str) -> bool {
    carries_port(host, "vm-m")
}

fn carries_port(host: &str, port: &str) -> bool {
    cli(&format!("port show {port} --json --socket /run/{host}.api")).status.success()
}

/// Reads the ports of all switches in a loop, host by host.
struct Checker {
    ends: Arc<AtomicBool>,
    looks: JoinHandle<Vec<[bool; 3]>>,
}

impl Checker {
    fn start() -> Checker {
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let looks = std::thread::spawn(move || {
            let mut looks = Vec::new();
            while !end.load(Ordering::Relaxed) {
                looks.push(NAMES.map(carries));
            }
            looks
        });
        Checker { ends, looks }
    }

    /// Checks that no two hosts carried the port: no host has it both before and after another host
    /// is seen with it. Returns how many looks found the port.
    fn end(self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        let looks = self.looks.join().unwrap();
        for pair in looks.windows(2) {
            let [now, next] = [pair[0], pair[1]];
            for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                let first_keeps = now[one] && next[one] && now[other];
                let second_keeps = now[other] && next[other] && next[one];
                assert!(!first_keeps && !second_keeps, "two hosts carried it: {pair:?}");
            }
        }
        looks.iter().filter(|look| look.contains(&true)).count()
    }
}
