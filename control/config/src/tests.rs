//! Configuration as people get it wrong, and as they get it right.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Config, Problem> {
    Config::from_toml("switch.toml", text)
}

proptest! {
    #[test]
    fn no_text_panics(text: String) {
        let _ = read(&text);
        let _ = from_json::<Config>(text.as_bytes());
    }

    #[test]
    fn no_almost_right_text_panics(key in "[a-z-]{1,12}", value in "\\PC{0,12}", port: bool) {
        let _ = read(&format!("{}\n{key} = {value}\n", if port { "[[port]]" } else { "[switch]" }));
    }

    #[test]
    fn what_is_written_reads_back(config in crate::generate::config()) {
        let text = config.to_toml().unwrap();
        prop_assert_eq!(read(&text), Ok(config.clone()), "{}", text);
        let json = serde_json::to_vec(&config).unwrap();
        prop_assert_eq!(from_json::<Config>(&json), Ok(config));
    }
}

/// Text, and parts of the message it must give: place, seen, wanted, remedy.
const REFUSED: &[(&str, [&str; 4])] = &[
    (
        "[switch]\nmac-entrys = 5",
        [
            "switch.toml:2:1: unknown key",
            "mac-entrys",
            "mac-entries",
            "did you mean `mac-entries`?",
        ],
    ),
    (
        "[swich]",
        [
            "switch.toml:1:2: unknown key",
            "swich",
            "switch, metrics, web, port",
            "did you mean `switch`?",
        ],
    ),
    (
        "[switch]\nrsc = \"ndsi\"",
        ["switch.toml:2:7: unknown word", "ndsi", "ndis, gro, off", "did you mean `ndis`?"],
    ),
    ("[switch]\npoll = 7", ["switch.toml:2:8: not a word in quotes", "7", "a word", "quotes"]),
    (
        "[switch]\nworkers = 0",
        ["switch.toml:2:11: not a number of workers", "0", "1 to 256", "the number of"],
    ),
    (
        "[switch]\nworkers = \"many\"",
        ["switch.toml:2:11: not a number of workers", "many", "\"auto\"", "the number of"],
    ),
    (
        "[switch]\nworkers = [1, 1]",
        ["switch.toml:2:11: a core is named twice", "[1, 1]", "different cores", "once"],
    ),
    (
        "[switch]\nsocket-mode = 660",
        ["switch.toml:2:15: not a file mode", "660", "octal", "\"0660\""],
    ),
    ("[[port]]\ntap = \"t\"", ["switch.toml:1:1: name is missing", "", "name", "add name"]),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmtu = 67",
        ["switch.toml:4:7: out of range", "67", "68 to 65535", "write a number"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmtu = 65536",
        ["switch.toml:4:7: out of range", "65536", "68 to 65535", ""],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmtu = \"big\"",
        ["switch.toml:4:7: not a whole number", "\"big\"", "68 to 65535", ""],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nvlan = 4095",
        ["switch.toml:4:8: out of range", "4095", "0 to 4094", ""],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\ntrunk = \"1-5000\"",
        ["switch.toml:4:9: not a list of VLANs", "1-5000", "10,20-30", ""],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nrate = \"fast\"",
        ["switch.toml:4:8: not a rate", "fast", "1Gbit", ""],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmac = \"ff:ff:ff:ff:ff:ff\"",
        ["switch.toml:4:7: not a station's address", "ff:ff", "unicast", ""],
    ),
    (
        "[[port]]\nname = \"a b\"\ntap = \"t\"",
        ["switch.toml:2:8: not a port name", "a b", "letters", ""],
    ),
    (
        "[[port]]\nname = \"a\"",
        ["switch.toml:2:8: port a: the port names no device", "no device", "one of tap", "tap ="],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\npacket = \"u\"",
        ["switch.toml:4:10: port a: tap and packet exclude", "both", "one", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nvlan = 1\ntrunk = \"2\"",
        ["switch.toml:5:9: port a: vlan and trunk exclude", "both", "one", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nnative = 1",
        ["switch.toml:4:10: port a: native has no effect", "alone", "trunk", "vlan"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\ntransit = true",
        ["switch.toml:4:11: port a: transit has no effect", "alone", "uplink", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nburst = 1",
        ["switch.toml:4:9: port a: burst has no effect", "alone", "rate", "1Gbit"],
    ),
    (
        "[[port]]\nname = \"a\"\npacket = \"e\"\nweight = 7",
        [
            "switch.toml:4:10: port a: an uplink cannot have a weight",
            "7",
            "on vNICs",
            "on the vNICs",
        ],
    ),
    (
        "[[port]]\nname = \"a\"\npacket = \"e\"\nteam-member = \"e\"",
        [
            "switch.toml:4:15: port a: an uplink cannot be pinned to a member of a team",
            "e",
            "on vNICs",
            "on a vNIC",
        ],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\n[[port]]\nname = \"a\"\ntap = \"u\"",
        ["switch.toml:5:8: port a: the name is used twice", "a", "different", "rename"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\n[[port]]\nname = \"b\"\ntap = \"t\"",
        ["switch.toml:6:7: port b: its device belongs", "port a", "different", "another"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmirror-to = \"b\"",
        ["switch.toml:4:13: port a: mirrors to a port that does not exist", "b", "none", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmirror-to = \"a\"",
        ["switch.toml:4:13: port a: mirrors to itself", "a", "another", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"a-device-name-of-20\"",
        ["switch.toml:3:7: not a device name", "a-device", "1 to 15", ""],
    ),
    (
        "[[port]]\nname = \"a\"\nvhost-user = \"v.sock\"",
        ["switch.toml:3:14: not the path of a socket", "v.sock", "107 bytes", "absolute path"],
    ),
    (
        "[[port]]\nname = \"a\"\nvhost-user = \"/v\"\nqueues = 65",
        ["switch.toml:4:10: out of range", "65", "1 to 64", ""],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nvhost-user = \"/v\"",
        ["switch.toml:4:14: port a: tap and vhost-user exclude", "both", "one", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\nvhost-user = \"/v\"\nnetns = \"n\"",
        ["switch.toml:4:9: port a: vhost-user and netns exclude", "both", "one", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nvhost-client = true",
        ["switch.toml:4:16: port a: vhost-client has no effect", "alone", "vhost-user", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nsocket-mode = \"0660\"",
        ["switch.toml:4:15: port a: socket-mode has no effect", "alone", "vhost-user", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\nmemory-limit = \"4GiB\"",
        ["switch.toml:4:16: port a: memory-limit has no effect", "alone", "vhost-user", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\ntap = \"t\"\ncompat = \"ovs-dpdk\"",
        ["switch.toml:4:10: port a: compat has no effect", "alone", "vhost-user", "remove"],
    ),
    (
        "[[port]]\nname = \"a\"\nvhost-user = \"/v\"\nvhost-client = true\nsocket-group = \"kvm\"",
        [
            "switch.toml:5:16: port a: vhost-client and socket-group exclude",
            "both",
            "one",
            "remove",
        ],
    ),
    (
        "[[port]]\nname = \"a\"\nvhost-user = \"/v\"\n[[port]]\nname = \"b\"\nvhost-user = \"/v\"",
        ["switch.toml:6:14: port b: its device belongs", "port a", "different", "another"],
    ),
    ("[switch\n", ["switch.toml:1:8", "", "", ""]),
];

#[test]
fn what_is_wrong_is_refused_with_place_and_remedy() {
    for (text, [error, seen, wanted, remedy]) in REFUSED {
        let problem = read(text).expect_err(text);
        assert!(problem.error.starts_with(error), "{text}\n{problem}");
        assert!(problem.seen.contains(seen), "{text}\n{problem}");
        assert!(problem.wanted.contains(wanted), "{text}\n{problem}");
        assert!(problem.remedy.contains(remedy), "{text}\n{problem}");
    }
}

/// Half of the processors, so that guests have the others, and no more than four.
#[test]
fn workers_without_the_key_go_by_the_processors() {
    let config = read("[switch]\nworkers = \"auto\"").unwrap();
    assert_eq!(config.switch, SwitchConfig::default());
    let counts = [1, 2, 3, 4, 8, 64, u16::MAX].map(|count| Workers::Auto.count(count));
    assert_eq!(counts, [1, 1, 1, 2, 4, 4, 4]);
    assert_eq!(Workers::Count(7).count(2), 7);
    assert_eq!(Workers::Cores(vec![3, 5]).count(1), 2);
}

#[test]
fn queues_without_the_key_go_by_the_device_and_the_scale() {
    let pairs = |keys: &str, workers, processors| {
        let config = read(&format!("[[port]]\nname = \"a\"\n{keys}")).unwrap();
        config.ports[0].queue_pairs(Scale { workers, processors })
    };
    for (keys, one, two, many) in [
        ("vhost-user = \"/v\"", 8, 8, 8),
        ("tap = \"t\"", 1, 4, 8),
        ("packet = \"e\"", 1, 2, 8),
        ("packet = \"e\"\nrole = \"vnic\"", 1, 1, 1),
        ("team = [\"e\", \"f\"]", 1, 1, 1),
        ("tap = \"t\"\nqueues = 3", 3, 3, 3),
    ] {
        let seen = [pairs(keys, 1, 64), pairs(keys, 2, 4), pairs(keys, 64, 64)];
        assert_eq!(seen, [one, two, many], "{keys}");
    }
}

#[test]
fn a_whole_file_reads() {
    let config = read(include_str!("../tests/switch.toml")).unwrap();
    assert_eq!(config.switch.workers, Workers::Cores(vec![0, 1]));
    assert_eq!(config.ports.len(), 3);
}
