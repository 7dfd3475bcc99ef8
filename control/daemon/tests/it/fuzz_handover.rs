//! Fuzz target: whatever bytes the list of kept descriptors has, it is read or refused with a
//! message, and only the version that this daemon writes is read.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told.

use daemon::handover;

/// Random bytes hardly ever are JSON: the first choice lets the short run reach behind the syntax,
/// too.
#[test]
fn fuzz_handover() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(start, bytes)| {
        let inside =
            |before: &str, after: &str| [before.as_bytes(), bytes, after.as_bytes()].concat();
        let tap = "{\"kind\":\"tap\",\"device\":\"t\",\"netns\":null,\"napi\":false,\"queues\":";
        let guest = "{\"kind\":\"vhost-user\",\"file\":[1,2],\"keys\":{\"vhost-user\":";
        let uplink =
            "{\"kind\":\"packet\",\"interface\":\"e\",\"netns\":null,\"vlans\":{},\"promiscuous\":";
        let list = match start % 7 {
            0 => inside("{\"version\":4,\"ports\":{", "}}"),
            1 => inside(&format!("{{\"version\":4,\"ports\":{{\"a\":{tap}"), "}}}"),
            3 => inside(&format!("{{\"version\":4,\"ports\":{{\"a\":{guest}"), "}}}}"),
            2 => inside("{\"version\":", ",\"ports\":{}}"),
            5 => inside(&format!("{{\"version\":4,\"ports\":{{\"a\":{uplink}"), "}}}"),
            4 => inside("{\"version\":4,\"ports\":{},\"addresses\":{\"a\":", "}}"),
            _ => bytes.clone(),
        };
        match handover::parse(&list) {
            Ok(list) if [1, 3, 5].contains(&(start % 7)) => {
                assert!(list.ports.contains_key("a"), "{list:?}")
            }
            Ok(_) => {}
            Err(problem) => assert!(!problem.error.is_empty(), "{problem}"),
        }
    });
}
