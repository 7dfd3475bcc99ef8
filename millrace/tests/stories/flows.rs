//! Flows: who talks to whom is told with its bytes, and what is denied with its reason.

use crate::browser::{self, Browser};
use crate::sandbox::{Need, story};
use crate::topology::{Family, Topology};
use crate::transfer::transfer;
use serde_json::Value;
use std::net::UdpSocket;
use waiting::until;

const NEEDS: [Need; 2] = [Need::Tap, Need::Program("ethtool")];
/// Bytes of the transfer.
const BYTES: u64 = 64 << 20;

/// Returns the first flow that the command prints for which `is_meant` says so.
fn first(topology: &Topology, line: &str) -> Option<Value> {
    topology.switch.ask(line)["flows"].as_array()?.first().cloned()
}

#[test]
fn a_transfer_is_the_first_flow_with_its_bytes_and_what_is_denied_has_its_reason() {
    story(&NEEDS, || {
        let topology = Topology::new("acl = ['deny in udp to port 9']\n");
        // So few frames a millisecond that each is looked at: of what is left of a short transfer one
        // in 256 is, which tells of its bytes by chance.
        topology.far.run("tc qdisc add dev veth root tbf rate 200mbit burst 64kb latency 20ms");
        transfer(
            (topology.far, topology.guest, Family::V4.guest()),
            usize::try_from(BYTES).unwrap(),
        );
        let flow = until("the transfer is told", || {
            let flow = first(&topology, "flows --ip 10.9.0.0/16")?;
            flow["bytes"].as_u64().filter(|bytes| *bytes > BYTES / 10 * 9)?;
            Some(flow)
        });
        assert_eq!((&flow["from"], &flow["to"]), (&"uplink".into(), &"guest".into()), "{flow}");
        assert_eq!((&flow["protocol"], &flow["source"]), (&"tcp".into(), &"10.9.0.1".into()));
        assert_eq!(flow["carried_by"], "switch");
        let [bytes, frames, segments, sampled] =
            ["bytes", "frames", "segments", "sampled"].map(|name| flow[name].as_u64().unwrap());
        // Six times the deviation that the frames looked at have, and headers and repeated segments.
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let error = 6.0 / (sampled as f64).sqrt();
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let ratio = bytes as f64 / BYTES as f64;
        assert!((1.0 - error..1.15 + error).contains(&ratio), "{flow}");
        assert!(segments > frames, "the guest gets trains: {flow}");

        let sender = topology.guest.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        let denied = until("the drop is told", || {
            let _ = sender.send_to(b"word", "10.9.0.1:9");
            first(&topology, "flows --drops --port guest")
        });
        assert_eq!(denied["destination_port"], 9, "{denied}");
        assert!(denied["drops"]["acl_denied"].as_u64() > Some(0), "{denied}");
        let trace = denied["trace"].as_str().unwrap();
        let traced = topology.switch.ask_words(&["trace", "guest", trace]);
        assert_eq!(traced["turns"][0]["drops"][0]["reason"], "acl_denied", "{traced}");
    });
}

#[test]
fn in_a_browser_a_drop_opens_its_trace() {
    story(&browser::NEEDS, || {
        let web = "acl = ['deny in udp to port 9']\n[web]\nlisten = '127.0.0.1:9478'\n";
        let topology = Topology::new(web);
        let mut browser = Browser::open();
        browser.look(1280, 900, false);
        browser.visit("http://127.0.0.1:9478/");
        let sender = topology.guest.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        let press = "document.querySelector('#flows-rows button')";
        until("the drop is told", || {
            let _ = sender.send_to(b"word", "10.9.0.1:9");
            let words = browser.value(&format!("{press}?.textContent ?? ''"));
            words.as_str().is_some_and(|words| words.contains("acl denied")).then_some(())
        });
        browser.value(&format!("{press}.click()"));
        browser.wait(
            "it is traced",
            "document.getElementById('trace-verdict').textContent.includes('dropped at guest, acl denied')",
        );
        browser.value("document.getElementById('flows-drops').click()");
        browser.wait(
            "only flows with drops are left",
            "[...document.querySelectorAll('#flows-rows tr')].every((row) => row.querySelector('button'))",
        );
        browser.picture("flows");
        assert_eq!(browser.barriers(), Vec::<String>::new());
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
    });
}
