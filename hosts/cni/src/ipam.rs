//! Runs the network's IPAM plugin, as the CNI specification requires: with the environment and the
//! configuration of this plugin.

use crate::error::CniError;
use crate::network::Network;
use crate::outcome::Outcome;
use crate::request::Request;
use serde::Deserialize;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The most bytes of an answer that are read.
const LONGEST: u64 = 1 << 20;

/// A variable that this plugin sets for the IPAM plugin. It stops the recursion if a network names
/// this plugin as its own IPAM plugin.
const WITHIN: &str = "MILLRACE_CNI_WITHIN";

/// The IPAM plugin that a network names.
pub(crate) struct Ipam<'a> {
    name: &'a str,
    program: PathBuf,
    text: &'a [u8],
}

impl<'a> Ipam<'a> {
    /// Finds the plugin in `CNI_PATH`. Returns `None` if the network names no plugin.
    pub(crate) fn find(
        request: &Request,
        network: &'a Network,
    ) -> Result<Option<Ipam<'a>>, CniError> {
        let Some(name) = network.ipam.as_deref() else { return Ok(None) };
        if std::env::var_os(WITHIN).is_some() {
            let message = format!("{name} cannot be its own IPAM plugin");
            return Err(CniError::new(
                CniError::NETWORK,
                message,
                "this plugin assigns no addresses; name another in ipam.type",
            ));
        }
        // A relative path would be looked for in the working directory, and by `PATH`.
        let folders = request.path.iter().filter(|folder| folder.is_absolute());
        let mut programs = folders.map(|folder| folder.join(name));
        let Some(program) = programs.find(|program| program.is_file()) else {
            let told = format!("CNI_PATH is {:?}", request.path);
            return Err(CniError::new(
                CniError::IPAM,
                format!("IPAM plugin {name} was not found"),
                told,
            ));
        };
        Ok(Some(Ipam { name, program, text: &network.text }))
    }

    /// Runs `ADD`. Returns the addresses that the plugin assigned.
    pub(crate) fn add(&self) -> Result<Outcome, CniError> {
        let answer = self.run("ADD")?;
        let outcome: Outcome = strict::from_json(&answer)
            .map_err(|error| self.failed("its answer cannot be read", error))?;
        if outcome.ips.is_empty() {
            return Err(self.failed("its answer has no address", String::from_utf8_lossy(&answer)));
        }
        Ok(outcome)
    }

    /// Runs a command that has no result: `DEL`, `CHECK`, `STATUS` or `GC`.
    pub(crate) fn tell(&self, command: &str) -> Result<(), CniError> {
        self.run(command).map(drop)
    }

    fn run(&self, command: &str) -> Result<Vec<u8>, CniError> {
        let child = Command::new(&self.program)
            .env("CNI_COMMAND", command)
            .env(WITHIN, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| self.failed("it cannot be run", error))?;
        let talked = self.talk(&mut child);
        let status =
            child.wait().map_err(|error| self.failed("its end cannot be waited for", error))?;
        let answer = talked.map_err(|error| self.failed("its answer cannot be read", error))?;
        if status.success() {
            return Ok(answer);
        }
        Err(self.said(&answer).unwrap_or_else(|| self.failed("it failed without a reason", status)))
    }

    /// Writes the configuration and reads the answer. A plugin may leave its input unread.
    fn talk(&self, child: &mut Child) -> std::io::Result<Vec<u8>> {
        if let Some(mut input) = child.stdin.take() {
            match input.write_all(self.text) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        let mut answer = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(LONGEST).read_to_end(&mut answer)?;
        }
        Ok(answer)
    }

    /// Returns the error that the plugin printed.
    fn said(&self, answer: &[u8]) -> Option<CniError> {
        #[derive(Deserialize)]
        struct Said {
            code: u64,
            msg: String,
            #[serde(default)]
            details: String,
        }
        let said: Said = strict::from_json(answer).ok()?;
        Some(CniError::new(
            said.code,
            format!("IPAM plugin {}: {}", self.name, said.msg),
            said.details,
        ))
    }

    fn failed(&self, what: &str, seen: impl std::fmt::Display) -> CniError {
        CniError::new(CniError::IPAM, format!("IPAM plugin {}: {what}", self.name), seen)
    }
}
