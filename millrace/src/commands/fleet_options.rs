//! Options that several of the fleet's commands have: the author, and a host with its labels.

use clap::Args;
use fleet::Name;
use fleet::configuration::Host;
use problem::Problem;

/// The person who changes or measures the fleet.
#[derive(Args)]
pub(super) struct Author {
    /// Who gives the command [default: the user's name].
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        hide_env = true,
        default_value = "unknown",
        hide_default_value = true
    )]
    pub(super) author: String,
}

/// The labels of a host.
#[derive(Args)]
pub(super) struct Labels {
    /// A label of the host; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
}

impl Labels {
    /// Returns the host of this name, with these labels.
    pub(super) fn host(&self, name: &Name) -> Host {
        Host { name: name.clone(), labels: self.labels.iter().cloned().collect() }
    }
}

/// Parses the name of a host.
///
/// # Errors
/// The text is not a valid name.
pub(super) fn name(text: &str) -> Result<Name, Problem> {
    text.parse()
}

/// Parses `KEY=VALUE`.
fn label(text: &str) -> Result<(String, String), Problem> {
    let parts = text.split_once('=').filter(|(key, _)| !key.is_empty());
    parts.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| {
        Problem::new("not a label")
            .seen(text)
            .wanted("KEY=VALUE")
            .remedy("write it like --label role=compute")
    })
}
