// UNSAFETY: makes system calls that no crate makes, to see them refused.
//! Tests of the daemon's restrictions. A process cannot lift them, so each test runs in a new one.
#![allow(unsafe_code)]

use super::{Allowed, Places, calls, helper, in_force, privilege, restrict};
use api::body::RestrictionBody;
use config::Config;
use ports::link::LinkError;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

/// Environment variable that tells this program that it is the process to restrict.
const INSIDE: &str = "MILLRACE_RESTRICTED";
/// Arguments with which this program runs as the helper.
const HELPER: [&str; 3] =
    ["--exact", "sandbox::tests::this_program_is_the_helper_too", "--nocapture"];

/// Runs as the helper if the arguments say so. Directories follow the test's name, and a test
/// program takes them for names of further tests.
#[test]
fn this_program_is_the_helper_too() {
    if sockopt::socket_type(io::stdin()) == Ok(SocketType::SEQPACKET) {
        let directories = std::env::args().skip(1 + HELPER.len()).map(Into::into);
        helper::run(&directories.collect::<Vec<_>>()).unwrap();
    }
}

#[test]
fn what_is_given_up_is_refused_in_all_threads_and_the_rest_goes_on() {
    if let Ok(directories) = std::env::var(INSIDE) {
        let (known, beyond) = directories.split_once(':').unwrap();
        return try_all(Path::new(known), Path::new(beyond));
    }
    // The restricted process could not remove them.
    let known = tempfile::tempdir().unwrap();
    let beyond = tempfile::tempdir_in("/var/tmp").unwrap();
    let directories = format!("{}:{}", known.path().display(), beyond.path().display());
    let name = "sandbox::tests::what_is_given_up_is_refused_in_all_threads_and_the_rest_goes_on";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output =
        again.args(["--exact", name, "--nocapture"]).env(INSIDE, directories).output().unwrap();
    let (text, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{text}{told}");
}

/// Tries all accesses: the daemon knows directory `known` and not `beyond`.
fn try_all(known: &Path, beyond: &Path) {
    fs::write(beyond.join("file"), "precious").unwrap();
    let state = known.join("state");
    fs::create_dir(&state).unwrap();
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (go, gone) = channel::<()>();
    let earlier = std::thread::spawn(move || {
        gone.recv().unwrap();
        let vsock = AddressFamily::from_raw(u16::try_from(libc::AF_VSOCK).unwrap());
        socket(vsock, SocketType::STREAM, None).err()
    });
    let places = Places { file: None, socket: &known.join("api.sock"), state: &state };
    let config = Config::from_toml("t", &format!("[web]\nlisten = '{free}'\n")).unwrap();
    let may_enter = privilege::has(helper::ENTERING);
    restrict(&places, &config, &[], &HELPER);
    go.send(()).unwrap();
    let seen = in_force();
    gives_up_namespaces(may_enter, &seen.namespaces);
    if seen.system_calls.in_force {
        assert_eq!(earlier.join().unwrap(), Some(Errno::PERM), "a thread that was there before");
        refuses_calls();
    } else {
        println!("skipped: needs seccomp: {}", seen.system_calls.detail);
    }
    if seen.files.in_force {
        refuses_files(known, beyond, &own);
    } else {
        println!("skipped: needs Landlock: {}", seen.files.detail);
    }
    goes_on(known, &state, free.port());
}

/// Checks the namespaces. An earlier thread still has the capability, which the daemon reports.
fn gives_up_namespaces(may_enter: bool, seen: &RestrictionBody) {
    assert!(!privilege::has(helper::ENTERING));
    assert_eq!(seen.in_force, !may_enter, "{}", seen.detail);
    assert!(seen.in_force || seen.detail.contains("a thread keeps it"), "{}", seen.detail);
    let nowhere = ports::link::Link::open("lo", Some(Path::new("/run/netns/there is none")));
    let LinkError::Namespace { source, .. } = nowhere.err().unwrap() else { panic!("entered") };
    match may_enter {
        true => assert_eq!(source.kind(), io::ErrorKind::NotFound, "the helper's answer: {source}"),
        false => assert!(source.to_string().contains("CAP_SYS_ADMIN"), "{source}"),
    }
}

/// Makes a system call with zeros as further arguments, with which none of the tried calls does
/// harm.
fn call(number: i64, arguments: [i64; 3]) -> Option<Errno> {
    let [one, two, three] = arguments;
    // SAFETY: a refused call does nothing, and one that is not fails for want of an argument.
    let done = unsafe { libc::syscall(number, one, two, three, 0, 0, 0) };
    (done == -1).then(|| Errno::from_io_error(&io::Error::last_os_error()).unwrap())
}

fn refuses_calls() {
    let refused = Some(Errno::PERM);
    assert_eq!(call(libc::SYS_execve, [0; 3]), refused, "nothing is refused");
    for number in calls::NEVER.iter().chain(calls::NEVER_HERE) {
        assert_eq!(call(*number, [0; 3]), refused, "system call {number}");
    }
    assert_eq!(call(libc::SYS_clone3, [0; 3]), Some(Errno::NOSYS));
    let executable = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let rows = [
        ("memory that is code", libc::SYS_mmap, [0, 4096, executable]),
        ("memory that becomes code", libc::SYS_mprotect, [0, 4096, executable]),
        ("a network namespace", libc::SYS_unshare, [libc::CLONE_NEWNET.into(), 0, 0]),
        ("another's mounts", libc::SYS_setns, [-1, libc::CLONE_NEWNS.into(), 0]),
        ("another's network", libc::SYS_setns, [-1, libc::CLONE_NEWNET.into(), 0]),
        ("a process", libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0]),
        ("a socket of another family", libc::SYS_socket, [libc::AF_VSOCK.into(), 1, 0]),
        ("typing into a terminal", libc::SYS_ioctl, [0, libc::TIOCSTI.cast_signed(), 0]),
        ("a call by its x32 number", 0x4000_0000 | libc::SYS_getpid, [0; 3]),
    ];
    for (what, number, arguments) in rows {
        if number < 0x4000_0000 || cfg!(target_arch = "x86_64") {
            assert_eq!(call(number, arguments), refused, "{what}");
        }
    }
    assert!(Command::new("true").spawn().is_err());
}

fn refuses_files(known: &Path, beyond: &Path, own: &TcpListener) {
    let file = beyond.join("file");
    let elsewhere = "127.0.0.1:0";
    let rows: [(&str, io::Result<()>); 12] = [
        ("read a file elsewhere", fs::read(&file).map(drop)),
        ("list a directory elsewhere", fs::read_dir(beyond).map(drop)),
        ("write to it", File::options().write(true).open(&file).map(drop)),
        ("remove it", fs::remove_file(&file)),
        ("make a file elsewhere", File::create(beyond.join("new")).map(drop)),
        ("make a socket elsewhere", UnixListener::bind(beyond.join("s")).map(drop)),
        ("make a file beside the sockets", File::create(known.join("new")).map(drop)),
        ("make a directory there", fs::create_dir(known.join("folder"))),
        ("make a link there", symlink(&file, known.join("link"))),
        ("open a device", File::options().write(true).open("/dev/zero").map(drop)),
        ("connect by TCP", TcpStream::connect(own.local_addr().unwrap()).map(drop)),
        ("listen at another port", TcpListener::bind(elsewhere).map(drop)),
    ];
    let secrets = Path::new("/etc/shadow");
    let secrets = secrets.exists().then(|| ("read passwords", fs::read(secrets).map(drop)));
    for (what, done) in rows.into_iter().chain(secrets) {
        let refused = done.err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::PermissionDenied), "{what}");
    }
    assert_eq!(fs::metadata(&file).unwrap().len(), 8);
}

fn goes_on(known: &Path, state: &Path, metrics: u16) {
    let socket = known.join("vm1.sock");
    drop(UnixListener::bind(&socket).unwrap());
    fs::remove_file(&socket).unwrap();
    fs::write(state.join("ports.json.next"), "{}").unwrap();
    fs::rename(state.join("ports.json.next"), state.join("ports.json")).unwrap();
    assert!(fs::read("/etc/passwd").is_ok() && fs::read("/proc/self/status").is_ok());
    TcpListener::bind(("127.0.0.1", metrics)).unwrap();
    assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn what_a_restricted_daemon_cannot_reach_is_refused_by_name() {
    let known = tempfile::tempdir().unwrap();
    let beyond = tempfile::tempdir_in("/var/tmp").unwrap();
    let (known, beyond) = (known.path().display(), beyond.path().display());
    let read = |text: &str| Config::from_toml("t", text).unwrap();
    let config = read(&format!("[[port]]\nname='a'\nvhost-user='{known}/a.sock'\n"));
    let places = Places {
        file: Some(Path::new("switch.toml")),
        socket: Path::new("/run/millrace/api.sock"),
        state: Path::new("/nowhere"),
    };
    let allowed = Allowed::of(&places, &config, config.ports.iter());
    let refused = |keys: &str| {
        let config = read(&format!("[[port]]\nname='p'\n{keys}\n"));
        allowed.refusal(&config.ports[0]).map(|problem| problem.error)
    };
    for keys in [
        format!("vhost-user='{known}/b.sock'"),
        "vhost-user='/run/b.sock'".into(),
        "vhost-user='/run/there/is/none/b.sock'".into(),
        format!("vhost-user='{beyond}/b.sock'\nvhost-client=true"),
        "tap='t'\nnetns='web'".into(),
        "tap='t'".into(),
    ] {
        assert_eq!(refused(&keys), None, "{keys}");
    }
    let told = format!("a restricted daemon cannot create the socket {beyond}/b.sock");
    assert_eq!(refused(&format!("vhost-user='{beyond}/b.sock'")), Some(told));
    let told = format!("a restricted daemon cannot enter the namespace {beyond}/web");
    assert_eq!(refused(&format!("tap='t'\nnetns='{beyond}/web'")), Some(told));
    let told = "a restricted daemon cannot enter a process's namespace";
    assert_eq!(refused("tap='t'\nnetns='/proc/7/ns/net'").as_deref(), Some(told));
}
