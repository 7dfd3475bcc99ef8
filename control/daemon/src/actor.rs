//! The actor of a change, for the log: a client of the API, or the file.

use crate::peer::Peer;
use serde::Serialize;
use std::fs;

tokio::task_local! {
    static ACTOR: String;
}

/// Longest logged command line, in characters.
const LONGEST: usize = 160;

/// Returns a client as the log names it: user, process and, if known, its command. The kernel
/// vouches for user and process, not for the command: a process can name itself anything, and may
/// have ended.
pub(crate) fn name(peer: &Peer) -> String {
    let command = fs::read(format!("/proc/{}/cmdline", peer.pid)).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
    let command: String = command.chars().take(LONGEST).collect();
    format!("user {}, process {} {command:?}", peer.uid, peer.pid)
}

/// Runs `change` on behalf of a client.
pub(crate) async fn acting<T>(client: String, change: impl Future<Output = T>) -> T {
    ACTOR.scope(client, change).await
}

/// Runs `change` on behalf of a client, in a thread that does not run the client's task.
pub(crate) fn acting_now<T>(client: String, change: impl FnOnce() -> T) -> T {
    ACTOR.sync_scope(client, change)
}

/// Returns the actor of this task, or of the command that this thread carries out.
pub(crate) fn current() -> String {
    ACTOR.try_with(String::clone).unwrap_or_else(|_| "the file".to_owned())
}

/// Logs a change outside the configuration, with its values.
pub(crate) fn log(what: &str, values: &impl Serialize) {
    let by = current();
    tracing::info!(target: "control::actor", by, "{}", line(what, values));
}

fn line(what: &str, values: &impl Serialize) -> String {
    format!("{what}: {}", serde_json::to_string(values).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::body::CaptureStart;

    /// The log named the resource, and not the port whose guest was overheard.
    #[test]
    fn a_capture_is_told_with_its_port() {
        let start =
            CaptureStart { port: "vm1".into(), snaplen: Some(96), count: None, seconds: None };
        let told = line("a capture starts", &start);
        assert!(told.starts_with("a capture starts: {\"port\":\"vm1\",\"snaplen\":96"), "{told}");
    }
}
