//! Fuzz target: any bytes of a state file are read port by port, or refused with a message. What
//! was read is the same after it is written and read again.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told.

use daemon::state;

/// Random bytes hardly ever are JSON: the first choice lets the short run reach behind the syntax,
/// too.
#[test]
fn fuzz_state() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(start, bytes)| {
        let inside =
            |before: &str, after: &str| [before.as_bytes(), bytes, after.as_bytes()].concat();
        let file = match start % 4 {
            0 => inside("{\"version\": 1, \"ports\": [", "]}"),
            1 => inside("{\"version\": 1, \"ports\": [{\"name\": \"a\", \"tap\": \"t\", ", "}]}"),
            2 => inside("{\"version\": ", ", \"ports\": []}"),
            _ => bytes.clone(),
        };
        let kept = state::from_bytes(&file);
        for problem in &kept.refused {
            assert!(!problem.error.is_empty() && !problem.remedy.is_empty(), "{problem}");
        }
        let text = state::to_text(&kept.ports, &kept.fleet).expect("what was read can be written");
        let again = state::from_bytes(text.as_bytes());
        assert!(
            again.refused.is_empty() && (again.ports, again.fleet) == (kept.ports, kept.fleet),
            "{text}"
        );
    });
}
