//! The reference of the configuration, made from the types that read the file: a JSON Schema for editors, the manual page
//! millrace.toml(5), `docs/configuration.md`, and `packaging/millrace.toml`, the sample with every key. A test holds the last two to
//! this.

mod keys;
mod manual;
mod markdown;
mod sample;
mod schema;

pub use manual::manual;
pub use markdown::markdown;
pub use sample::sample;
pub use schema::schema;

/// What stands before the keys, a paragraph each. Words in backticks are as they are typed.
const INTRODUCTION: &[&str] = &[
    "The configuration is one TOML file, which `millrace run -c FILE` reads at its start and again at SIGHUP or `millrace config reload`. \
     Keys are strict: an unknown key, a value out of range and a rule that is broken between keys are refused with line and column, the \
     value wanted and the remedy, and what runs stays as it is. `millrace check FILE` says so beforehand.",
    "The same keys are the JSON of the API, and KEY=VALUE of `millrace port add` and `millrace port set`. Editors complete and check \
     them by `millrace config schema`.",
];
