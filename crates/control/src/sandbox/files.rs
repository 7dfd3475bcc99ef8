//! What of the file system, and of TCP, the daemon may use from its start on, in this thread and in those that it starts.
//!
//! The kernel takes no rule back and lets none be added, while the API and a reload bring new paths. So what is allowed are
//! directories: those that `[switch]` names, those that the ports at the start have something in, and where sockets and
//! namespaces usually are. A rule is about the file that is at a path now, not about the path. A path elsewhere is refused by name ([`super::refusal`]).

use super::{Allowed, Places};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use std::path::Path;

/// What is known of: newer kernels refuse more, and are not asked to.
const KNOWN: ABI = ABI::V6;

/// Binds this thread.
pub(super) fn allow(
    places: &Places<'_>,
    allowed: &Allowed,
) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    let state =
        read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::Signal)?
        .create()?;
    let mut rules = rule(rules, Path::new("/dev/net/tun"), device)?;
    rules = rule(rules, places.state, state)?;
    for directory in &allowed.readable {
        rules = rule(rules, directory, read)?;
    }
    for directory in &allowed.sockets {
        rules = rule(rules, directory, sockets)?;
    }
    for port in &allowed.tcp {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    rules.restrict_self()
}

/// What is not there needs no rule.
fn rule(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    match PathFd::new(path) {
        Ok(file) => rules.add_rule(PathBeneath::new(file, access)),
        Err(_) => Ok(rules),
    }
}
