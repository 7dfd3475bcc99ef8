//! What a daemon has given up, as its users see it: `status` reports it, and paths that it cannot
//! reach any more are refused by name.

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::switch::{FILE, Switch, cli, complaint, millrace};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use waiting::until;

const PORT: &str = "[[port]]\nname = 'vm1'\ntap = 'tap1'\n";

/// Returns whether files and system calls are restricted, by `status`.
fn in_force(switch: &Switch) -> [bool; 2] {
    let status = switch.ask("status");
    let is = |what: &str| status["switch"]["sandbox"][what]["in_force"].as_bool().unwrap();
    [is("files"), is("system_calls")]
}

/// Returns how many filters each thread has, as proc(5) reports them.
fn filters(switch: &Switch) -> Vec<String> {
    threads(switch.process()).map(|thread| word(&thread, "Seccomp_filters")).collect()
}

fn threads(process: u32) -> impl Iterator<Item = PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.map(|thread| thread.unwrap().path())
}

/// Returns the value of this name in the status of a process or thread.
fn word(task: &Path, name: &str) -> String {
    let status = std::fs::read_to_string(task.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:\t")));
    line.unwrap().to_owned()
}

/// Returns the capabilities that a process or thread may use, by number.
fn capabilities(task: &Path) -> Vec<u32> {
    let bits = u64::from_str_radix(&word(task, "CapPrm"), 16).unwrap();
    (0..64).filter(|number| bits >> number & 1 == 1).collect()
}

/// CAP_DAC_READ_SEARCH, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN.
const HELPERS: [u32; 4] = [2, 13, 19, 21];
const SYS_ADMIN: u32 = 21;

/// Returns the process that enters namespaces for the daemon.
fn helper(switch: &Switch) -> Pid {
    let process = switch.process();
    let path = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(path).unwrap();
    let is_it = |child: &&str| {
        let line = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap();
        line.split('\0').any(|word| word == "namespace-helper")
    };
    let [only] = children.split_whitespace().filter(is_it).collect::<Vec<_>>()[..] else {
        panic!("children: {children}")
    };
    Pid::from_raw(only.parse().unwrap()).unwrap()
}

fn of(process: Pid) -> PathBuf {
    format!("/proc/{process}").into()
}

/// Waits until a process has ended. A story does not reap processes of others.
fn wait_for_end(process: Pid) {
    let ended = || !of(process).exists() || word(&of(process), "State").starts_with('Z');
    until("the helper has ended with its daemon", || ended().then_some(()));
}

/// Makes a directory that no daemon knows.
fn make_elsewhere() {
    run("mount -t tmpfs tmpfs /mnt");
}

#[test]
fn a_daemon_gives_up_what_it_does_not_need_and_refuses_it_by_name() {
    story(&[Need::Tap], || {
        make_elsewhere();
        let switch = Switch::start(&format!("[switch]\nworkers = 2\n{PORT}"));
        let seen = in_force(&switch);
        if seen != [true; 2] {
            return println!("skipped: needs a kernel with Landlock and seccomp: {seen:?}");
        }
        let filters = filters(&switch);
        assert!(filters.len() > 2 && filters.iter().all(|count| *count == "2"), "{filters:?}");
        let (code, told) = complaint("port add vm2 --vhost-user /mnt/vm2.sock");
        assert_eq!(code, 1);
        assert!(told.contains("cannot create the socket /mnt/vm2.sock"), "{told}");
        assert!(told.contains("`socket-directories`"), "{told}");
        let (code, told) = complaint("port add vm3 --tap tap3 --netns /proc/1/ns/net");
        assert_eq!(code, 1);
        assert!(told.contains("ip netns attach"), "{told}");
        run("ip netns attach one 1");
        switch.tell("port add vm3 --tap tap3 --netns one");
        switch.tell("port add vm2 --vhost-user /run/vm2.sock");
        switch.tell("port remove vm2");
        assert!(!std::path::Path::new("/run/vm2.sock").exists());
        switch.tell("config reload");
    });
}

#[test]
fn what_the_file_names_is_not_given_up() {
    story(&[Need::Tap], || {
        make_elsewhere();
        let switch = Switch::start(&format!("[switch]\nsocket-directories = ['/mnt']\n{PORT}"));
        switch.tell("port add vm2 --vhost-user /mnt/vm2.sock");
        switch.tell("port remove vm2");
        drop(switch);
    });
}

#[test]
fn a_port_in_a_process_s_namespace_or_the_file_turns_it_off() {
    story(&[Need::Tap], || {
        make_elsewhere();
        let port = PORT.replace("tap1'", "tap1'\nnetns = '/proc/1/ns/net'");
        let switch = Switch::start(&port);
        assert_eq!(switch.wait_for("vm1", "up"), "");
        let [files, calls] = in_force(&switch);
        if !calls {
            return println!("skipped: needs a kernel with seccomp");
        }
        assert!(!files);
        let why = &switch.ask("status")["switch"]["sandbox"]["files"]["detail"];
        assert!(why.as_str().unwrap().contains("port vm1 is in a process's namespace"), "{why}");
        switch.end(rustix::process::Signal::TERM);
        let switch = Switch::start(&format!("[switch]\nsandbox = false\n{PORT}"));
        assert_eq!(in_force(&switch), [false; 2]);
        assert!(filters(&switch).iter().all(|count| count == "0"));
        switch.tell("port add vm2 --vhost-user /mnt/vm2.sock");
    });
}

/// One port of each kind that has its device in a namespace.
const ELSEWHERE: &str = "[[port]]\nname = 'tap'\ntap = 'tap0'\nnetns = 'far'\n\
    [[port]]\nname = 'packet'\npacket = 'eth1'\nnetns = 'far'\n\
    [[port]]\nname = 'steered'\npacket = 'eth2'\nqueues = 2\nsteer = 'rss'\nnetns = 'far'\n\
    [[port]]\nname = 'xdp'\nxdp = 'eth3'\nnetns = 'far'\n\
    [[port]]\nname = 'team'\nteam = ['eth4', 'eth5']\nnetns = 'far'\n";

fn make_far() -> Host {
    let far = Host::new("far");
    for link in 1..=5 {
        far.run(&format!("ip link add eth{link} type veth peer name peer{link}"));
        far.run(&format!("ip link set eth{link} up"));
        far.run(&format!("ip link set peer{link} up"));
    }
    far
}

/// The daemon used to have the capability for its whole life.
#[test]
fn a_helper_opens_what_is_in_other_namespaces_for_a_daemon_that_may_not() {
    story(&[Need::Root, Need::Tap], || {
        let far = make_far();
        let switch = Switch::start(PORT);
        let helper = helper(&switch);
        for thread in threads(switch.process()) {
            assert!(!capabilities(&thread).contains(&SYS_ADMIN), "{thread:?}");
        }
        assert_eq!(capabilities(&of(helper)), HELPERS);
        assert_eq!(word(&of(helper), "Seccomp_filters"), "2");
        let files = std::fs::read_dir(of(helper).join("fd")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 3, "standard streams");
        switch.tell("port add hot --tap tap9 --netns far");
        assert_eq!(switch.wait_for("hot", "up"), "");
        std::fs::write(FILE, format!("{PORT}{ELSEWHERE}")).unwrap();
        switch.tell("config reload");
        for port in ["tap", "packet", "steered", "xdp", "team"] {
            assert_eq!(switch.wait_for(port, "up"), "");
        }
        let shown = far.run("ip -d link show eth3");
        assert!(shown.contains("prog/xdp"), "{shown}");
        // systemd and a terminal send these signals to the helper too, but only the daemon decides
        // when it ends.
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            kill_process(helper, signal).unwrap();
        }
        switch.tell("port add later --tap tap10 --netns far");
        let next = switch.take_over();
        for port in ["hot", "tap", "xdp"] {
            assert_eq!(next.wait_for(port, "up"), "");
        }
        wait_for_end(helper);
        let another = self::helper(&next);
        next.end(Signal::KILL);
        wait_for_end(another);
    });
}

#[test]
fn a_daemon_whose_helper_was_killed_goes_on_and_says_what_it_lacks() {
    story(&[Need::Root, Need::Tap], || {
        let _far = make_far();
        let there = PORT.replace("tap1'", "tap1'\nnetns = 'far'");
        let switch = Switch::start(&there);
        kill_process(helper(&switch), Signal::KILL).unwrap();
        let detail = |switch: &Switch| {
            let status = switch.ask("status");
            status["switch"]["sandbox"]["namespaces"]["detail"].as_str().unwrap().to_owned()
        };
        until("it is seen", || detail(&switch).contains("has ended").then_some(()));
        let (code, told) = complaint("port add vm2 --tap tap2 --netns far");
        assert_eq!(code, 1);
        assert!(told.contains("cannot enter") && told.contains("restart the daemon"), "{told}");
        switch.tell("port add vm3 --tap tap3");
        switch.tell("port set vm1 mtu=1400");
        assert_eq!(switch.wait_for("vm1", "up"), "");
        let next = switch.take_over();
        next.tell("port add vm2 --tap tap2 --netns far");
        assert!(detail(&next).contains("is left to the helper"), "{}", detail(&next));
        assert_eq!(next.wait_for("vm1", "up"), "");
    });
}

/// A release is put in place by a new link. The daemon could not read it, and blamed permissions.
#[test]
fn a_link_under_the_configuration_may_be_swapped() {
    story(&[Need::Tap], || {
        let port = |vlan: u16| format!("[[port]]\nname = 'vm1'\ntap = 'tap1'\nvlan = {vlan}\n");
        let swap = |target: &str, link: &str| {
            std::os::unix::fs::symlink(target, "/run/conf/next").unwrap();
            std::fs::rename("/run/conf/next", link).unwrap();
        };
        for (vlan, version) in [(1, "releases/v1"), (2, "releases/v2"), (3, "..map/v3")] {
            std::fs::create_dir_all(format!("/run/conf/{version}")).unwrap();
            std::fs::write(format!("/run/conf/{version}/m.toml"), port(vlan)).unwrap();
        }
        std::fs::create_dir_all("/var/tmp/elsewhere").unwrap();
        std::fs::write("/var/tmp/elsewhere/m.toml", port(4)).unwrap();
        swap("releases/v1", "/run/conf/current");
        let mut command = millrace();
        command.args(["run", "-c", "/run/conf/current/m.toml"]);
        let switch = Switch::by(command, ());
        let vlan = || switch.ask("port show vm1")["vlan"].as_str().unwrap().to_owned();
        assert_eq!(vlan(), "access 1");
        swap("releases/v2", "/run/conf/current");
        switch.tell("config reload");
        assert_eq!(vlan(), "access 2");
        let files = in_force(&switch)[0];
        for elsewhere in ["..map/v3", "/var/tmp/elsewhere"] {
            swap(elsewhere, "/run/conf/current");
            if files {
                let (code, told) = complaint("config reload");
                assert!(code != 0 && told.contains("the daemon's sandbox keeps"), "{told}");
                assert!(told.contains("restart the daemon"), "{told}");
                assert_eq!(vlan(), "access 2");
            }
        }
        std::fs::remove_dir_all("/var/tmp/elsewhere").unwrap();
    });
}

/// The port waited for a guest, and no guest of the host could see its socket.
#[test]
fn a_socket_in_a_directory_of_the_daemons_own_is_found() {
    story(&[Need::Root], || {
        std::fs::write(FILE, "[[port]]\nname = 'vm1'\nvhost-user = '/tmp/vm1.sock'\n").unwrap();
        let own = format!("mount -t tmpfs none /tmp && exec \"$0\" run -c {FILE}");
        let program = millrace();
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", &own]).arg(program.get_program());
        let switch = Switch::by(command, ());
        assert_eq!(switch.state("vm1").0, "down");
        let told = String::from_utf8(cli("check").stdout).unwrap();
        assert!(told.contains("no guest sees its socket"), "{told}");
        assert!(told.contains("PrivateTmp=no"), "{told}");
    });
}
