//! Commands that add a vNIC to a running QEMU guest and remove it again: for its monitor, and the
//! same as lines of QMP.
//!
//! The ids are those of `--qemu`, so a vNIC that the guest was started with is removed alike. QEMU
//! removes the socket of a vhost-user netdev with it; `chardev-remove` would find none.

use super::Vnic;
use serde_json::{Value, json};

/// A command of QEMU's monitor.
struct Command {
    name: &'static str,
    /// Its argument, for the monitor.
    argument: String,
    /// Its arguments, for QMP.
    arguments: Value,
}

impl Command {
    /// Returns a command with an argument of `KEY=VALUE` pairs, the same in the monitor and in QMP.
    fn of_keys(name: &'static str, first: (&str, &str), keys: &[(&str, Value)]) -> Command {
        let (key, value) = first;
        let (mut argument, mut arguments) = (value.to_owned(), json!({ key: value }));
        for (key, value) in keys {
            argument += &format!(",{key}={}", plain(value));
            arguments[*key] = value.clone();
        }
        Command { name, argument, arguments }
    }

    /// Returns a command whose argument is an id.
    fn of_id(name: &'static str, id: String) -> Command {
        Command { name, arguments: json!({ "id": id }), argument: id }
    }

    fn qmp(&self) -> String {
        format!(r#"{{"execute": "{}", "arguments": {}}}"#, self.name, self.arguments)
    }
}

impl Vnic {
    /// Returns the commands that add the vNIC's device to a running guest, at the PCI bus with this
    /// id or where QEMU chooses, and those that remove it.
    pub(crate) fn qemu_monitor(&self, bus: Option<&str>) -> String {
        let (add, remove) = (self.add(bus), self.remove());
        let typed = |all: &[Command]| {
            let line =
                |command: &Command| format!("{} {}\n", command.name, word(&command.argument));
            all.iter().map(line).collect::<String>()
        };
        let sent = |all: &[Command]| all.iter().map(|one| one.qmp() + "\n").collect::<String>();
        let bus = match bus {
            Some(_) => "",
            None => {
                "# The machine type q35 adds devices only below a root port that is free: give QEMU\n\
                 # `-device pcie-root-port,id=spare,chassis=1,slot=1` at its start, and `--bus spare` here.\n"
            }
        };
        format!(
            "\
# The guest must have been started with shared memory; `--qemu` prints the options.
{bus}# In QEMU's monitor, to add the device:
{}# In QEMU's monitor, to remove it; `netdev_del`, which also removes the socket, once `info pci` no
# longer shows the device:
{}# By QMP, to add the device:
{}# By QMP, to remove it; `netdev_del`, which also removes the socket, after the event DEVICE_DELETED:
{}",
            typed(&add),
            typed(&remove),
            sent(&add),
            sent(&remove)
        )
    }

    fn add(&self, bus: Option<&str>) -> [Command; 3] {
        let Vnic { name, queues, .. } = self;
        let [socket, net] = [format!("{name}-socket"), format!("{name}-net")];
        let keys = [("id", json!(net)), ("chardev", json!(socket)), ("queues", json!(queues))];
        let netdev = Command::of_keys("netdev_add", ("type", "vhost-user"), &keys);
        [self.chardev(socket), netdev, self.device(&net, bus)]
    }

    /// Returns the command for the socket. Its QMP form nests the keys, so it is written apart.
    fn chardev(&self, id: String) -> Command {
        // A monitor that waits for the switch to connect would stop the guest meanwhile.
        let (side, key, value) = match self.guest_listens {
            true => ("server=on,wait=off", "wait", json!(false)),
            false => ("reconnect=1", "reconnect", json!(1)),
        };
        let path = self.socket.replace(',', ",,");
        let address = json!({ "type": "unix", "data": { "path": self.socket } });
        let data = json!({ "addr": address, "server": self.guest_listens, key: value });
        Command {
            name: "chardev-add",
            argument: format!("socket,id={id},path={path},{side}"),
            arguments: json!({ "id": id, "backend": { "type": "socket", "data": data } }),
        }
    }

    fn device(&self, net: &str, bus: Option<&str>) -> Command {
        let ring = json!(Vnic::RING);
        let mut keys = vec![
            ("id", json!(self.name)),
            ("netdev", json!(net)),
            ("rx_queue_size", ring.clone()),
            ("tx_queue_size", ring),
        ];
        keys.extend(bus.map(|bus| ("bus", json!(bus))));
        if let Some(vectors) = self.vectors() {
            keys.extend([("mq", json!(true)), ("vectors", json!(vectors))]);
        }
        keys.extend(self.mac.as_ref().map(|mac| ("mac", json!(mac))));
        keys.extend(self.mtu.map(|mtu| ("host_mtu", json!(mtu))));
        Command::of_keys("device_add", ("driver", "virtio-net-pci"), &keys)
    }

    fn remove(&self) -> [Command; 2] {
        let name = &self.name;
        let net = format!("{name}-net");
        [Command::of_id("device_del", name.clone()), Command::of_id("netdev_del", net)]
    }
}

/// Returns a value as the monitor's options spell it.
fn plain(value: &Value) -> String {
    match value {
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(text) => text.replace(',', ",,"),
        other => other.to_string(),
    }
}

/// Returns a text as one word of the monitor, which ends a word at a space unless it is quoted.
fn word(text: &str) -> String {
    let is_plain = |letter: char| !letter.is_whitespace() && !matches!(letter, '"' | '\\');
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::super::tests::vnic;
    use super::*;
    use proptest::prelude::*;

    /// Returns the lines of a heading that begins so, up to the next one.
    fn below(text: &str, heading: &str) -> Vec<String> {
        let from = text.lines().skip_while(|line| !line.starts_with(heading));
        let from = from.skip_while(|line| line.starts_with('#'));
        from.take_while(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn each_line_for_a_running_guest() {
        insta::assert_snapshot!(vnic().qemu_monitor(None));
    }

    #[test]
    fn a_guest_that_listens_does_not_wait_for_the_switch() {
        let text = Vnic { guest_listens: true, ..vnic() }.qemu_monitor(Some("spare"));
        assert!(text.contains(",server=on,wait=off\n") && text.contains(",bus=spare,"), "{text}");
        assert!(text.contains(r#""server":true,"wait":false"#), "{text}");
        assert!(!text.contains("reconnect") && !text.contains("pcie-root-port"), "{text}");
    }

    /// Splits a line of the monitor as QEMU does: words, and the options of the second.
    fn read(line: &str) -> (String, Vec<String>) {
        let (name, rest) = line.split_once(' ').unwrap();
        let argument = match rest.strip_prefix('"') {
            Some(quoted) => serde_json::from_str(&format!("\"{quoted}")).unwrap(),
            None => rest.to_owned(),
        };
        let single = argument.replace(",,", "\0");
        (name.to_owned(), single.split(',').map(|part| part.replace('\0', ",")).collect())
    }

    proptest! {
        #[test]
        fn the_monitors_lines_and_qmps_say_the_same(
            socket in "/[a-z,\"\\\\ ]{1,20}", queues in 1..64u16, mac: bool, mtu: bool, guest_listens: bool,
        ) {
            let mac = mac.then(|| "52:54:00:00:00:01".to_owned());
            let mtu = mtu.then_some(9000);
            let vnic = Vnic { socket: socket.clone(), queues, mac, mtu, guest_listens, ..vnic() };
            let text = vnic.qemu_monitor(Some("spare"));
            for (what, count) in [("add", 3), ("remove", 2)] {
                let typed = below(&text, &format!("# In QEMU's monitor, to {what}"));
                let sent = below(&text, &format!("# By QMP, to {what}"));
                prop_assert_eq!((typed.len(), sent.len()), (count, count));
                for (typed, sent) in typed.iter().zip(&sent) {
                    let sent: Value = serde_json::from_str(sent).unwrap();
                    let (name, parts) = read(typed);
                    prop_assert_eq!(&sent["execute"], &json!(name));
                    // Each value typed is somewhere in the QMP line.
                    let all = sent.to_string();
                    for part in parts {
                        let value = part.split_once('=').map_or(part.as_str(), |(_, value)| value);
                        let value = match value {
                            "on" => "true".to_owned(),
                            "off" => "false".to_owned(),
                            number if number.parse::<u32>().is_ok() => number.to_owned(),
                            text => json!(text).to_string(),
                        };
                        prop_assert!(all.contains(&value), "{} not in {}", value, all);
                    }
                }
            }
            prop_assert_eq!(text.contains("mq=on"), queues > 1);
        }
    }
}
