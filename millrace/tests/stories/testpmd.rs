//! DPDK's testpmd with virtio-user vNICs: a guest without a kernel, which supports every form of
//! the rings.

use crate::guest::{directory, libraries};
use crate::sandbox::run;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use waiting::until;

/// A testpmd that sends each frame back where it came from, with addresses and ports exchanged. So
/// its first frames keep going. Those of a port are of different flows, the same number from each
/// queue.
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    log: String,
}

/// The form of testpmd's vNICs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Form {
    /// Options of the driver besides socket and queues, such as `,packed_vq=1`.
    pub(crate) options: &'static str,
    /// Queue pairs of each vNIC.
    pub(crate) queues: u16,
    /// Whether testpmd listens at the sockets.
    pub(crate) listens: bool,
}

impl Testpmd {
    /// Starts testpmd with a vNIC at each of these sockets.
    pub(crate) fn start(name: &str, sockets: &[&str], form: Form) -> Testpmd {
        let log = format!("/run/{name}.log");
        let output = File::create(&log).unwrap();
        let mut command = command();
        command.args(["--no-huge", "--no-pci", "--no-telemetry", "-m", "256"]);
        command.args(["--lcores", "0@0-1,1@0-1", "--force-max-simd-bitwidth=512"]);
        for (number, socket) in sockets.iter().enumerate() {
            command.args(["--vdev", &vnic(number, socket, form)]);
        }
        let queues = form.queues.max(1);
        command.args(["--", "-i", "--nb-cores=1", "--forward-mode=5tswap", "--no-flush-rx"]);
        // A frame that comes in by a queue of a vNIC goes out by the same queue.
        command.args(["--port-topology=loop", "--txonly-multi-flow"]);
        // The first frames of each vNIC go to the next one.
        for number in 0..sockets.len() {
            let next = address((number + 1) % sockets.len());
            command.arg(format!("--eth-peer={number},{next}"));
        }
        command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
        // All frames that a port sends at first fit into one queue.
        command.arg(format!("--burst={}", 64 / queues.max(2)));
        command.args(["--total-num-mbufs=16384"]);
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut testpmd = Testpmd { child, input, log };
        testpmd.wait_for("testpmd> ");
        testpmd
    }

    /// Sends some frames, which testpmd then passes on as they come back.
    pub(crate) fn burst(&mut self) {
        self.tell("stop\nstart tx_first");
    }

    /// Stops sending.
    pub(crate) fn rest(&mut self) {
        self.tell("stop");
    }

    fn tell(&mut self, words: &str) {
        let told = writeln!(self.input, "{words}");
        told.unwrap_or_else(|error| panic!("testpmd: {error}: {}", self.said()));
    }

    /// Returns all that testpmd printed.
    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Ends testpmd as a crash does.
    pub(crate) fn kill(mut self) {
        self.cut();
    }

    fn wait_for(&mut self, words: &str) {
        until("testpmd is ready", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "testpmd: {ended:?}: {}", self.said());
            self.said().contains(words).then_some(())
        });
    }

    fn cut(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Returns the program as `cargo xtask guests` unpacked it, with the libraries and drivers beside
/// it.
pub(crate) fn command() -> Command {
    let directory = directory("testpmd").canonicalize().unwrap();
    let mut command = Command::new(directory.join("usr/bin/dpdk-testpmd"));
    let folders = libraries("testpmd");
    command.env("LD_LIBRARY_PATH", std::env::join_paths(&folders).unwrap());
    // testpmd also loads the drivers of an installed DPDK, and ends because they come twice. Mounts
    // in this namespace are the story's own.
    for folder in &folders {
        let of_host = Path::new("/").join(folder.strip_prefix(&directory).unwrap()).join("dpdk");
        if of_host.is_dir() {
            run(&format!("mount -t tmpfs tmpfs {}", of_host.display()));
        }
    }
    let drivers =
        folders.iter().filter_map(|folder| std::fs::read_dir(folder.join("dpdk")).ok()).flatten();
    for driver in drivers.flatten() {
        command.arg("-d").arg(driver.path());
    }
    command
}

fn vnic(number: usize, socket: &str, form: Form) -> String {
    let queues = form.queues.max(1);
    let mut vnic = format!("net_virtio_user{number},path={socket},queues={queues},queue_size=256");
    write!(vnic, ",mac={}{}", address(number), form.options).unwrap();
    if form.listens {
        vnic += ",server=1";
    }
    vnic
}

fn address(number: usize) -> String {
    format!("02:00:00:00:00:0{}", number + 1)
}
