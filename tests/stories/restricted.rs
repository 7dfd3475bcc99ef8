//! What a daemon has given up, as its users see it: `status` says so, and what it cannot reach any more is refused by name.

use crate::sandbox::{Need, run, story};
use crate::switch::{Switch, complaint};

const PORT: &str = "[[port]]\nname = 'vm1'\ntap = 'tap1'\n";

/// Whether files and system calls are restricted, by `status`.
fn in_force(switch: &Switch) -> [bool; 2] {
    let status = switch.ask("status");
    let is = |what: &str| status["switch"]["sandbox"][what]["in_force"].as_bool().unwrap();
    [is("files"), is("system_calls")]
}

/// How many filters each thread has, in the words of proc(5).
fn filters(switch: &Switch) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", switch.process())).unwrap();
    let filters = threads.map(|thread| {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:\t"));
        line.unwrap().to_owned()
    });
    filters.collect()
}

/// A directory that no daemon knows.
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
        assert!(told.contains("cannot make the socket /mnt/vm2.sock"), "{told}");
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
        assert!(
            why.as_str().unwrap().contains("port vm1 is in the namespace of a process"),
            "{why}"
        );
        switch.end(rustix::process::Signal::TERM);
        let switch = Switch::start(&format!("[switch]\nsandbox = false\n{PORT}"));
        assert_eq!(in_force(&switch), [false; 2]);
        assert!(filters(&switch).iter().all(|count| count == "0"));
        switch.tell("port add vm2 --vhost-user /mnt/vm2.sock");
    });
}
