//! Receive-side scaling of a port: its indirection table while frames flow.

use super::Switch;
use crate::PortId;
use crate::options::SwitchError;
use crate::status::RssInfo;
use ports::steering::ENTRIES;

impl Switch {
    /// Has entries of a port's indirection table name other queues: all of them or, after an error,
    /// none. Frames go by them from then on; what of a flow is in its old queue may be read after
    /// what is in the new one.
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

    /// How frames toward a port are spread now.
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
