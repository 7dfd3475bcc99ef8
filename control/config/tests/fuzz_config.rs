//! Fuzz target: whatever text arrives, it is a configuration or is refused with a message; what is
//! accepted keeps its meaning when it is written and read again.
//!
//! `cargo test` runs it over random text for a moment, `fuzz/run` under libFuzzer for as long as it
//! is told.

use config::{self, Config};

/// Random text hardly ever is TOML: the first choice lets the short run reach behind the syntax,
/// too.
#[test]
fn fuzz_config() {
    bolero::check!().with_type::<(u8, String)>().for_each(|(start, text)| {
        let text = match start % 4 {
            0 => format!("[switch]\n{text}"),
            1 => format!("[[port]]\nname = 'a'\ntap = 't'\n{text}"),
            2 => format!("[[port]]\nname = 'a'\npacket = 'e'\ntrunk = '{text}'"),
            _ => text.clone(),
        };
        match Config::from_toml("fuzz", &text) {
            Ok(config) => {
                let written = config.to_toml().expect("what was read can be written");
                assert_eq!(Config::from_toml("fuzz", &written), Ok(config));
            }
            Err(problem) => {
                assert!(problem.error.starts_with("fuzz"), "{problem}");
                assert!(!problem.remedy.is_empty(), "{problem}");
            }
        }
        let _ = config::from_json::<Config>(text.as_bytes()).and_then(|config| config.check());
    });
}
