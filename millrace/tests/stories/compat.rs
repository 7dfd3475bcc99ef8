//! Compares the features that a port offers with those of the back end that it imitates.

use crate::sandbox::{Need, story};
use crate::switch::Switch;
use crate::testpmd;
use ports::vhost::Features;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use waiting::until;

/// Sends `VHOST_USER_GET_FEATURES` directly: a front end in between might omit features. Returns
/// the answer.
fn offered(socket: &str) -> Option<u64> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let question = [1u32, 1, 0].map(u32::to_ne_bytes);
    stream.write_all(question.as_flattened()).unwrap();
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).ok()?;
    Some(u64::from_ne_bytes(*answer.last_chunk().unwrap()))
}

#[test]
fn what_dpdk_offers_is_what_compat_offers() {
    story(&[Need::Guest("testpmd")], || {
        let port = |name: &str, compat: &str| {
            format!(
                "[[port]]\nname = '{name}'\nvhost-user = '/run/{name}'\nqueues = 2\nmac = '52:54:00:00:00:01'\ncompat = '{compat}'\n"
            )
        };
        let ports =
            port("plain", "ovs-dpdk") + &port("tso", "ovs-dpdk-tso").replace(":01'", ":02'");
        let _switch = Switch::start(&ports);
        let mut testpmd = testpmd::command()
            .args(["--no-huge", "-m", "128", "--no-pci", "-l", "0,1"])
            .args(["--vdev", "net_vhost0,iface=/run/testpmd.sock,queues=2,tso=1"])
            .args(["--", "-i", "--total-num-mbufs=4096"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let dpdk = until("DPDK answers", || offered("/run/testpmd.sock"));
        testpmd.kill().unwrap();
        testpmd.wait().unwrap();
        let without = |lacks: Features| dpdk & !(lacks.bits() | 1 << 14);
        let plain = Features::CSUM | Features::HOST_TSO4 | Features::HOST_TSO6;
        assert_eq!(offered("/run/plain"), Some(without(plain)), "{dpdk:#x}");
        assert_eq!(offered("/run/tso"), Some(without(Features::HOST_ECN)), "{dpdk:#x}");
    });
}
