//! The first hour: the messages for common mistakes.

use crate::heard::Heard;
use crate::sandbox::{Need, run, story};
use crate::switch::{FILE, Switch, cli, complaint, millrace};
use std::process::Command;
use waiting::until;

#[test]
fn an_unknown_key_is_told_with_its_place_and_its_nearest_neighbour() {
    story(&[], || {
        std::fs::write(FILE, "[switch]\nrsc = \"ndis\"\n\n[[port]]\nname = \"a\"\ntapp = \"t\"\n")
            .unwrap();
        let (code, told) = complaint(&format!("run -c {FILE}"));
        assert_eq!(code, 1, "{told}");
        assert!(told.contains(&format!("{FILE}:6:1: unknown key")), "{told}");
        assert!(told.contains("did you mean `tap`?"), "{told}");
    });
}

#[test]
fn a_missing_file_is_told_with_its_name() {
    story(&[], || {
        let (code, told) = complaint("run -c /run/nowhere.toml");
        assert_eq!(code, 1);
        assert!(told.contains("/run/nowhere.toml cannot be read"), "{told}");
    });
}

#[test]
fn a_missing_device_breaks_its_port_until_it_is_there() {
    story(&[], || {
        let switch = Switch::start("[[port]]\nname = 'up'\npacket = 'nosuch0'\n");
        let (state, reason) = switch.state("up");
        assert_eq!(state, "broken");
        assert!(reason.contains("nosuch0"), "{reason}");
        let check = cli("check");
        assert_eq!(check.status.code(), Some(1), "{check:?}");
        run("ip link add nosuch0 type veth peer name nosuch1");
        run("ip link set nosuch0 up");
        run("ip link set nosuch1 up");
        switch.wait_for("up", "up");
    });
}

#[test]
fn a_second_daemon_on_one_socket_is_refused_and_disturbs_nothing() {
    story(&[], || {
        let switch = Switch::start("");
        let (code, told) = complaint(&format!("run -c {FILE}"));
        assert_eq!(code, 1);
        assert!(told.contains("already listens on /run/millrace/api.sock"), "{told}");
        assert!(told.contains("--socket"), "no remedy: {told}");
        assert_eq!(switch.ask("port list").as_array().map(Vec::len), Some(0));
    });
}

#[test]
fn who_may_not_is_told_what_would_help() {
    story(&[Need::Program("setpriv")], || {
        for device in ["tap = 't'", "packet = 'lo'"] {
            std::fs::write(FILE, format!("[[port]]\nname = 'p'\n{device}\n")).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", "-all", "--inh-caps", "-all"]);
            command.arg(millrace().get_program()).args(["run", "-c", FILE]);
            let output = command.heard();
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(told.contains("lacks a privilege"), "{told}");
            assert!(told.contains("CAP_NET_ADMIN") && told.contains("setcap"), "{told}");
        }
    });
}

#[test]
fn a_name_in_use_and_a_device_in_use_are_refused() {
    story(&[Need::Tap], || {
        let switch = Switch::start("[[port]]\nname = 'vm1'\ntap = 'tap1'\n");
        let (code, told) = complaint("port add vm1 --tap tap2");
        assert_eq!(code, 1);
        assert!(told.contains("port vm1 exists") && told.contains("another name"), "{told}");
        let (code, told) = complaint("port add vm2 --tap tap1");
        assert_eq!(code, 1);
        assert!(told.contains("port vm1"), "whose device it is: {told}");
        assert_eq!(switch.ask("port list").as_array().map(Vec::len), Some(1));
    });
}

#[test]
fn an_mtu_out_of_range_is_refused_with_the_range() {
    story(&[Need::Tap], || {
        let switch = Switch::start("[[port]]\nname = 'vm1'\ntap = 'tap1'\nmtu = 9000\n");
        let (code, told) = complaint("port add vm2 --tap tap2 --mtu 70000");
        assert_eq!(code, 2);
        assert!(told.contains("70000") && told.contains("68 to 65535"), "{told}");
        let (code, told) = complaint("port set vm1 mtu=20");
        assert_eq!(code, 1);
        assert!(told.contains("20") && told.contains("68 to 65535"), "{told}");
        assert_eq!(switch.ask("port show vm1")["mtu"], 9000);
        assert!(run("ip link show tap1").contains("mtu 9000"));
    });
}

#[test]
fn a_port_that_is_not_there_and_a_daemon_that_is_not_there_are_told_apart() {
    story(&[Need::Tap], || {
        let (code, told) = complaint("status");
        assert_eq!(code, 3);
        assert!(told.contains("/run/millrace/api.sock"), "{told}");
        let _switch = Switch::start("[[port]]\nname = 'vm1'\ntap = 'tap1'\n");
        let (code, told) = complaint("port show vm2");
        assert_eq!(code, 1);
        assert!(told.contains("did you mean `vm1`?"), "{told}");
    });
}

#[test]
fn a_file_made_wrong_while_the_switch_runs_changes_nothing() {
    story(&[Need::Tap], || {
        let switch = Switch::start("[[port]]\nname = 'vm1'\ntap = 'tap1'\n");
        // A write to a pipe returns only once the daemon reads the pipe.
        run(&format!("rm {FILE}"));
        run(&format!("mkfifo {FILE}"));
        let reload = |text: &str| {
            switch.hang_up();
            std::fs::write(FILE, text).unwrap();
        };
        let told = |words| until(words, || switch.noted(words).then_some(()));
        reload("[[port]]\nname = 'vm2'\ntapp = 'tap2'\n");
        told("the file was reread and refused");
        assert_eq!(switch.ask("port list")[0]["name"], "vm1");
        reload("[[port]]\nname = 'vm2'\ntap = 'tap2'\n");
        told("the file was reread: ");
        assert_eq!(switch.ask("port list")[0]["name"], "vm2");
    });
}
