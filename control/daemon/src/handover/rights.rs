//! What a process may do on this host. A successor that may do less than the daemon that runs, or
//! runs in other namespaces, would lose ports of that one: it compares before it asks it to end.

use crate::state::Identity;
use problem::Problem;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;

/// The capabilities that ports and sockets take, see docs/sandbox.md, as a message names them.
const NEEDED: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::BPF, "CAP_BPF"),
    (CapabilitySet::IPC_LOCK, "CAP_IPC_LOCK"),
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
];
/// How a message names the right to load programs, which takes more than capabilities.
const PROGRAMS: &str = "programs in the kernel (bpf)";

/// What a process may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    capabilities: CapabilitySet,
    /// Whether the kernel loads its programs.
    programs: bool,
    /// Its network and user namespaces; `None` if `/proc` does not say.
    network: Option<Identity>,
    users: Option<Identity>,
}

impl Rights {
    /// Returns what this process may do: call it before it gives anything up.
    pub(crate) fn now() -> Rights {
        let namespace = |kind: &str| Identity::of(&Path::new("/proc/thread-self/ns").join(kind));
        Rights {
            capabilities: capabilities(None).map_or(CapabilitySet::empty(), |mine| mine.effective),
            programs: ports::may_load_programs(),
            network: namespace("net"),
            users: namespace("user"),
        }
    }

    /// Returns why a process with these rights must not take the place of a daemon that started with
    /// others, whose process has this number.
    ///
    /// # Errors
    /// It lacks one of them, or runs in another namespace.
    pub(super) fn suffice_for(&self, old: &Rights, process: i32) -> Result<(), Problem> {
        if differ(self.network, old.network) {
            let entered = format!("nsenter --target {process} --net millrace run --take-over …");
            return Err(lost("it runs in another network namespace")
                .seen(told(self.network))
                .wanted(told(old.network))
                .remedy(format!("start it where that daemon runs: `{entered}`")));
        }
        if differ(self.users, old.users) {
            return Err(lost("it runs in another user namespace")
                .seen(told(self.users))
                .wanted(told(old.users))
                .remedy("start it where that daemon runs"));
        }
        let lacking = self.lacking(old);
        if lacking.is_empty() {
            return Ok(());
        }
        Err(lost("it may do less than that daemon")
            .seen(format!("without {}", lacking.join(", ")))
            .wanted("all that the daemon had at its start")
            .remedy(
                "start it as that daemon was started (as root, or with the capabilities of the unit); if it is to \
                 have less, stop that daemon first",
            ))
    }

    /// Names the rights of `old` that are not among these.
    fn lacking(&self, old: &Rights) -> Vec<&'static str> {
        let lost = old.capabilities.difference(self.capabilities);
        let lost = NEEDED.iter().filter(|(one, _)| lost.contains(*one)).map(|(_, name)| *name);
        lost.chain((old.programs && !self.programs).then_some(PROGRAMS)).collect()
    }

    /// Adds them to the answer to a successor's greeting.
    pub(super) fn write(&self, answer: &mut Vec<(&str, String)>) {
        let Rights { capabilities, programs, network, users } = self;
        answer.push(("capabilities", format!("{:x}", capabilities.bits())));
        answer.push(("programs", u8::from(*programs).to_string()));
        let namespaces = [("network", network), ("users", users)];
        let known = namespaces.into_iter().filter_map(|(key, one)| Some((key, (*one)?.to_text())));
        answer.extend(known);
    }

    /// Reads them from such an answer, by key; `None` if it has none.
    pub(super) fn read<'t>(value: impl Fn(&str) -> Option<&'t str>) -> Option<Rights> {
        let bits = u64::from_str_radix(value("capabilities")?, 16).ok()?;
        let namespace = |key| value(key).and_then(Identity::read);
        Some(Rights {
            capabilities: CapabilitySet::from_bits_retain(bits),
            programs: value("programs")? == "1",
            network: namespace("network"),
            users: namespace("users"),
        })
    }
}

/// Returns whether two namespaces are known to be different.
fn differ(one: Option<Identity>, other: Option<Identity>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

fn told(namespace: Option<Identity>) -> String {
    namespace.map_or_else(String::new, |one| format!("namespace {}", one.inode))
}

fn lost(why: &str) -> Problem {
    Problem::new(format!("this process cannot take over, since ports would be lost: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Rights {
        let capabilities = NEEDED.iter().map(|(one, _)| *one).collect();
        let namespace = |inode| Some(Identity { device: 4, inode });
        Rights { capabilities, programs: true, network: namespace(7), users: namespace(8) }
    }

    /// A successor without CAP_NET_ADMIN had ended the daemon that ran, and opened none of its ports.
    #[test]
    fn a_process_that_may_do_less_does_not_suffice() {
        let old = all();
        assert_eq!(old.suffice_for(&old, 1), Ok(()));
        let told = |new: Rights| new.suffice_for(&old, 1).unwrap_err().to_string();
        for (capability, name) in NEEDED {
            let capabilities = old.capabilities.difference(capability);
            let new = Rights { capabilities, ..old };
            assert!(told(new).contains(name), "{name}");
            assert_eq!(old.suffice_for(&new, 1), Ok(()), "more than that one had");
        }
        let others = old.capabilities.union(CapabilitySet::SYS_MODULE);
        let more = Rights { capabilities: others, ..old };
        assert_eq!(old.suffice_for(&more, 1), Ok(()), "no port takes CAP_SYS_MODULE");
        assert!(told(Rights { programs: false, ..old }).contains("bpf"));
    }

    #[test]
    fn a_process_in_other_namespaces_does_not_suffice() {
        let old = all();
        let other = Some(Identity { device: 4, inode: 9 });
        let told = |new: Rights| new.suffice_for(&old, 17).unwrap_err().to_string();
        let network = told(Rights { network: other, ..old });
        assert!(network.contains("--target 17") && network.contains("namespace 9"), "{network}");
        assert!(told(Rights { users: other, ..old }).contains("user namespace"));
        let unknown = Rights { network: None, users: None, ..old };
        assert_eq!(
            (unknown.suffice_for(&old, 17), old.suffice_for(&unknown, 17)),
            (Ok(()), Ok(()))
        );
    }

    #[test]
    fn this_process_has_namespaces() {
        let now = Rights::now();
        assert!(now.network.is_some() && now.users.is_some(), "{now:?}");
        assert_eq!(now.suffice_for(&now, 1), Ok(()));
    }
}
