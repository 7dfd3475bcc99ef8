//! A runtime's request, from the variables `CNI_*` of the environment.

use crate::attachment::is_identifier;
use crate::error::CniError;
use config::{HostName, Namespace};
use std::path::PathBuf;

/// A command of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attaches a container.
    Add,
    /// Detaches it.
    Del,
    /// Compares the current state with the result of ADD.
    Check,
    /// Asks whether ADD can be served.
    Status,
    /// Detaches everything that is not listed as valid.
    Gc,
    /// Asks for the supported versions.
    Version,
}

impl Command {
    const ALL: [Command; 6] = [
        Command::Add,
        Command::Del,
        Command::Check,
        Command::Status,
        Command::Gc,
        Command::Version,
    ];

    /// Returns the command as it is written in `CNI_COMMAND`.
    pub fn name(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Status => "STATUS",
            Command::Gc => "GC",
            Command::Version => "VERSION",
        }
    }
}

/// An interface of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The container's id.
    pub container: String,
    /// The interface's name in it.
    pub interface: HostName,
    /// The path of its network namespace; DEL does not need it.
    pub netns: Option<Namespace>,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// The interface, for ADD, DEL and CHECK.
    pub place: Option<Place>,
    /// Directories with other plugins.
    pub path: Vec<PathBuf>,
}

impl Request {
    /// Reads the environment.
    ///
    /// # Errors
    /// Fails if a variable that the command needs is missing or not valid.
    pub fn read(variable: &impl Fn(&str) -> Option<String>) -> Result<Request, CniError> {
        let word = wanted(variable, "CNI_COMMAND")?;
        let command = Command::ALL.into_iter().find(|command| command.name() == word);
        let command = command.ok_or_else(|| {
            wrong("CNI_COMMAND", &word, &Command::ALL.map(Command::name).join(", "))
        })?;
        let place = match command {
            Command::Add | Command::Check => Some(place(variable, true)?),
            Command::Del => Some(place(variable, false)?),
            Command::Status | Command::Gc | Command::Version => None,
        };
        let path = variable("CNI_PATH").unwrap_or_default();
        Ok(Request { command, place, path: std::env::split_paths(&path).collect() })
    }
}

fn place(variable: &impl Fn(&str) -> Option<String>, is_there: bool) -> Result<Place, CniError> {
    let container = wanted(variable, "CNI_CONTAINERID")?;
    if !is_identifier(&container) {
        return Err(wrong("CNI_CONTAINERID", &container, "letters, digits, `.`, `_` and `-`"));
    }
    let name = wanted(variable, "CNI_IFNAME")?;
    let interface =
        name.parse::<HostName>().map_err(|problem| wrong("CNI_IFNAME", &name, &problem.wanted))?;
    let path = if is_there { Some(wanted(variable, "CNI_NETNS")?) } else { None };
    let netns = path.map(|path| match path.parse::<Namespace>() {
        Ok(netns) if path.starts_with('/') => Ok(netns),
        _ => Err(wrong("CNI_NETNS", &path, "a path such as /run/netns/pod")),
    });
    Ok(Place { container, interface, netns: netns.transpose()? })
}

fn wanted(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Result<String, CniError> {
    variable(name).filter(|text| !text.is_empty()).ok_or_else(|| {
        CniError::new(CniError::ENVIRONMENT, format!("{name} is not set"), "the runtime sets it")
    })
}

fn wrong(name: &str, seen: &str, wanted: &str) -> CniError {
    let told = format!("seen {seen:?}; wanted {wanted}");
    CniError::new(CniError::ENVIRONMENT, format!("{name} is invalid"), told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn read(pairs: &[(&str, &str)]) -> Result<Request, CniError> {
        let all: HashMap<_, _> = pairs.iter().copied().collect();
        Request::read(&|name: &str| all.get(name).map(|text| (*text).to_owned()))
    }

    const ADD: [(&str, &str); 4] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "pod-1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_NETNS", "/run/netns/pod"),
    ];

    proptest! {
        #[test]
        fn what_is_read_is_a_name(place in 1usize..4, text in "[ -~\n]{0,20}") {
            let mut pairs = ADD;
            pairs[place].1 = &text;
            if let Ok(Request { place: Some(place), .. }) = read(&pairs) {
                prop_assert!(is_identifier(&place.container));
                prop_assert!(!place.interface.as_str().contains(['/', ' ', '\n', ':']));
                let netns = place.netns.unwrap().path();
                prop_assert!(netns.is_absolute() && !netns.to_string_lossy().contains(".."));
            }
        }
    }

    #[test]
    fn each_variable_that_is_needed_is_missed_by_its_name() {
        for (place, (name, _)) in ADD.iter().enumerate() {
            let mut pairs = ADD;
            pairs[place].1 = "";
            let error = read(&pairs).unwrap_err();
            assert_eq!(
                (error.code, error.message),
                (CniError::ENVIRONMENT, format!("{name} is not set"))
            );
        }
        let gone = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "pod-1"), ("CNI_IFNAME", "eth0")];
        assert!(read(&gone).unwrap().place.unwrap().netns.is_none());
        assert_eq!(read(&[("CNI_COMMAND", "GC")]).unwrap().command, Command::Gc);
        assert_eq!(read(&[("CNI_COMMAND", "add")]).unwrap_err().message, "CNI_COMMAND is invalid");
    }
}
