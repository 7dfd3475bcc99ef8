//! The configuration reference, generated from the types that read the file: a JSON Schema for
//! editors, the manual page millrace.toml(5), `docs/configuration.md`, and the sample
//! `packaging/millrace.toml`. A test keeps the last two up to date.

mod keys;
mod manual;
mod markdown;
mod sample;
mod schema;

pub use manual::manual;
pub use markdown::markdown;
pub use sample::sample;
pub use schema::schema;

/// The introduction before the keys, by paragraph. Text in backticks is literal.
const INTRODUCTION: &[&str] = &[
    "The configuration is one TOML file, which `millrace run -c FILE` reads at startup and rereads at SIGHUP or `millrace config reload`. \
     Reading is strict: a file with an unknown key, a value out of range or keys that contradict each other is refused with line and \
     column, the value wanted and the remedy, and the running configuration stays. `millrace check FILE` checks a file beforehand.",
    "The API uses the same keys in JSON, `millrace port add` and `millrace port set` as KEY=VALUE. Editors complete and check them \
     with the schema that `millrace config schema` prints.",
];
