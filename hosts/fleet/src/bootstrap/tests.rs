use super::*;
use crate::etcd::fake;
use std::sync::mpsc::{Receiver, channel};

#[test]
fn only_users_of_this_run_are_rotated() {
    let bootstrap =
        Bootstrap { rotate: vec!["a".to_owned()], ..of(Vec::new(), Path::new("/nowhere")) };
    let problem = bootstrap.run(&mut |_| {}).unwrap_err();
    assert!(problem.wanted == "root, operator, host-a", "{problem}");
}

#[test]
fn a_host_is_not_both_there_and_removed() {
    let remove = vec!["a".parse().unwrap()];
    let bootstrap = Bootstrap { remove, ..of(Vec::new(), Path::new("/nowhere")) };
    let problem = bootstrap.run(&mut |_| {}).unwrap_err();
    assert!(problem.seen == "--host a --remove a", "{problem}");
}

fn of(endpoints: Vec<Endpoint>, directory: &Path) -> Bootstrap {
    Bootstrap {
        endpoints,
        identity: Identity::default(),
        insecure: true,
        directory: directory.to_owned(),
        hosts: vec!["a".parse().unwrap()],
        rotate: Vec::new(),
        remove: Vec::new(),
        permit_unmended: false,
        dry_run: false,
    }
}

/// Starts a member of this version that asks for no users yet, has user root with the roles `root`
/// and `foreign`, and host b. It reports the path and the body of each request.
fn member(version: &'static str) -> (Endpoint, Receiver<(String, String)>) {
    let (tell, told) = channel();
    let endpoint = fake::member(move |asked| {
        let answer = answer(version, &asked.path, &asked.body);
        let _ = tell.send((asked.path, asked.body));
        answer
    });
    (endpoint.parse().unwrap(), told)
}

fn answer(version: &str, path: &str, body: &str) -> (u16, String) {
    let is_root = body.contains(r#""root""#);
    match path {
        "/v3/maintenance/status" => (200, format!(r#"{{"version":"{version}"}}"#)),
        "/v3/auth/user/get" if is_root => (200, r#"{"roles":["root","foreign"]}"#.to_owned()),
        "/v3/auth/user/get" => (400, r#"{"message":"user name not found","code":9}"#.to_owned()),
        "/v3/auth/role/get" if is_root => (200, "{}".to_owned()),
        "/v3/auth/role/get" => (400, r#"{"message":"role name not found","code":9}"#.to_owned()),
        "/v3/auth/authenticate" => (200, r#"{"token":"one"}"#.to_owned()),
        // `/millrace/v1/hosts/b/registration`, with no labels.
        "/v3/kv/range" => {
            let key = "L21pbGxyYWNlL3YxL2hvc3RzL2IvcmVnaXN0cmF0aW9u";
            (200, format!(r#"{{"kvs":[{{"key":"{key}","value":"eyJsYWJlbHMiOnt9fQ=="}}]}}"#))
        }
        _ => (200, "{}".to_owned()),
    }
}

fn paths(told: &Receiver<(String, String)>, of: &str) -> Vec<String> {
    told.try_iter().filter(|(path, _)| path == of).map(|(_, body)| body).collect()
}

#[test]
fn users_are_not_enabled_on_an_etcd_that_does_not_check_all_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, told) = member("3.4.23");
    let problem = of(vec![endpoint], folder.path()).run(&mut |_| {}).unwrap_err();
    assert!(problem.seen.contains("is etcd 3.4.23"), "{problem}");
    assert_eq!(paths(&told, "/v3/auth/enable"), [""; 0]);
}

#[test]
fn users_are_not_enabled_while_a_registered_host_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, told) = member("3.5.30");
    let problem = of(vec![endpoint], folder.path()).run(&mut |_| {}).unwrap_err();
    assert_eq!(problem.seen, "b", "{problem}");
    assert_eq!(paths(&told, "/v3/auth/enable"), [""; 0]);
}

/// The password of a root that is there already is known before etcd asks for it, and root keeps no
/// role but its own.
#[test]
fn users_that_are_there_get_the_password_on_disk_and_lose_foreign_roles() {
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, told) = member("3.5.30");
    let hosts = ["a", "b"].map(|host| host.parse().unwrap()).to_vec();
    // This member permits a nested read to everyone, so the end is an error.
    let problem = Bootstrap { hosts, ..of(vec![endpoint], folder.path()) }.run(&mut |_| {});
    let problem = problem.unwrap_err();
    assert!(problem.seen.contains("carries out a nested request"), "{problem}");
    let all: Vec<(String, String)> = told.try_iter().collect();
    let place = |wanted: &str| all.iter().position(|(path, _)| path == wanted).unwrap();
    assert!(place("/v3/auth/user/changepw") < place("/v3/auth/enable"));
    let password = std::fs::read_to_string(folder.path().join("root/password")).unwrap();
    assert!(all[place("/v3/auth/user/changepw")].1.contains(password.trim()));
    assert!(all[place("/v3/auth/user/revoke")].1.contains("foreign"));
}
