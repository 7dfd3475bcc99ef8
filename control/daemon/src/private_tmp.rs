//! Whether this process has a directory of temporary files of its own, as `PrivateTmp` of a systemd
//! unit gives it: what it makes there is seen by no other service and no user.
//!
//! The mounts of this process are compared with those of the first process, both by what the kernel
//! says of them (proc_pid_mountinfo(5)).

use std::fs::read_to_string;
use std::path::Path;
use std::sync::OnceLock;

/// Directories of temporary files, which systemd replaces.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Those that are private to this process.
static PRIVATE: OnceLock<Vec<&str>> = OnceLock::new();

/// Looks which directories are private. Called before the process restricts itself.
pub(crate) fn look() {
    PRIVATE.get_or_init(|| {
        let own = read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let hosts = read_to_string("/proc/1/mountinfo").unwrap_or_default();
        TEMPORARY.into_iter().filter(|directory| is_private(directory, &own, &hosts)).collect()
    });
}

/// Returns the private directory in which a path lies.
pub(crate) fn hides(path: &Path) -> Option<&'static str> {
    PRIVATE.get()?.iter().find(|directory| path.starts_with(directory)).copied()
}

/// Whether a directory is another one to this process, by its own mounts and the host's.
fn is_private(directory: &str, own: &str, hosts: &str) -> bool {
    let (Some(own), Some(hosts)) = (place(directory, own), place(directory, hosts)) else {
        // Nothing is known.
        return false;
    };
    own != hosts
}

/// Returns where a directory is: the device of its file system, and its path in that.
fn place(directory: &str, mounts: &str) -> Option<(String, String)> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(2);
        let (device, root, at) = (fields.next()?, fields.next()?, fields.next()?);
        let below = Path::new(directory).strip_prefix(at).ok()?;
        let place = Path::new(root).join(below).display().to_string();
        Some((at.len(), (device.to_owned(), place.trim_end_matches('/').to_owned())))
    };
    // Of several mounts at one place the last one is on top.
    mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth).map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "\
        22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 22 0:25 / /run rw,nosuid shared:11 - tmpfs tmpfs rw\n";
    const TMPFS: &str = "31 22 0:31 / /tmp rw,nosuid shared:12 - tmpfs tmpfs rw\n";

    #[test]
    fn a_directory_that_a_unit_has_to_itself_is_private() {
        let unit = "40 22 254:0 /tmp/systemd-private-1-millrace.service-2/tmp /tmp rw - ext4 /dev/vda rw\n";
        let empty = "40 22 0:77 / /tmp rw - tmpfs tmpfs rw\n";
        let own = |more: &str| format!("{HOST}{more}");
        assert!(is_private("/tmp", &own(unit), HOST));
        assert!(is_private("/tmp", &own(empty), HOST));
        assert!(is_private("/tmp", &own(&format!("{TMPFS}{empty}")), &own(TMPFS)), "on top");
        assert!(!is_private("/var/tmp", &own(unit), HOST));
        assert!(!is_private("/tmp", HOST, HOST));
        assert!(!is_private("/tmp", &own(TMPFS), &own(TMPFS)), "a file system of all");
        assert!(!is_private("/tmp", &own(empty), ""), "the host's are not to be seen");
    }

    #[test]
    fn a_path_elsewhere_is_not_hidden() {
        look();
        assert_eq!(hides(Path::new("/run/vm1.sock")), None);
        assert_eq!(hides(Path::new("/tmpfiles/vm1.sock")), None);
    }
}
