//! Reasons not to use descriptors that an earlier process kept: they do not fit and are of no
//! further use, or this process is short of something at the moment and can try them again.

use std::io;

/// Why kept descriptors are not used: they do not fit, or resources are short.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// What does not fit, as text for people.
    Unfit(String),
    /// This process, or the host, is short of descriptors or memory; holds the error number.
    Shortage(i32),
}

impl Flaw {
    /// Classifies the error of a system call on kept descriptors; `doing` says what was tried.
    pub(crate) fn of(doing: &str, error: &io::Error) -> Flaw {
        match error.raw_os_error() {
            Some(
                number @ (libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::ENOBUFS
                | libc::EAGAIN
                | libc::EINTR),
            ) => Flaw::Shortage(number),
            _ => Flaw::Unfit(format!("{doing}: {error}")),
        }
    }

    /// Converts to an error of a port.
    pub(crate) fn told<E>(
        self,
        unfit: impl FnOnce(String) -> E,
        shortage: impl FnOnce(io::Error) -> E,
    ) -> E {
        match self {
            Flaw::Unfit(flaw) => unfit(flaw),
            Flaw::Shortage(number) => shortage(io::Error::from_raw_os_error(number)),
        }
    }
}

impl From<String> for Flaw {
    fn from(flaw: String) -> Flaw {
        Flaw::Unfit(flaw)
    }
}

impl From<&str> for Flaw {
    fn from(flaw: &str) -> Flaw {
        Flaw::Unfit(flaw.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_says_nothing_of_those_that_were_kept() {
        let flaw = |number| Flaw::of("mapped", &io::Error::from_raw_os_error(number));
        assert_eq!(flaw(libc::EMFILE), Flaw::Shortage(libc::EMFILE));
        assert!(matches!(flaw(libc::EINVAL), Flaw::Unfit(text) if text.starts_with("mapped: ")));
    }
}
