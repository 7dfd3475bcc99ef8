//! Valid files are read, and what is invalid is refused and named.

use super::*;
use proptest::prelude::*;

const NETWORKS: &str = "version = 1\n[[network]]\nname = 'blue'\nvlan = 10\nmtu = 9000\nacl = ['deny in tcp to port 25']\n";
const HOSTS: &str = "version = 1\n[[class]]\nname = 'all'\n[[class.uplink]]\nname = 'up'\npacket = 'eth1'\n\
    [rollout]\nsteps = ['1', '50%']\nwait = '10s'\nsoak = 0\ngate = 'error'\n";
const PORTS: &str = "version = 1\n[[port]]\nname = 'vm1'\nnetwork = 'blue'\nmac = '52:54:00:00:00:01'\nhost = 'a'\ntap = 'tap1'\n";

/// Reads a directory with these files.
fn folder(files: &[&str]) -> Result<Model, Problem> {
    let folder = tempfile::tempdir().unwrap();
    for (number, text) in files.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.toml")), text).unwrap();
    }
    std::fs::write(folder.path().join("README"), "not part of the model").unwrap();
    Model::read(folder.path())
}

#[test]
fn the_files_of_a_directory_are_one_model_in_any_order() {
    let model = folder(&[NETWORKS, HOSTS, PORTS]).unwrap();
    assert_eq!(model, folder(&[PORTS, NETWORKS, HOSTS]).unwrap());
    assert_eq!((model.networks.len(), model.classes.len(), model.ports.len()), (1, 1, 1));
    let policy = model.policy();
    assert_eq!((policy.steps, policy.wait.0), (vec![Share::Hosts(1), Share::Percent(50)], 10));
}

/// Each refusal names what is at fault and has a remedy.
#[test]
fn invalid_models_are_refused_with_what_is_at_fault() {
    let port = |key: &str, value: &str| {
        let line = |line: &&str| !line.starts_with(&format!("{key} "));
        let rest: Vec<&str> = PORTS.lines().filter(line).collect();
        format!("{}\n{key} = {value}\n", rest.join("\n"))
    };
    let second = format!(
        "{PORTS}[[port]]\nname = 'vm2'\nnetwork = 'blue'\nmac = '52-54-00-00-00-01'\ntap = 'tap2'\n"
    );
    for (file, words) in [
        (port("network", "'blu'"), "port vm1: its network does not exist"),
        (port("network", "'blu'"), "did you mean `blue`?"),
        (port("vlan", "10"), "unknown key"),
        (port("mac", "'01:00:00:00:00:01'"), "2.toml:"),
        (port("name", "'up'"), "an uplink has its name"),
        (port("tap", "'a'\nvhost-user = '/run/v'"), "tap and vhost-user"),
        (port("host", "'a b'"), "not a name"),
        (second, "port vm2: its mac is used twice"),
        (PORTS.replace("version = 1", "version = 2"), "the file has a different version"),
        (PORTS.replace("version = 1", ""), "version is missing"),
        (format!("{PORTS}[rollout]\n"), "[rollout] is in two files"),
    ] {
        let problem = folder(&[NETWORKS, HOSTS, &file]).unwrap_err();
        assert!(
            problem.to_string().contains(words) && !problem.remedy.is_empty(),
            "{words}: {problem}"
        );
    }
    let none = folder(&[]).unwrap_err();
    assert!(none.error.contains("has no file of a fleet"), "{none}");
}

#[test]
fn a_limit_of_drops_is_for_a_reason_that_switches_count_by() {
    let limits = |text: &str| {
        let model = Model::from_toml("t", &format!("version = 1\n[rollout]\ndrops = {text}\n"));
        model.unwrap().check()
    };
    assert_eq!(limits("{ too_big = 10, storm = 0 }"), Ok(()));
    let problem = limits("{ to_big = 10 }").unwrap_err();
    assert_eq!((&*problem.seen, &*problem.remedy), ("to_big", "did you mean `too_big`?"));
}

#[test]
fn the_schema_has_the_keys_that_are_read() {
    let schema = schema();
    let keys = schema["properties"].as_object().unwrap();
    let names: Vec<&str> = keys.keys().map(String::as_str).collect();
    assert_eq!(names, ["class", "network", "port", "rollout", "version"]);
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["$defs"]["Network"]["properties"]["dhcp-guard"].is_object(), "{schema:#}");
}

proptest! {
    #[test]
    fn a_written_model_is_read_back(model in generate::model()) {
        prop_assert_eq!(model.check(), Ok(()));
        let json = serde_json::to_string(&model).unwrap();
        prop_assert_eq!(serde_json::from_str::<Model>(&json).unwrap(), model);
    }
}
