//! The carrier of a device, read without waiting for others.
//!
//! The kernel answers questions about a carrier under its lock of all links, which others may hold
//! for 0.1 s, such as those who delete network namespaces. It counts the changes of a carrier
//! without that lock. So the carrier is asked for once, and only its changes are read from then on.

use super::Link;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use wire::Mac;

/// Tries to read a carrier that does not change meanwhile.
const TRIES: usize = 3;

pub(crate) struct Carrier {
    /// The kernel's count of changes. It follows a device that is renamed.
    changes: File,
    /// A number of changes after which there was a carrier.
    up: u64,
}

impl Carrier {
    /// Returns the carrier of a link's device. `None`: `/sys` does not show this device, because it
    /// is in another network namespace or down, or the kernel is older than 4.17.
    pub(crate) fn of(link: &Link) -> Option<Carrier> {
        Carrier::shown(link, Path::new("/sys"))
    }

    fn shown(link: &Link, sysfs: &Path) -> Option<Carrier> {
        let directory = sysfs.join("class/net").join(&link.name);
        let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let number = |name: &str| text(name)?.trim_end().parse::<u64>().ok();
        // It shows the namespace in which it was mounted, which may have a device of that name.
        let is_it = number("ifindex")? == u64::from(link.index().ok()?)
            && text("address")?.trim_end().parse::<Mac>().ok()? == link.mac().ok()?;
        let changes = File::open(directory.join("carrier_changes")).ok().filter(|_| is_it)?;
        (0..TRIES)
            .find_map(|_| {
                let before = count(&changes)?;
                let carrier = number("carrier")?;
                (count(&changes)? == before).then_some(before + (1 - carrier.min(1)))
            })
            .map(|up| Carrier { changes, up })
    }

    /// Whether the device has none. Not known of a device that is gone: `false`.
    pub(crate) fn is_lost(&self) -> bool {
        count(&self.changes).is_some_and(|now| now.abs_diff(self.up) % 2 == 1)
    }
}

fn count(changes: &File) -> Option<u64> {
    let mut text = [0; 20];
    let length = changes.read_at(&mut text, 0).ok()?;
    str::from_utf8(text.get(..length)?).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace;
    use std::process::Command;

    fn run(line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        assert!(command.args(words).status().unwrap().success(), "{line}");
    }

    #[test]
    fn each_change_is_seen_at_once_and_only_of_the_device_itself() {
        let sysfs = tempfile::tempdir().unwrap();
        let tried = namespace::fresh(|| {
            run("ip link add mill0 type veth peer name mill1");
            run("ip link set mill0 up");
            run("ip link set mill1 up");
            let link = Link::open("mill0", None).unwrap();
            assert!(Carrier::of(&link).is_none(), "/sys shows another namespace");
            run(&format!("mount -t sysfs sysfs {}", sysfs.path().display()));
            let open = || Carrier::shown(&link, sysfs.path());
            let before = open();
            run("ip link set mill1 down");
            let after = open();
            let lost = |it: &Option<Carrier>| it.as_ref().map(Carrier::is_lost);
            let down = (lost(&before), lost(&after));
            run("ip link set mill1 up");
            let up = (lost(&before), lost(&after));
            run("ip link delete mill0");
            let gone = (lost(&before), lost(&after));
            run(&format!("umount --lazy {}", sysfs.path().display()));
            assert_eq!(down, (Some(true), Some(true)));
            assert_eq!(up, (Some(false), Some(false)));
            assert_eq!(gone, (Some(false), Some(false)));
        });
        if let Err(error) = tried {
            eprintln!("skipped: needs the right to make a network namespace: {error}");
        }
    }
}
