//! `millrace bugreport`: diagnostics in one tar file, without secrets.

use crate::commands::redact;
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::client::Client;
use clap::Args;
use problem::Problem;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace bugreport                       # millrace-bugreport-SECONDS.tar in this directory
  millrace bugreport -w - | tar -tv

The file contains the version, the running configuration, ports with their counters, queues,
learned addresses, rules, health, events, metrics and kernel facts, as JSON and text. RSS keys and
tokens are removed; addresses and port names are not. Read the file before you pass it on.
Without a running daemon the file contains only the kernel facts, and says so.")]
pub(crate) struct Arguments {
    /// The file to create, or - for standard output.
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The API path of the ports.
const PORTS: &str = "/v1/ports";

/// API paths to fetch, each with the archive member for its answer.
const ASKED: [(&str, &str); 15] = [
    ("/v1/switch", "switch.json"),
    ("/v1/config", "config.json"),
    ("/v1/config/source", "source.json"),
    (PORTS, "ports.json"),
    ("/v1/queues", "queues.json"),
    ("/v1/workers", "workers.json"),
    ("/v1/macs", "macs.json"),
    ("/v1/rsc", "rsc.json"),
    ("/v1/switch/rsc", "switch-rsc.json"),
    ("/v1/rss", "rss.json"),
    ("/v1/teams", "teams.json"),
    ("/v1/vmmq/moves", "vmmq-moves.json"),
    ("/v1/health", "health.json"),
    ("/v1/mtu", "mtu.json"),
    ("/v1/events", "events.json"),
];

/// Files that describe the kernel and the machine.
const KERNEL: [&str; 8] = [
    "/proc/version",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/net/dev",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/etc/os-release",
];

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let default = PathBuf::from(format!("millrace-bugreport-{now}.tar"));
    let path = arguments.write.clone().unwrap_or(default);
    let directory = format!("millrace-bugreport-{now}");
    let files = files(global).into_iter();
    let bytes = pack(now, files.map(|(name, text)| (format!("{directory}/{name}"), text)))?;
    if path == Path::new("-") {
        io::stdout().lock().write_all(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    new.and_then(|mut file| file.write_all(&bytes)).map_err(|error| refused(&path, &error))?;
    let made = serde_json::json!({ "file": path, "bytes": bytes.len() });
    output::show(global, &made, |_| format!("{} ({} bytes)", path.display(), bytes.len()))
}

/// Returns a tar archive of these files, each of mode 0600 and changed at `time`, in seconds since
/// 1970.
fn pack(time: u64, files: impl IntoIterator<Item = (String, String)>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(time);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    archive.into_inner()
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let problem = Problem::new(format!("{} cannot be created", path.display())).seen(error);
    problem
        .wanted("a new file in a directory that you can write to")
        .remedy("name another file with -w; an existing file is never overwritten")
        .into()
}

/// Returns all archive members, by name.
fn files(global: &Global) -> Vec<(String, String)> {
    let mut files = vec![("version.txt".to_owned(), format!("{}\n", env!("CARGO_PKG_VERSION")))];
    match Client::connect(&global.socket()) {
        Ok(client) => files.extend(daemon(&client)),
        Err(error) => files.push(("daemon.txt".to_owned(), format!("{}\n", error.problem()))),
    }
    let kernel = KERNEL.iter().filter_map(|path| {
        let text = fs::read(path).ok()?;
        let name = format!("kernel{}", path.replace('/', "-"));
        Some((name, String::from_utf8_lossy(&text).into_owned()))
    });
    files.extend(kernel);
    files
}

/// Returns the daemon's answers. If a request fails, its member holds the error.
fn daemon(client: &Client) -> Vec<(String, String)> {
    let (mut files, mut ports) = (Vec::new(), Vec::new());
    for (path, name) in ASKED {
        let text = client.get(path).map(|mut answer| {
            redact::secrets(&mut answer);
            if path == PORTS {
                ports = names(&answer);
            }
            format!("{answer:#}\n")
        });
        files
            .push((name.to_owned(), text.unwrap_or_else(|error| format!("{}\n", error.problem()))));
    }
    for port in ports {
        let counters =
            client.counters(&port).ok().and_then(|it| serde_json::to_string_pretty(&it).ok());
        let rules = client.acl(&port).ok().and_then(|it| serde_json::to_string_pretty(&it).ok());
        files.extend(counters.map(|text| (format!("counters/{port}.json"), text)));
        files.extend(rules.map(|text| (format!("acl/{port}.json"), text)));
    }
    files.extend(client.text("/metrics").ok().map(|text| ("metrics.txt".to_owned(), text)));
    files
}

/// Returns the names of the ports in an answer.
fn names(ports: &Value) -> Vec<String> {
    let all = ports.as_array().into_iter().flatten();
    all.filter_map(|port| Some(port["name"].as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// The system's own tar finds the files.
    #[test]
    fn tar_unpacks_what_was_added() {
        let long = "x".repeat(1025);
        let files = [("d/one.txt", "one\n"), ("d/long", &long), ("d/empty", "")];
        let bytes =
            pack(1_700_000_000, files.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let bytes = bytes.unwrap();
        let tar = |arguments: &[&str]| {
            let mut tar = Command::new("tar")
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            tar.stdin.take().unwrap().write_all(&bytes).unwrap();
            tar.wait_with_output().unwrap().stdout
        };
        assert_eq!(tar(&["-t"]), b"d/one.txt\nd/long\nd/empty\n");
        assert_eq!(tar(&["-xO", "d/one.txt"]), b"one\n");
        assert_eq!(tar(&["-xO", "d/long"]), long.as_bytes());
    }
}
