//! Ports: where frames enter and leave the switch.
//!
//! A port is opened into a [`Device`]: some ingress queues, as many egress queues, and facts about
//! it. A worker owns an ingress queue and uses it in three steps each turn:
//!
//! 1. [`Ingress::take`] fills a [`Burst`]. The payload stays where the port has it and is *lent*:
//!    the burst borrows the queue, so the compiler ensures that nothing outlives the loan.
//! 2. The switch decides, and hands [`Outgoing`] frames (a private header and a list of lent
//!    slices) to [`Egress::deliver`] of other ports, which copies each byte once.
//! 3. [`Ingress::release`] gives the buffers back to the source, one publish per burst.
//!
//! A worker calls [`Ingress::arm`] before it sleeps, and waits for [`Ingress::ready_fd`].
//!
//! A new kind of port is a variant of the two enums and its own file. [`tap`] connects the kernel
//! of this host or of a container, [`packet`] and [`xdp`] an interface of the host, [`team`]
//! several of them as one, [`vhost`] a guest behind a Unix socket, and [`memory`] a test. [`fault`]
//! wraps any port for tests; [`capture`] writes a port's frames to pcapng; [`link`] asks the kernel
//! about the device behind a port; [`veth`] makes a container's pair for a packet port; [`steering`]
//! chooses the queue of an uplink at which a flow arrives. Wrappers for tests may copy and allocate; the others never do so per frame.

mod announced;
mod bpf;
mod burst;
mod capabilities;
pub mod capture;
mod clock;
pub mod closing;
mod contract;
pub mod fault;
mod gather;
mod ioctl;
mod kept;
pub mod kernel_path;
pub mod link;
pub mod memory;
pub mod namespace;
pub mod packet;
mod probe;
mod queue;
mod recycle;
pub mod side_by_side;
mod slice;
pub mod steering;
pub mod tap;
pub mod team;
mod time;
pub mod veth;
pub mod vhost;
pub mod xdp;

pub use announced::Announced;
pub use bpf::may_load_programs;
pub use burst::{Burst, BurstLimit, RawFrame, VlanTag};
pub use capabilities::{Capabilities, SettingsVersion, Speaker};
pub use clock::{Clock, Past, Stopwatch, TimeLimit, time_of_faults};
pub use contract::{Device, Egress, EgressDrop, Ingress, Offloads, Outgoing, PortFault, Room};
pub use gather::Gatherer;
pub use queue::{EgressQueue, IngressQueue};
pub use recycle::recycle;
pub use slice::Slice;
pub use time::Nanos;
pub use vhost_user::{Locked, lock};
