//! What this host must have before a daemon can start with a configuration: the groups and cores
//! that `[switch]` names, and a state directory that can be trusted.
//!
//! `check FILE` reports what is missing. A daemon that takes over looks before it asks the old one to
//! stop, so that one of the two always runs.

use crate::health::Kind;
use crate::state;
use api::body::FindingBody;
use config::{Account, Device, PortConfig, SwitchConfig, Workers, nearest};
use devices::accounts;
use problem::Problem;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::path::Path;

/// Names of devices that a message lists.
const LISTED: usize = 8;

/// Checks what a start needs from this host.
///
/// # Errors
/// A group or core does not exist, or the state directory cannot be trusted.
pub(crate) fn check(config: &SwitchConfig, state: &Path) -> Result<(), Problem> {
    match missing(config).into_iter().next() {
        Some((_, problem)) => Err(problem),
        None => state::trusted(state),
    }
}

/// Returns findings about groups and cores that this host does not have.
pub(crate) fn findings(config: &SwitchConfig) -> Vec<FindingBody> {
    missing(config).into_iter().map(|(kind, problem)| kind.found(problem)).collect()
}

fn missing(config: &SwitchConfig) -> Vec<(Kind, Problem)> {
    let groups = [&config.socket_group, &config.admin_group].into_iter().flatten();
    let groups = groups.filter_map(|group: &Account| accounts::group(group.as_str()).err());
    let cores = match &config.workers {
        Workers::Cores(cores) => cores.as_slice(),
        Workers::Auto | Workers::Count(_) => &[],
    };
    let absent: Vec<_> = cores.iter().filter(|core| !is_usable(**core)).collect();
    let cores = (!absent.is_empty()).then(|| {
        Problem::new("this host has no such core for a worker, or does not let this process use it")
            .seen(format!("{absent:?}"))
            .wanted("cores that are online, and in the process's cpuset")
            .remedy("correct `workers` in [switch]; `lscpu -e` shows the cores")
    });
    let groups = groups.map(|problem| (Kind::GroupMissing, problem));
    groups.chain(cores.map(|problem| (Kind::CoreMissing, problem))).collect()
}

/// Returns findings about network devices of ports that this host does not have. Devices in other
/// namespaces are not looked for, and TAP devices and veth pairs are created.
pub(crate) fn missing_devices(ports: &[PortConfig]) -> Vec<FindingBody> {
    let here = ports.iter().filter(|port| port.netns.is_none());
    let absent = |port: &PortConfig| {
        let device = port.device();
        let names = match &device {
            Device::Packet(_) | Device::Xdp(_) | Device::Team(_) => device.names(),
            _ => Vec::new(),
        };
        let absent = names.into_iter().filter(|name| !is_here(name));
        absent.map(|name| not_there(port, &name)).collect::<Vec<_>>()
    };
    here.flat_map(absent).map(|problem| Kind::DeviceMissing.found(problem)).collect()
}

fn is_here(device: &str) -> bool {
    Path::new("/sys/class/net").join(device).exists()
}

fn not_there(port: &PortConfig, device: &str) -> Problem {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != "lo").collect();
    names.sort();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let remedy = match nearest(device, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`ip link` shows the devices; if it comes later, nothing is to be done".to_owned(),
    };
    let wanted = match known.get(..LISTED) {
        Some(first) => format!("{}, …", first.join(", ")),
        None => known.join(", "),
    };
    Problem::new(format!("port {}: this host has no network device {device}", port.name))
        .seen(device)
        .wanted(wanted)
        .remedy(remedy)
}

/// Returns whether a thread can run on a core, by what a worker does at its start.
fn is_usable(core: u16) -> bool {
    let core = usize::from(core);
    let pin = move || {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores).is_ok()
    };
    core < CpuSet::MAX_CPU && std::thread::spawn(pin).join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;
    use std::os::unix::fs::PermissionsExt;

    fn of(switch: &str) -> Vec<FindingBody> {
        findings(&Config::from_toml("t", &format!("[switch]\n{switch}")).unwrap().switch)
    }

    #[test]
    fn groups_and_cores_that_are_not_there_are_found() {
        let is_here = rustix::thread::sched_getaffinity(None).unwrap();
        let core = (0..CpuSet::MAX_CPU).find(|core| is_here.is_set(*core)).unwrap();
        let right = format!("workers = [{core}]\nadmin-group = \"root\"\nsocket-group = \"4321\"");
        assert_eq!(of(&right), []);
        assert_eq!(of("workers = 2"), []);
        let found = of("workers = [4095]\nadmin-group = \"no-such-group\"");
        let kinds: Vec<_> = found.iter().map(|found| found.kind.as_str()).collect();
        assert_eq!(kinds, ["group_missing", "core_missing"]);
        assert_eq!(found[1].problem.seen, "[4095]");
    }

    /// `check FILE` found nothing in a file whose NIC was misspelt.
    #[test]
    fn a_network_device_that_is_not_there_is_found() {
        let found = |keys: &str| {
            let text = format!("[[port]]\nname = \"up\"\n{keys}");
            let found = missing_devices(&Config::from_toml("t", &text).unwrap().ports);
            found.into_iter().map(|found| found.problem.error).collect::<Vec<_>>()
        };
        assert_eq!(found("packet = \"lo\""), Vec::<String>::new());
        assert_eq!(found("tap = \"no-such\""), Vec::<String>::new());
        assert_eq!(found("packet = \"no-such\"\nnetns = \"guest\""), Vec::<String>::new());
        let told = "port up: this host has no network device no-such";
        assert_eq!(found("packet = \"no-such\""), [told]);
        assert_eq!(found("team = [\"lo\", \"no-such\"]"), [told]);
    }

    #[test]
    fn a_state_directory_that_others_may_write_keeps_from_a_start() {
        let (config, folder) = (SwitchConfig::default(), tempfile::tempdir().unwrap());
        assert_eq!(check(&config, &folder.path().join("not there yet")), Ok(()));
        assert_eq!(check(&config, folder.path()), Ok(()));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(check(&config, folder.path()).is_err());
    }
}
