//! `millrace page`: the address of the running switch's page, with a key for its actions.

use crate::global::Global;
use crate::output::{self, Outcome};
use api::body::PageKeyBody;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace page                 # open the address in a browser on this host
  millrace page --end-keys      # no key that was printed is taken any more

Without a key the page only shows, and turns RSC on and off if `token-file` in [web] is set. With
one, its buttons change VLANs, rates, rules, ports and queues and download captures, as the user who
ran this command could by `millrace`. Keep the address to yourself. A key is taken only from a
browser on this host (`ssh -L 9478:127.0.0.1:9478 HOST` counts as one), lasts 12 hours at most, and
ends with the daemon.")]
pub(crate) struct Arguments {
    /// End all keys instead.
    #[arg(long)]
    end_keys: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    if arguments.end_keys {
        client.end_page_keys()?;
        return Ok(ExitCode::SUCCESS);
    }
    output::show(global, &client.issue_page_key()?, text)
}

fn text(PageKeyBody { address, key, .. }: &PageKeyBody) -> String {
    format!("{address}#key={key}")
}
