//! Memory ports behind any name, so that the whole control plane runs without devices and privileges.

use crate::Problem;
use crate::config::PortConfig;
use crate::devices::{Condition, DeviceState, OpenError, Opened, Opener, Watch};
use ports::packet::Spread;
use ports::steering::{ENTRIES, Moved, Order, Steering, SteeringError, Table, Vnic};
use ports::{Offloads, memory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::Mac;
use wire::toeplitz::Key;

/// An [`Opener`] for tests and in-process guests. Every device opens, until [`set`](MemoryDevices::set) says otherwise.
#[derive(Clone, Default)]
pub struct MemoryDevices(Arc<Mutex<Host>>);

/// What a host would know of its devices.
#[derive(Default)]
struct Host {
    fates: BTreeMap<String, Fate>,
    /// Addresses, where they do not follow from the name.
    macs: BTreeMap<String, Mac>,
    peers: BTreeMap<String, memory::Peer>,
    /// Front ends that have connected to each device.
    connections: BTreeMap<String, u64>,
    /// Most vNICs of an uplink, where that is limited.
    tables: Option<usize>,
}

/// What happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fate {
    /// It is there and up.
    #[default]
    Up,
    /// It is there and down.
    Down,
    /// It is there and works no more until it is opened anew.
    Failed,
    /// It is not there.
    Gone,
    /// It is there and this process may not open it.
    Denied,
}

impl MemoryDevices {
    /// What shall happen to a device from now on.
    pub fn set(&self, device: &str, fate: Fate) {
        self.host().fates.insert(device.to_owned(), fate);
    }

    /// Gives a device another address the next time it is opened.
    pub fn set_mac(&self, device: &str, mac: Mac) {
        self.host().macs.insert(device.to_owned(), mac);
    }

    /// The guest behind a device leaves, and another one connects at once.
    pub fn replace_guest(&self, device: &str) {
        *self.host().connections.entry(device.to_owned()).or_default() += 1;
    }

    /// Uplinks opened from now on take no more vNICs than this.
    pub fn limit_tables(&self, most: usize) {
        self.host().tables = Some(most);
    }

    /// The other side of an open device's first queue.
    pub fn peer(&self, device: &str) -> Option<memory::Peer> {
        self.host().peers.get(device).cloned()
    }

    fn host(&self) -> MutexGuard<'_, Host> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, device: &str) -> Fate {
        self.host().fates.get(device).copied().unwrap_or_default()
    }
}

/// Frames a memory port holds in either direction.
const DEPTH: usize = 256;

/// Most queue pairs of a memory port: each takes a file descriptor.
const QUEUES: u16 = 4;

impl Opener for MemoryDevices {
    fn open(&self, port: &PortConfig) -> Result<Opened, OpenError> {
        let device = port.devices().next().map(|(_, device)| device).unwrap_or_default();
        let refuse = |reason: &str, denied| OpenError { reason: reason.to_owned(), denied };
        match self.fate(&device) {
            Fate::Gone => return Err(refuse("there is no such device", false)),
            Fate::Denied => return Err(refuse("permission denied", true)),
            Fate::Up | Fate::Down | Fate::Failed => {}
        }
        let mtu = port.mtu.map_or(1500, |mtu| mtu.0);
        let open = || {
            let opened = memory::open(DEPTH, Offloads::all(), mtu);
            opened.map_err(|error| refuse(&error.to_string(), false))
        };
        let (mut opened, peer) = open()?;
        let queues = port.queues.map_or(1, |queues| queues.0.min(QUEUES));
        for _ in 1..queues {
            let (more, _) = open()?;
            opened.ingress.extend(more.ingress);
            opened.egress.extend(more.egress);
        }
        opened.live.set_queues(queues);
        // A guest's vNIC does not tell its address.
        let mac = self.host().macs.get(&device).copied().unwrap_or_else(|| address(&device));
        opened.mac = port.vhost_user.is_none().then_some(mac);
        self.host().peers.insert(device.clone(), peer);
        let queues = port.queues.map_or(1, |queues| queues.0);
        let spread = match u8::try_from(queues) {
            Ok(queues @ 2..) if port.packet.is_some() => {
                Spread::Tables(Arc::new(MemorySteering::new(queues, self.clone())))
            }
            _ => Spread::Single,
        };
        let watch = MemoryWatch { devices: self.clone(), device, mtu: Mutex::new(mtu), spread };
        Ok(Opened { device: opened, degraded: Vec::new(), watch: Box::new(watch) })
    }
}

/// A locally administered address that follows from the name.
fn address(device: &str) -> Mac {
    let sum = device.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let [a, b, c, d] = sum.to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

struct MemoryWatch {
    devices: MemoryDevices,
    device: String,
    mtu: Mutex<u16>,
    spread: Spread,
}

impl Watch for MemoryWatch {
    fn state(&self) -> DeviceState {
        let fate = self.devices.fate(&self.device);
        let mtu = *self.mtu.lock().unwrap_or_else(PoisonError::into_inner);
        let condition = match fate {
            Fate::Up => Condition::Up,
            Fate::Down => Condition::Down("its device is administratively down".to_owned()),
            Fate::Failed => Condition::Failed("its ring has stalled".to_owned()),
            Fate::Gone => Condition::Gone,
            Fate::Denied => Condition::Up,
        };
        let connections = self.devices.host().connections.get(&self.device).copied();
        DeviceState { condition, mtu, connections: connections.unwrap_or_default() }
    }

    fn spread(&self) -> Spread {
        self.spread.clone()
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        *self.mtu.lock().unwrap_or_else(PoisonError::into_inner) = mtu;
        Ok(())
    }
}

/// The address and VLAN of each vNIC, of which the default one has none, and its table.
type Tables = BTreeMap<Vnic, (Option<(Mac, u16)>, Table)>;

/// The tables of an uplink, which steer nothing: a memory port has one queue.
struct MemorySteering {
    queues: u8,
    devices: MemoryDevices,
    vnics: Mutex<Tables>,
}

impl MemorySteering {
    fn new(queues: u8, devices: MemoryDevices) -> MemorySteering {
        let mut table = [0; ENTRIES];
        table.iter_mut().zip((0..queues).cycle()).for_each(|(entry, queue)| *entry = queue);
        let vnics = Mutex::new(BTreeMap::from([(Vnic::DEFAULT, (None, table))]));
        MemorySteering { queues, devices, vnics }
    }

    fn vnics(&self) -> MutexGuard<'_, Tables> {
        self.vnics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Steering for MemorySteering {
    fn queues(&self) -> u8 {
        self.queues
    }

    fn set_key(&self, _: &Key) {}

    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError> {
        let most = self.devices.host().tables.unwrap_or(usize::MAX);
        let mut vnics = self.vnics();
        if vnics.values().any(|(station, _)| *station == Some((mac, vlan))) {
            return Err(SteeringError::InUse { mac, vlan });
        }
        let free = (1..=u16::MAX).map(Vnic).find(|vnic| !vnics.contains_key(vnic));
        let vnic = free.filter(|_| vnics.len() <= most).ok_or(SteeringError::Full(most))?;
        let table = vnics.get(&Vnic::DEFAULT).map_or([0; ENTRIES], |(_, table)| *table);
        vnics.insert(vnic, (Some((mac, vlan)), table));
        Ok(vnic)
    }

    fn remove_vnic(&self, vnic: Vnic) -> Result<(), SteeringError> {
        self.vnics().remove(&vnic).map(drop).ok_or(SteeringError::NoSuchVnic(vnic.0))
    }

    fn table(&self, vnic: Vnic) -> Result<Table, SteeringError> {
        let table = self.vnics().get(&vnic).map(|(_, table)| *table);
        table.ok_or(SteeringError::NoSuchVnic(vnic.0))
    }

    fn frames(&self, vnic: Vnic) -> Result<[u64; ENTRIES], SteeringError> {
        self.table(vnic).map(|_| [0; ENTRIES])
    }

    fn set_entry(&self, vnic: Vnic, entry: usize, queue: u8) -> Result<(), SteeringError> {
        let mut vnics = self.vnics();
        let table = vnics.get_mut(&vnic).map(|(_, table)| table);
        let table = table.ok_or(SteeringError::NoSuchVnic(vnic.0))?;
        *table.get_mut(entry).ok_or(SteeringError::NoSuchEntry(entry))? = queue;
        Ok(())
    }

    fn move_entries(
        &self,
        entries: &[(Vnic, usize)],
        queue: u8,
        _: Duration,
    ) -> Result<Moved, SteeringError> {
        entries.iter().try_for_each(|&(vnic, entry)| self.set_entry(vnic, entry, queue))?;
        Ok(Moved { order: Order::Kept, held_frames: 0, held: Duration::ZERO })
    }
}
