//! `millrace page`: the address of the running switch's page, with a key for its actions.

use crate::global::Global;
use crate::output::{self, Outcome};
use api::body::PageKeyBody;
use clap::Args;
use devices::accounts;
use lab::host::is_root;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace page                 # open the address in a browser on this host
  sudo millrace page            # as an admin by sudo: the key is for the user who calls it
  millrace page --end-keys      # no key that was printed is taken any more

Without a key the page only shows, and turns RSC on and off if `token-file` in [web] is set. With
one, its buttons change VLANs, rates, rules, ports and queues and download captures, as the user who
ran this command could by `millrace`. A key is taken only from a browser on this host that runs as
its user or as root (`ssh -L 9478:127.0.0.1:9478 HOST` counts as one of the user who logs in), lasts
12 hours at most, and ends with the daemon.")]
pub(crate) struct Arguments {
    /// End all keys instead.
    #[arg(long)]
    end_keys: bool,
    /// Issue the key to this user, by name or number, as only root may. Default: the user who runs
    /// the command, by sudo or directly.
    #[arg(long, conflicts_with = "end_keys")]
    user: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    if arguments.end_keys {
        client.end_page_keys()?;
        return Ok(ExitCode::SUCCESS);
    }
    let sudo = std::env::var("SUDO_UID").ok().filter(|_| is_root());
    let user = arguments.user.as_deref().or(sudo.as_deref()).map(accounts::user).transpose()?;
    output::show(global, &client.issue_page_key(user)?, text)
}

fn text(PageKeyBody { address, key, .. }: &PageKeyBody) -> String {
    format!("{address}#key={key}")
}
