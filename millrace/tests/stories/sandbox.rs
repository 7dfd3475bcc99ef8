//! A world of its own for each story.
//!
//! The test starts itself again as process 1 of new network, mount and process namespaces, and of a
//! user namespace where it is not root. Whatever the story makes there (processes, devices, files
//! below `/run`) ends with that process, however it ends. The host's own network is not even
//! visible.

use crate::guest;
use crate::heard::{Heard, PANIC};
use std::env;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Output};

/// Tells the second start from the first.
const INSIDE: &str = "MILLRACE_STORY";
/// Where daemons of the story keep the API's ports: not in the host's own directory.
const STATE: &str = "MILLRACE_STATE_DIR";
/// Where the guests are, when they are not below the target directory.
pub(crate) const GUESTS: &str = "MILLRACE_GUESTS";
/// How many minutes the faults of a fleet are to last.
pub(crate) const FAULT_MINUTES: &str = "MILLRACE_FAULT_MINUTES";

/// After so many seconds a story has hung: a long one moves a GiB between emulated machines, or
/// lasts as long as someone said.
fn limit() -> String {
    let minutes: u64 = env::var(FAULT_MINUTES).map_or(0, |text| text.parse().unwrap());
    let seconds = if env::var_os("MILLRACE_LONG").is_some() { 900 } else { 180 };
    (seconds + 60 * minutes).to_string()
}

/// What a story takes that a host may lack.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// A program.
    Program(&'static str),
    /// A user that can become others.
    Root,
    /// The right to make TAP devices.
    Tap,
    /// A kind of guest that `scripts/guests` brings.
    Guest(&'static str),
    /// A root that boots a systemd, which `scripts/systemd` makes.
    Systemd,
    /// A file that `scripts/setup test` brings, and what it is.
    Brought(&'static str, &'static str),
    /// What generates clients from the API's document, in this directory.
    OpenApi(&'static str),
    /// Minutes, for which `MILLRACE_LONG=1` asks.
    Long,
}

/// How a story ended.
enum Outcome {
    /// This was its second start, in which `body` ran.
    Inside,
    /// The reason for which it cannot run here.
    Skipped(String),
    Run(Output),
}

/// Runs `body` in a world of its own, or says why not.
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
    // The path of the closure is the path of the test that wrote it.
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let name = path.split_once("::").expect("a crate").1;
    let mut again = world(&limit());
    again.arg(env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    Outcome::Run(again.env(INSIDE, "1").env(STATE, "/run/millrace.state").output().unwrap())
}

/// `unshare` with all that a world takes; the program is to be added.
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

/// Passes on how the story went.
fn tell(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(skipped) = text.lines().find(|line| line.starts_with("skipped: ")) {
        println!("{skipped}");
    }
    // A table is a result, and so is what was measured.
    let is_result = |line: &&str| ["| ", "measured: "].iter().any(|word| line.starts_with(word));
    text.lines().filter(is_result).for_each(|line| println!("{line}"));
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    // Indented, so that it is not taken for the output of the test outside.
    let all = all.replace('\n', "\n    ");
    if let Some(fault) = fault(output) {
        panic!("{fault}\n    {all}");
    }
}

/// Returns what is wrong with a story's run. A name that matched no test is no success, and nor is
/// a run in which a process panicked: the release build aborts there.
fn fault(output: &Output) -> Option<String> {
    let holds = |bytes: &[u8], words: &str| String::from_utf8_lossy(bytes).contains(words);
    if !output.status.success() || !holds(&output.stdout, "test result: ok. 1 passed") {
        return Some(output.status.to_string());
    }
    let panicked = holds(&output.stderr, PANIC) || holds(&output.stdout, PANIC);
    panicked.then(|| format!("a process of the story {PANIC} some place"))
}

/// A `/run` of our own, with room for namespaces by name, and a loopback that works.
fn move_in() {
    for line in ["mount -t tmpfs tmpfs /run", "mkdir /run/netns", "ip link set lo up"] {
        run(line);
    }
}

/// Runs a command whose words are parted by blanks; it must succeed. Returns what it printed.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split(' ');
    output_of(Command::new(words.next().unwrap()).args(words))
}

/// What a command printed, which must succeed.
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
                (!there).then(|| format!("a guest: scripts/guests {kind}"))
            }
            Need::Systemd => {
                let there = guest::systemd().join("version").is_file();
                (!there).then(|| "a root with a systemd: scripts/systemd".to_owned())
            }
            Need::Brought(path, what) => {
                (!Path::new(path).is_file()).then(|| format!("{what}: scripts/setup test"))
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

/// What a story that ends with this fault comes to, in its first start.
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
