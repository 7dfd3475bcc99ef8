//! Runs each tutorial below `docs/tutorials`, line by line, and compares what it prints.
//!
//! In a block `console`, bash runs each line that begins with `$ `, which must succeed. The lines
//! that follow must be in its output, in this order; `...` stands for anything and spaces are
//! alike. A block `toml` or `sh` with a first line `# NAME.toml` or `# NAME.sh` becomes that file.

use crate::sandbox::{Need, story};
use crate::switch::millrace;
use crate::{etcd, libvirt, qemu};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TUTORIALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tutorials");
const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ping")];
/// The directory of the reader.
const HERE: &str = "/run/tutorial";

/// A step that the reader takes next.
#[derive(Debug, PartialEq)]
enum Step {
    Write { name: String, text: String },
    Run { line: String, expected: Vec<String> },
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(kind), None) => fence = Some(kind),
            (None, Some("console")) => read_console(line, &mut steps),
            (None, Some("toml" | "sh")) => read_file(line, &mut steps),
            _ => {}
        }
    }
    steps
}

fn read_console(line: &str, steps: &mut Vec<Step>) {
    match (line.strip_prefix("$ "), steps.last_mut()) {
        (Some(line), _) => steps.push(Step::Run { line: line.to_owned(), expected: Vec::new() }),
        (None, Some(Step::Run { expected, .. })) => expected.push(line.to_owned()),
        (None, _) => panic!("no command prints {line}"),
    }
}

fn read_file(line: &str, steps: &mut Vec<Step>) {
    let name = line.strip_prefix("# ").filter(|name| {
        let is_file = |kind| name.ends_with(kind) && !name.contains(' ');
        is_file(".toml") || is_file(".sh")
    });
    match (name, steps.last_mut()) {
        (Some(name), _) => {
            steps.push(Step::Write { name: name.to_owned(), text: String::new() });
        }
        (None, Some(Step::Write { text, .. })) => *text += &format!("{line}\n"),
        (None, _) => panic!("no file has {line}"),
    }
}

/// Returns whether a printed line matches a line of a tutorial.
fn is_like(printed: &str, shown: &str) -> bool {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let (printed, shown) = (words(printed), words(shown));
    let Some((begin, rest)) = shown.split_once("...") else { return printed == shown };
    let (middle, end) = rest.rsplit_once("...").unwrap_or(("", rest));
    let Some(between) = printed.strip_prefix(begin.trim()) else { return false };
    let Some(mut between) = between.strip_suffix(end.trim()) else { return false };
    middle.split("...").all(|part| match between.split_once(part.trim()) {
        Some((_, after)) => {
            between = after;
            true
        }
        None => false,
    })
}

fn follow(name: &str) {
    let text = fs::read_to_string(Path::new(TUTORIALS).join(name)).unwrap();
    fs::create_dir_all(format!("{HERE}/bin")).unwrap();
    let program = PathBuf::from(millrace().get_program());
    let link = PathBuf::from(format!("{HERE}/bin/millrace"));
    if !link.exists() {
        std::os::unix::fs::symlink(program, link).unwrap();
    }
    let steps = steps(&text);
    assert!(steps.len() > 5, "hardly a tutorial: {steps:?}");
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write { name, text } => fs::write(format!("{HERE}/{name}"), text).unwrap(),
            Step::Run { line, expected } => try_out(number, &line, &expected),
        }
    }
}

/// Seconds after which a line has hung: less than a story may take, so that the line is named.
const LIMIT: &str = "60";

/// Runs a line. Programs that it leaves in the background go on printing into a separate file.
fn try_out(number: usize, line: &str, expected: &[String]) {
    let output = format!("{HERE}/output-{number}");
    let file = File::create(&output).unwrap();
    let path = format!("{HERE}/bin:{}", std::env::var("PATH").unwrap());
    let mut bash = Command::new("timeout");
    bash.args(["--foreground", LIMIT, "bash", "-c", line]).current_dir(HERE).env("PATH", path);
    // The tutorials name both in their files.
    bash.env_remove("MILLRACE_SOCKET").env_remove("MILLRACE_STATE_DIR");
    bash.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let status = bash.status().unwrap();
    let printed = fs::read_to_string(&output).unwrap();
    assert!(status.success(), "{line}: {status}\n{printed}");
    let mut lines = printed.lines();
    for shown in expected {
        let found = lines.any(|printed| is_like(printed, shown));
        assert!(found, "{line} does not print, or not in this place:\n{shown}\nbut\n{printed}");
    }
}

#[test]
fn steps_are_read_and_compared_as_the_tutorials_need_it() {
    let text = "$ no\n```console\n$ a b\nc\n$ d\n```\n```toml\n# e.toml\nf = 1\n```\n```sh\n# g.sh\n# h i.sh\n```\n";
    let run = |line: &str, expected: &[&str]| Step::Run {
        line: line.to_owned(),
        expected: expected.iter().map(|&line| line.to_owned()).collect(),
    };
    let file = Step::Write { name: "e.toml".to_owned(), text: "f = 1\n".to_owned() };
    let script = Step::Write { name: "g.sh".to_owned(), text: "# h i.sh\n".to_owned() };
    assert_eq!(steps(text), [run("a b", &["c"]), run("d", &[]), file, script]);
    for (printed, shown, alike) in [
        ("a   b", " a b", true),
        ("a b c", "a ... c", true),
        ("a b c", "a ...", true),
        ("a b c", "... c", true),
        ("a b c", "a b", false),
        ("a b c", "b c", false),
        ("a b c", "a ... b", false),
        ("a b c d", "a ... c ... d", true),
        ("a b c d", "a ... x ... d", false),
    ] {
        assert_eq!(is_like(printed, shown), alike, "{printed}: {shown}");
    }
}

#[test]
fn the_containers_tutorial_does_what_it_says() {
    story(&NEEDS, || follow("containers.md"));
}

#[test]
fn the_tutorial_of_one_nic_does_what_it_says() {
    story(&NEEDS, || follow("one-nic.md"));
}

/// The second tutorial found what the first had left: a state directory with its ports.
#[test]
fn tutorials_leave_nothing_to_the_next_one() {
    story(&NEEDS, || {
        for name in ["containers.md", "one-nic.md", "containers.md"] {
            follow(name);
        }
        let left = fs::read_dir(HERE).unwrap().flatten().map(|it| it.file_name());
        let left: Vec<_> = left.filter(|it| !it.to_string_lossy().starts_with("output-")).collect();
        assert_eq!(left, ["bin"]);
        assert!(!Path::new("/run/lab.state").exists());
    });
}

/// With the plugins of the distribution. The story of `cnitool` has newer ones.
#[test]
fn the_cni_tutorial_does_what_it_says_and_leaves_nothing_to_the_next_one() {
    let plugin = Need::Brought("/usr/lib/cni/host-local", "containernetworking-plugins");
    story(&[Need::Tap, Need::Program("ping"), plugin], || {
        for name in ["pods.md", "containers.md", "pods.md"] {
            follow(name);
        }
    });
}

#[test]
fn the_virtual_machine_tutorial_does_what_it_says() {
    story(&[Need::Tap, Need::Guest("qemu")], || {
        qemu::lay_out(Path::new(HERE));
        follow("virtual-machine.md");
    });
}

/// QEMU 7.2 of Debian 12 crashed in each run of the tutorial.
#[test]
fn the_virtual_machine_tutorial_works_with_the_distributions_qemu() {
    let needs = [
        Need::Tap,
        Need::Program("ping"),
        Need::Guest("qemu"),
        Need::Program("qemu-system-x86_64"),
    ];
    story(&needs, || {
        qemu::lay_out(Path::new(HERE));
        fs::remove_file(format!("{HERE}/bin/qemu-system-x86_64")).unwrap();
        follow("virtual-machine.md");
    });
}

/// apt of a mirror that has the two packages of which `packaging/tutorial-guest` makes a guest.
const MIRROR: &str = r#"#!/bin/sh
set -e
case $0 in *apt-cache) echo 'linux-image-cloud-amd64'; echo '  Depends: linux-image-1-cloud-amd64'; exit ;; esac
package() {
    mkdir $1/DEBIAN
    printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: none\n' $1 >$1/DEBIAN/control
    dpkg-deb --build $1 $1.deb >/dev/null && rm -r $1
}
for name; do
    case $name in
        linux-image-1-cloud-amd64)
            mkdir -p $name/boot $name/lib
            cp $GUEST/vmlinuz $name/boot/vmlinuz-1
            (cd $name/lib && $GUEST/busybox cpio -id 'modules/*' <$GUEST/initramfs 2>/dev/null)
            package $name ;;
        busybox-static)
            mkdir -p $name/bin
            cp $GUEST/busybox $name/bin/
            package $name ;;
    esac
done
"#;

/// The guest was made by Rust and a checkout alone.
#[test]
fn the_virtual_machine_tutorial_works_with_the_guest_of_one_command() {
    story(&[Need::Tap, Need::Guest("qemu"), Need::Program("dpkg-deb")], || {
        qemu::lay_out(Path::new(HERE));
        for file in ["vmlinuz", "initramfs"] {
            fs::remove_file(format!("{HERE}/{file}")).unwrap();
        }
        for name in ["apt-get", "apt-cache"] {
            let program = format!("{HERE}/bin/{name}");
            fs::write(&program, MIRROR).unwrap();
            fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let guest = crate::guest::directory("qemu").canonicalize().unwrap();
        let path = format!("{HERE}/bin:{}", std::env::var("PATH").unwrap());
        let mut make =
            Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/tutorial-guest"));
        make.current_dir(HERE).env("PATH", path).env("GUEST", guest);
        crate::sandbox::output_of(&mut make);
        follow("virtual-machine.md");
    });
}

#[test]
fn the_tutorial_of_two_libvirt_guests_does_what_it_says() {
    let needs = [
        Need::Tap,
        Need::Root,
        Need::Guest("qemu"),
        Need::Program("libvirtd"),
        Need::Program("virsh"),
    ];
    story(&needs, || {
        qemu::lay_out(Path::new(HERE));
        let _libvirtd = libvirt::Daemon::start(&format!("{HERE}/bin"));
        follow("libvirt-guests.md");
    });
}

#[test]
fn the_fleet_tutorial_does_what_it_says() {
    story(&[Need::Tap, Need::Program("ping"), Need::Guest("qemu"), etcd::NEED], || {
        qemu::lay_out(Path::new(HERE));
        std::os::unix::fs::symlink(etcd::PROGRAM, format!("{HERE}/bin/etcd")).unwrap();
        follow("fleet.md");
    });
}

#[test]
fn the_two_hosts_tutorial_does_what_it_says() {
    story(&NEEDS, || follow("two-hosts.md"));
}

#[test]
fn the_tutorial_of_two_machines_on_two_hosts_does_what_it_says() {
    story(&[Need::Tap, Need::Guest("qemu")], || {
        qemu::lay_out(Path::new(HERE));
        follow("two-machines.md");
    });
}
