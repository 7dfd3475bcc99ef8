//! What a stolen host's credentials can do in a real etcd with TLS and users: nothing to another
//! host, if etcd checks all requests.

use super::hosts::{
    GUESTS, KEYS, NEEDS, all_have, apply_again, begin, cli, fleet, pings_go_on, places, secured,
    status, write_model,
};
use super::moving::{carries, write_moving_port};
use crate::etcd::{Etcd, SECURE_CLIENTS};
use crate::host::Host;
use crate::sandbox::{run, story};
use ::fleet::etcd::{Access, Etcd as Client, Identity, Operation, Transaction};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use waiting::until;

const HOSTS: &str = "--host a --host b --host c";
const STOLEN: &str = "/run/stolen";
const MAC: &str = "52:54:00:00:00:09";

#[test]
fn a_stolen_host_changes_no_other_host() {
    story(&NEEDS, || {
        let etcd = set_up();
        let guests = GUESTS.map(Host::new);
        let _moving = Host::new("gm");
        let _places = places();
        begin(&guests);
        write_moving_port();
        apply_again(2);
        let (text, code) = fleet("move vm-m a");
        assert_eq!(code, 0, "{text}");
        until("host a carries the port", || carries("a").then_some(()));

        run(&format!("cp -r {KEYS}/hosts/c {STOLEN}"));
        let thief = client(STOLEN).expect("the password is good");
        pings_go_on(&guests, || attempts(&thief));
        all_have(2);
        assert!(carries("a") && status()["desired"]["revision"] == 2);

        // The fleet goes on before the theft is noticed, and after etcd has forgotten all tokens.
        write_model(1500, "rate = '1Gbit'");
        apply_again(3);
        etcd.kill();
        let _etcd = Etcd::secured(KEYS);
        until("etcd answers", || (fleet("status").1 != 3).then_some(()));
        write_model(1500, "rate = '2Gbit'");
        apply_again(4);

        // A new password invalidates the stolen one. The host's agent reads the new one from its
        // file.
        bootstrap("--rotate host-c", "give user host-c a new password");
        let old = thief.get("/millrace/v1/desired").unwrap_err();
        assert!(old.problem().error.contains("refuses the password of user host-c"), "{old}");
        write_model(1500, "");
        apply_again(5);
    });
}

/// Makes certificates, starts etcd with them and sets up its users. Each command runs twice.
fn set_up() -> Etcd {
    let certificates = format!("fleet certificates {KEYS} --member 127.0.0.1 {HOSTS}");
    assert!(said(&certificates).contains("made the authority"));
    assert!(said(&certificates).contains("nothing to do"));
    let etcd = Etcd::secured(KEYS);
    assert!(!peers_answer_anyone(), "the raft port answers without a certificate");
    refused_if_unmended();
    bootstrap("--dry-run", "would make user host-c");
    bootstrap("", "make user host-c, with its password in /run/keys/hosts/c/password");
    assert!(!said(&line("")).contains("make "), "a second run makes nothing");
    secured();
    etcd
}

/// Returns whether the port of etcd's members answers by plain HTTP, which is etcd's default.
fn peers_answer_anyone() -> bool {
    let mut stream = TcpStream::connect("127.0.0.1:2380").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /members HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).contains(" 200 ")
}

/// Checks that an etcd that does not check all requests gets no users unless the operator permits
/// it.
fn refused_if_unmended() {
    let output = cli(&format!("fleet bootstrap {KEYS} {HOSTS} --etcd {SECURE_CLIENTS}"));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    println!("measured: bootstrap without --permit-unmended-etcd: {text}");
    if output.status.success() {
        return;
    }
    for part in ["users were not enabled", "is etcd 3.", "3.4.44", "--permit-unmended-etcd"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!Path::new(&format!("{KEYS}/root/password")).exists(), "nothing was set up");
}

fn line(options: &str) -> String {
    let line = format!(
        "fleet bootstrap {KEYS} {HOSTS} --etcd {SECURE_CLIENTS} --permit-unmended-etcd {options}"
    );
    line.trim_end().to_owned()
}

fn bootstrap(options: &str, wanted: &str) {
    let text = said(&line(options));
    assert!(text.contains(wanted), "{text}");
}

fn said(line: &str) -> String {
    let output = cli(line);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{line}: {text}");
    text
}

/// Returns a client with these credentials; `None` if etcd does not let it in.
fn client(directory: &str) -> Option<Client> {
    let identity = Identity::default().or_from(Path::new(directory)).unwrap();
    let access = Access::new(&[SECURE_CLIENTS.parse().unwrap()], &identity, false).unwrap();
    let client = Client::new(Arc::new(access)).unwrap();
    client.get("/millrace/v1/desired").is_ok().then_some(client)
}

/// Returns a client with a host's certificate, but no user.
fn nobody() -> Client {
    let identity = Identity::default().or_from(Path::new(STOLEN)).unwrap();
    let identity = Identity { user: None, password_file: None, ..identity };
    let access = Access::new(&[SECURE_CLIENTS.parse().unwrap()], &identity, false).unwrap();
    Client::new(Arc::new(access)).unwrap()
}

/// The required result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    Refused,
    /// etcd has no permission for the request, or the request concerns only the thief's own host.
    Permitted,
}
use Wanted::{Permitted, Refused};

/// Attempts everything that could harm another host, and prints etcd's answers.
fn attempts(thief: &Client) {
    let root = client(&format!("{KEYS}/root")).unwrap();
    let lease = lease_of(&root, "/millrace/v1/hosts/a/status");
    let keys = on_keys().into_iter();
    let refused = keys.chain(on_users()).chain(on_members()).map(|it| (it, Refused));
    let permitted = of_everyone(&lease).into_iter().map(|it| (it, Permitted));
    let revoke = ("end another host's lease", ask("/v3/lease/revoke", json!({ "ID": lease })));
    // An etcd that carries out a nested read without a user checks no permission in nested
    // transactions at all.
    let is_mended = !nobody().permits_nested(&key("desired")).unwrap();
    println!("measured: etcd checks nested transactions: {is_mended}");
    let nested = in_nested().map(|it| (it, if is_mended { Refused } else { Permitted }));
    let all = nested.into_iter().chain(refused).chain([(revoke, Refused)]).chain(permitted);
    for ((what, attempt), wanted) in all {
        let answer = attempt.carry_out(thief);
        let said = answer.as_ref().map_or_else(|error| error.as_str(), |()| "done");
        println!("measured: {what}: {said}");
        assert_eq!(answer.is_err(), wanted == Refused, "{what}: {said}");
    }
    root.call::<Value>("/v3/maintenance/alarm", &alarm("DEACTIVATE")).unwrap();
}

type Named = (&'static str, Attempt);

/// Returns requests within a transaction within a transaction.
fn in_nested() -> [Named; 2] {
    let txn = |operation: Value| {
        let inner = json!({ "request_txn": { "success": [operation] } });
        ask("/v3/kv/txn", json!({ "success": [inner] }))
    };
    let write = json!({ "request_put": { "key": base64(&key("nested")), "value": "" } });
    let read = json!({ "request_range": { "key": base64(&key("hosts/a/status")) } });
    [
        ("write a foreign key in a nested transaction", txn(write)),
        ("read another host's status in one", txn(read)),
    ]
}

/// Returns attempts on other hosts' keys, and on those of the operators.
fn on_keys() -> [Named; 13] {
    let claim = format!("claims/a/{MAC}");
    [
        ("write the desired state", put("desired", "{}")),
        ("write a revision", put("revisions/00000000000000000009", "{}")),
        ("block roll-outs", put("rollout", "{}")),
        ("write another host's status", put("hosts/a/status", "{}")),
        ("write another host's registration", put("hosts/a/registration", "{}")),
        ("read another host's status", Attempt::Read(key("hosts/a/status"))),
        ("overwrite another host's claim", put(&claim, "{}")),
        ("delete another host's claim", Attempt::Write(Operation::delete(&key(&claim)))),
        ("move a port", put("carriers/vm-m", "{}")),
        ("have other hosts send probes", put("check-mtu", "{}")),
        ("have other hosts measure", put("experiment", "{}")),
        ("read the secret of an experiment", Attempt::Read(key("hosts/a/order"))),
        ("give another host a secret", put("hosts/a/order", "{}")),
    ]
}

/// Returns attempts on users and roles.
fn on_users() -> [Named; 8] {
    let all = json!({ "permType": "READWRITE", "key": "AA==", "range_end": "AA==" });
    let (user, x) = ("/v3/auth/user", "x");
    let of = |verb: &str, body: Value| ask(&format!("{user}/{verb}"), body);
    [
        ("list users", of("list", json!({}))),
        ("read the superuser", of("get", json!({ "name": "root" }))),
        (
            "change another host's password",
            of("changepw", json!({ "name": "host-a", "password": x })),
        ),
        ("become superuser", of("grant", json!({ "user": "host-c", "role": "root" }))),
        ("add a user", of("add", json!({ "name": x, "password": x }))),
        ("widen its role", ask("/v3/auth/role/grant", json!({ "name": "host-c", "perm": all }))),
        ("turn users off", ask("/v3/auth/disable", json!({}))),
        ("turn users on", ask("/v3/auth/enable", json!({}))),
    ]
}

/// Returns attempts on etcd itself.
fn on_members() -> [Named; 3] {
    let member = json!({ "peerURLs": ["http://127.0.0.1:1"] });
    [
        ("add a member to etcd", ask("/v3/cluster/member/add", member)),
        ("copy etcd's database", ask("/v3/maintenance/snapshot", json!({}))),
        ("stop etcd to defragment it", ask("/v3/maintenance/defragment", json!({}))),
    ]
}

/// Returns attempts that concern only the host itself, or for which etcd has no permission.
fn of_everyone(lease: &str) -> [Named; 7] {
    let claim = put(&format!("claims/c/{MAC}"), r#"{"port":"vm-m"}"#);
    [
        ("read the desired state", Attempt::Read(key("desired"))),
        ("write its own keys", put("hosts/c/more", "{}")),
        ("wait for an address behind its owner", claim),
        ("list the leases' numbers", ask("/v3/lease/leases", json!({}))),
        ("keep another host's lease alive", ask("/v3/lease/keepalive", json!({ "ID": lease }))),
        ("compact etcd's history", ask("/v3/kv/compaction", json!({ "revision": "2" }))),
        ("raise etcd's alarm for a full disk", ask("/v3/maintenance/alarm", alarm("ACTIVATE"))),
    ]
}

fn key(rest: &str) -> String {
    format!("/millrace/v1/{rest}")
}

fn put(rest: &str, value: &str) -> Attempt {
    Attempt::Write(Operation::put(&key(rest), value.to_owned(), None))
}

fn ask(path: &str, body: Value) -> Attempt {
    Attempt::Ask(path.to_owned(), body)
}

fn alarm(action: &str) -> Value {
    json!({ "action": action, "alarm": "NOSPACE", "memberID": "0" })
}

fn lease_of(root: &Client, key: &str) -> String {
    let found: Value = root.call("/v3/kv/range", &json!({ "key": base64(key) })).unwrap();
    found["kvs"][0]["lease"].as_str().expect("a status with a lease").to_owned()
}

/// Returns the key as etcd's own requests have it.
fn base64(key: &str) -> String {
    let put = serde_json::to_value(Operation::delete(key)).unwrap();
    put["request_delete_range"]["key"].as_str().unwrap().to_owned()
}

enum Attempt {
    Write(Operation),
    Read(String),
    Ask(String, Value),
}

impl Attempt {
    /// Carries the attempt out. The error is etcd's answer.
    fn carry_out(self, client: &Client) -> Result<(), String> {
        let done = match self {
            Attempt::Write(operation) => {
                let (compare, success) = (Vec::new(), vec![operation]);
                client.transact(&Transaction { compare, success }).map(drop)
            }
            Attempt::Read(key) => client.get(&key).map(drop),
            Attempt::Ask(path, body) => match client.call::<Value>(&path, &body) {
                // The answer of a stream contains its error.
                Ok(answer) if !answer["error"].is_null() => {
                    return Err(answer["error"]["message"].to_string());
                }
                answer => answer.map(drop),
            },
        };
        done.map_err(|error| error.problem().seen.clone())
    }
}
