//! The token that an agent or a responder prints, and `TOKEN@ADDRESS:PORT`, which names the agent
//! afterwards.
//!
//! A client with the token can make the agent send and receive, until the agent ends. The token is
//! sent unencrypted: on an untrusted network, run the control connection through a tunnel.

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;

/// Random bytes in a token.
const CHANCE: usize = 16;
/// Permitted lengths of a token that the user chooses.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;

/// A secret of letters and digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Returns a random token.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn random() -> io::Result<Token> {
        let mut chance = [0; CHANCE];
        File::open("/dev/urandom")?.read_exact(&mut chance)?;
        Ok(Token(chance.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns whether `given` is this token. Compares in constant time.
    pub fn matches(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let different = own.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        own.len() == given.len() && std::hint::black_box(different) == 0
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Token, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if plain && LENGTHS.contains(&text.len()) {
            Ok(Token(text.to_owned()))
        } else {
            let (min, max) = LENGTHS.into_inner();
            Err(format!("a token has {min} to {max} letters, digits, - and _"))
        }
    }
}

impl Display for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Prints a placeholder, which keeps the token out of logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// An agent's address and token: `TOKEN@ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The token that the agent requires.
    pub token: Token,
    /// Address or name, and port.
    pub at: String,
}

impl Whereabouts {
    /// Returns the text as typed, with a placeholder instead of the token.
    pub fn without_token(&self, role: &str) -> String {
        format!("TOKEN-OF-THE-{role}@{}", self.at)
    }
}

impl FromStr for Whereabouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Whereabouts, String> {
        let usage = || "write TOKEN@ADDRESS:PORT, as `millrace lab agent` prints it".to_owned();
        let (token, at) = text.split_once('@').ok_or_else(usage)?;
        let (host, port) = at.rsplit_once(':').ok_or_else(usage)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(usage());
        }
        Ok(Whereabouts { token: token.parse()?, at: at.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_alone() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        let text = one.to_string();
        assert_eq!(text.len(), 2 * CHANCE);
        assert!(one.matches(&text) && !other.matches(&text));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "x")] {
            assert!(!one.matches(wrong), "{wrong}");
        }
        assert_eq!(format!("{one:?}"), "Token(…)");
    }

    #[test]
    fn whereabouts_have_all_three_parts() {
        let token = "0123456789abcdef";
        for at in ["10.0.0.1:5900", "[fd00::1]:5900", "far.example:5900"] {
            let found: Whereabouts = format!("{token}@{at}").parse().unwrap();
            assert_eq!((found.token.to_string().as_str(), found.at.as_str()), (token, at));
        }
        for wrong in ["", token, "short@10.0.0.1:1", "10.0.0.1:5900"] {
            assert!(wrong.parse::<Whereabouts>().is_err(), "{wrong}");
        }
        for wrong in ["", ":5900", "10.0.0.1", "10.0.0.1:", "10.0.0.1:70000"] {
            assert!(format!("{token}@{wrong}").parse::<Whereabouts>().is_err(), "{wrong}");
        }
    }
}
