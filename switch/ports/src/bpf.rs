// UNSAFETY: the `bpf` call takes structs with pointers in them, and a mapped map is memory that the
// kernel reads.
//! The `bpf` system call as far as ports need it: maps, maps that are mapped, programs, and the
//! link that attaches one to an interface (Linux `uapi/linux/bpf.h`). Used by
//! [`packet`](crate::packet)'s steering and by [`xdp`](crate::xdp).
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "sizes of small structs, maps and programs")]

pub(crate) mod assemble;
pub(crate) mod run;
pub(crate) mod types;

use assemble::{Assembler, Instruction, Operation, Register};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const MAP_TYPE_XSK: u32 = 17;
/// `BPF_F_NO_PREALLOC`: memory is only taken by entries.
const NO_PREALLOC: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;
/// `BPF_XDP`, where a link attaches a program.
const ATTACH_XDP: u32 = 37;
/// `BPF_TCX_INGRESS`, Linux 6.6.
const ATTACH_TCX_INGRESS: u32 = 46;

/// The kind of a program.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// `BPF_PROG_TYPE_SOCKET_FILTER`
    SocketFilter = 1,
    /// `BPF_PROG_TYPE_SCHED_CLS`
    Classifier = 3,
    /// `BPF_PROG_TYPE_XDP`
    Xdp = 6,
}

/// Where the kernel runs an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// `XDP_FLAGS_SKB_MODE`: in the stack, for any device.
    Generic = 1 << 1,
    /// `XDP_FLAGS_DRV_MODE`: in the driver.
    Native = 1 << 2,
}

impl Hook {
    /// Returns the hook with this number.
    pub(crate) fn of(number: u32) -> Option<Hook> {
        [Hook::Generic, Hook::Native].into_iter().find(|hook| *hook as u32 == number)
    }
}

/// Shown by `bpftool`; at most 15 bytes.
const NAME: [u8; 16] = *b"millrace\0\0\0\0\0\0\0\0";

/// The start of the attributes of `BPF_MAP_CREATE`.
#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// The start of the attributes of `BPF_MAP_LOOKUP_ELEM`, `BPF_MAP_UPDATE_ELEM` and
/// `BPF_MAP_DELETE_ELEM`.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The start of the attributes of `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The attributes of `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A hash map with keys of `KEY` bytes and values of 4.
pub(crate) struct HashMap<const KEY: usize>(OwnedFd);

impl<const KEY: usize> HashMap<KEY> {
    /// Creates an empty map that holds at most `entries`. Fails if the kernel refuses it.
    pub(crate) fn create(entries: usize) -> io::Result<HashMap<KEY>> {
        create_map(MAP_TYPE_HASH, KEY as u32, 4, entries as u32, 0).map(HashMap)
    }

    /// Creates a map like [`HashMap::create`], of which only entries take memory.
    pub(crate) fn create_sparse(entries: usize) -> io::Result<HashMap<KEY>> {
        create_map(MAP_TYPE_HASH, KEY as u32, 4, entries as u32, NO_PREALLOC).map(HashMap)
    }

    /// Inserts or replaces an entry. Fails if the map is full.
    pub(crate) fn insert(&self, key: [u8; KEY], value: u32) -> io::Result<()> {
        self.element(MAP_UPDATE_ELEM, &key, Some(&value))
    }

    /// Removes an entry. Fails if it is not there.
    pub(crate) fn remove(&self, key: [u8; KEY]) -> io::Result<()> {
        self.element(MAP_DELETE_ELEM, &key, None)
    }

    fn element(
        &self,
        command: libc::c_int,
        key: &[u8; KEY],
        value: Option<&u32>,
    ) -> io::Result<()> {
        let mut attributes = ElementAttributes {
            map: number(&self.0),
            padding: 0,
            key: address(key),
            value: value.map_or(0, address),
            flags: 0,
        };
        // SAFETY: key and value outlive the call and have the sizes the map was made with.
        unsafe { bpf(command, &mut attributes) }.map(drop)
    }
}

impl<const KEY: usize> AsFd for HashMap<KEY> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An array map in this process's memory: a program's next run reads what is stored here.
pub(crate) struct MappedArray {
    memory: NonNull<u8>,
    len: usize,
    map: OwnedFd,
}

// SAFETY: the memory is only ever reached as atomics.
unsafe impl Send for MappedArray {}
// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Creates `entries` values of `value_size` bytes, a multiple of 8, all zero. Fails if the
    /// kernel refuses the map or its mapping.
    pub(crate) fn create(value_size: usize, entries: usize) -> io::Result<MappedArray> {
        let map = create_map(MAP_TYPE_ARRAY, 4, value_size as u32, entries as u32, MAPPABLE)?;
        let len = value_size * entries;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &map, 0) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MappedArray { memory, len, map })
    }

    /// Returns the bytes of all values, one value behind the other.
    pub(crate) fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: mapped as long as the array lives, and never reached but as atomics on our side.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len) }
    }
}

impl MappedArray {
    /// Returns all values as words of 8 bytes.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: as `bytes`; a mapping starts at a page, and values are multiples of 8 bytes.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.len / 8) }
    }
}

impl AsFd for MappedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing borrows any more.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()), "the mapping was ours");
    }
}

/// A value for each processor, which only programs reach.
pub(crate) struct PerProcessor(OwnedFd);

impl PerProcessor {
    /// Creates the value of `size` bytes, at most 16, all zero. Fails if the kernel refuses the map.
    pub(crate) fn create(size: u32) -> io::Result<PerProcessor> {
        create_map(MAP_TYPE_PERCPU_ARRAY, 4, size, 1, 0).map(PerProcessor)
    }

    /// Reads the value of each processor into `values`, one behind the other. They are of 8 bytes,
    /// or a multiple, and there is room for as many as a kernel may have. Fails if the kernel
    /// refuses it.
    pub(crate) fn read(&self, values: &mut [u8; PerProcessor::ROOM]) -> io::Result<()> {
        let key = 0u32;
        let mut attributes = ElementAttributes {
            map: number(&self.0),
            padding: 0,
            key: address(&key),
            value: std::ptr::from_mut(values).addr() as u64,
            flags: 0,
        };
        // SAFETY: the key outlives the call; values of at most 16 bytes fit for 8192 processors, the
        // most that a kernel is built for.
        unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) }.map(drop)
    }

    /// Bytes that all values take at most.
    pub(crate) const ROOM: usize = 16 << 13;
}

impl AsFd for PerProcessor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The AF_XDP sockets by queue (`BPF_MAP_TYPE_XSKMAP`), to which a program redirects frames.
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Creates an empty map for `queues` queues. Fails if the kernel refuses it.
    pub(crate) fn create(queues: u32) -> io::Result<SocketMap> {
        create_map(MAP_TYPE_XSK, 4, 4, queues, 0).map(SocketMap)
    }

    /// Redirects frames of the queue to this socket from now on. The entry goes when the socket is
    /// closed. Fails if the kernel refuses the socket.
    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd().cast_unsigned();
        let mut attributes = ElementAttributes {
            map: number(&self.0),
            padding: 0,
            key: address(&queue),
            value: address(&socket),
            flags: 0,
        };
        // SAFETY: key and value outlive the call and have the sizes the map was made with.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Attaches an XDP program to an interface of this thread's network namespace until the link is
/// closed, at the latest when the process ends. Fails with EBUSY or EEXIST if another program is
/// attached.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    link(program, interface, ATTACH_XDP, hook as u32)
}

/// Attaches a classifier to what an interface of this thread's network namespace receives, behind
/// those that are there, until the link is closed. Fails with EINVAL before Linux 6.6.
pub(crate) fn attach_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    link(program, interface, ATTACH_TCX_INGRESS, 0)
}

fn link(
    program: BorrowedFd<'_>,
    interface: u32,
    attach_type: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd().cast_unsigned();
    let mut attributes = LinkAttributes { program, interface, attach_type, flags };
    // SAFETY: the attributes hold no pointers.
    let link = unsafe { bpf(LINK_CREATE, &mut attributes) }?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Loads a program. Fails with EPERM if the process lacks CAP_BPF in the host's user namespace.
pub(crate) fn load(kind: Kind, program: &[Instruction]) -> io::Result<OwnedFd> {
    load_as(kind, program, c"Apache-2.0")
}

/// Loads a program that reads the kernel's own structs. Its source has to be available under the
/// MIT licence and the GPL too: the kernel lets no other program do so. Fails with EPERM if the
/// process lacks CAP_BPF or CAP_PERFMON in the host's user namespace.
pub(crate) fn load_reader(kind: Kind, program: &[Instruction]) -> io::Result<OwnedFd> {
    load_as(kind, program, c"Dual MIT/GPL")
}

fn load_as(kind: Kind, program: &[Instruction], license: &CStr) -> io::Result<OwnedFd> {
    let mut attributes = ProgramAttributes {
        kind: kind as u32,
        count: program.len() as u32,
        instructions: program.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: NAME,
    };
    // SAFETY: program and license outlive the call; the kernel verifies the program.
    let program = unsafe { bpf(PROG_LOAD, &mut attributes) }?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// Returns whether the kernel lets this process load programs for the frames of interfaces. It loads
/// one, since that depends on more than capabilities: on the user namespace, and on filters of system
/// calls.
pub fn may_load_programs() -> bool {
    /// `XDP_PASS`
    const PASS: i32 = 2;
    let mut program = Assembler::default();
    program.compute(Register::R0, Operation::Set, PASS);
    program.exit();
    program.finish().is_some_and(|program| load(Kind::Xdp, &program).is_ok())
}

fn create_map(kind: u32, key: u32, value: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapAttributes {
        kind,
        key_size: key,
        value_size: value,
        entries,
        flags,
        inner_map: 0,
        numa_node: 0,
        name: NAME,
    };
    // SAFETY: the attributes hold no pointers.
    let map = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(map) })
}

/// Calls `bpf` and returns its result.
///
/// # Safety
/// The attributes must be those of the command, and pointers in them valid until it is back.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let pointer: *mut T = attributes;
    // SAFETY: the kernel takes missing attributes for zero; the rest is the caller's word.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size_of::<T>()) };
    match libc::c_int::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value).addr() as u64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::assemble::Helper;
    use super::*;

    /// Makes the interface's stack put a tag beside every sent frame, until the link is closed.
    pub(crate) fn tag_all(interface: u32, tci: u16) -> io::Result<OwnedFd> {
        /// `BPF_TCX_EGRESS`
        const ATTACH_EGRESS: u32 = 47;
        let mut program = Assembler::default();
        program.compute(Register::R2, Operation::Set, i32::from(0x8100u16.to_be()));
        program.compute(Register::R3, Operation::Set, i32::from(tci));
        program.call(Helper::PushTag);
        program.compute(Register::R0, Operation::Set, 0);
        program.exit();
        let program = load(Kind::Classifier, &program.finish().expect("no jumps"))?;
        link(program.as_fd(), interface, ATTACH_EGRESS, 0)
    }

    /// Returns a program's verdict on a frame of at least 15 bytes without a tag beside it, and the
    /// nanoseconds of a run.
    pub(crate) fn run(program: &OwnedFd, frame: &[u8], times: u32) -> (u32, u32) {
        run::run(program.as_fd(), frame, None, times).expect("a run")
    }
}
