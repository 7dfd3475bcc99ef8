//! A daemon in process, on a socket in a directory of its own, with memory ports.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

use api::client::Client;
use daemon::server::{self, Options};
use problem::Problem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_devices::MemoryDevices;
use tokio::sync::oneshot;

/// Stops the daemon and removes its directory on drop.
pub(crate) struct Daemon {
    pub(crate) client: Client,
    pub(crate) devices: MemoryDevices,
    directory: Arc<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Problem>>>,
}

impl Daemon {
    /// Runs a daemon with a configuration, on any devices.
    pub(crate) fn start(config: &str) -> Daemon {
        Daemon::with(config, MemoryDevices::default())
    }

    /// Runs a daemon with a configuration on these devices, and waits until it answers. Without
    /// `[switch]` it has one worker on hosts of any size.
    pub(crate) fn with(config: &str, devices: MemoryDevices) -> Daemon {
        let directory = tempfile::tempdir().unwrap();
        let switch = if config.contains("[switch]") { "" } else { "[switch]\nworkers = 1\n" };
        std::fs::write(directory.path().join("switch.toml"), format!("{switch}{config}")).unwrap();
        Daemon::inside(Arc::new(directory), devices)
    }

    /// Stops the daemon and starts another one with the same files and devices.
    #[allow(dead_code, reason = "some tests that share this file start one daemon only")]
    pub(crate) fn again(mut self) -> Daemon {
        self.stop().unwrap();
        Daemon::inside(self.directory.clone(), self.devices.clone())
    }

    fn inside(directory: Arc<TempDir>, devices: MemoryDevices) -> Daemon {
        let (stop, stopped) = oneshot::channel();
        let options = options(directory.path());
        let opener = devices.clone();
        let thread = std::thread::spawn(move || serve(&options, opener, stopped));
        let client = eventually("the daemon answers", || {
            // The daemon listens before its ports are open, and answers after that.
            let client = Client::connect(&directory.path().join("api.sock")).ok()?;
            client.switch().ok().map(|_| client)
        });
        Daemon { client, devices, directory, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns the path of the API's socket.
    #[allow(dead_code, reason = "some tests that share this file do not name files")]
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("api.sock")
    }

    /// Returns the path of a file in the daemon's directory.
    #[allow(dead_code, reason = "some tests that share this file do not name files")]
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the daemon.
    ///
    /// # Errors
    /// The daemon ended with a problem.
    pub(crate) fn stop(&mut self) -> Result<(), Problem> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Returns the options of a daemon in this directory.
pub(crate) fn options(directory: &Path) -> Options {
    Options {
        file: Some(directory.join("switch.toml")),
        socket: Some(directory.join("api.sock")),
        state_directory: None,
        poll: None,
        take_over: false,
        sandbox: None,
        post_copy: None,
    }
}

/// Runs a daemon in this thread until the sender of `stopped` is dropped.
///
/// # Errors
/// The daemon cannot be started.
pub(crate) fn serve(
    options: &Options,
    devices: MemoryDevices,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server::serve(options, Box::new(devices), async {
        let _ = stopped.await;
    }))
}

/// Calls `ask` until it returns a value, for at most ten seconds.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match ask() {
            Some(answer) => return answer,
            None if Instant::now() > patience => panic!("not within ten seconds: {what}"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
