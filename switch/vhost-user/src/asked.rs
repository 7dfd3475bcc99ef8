//! What the driver of one connection has set by commands about the frames that it receives, in its
//! own words, and the [`GuestSettings`] that follow from it.

use crate::Features;
use crate::carrier::{CarrierError, Reader, Writer};
use crate::control::{Command, HashCommand, MacTable, RssCommand, Way};
use crate::guest_settings::{GuestHash, GuestSettings, GuestTable};
use crate::hold::HoldWish;
use crate::receive_filter::{Modes, ReceiveFilter};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::toeplitz::{HashTypes, Key};
use wire::{Mac, VlanSet};

/// The commands that count.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The last one that set a table, while that is in force.
    table: Option<RssCommand>,
    /// The last one that set a hash.
    hash: Option<HashCommand>,
    modes: Modes,
    macs: MacTable,
    /// The guest's own address, if the driver has named one.
    own: Option<Mac>,
    /// The VLANs that pass, if the driver has named some.
    vlans: Option<VlanSet>,
    /// How signals of a ring are held back, by the ring's number. Those of sending rings are not:
    /// drivers ask for none or few.
    holds: BTreeMap<u16, HoldWish>,
    settings: Arc<GuestSettings>,
    /// Whether the settings were changed since [`Asked::take_change`].
    is_changed: bool,
}

impl Asked {
    /// Whether the driver has set nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        let Asked { table, hash, modes, macs, own, vlans, holds, .. } = self;
        let steers = table.is_some() || hash.is_some();
        let names = own.is_some() || vlans.is_some() || *macs != MacTable::default();
        !steers && !names && holds.is_empty() && *modes == Modes::default()
    }

    /// Returns the settings if they were changed since the last call.
    pub(crate) fn take_change(&mut self) -> Option<Arc<GuestSettings>> {
        std::mem::take(&mut self.is_changed).then(|| self.settings.clone())
    }

    /// Returns what was asked for at the ring of this number.
    pub(crate) fn hold(&self, ring: usize) -> HoldWish {
        let ring = u16::try_from(ring).ok();
        ring.and_then(|ring| self.holds.get(&ring)).copied().unwrap_or_default()
    }

    /// Returns the settings.
    pub(crate) fn settings(&self) -> &GuestSettings {
        &self.settings
    }

    /// Forgets everything, as a reset does.
    pub(crate) fn clear(&mut self) {
        let is_changed = self.is_changed || !self.is_nothing();
        *self = Asked { is_changed, ..Asked::default() };
    }

    /// Forgets what was set by commands of features that are not taken. `own` is the guest's
    /// configured address.
    pub(crate) fn retain(&mut self, taken: Features, own: Option<[u8; 6]>) {
        let fresh = Asked::default();
        if !taken.contains(Features::RSS) {
            self.drop_table();
        }
        if !taken.intersects(Features::SCALING) {
            self.set_hash(None);
        }
        if !taken.contains(Features::CTRL_RX) {
            (self.modes, self.macs) = (fresh.modes, fresh.macs);
        }
        if !taken.contains(Features::CTRL_VLAN) {
            self.vlans = None;
        }
        self.publish_filter(own);
        if !taken.intersects(Features::NOTF_COAL | Features::VQ_NOTF_COAL) && !self.holds.is_empty()
        {
            self.holds.clear();
            self.is_changed = true;
        }
    }

    /// Notes a command that was granted. `own` is the guest's configured address, `pairs` the number
    /// of queue pairs.
    pub(crate) fn note(&mut self, command: Command, own: Option<[u8; 6]>, pairs: u16) {
        match command {
            Command::Noted | Command::SetOffloads(_) | Command::GetHold(_) => return,
            Command::SetHolds(way, wish) => {
                let first = u16::from(way == Way::Send);
                return (0..pairs).for_each(|pair| self.set_hold(2 * pair + first, wish));
            }
            Command::SetHold(ring, wish) => return self.set_hold(ring, wish),
            Command::SetPairs(_) => return self.drop_table(),
            Command::SetRss(command) => return self.set_table(command),
            Command::SetHash(command) => {
                self.drop_table();
                return self.set_hash(Some(command));
            }
            Command::SetMode(mode, on) => self.modes.set(mode, on),
            Command::SetMacs(macs) => self.macs = macs,
            Command::SetMac(mac) => self.own = Some(Mac(mac)),
            Command::SetVlan(vlan, passes) => {
                self.vlans.get_or_insert_default().set(vlan, passes);
            }
        }
        self.publish_filter(own);
    }

    /// Sets table and hash, or none.
    fn set_table(&mut self, command: RssCommand) {
        self.set_hash(command.hash);
        self.table = command.hash.is_some().then_some(command);
        self.publish_table();
    }

    /// Leaves the choice of queues to the device again. The hash goes on being reported.
    fn drop_table(&mut self) {
        if self.table.take().is_some() {
            self.publish_table();
        }
    }

    fn set_hash(&mut self, command: Option<HashCommand>) {
        if self.hash == command {
            return;
        }
        self.hash = command;
        let made = command.map(|it| Arc::new(GuestHash::new(it.key, it.types)));
        self.change().hash = made;
    }

    fn set_hold(&mut self, ring: u16, wish: HoldWish) {
        if wish == HoldWish::default() {
            self.holds.remove(&ring);
        } else {
            self.holds.insert(ring, wish);
        }
        self.is_changed = true;
    }

    fn publish_table(&mut self) {
        let made = self
            .table
            .as_ref()
            .map(|it| Arc::new(GuestTable::new(it.table().to_vec(), it.unclassified)));
        self.change().table = made;
    }

    fn publish_filter(&mut self, own: Option<[u8; 6]>) {
        let Asked { modes, macs, vlans, .. } = &*self;
        let own = self.own.or(own.map(Mac));
        let filter = ReceiveFilter::new(*modes, own, macs, vlans.as_ref()).map(Arc::new);
        if filter != self.settings.filter {
            self.change().filter = filter;
        }
    }

    fn change(&mut self) -> &mut GuestSettings {
        self.is_changed = true;
        Arc::make_mut(&mut self.settings)
    }

    /// Writes what counts, for [`Asked::read`].
    pub(crate) fn write(&self, record: &mut Writer<'_>) {
        record.number(self.hash.is_some());
        if let Some(HashCommand { types, key }) = self.hash {
            record.number(types.bits());
            let words = key.0.as_chunks().0.iter();
            words.for_each(|word| record.number(u64::from_le_bytes(*word)));
        }
        record.number(self.table.is_some());
        if let Some(table) = &self.table {
            record.number(table.unclassified);
            record.number(table.pairs);
            record.number(table.table().len() as u64);
            table.table().iter().for_each(|queue| record.number(*queue));
        }
        record.number(self.modes.bits());
        for list in [&self.macs.unicast, &self.macs.multicast] {
            record.option(list.as_ref().map(|list| list.len() as u64));
            list.iter().flatten().for_each(|mac| record.number(mac.to_u64()));
        }
        record.option(self.own.map(Mac::to_u64));
        record.number(self.vlans.is_some());
        self.vlans.iter().flat_map(|vlans| *vlans.words()).for_each(|word| record.number(word));
        record.number(self.holds.len() as u64);
        for (ring, HoldWish { packets, microseconds }) in &self.holds {
            record.number(*ring);
            record.number(*packets);
            record.number(*microseconds);
        }
    }
}

/// Reads what [`Asked::write`] wrote, as the commands that a driver would send for it. They are
/// checked like those.
pub(crate) fn read_commands(record: &mut Reader) -> Result<Vec<Command>, CarrierError> {
    let mut commands = Vec::new();
    let hash = if record.flag()? { Some(read_hash(record)?) } else { None };
    if record.flag()? {
        let (unclassified, pairs) = (record.number()?, record.number()?);
        let count = record.number::<u16>()?;
        let table = (0..count).map(|_| record.number()).collect::<Result<_, _>>()?;
        let table = RssCommand::new(hash, table, unclassified, pairs);
        commands.push(Command::SetRss(table.ok_or(CarrierError::Number(count.into()))?));
    } else if let Some(hash) = hash {
        commands.push(Command::SetHash(hash));
    }
    let modes: u8 = record.number()?;
    let modes = Modes::from_bits(modes).ok_or(CarrierError::Number(modes.into()))?;
    let changed = (modes ^ Modes::default()).iter();
    commands.extend(changed.map(|mode| Command::SetMode(mode, modes.contains(mode))));
    let (unicast, multicast) = (read_list(record)?, read_list(record)?);
    let macs = MacTable { unicast, multicast };
    commands.extend((macs != MacTable::default()).then_some(Command::SetMacs(macs)));
    commands.extend(record.option()?.map(|mac| Command::SetMac(Mac::from_u64(mac).0)));
    if record.flag()? {
        let mut words = [0; 64];
        for word in &mut words {
            *word = record.number()?;
        }
        let vlans = VlanSet::from(words);
        // One that does not pass makes the set, where none does.
        let named = (0..4096).filter(|vlan| *vlan == 0 || vlans.contains(*vlan));
        commands.extend(named.map(|vlan| Command::SetVlan(vlan, vlans.contains(vlan))));
    }
    for _ in 0..record.number::<u8>()? {
        let (ring, packets, microseconds) = (record.number()?, record.number()?, record.number()?);
        commands.push(Command::SetHold(ring, HoldWish { packets, microseconds }));
    }
    Ok(commands)
}

fn read_hash(record: &mut Reader) -> Result<HashCommand, CarrierError> {
    let types: u16 = record.number()?;
    let types = HashTypes::from_bits(types).ok_or(CarrierError::Number(types.into()))?;
    let mut key = [0; 40];
    for word in key.as_chunks_mut().0 {
        *word = record.number::<u64>()?.to_le_bytes();
    }
    Ok(HashCommand { types, key: Key(key) })
}

fn read_list(record: &mut Reader) -> Result<Option<Vec<Mac>>, CarrierError> {
    let Some(count) = record.option::<u16>()? else { return Ok(None) };
    if usize::from(count) > MacTable::MOST {
        return Err(CarrierError::Number(count.into()));
    }
    (0..count).map(|_| Ok(Some(Mac::from_u64(record.number()?)))).collect()
}
