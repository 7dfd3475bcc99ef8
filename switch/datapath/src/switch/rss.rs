//! Receive-side scaling of a port: its indirection table while frames flow.

use super::Switch;
use crate::PortId;
use crate::options::SwitchError;
use crate::status::RssInfo;
use ports::steering::ENTRIES;

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
        Ok(RssInfo {
            key: port.settings.rss.key.unwrap_or(shared.steering.key),
            queues: shared.egress.len(),
            in_use: shared.queues_in_use(),
            configured: shared.steering.named(),
            in_force: shared.table(),
        })
    }
}
