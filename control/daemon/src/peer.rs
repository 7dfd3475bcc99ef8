//! The client of a connection, and its access. The socket's mode decides which processes may
//! connect. The kernel reports which process connected. This module decides what that process may
//! do.

use crate::peer_groups;
use config::SwitchConfig;
use devices::accounts;
use problem::Problem;
use rustix::net::sockopt::socket_peercred;
use std::os::fd::AsFd;

/// The user ID shown for unmapped users (`/proc/sys/kernel/overflowuid`).
pub(crate) const OVERFLOW: u32 = 65534;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Nothing.
    None,
    /// Read state, counters and configuration.
    Read,
    /// Change everything, and read guests' frames.
    Admin,
}

/// The groups with access.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    read: Option<u32>,
    admin: Option<u32>,
    /// The admin group's name, as configured.
    name: Option<String>,
}

impl Groups {
    /// Looks up the groups of `[switch]`.
    ///
    /// # Errors
    /// A group does not exist, or `/etc/group` cannot be read.
    pub(crate) fn of(config: &SwitchConfig) -> Result<Groups, Problem> {
        let number = |account: &Option<config::Account>| {
            account.as_ref().map(|name| accounts::group(name.as_str())).transpose()
        };
        Ok(Groups {
            read: number(&config.socket_group)?,
            admin: number(&config.admin_group)?,
            name: config.admin_group.as_ref().map(|name| name.as_str().to_owned()),
        })
    }

    /// Returns whether a user is an admin by the host's files of accounts, whatever groups a process
    /// of that user has.
    pub(crate) fn has_admin(&self, user: u32) -> bool {
        let groups: Vec<u32> =
            self.admin.into_iter().filter(|group| accounts::is_member(user, *group)).collect();
        access(user, &groups, own_user(), self) == Access::Admin
    }
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The client's user.
    pub(crate) uid: u32,
    /// The client's process; 0 if it is in another PID namespace.
    pub(crate) pid: i32,
    pub(crate) access: Access,
    /// The group that would make it an admin.
    pub(crate) admin_group: Option<String>,
}

impl Peer {
    /// Returns the process that connected. A process that the kernel does not report has no access.
    pub(crate) fn of(socket: impl AsFd, allowed: &Groups) -> Peer {
        let admin_group = allowed.name.clone();
        let Ok(peer) = socket_peercred(&socket) else {
            return Peer { uid: OVERFLOW, pid: 0, access: Access::None, admin_group };
        };
        let uid = peer.uid.as_raw();
        let mut groups = peer_groups::groups(socket.as_fd()).unwrap_or_default();
        groups.push(peer.gid.as_raw());
        let access = access(uid, &groups, own_user(), allowed);
        Peer { uid, pid: peer.pid.as_raw_pid(), access, admin_group }
    }
}

/// Returns the daemon's own user.
fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn access(uid: u32, groups: &[u32], own: u32, allowed: &Groups) -> Access {
    let is_in = |group: Option<u32>| group.is_some_and(|group| groups.contains(&group));
    // All unmapped users share this ID, so it identifies none of them.
    if uid == 0 || (uid == own && uid != OVERFLOW) || is_in(allowed.admin) {
        Access::Admin
    } else if is_in(allowed.read) {
        Access::Read
    } else {
        Access::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_do_what() {
        let allowed = Groups { read: Some(20), admin: Some(30), name: None };
        let row = |uid, groups: &[u32]| access(uid, groups, 500, &allowed);
        for (uid, groups, wanted) in [
            (0, &[][..], Access::Admin),
            (500, &[], Access::Admin),
            (1000, &[30], Access::Admin),
            (1000, &[20, 30], Access::Admin),
            (1000, &[7, 20], Access::Read),
            (1000, &[7], Access::None),
            (1000, &[], Access::None),
        ] {
            assert_eq!(row(uid, groups), wanted, "{uid} {groups:?}");
        }
        assert_eq!(access(OVERFLOW, &[], OVERFLOW, &allowed), Access::None);
        let here = Groups { read: None, admin: Some(0), name: None };
        assert!(here.has_admin(0) && !Groups::default().has_admin(OVERFLOW));
        // No group is configured: none is let in, not group 0 either.
        assert_eq!(access(1000, &[0], 500, &Groups::default()), Access::None);
    }
}
