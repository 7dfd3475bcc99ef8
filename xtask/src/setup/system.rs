//! System packages: which programs are missing, and their installation with apt-get.

use super::{Purpose, say};
use crate::program::{has, is_root, program, succeeds, succeeds_silently, words};
use std::collections::BTreeSet;

/// A program that a host may lack.
struct Need {
    program: &'static str,
    /// Debian's package with this program.
    package: &'static str,
    /// What is skipped without it.
    skipped: &'static str,
    /// The purposes that need it.
    purposes: &'static [Purpose],
}

const fn need(
    program: &'static str,
    package: &'static str,
    skipped: &'static str,
    purposes: &'static [Purpose],
) -> Need {
    Need { program, package, skipped, purposes }
}

const ALL: &[Purpose] = &[
    Purpose::Demo,
    Purpose::Lint,
    Purpose::Docs,
    Purpose::Test,
    Purpose::Bench,
    Purpose::Fuzz,
    Purpose::Packages,
    Purpose::Peers,
];
const LINT: &[Purpose] = &[Purpose::Lint, Purpose::Docs, Purpose::Test];
const TEST: &[Purpose] = &[Purpose::Test];
const PACKAGES: &[Purpose] = &[Purpose::Packages, Purpose::Test];
const BENCH: &[Purpose] = &[Purpose::Bench];
const PEERS: &[Purpose] = &[Purpose::Peers];

/// Debian's package of Python's module for virtual environments, which brings no program.
const VENV: &str = "python3-venv";
const OVS: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Where Debian has the CNI project's plugins, and the tutorial looks.
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";

const NEEDS: &[Need] = &[
    need("cc", "gcc", "everything", ALL),
    need("ip", "iproute2", "stories, demo", ALL),
    need("ethtool", "ethtool", "stories, demo", ALL),
    need("iperf3", "iperf3", "stories under load", ALL),
    need("tcpdump", "tcpdump", "stories about captures", ALL),
    need("ping", "iputils-ping", "stories about captures", ALL),
    need("unshare", "util-linux", "stories, demo", ALL),
    need("sysctl", "procps", "stories", ALL),
    need(VENV, VENV, "spelling, the book, OpenAPI", LINT),
    need("systemd-analyze", "systemd", "how exposed the unit is", TEST),
    need("virt-xml-validate", "libvirt-clients", "libvirt's elements by its schema", TEST),
    need("libvirtd", "libvirt-daemon", "the tutorial of libvirt guests", TEST),
    need("xmllint", "libxml2-utils", "libvirt's elements by its schema", TEST),
    need("chromium", "chromium", "stories in a browser", TEST),
    need("dpkg-shlibdeps", "dpkg-dev", "packages: libraries of the .deb", PACKAGES),
    need("rpm", "rpm", "what the .rpm holds", TEST),
    need(HOST_LOCAL, "containernetworking-plugins", "the tutorial of CNI", TEST),
    need("valgrind", "valgrind", "instruction counts", BENCH),
    need("dpdk-testpmd", "dpdk-dev", "testpmd as a peer", PEERS),
    need(OVS, "openvswitch-switch-dpdk", "OVS-DPDK as a peer", PEERS),
];

/// Installs packages without starting the services they bring: the one of Open vSwitch would load a
/// module and join the host's network. It is a shell's work because the trap also removes the file
/// when the user interrupts.
const INSTALL: &str = r#"
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
    fi
    apt-get -qq install --no-install-recommends "$@"
"#;

/// Installs the missing packages where it may, and says what will be skipped without the others.
pub(super) fn install(purpose: Purpose) {
    let packages = packages(&missing(purpose, is_met));
    if !packages.is_empty() && is_root() && has("apt-get") {
        apt_install(&packages);
    }
    for Need { program, package, skipped, .. } in missing(purpose, is_met) {
        say(format_args!(
            "{program} is missing (package {package}); skipped without it: {skipped}"
        ));
    }
}

fn apt_install(packages: &BTreeSet<&str>) {
    let names: Vec<&str> = packages.iter().copied().collect();
    say(format_args!("installing {}", names.join(" ")));
    if !succeeds(&mut words("apt-get -qq update")) {
        say("apt-get update failed; going on with what it knows");
    }
    let mut install = program("bash");
    install.args(["-euc", INSTALL, "bash"]).args(names);
    if !succeeds(install.env("DEBIAN_FRONTEND", "noninteractive")) {
        say("apt-get could not install all of them");
    }
}

fn is_met(need: &Need) -> bool {
    match need.program {
        VENV => succeeds_silently(program("python3").args(["-c", "import ensurepip"])),
        name => has(name),
    }
}

/// Returns the needs of a purpose that are not met.
fn missing(purpose: Purpose, is_met: impl Fn(&Need) -> bool) -> Vec<&'static Need> {
    let needs = NEEDS.iter().filter(|need| need.purposes.contains(&purpose));
    needs.filter(|need| !is_met(need)).collect()
}

/// Returns the packages to install, each once.
fn packages(missing: &[&Need]) -> BTreeSet<&'static str> {
    missing.iter().map(|need| need.package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_needs_its_own_packages_and_those_of_all() {
        let of = |purpose| packages(&missing(purpose, |_| false));
        let demo = of(Purpose::Demo);
        assert_eq!(demo.len(), 8);
        for purpose in ALL {
            assert!(demo.is_subset(&of(*purpose)), "{purpose:?}");
        }
        let more = |purpose| of(purpose).difference(&demo).copied().collect::<Vec<_>>();
        assert_eq!(more(Purpose::Lint), ["python3-venv"]);
        assert_eq!(more(Purpose::Bench), ["valgrind"]);
        assert_eq!(more(Purpose::Packages), ["dpkg-dev"]);
        assert_eq!(more(Purpose::Peers), ["dpdk-dev", "openvswitch-switch-dpdk"]);
        assert!(more(Purpose::Fuzz).is_empty());
        assert_eq!(more(Purpose::Test).len(), 9);
    }

    #[test]
    fn only_what_is_missing_is_installed() {
        let found = missing(Purpose::Test, |need| need.package != "chromium");
        assert_eq!(packages(&found).into_iter().collect::<Vec<_>>(), ["chromium"]);
        assert!(missing(Purpose::Test, |_| true).is_empty());
    }
}
