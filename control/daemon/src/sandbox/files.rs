//! Restricts file system and TCP access from startup on, in this thread and in those that it
//! starts.
//!
//! The kernel allows no later change of the rules, but the API and a reload bring new paths. So the
//! rules allow directories: those that `[switch]` names, those that the ports use at startup, and
//! the usual ones for sockets and namespaces. A rule applies to the file at a path now, not to the
//! path. The daemon refuses other paths by name ([`super::refusal`]).

use super::{Allowed, Places};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use std::path::{Path, PathBuf};

/// The newest ABI that is used; newer kernels can restrict more.
const KNOWN: ABI = ABI::V6;

/// Restricts this thread, and those that it starts.
///
/// # Errors
/// The kernel refuses the rules.
pub(super) fn allow(
    places: &Places<'_>,
    allowed: &Allowed,
) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    let state =
        read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let mut rules = rule(nothing_but_tap()?, places.state, state)?;
    for directory in &allowed.readable {
        rules = rule(rules, directory, read)?;
    }
    for directory in &allowed.sockets {
        rules = rule(rules, directory, sockets)?;
    }
    // A veth port does without the host's IPv6 stack. Kept open, or the kernel may make the
    // directory's inode anew, for which the rule does not hold.
    if let Ok(directory) = PathFd::new("/proc/sys/net/ipv6/conf") {
        let access = AccessFs::ReadFile | AccessFs::WriteFile;
        rules = rules.add_rule(PathBeneath::new(&directory, access))?;
        std::mem::forget(directory);
    }
    for port in &allowed.tcp {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    rules.restrict_self()
}

/// Restricts the helper, which opens namespaces in these directories.
///
/// # Errors
/// The kernel refuses the rules.
pub(super) fn allow_namespaces(directories: &[PathBuf]) -> Result<RestrictionStatus, RulesetError> {
    let mut rules = nothing_but_tap()?;
    for directory in directories {
        rules = rule(rules, directory, AccessFs::ReadFile.into())?;
    }
    // The helper loads the kernel path's judge, which needs the kernel's description of a frame.
    rule(rules, Path::new(ports::kernel_path::TYPES), AccessFs::ReadFile.into())?.restrict_self()
}

/// Restricts a process that opens no file.
///
/// # Errors
/// The kernel refuses the rules.
pub(super) fn allow_none() -> Result<RestrictionStatus, RulesetError> {
    nothing()?.restrict_self()
}

/// Returns rules that allow only the device of TAP ports, which each of them opens.
fn nothing_but_tap() -> Result<RulesetCreated, RulesetError> {
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    rule(nothing()?, Path::new("/dev/net/tun"), device)
}

/// Returns rules that allow nothing.
fn nothing() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::Signal)?
        .create()
}

/// Adds a rule for a path. A path that does not exist needs none.
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
