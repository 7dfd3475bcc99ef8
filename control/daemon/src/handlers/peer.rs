//! What a client may do, and what would let it do more.

use super::reply::Refusal;
use crate::peer::{Access, Peer};
use problem::Problem;

/// Refuses what this client may not do, with the remedy.
pub(super) fn check(peer: &Peer, only_reads: bool) -> Result<(), Refusal> {
    let wanted = if only_reads { Access::Read } else { Access::Admin };
    if peer.access >= wanted {
        return Ok(());
    }
    let (what, group) = match (wanted, &peer.admin_group) {
        (Access::Admin, Some(group)) => ("change the switch", format!("a member of group {group}")),
        (Access::Admin, None) => ("change the switch", "a member of an `admin-group`".to_owned()),
        _ => ("read the switch's state", "a member of the socket's group".to_owned()),
    };
    let remedy = match &peer.admin_group {
        Some(group) if wanted == Access::Admin => {
            format!("run as root, or `usermod -aG {group} USER` and log in again")
        }
        _ if wanted == Access::Admin => {
            "run as root, or name a group with `admin-group` in [switch]".to_owned()
        }
        _ => "run as root, or name a group with `socket-group` in [switch]".to_owned(),
    };
    Err(Refusal::forbidden(
        Problem::new(format!("this user may not {what}"))
            .seen(format!("user {}", peer.uid))
            .wanted(format!("root, the daemon's own user, or {group}"))
            .remedy(remedy),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_told_what_would_help() {
        let peer = Peer { uid: 7, pid: 0, access: Access::Read, admin_group: Some("ops".into()) };
        assert!(check(&peer, true).is_ok() && check(&peer, false).is_err());
        let none = Peer { access: Access::None, ..peer };
        assert!(check(&none, true).is_err());
    }
}
