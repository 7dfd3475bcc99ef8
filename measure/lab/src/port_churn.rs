//! Port churn: a thread that adds a port to the running switch and removes it, in a loop.

use crate::LabError;
use api::client::Client;
use config::PortConfig;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// The port, and the TAP it opens in the switch's namespace.
const NAME: &str = "visitor";
/// Time from one addition to the next.
const PERIOD: Duration = Duration::from_millis(100);

/// The thread. Dropping this ends the thread, after it has removed the port.
pub(crate) struct PortChurn {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortChurn {
    /// Returns the equivalent shell command, for the report.
    pub(crate) fn command() -> String {
        let (each, half) = (PERIOD.as_millis(), PERIOD.as_secs_f64() / 2.0);
        format!(
            "while sleep {half}; do millrace port add {NAME} --tap {NAME}; sleep {half}; millrace port remove {NAME}; done  # every {each} ms"
        )
    }

    /// Adds and removes the port once, to find out whether the switch refuses it, and then starts
    /// the thread. `added` counts the additions.
    ///
    /// # Errors
    /// The switch cannot be reached, or refuses the port.
    pub(crate) fn begin(socket: PathBuf, added: Arc<AtomicU64>) -> Result<PortChurn, LabError> {
        let told = |error: &dyn std::error::Error| LabError::Switch(error.to_string());
        let port: PortConfig = serde_json::from_value(json!({ "name": NAME, "tap": NAME }))
            .map_err(|error| told(&error))?;
        let client = Client::connect(&socket).map_err(|error| told(&error))?;
        let visit = move || {
            client.add_port(&port)?;
            std::thread::sleep(PERIOD / 2);
            client.remove_port(NAME)
        };
        visit().map_err(|error| told(&error))?;
        added.fetch_add(1, Relaxed);
        let stop = Arc::new(AtomicBool::new(false));
        let told_to_stop = stop.clone();
        let thread = std::thread::spawn(move || {
            while !told_to_stop.load(Relaxed) {
                // A refusal is not counted; the report shows the count.
                if visit().is_ok() {
                    added.fetch_add(1, Relaxed);
                }
                std::thread::sleep(PERIOD / 2);
            }
        });
        Ok(PortChurn { stop, thread: Some(thread) })
    }
}

impl Drop for PortChurn {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is on standard error already.
            let _ = thread.join();
        }
    }
}
