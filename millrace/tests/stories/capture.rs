//! Captures: common tools read them, and a full disk does no harm.

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{cli, millrace};
use crate::topology::{Family, Topology};
use crate::transfer::{transfer, transfer_while};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        run("mkdir /run/small");
        run("mount -t tmpfs -o size=64k tmpfs /run/small");
        let mut capture = None;
        transfer_while((topology.far, topology.guest, Family::V4.guest()), 64 << 20, || {
            capture.get_or_insert_with(|| cli("capture guest -w /run/small/guest.pcapng"));
        });
        let capture = capture.unwrap();
        let told = String::from_utf8(capture.stderr).unwrap();
        assert_eq!(capture.status.code(), Some(1), "{told}");
        assert!(told.contains("No space left on device"), "{told}");
        assert!(told.contains("/run/small/guest.pcapng holds"), "{told}");
        assert_eq!(topology.switch.state("guest").0, "up");
        transfer((topology.guest, topology.far, Family::V4.far()), 1 << 20);
    });
}

#[test]
fn a_capture_is_read_by_tcpdump_and_says_why_frames_were_dropped() {
    story(&[NEEDS[0], NEEDS[1], Need::Program("tcpdump"), Need::Program("ping")], || {
        let liar = Host::new("liar");
        // The port may not use the address of its device.
        let topology = Topology::new(
            "[[port]]\nname = 'liar'\ntap = 'tap1'\nnetns = 'liar'\nmac = '52:54:00:00:00:09'\n",
        );
        liar.assign_addresses("tap1", 3);
        let mut capture = millrace();
        capture.args(["capture", "liar", "-w", "/run/liar.pcapng", "--seconds", "3"]);
        let capture = capture.stdout(Stdio::piped()).spawn().unwrap();
        // An answer need not come: only the dropped requests matter. They go on for longer than the
        // capture, which sees more than these.
        let _ =
            liar.command("ping").args(["-c", "12", "-i", "0.3", "-W", "1", "10.9.0.2"]).output();
        let output = capture.heard();
        assert!(output.status.success());
        assert!(topology.switch.counter("liar", "/drops/mac_spoofed") > 0);
        let bytes = std::fs::read("/run/liar.pcapng").unwrap();
        let comment = b"dropped: mac_spoofed";
        assert!(bytes.windows(comment.len()).any(|window| window == comment), "no reason in it");
        // tcpdump wants to become another user than root, and a user namespace has none.
        let text = run("unshare --user tcpdump -n -r /run/liar.pcapng");
        assert!(text.contains("10.9.0.2"), "{text}");
    });
}

/// Only SIGKILL ended such a capture.
#[test]
fn a_second_signal_ends_a_capture_whose_output_is_not_read() {
    story(&NEEDS, || {
        let topology = Topology::new("");
        let mut capture = millrace();
        capture.args(["capture", "guest", "-w", "-"]).stdout(Stdio::piped());
        let mut capture = capture.spawn().unwrap();
        let process = Pid::from_child(&capture);
        until("its pipe is full", || {
            transfer((topology.guest, topology.far, Family::V4.far()), 1 << 20);
            // The number of the system call, and its first argument: standard output.
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", capture.id())).unwrap();
            (call.split(' ').nth(1) == Some("0x1")).then_some(())
        });
        let signal = || kill_process(process, Signal::INT).unwrap();
        signal();
        until("the second ends it", || {
            signal();
            capture.try_wait().unwrap()
        });
        transfer((topology.guest, topology.far, Family::V4.far()), 1 << 20);
    });
}

#[test]
fn a_file_that_is_there_is_never_written_over() {
    story(&NEEDS, || {
        let _topology = Topology::new("");
        std::fs::write("/run/precious", "precious").unwrap();
        let output = cli("capture guest -w /run/precious");
        assert_eq!(output.status.code(), Some(1));
        assert!(
            String::from_utf8(output.stderr).unwrap().contains("/run/precious cannot be created")
        );
        assert_eq!(std::fs::read_to_string("/run/precious").unwrap(), "precious");
    });
}
