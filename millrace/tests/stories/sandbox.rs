//! Runs each story in namespaces of its own: its world.
//!
//! The test starts itself again as process 1 of new network, mount and process namespaces, and of a
//! user namespace if it is not root. Everything that the story makes there (processes, devices,
//! files below `/run`) ends with that process, however it ends. The host's own network is not even
//! visible.

use crate::guest;
use crate::heard::{Heard, PANIC};
use std::env;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Output};

/// Set in the environment of the second start.
const INSIDE: &str = "MILLRACE_STORY";
/// Directory in which daemons of the story keep the API's ports, instead of the host's own.
const STATE: &str = "MILLRACE_STATE_DIR";
/// Directory of the guests, if it is not below the target directory.
pub(crate) const GUESTS: &str = "MILLRACE_GUESTS";
/// Minutes for which the faults of a fleet last.
pub(crate) const FAULT_MINUTES: &str = "MILLRACE_FAULT_MINUTES";

/// Returns the seconds after which a story has hung. A long story moves a GiB between emulated
/// machines, or lasts as long as the environment says.
fn limit() -> String {
    let minutes: u64 = env::var(FAULT_MINUTES).map_or(0, |text| text.parse().unwrap());
    let seconds = if env::var_os("MILLRACE_LONG").is_some() { 900 } else { 400 };
    (seconds + 60 * minutes).to_string()
}

/// A need of a story that a host may lack.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// A program.
    Program(&'static str),
    /// Root, which can become other users.
    Root,
    /// The right to make TAP devices.
    Tap,
    /// A kind of guest that `cargo xtask guests` brings.
    Guest(&'static str),
    /// A root that boots a systemd, which `scripts/systemd` makes.
    Systemd,
    /// A file that `cargo xtask setup test` brings, and its name for people.
    Brought(&'static str, &'static str),
    /// The generator of clients from the API's document, in this directory.
    OpenApi(&'static str),
    /// Permission to run for minutes: `MILLRACE_LONG=1`.
    Long,
}

/// The result of [`enact`].
enum Outcome {
    /// This process is the second start, and `body` has run.
    Inside,
    /// The story cannot run here, for this reason.
    Skipped(String),
    /// The output of the second start.
    Run(Output),
}

/// Runs `body` in a world of its own, or prints why not.
pub(crate) fn story<F: FnOnce()>(needs: &[Need], body: F) {
    match enact(needs, body) {
        Outcome::Inside => {}
        Outcome::Skipped(missing) => println!("skipped: needs {missing}"),
        Outcome::Run(output) => tell(&output),
    }
}

fn enact<F: FnOnce()>(needs: &[Need], body: F) -> Outcome {
    if env::var_os(INSIDE).is_some() {
        move_in();
        body();
        return Outcome::Inside;
    }
    let programs = ["unshare", "ip", "nsenter", "mount", "timeout"].map(Need::Program);
    let missing = programs.iter().chain(needs).find_map(|need| need.missing());
    if let Some(missing) = missing.or_else(no_namespaces) {
        return Outcome::Skipped(missing);
    }
    // The closure's path starts with that of its test.
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let name = path.split_once("::").expect("a crate").1;
    let mut again = world(&limit());
    again.arg(env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    Outcome::Run(again.env(INSIDE, "1").env(STATE, "/run/millrace.state").output().unwrap())
}

/// Returns `unshare` with the options of a world; the program is to be added.
fn world(seconds: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", seconds, "unshare"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

fn no_namespaces() -> Option<String> {
    let output = world("30").arg("true").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    (!output.status.success()).then(|| format!("the right to make namespaces: {error}"))
}

/// Passes on the output of a story.
fn tell(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(skipped) = text.lines().find(|line| line.starts_with("skipped: ")) {
        println!("{skipped}");
    }
    // A table is a result, and so is a measured figure.
    let is_result = |line: &&str| ["| ", "measured: "].iter().any(|word| line.starts_with(word));
    text.lines().filter(is_result).for_each(|line| println!("{line}"));
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    // Indented, so that no line counts as output of the outer test.
    let all = all.replace('\n', "\n    ");
    if let Some(fault) = fault(output) {
        panic!("{fault}\n    {all}");
    }
}

/// Returns the fault of a story's run. A name that matches no test is a fault, and so is a panic of
/// any process: the release build aborts there.
fn fault(output: &Output) -> Option<String> {
    let holds = |bytes: &[u8], words: &str| String::from_utf8_lossy(bytes).contains(words);
    if !output.status.success() || !holds(&output.stdout, "test result: ok. 1 passed") {
        return Some(output.status.to_string());
    }
    let panicked = holds(&output.stderr, PANIC) || holds(&output.stdout, PANIC);
    panicked.then(|| format!("a process of the story {PANIC} some place"))
}

/// Mounts a `/run` of the story's own, with room for namespaces by name, and brings the loopback
/// up.
fn move_in() {
    for line in ["mount -t tmpfs tmpfs /run", "mkdir /run/netns", "ip link set lo up"] {
        run(line);
    }
}

/// Runs a command with words separated by spaces; it must succeed. Returns what it printed.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split(' ');
    output_of(Command::new(words.next().unwrap()).args(words))
}

/// Runs a command, which must succeed. Returns what it printed.
pub(crate) fn output_of(command: &mut Command) -> String {
    let output = command.heard();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

impl Need {
    fn missing(&self) -> Option<String> {
        match self {
            Need::Program(name) => {
                let found = env::split_paths(&env::var_os("PATH").unwrap_or_default())
                    .any(|directory| directory.join(name).is_file());
                (!found).then(|| format!("the program {name}"))
            }
            Need::Guest(kind) => {
                let there = guest::directory(kind).join("version").is_file();
                (!there).then(|| format!("a guest: cargo xtask guests {kind}"))
            }
            Need::Systemd => {
                let there = guest::systemd().join("version").is_file();
                (!there).then(|| "a root with a systemd: scripts/systemd".to_owned())
            }
            Need::Brought(path, what) => {
                (!Path::new(path).is_file()).then(|| format!("{what}: cargo xtask setup test"))
            }
            Need::OpenApi(tools) => {
                let there = Path::new(tools).join("openapi-python-client").is_file();
                (!there).then(|| "a generator of clients: scripts/openapi --tools".to_owned())
            }
            Need::Long => env::var_os("MILLRACE_LONG")
                .is_none()
                .then(|| "minutes: MILLRACE_LONG=1".to_owned()),
            Need::Root => (!rustix::process::geteuid().is_root()).then(|| "root".to_owned()),
            Need::Tap => {
                let opened = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
                opened.err().map(|error| format!("/dev/net/tun: {error}"))
            }
        }
    }
}

/// Checks the result of a story that ends with this fault, as its first start sees it.
fn comes_to<F: FnOnce()>(wanted: Option<&str>, body: F) {
    match enact(&[], body) {
        Outcome::Inside => {}
        Outcome::Skipped(missing) => println!("skipped: needs {missing}"),
        Outcome::Run(output) => {
            let found = fault(&output);
            let is_so = found.as_deref().unwrap_or_default().contains(wanted.unwrap_or_default());
            assert!(is_so && found.is_some() == wanted.is_some(), "{found:?}");
        }
    }
}

#[test]
fn a_story_in_which_nothing_panics_has_no_fault() {
    comes_to(None, || {
        run("true");
    });
}

#[test]
fn a_process_that_panics_in_the_background_fails_its_story() {
    comes_to(Some(PANIC), || {
        let mut process = Command::new("sh").args(["-c", SAYS_SO]).spawn().unwrap();
        process.wait().unwrap();
    });
}

/// `millrace mtu check` ended with 0 although a thread of it had panicked.
#[test]
fn a_panic_in_output_that_a_story_reads_itself_fails_it() {
    comes_to(Some(PANIC), || {
        output_of(Command::new("sh").args(["-c", SAYS_SO]));
    });
}

const SAYS_SO: &str = "echo \"thread 'mtu' panicked at src/lib.rs:1:1:\" >&2";
