//! Tests `[web]`: the page over TCP, what it shows to whom, and that its files are served
//! unchanged.

use crate::test_daemon::{Daemon, eventually};
use api::body::{AclAdd, RscSetting, TraceBody, TraceRequest};
use api::client::ClientError;
use config::RscMode;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const TOKEN: &str = "0123456789abcdef0123";
const KEY: &str =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde7";

/// A daemon with a page at a free address.
struct Site {
    daemon: Daemon,
    at: SocketAddr,
    /// The file with the token.
    token: tempfile::NamedTempFile,
}

impl Site {
    fn start(may_change: bool) -> Site {
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut token = tempfile::NamedTempFile::new().unwrap();
        writeln!(token, "{TOKEN}").unwrap();
        let file = may_change.then(|| format!("token-file = {:?}\n", token.path()));
        let daemon = Daemon::start(&format!(
            "[web]\nlisten = \"{at}\"\n{}[[port]]\nname = \"vm1\"\ntap = \"tap1\"\nrss-key = \"{KEY}\"\n\
             [[port]]\nname = \"uplink0\"\npacket = \"eth1\"\n",
            file.unwrap_or_default()
        ));
        Site { daemon, at, token }
    }

    /// Returns status, head and body of the answer.
    fn ask(&self, request: &str, headers: &[(&str, &str)], body: &str) -> (String, String, String) {
        let mut stream = eventually("it listens", || TcpStream::connect(self.at).ok());
        let named = |name| headers.iter().any(|(other, _)| *other == name);
        let host = if named("Host") { String::new() } else { format!("Host: {}\r\n", self.at) };
        let more: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\n{host}{more}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().to_owned();
        (status, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (String, String) {
        let (status, _, body) = self.ask(&format!("GET {path}"), &[], "");
        (status, body)
    }

    fn toggle(&self, headers: &[(&str, &str)]) -> String {
        self.ask("PUT /ports/vm1/rsc", headers, r#"{"policy": "off"}"#).0
    }

    fn rsc(&self) -> RscMode {
        self.daemon.client.port("vm1").unwrap().rsc
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("page")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// Returns the names of all files in a folder of the page.
fn files(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder().join(name)).unwrap();
    let files = entries.map(Result::unwrap).filter(|entry| entry.path().is_file());
    files.map(|entry| format!("{name}{}", entry.file_name().to_str().unwrap())).collect()
}

#[test]
fn the_page_is_served_with_all_its_files_and_nothing_else_is() {
    let site = Site::start(false);
    let (status, head, body) = site.ask("GET /", &[], "");
    assert_eq!((status.as_str(), body), ("200", read("index.html")));
    for line in [
        "content-type: text/html; charset=utf-8",
        "x-content-type-options: nosniff",
        "script-src 'self';",
        "default-src 'none';",
        "frame-ancestors 'none'",
    ] {
        assert!(head.contains(line), "{line}\n{head}");
    }
    let all = [files(""), files("uplot/")].concat();
    assert!(all.len() > 10, "{all:?}");
    for name in all.iter().filter(|name| *name != "index.html" && !name.ends_with(".md")) {
        let (status, body) = site.get(&format!("/{name}"));
        assert_eq!((status.as_str(), body), ("200", read(name)), "{name}");
    }
    for path in ["/metrics", "/../Cargo.toml", "/uplot/", "/ports"] {
        assert_eq!(site.get(path).0, "404", "{path}");
    }
    assert_eq!(site.get("/ports/vm9").0, "404");
}

#[test]
fn the_state_has_ports_and_workers_and_no_secret() {
    let site = Site::start(true);
    let state: Value = serde_json::from_str(&site.get("/state").1).unwrap();
    let names: Vec<_> =
        state["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["uplink0", "vm1"]);
    assert_eq!(state["ports"][0]["state"], "up");
    assert_eq!(state["may_change"], true);
    assert_eq!(state["findings"], serde_json::json!([]));
    site.daemon.devices.set("eth1", test_devices::Fate::Gone);
    eventually("what is broken is found", || {
        let state: Value = serde_json::from_str(&site.get("/state").1).unwrap();
        (state["findings"][0]["severity"] == "error").then_some(())
    });
    assert_eq!(
        state["ports"][1]["depth"].as_array().unwrap().len(),
        state["depths"].as_array().unwrap().len()
    );
    assert_eq!(state["workers"].as_array().unwrap().len(), 1);
    let (_, detail) = site.get("/ports/vm1");
    assert!(
        detail.contains("\"counters\"")
            && site.daemon.client.text("/v1/config").unwrap().contains(KEY)
    );
    for text in [&site.get("/state").1, &detail] {
        assert!(!text.contains(KEY) && !text.contains(TOKEN), "{text}");
    }
}

/// A page of another origin asks from the browser of a person who may see this one.
#[test]
fn a_request_for_another_host_or_from_another_origin_is_refused() {
    let site = Site::start(true);
    let (own, bearer) = (format!("http://{}", site.at), format!("Bearer {TOKEN}"));
    for (name, value) in [
        ("Host", "evil.example"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:1"),
        ("Origin", "http://127.0.0.1"),
    ] {
        let (status, head, _) = site.ask("GET /state", &[(name, value)], "");
        assert_eq!(status, "403", "{name}: {value}");
        assert!(!head.contains("access-control"), "{head}");
        assert_eq!(site.toggle(&[(name, value), ("Authorization", &bearer)]), "403");
    }
    assert_eq!(site.rsc(), RscMode::Ndis);
    assert_eq!(site.toggle(&[("Origin", &own), ("Authorization", &bearer)]), "200");
}

#[test]
fn nothing_changes_without_the_token() {
    let site = Site::start(true);
    for given in ["", "Bearer ", "Bearer 0123456789abcdef0124", "Basic 0123456789abcdef0123", TOKEN]
    {
        assert_eq!(site.toggle(&[("Authorization", given)]), "401", "{given}");
    }
    assert_eq!(site.toggle(&[]), "401");
    let bearer = format!("Bearer {TOKEN}");
    for request in ["POST /state", "DELETE /ports/vm1", "PATCH /ports/vm1"] {
        let status = site.ask(request, &[("Authorization", &bearer)], "{}").0;
        assert!(["404", "405"].contains(&status.as_str()), "{request}: {status}");
    }
    assert_eq!(site.rsc(), RscMode::Ndis);
    // A file that others may read is refused.
    let mode = |mode| {
        std::fs::set_permissions(site.token.path(), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o644);
    let (status, _, told) =
        site.ask("PUT /ports/vm1/rsc", &[("Authorization", &bearer)], r#"{"policy": "off"}"#);
    let path = site.token.path().to_str().unwrap();
    assert_eq!((status.as_str(), told.contains(path)), ("403", false), "{told}");
    assert_eq!(site.toggle(&[]), "401", "the file is opened for no request without a token");
    mode(0o600);
    assert_eq!(site.toggle(&[("Authorization", &bearer)]), "200");
    assert_eq!(site.rsc(), RscMode::Off);
    let read_only = Site::start(false);
    assert_eq!(read_only.toggle(&[("Authorization", &bearer)]), "403");
    assert_eq!(read_only.rsc(), RscMode::Ndis);
}

/// A key allows what the page's actions need, and the API's own code decides about each request.
#[test]
fn a_key_carries_out_actions_and_nothing_else() {
    let site = Site::start(true);
    let issued = site.daemon.client.issue_page_key(None).unwrap();
    assert_eq!(issued.address, format!("http://{}/", site.at));
    let (key, token) = (format!("Bearer {}", issued.key), format!("Bearer {TOKEN}"));
    let key = [("Authorization", key.as_str())];
    for request in [
        "GET /v1/ports/vm1",
        "PATCH /v1/ports/vm1",
        "DELETE /v1/ports/vm1",
        "POST /v1/ports",
        "POST /v1/captures",
        "GET /v1/config",
        "PUT /v1/config",
        "GET /v1/ports",
    ] {
        for given in [&[][..], &[("Authorization", token.as_str())]] {
            assert_eq!(site.ask(request, given, "{}").0, "401", "{request}");
        }
    }
    for request in [
        "GET /v1/config",
        "PUT /v1/config",
        "POST /v1/page/keys",
        "DELETE /v1/macs",
        "GET /v1/ports",
        "PUT /v1/log",
        "PUT /v1/rsc",
        "POST /state",
    ] {
        let status = site.ask(request, &key, "{}").0;
        assert!(["404", "405"].contains(&status.as_str()), "{request}: {status}");
    }
    let patch = |headers: &[(&str, &str)], body| {
        site.ask("PATCH /v1/ports/vm1", &[&key[..], headers].concat(), body)
    };
    let vlan = || site.daemon.client.port("vm1").unwrap().vlan;
    let (status, _, refused) = patch(&[], r#"{"vlan": 5000}"#);
    let change = serde_json::json!({"vlan": 5000});
    let own = site.daemon.client.change_port("vm1", &change).unwrap_err();
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!((status.as_str(), &refused["detail"]), ("422", &own.problem().to_string().into()));
    assert_eq!(patch(&[("Origin", "http://evil.example")], r#"{"vlan": 10}"#).0, "403");
    assert_eq!(patch(&[("If-Match", "\"another\"")], r#"{"vlan": 10}"#).0, "412");
    assert_eq!(vlan(), "untagged");
    assert_eq!(patch(&[], r#"{"vlan": 10}"#).0, "200");
    assert_eq!(vlan(), "access 10");
    assert_eq!(site.toggle(&key), "200");
    site.daemon.client.end_page_keys().unwrap();
    assert_eq!(patch(&[], r#"{"vlan": 20}"#).0, "401");
    assert_eq!(vlan(), "access 10");
    // A page without a token is read-only but for keys.
    let site = Site::start(false);
    let issued = site.daemon.client.issue_page_key(None).unwrap();
    assert_eq!(site.toggle(&[("Authorization", &format!("Bearer {}", issued.key))]), "200");
}

/// Returns the `ETag` in the head of an answer.
fn tag(head: &str) -> String {
    head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned()
}

/// A rule is named by its number, which another admin may meanwhile have given to another rule.
#[test]
fn a_rule_is_removed_from_the_list_that_was_read_and_from_no_other() {
    let site = Site::start(true);
    let client = &site.daemon.client;
    let add = |rule: &str, number| {
        client.add_rule("vm1", &AclAdd { rule: rule.parse().unwrap(), number }).unwrap()
    };
    let key = format!("Bearer {}", client.issue_page_key(None).unwrap().key);
    let ask = |request: &str, tag: &str| {
        let headers = [("Authorization", key.as_str()), ("If-Match", tag)];
        site.ask(request, &headers, r#"{"rule": "deny in"}"#)
    };
    add("deny in arp", None);
    add("deny in udp", None);
    let read = tag(&ask("GET /v1/ports/vm1/acl", "*").1);
    add("deny in tcp", Some(1));
    for request in ["DELETE /v1/ports/vm1/acl/2", "POST /v1/ports/vm1/acl"] {
        let (status, _, told) = ask(request, &read);
        assert_eq!(status, "412", "{told}");
        for words in ["the rules of port vm1 were changed", "read them again"] {
            assert!(told.contains(words), "{told}");
        }
    }
    let refused = client.remove_tagged_rule("vm1", 2, &read).unwrap_err();
    assert!(refused.problem().error.contains("were changed"), "{refused}");
    let (rules, now) = client.tagged_acl("vm1").unwrap();
    assert_eq!(rules.rules.len(), 3);
    let (status, head, _) = ask("DELETE /v1/ports/vm1/acl/1", &now);
    assert_eq!((status.as_str(), tag(&head)), ("200", read));
}

#[test]
fn rsc_is_set_only_if_it_still_is_what_was_read() {
    let site = Site::start(true);
    let token = format!("Bearer {TOKEN}");
    let set = |tag: &str, policy: &str| {
        let headers = [("Authorization", token.as_str()), ("If-Match", tag)];
        site.ask("PUT /ports/vm1/rsc", &headers, &format!("{{\"policy\": \"{policy}\"}}"))
    };
    let (status, head, _) = set("*", "off");
    assert_eq!(status, "200");
    let left = tag(&head);
    site.daemon.client.change_port("vm1", &serde_json::json!({"vlan": 10})).unwrap();
    assert_eq!(set(&left, "off").0, "200", "another setting is not covered");
    site.daemon.client.set_rsc(Some("vm1"), RscSetting::Gro).unwrap();
    let (status, _, told) = set(&left, "on");
    assert!(status == "412" && told.contains("the RSC settings of port vm1"), "{told}");
    assert_eq!(site.rsc(), RscMode::Gro);
}

#[test]
fn without_a_page_there_is_no_key() {
    let daemon = Daemon::start("");
    let refused = daemon.client.issue_page_key(None).unwrap_err();
    assert!(refused.problem().seen.contains("[web]"), "{refused}");
}

/// A trace changes nothing, so a read-only page may ask for it. The page gets the API's own
/// answers, including refusals.
#[test]
fn a_trace_is_answered_as_by_the_api_and_takes_no_token() {
    let site = Site::start(false);
    for (port, frame, wanted) in [
        ("vm1", "arp 10.0.0.1 > 10.0.0.2", "200"),
        ("vm1", "tcp 10.0.0.1:1 > 10.0.0.2:80 vlan 5000", "422"),
        ("vm9", "arp 10.0.0.1 > 10.0.0.2", "404"),
    ] {
        let request =
            TraceRequest { port: port.to_owned(), frames: vec![frame.to_owned()], burst: false };
        let asked = serde_json::to_string(&request).unwrap();
        let (status, _, body) = site.ask("POST /trace", &[], &asked);
        assert_eq!(status, wanted, "{body}");
        match site.daemon.client.trace(&request) {
            Ok(told) => {
                assert_eq!(told.turns[0].delivered.len(), 1, "{told:?}");
                assert_eq!(serde_json::from_str::<TraceBody>(&body).unwrap(), told);
            }
            Err(ClientError::Refused(told)) => {
                let body: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(body["detail"], told.to_string());
            }
            Err(other) => panic!("{other}"),
        }
    }
    let elsewhere = [("Origin", "http://evil.example")];
    assert_eq!(site.ask("POST /trace", &elsewhere, "{}").0, "403");
    for path in ["/trace/", "/state?/trace", "/ports/vm1"] {
        assert_eq!(site.ask(&format!("POST {path}"), &[], "{}").0, "403", "{path}");
    }
}

#[test]
fn no_file_of_the_page_makes_markup_of_text_or_asks_the_network() {
    inert_page::check(&folder());
}

#[test]
fn the_charts_are_the_package_that_the_readme_names() {
    let named = read("uplot/README.md");
    for name in ["uPlot.iife.min.js", "uPlot.min.css"] {
        let output =
            Command::new("sha256sum").arg(folder().join("uplot").join(name)).output().unwrap();
        let sum = String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned();
        assert!(named.contains(&format!("| `{name}` | `{sum}` |")), "{name} has {sum}");
    }
    assert!(read("uplot/LICENSE").starts_with("The MIT License (MIT)"));
}
