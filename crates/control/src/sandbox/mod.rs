//! What the daemon gives up as it starts: files beyond those that it needs ([files.rs](files)), and system calls that it never
//! makes ([calls.rs](calls)). Both hold for the process until it ends, so what is in force is a fact of the process.
//!
//! [`restrict`] is called before a port is opened or a client answered, and before any thread that does either is started: a thread's
//! files pass to those that it starts, while system calls are restricted in all threads at once.

mod calls;
mod files;

use crate::Problem;
use crate::body::{RestrictionBody, SandboxBody};
use crate::config::{Config, Namespace, PortConfig};
use landlock::RulesetStatus;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where sockets are made beside the directories that are named; temporary files of the host's users lie there, too.
const USUAL: [&str; 2] = ["/run", "/tmp"];

/// What the daemon itself has to read.
const READABLE: [&str; 3] = ["/proc", "/sys", "/dev/urandom"];

/// Where users and groups are by name. The files are others whenever one is added.
const ACCOUNTS: &str = "/etc";

/// The same for root, which no file's mode keeps from the host's secrets in that directory.
const ACCOUNTS_OF_ROOT: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// Where namespaces are by name, and what it is made in.
const NAMESPACES: [&str; 2] = ["/run/netns", "/run"];

/// What the daemon uses from its start to its end.
pub(crate) struct Places<'a> {
    /// The configuration file.
    pub(crate) file: Option<&'a Path>,
    /// The API's socket.
    pub(crate) socket: &'a Path,
    /// The state directory.
    pub(crate) state: &'a Path,
}

/// What the daemon may use; directories are resolved.
#[derive(Debug, Default)]
struct Allowed {
    /// Where sockets can be made and removed.
    sockets: Vec<PathBuf>,
    /// What can be read; namespaces are among it.
    readable: Vec<PathBuf>,
    /// TCP ports of `[metrics] listen` and `[web] listen`.
    tcp: Vec<u16>,
}

/// Set where files are restricted.
static ALLOWED: OnceLock<Allowed> = OnceLock::new();

static IN_FORCE: Mutex<Option<SandboxBody>> = Mutex::new(None);

/// What is in force, for `status`.
pub(crate) fn in_force() -> SandboxBody {
    let in_force = IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner);
    in_force.clone().unwrap_or_else(|| {
        let off = || RestrictionBody { in_force: false, detail: "`sandbox` is off".to_owned() };
        SandboxBody { files: off(), system_calls: off() }
    })
}

/// Restricts the files of this thread and of those that it starts, and the system calls of all threads.
pub(crate) fn restrict(places: &Places<'_>, config: &Config, ports: &[PortConfig]) {
    let files = body("files", restrict_files(places, config, ports));
    let refused = calls::refuse().map(|()| "seccomp".to_owned()).map_err(|error| error.to_string());
    let system_calls = body("system calls", refused);
    let in_force = SandboxBody { files, system_calls };
    *IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_force);
}

/// By what they are restricted, or why they are not.
fn restrict_files(
    places: &Places<'_>,
    config: &Config,
    ports: &[PortConfig],
) -> Result<String, String> {
    let all = || config.ports.iter().chain(ports);
    if let Some(port) = all().find(|port| process_namespace(port).is_some()) {
        return Err(format!(
            "port {} is in the namespace of a process, which a restricted daemon cannot enter: give it a name (`ip netns attach \
             NAME PID`)",
            port.name
        ));
    }
    let allowed = Allowed::of(places, config, all());
    let status = files::allow(places, &allowed).map_err(|error| error.to_string())?;
    let detail = match status.ruleset {
        RulesetStatus::FullyEnforced => "Landlock",
        RulesetStatus::PartiallyEnforced => "Landlock, as far as this kernel has it",
        RulesetStatus::NotEnforced => {
            return Err("this kernel has no Landlock, or it is off".to_owned());
        }
    };
    let _ = ALLOWED.set(allowed);
    Ok(detail.to_owned())
}

fn body(what: &str, outcome: Result<String, String>) -> RestrictionBody {
    match outcome {
        Ok(detail) => {
            tracing::info!("{what} are restricted ({detail})");
            RestrictionBody { in_force: true, detail }
        }
        Err(detail) => {
            tracing::warn!("{what} are not restricted: {detail}");
            RestrictionBody { in_force: false, detail }
        }
    }
}

/// Why a port cannot be opened by a restricted daemon, if it cannot.
pub(crate) fn refusal(port: &PortConfig) -> Option<Problem> {
    ALLOWED.get()?.refusal(port)
}

impl Allowed {
    fn of<'p>(
        places: &Places<'_>,
        config: &Config,
        ports: impl Iterator<Item = &'p PortConfig>,
    ) -> Allowed {
        let (mut sockets, mut readable) = (Vec::new(), Vec::new());
        sockets.extend(USUAL.map(PathBuf::from));
        sockets.push(std::env::temp_dir());
        sockets.extend(config.switch.socket_directories.iter().cloned());
        sockets.extend(parent(places.socket));
        readable.extend(READABLE.map(PathBuf::from));
        match rustix::process::geteuid().is_root() {
            true => readable.extend(ACCOUNTS_OF_ROOT.map(PathBuf::from)),
            false => readable.push(ACCOUNTS.into()),
        }
        readable.extend(NAMESPACES.map(PathBuf::from).into_iter().find(|path| path.exists()));
        // The files that are read again, and what they may be links to.
        for file in places.file.into_iter().chain(config.web.token_file.as_deref()) {
            readable.extend(parent(file));
            readable.extend(file.canonicalize().ok().as_deref().and_then(parent));
        }
        for port in ports {
            sockets.extend(own_socket(port).and_then(parent));
            readable.extend(port.netns.as_ref().map(Namespace::path).as_deref().and_then(parent));
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
        Allowed { sockets: resolved(sockets), readable: resolved(readable), tcp }
    }

    fn refusal(&self, port: &PortConfig) -> Option<Problem> {
        if let Some(path) = process_namespace(port) {
            return Some(
                Problem::new("a restricted daemon cannot enter the namespace of a process")
                    .seen(path.display())
                    .wanted("a namespace with a name")
                    .remedy("give it one (`ip netns attach NAME PID`), or set `sandbox = false` in [switch] and restart"),
            );
        }
        let elsewhere = |path: &Path, allowed: &[PathBuf]| {
            // What is not there is told by those that open it.
            let folder = parent(path).and_then(|folder| folder.canonicalize().ok());
            folder.is_some_and(|folder| !allowed.iter().any(|allowed| folder.starts_with(allowed)))
        };
        let refused = |what: &str, path: &Path, allowed: &[PathBuf], remedy: &str| {
            let allowed: Vec<_> = allowed.iter().map(|path| path.display().to_string()).collect();
            Problem::new(format!("a restricted daemon cannot {what} {}", path.display()))
                .seen(path.display())
                .wanted(format!("a path below {}", allowed.join(", ")))
                .remedy(remedy)
        };
        let socket = own_socket(port).filter(|path| elsewhere(path, &self.sockets));
        let netns = port.netns.as_ref().map(Namespace::path);
        let netns = netns.filter(|path| elsewhere(path, &self.readable));
        let socket = socket.map(|path| {
            let remedy = "move it there, or name its directory in `socket-directories` of [switch] and restart";
            refused("make the socket", path, &self.sockets, remedy)
        });
        socket.or_else(|| {
            let remedy =
                "name it with `ip netns`, or set `sandbox = false` in [switch] and restart";
            netns.map(|path| refused("enter the namespace", &path, &self.readable, remedy))
        })
    }
}

/// The socket that the daemon makes for the port.
fn own_socket(port: &PortConfig) -> Option<&Path> {
    let path = port.vhost_user.as_ref().map(|socket| socket.as_path());
    path.filter(|_| port.vhost_client != Some(true))
}

/// The port's namespace where it is named by a process: to follow that link is to look into the process, which the kernel refuses to a
/// restricted one.
fn process_namespace(port: &PortConfig) -> Option<PathBuf> {
    let path = port.netns.as_ref().map(Namespace::path)?;
    let process = path.strip_prefix("/proc").ok()?.iter().next()?.to_str()?;
    process.parse::<u32>().is_ok().then_some(path)
}

fn parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { ".".into() } else { parent.to_owned() })
}

#[cfg(test)]
mod tests;
