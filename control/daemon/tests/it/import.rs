//! Imports a port from another host: completely or not at all.

use crate::test_daemon::{self, Daemon};
use api::client::ClientError;
use daemon::migration::{PortExport, Terms, import};
use serde_json::json;

const TWO: &str = "\
[[port]]
name = \"vm1\"
tap = \"tap1\"
queues = 2

[[port]]
name = \"uplink0\"
packet = \"eth1\"
";

fn export(daemon: &Daemon, spoil: impl FnOnce(&mut PortExport)) -> PortExport {
    let mut export = PortExport::of(&daemon.client, "vm1").unwrap();
    spoil(&mut export);
    export
}

/// Settings were changed, or the port made, before the table was refused with "nothing was
/// changed".
#[test]
fn a_table_that_no_port_can_have_is_refused_before_anything_is_done() {
    let daemon = Daemon::start(TWO);
    for (entries, queue) in [(200, 0), (128, 7)] {
        for name in ["vm1", "vm2"] {
            let crafted = export(&daemon, |it| {
                it.table = vec![queue; entries];
                it.port.name = name.parse().unwrap();
                it.port.tap =
                    Some("tap2".parse().unwrap()).filter(|_| name == "vm2").or(it.port.tap.clone());
                it.port.isolated = Some(true);
            });
            let import = import(&daemon.client, &crafted, &Terms::default()).unwrap();
            assert!(import.refused && import.lacks[0].about == "table", "{import:?}");
            assert_eq!(daemon.client.ports().unwrap().len(), 2);
            assert_eq!(daemon.client.port("vm1").unwrap().config.isolated, None);
        }
    }
}

/// The network sent to the port's earlier host, or to its earlier address.
#[test]
fn the_address_of_an_imported_port_and_a_changed_one_are_announced_twice() {
    let daemon = Daemon::start(TWO);
    let wanted = export(&daemon, |it| {
        it.port.name = "vm2".parse().unwrap();
        it.port.tap = Some("tap2".parse().unwrap());
        it.port.mac = Some("02:00:00:00:00:07".parse().unwrap());
    });
    let uplink = daemon.devices.peer("eth1").unwrap();
    let hears = |last: u8| {
        let mut count = 0;
        test_daemon::eventually("the address is announced twice", || {
            while let Some(frame) = uplink.receive() {
                let own = [2, 0, 0, 0, 0, last];
                count += u8::from(frame.bytes[6..14] == [&own[..], &[0x80, 0x35]].concat());
            }
            (count == 2).then_some(())
        });
    };
    assert!(import(&daemon.client, &wanted, &Terms::default()).unwrap().created);
    hears(7);
    daemon.client.change_port("vm2", &json!({"mac": "02:00:00:00:00:08"})).unwrap();
    hears(8);
}

/// The table fits the file's port but not the existing port, which is closed.
#[test]
fn what_was_done_before_an_error_is_taken_back() {
    let daemon = Daemon::start(TWO);
    let wanted = export(&daemon, |it| {
        it.table = vec![1; 128];
        it.port.isolated = Some(true);
    });
    daemon.devices.set("tap1", test_devices::Fate::Gone);
    test_daemon::eventually("the port is closed", || {
        let state = daemon.client.port("vm1").unwrap().state;
        (state != api::body::StateBody::Up).then_some(())
    });
    let before = daemon.client.port("vm1").unwrap().config;
    let failed = import(&daemon.client, &wanted, &Terms::default());
    assert!(matches!(failed, Err(ClientError::Refused(_))), "{failed:?}");
    assert_eq!(daemon.client.port("vm1").unwrap().config, before);
    // The same holds if the import made the port.
    daemon.devices.set("tap2", test_devices::Fate::Gone);
    let wanted = export(&daemon, |it| {
        it.table = vec![1; 128];
        it.port.name = "vm2".parse().unwrap();
        it.port.tap = Some("tap2".parse().unwrap());
    });
    let failed = import(&daemon.client, &wanted, &Terms::default());
    assert!(matches!(failed, Err(ClientError::Refused(_))), "{failed:?}");
    assert!(daemon.client.port("vm2").is_err());
}

#[test]
fn a_change_of_settings_that_were_changed_since_is_refused() {
    let daemon = Daemon::start(TWO);
    let (port, tag) = daemon.client.tagged_port("vm1").unwrap();
    assert_eq!(port.config, daemon.client.port("vm1").unwrap().config);
    let change =
        |vlan: u16| daemon.client.change_tagged_port("vm1", &json!({ "vlan": vlan }), &tag);
    change(10).unwrap();
    let refused = change(20).unwrap_err();
    assert!(refused.to_string().contains("changed since"), "{refused}");
    assert_eq!(daemon.client.port("vm1").unwrap().vlan, "access 10");
}
