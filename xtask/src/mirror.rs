//! The mirror that apt uses for this host's release. Guests and the bare root are made from it.

use crate::program::{printed, program};
use anyhow::{Context, Result};
use std::fs;

/// A mirror of Debian packages.
pub(crate) struct Mirror {
    pub(crate) uri: String,
    /// The release's name, such as `bookworm`.
    pub(crate) suite: String,
}

/// What os-release says of this host. A key that it lacks is empty.
pub(crate) struct Release {
    /// The distribution, such as `debian`.
    pub(crate) distribution: String,
    /// The release's name; the name of apt's suite, where there is apt.
    pub(crate) suite: String,
}

impl Release {
    /// Reads the release of this host.
    pub(crate) fn of_this_host() -> Self {
        let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
        Self { distribution: value(&text, "ID"), suite: value(&text, "VERSION_CODENAME") }
    }

    /// Returns the mirror of this release's main component.
    ///
    /// # Errors
    /// apt-get fails, or knows no such mirror.
    pub(crate) fn mirror(self) -> Result<Mirror> {
        let mut ask = program("apt-get");
        ask.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT) $(CREATED_BY)"]);
        let uri = uri(&printed(&mut ask)?, &self.suite).map(str::to_owned);
        let suite = self.suite;
        let uri = uri.with_context(|| {
            format!("apt knows no mirror of {suite}: add one to /etc/apt/sources.list")
        })?;
        Ok(Mirror { uri, suite })
    }
}

/// Returns the value of a key of os-release, in which it may be quoted.
fn value(text: &str, key: &str) -> String {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.next_back().unwrap_or_default().trim_matches(['"', '\'']).to_owned()
}

/// Returns the URI of a suite's main packages, from lines `URI SUITE COMPONENT KIND`.
fn uri<'t>(targets: &'t str, suite: &str) -> Option<&'t str> {
    targets.lines().find_map(|line| {
        let (uri, of) = line.split_once(' ')?;
        (of == format!("{suite} main Packages")).then_some(uri)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_releases_main_packages() {
        let targets = "\
http://a/security/ bookworm-security main Packages
http://b/debian/ bookworm contrib Packages
http://b/debian/ bookworm main Translations
http://c/debian/ bookworm main Packages
http://d/debian/ bookworm main Packages";
        assert_eq!(uri(targets, "bookworm"), Some("http://c/debian/"));
        assert_eq!(uri(targets, "trixie"), None);
        assert_eq!(uri("", ""), None);
    }

    #[test]
    fn values_of_os_release_may_be_quoted_or_missing() {
        let text = "PRETTY_NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=\"12\"\n";
        assert_eq!(value(text, "ID"), "debian");
        assert_eq!(value(text, "VERSION_ID"), "12");
        assert_eq!(value(text, "VERSION_CODENAME"), "");
    }
}
