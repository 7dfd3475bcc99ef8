//! Keys of the page. An admin gets one through the API's socket and gives it to the page in a
//! browser, which may then send the [requests of the page's actions](crate::handlers::actions) in
//! the admin's name.
//!
//! Keys exist only in this process and end with it. A program that listens at the page's address
//! while no daemon runs therefore collects only keys that no daemon takes; and none is issued while the
//! daemon does not serve the page itself. A key is for one user, so that others who read it have
//! nothing: [`web::owner`](crate::web) compares.

use problem::token::Token;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time from the issue of a key to its end.
pub(crate) const LASTS: Duration = Duration::from_hours(12);

/// Most keys of a user at a time. One more ends that user's oldest.
const MOST_OF_USER: usize = 16;

/// Most keys at a time. One more ends the oldest: an admin may have many user IDs, in a user
/// namespace.
const MOST: usize = 256;

/// The keys in use, oldest first.
#[derive(Default)]
pub(crate) struct PageKeys {
    keys: Vec<Key>,
    /// Where the page is served; `None` until its address is bound.
    pub(crate) served_at: Option<SocketAddr>,
}

struct Key {
    token: Token,
    holder: Holder,
    issued: Instant,
}

/// Who may use a key, and who is responsible for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The user who may use it.
    pub(crate) user: u32,
    /// The admin who asked for it: the same user, or root.
    pub(crate) admin: u32,
    /// The client that got it, as the log names clients.
    pub(crate) client: String,
}

impl PageKeys {
    /// Issues a key to a client.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub(crate) fn issue(&mut self, holder: Holder, now: Instant) -> io::Result<Token> {
        let token = Token::random()?;
        self.keys.retain(|key| key.lasts(now));
        let is_own = |key: &Key| key.holder.user == holder.user;
        let one_too_many = match self.keys.iter().filter(|key| is_own(key)).count() {
            MOST_OF_USER.. => self.keys.iter().position(is_own),
            _ => (self.keys.len() >= MOST).then_some(0),
        };
        if let Some(oldest) = one_too_many {
            self.keys.remove(oldest);
        }
        self.keys.push(Key { token: token.clone(), holder, issued: now });
        Ok(token)
    }

    /// Returns the holder of this key, unless the key has ended.
    pub(crate) fn holder(&self, given: &str, now: Instant) -> Option<&Holder> {
        let key = self.keys.iter().find(|key| key.lasts(now) && key.token.matches(given));
        key.map(|key| &key.holder)
    }

    /// Ends all keys. Returns their number.
    pub(crate) fn end(&mut self) -> usize {
        std::mem::take(&mut self.keys).len()
    }

    /// Ends the keys of those for whom `is_admin` does not say that they still are admins. Returns
    /// their number.
    pub(crate) fn end_of_others(&mut self, mut is_admin: impl FnMut(u32) -> bool) -> usize {
        let before = self.keys.len();
        self.keys.retain(|key| is_admin(key.holder.admin));
        before - self.keys.len()
    }
}

impl Key {
    fn lasts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.issued) < LASTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: u32) -> Holder {
        Holder { user, admin: user, client: format!("user {user}") }
    }

    fn issue(keys: &mut PageKeys, user: u32, now: Instant) -> String {
        keys.issue(of(user), now).unwrap().to_string()
    }

    #[test]
    fn a_key_has_a_holder_until_its_time_is_over_or_it_is_ended() {
        let (mut keys, now) = (PageKeys::default(), Instant::now());
        let one = issue(&mut keys, 7, now);
        let other = issue(&mut keys, 8, now + LASTS / 2);
        assert_eq!(keys.holder(&one, now), Some(&of(7)));
        assert_eq!(keys.holder(&other, now + LASTS / 2), Some(&of(8)));
        assert_eq!(keys.holder(&one, now + LASTS), None);
        assert_eq!(keys.holder(&other, now + LASTS), Some(&of(8)));
        assert_eq!(keys.holder(&one[1..], now), None);
        assert_eq!(keys.end(), 2);
        assert_eq!(keys.holder(&other, now + LASTS), None);
    }

    /// An admin who asked for 16 keys had those of all others ended.
    #[test]
    fn one_key_too_many_ends_the_oldest_of_its_own_user() {
        let (mut keys, now) = (PageKeys::default(), Instant::now());
        let others = issue(&mut keys, 8, now);
        let all: Vec<_> = (0..=MOST_OF_USER).map(|_| issue(&mut keys, 7, now)).collect();
        assert_eq!(keys.holder(&all[0], now), None);
        assert!(all[1..].iter().all(|key| keys.holder(key, now).is_some()));
        assert_eq!(keys.holder(&others, now), Some(&of(8)));
    }

    #[test]
    fn there_is_a_most_for_any_number_of_users_and_ended_keys_do_not_count() {
        let (mut keys, now) = (PageKeys::default(), Instant::now());
        let users = u32::try_from(MOST).unwrap();
        let all: Vec<_> = (0..=users).map(|user| issue(&mut keys, user, now)).collect();
        assert_eq!(keys.holder(&all[0], now), None);
        assert!(all[1..].iter().all(|key| keys.holder(key, now).is_some()));
        issue(&mut keys, 0, now + LASTS);
        assert_eq!(keys.end(), 1);
    }

    #[test]
    fn keys_of_former_admins_end_and_those_that_root_issued_to_a_user_do_not() {
        let (mut keys, now) = (PageKeys::default(), Instant::now());
        let former = issue(&mut keys, 7, now);
        let admin = issue(&mut keys, 8, now);
        let by_root = Holder { admin: 0, ..of(7) };
        let by_root = keys.issue(by_root, now).unwrap().to_string();
        assert_eq!(keys.end_of_others(|user| [0, 8].contains(&user)), 1);
        assert_eq!(keys.holder(&former, now), None);
        assert!(keys.holder(&admin, now).is_some() && keys.holder(&by_root, now).is_some());
    }
}
