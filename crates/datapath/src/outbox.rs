//! Where the frames of a turn are to go: a list for each egress queue.

/// A frame in a list.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Its place among the turn's frames.
    pub(crate) place: u16,
    /// Why it is here.
    pub(crate) cause: Cause,
}

/// Why a frame goes to a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its destination lives there.
    Addressed,
    /// Its destination is a group, or unknown.
    Flooded,
    /// The port mirrors another.
    Mirrored,
}

/// One list per egress queue of the view, and which of them are not empty.
#[derive(Default)]
pub(crate) struct Outbox {
    lists: Vec<Vec<Entry>>,
    touched: Vec<Target>,
}

/// An egress queue: its place in the outbox, its port and its number there.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) slot: usize,
    pub(crate) port: crate::settings::PortId,
    pub(crate) queue: usize,
}

impl Outbox {
    /// Makes room for a view's queues.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.lists.resize_with(slots, Vec::new);
        self.touched.reserve(slots);
    }

    #[inline]
    pub(crate) fn push(&mut self, target: Target, entry: Entry) {
        let Some(list) = self.lists.get_mut(target.slot) else { return };
        if list.is_empty() {
            self.touched.push(target);
        }
        list.push(entry);
    }

    /// A list that is not empty, taken out; give it back with [`Outbox::put_back`].
    pub(crate) fn take(&mut self) -> Option<(Target, Vec<Entry>)> {
        let target = self.touched.pop()?;
        let list = self.lists.get_mut(target.slot).map(std::mem::take)?;
        Some((target, list))
    }

    /// Keeps the allocation of a list that was delivered.
    pub(crate) fn put_back(&mut self, target: Target, mut list: Vec<Entry>) {
        list.clear();
        if let Some(place) = self.lists.get_mut(target.slot) {
            *place = list;
        }
    }
}
