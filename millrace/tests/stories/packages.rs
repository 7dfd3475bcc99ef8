//! The packages of the tested binary: installed, upgraded, removed and purged as an administrator
//! does it.
//!
//! dpkg handles the .deb under a systemd that boots (`container`). Debian's rpm handles the .rpm,
//! both in a root at rest and in one that is booted. What depends on Fedora's own packages is not
//! tested.

use crate::container::{Container, ROOT, lay_out_root};
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::millrace;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use waiting::until;

const TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/..");
const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Tools that `cargo xtask packages` needs besides the toolchain.
const TOOLS: [Need; 2] = [
    Need::Brought(concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/bin/cargo-deb"), "cargo-deb"),
    Need::Brought(
        concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/bin/cargo-generate-rpm"),
        "cargo-generate-rpm",
    ),
];

/// Needs of a story that boots a root with a package in it, besides the tools.
const BOOTED: [Need; 5] = [
    Need::Root,
    Need::Tap,
    Need::Program("systemd-nspawn"),
    Need::Program("dpkg-shlibdeps"),
    Need::Systemd,
];

/// Directory for packages, also visible in the container.
const PACKAGES: &str = "/run/root/srv";
const FILE: &str = "/run/root/etc/millrace/millrace.toml";
const OPTIONS: &str = "/run/root/etc/millrace/fleet.env";
const OWN_FILE: &str = "[[port]]\nname = 'web'\ntap = 'tap-web'\n";

/// Debian's rpm keeps its database in the user's home unless it is told another place. The database
/// knows nothing of the libraries that dpkg has installed, hence `--nodeps` below.
const RPM: &str = "rpm --dbpath /run/rpm";

/// Revisions of the packages, in the order of their upgrades.
const REVISIONS: [&str; 2] = ["20260102.030405.g1", "20260102.030406.g0"];

/// Makes packages of one kind in [`PACKAGES`], and names them by the positions of their revisions:
/// `0.deb`, `1.deb`.
fn packages(kind: &str, revisions: &[&str]) {
    for (number, revision) in revisions.iter().enumerate() {
        let mut task = Command::new("cargo");
        task.args(["xtask", "packages"]).arg(millrace().get_program());
        task.args([PACKAGES, revision, kind]).current_dir(TREE);
        let target = fs::canonicalize(TARGET).unwrap();
        let made = output_of(task.env("CARGO_TARGET_DIR", target));
        let package = made.lines().find(|line| line.ends_with(kind) && line.contains(revision));
        let package = package.unwrap_or_else(|| panic!("no {kind} of {revision}: {made}"));
        fs::rename(package, format!("{PACKAGES}/{number}.{kind}")).unwrap();
    }
}

/// Installs the package with this number over an existing one.
type Install<'c> = &'c dyn Fn(u8) -> Output;

fn succeeds(output: &Output) -> String {
    let told = [&*output.stdout, &*output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(output.status.success(), "{}: {told}", output.status);
    told
}

/// Returns files and directories of the root that have our name.
fn traces() -> BTreeSet<String> {
    let found = run(&format!(
        "find {ROOT}/etc {ROOT}/usr {ROOT}/var/lib {ROOT}/opt -name *millrace* -not -path *dpkg*"
    ));
    found.lines().map(|path| path[ROOT.len()..].to_owned()).collect()
}

#[test]
fn the_deb_is_installed_upgraded_removed_and_purged() {
    story(&[&BOOTED[..], &TOOLS].concat(), || {
        lay_out_root();
        packages("deb", &REVISIONS);
        let before = traces();
        let container = Container::boot();
        let install: Install<'_> =
            &|number| container.try_to(&format!("dpkg --install /srv/{number}.deb </dev/null"));
        succeeds(&install(0));
        is_installed(&container);
        let first = is_started(&container);
        let agent_before = runs_an_agent(&container);
        let second = is_upgraded(&container, &first, install);
        assert_ne!(agent(&container), agent_before, "the old agent still runs");
        keeps_a_daemon_whose_file_is_refused(&container, &second, install);
        is_removed(&container, install);
        container.tell("test -d /var/lib/millrace-fleet");
        // The socket of a front end that listens and runs as another user.
        container.tell("touch /run/millrace/guest.sock");
        container.tell("dpkg --purge millrace");
        assert_eq!(traces(), before, "what purge leaves");
        assert_eq!(container.tell("ls /run/millrace"), "guest.sock");
    });
}

#[test]
fn the_rpm_is_upgraded_under_a_daemon_that_runs() {
    story(&[&BOOTED[..], &[Need::Program("rpm")], &TOOLS].concat(), || {
        lay_out_root();
        packages("rpm", &REVISIONS);
        let container = Container::boot();
        // SQLite resolves the link in /proc as text, so the database lies in the story's own /run.
        run("mkdir /run/rpm");
        let all = format!("{RPM} --root {} --nodeps --oldpackage --upgrade", container.root());
        let install: Install<'_> =
            &|number| container.try_beside(&format!("{all} {PACKAGES}/{number}.rpm"));
        succeeds(&install(0));
        assert_eq!(container.unit("ActiveState"), "inactive", "started unasked");
        let first = is_started(&container);
        let second = is_upgraded(&container, &first, install);
        keeps_a_daemon_whose_file_is_refused(&container, &second, install);
    });
}

/// Checks that nothing runs, and every file is where programs look for it.
fn is_installed(container: &Container) {
    assert_eq!(container.tell("dpkg --verify millrace"), "", "files that differ");
    assert_eq!(container.unit("LoadState"), "loaded");
    assert_eq!(container.unit("ActiveState"), "inactive", "started unasked");
    assert_eq!(container.unit("UnitFileState"), "disabled", "would start with the host");
    let agent = "systemctl show --value -p LoadState,ActiveState,UnitFileState millrace-fleet";
    let agent = container.tell(agent);
    assert_eq!(agent.split_whitespace().collect::<Vec<_>>(), ["loaded", "inactive", "disabled"]);
    let file = container.tell("stat -c '%a %U %G' /etc/millrace/millrace.toml");
    assert_eq!(file, "640 root millrace");
    container.tell("millrace check /etc/millrace/millrace.toml");
    assert!(container.tell("zcat /usr/share/man/man1/millrace.1.gz").contains(".TH millrace 1"));
    container.tell("zcat /usr/share/man/man5/millrace.toml.5.gz");
    container.tell("bash -n /usr/share/bash-completion/completions/millrace");
    let versions =
        "echo '{\"cniVersion\": \"1.1.0\"}' | CNI_COMMAND=VERSION /usr/lib/cni/millrace-cni";
    assert!(container.tell(versions).contains("1.1.0"));
    for document in ["README.md", "docs/install.md", "packaging/millrace-alerts.yml"] {
        container.tell(&format!("test -s /usr/share/doc/millrace/{document}"));
    }
    let depends = container.tell("dpkg-query --show --showformat '${Depends}' millrace");
    assert!(depends.contains("libc6 (>= "), "libraries: {depends}");
}

/// Starts a fleet's agent as the administrator would; only its etcd is missing. Returns the agent's
/// process.
fn runs_an_agent(container: &Container) -> String {
    fs::write(OPTIONS, "MILLRACE_FLEET_OPTIONS=\"--host a --label role=compute\"\n").unwrap();
    container.tell("systemctl enable --now millrace-fleet");
    until("the agent waits for etcd", || {
        let journal = container.tell("journalctl --no-pager -u millrace-fleet");
        journal.contains("The switch carries on").then_some(())
    });
    container.tell("systemctl is-active millrace-fleet");
    assert_eq!(container.tell("stat -c '%a %U' /var/lib/millrace-fleet"), "700 millrace");
    agent(container)
}

fn agent(container: &Container) -> String {
    container.tell("systemctl show --value -p MainPID millrace-fleet")
}

/// Starts the daemon as the administrator would, with ports of the file and of the API. Returns its
/// process.
fn is_started(container: &Container) -> String {
    fs::write(FILE, OWN_FILE).unwrap();
    container.tell("systemctl enable --now millrace");
    container.tell("millrace port add kept --tap tap-kept");
    container.unit("MainPID")
}

fn device(container: &Container) -> String {
    container.tell("cat /sys/class/net/tap-kept/ifindex")
}

/// Checks an upgrade: the daemon is restarted, and devices, ports and the edited file stay.
fn is_upgraded(container: &Container, process: &str, install: Install<'_>) -> String {
    let before = device(container);
    succeeds(&install(1));
    let next = container.unit("MainPID");
    assert_ne!(next, process, "the old version still runs");
    assert_eq!(fs::read_to_string(FILE).unwrap(), OWN_FILE);
    assert_eq!(device(container), before, "the device was made anew");
    container.tell("millrace port show kept");
    next
}

/// Checks that a package keeps the running daemon if the packaged one refuses its file. The package
/// is a downgrade here.
fn keeps_a_daemon_whose_file_is_refused(
    container: &Container,
    process: &str,
    install: Install<'_>,
) {
    fs::write(FILE, "[[port]]\nnonsense = 1\n").unwrap();
    let told = succeeds(&install(0));
    assert!(told.contains("nonsense"), "{told}");
    assert!(told.contains("correct /etc/millrace/millrace.toml"), "{told}");
    assert_eq!(container.unit("MainPID"), process);
    container.tell("millrace port show kept");
    fs::write(FILE, OWN_FILE).unwrap();
}

/// Checks a removal. Another installation finds the old files, and starts nothing either.
fn is_removed(container: &Container, install: Install<'_>) {
    container.tell("dpkg --remove millrace");
    assert_eq!(container.unit("ActiveState"), "inactive", "still runs");
    assert_eq!(agent(container), "0", "the agent still runs");
    assert!(!container.try_to("ls /sys/class/net/tap-kept").status.success());
    assert_eq!(fs::read_to_string(FILE).unwrap(), OWN_FILE);
    assert_ne!(container.tell("ls /var/lib/millrace"), "", "the API's ports");
    succeeds(&install(0));
    assert_eq!(container.unit("ActiveState"), "inactive");
    container.tell("systemctl start millrace");
    container.tell("millrace port show kept");
}

#[test]
fn the_rpm_is_installed_and_removed_with_its_scripts() {
    let needs = [Need::Root, Need::Program("rpm"), Need::Program("dpkg-shlibdeps"), Need::Systemd];
    story(&[&needs[..], &TOOLS].concat(), || {
        lay_out_root();
        packages("rpm", &REVISIONS[..1]);
        let rpm = format!("{PACKAGES}/0.rpm");
        let ask = |line: &str| run(&format!("{RPM} {line} --package {rpm}"));
        let files: BTreeSet<String> =
            ask("--query --configfiles").lines().map(str::to_owned).collect();
        assert!(files.into_iter().eq(["/etc/millrace/fleet.env", "/etc/millrace/millrace.toml"]));
        for path in ask("--query --list").lines() {
            // Sources are patterns. None may match files outside of this tree.
            let document = path.strip_prefix("/usr/share/doc/millrace/");
            assert!(document.is_none_or(|path| Path::new(TREE).join(path).is_file()), "{path}");
        }
        assert!(ask("--query --requires").contains("libc.so.6("), "libraries");
        let before = traces();
        // systemd-tmpfiles needs this.
        run(&format!("mount -t proc proc {ROOT}/proc"));
        let all = format!("{RPM} --root {ROOT} --nodeps");
        run(&format!("{all} --install {rpm}"));
        let program = run(&format!("chroot {ROOT} /usr/bin/millrace --version"));
        assert!(program.starts_with("millrace "), "{program}");
        let file = run(&format!("chroot {ROOT} stat -c %a.%U.%G /etc/millrace/millrace.toml"));
        assert_eq!(file.trim(), "640.root.millrace");
        for path in [
            "libexec/cni/millrace-cni",
            "lib/systemd/system/millrace.service",
            "lib/systemd/system/millrace-fleet.service",
        ] {
            assert!(PathBuf::from(format!("{ROOT}/usr/{path}")).is_file(), "{path}");
        }
        fs::write(FILE, OWN_FILE).unwrap();
        fs::write(format!("{ROOT}/var/lib/millrace/ports.toml"), "").unwrap();
        run(&format!("chroot {ROOT} systemctl --quiet enable millrace"));
        run(&format!("{all} --erase millrace"));
        let kept = ["/etc/millrace", "/etc/millrace/millrace.toml.rpmsave", "/var/lib/millrace"];
        let left: Vec<String> = traces().difference(&before).cloned().collect();
        assert_eq!(left, kept, "what a removal leaves");
        assert_eq!(fs::read_to_string(format!("{FILE}.rpmsave")).unwrap(), OWN_FILE);
    });
}
