//! A real etcd. [`Etcd`] has one member, on the loopback of this story.

use crate::sandbox::{Need, run};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use waiting::until;

pub(crate) const PROGRAM: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../etcd/usr/bin/etcd");
pub(crate) const NEED: Need = Need::Brought(PROGRAM, "the program etcd");
/// Client URL of the member.
pub(crate) const CLIENTS: &str = "http://127.0.0.1:2379";
/// Client URL of the member with TLS.
pub(crate) const SECURE_CLIENTS: &str = "https://127.0.0.1:2379";
/// URLs at which a secured member listens. Its certificate does not name the second address.
const SECURE_LISTENERS: &str = "https://127.0.0.1:2379,https://127.0.0.2:2379";
const DATA: &str = "/run/etcd";

pub(crate) struct Etcd(Child);

impl Etcd {
    /// Starts etcd with the existing data.
    pub(crate) fn start() -> Etcd {
        Etcd::run([CLIENTS, CLIENTS], "http://127.0.0.1:2380", &[])
    }

    /// Starts etcd with the existing data. Hosts reach it at this address as well.
    pub(crate) fn reached_at(address: &str) -> Etcd {
        let listeners = format!("{CLIENTS},http://{address}:2379");
        Etcd::run([CLIENTS, &listeners], "http://127.0.0.1:2380", &[])
    }

    /// Starts etcd with certificates in this directory, and requires certificates of clients.
    /// Passwords are random, so hashing them often only costs time.
    pub(crate) fn secured(keys: &str) -> Etcd {
        let file = |name: &str| format!("{keys}/etcd/{name}");
        let [cert, key, ca] = ["server.crt", "server.key", "ca.crt"].map(file);
        let tls = ["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca];
        let peer =
            ["--peer-cert-file", &cert, "--peer-key-file", &key, "--peer-trusted-ca-file", &ca];
        let checks = ["--client-cert-auth", "--peer-client-cert-auth", "--bcrypt-cost", "4"];
        let name = ["--peer-cert-allowed-hostname", "127.0.0.1"];
        let more = [&tls[..], &peer, &checks, &name].concat();
        Etcd::run([SECURE_CLIENTS, SECURE_LISTENERS], "https://127.0.0.1:2380", &more)
    }

    fn run([clients, listeners]: [&str; 2], peers: &str, more: &[&str]) -> Etcd {
        let child = Command::new(PROGRAM)
            .args(["--data-dir", DATA, "--log-level", "error", "--unsafe-no-fsync"])
            .args(["--listen-client-urls", listeners, "--advertise-client-urls", clients])
            .args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(more)
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("etcd listens", || TcpStream::connect("127.0.0.1:2379").ok());
        Etcd(child)
    }

    /// Kills etcd, as a power cut would.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Copies the data of an etcd that is not running.
    pub(crate) fn copy(from: &str, to: &str) {
        run(&format!("rm -rf {to}"));
        run(&format!("cp -r {from} {to}"));
    }

    /// Returns the data directory.
    pub(crate) const fn data() -> &'static str {
        DATA
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
