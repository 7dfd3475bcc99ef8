//! Connections to a real etcd that end before anything is read: a wrong authority, host,
//! certificate, mode or password.

use super::hosts::{KEYS, cli};
use crate::etcd::{Etcd, NEED, SECURE_CLIENTS};
use crate::sandbox::{run, story};

/// Name, options of one attempt, and the words that its message has to contain.
type Case = (&'static str, &'static str, &'static [&'static str]);

const CASES: [Case; 10] = [
    (
        "no certificate",
        "--cacert /run/keys/ca.crt",
        &["refuses this client's certificate", "--cert and --key"],
    ),
    (
        "a certificate of another authority",
        "--credentials /run/other/operator --cacert /run/keys/ca.crt",
        &["refuses this client's certificate"],
    ),
    (
        "another authority",
        "--credentials /run/keys/operator --cacert /run/other/ca.crt",
        &["is not trusted to be etcd", "invalid peer certificate", "/run/other/ca.crt"],
    ),
    (
        "another host's address",
        "--credentials /run/keys/operator --etcd https://127.0.0.2:2379",
        &["is not trusted to be etcd", "127.0.0.2"],
    ),
    (
        "plain HTTP",
        "--etcd http://127.0.0.1:2379",
        &["etcd does not answer at http://127.0.0.1:2379"],
    ),
    (
        "credentials by plain HTTP",
        "--etcd http://127.0.0.1:2379 --credentials /run/keys/operator",
        &["credentials are given for plain HTTP"],
    ),
    (
        "plain HTTP to another machine",
        "--etcd http://192.0.2.1:2379",
        &["is refused", "--insecure-http"],
    ),
    (
        "a key that others can read",
        "--credentials /run/open",
        &["mode 0644", "mode 0600", "chmod 600 /run/open/client.key"],
    ),
    (
        "another user's password",
        "--credentials /run/wrong",
        &["refuses the password of user operator"],
    ),
    ("no user", "--credentials /run/anonymous", &["etcd wants a user", "--password-file"]),
];

#[test]
fn a_connection_that_is_not_trusted_ends_with_the_reason() {
    story(&[NEED], || {
        for keys in [KEYS, "/run/other"] {
            made(&format!("certificates {keys} --member 127.0.0.1 --host a"));
        }
        let _etcd = Etcd::secured(KEYS);
        made(&format!("bootstrap {KEYS} --host a --permit-unmended-etcd --etcd {SECURE_CLIENTS}"));
        run("cp -r /run/keys/operator /run/open");
        run("chmod 644 /run/open/client.key");
        run("cp -r /run/keys/operator /run/wrong");
        run("cp /run/keys/hosts/a/password /run/wrong/password");
        run("cp -r /run/keys/operator /run/anonymous");
        run("rm /run/anonymous/user /run/anonymous/password");
        for (what, options, wanted) in CASES {
            let etcd = if options.contains("--etcd") {
                String::new()
            } else {
                format!("--etcd {SECURE_CLIENTS} ")
            };
            let output = cli(&format!("fleet status {etcd}{options}"));
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            println!("measured: {what}: {}", text.lines().next().unwrap_or_default());
            assert!(!output.status.success(), "{what}: {text}");
            for part in wanted {
                assert!(text.contains(part), "{what}: {part}: {text}");
            }
        }
        made(&format!("status --etcd {SECURE_CLIENTS} --credentials {KEYS}/operator"));
    });
}

fn made(line: &str) {
    let output = cli(&format!("fleet {line}"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
