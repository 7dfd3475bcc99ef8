//! A worker's copies of what guests have set about the frames that they receive.
//!
//! A guest sets it by commands at any time, and a frame is decided without a lock. So each worker
//! keeps the settings that it read last, and reads them again when their version has changed.

use crate::port::view::PortShared;
use ports::SettingsVersion;
use ports::vhost::{GuestSettings, GuestTable};
use std::sync::Arc;
use wire::Parsed;

/// The copies, by port.
#[derive(Default)]
pub(crate) struct Guests(Vec<Copy>);

#[derive(Default)]
struct Copy {
    version: SettingsVersion,
    settings: Option<Arc<GuestSettings>>,
}

impl Guests {
    /// Makes room for ports with numbers below this, and forgets all copies.
    pub(crate) fn resize(&mut self, ports: usize) {
        self.0.clear();
        self.0.resize_with(ports, Copy::default);
    }

    /// Returns the settings of a port's guest.
    #[inline]
    pub(crate) fn settings(&mut self, port: &PortShared) -> Option<&GuestSettings> {
        let copy = self.0.get_mut(usize::from(port.id.0))?;
        if copy.version != port.live.settings_version() {
            copy.read(port);
        }
        copy.settings.as_deref()
    }

    /// Returns the queue by the table of a port's guest; `None` if it has none.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue(
        &mut self,
        port: &PortShared,
        header: &[u8],
        parsed: &Parsed,
    ) -> Option<usize> {
        let GuestSettings { table, hash, .. } = self.settings(port)?;
        let table: &GuestTable = table.as_deref()?;
        let hash = hash.as_ref().and_then(|hash| hash.of(header, parsed));
        Some(table.queue(hash.map(|(value, _)| value)))
    }
}

impl Copy {
    #[cold]
    #[inline(never)]
    fn read(&mut self, port: &PortShared) {
        (self.version, self.settings) = port.live.guest_settings();
    }
}
