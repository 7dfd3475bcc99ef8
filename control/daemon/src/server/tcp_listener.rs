//! The TCP listener that `[metrics]` and `[web]` share: waits for its address.

use crate::shared::Shared;
use config::Section;
use problem::Problem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// Time between attempts to bind.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens as soon as the address is available; the switch's own ports may bring it up. Until then
/// `check` shows the reason.
pub(super) async fn listen(section: Section, address: SocketAddr, shared: &Shared) -> TcpListener {
    loop {
        let listener = TcpListener::bind(address).await;
        let trouble = listener.as_ref().err().map(|error| {
            Problem::new(format!("{} on {address}", section.served(false)))
                .seen(error)
                .wanted("an address of this host with a free port")
                .remedy(section.remedy())
        });
        let bound = listener.as_ref().ok().and_then(|listener| listener.local_addr().ok());
        // If the switch's thread has ended, so does this task soon.
        let _ = shared
            .run(move |running| {
                if section == Section::Web {
                    running.page_keys.served_at = bound;
                }
                running.journal.note_listener(section, trouble, Instant::now());
            })
            .await;
        match listener {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}
