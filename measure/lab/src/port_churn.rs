//! A port that a thread of its own adds to the running switch and removes from it, in a loop.

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
/// From one coming to the next.
const PERIOD: Duration = Duration::from_millis(100);

/// See the module. It ends, and the port is gone, when this is dropped.
pub(crate) struct PortChurn {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortChurn {
    /// As a person would type it, for the report.
    pub(crate) fn command() -> String {
        let (each, half) = (PERIOD.as_millis(), PERIOD.as_secs_f64() / 2.0);
        format!(
            "while sleep {half}; do millrace port add {NAME} --tap {NAME}; sleep {half}; millrace port remove {NAME}; done  # every {each} ms"
        )
    }

    /// Adds and removes the port once, so that a switch that refuses is known, and then begins.
    /// `added` counts.
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
                // A refusal is not counted, and the count is what the report shows.
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
            // A visit that panicked has told standard error.
            let _ = thread.join();
        }
    }
}
