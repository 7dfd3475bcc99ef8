//! Which revision a host follows, decided from what etcd has now and what the host had before.

use super::kept::{Held, Kept};
use crate::Name;
use crate::store::{Desired, Read};

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// Take this revision.
    Follow(u64),
    /// Stay as it is: etcd went back to an older state.
    Hold(Held),
}

/// A host never loses its part of the fleet because etcd lost its data or was restored from a
/// backup: it holds its ports and claims until a revision applied since then reaches it. Until then
/// etcd's desired state for the host is the backup's, and the host does not follow it.
pub(super) fn course(kept: &Kept, read: &Read<Desired>, host: &Name) -> Course {
    let wanted = read.document.as_ref().map_or(0, |desired| desired.of(host));
    if kept.cluster == 0 || kept.revision == 0 {
        return Course::Follow(wanted);
    }
    let found = || Held { at: read.etcd_revision, why: why(kept, read, wanted) };
    let Some(held) = kept.held.clone().or_else(|| gone_back(kept, read).then(found)) else {
        return Course::Follow(wanted);
    };
    let is_reached = read.document.as_ref().is_some_and(|desired| desired.reaches(host));
    if read.mod_revision > held.at && is_reached {
        return Course::Follow(wanted);
    }
    Course::Hold(held)
}

/// Whether this etcd cannot be a later state of the one that was read before.
fn gone_back(kept: &Kept, read: &Read<Desired>) -> bool {
    read.cluster != kept.cluster
        || read.etcd_revision < kept.etcd_revision
        || read.mod_revision < kept.desired_at
}

fn why(kept: &Kept, read: &Read<Desired>, wanted: u64) -> String {
    let (was, is, has) = (kept.etcd_revision, read.etcd_revision, kept.revision);
    let etcd = if read.cluster == kept.cluster {
        format!("etcd went back: its revision was {was}, is {is}, and its desired state is older")
    } else {
        format!("a different etcd cluster answers, at its revision {is}")
    };
    match wanted {
        0 => format!("{etcd}; it has no revision of the fleet for this host, which stays at {has}"),
        _ => format!(
            "{etcd}; it wants revision {wanted} of the fleet here, but this host stays at {has}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Phase;

    fn kept(revision: u64, held: Option<i64>) -> Kept {
        let held = held.map(|at| Held { at, why: "as told".to_owned() });
        Kept { cluster: 1, etcd_revision: 100, desired_at: 90, revision, held, ..Kept::default() }
    }

    /// Returns the answer of a cluster at one of its revisions: the fleet's revision, and etcd's
    /// revision at which that was written.
    fn read(cluster: u64, etcd_revision: i64, written: Option<(u64, i64)>) -> Read<Desired> {
        let document = written.map(|(revision, _)| Desired {
            revision,
            before: 0,
            phase: Phase::Done,
            hosts: Vec::new(),
            reason: String::new(),
            author: String::new(),
            at: 0,
        });
        let mod_revision = written.map_or(0, |(_, at)| at);
        Read { document, mod_revision, cluster, etcd_revision }
    }

    fn of(kept: &Kept, read: &Read<Desired>) -> Course {
        course(kept, read, &"a".parse().unwrap())
    }

    #[test]
    fn a_host_follows_its_etcd_to_newer_and_older_revisions_of_the_fleet() {
        assert_eq!(of(&Kept::default(), &read(1, 5, None)), Course::Follow(0));
        assert_eq!(of(&Kept::default(), &read(1, 5, Some((3, 4)))), Course::Follow(3));
        assert_eq!(of(&kept(3, None), &read(1, 110, Some((3, 90)))), Course::Follow(3));
        assert_eq!(of(&kept(3, None), &read(1, 110, Some((4, 105)))), Course::Follow(4));
        // A roll-out that was rolled back.
        assert_eq!(of(&kept(4, None), &read(1, 110, Some((3, 109)))), Course::Follow(3));
    }

    #[test]
    fn a_restored_backup_is_reported_and_not_followed_until_someone_applies() {
        let Course::Hold(Held { at, why }) = of(&kept(7, None), &read(1, 80, Some((5, 70)))) else {
            panic!("it was followed");
        };
        assert_eq!(at, 80);
        assert!(why.contains("was 100, is 80") && why.contains("stays at 7"), "{why}");
        let held = kept(7, Some(80));
        assert!(
            matches!(of(&held, &read(1, 95, Some((5, 70)))), Course::Hold(it) if it.why == "as told")
        );
        assert_eq!(of(&held, &read(1, 95, Some((6, 90)))), Course::Follow(6));
    }

    #[test]
    fn a_held_host_waits_until_the_new_revision_reaches_it() {
        let held = kept(7, Some(80));
        let mut applied = read(1, 95, Some((8, 90)));
        let desired = applied.document.as_mut().unwrap();
        (desired.phase, desired.before) = (Phase::Running, 0);
        assert!(
            matches!(of(&held, &applied), Course::Hold(_)),
            "revision 0 would remove its ports"
        );
        applied.document.as_mut().unwrap().hosts = vec!["a".parse().unwrap()];
        assert_eq!(of(&held, &applied), Course::Follow(8));
    }

    #[test]
    fn a_backup_s_claims_are_not_believed_even_if_its_revision_is_the_host_s() {
        assert!(matches!(of(&kept(7, None), &read(1, 80, Some((7, 70)))), Course::Hold(_)));
    }

    #[test]
    fn an_etcd_that_lost_its_data_removes_no_port() {
        // The last one has had other writes since it was restored.
        for lost in
            [read(2, 1, None), read(1, 3, None), read(1, 120, None), read(1, 120, Some((5, 70)))]
        {
            assert!(matches!(of(&kept(7, None), &lost), Course::Hold(_)), "{lost:?}");
        }
        assert!(matches!(
            of(&kept(7, None), &read(2, 500, Some((2, 400)))),
            Course::Hold(Held { at: 500, .. })
        ));
        assert_eq!(of(&kept(7, Some(500)), &read(2, 510, Some((3, 505)))), Course::Follow(3));
    }
}
