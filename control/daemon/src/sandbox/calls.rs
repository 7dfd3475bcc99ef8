// UNSAFETY: loads a program of ours into the kernel; no crate loads one for all threads that also
// has refusals logged.
//! System calls that the daemon never makes. The kernel refuses them, so that code injected through
//! a bug of ours cannot make them either.
//!
//! The list is of refused calls, not of allowed ones. A C library's calls change with its version,
//! and a call missing from an allow list fails in the field. The systemd unit has an allow list
//! too, which the host's administrator can change. A refused call fails with EPERM, and the kernel
//! logs it (audit type 1326); traffic continues.
#![allow(unsafe_code)]

use libc::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER,
    CLONE_NEWUTS, CLONE_THREAD, PROT_EXEC,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;

/// Calls refused with any arguments.
pub(super) const NEVER: &[i64] = &[
    // Calls that start a program, or inspect another process.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_perf_event_open,
    // Calls that administer the host.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_nfsservctl,
    // Calls that mount.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Calls that make a namespace, or change the user.
    libc::SYS_unshare,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_personality,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Parts of the kernel that exploits have used and that the daemon does not need.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_vmsplice,
];

/// Further refused calls, on processors that have them.
#[cfg(target_arch = "x86_64")]
pub(super) const NEVER_HERE: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const NEVER_HERE: &[i64] = &[];

/// Address families of sockets that the daemon opens.
const FAMILIES: &[i32] = &[
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
    libc::AF_PACKET,
    libc::AF_XDP,
];

/// The process that refuses calls.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// The daemon, which enters no namespace.
    Daemon,
    /// The helper, which enters network namespaces and makes sockets there, but uses only its
    /// socket to the daemon.
    Helper,
    /// A process that waits for pages of one guest, and has descriptors of that guest alone.
    Ferry,
}

/// Calls that processes beside the daemon refuse too, since each uses only the sockets it has.
const NEVER_BESIDE: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_setsockopt,
];

/// Further calls that only a ferry refuses. Of `ioctl` it makes the one by which it registers
/// addresses for missing pages.
const NEVER_OF_FERRY: &[i64] = &[
    libc::SYS_setns,
    libc::SYS_socket,
    libc::SYS_bpf,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_prlimit64,
];
/// `UFFDIO_REGISTER`.
const REGISTER: u64 = 0xc020_aa00;

/// Has the kernel refuse the role's calls from now on, in all threads.
///
/// # Errors
/// The kernel does not load the filter.
pub(super) fn refuse(role: Role) -> Result<(), Box<dyn Error>> {
    // The filter cannot read the flags of `clone3`, which are in memory. With ENOSYS the C library
    // uses `clone` instead.
    load(&compile(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)?)?;
    let mut rules = rules()?;
    if !matches!(role, Role::Daemon) {
        rules.extend(NEVER_BESIDE.iter().map(|call| (*call, Vec::new())));
    }
    match role {
        Role::Daemon => rules.insert(libc::SYS_setns, Vec::new()),
        Role::Helper => {
            rules.insert(libc::SYS_ioctl, Vec::new());
            rules.insert(libc::SYS_setns, vec![only(vec![differs(1, CLONE_NEWNET)?])?])
        }
        Role::Ferry => {
            rules.extend(NEVER_OF_FERRY.iter().map(|call| (*call, Vec::new())));
            rules.insert(libc::SYS_ioctl, vec![only(vec![is(1, SeccompCmpOp::Ne, REGISTER)?])?])
        }
    };
    load(&compile(rules, libc::EPERM)?)?;
    Ok(())
}

/// Returns the calls that all roles refuse.
fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().chain(NEVER_HERE).map(|call| (*call, Vec::new())).collect();
    let executable = || Ok(vec![only(vec![has(2, PROT_EXEC)?])?]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, executable()?);
    }
    // To abort, the process signals one of its own threads.
    let own = std::process::id().cast_signed();
    rules.insert(libc::SYS_tgkill, vec![only(vec![differs(0, own)?])?]);
    let others = FAMILIES.iter().map(|family| differs(0, *family)).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, vec![only(others)?]);
    // The daemon starts threads and no process.
    let namespaces = [
        CLONE_NEWCGROUP,
        CLONE_NEWIPC,
        CLONE_NEWNET,
        CLONE_NEWNS,
        CLONE_NEWPID,
        CLONE_NEWUSER,
        CLONE_NEWUTS,
    ];
    let mut clone = vec![only(vec![lacks(0, CLONE_THREAD)?])?];
    for namespace in namespaces {
        clone.push(only(vec![has(0, namespace)?])?);
    }
    rules.insert(libc::SYS_clone, clone);
    // These inject input into the terminal from which the daemon was started.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = typing.map(|request| only(vec![is(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    Ok(rules)
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn only(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions)
}

fn is(argument: u8, operator: SeccompCmpOp, value: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// Returns a 32-bit argument as the kernel sees it.
fn bits(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

fn has(argument: u8, flag: i32) -> Condition {
    is(argument, SeccompCmpOp::MaskedEq(bits(flag)), bits(flag))
}

fn lacks(argument: u8, flag: i32) -> Condition {
    is(argument, SeccompCmpOp::MaskedEq(bits(flag)), 0)
}

fn differs(argument: u8, value: i32) -> Condition {
    is(argument, SeccompCmpOp::Ne, bits(value))
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: i32,
) -> Result<BpfProgram, Box<dyn Error>> {
    let refused = SeccompAction::Errno(error.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture)?;
    let mut program = without_x32();
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Refuses the x32 ABI, which has a second number for every call.
fn without_x32() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const FIRST_X32: u32 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    vec![
        sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: FIRST_X32 },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: refused },
    ]
}

/// Loads the program for all threads and those that they start.
fn load(program: &BpfProgram) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        first: *const sock_filter,
    }
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = Program { length, first: program.as_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG;
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: `program` is a sock_fprog. Its instructions outlive the call; the kernel checks and
    // copies them.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    match done {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}
