//! Uses the API's document: a client in another language is generated from it and talks to the
//! daemon.

use crate::sandbox::{Need, output_of, story};
use crate::switch::{Switch, millrace};
use std::path::Path;
use std::process::Command;

/// Path at which `scripts/openapi` installs its tools.
const TOOLS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../tools/openapi/bin");

#[test]
fn a_generated_client_talks_to_the_daemon() {
    story(&[Need::Tap, Need::OpenApi(TOOLS)], || {
        let document = output_of(millrace().arg("openapi"));
        std::fs::write("/run/millrace.json", document).unwrap();
        let mut generate = Command::new(Path::new(TOOLS).join("openapi-python-client"));
        generate.args(["generate", "--meta", "none", "--path", "/run/millrace.json"]);
        let said = output_of(generate.args(["--output-path", "/run/client"]));
        assert!(!said.contains("ERROR"), "{said}");
        let _switch = Switch::start("");
        let mut python = Command::new(Path::new(TOOLS).join("python3"));
        let said = output_of(python.args(["-c", include_str!("client.py")]).current_dir("/run"));
        assert_eq!(said, "all answered\n");
    });
}
