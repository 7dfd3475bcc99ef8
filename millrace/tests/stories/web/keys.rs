//! Keys of the page: one counts on connections of its own user, and ends when that user is no admin
//! any more.

use super::{AT, WEB, get};
use crate::access::{ADMINS, PROGRAM, READERS, as_user};
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::{Switch, millrace, write};
use serde_json::Value;
use std::process::Command;

const ANN: u32 = 3002;
const EVE: u32 = 3003;
const STRANGER: u32 = 3000;

/// Replaces the host's files of accounts by the story's own, in which both users are admins.
fn accounts() {
    let users = [("root", 0), ("ann", ANN), ("eve", EVE)];
    let users = users.map(|(name, user)| format!("{name}:x:{user}:{user}::/:/bin/sh\n"));
    std::fs::write("/run/passwd", users.concat()).unwrap();
    set_members("ann,eve");
    for name in ["passwd", "group"] {
        run(&format!("mount --bind /run/{name} /etc/{name}"));
    }
}

fn set_members(members: &str) {
    let others = ADMINS + 1;
    let text = format!("root:x:0:\nops:x:{ADMINS}:{members}\nothers:x:{others}:ann\n");
    std::fs::write("/run/group", text).unwrap();
}

/// Returns the configuration with this group of admins.
fn text(admins: &str) -> String {
    format!(
        "[switch]\nsocket-group = {READERS}\nadmin-group = '{admins}'\n{WEB}\
         [[port]]\nname = 'vm1'\nvhost-user = '/run/millrace/vm1.sock'\n"
    )
}

/// Returns the key that `millrace page` prints.
fn issued(command: &mut Command) -> String {
    let printed = output_of(command.arg("page"));
    printed.trim().split_once("#key=").unwrap().1.to_owned()
}

/// Sends a change of the port's VLAN by a program of this user. Returns the status and the body of
/// the answer.
fn change(user: u32, key: &str, vlan: usize) -> (String, String) {
    let mut command = as_user(user, "");
    command.args(["curl", "-s", "-w", "\n%{http_code}", "-X", "PATCH"]);
    command.args(["-H", &format!("Authorization: Bearer {key}")]);
    command.args(["-d", &format!("{{\"vlan\": {vlan}}}"), &format!("http://{AT}/v1/ports/vm1")]);
    let answer = output_of(&mut command);
    let (body, status) = answer.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// Checks what users get who use keys. Nothing is changed by one who is refused.
fn try_all(switch: &Switch, tried: &[(&str, u32, &str, &str)]) {
    for (place, (name, user, key, wanted)) in tried.iter().enumerate() {
        let vlan = || switch.ask("port show vm1")["config"]["vlan"].clone();
        let (before, next) = (vlan(), 100 + place);
        let (status, body) = change(*user, key, next);
        assert_eq!(status, *wanted, "user {user} with the key of {name}: {body}");
        let after = if *wanted == "200" { Value::from(next) } else { before };
        assert_eq!(vlan(), after, "user {user} with the key of {name}");
    }
}

#[test]
fn a_key_counts_for_its_user_and_for_root_as_long_as_the_user_is_an_admin() {
    story(&[Need::Program("setpriv"), Need::Program("curl"), Need::Root], || {
        accounts();
        let switch = Switch::start(&text("ops"));
        std::fs::write(PROGRAM, "").unwrap();
        run(&format!("mount --bind {} {PROGRAM}", millrace().get_program().display()));
        get("/");
        let own = |user| issued(as_user(user, &ADMINS.to_string()).arg(PROGRAM));
        let (ann, eve, root) = (own(ANN), own(EVE), issued(&mut millrace()));
        let by_sudo = issued(millrace().env("SUDO_UID", EVE.to_string()));
        let refused =
            as_user(ANN, &ADMINS.to_string()).args([PROGRAM, "page", "--user", "eve"]).output();
        assert!(!refused.unwrap().status.success(), "ann got a key of eve");
        try_all(
            &switch,
            &[
                ("ann", ANN, &ann, "200"),
                ("ann", EVE, &ann, "403"),
                ("ann", STRANGER, &ann, "403"),
                ("ann", 0, &ann, "200"),
                ("eve", EVE, &eve, "200"),
                ("root", 0, &root, "200"),
                ("root", ANN, &root, "403"),
                ("eve by sudo", EVE, &by_sudo, "200"),
                ("eve by sudo", ANN, &by_sudo, "403"),
            ],
        );
        let told = change(STRANGER, &ann, 1).1;
        for words in ["another user", "3000", "3002", "millrace page"] {
            assert!(told.contains(words), "{words}: {told}");
        }
        set_members("eve");
        switch.tell("config reload");
        assert!(switch.noted("keys of the page were ended"));
        try_all(
            &switch,
            &[
                ("ann", ANN, &ann, "401"),
                ("eve", EVE, &eve, "200"),
                ("root", 0, &root, "200"),
                ("eve by sudo", EVE, &by_sudo, "200"),
            ],
        );
        write(&text("others"));
        switch.tell("config reload");
        try_all(&switch, &[("eve", EVE, &eve, "401"), ("eve by sudo", EVE, &by_sudo, "200")]);
    });
}
