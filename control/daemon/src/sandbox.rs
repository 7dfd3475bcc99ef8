//! Gives up at startup what the daemon does not need: access to files ([files.rs](files)), system
//! calls that it never makes ([calls.rs](calls)), and CAP_SYS_ADMIN ([privilege.rs](privilege)). A
//! helper keeps CAP_SYS_ADMIN and enters the network namespaces of ports ([helper.rs](helper)). The
//! restrictions last until the process ends, so they are state of the process.
//!
//! Call [`restrict`] before a port is opened or a client answered, and before any thread that does
//! either is started: threads inherit the file restrictions of the thread that starts them, while
//! system calls are restricted in all threads at once.

mod calls;
pub(crate) mod dock;
mod files;
pub(crate) mod helper;
mod links;
mod opener;
mod privilege;

pub(crate) use opener::Restricted;

use api::body::{RestrictionBody, SandboxBody};
use config::{Config, Device, PortConfig};
use landlock::RulesetStatus;
use problem::Problem;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Directories for sockets besides the configured ones; users' temporary files are there too.
const USUAL: [&str; 2] = ["/run", "/tmp"];

/// Paths that the daemon itself reads.
const READABLE: [&str; 3] = ["/proc", "/sys", "/dev/urandom"];

/// The directory of the user and group files, which are replaced whenever an account is added.
const ACCOUNTS: &str = "/etc";

/// Files instead of [`ACCOUNTS`] for root, because no file mode protects the other secrets in that
/// directory from root.
const ACCOUNTS_OF_ROOT: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The directory of named namespaces, and its parent.
const NAMESPACES: [&str; 2] = ["/run/netns", "/run"];

/// Paths that the daemon uses throughout its life.
pub(crate) struct Places<'a> {
    /// The configuration file.
    pub(crate) file: Option<&'a Path>,
    /// The API's socket.
    pub(crate) socket: &'a Path,
    /// The state directory.
    pub(crate) state: &'a Path,
}

/// What the daemon may access; directories are resolved.
#[derive(Debug, Default)]
struct Allowed {
    /// Directories in which sockets can be created and removed.
    sockets: Vec<PathBuf>,
    /// Readable paths.
    readable: Vec<PathBuf>,
    /// Directories with namespaces of ports, which the helper reads.
    namespaces: Vec<PathBuf>,
    /// TCP ports of `[metrics] listen` and `[web] listen`.
    tcp: Vec<u16>,
}

/// Set once files are restricted.
static ALLOWED: OnceLock<Allowed> = OnceLock::new();

static IN_FORCE: Mutex<Option<SandboxBody>> = Mutex::new(None);

/// Returns the restrictions in force, for `status`.
pub(crate) fn in_force() -> SandboxBody {
    let in_force = IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut in_force = in_force.clone().unwrap_or_else(|| {
        let off = || RestrictionBody { in_force: false, detail: "`sandbox` is off".to_owned() };
        SandboxBody { files: off(), system_calls: off(), namespaces: off() }
    });
    if ports::namespace::helper::has_ended() {
        let ended = "the helper that enters them has ended: restart the daemon";
        ended.clone_into(&mut in_force.namespaces.detail);
    }
    in_force
}

/// Restricts the files of this thread and of those that it starts, and the system calls of all
/// threads. Gives up CAP_SYS_ADMIN after starting the helper, which keeps it. `helper` are the
/// arguments with which this program runs as the helper.
pub(crate) fn restrict(
    places: &Places<'_>,
    config: &Config,
    ports: &[PortConfig],
    helper: &[&str],
) {
    let all = || config.ports.iter().chain(ports);
    let allowed = Allowed::of(places, config, all());
    let allowed = match all().find(|port| process_namespace(port).is_some()) {
        None => Ok(allowed),
        Some(port) => Err(format!(
            "port {} is in a process's namespace, which a restricted daemon cannot enter: name the namespace (`ip netns attach \
             NAME PID`)",
            port.name
        )),
    };
    let directories = allowed.as_ref().map_or(&[][..], |allowed| &allowed.namespaces);
    let namespaces = body("namespaces", give_up_namespaces(helper, directories));
    let files = body("files", allowed.and_then(|allowed| restrict_files(places, allowed)));
    let refused = calls::refuse(calls::Role::Daemon);
    let refused = refused.map(|()| "seccomp".to_owned()).map_err(|error| error.to_string());
    let system_calls = body("system calls", refused);
    let in_force = SandboxBody { files, system_calls, namespaces };
    *IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_force);
}

/// Starts the helper if this process may enter namespaces. Then gives up the right to enter them.
fn give_up_namespaces(helper: &[&str], directories: &[PathBuf]) -> Result<String, String> {
    let started = privilege::has(helper::ENTERING).then(|| {
        let started = helper::start(helper, directories);
        // Tries trains in a new namespace, which takes the capability.
        ports::packet::try_trains();
        started
    });
    let lacking = match &started {
        None => {
            Some("the daemon needs CAP_SYS_ADMIN at its start (`AmbientCapabilities` of its unit)")
        }
        Some(Err(_)) => Some("no helper could be started when the daemon was: `status` says why"),
        Some(Ok(_)) => None,
    };
    lacking.into_iter().for_each(ports::namespace::helper::enter_none);
    privilege::give_up(helper::ENTERING)
        .map_err(|error| format!("CAP_SYS_ADMIN cannot be given up: {error}"))?;
    match started {
        None => Ok("without CAP_SYS_ADMIN none is entered".to_owned()),
        Some(Ok(process)) => Ok(format!("CAP_SYS_ADMIN is left to the helper, process {process}")),
        Some(Err(error)) => {
            tracing::error!(target: "control::sandbox", "ports in other namespaces cannot be opened: no helper: {error}");
            Ok(format!("none is entered, for no helper could be started: {error}"))
        }
    }
}

/// Restricts files. Returns the mechanism, or why they are not restricted.
fn restrict_files(places: &Places<'_>, allowed: Allowed) -> Result<String, String> {
    let status = files::allow(places, &allowed).map_err(|error| error.to_string())?;
    let detail = match status.ruleset {
        RulesetStatus::FullyEnforced => "Landlock",
        RulesetStatus::PartiallyEnforced => "Landlock, as far as this kernel supports it",
        RulesetStatus::NotEnforced => {
            return Err("this kernel lacks Landlock, or it is off".to_owned());
        }
    };
    let _ = ALLOWED.set(allowed);
    Ok(detail.to_owned())
}

fn body(what: &str, outcome: Result<String, String>) -> RestrictionBody {
    match outcome {
        Ok(detail) => {
            tracing::info!(target: "control::sandbox", "{what} are restricted ({detail})");
            RestrictionBody { in_force: true, detail }
        }
        Err(detail) => {
            tracing::warn!(target: "control::sandbox", "{what} are not restricted: {detail}");
            RestrictionBody { in_force: false, detail }
        }
    }
}

/// Returns why a restricted daemon cannot open a port; `None` if it can.
pub(crate) fn refusal(port: &PortConfig) -> Option<Problem> {
    ALLOWED.get()?.refusal(port)
}

/// Returns a problem with a file that could not be read for this error, if the sandbox is why: the
/// path leads elsewhere than at the start.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Option<Problem> {
    ALLOWED.get().filter(|_| error.kind() == io::ErrorKind::PermissionDenied)?.unreadable(path)
}

impl Allowed {
    fn unreadable(&self, path: &Path) -> Option<Problem> {
        let real = path.canonicalize().ok()?;
        let is_allowed = self.readable.iter().any(|allowed| real.starts_with(allowed));
        let allowed: Vec<_> = self.readable.iter().map(|path| path.display().to_string()).collect();
        (!is_allowed).then(|| {
            Problem::new(format!(
                "the daemon's sandbox keeps {} from being read: it leads elsewhere than at the start",
                path.display()
            ))
            .seen(real.display())
            .wanted(format!("a file in {}", allowed.join(", ")))
            .remedy("restart the daemon, which then follows the link anew, put what the link leads to there, or set `sandbox = false` in [switch] and restart")
        })
    }

    fn of<'p>(
        places: &Places<'_>,
        config: &Config,
        ports: impl Iterator<Item = &'p PortConfig>,
    ) -> Allowed {
        let (mut sockets, mut readable, mut namespaces) = (Vec::new(), Vec::new(), Vec::new());
        sockets.extend(USUAL.map(PathBuf::from));
        sockets.push(std::env::temp_dir());
        sockets.extend(config.switch.socket_directories.iter().cloned());
        sockets.extend(parent(places.socket));
        readable.extend(READABLE.map(PathBuf::from));
        match rustix::process::geteuid().is_root() {
            true => readable.extend(ACCOUNTS_OF_ROOT.map(PathBuf::from)),
            false => readable.push(ACCOUNTS.into()),
        }
        namespaces.extend(NAMESPACES.map(PathBuf::from).into_iter().find(|path| path.exists()));
        // Files that are reread, and their link targets.
        for file in places.file.into_iter().chain(config.web.token_file.as_deref()) {
            readable.extend(parent(file));
            readable.extend(file.canonicalize().ok().as_deref().and_then(parent));
            readable.extend(links::around(file));
        }
        for port in ports {
            sockets.extend(own_socket(port).and_then(parent));
            namespaces.extend(port.netns_path().as_deref().and_then(parent));
        }
        let resolved = |paths: Vec<PathBuf>| {
            let mut paths: Vec<_> =
                paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
            paths.sort_unstable();
            paths.dedup();
            paths
        };
        let tcp = [config.metrics.listen, config.web.listen].into_iter().flatten();
        let tcp = tcp.map(|address| address.port()).collect();
        let mut namespaces = resolved(namespaces);
        if namespaces.is_empty() {
            // With no directory the helper would open namespaces anywhere.
            namespaces.extend(NAMESPACES.map(PathBuf::from));
        }
        Allowed { sockets: resolved(sockets), readable: resolved(readable), namespaces, tcp }
    }

    fn refusal(&self, port: &PortConfig) -> Option<Problem> {
        if let Some(path) = process_namespace(port) {
            return Some(
                Problem::new("a restricted daemon cannot enter a process's namespace")
                    .seen(path.display())
                    .wanted("a named namespace")
                    .remedy("name it (`ip netns attach NAME PID`), or set `sandbox = false` in [switch] and restart"),
            );
        }
        let elsewhere = |path: &Path, allowed: &[PathBuf]| {
            // A missing path is reported when it is opened.
            let folder = parent(path).and_then(|folder| folder.canonicalize().ok());
            folder.is_some_and(|folder| !allowed.iter().any(|allowed| folder.starts_with(allowed)))
        };
        let refused = |what: &str, path: &Path, allowed: &[PathBuf], remedy: &str| {
            let allowed: Vec<_> = allowed.iter().map(|path| path.display().to_string()).collect();
            Problem::new(format!("a restricted daemon cannot {what} {}", path.display()))
                .seen(path.display())
                .wanted(format!("a path in {}", allowed.join(", ")))
                .remedy(remedy)
        };
        let socket = own_socket(port).filter(|path| elsewhere(path, &self.sockets));
        let netns = port.netns_path();
        let netns = netns.filter(|path| elsewhere(path, &self.namespaces));
        let socket = socket.map(|path| {
            let remedy = "move the socket there, or name its directory in `socket-directories` of [switch] and restart";
            refused("create the socket", path, &self.sockets, remedy)
        });
        socket.or_else(|| {
            let remedy =
                "name the namespace with `ip netns`, or set `sandbox = false` in [switch] and restart";
            netns.map(|path| refused("enter the namespace", &path, &self.namespaces, remedy))
        })
    }
}

/// Returns the socket that the daemon creates for the port.
fn own_socket(port: &PortConfig) -> Option<&Path> {
    match port.device() {
        Device::VhostUser(socket) if port.vhost_client != Some(true) => Some(socket.as_path()),
        _ => None,
    }
}

/// Returns the port's namespace if it is a process's link. Following that link means inspecting the
/// process, which the kernel refuses a restricted daemon.
fn process_namespace(port: &PortConfig) -> Option<PathBuf> {
    let path = port.netns_path()?;
    let process = path.strip_prefix("/proc").ok()?.iter().next()?.to_str()?;
    process.parse::<u32>().is_ok().then_some(path)
}

fn parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { ".".into() } else { parent.to_owned() })
}

#[cfg(test)]
mod tests;
