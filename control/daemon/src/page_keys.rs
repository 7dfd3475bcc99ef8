//! Keys of the page. An admin gets one through the API's socket and gives it to the page in a
//! browser, which may then send the [requests of the page's actions](crate::handlers::actions) in
//! the admin's name.
//!
//! Keys exist only in this process and end with it. A program that listens at the page's address
//! while no daemon runs therefore collects only keys that no daemon takes; and none is issued while the
//! daemon does not serve the page itself.

use problem::token::Token;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time from the issue of a key to its end.
pub(crate) const LASTS: Duration = Duration::from_hours(12);

/// Most keys at a time. One more ends the oldest.
const MOST: usize = 16;

/// The keys in use, oldest first.
#[derive(Default)]
pub(crate) struct PageKeys {
    keys: Vec<Key>,
    /// Where the page is served; `None` until its address is bound.
    pub(crate) served_at: Option<SocketAddr>,
}

struct Key {
    token: Token,
    /// The client that got it, as the log names clients.
    holder: String,
    issued: Instant,
}

impl PageKeys {
    /// Issues a key to a client.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub(crate) fn issue(&mut self, holder: String, now: Instant) -> io::Result<Token> {
        let token = Token::random()?;
        if self.keys.len() >= MOST {
            self.keys.remove(0);
        }
        self.keys.push(Key { token: token.clone(), holder, issued: now });
        Ok(token)
    }

    /// Returns the client that got this key, unless the key has ended.
    pub(crate) fn holder(&self, given: &str, now: Instant) -> Option<&str> {
        let lasts = |key: &&Key| now.saturating_duration_since(key.issued) < LASTS;
        let key = self.keys.iter().filter(lasts).find(|key| key.token.matches(given));
        key.map(|key| key.holder.as_str())
    }

    /// Ends all keys. Returns their number.
    pub(crate) fn end(&mut self) -> usize {
        std::mem::take(&mut self.keys).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_holder_until_its_time_is_over_or_it_is_ended() {
        let (mut keys, now) = (PageKeys::default(), Instant::now());
        let one = keys.issue("ann".into(), now).unwrap().to_string();
        let other = keys.issue("bob".into(), now + LASTS / 2).unwrap().to_string();
        assert_eq!(keys.holder(&one, now), Some("ann"));
        assert_eq!(keys.holder(&other, now + LASTS / 2), Some("bob"));
        assert_eq!(keys.holder(&one, now + LASTS), None);
        assert_eq!(keys.holder(&other, now + LASTS), Some("bob"));
        assert_eq!(keys.holder(&one[1..], now), None);
        assert_eq!(keys.end(), 2);
        assert_eq!(keys.holder(&other, now + LASTS), None);
    }

    #[test]
    fn one_key_too_many_ends_the_oldest() {
        let (mut keys, now) = (PageKeys::default(), Instant::now());
        let all: Vec<_> =
            (0..=MOST).map(|_| keys.issue("ann".into(), now).unwrap().to_string()).collect();
        assert_eq!(keys.holder(&all[0], now), None);
        assert!(all[1..].iter().all(|key| keys.holder(key, now).is_some()));
    }
}
