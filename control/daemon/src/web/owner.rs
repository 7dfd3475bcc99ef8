//! Whose program uses a key of the page: the kernel says which user opened the connection.
//!
//! A key is read more easily than its holder's programs are run: from a process list, a terminal, a
//! capture on `lo`. So it counts only on a connection of the user to whom it was issued, or of root,
//! who may do everything anyway. A connection whose user cannot be learned is refused.

use crate::page_keys::Holder;
use crate::peer::OVERFLOW;
use netlink::owner::{Ends, of_client};
use problem::Problem;

/// Refuses a key on a connection of another user.
///
/// # Errors
/// The connection is another user's, or its user cannot be learned.
pub(super) fn check(ends: Ends, holder: &Holder) -> Result<(), Problem> {
    let user = of_client(ends).map_err(|error| error.to_string());
    judge(user, holder.user).inspect_err(|told| {
        let (from, client) = (ends.client, &holder.client);
        tracing::warn!(target: "control::web::owner", "a key of {client} was used from {from}: {told}");
    })
}

fn judge(user: Result<Option<u32>, String>, holder: u32) -> Result<(), Problem> {
    match user {
        // All users that are not mapped into this user namespace have this ID.
        Ok(Some(OVERFLOW)) => Err(unknown(format!("user {OVERFLOW}, which stands for many"))),
        Ok(Some(user)) if user == holder || user == 0 => Ok(()),
        Ok(Some(user)) => Err(another(user, holder)),
        Ok(None) => {
            Err(unknown("no program's socket in the daemon's network namespace".to_owned()))
        }
        Err(error) => Err(unknown(error)),
    }
}

fn another(user: u32, holder: u32) -> Problem {
    Problem::new("the key was issued to another user")
        .seen(format!("a connection of user {user}"))
        .wanted(format!("user {holder}, or root"))
        .remedy(
            "as an admin, run `millrace page` as the user who runs the browser or the tunnel to this host, or \
             `sudo millrace page` as that user",
        )
}

fn unknown(seen: String) -> Problem {
    Problem::new("the key is refused: whose connection it is cannot be learned")
        .seen(seen)
        .wanted(
            "a browser or a tunnel in the daemon's network namespace, which waits for its answers",
        )
        .remedy("open the page through `ssh -L 9478:127.0.0.1:9478 HOST`, or use `millrace`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_for_its_user_and_for_root() {
        for (user, is_admitted) in [
            (Ok(Some(1000)), true),
            (Ok(Some(0)), true),
            (Ok(Some(1001)), false),
            (Ok(Some(OVERFLOW)), false),
            (Ok(None), false),
            (Err("no".to_owned()), false),
        ] {
            assert_eq!(judge(user.clone(), 1000).is_ok(), is_admitted, "{user:?}");
        }
        assert!(judge(Ok(Some(OVERFLOW)), OVERFLOW).is_err(), "it stands for many");
        assert!(judge(Ok(Some(1000)), 0).is_err(), "root's key is for root");
    }

    #[test]
    fn a_refusal_names_both_users_and_the_remedy() {
        let told = judge(Ok(Some(1001)), 1000).unwrap_err();
        assert!(told.seen.contains("1001") && told.wanted.contains("1000"), "{told}");
        assert!(told.remedy.contains("millrace page"), "{told}");
    }
}
