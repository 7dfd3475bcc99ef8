//! A front end that dies after each message of a session, and within the next one: none is left
//! out. What it had goes with it, and the next one is served.

use crate::support;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use test_guest::Guest;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vhost_user::{Features, Session, State};
use vmm_sys_util::eventfd::EventFd;

const MEMORY: u64 = 1 << 20;
/// Where the front end has the guest's memory.
const USER: u64 = 1 << 40;
/// Descriptors of a ring.
const SIZE: u16 = 64;
/// The table of what is tried.
const DOCUMENT: &str = include_str!("../../../../docs/attacks.md");

/// A front end, and all that it has sent.
struct Front {
    frontend: Frontend,
    stream: UnixStream,
    memory: OwnedFd,
    log: OwnedFd,
    inflight: Option<(VhostUserInflight, File)>,
    events: Vec<EventFd>,
}

/// A message by its name in the protocol, whether the guest runs after it, and how it is sent.
type Step = (&'static str, bool, fn(&mut Front));

/// A guest boots, moves away, does not, has memory plugged in and out, and shuts down.
const SESSION: [Step; 40] = [
    ("GET_FEATURES", false, |it| _ = it.frontend.get_features().unwrap()),
    ("GET_PROTOCOL_FEATURES", false, |it| _ = it.frontend.get_protocol_features().unwrap()),
    ("SET_PROTOCOL_FEATURES", false, |it| {
        let all = it.frontend.get_protocol_features().unwrap();
        let wanted = all & !VhostUserProtocolFeatures::REPLY_ACK;
        it.frontend.set_protocol_features(wanted).unwrap();
    }),
    ("SET_OWNER", false, |it| it.frontend.set_owner().unwrap()),
    ("GET_QUEUE_NUM", false, |it| _ = it.frontend.get_queue_num().unwrap()),
    ("GET_MAX_MEM_SLOTS", false, |it| _ = it.frontend.get_max_mem_slots().unwrap()),
    ("GET_CONFIG", false, |it| {
        it.frontend.get_config(0, 12, VhostUserConfigFlags::empty(), &[0; 12]).unwrap();
    }),
    ("SEND_RARP", false, |it| it.send(19, &[0x0403_0201, 0x0605])),
    ("NET_SET_MTU", false, |it| it.send(20, &[1500, 0])),
    ("SET_FEATURES", false, |it| it.take(Features::empty())),
    ("SET_STATUS", false, |it| it.send(39, &[15, 0])),
    ("GET_INFLIGHT_FD", false, |it| {
        let wanted =
            VhostUserInflight { num_queues: 2, queue_size: SIZE, ..VhostUserInflight::default() };
        it.inflight = Some(it.frontend.get_inflight_fd(&wanted).unwrap());
    }),
    ("SET_INFLIGHT_FD", false, |it| {
        let (said, file) = it.inflight.as_ref().unwrap();
        it.frontend.set_inflight_fd(said, file.as_raw_fd()).unwrap();
    }),
    ("SET_MEM_TABLE", false, |it| _ = it.frontend.set_mem_table(&[it.region(0)]).unwrap()),
    ("SET_VRING_NUM of 0", false, |it| it.frontend.set_vring_num(0, SIZE).unwrap()),
    ("SET_VRING_BASE of 0", false, |it| it.frontend.set_vring_base(0, 0).unwrap()),
    ("SET_VRING_ADDR of 0", false, |it| it.place(0)),
    ("SET_VRING_ERR of 0", false, |it| it.event(|front, event| front.set_vring_err(0, event))),
    ("SET_VRING_CALL of 0", false, |it| it.event(|front, event| front.set_vring_call(0, event))),
    ("SET_VRING_KICK of 0", false, |it| it.event(|front, event| front.set_vring_kick(0, event))),
    ("SET_VRING_ENABLE of 0", false, |it| it.frontend.set_vring_enable(0, true).unwrap()),
    ("SET_VRING_NUM of 1", false, |it| it.frontend.set_vring_num(1, SIZE).unwrap()),
    ("SET_VRING_BASE of 1", false, |it| it.frontend.set_vring_base(1, 0).unwrap()),
    ("SET_VRING_ADDR of 1", false, |it| it.place(1)),
    ("SET_VRING_ERR of 1", false, |it| it.event(|front, event| front.set_vring_err(1, event))),
    ("SET_VRING_CALL of 1", false, |it| it.event(|front, event| front.set_vring_call(1, event))),
    ("SET_VRING_KICK of 1", false, |it| it.event(|front, event| front.set_vring_kick(1, event))),
    ("SET_VRING_ENABLE of 1", true, |it| it.frontend.set_vring_enable(1, true).unwrap()),
    ("SET_LOG_BASE", true, |it| {
        let (mmap_size, mmap_handle) = (4096, it.log.as_raw_fd());
        let region = VhostUserDirtyLogRegion { mmap_size, mmap_offset: 0, mmap_handle };
        it.frontend.set_log_base(0, Some(region)).unwrap();
    }),
    ("SET_FEATURES with LOG_ALL", true, |it| it.take(Features::LOG_ALL)),
    ("SET_VRING_ADDR with a log", true, |it| it.place(0)),
    ("SET_FEATURES without LOG_ALL", true, |it| it.take(Features::empty())),
    ("ADD_MEM_REG", true, |it| {
        let region = it.region(1);
        it.frontend.add_mem_region(&region).unwrap();
    }),
    ("REM_MEM_REG", true, |it| {
        let region = it.region(1);
        it.frontend.remove_mem_region(&region).unwrap();
    }),
    ("SET_VRING_ENABLE, off", false, |it| it.frontend.set_vring_enable(0, false).unwrap()),
    ("SET_VRING_ENABLE, on again", true, |it| it.frontend.set_vring_enable(0, true).unwrap()),
    ("GET_VRING_BASE of 0", false, |it| _ = it.frontend.get_vring_base(0).unwrap()),
    ("GET_VRING_BASE of 1", false, |it| _ = it.frontend.get_vring_base(1).unwrap()),
    ("SET_STATUS of 0", false, |it| it.send(39, &[0, 0])),
    ("RESET_DEVICE", false, |it| it.frontend.reset_device().unwrap()),
];

impl Front {
    fn connect(socket: &Path) -> Front {
        let stream = UnixStream::connect(socket).unwrap();
        let file = |bytes| {
            let file = memfd_create("crash", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, bytes).unwrap();
            file
        };
        Front {
            frontend: Frontend::from_stream(stream.try_clone().unwrap(), 2),
            stream,
            memory: file(2 * MEMORY),
            log: file(4096),
            inflight: None,
            events: Vec::new(),
        }
    }

    fn take(&mut self, more: Features) {
        let taken = Features::VERSION_1 | Features::MRG_RXBUF | Features::PROTOCOL_FEATURES;
        self.frontend.set_features((taken | more).bits()).unwrap();
    }

    /// A message that the `vhost` crate does not know.
    fn send(&mut self, number: u32, body: &[u32; 2]) {
        let words = [number, 1, 8, body[0], body[1]].map(u32::to_ne_bytes);
        self.stream.write_all(words.as_flattened()).unwrap();
    }

    fn region(&self, place: u64) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: place << 30,
            memory_size: MEMORY,
            userspace_addr: USER + (place << 30),
            mmap_offset: place * MEMORY,
            mmap_handle: self.memory.as_raw_fd(),
        }
    }

    fn place(&mut self, ring: usize) {
        let at = USER + ((ring as u64) << 16);
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: at,
            avail_ring_addr: at + 0x2000,
            used_ring_addr: at + 0x4000,
            log_addr: None,
        };
        self.frontend.set_vring_addr(ring, &config).unwrap();
    }

    fn event(&mut self, give: fn(&Frontend, &EventFd) -> vhost::Result<()>) {
        let event = EventFd::new(0).unwrap();
        give(&self.frontend, &event).unwrap();
        self.events.push(event);
    }
}

/// Threads, descriptors, and mappings of what front ends have sent.
fn held() -> [usize; 3] {
    let entries = |path| std::fs::read_dir(path).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("/memfd:")).count();
    [entries("/proc/self/task"), entries("/proc/self/fd"), mapped]
}

fn until(what: &str, look: impl Fn() -> bool) {
    waiting::until(what, || look().then_some(()).ok_or_else(|| format!("{:?} are held", held())));
}

/// Opens a port that waits for a front end. Each front end gets its own port, since a port with
/// front ends that come and go makes the next one wait.
fn open(socket: &Path) -> Session {
    Session::open(support::options(socket, 1)).unwrap()
}

/// Sends so many messages, perhaps some bytes of one more, and dies: until then the port is as the
/// document says.
fn die_after(socket: &Path, session: &Session, count: usize, within_the_next: bool) {
    let mut front = Front::connect(socket);
    let (mut name, mut runs) = ("connect", false);
    for (message, makes_it_run, send) in &SESSION[..count] {
        send(&mut front);
        (name, runs) = (message, *makes_it_run);
    }
    let state = if runs { State::Running } else { State::Connected };
    until(&format!("{state:?} after {name}"), || session.status().state == state);
    let row = format!("| {name} | {} |", if runs { "running" } else { "connected" });
    assert!(DOCUMENT.contains(&row), "docs/attacks.md lacks {row}");
    if within_the_next {
        front.stream.write_all(&[18, 0, 0, 0, 1, 0]).unwrap();
    }
    drop(front);
    let waits = format!("the end after {name}, within the next: {within_the_next}");
    until(&waits, || session.status().state == State::Waiting);
}

#[test]
fn a_front_end_that_dies_at_any_message_leaves_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("s");
    // What the first session of a process makes stays.
    let threads = held()[0];
    drop(open(&socket));
    until("the end of a session", || held()[0] == threads);
    let ground = held();
    for (count, within_the_next) in (0..=SESSION.len()).flat_map(|it| [(it, false), (it, true)]) {
        let session = open(&socket);
        let before = held();
        die_after(&socket, &session, count, within_the_next);
        until(&format!("as much as before message {count}"), || held() == before);
        let guest = Guest::connect(&socket, Features::VERSION_1.bits(), 1).unwrap();
        until("the next guest", || session.status().state == State::Running);
        drop((guest, session));
        until("as much as before the session", || held() == ground);
    }
}
