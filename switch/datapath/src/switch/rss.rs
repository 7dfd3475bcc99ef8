//! Receive-side scaling of a port: its indirection table while frames flow.

use super::Switch;
use crate::PortId;
use crate::options::SwitchError;
use crate::port::view::Port;
use crate::status::{GuestRss, RssInfo};
use ports::steering::ENTRIES;
use ports::vhost::GuestSettings;

impl Switch {
    /// Makes entries of a port's indirection table name other queues. Frames go by them from then
    /// on; the receiver may read frames of a flow in its old queue after those in the new one.
    ///
    /// # Errors
    ///
    /// Fails, and changes no entry, if there is no such port, entry or queue.
    pub fn set_rss_entries(
        &mut self,
        port: PortId,
        entries: &[(usize, usize)],
    ) -> Result<(), SwitchError> {
        let shared = &self.entry(port)?.port.shared;
        let queues = shared.egress.len().min(256);
        for &(entry, queue) in entries {
            if entry >= ENTRIES {
                return Err(SwitchError::NoSuchEntry(entry));
            }
            if queue >= queues {
                return Err(SwitchError::NoSuchQueue { port, queue, queues });
            }
        }
        for &(entry, queue) in entries {
            shared.steering.set(entry, queue);
        }
        Ok(())
    }

    /// Returns how frames toward a port are spread now.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port.
    pub fn rss(&self, port: PortId) -> Result<RssInfo, SwitchError> {
        let port = &self.entry(port)?.port;
        let shared = &port.shared;
        let own = RssInfo {
            key: port.settings.rss.key.unwrap_or(shared.steering.key),
            guest: None,
            is_by_guest: false,
            queues: shared.egress.len(),
            in_use: shared.queues_in_use(),
            configured: shared.steering.named(),
            in_force: shared.table(),
        };
        let guest = shared.live.guest_settings().1;
        Ok(guest.and_then(|guest| with_guest(port, &guest, &own)).unwrap_or(own))
    }
}

/// Returns a port's steering with what its guest has set; `None` if it has set no table.
#[allow(clippy::cast_possible_truncation, reason = "entries name 64 queues at most")]
fn with_guest(port: &Port, guest: &GuestSettings, own: &RssInfo) -> Option<RssInfo> {
    let (hash, table) = (guest.hash.as_ref()?, guest.table.as_ref()?);
    let (key, types, unclassified) = (*hash.key(), hash.types(), table.unclassified());
    let set = GuestRss { key, types, table: table.entries().to_vec(), unclassified };
    let mut info = RssInfo { guest: Some(set), ..own.clone() };
    if port.is_steered_by_guest() {
        let in_use = own.in_use.max(1);
        let queue = |entry: usize| (table.queue(u32::try_from(entry).ok()) % in_use) as u8;
        info.is_by_guest = true;
        info.in_force = std::array::from_fn(queue);
    }
    Some(info)
}
