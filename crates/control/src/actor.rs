//! On whose behalf the control thread changes something, for the log: a client of the API, or the file.

use crate::api::Peer;
use std::fs;

tokio::task_local! {
    static ACTOR: String;
}

/// Longest command line that is told, in characters.
const LONGEST: usize = 160;

/// A client as the log names it: user, process, and its command as far as it can be known. A process can call itself anything,
/// and may be gone: user and process are the kernel's word, the command is not.
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

/// On whose behalf this task runs.
pub(crate) fn current() -> String {
    ACTOR.try_with(String::clone).unwrap_or_else(|_| "the file".to_owned())
}
