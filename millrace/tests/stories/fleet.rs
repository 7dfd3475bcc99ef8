//! Three hosts, each with a switch and an agent, follow one real etcd: a roll-out reaches them,
//! stops by itself and is rolled back, and the hosts carry on without etcd.

mod faults;
mod hosts;
mod moving;
mod mtu;
mod page;
mod refused;
mod stolen;
mod validate;

use crate::etcd::Etcd;
use crate::host::Host;
use crate::sandbox::{run, story};
use crate::switch::millrace;
use hosts::{
    FOLDER, GUESTS, NAMES, NEEDS, all_have, all_hold, apply_again, begin, fleet, pings_go_on,
    places, revisions, status, write_model,
};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use waiting::until;

#[test]
fn a_roll_out_stops_by_itself_on_a_bad_mtu_and_is_rolled_back() {
    story(&NEEDS, || {
        let _etcd = Etcd::start();
        let guests = GUESTS.map(Host::new);
        let places = places();
        begin(&guests);
        assert_eq!(places[0].ask("port show vm-a")["origin"], "fleet");

        // Applying the same model does nothing.
        let (text, code) = fleet(&format!("apply -f {FOLDER}"));
        assert!(code == 0 && text.contains("nothing to do: revision 1"), "{text}");

        write_model(9000, "");
        let (text, code) = fleet(&format!("plan -f {FOLDER}"));
        assert!(code == 0 && text.contains("host b:\n  change port vm-b: mtu"), "{text}");
        let (text, code) = fleet(&format!("diff -f {FOLDER}"));
        assert!(code == 1 && text.contains("change network blue: mtu: 1500 -> 9000"), "{text}");
        let (text, code) = fleet(&format!("apply -f {FOLDER} -m jumbo"));
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("revision 2 has stopped: host a: mtu_mismatch"), "{text}");
        assert_eq!(revisions(), [Some(2), Some(1), Some(1)], "the other hosts were not touched");
        let told = status();
        assert_eq!(told["desired"]["phase"], "stopped");

        let (text, code) = fleet("rollback");
        assert!(code == 0 && text.contains("revision 3 is in force"), "{text}");
        all_have(3);
        assert_eq!(places[0].ask("port show vm-a")["mtu"], 1500);

        // With the option the roll-out rolls back by itself.
        let (text, code) = fleet(&format!("apply -f {FOLDER} --rollback-on-failure"));
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("The fleet is back at revision 3"), "{text}");
        all_have(3);

        // Frames that guests lose also stop the roll-out.
        write_model(1500, "acl = ['deny in icmp']\n[rollout.drops]\nacl_denied = 5");
        let mut ping = guests[0].command("ping");
        let mut ping = ping.args(["-q", "-i", "0.02", "10.9.0.2"]).spawn().unwrap();
        let (text, code) = fleet(&format!("apply -f {FOLDER} --rollback-on-failure"));
        assert!(code == 1 && text.contains("frames a second dropped as acl_denied"), "{text}");
        ping.kill().unwrap();
        ping.wait().unwrap();
        all_have(3);

        // Two people apply: the second has seen an older revision.
        write_model(1500, "rate = '1Gbit'");
        let (text, code) = fleet(&format!("apply -f {FOLDER} -m limited --base 3"));
        assert_eq!(code, 0, "{text}");
        write_model(1500, "dhcp-guard = true");
        let (text, code) = fleet(&format!("apply -f {FOLDER} --base 3"));
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("revision 6 was applied since revision 3"), "{text}");
        assert!(text.contains("limited: change network blue: rate: absent -> 1Gbit"), "{text}");
        let (text, code) = fleet("history");
        assert!(code == 0 && text.contains("model of 1; back to revision 1"), "{text}");
    });
}

#[test]
fn losing_etcd_disturbs_no_traffic_and_a_restored_backup_is_reported() {
    story(&NEEDS, || {
        let etcd = Etcd::start();
        let guests = GUESTS.map(Host::new);
        let mut places = places();
        begin(&guests);
        let etcd = pings_go_on(&guests, || {
            etcd.kill();
            // Agent and switch of a host without traffic restart, and carry on with what they had.
            places[2].restart();
            until("its port is up", || {
                (places[2].ask("port show vm-c")["state"] == "up").then_some(())
            });
            let (text, code) = fleet("status");
            assert!(code == 3 && text.contains("etcd does not answer"), "{text}");
            Etcd::copy(Etcd::data(), "/run/backup");
            Etcd::start()
        });
        write_model(1500, "rate = '1Gbit'");
        all_have(1);
        let (text, code) = fleet(&format!("apply -f {FOLDER}"));
        assert_eq!(code, 0, "{text}");
        all_have(2);

        etcd.kill();
        Etcd::copy("/run/backup", Etcd::data());
        write_model(1500, "");
        let _etcd = pings_go_on(&guests, || {
            let etcd = Etcd::start();
            all_hold();
            etcd
        });
        assert!(!places[0].ask("port show vm-a")["config"]["rate"].is_null(), "it stays as it was");
        // The model is the backup's, but the hosts do not follow that, so `apply` makes a new
        // revision.
        pings_go_on(&guests, || apply_again(3));
        assert!(places[0].ask("port show vm-a")["config"]["rate"].is_null());
    });
}

#[test]
fn a_fleet_survives_the_loss_of_all_of_etcds_data() {
    story(&NEEDS, || {
        let etcd = Etcd::start();
        let guests = GUESTS.map(Host::new);
        let places = places();
        begin(&guests);
        etcd.kill();
        run(&format!("rm -rf {}", Etcd::data()));
        let _etcd = pings_go_on(&guests, || {
            let etcd = Etcd::start();
            all_hold();
            // The first step's host follows; the others keep their ports until a step reaches them.
            write_model(1500, "rate = '2Gbit'");
            apply_again(2);
            etcd
        });
        assert_eq!(places[1].ask("port show vm-b")["config"]["rate"], "2Gbit");
    });
}

#[test]
fn of_two_agents_with_one_name_the_second_follows_nothing() {
    story(&NEEDS, || {
        let _etcd = Etcd::start();
        let _places = places();
        until("all agents are registered", || (revisions() == [Some(0); 3]).then_some(()));
        // A second agent of this name would give host a's ports to another switch.
        let mut twin = millrace();
        twin.args(["fleet", "agent", "--host", "a", "--label", "role=compute"]);
        twin.args(["--state-dir", "/run/twin", "--socket", "/run/b.api"]).stderr(Stdio::piped());
        let mut twin = twin.spawn().unwrap();
        let mut lines = BufReader::new(twin.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("another agent is host a")));
        twin.kill().unwrap();
        twin.wait().unwrap();
        assert_eq!(revisions(), [Some(0); 3]);
        // An agent with another name does not share the directory either.
        let (text, code) = fleet("agent --host x --state-dir /run/a.fleet");
        assert!(code == 1 && text.contains("another process keeps its state"), "{text}");
    });
}

#[test]
fn an_interrupted_roll_out_reaches_no_further_host() {
    story(&NEEDS, || {
        let _etcd = Etcd::start();
        let guests = GUESTS.map(Host::new);
        let places = places();
        begin(&guests);
        write_model(1500, "rate = '1Gbit'");
        let mut apply = millrace();
        apply.args(["fleet", "apply", "-f", FOLDER]).stdout(Stdio::null());
        let mut apply = apply.spawn().unwrap();
        until("the first host has it", || {
            (revisions() == [Some(2), Some(1), Some(1)]).then_some(())
        });
        apply.kill().unwrap();
        apply.wait().unwrap();
        let (text, code) = fleet("rollback");
        assert!(code == 1 && text.contains("a roll-out of revision 2 is in progress"), "{text}");
        // The next revision is based on the one that was completed.
        write_model(1500, "rate = '2Gbit'");
        let spared = || {
            let others = &revisions()[1..];
            assert!(!others.contains(&Some(2)), "the next apply spread it: {others:?}");
        };
        until("its driver's lease has expired", || {
            spared();
            status()["driver"].is_null().then_some(())
        });
        let mut apply = millrace();
        let mut apply = apply.args(["fleet", "apply", "-f", FOLDER]).spawn().unwrap();
        let ended = until("the next roll-out has ended", || {
            spared();
            apply.try_wait().unwrap()
        });
        assert!(ended.success());
        all_have(3);
        for (place, name) in places.iter().zip(NAMES) {
            let port = place.ask(&format!("port show vm-{name}"));
            assert_eq!(port["config"]["rate"], "2Gbit");
        }
    });
}
