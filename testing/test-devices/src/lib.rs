//! Memory ports behind any device's name, so that tests run the whole control plane without devices
//! and privileges.
//!
//! [`MemoryDevices`] is the opener that a test gives the daemon. The test keeps a clone of it,
//! which says what happens to a device ([`Fate`]), and has the other side of each port
//! ([`MemoryDevices::peer`]).

use config::{Device, PortConfig, Scale};
use devices::{Condition, DeviceState, OpenError, Opened, Opener, Watch};
use ports::packet::Spread;
use ports::steering::{ENTRIES, EntryMove, Moved, Order, Steering, SteeringError, Table, Vnic};
use ports::{Capabilities, Offloads, memory};
use problem::Problem;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;
use wire::Mac;

/// An [`Opener`] of memory ports. Every device opens, unless [`set`](MemoryDevices::set) says
/// otherwise. Clones share their devices.
#[derive(Clone, Default)]
pub struct MemoryDevices(Arc<Mutex<Host>>);

/// The devices, by name, and what tests have set.
#[derive(Default)]
struct Host {
    /// Ports whose devices were removed.
    removed: Vec<String>,
    /// Devices that are not just up.
    fates: BTreeMap<String, Fate>,
    /// Addresses that do not follow from the device's name.
    macs: BTreeMap<String, Mac>,
    /// Addresses that devices' ports had in an earlier process.
    earlier_macs: BTreeMap<String, Mac>,
    /// The other sides of the open devices' first queues.
    peers: BTreeMap<String, memory::Peer>,
    /// Front ends that have connected to each device.
    connections: BTreeMap<String, u64>,
    /// What the open devices tell the switch while it runs.
    live: BTreeMap<String, Weak<Capabilities>>,
    /// The tables of open uplinks with several queues.
    steering: BTreeMap<String, Weak<MemorySteering>>,
    /// Most vNICs of an uplink, if limited.
    most_vnics: Option<usize>,
    /// Whether uplinks fail to remove vNICs.
    keeps_vnics: bool,
}

/// What happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fate {
    /// It exists and is up.
    #[default]
    Up,
    /// It exists and is down.
    Down,
    /// It exists and carries no frames until it is reopened.
    Failed,
    /// It does not exist.
    Gone,
    /// It exists and this process may not open it.
    Denied,
}

impl MemoryDevices {
    /// Sets what happens to a device from now on.
    pub fn set(&self, device: &str, fate: Fate) {
        self.host().fates.insert(device.to_owned(), fate);
    }

    /// Gives a device another address the next time it is opened.
    pub fn set_mac(&self, device: &str, mac: Mac) {
        self.host().macs.insert(device.to_owned(), mac);
    }

    /// Sets the address that a device's port had in an earlier process, which it resumes when
    /// opened from now on.
    pub fn set_earlier_mac(&self, device: &str, mac: Mac) {
        self.host().earlier_macs.insert(device.to_owned(), mac);
    }

    /// Replaces the guest behind a device: one leaves, and another one connects at once.
    pub fn replace_guest(&self, device: &str) {
        let mut host = self.host();
        let live = host.live.get(device).and_then(Weak::upgrade);
        live.into_iter().for_each(|live| live.replace_guest());
        *host.connections.entry(device.to_owned()).or_default() += 1;
    }

    /// Limits the vNICs of each uplink.
    pub fn limit_tables(&self, most: usize) {
        self.host().most_vnics = Some(most);
    }

    /// Sets whether uplinks fail to remove vNICs from now on.
    pub fn refuse_removal(&self, refuse: bool) {
        self.host().keeps_vnics = refuse;
    }

    /// Returns the tables of an open uplink with several queues.
    pub fn steering(&self, device: &str) -> Option<Arc<MemorySteering>> {
        self.host().steering.get(device)?.upgrade()
    }

    /// Returns the ports whose devices were removed, in this order.
    pub fn removed(&self) -> Vec<String> {
        self.host().removed.clone()
    }

    /// Returns the other side of an open device's first queue.
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
    fn remove(&self, port: &PortConfig) -> Result<(), Problem> {
        self.host().removed.push(port.name.to_string());
        Ok(())
    }

    fn open(&self, port: &PortConfig, scale: Scale) -> Result<Opened, OpenError> {
        let device = port.device().names().join("+");
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
        let queues = port.queue_pairs(scale).min(QUEUES);
        for _ in 1..queues {
            let (more, _) = open()?;
            opened.ingress.extend(more.ingress);
            opened.egress.extend(more.egress);
        }
        opened.live.set_queues(queues);
        self.host().live.insert(device.clone(), Arc::downgrade(&opened.live));
        // The device of a guest's vNIC does not have the vNIC's address.
        let mac = self.host().macs.get(&device).copied().unwrap_or_else(|| address(&device));
        opened.mac = (!port.device().is_guest()).then_some(mac);
        self.host().peers.insert(device.clone(), peer);
        let spread = match u8::try_from(port.queue_pairs(scale)) {
            Ok(queues @ 2..) if matches!(port.device(), Device::Packet(_)) => {
                let steering = Arc::new(MemorySteering::new(queues, self.clone()));
                self.host().steering.insert(device.clone(), Arc::downgrade(&steering));
                Spread::Tables(steering)
            }
            _ => Spread::Single,
        };
        let earlier_mac = self.host().earlier_macs.get(&device).copied();
        let watch = MemoryWatch { devices: self.clone(), device, mtu: Mutex::new(mtu), spread };
        Ok(Opened { device: opened, degraded: Vec::new(), watch: Box::new(watch), earlier_mac })
    }
}

/// Returns a locally administered address that follows from the name.
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
        let connections = connections.unwrap_or_default();
        let connected = connections > 0 && fate == Fate::Up;
        DeviceState { condition, mtu, connections, connected }
    }

    fn spread(&self) -> Spread {
        self.spread.clone()
    }

    fn set_mtu(&self, mtu: u16) -> Result<(), Problem> {
        *self.mtu.lock().unwrap_or_else(PoisonError::into_inner) = mtu;
        Ok(())
    }
}

/// The table of a vNIC.
#[derive(Clone)]
struct Row {
    /// Address and VLAN; `None` for the default vNIC.
    station: Option<(Mac, u16)>,
    table: Table,
    frames: [u64; ENTRIES],
}

/// The tables of an uplink. They steer nothing: frames of a memory port arrive at its first queue.
pub struct MemorySteering {
    queues: u8,
    devices: MemoryDevices,
    vnics: Mutex<BTreeMap<Vnic, Row>>,
    /// Number of vNICs that were removed.
    removed: Mutex<u32>,
    /// Locked while entries move.
    moves: Mutex<()>,
}

impl MemorySteering {
    /// Returns the tables of an uplink with this number of queues and only the default vNIC.
    pub fn new(queues: u8, devices: MemoryDevices) -> MemorySteering {
        let mut table = [0; ENTRIES];
        table.iter_mut().zip((0..queues).cycle()).for_each(|(entry, queue)| *entry = queue);
        let default = Row { station: None, table, frames: [0; ENTRIES] };
        let vnics = Mutex::new(BTreeMap::from([(Vnic::DEFAULT, default)]));
        MemorySteering { queues, devices, vnics, removed: Mutex::new(0), moves: Mutex::new(()) }
    }

    /// Counts frames as if an entry of a vNIC's table had steered them.
    pub fn count(&self, vnic: Vnic, entry: usize, frames: u64) {
        let mut vnics = self.vnics();
        let count = vnics.get_mut(&vnic).and_then(|row| row.frames.get_mut(entry));
        count.into_iter().for_each(|count| *count += frames);
    }

    /// Lets moves of entries last, and adding and removing vNICs fail, until the guard is dropped.
    pub fn hold_moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_moving(&self) -> bool {
        matches!(self.moves.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn vnics(&self) -> MutexGuard<'_, BTreeMap<Vnic, Row>> {
        self.vnics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn removed(&self) -> MutexGuard<'_, u32> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row(&self, vnic: Vnic) -> Result<Row, SteeringError> {
        self.vnics().get(&vnic).cloned().ok_or(SteeringError::NoSuchVnic(vnic.number))
    }
}

impl Steering for MemorySteering {
    fn queues(&self) -> u8 {
        self.queues
    }

    fn add_vnic(&self, mac: Mac, vlan: u16) -> Result<Vnic, SteeringError> {
        if self.is_moving() {
            return Err(SteeringError::Busy);
        }
        let most = self.devices.host().most_vnics.unwrap_or(usize::MAX);
        let default = self.row(Vnic::DEFAULT)?;
        let mut vnics = self.vnics();
        if vnics.values().any(|row| row.station == Some((mac, vlan))) {
            return Err(SteeringError::InUse { mac, vlan });
        }
        let of = |number, generation| Vnic { number, generation };
        let is_free =
            |number: &u16| vnics.range(of(*number, 0)..=of(*number, u32::MAX)).next().is_none();
        let number = (1..=u16::MAX).find(is_free).filter(|_| vnics.len() <= most);
        let number = number.ok_or(SteeringError::Full(most))?;
        let vnic = Vnic { number, generation: *self.removed() };
        let row = Row { station: Some((mac, vlan)), frames: [0; ENTRIES], ..default };
        vnics.insert(vnic, row);
        Ok(vnic)
    }

    fn remove_vnic(&self, vnic: Vnic) -> Result<(), SteeringError> {
        if self.is_moving() {
            return Err(SteeringError::Busy);
        }
        if self.devices.host().keeps_vnics {
            let source = io::ErrorKind::PermissionDenied.into();
            return Err(SteeringError::Io { doing: "forget the vNIC", source });
        }
        self.vnics().remove(&vnic).ok_or(SteeringError::NoSuchVnic(vnic.number))?;
        *self.removed() += 1;
        Ok(())
    }

    fn table(&self, vnic: Vnic) -> Result<Table, SteeringError> {
        self.row(vnic).map(|row| row.table)
    }

    fn frames(&self, vnic: Vnic) -> Result<[u64; ENTRIES], SteeringError> {
        self.row(vnic).map(|row| row.frames)
    }

    fn set_entry(&self, vnic: Vnic, entry: usize, queue: u8) -> Result<(), SteeringError> {
        if queue >= self.queues {
            return Err(SteeringError::NoSuchQueue { queue, queues: self.queues });
        }
        let mut vnics = self.vnics();
        let row = vnics.get_mut(&vnic).ok_or(SteeringError::NoSuchVnic(vnic.number))?;
        *row.table.get_mut(entry).ok_or(SteeringError::NoSuchEntry(entry))? = queue;
        Ok(())
    }

    fn move_entries(&self, moves: &[EntryMove], _: Duration) -> Result<Vec<Moved>, SteeringError> {
        let _moving = self.hold_moves();
        let mut queues: BTreeMap<u8, Vec<(Vnic, usize)>> = BTreeMap::new();
        for EntryMove { vnic, entry, queue } in moves {
            let Ok(row) = self.row(*vnic) else { continue };
            self.set_entry(*vnic, *entry, *queue)?;
            if row.table.get(*entry) != Some(queue) {
                queues.entry(*queue).or_default().push((*vnic, *entry));
            }
        }
        let (order, held) = (Order::Kept, Duration::ZERO);
        let moved = |entries| Moved { entries, order, held_frames: 0, lost_frames: 0, held };
        Ok(queues.into_values().map(moved).collect())
    }
}
