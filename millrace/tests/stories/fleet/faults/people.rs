//! What people do with the fleet during the faults, at random: some apply models and go back to
//! earlier ones, others move ports.

use super::super::hosts::{FOLDER, fleet};
use super::looks::Models;
use super::sites::{COUNT, NAMES, write_model};
use super::{CLAIMED, PORTS, members};
use fastrand::Rng;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After this number of attempts the revision counts as never to be applied.
const LAST: usize = 40;

/// Runs a command that may fail while etcd does.
fn attempt(line: &str) -> (String, bool) {
    let (text, code) = fleet(&format!("{line} --insecure-http --etcd {}", members::endpoints()));
    if code != 0 {
        println!("{line}: {}", text.trim().replace('\n', "\n    "));
    }
    (text, code == 0)
}

/// Runs a command that has to succeed.
pub(super) fn succeed(line: &str) {
    let (text, is_done) = attempt(line);
    assert!(is_done, "{line}: {text}");
}

/// Applies models, one after the other.
pub(super) struct Appliers {
    random: Rng,
    models: Arc<Mutex<Models>>,
    /// The number of the last model that was written.
    last: usize,
    /// Revisions that were rolled out completely and that etcd still has, with their models.
    done: Vec<(u64, usize)>,
    applied: usize,
}

impl Appliers {
    pub(super) fn new(seed: u64, models: Arc<Mutex<Models>>) -> Appliers {
        Appliers { random: Rng::with_seed(seed), models, last: 0, done: Vec::new(), applied: 0 }
    }

    /// Returns how many revisions were rolled out completely.
    pub(super) fn applied(&self) -> usize {
        self.applied
    }

    /// Forgets all finished revisions, because etcd may have lost them.
    pub(super) fn forget_done(&mut self) {
        self.done.clear();
    }

    /// Applies a model or goes back to one; it may fail.
    pub(super) fn do_something(&mut self) {
        match self.random.u8(..5) {
            0 => self.go_back(),
            _ => drop(self.apply()),
        }
    }

    /// Applies a new model. Returns whether all hosts have it.
    pub(super) fn apply(&mut self) -> bool {
        self.last += 1;
        write_model(self.last);
        self.roll_out(&format!("apply -f {FOLDER}"), self.last)
    }

    /// Applies new models until all hosts have one. Agents may still have to return, and the lease
    /// of an interrupted roll-out has to run out.
    pub(super) fn apply_at_last(&mut self) {
        for _ in 0..LAST {
            if self.apply() {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        panic!("no revision could be applied after the fault");
    }

    fn go_back(&mut self) {
        let Some(&(revision, model)) = self.random.choice(&self.done) else { return };
        self.roll_out(&format!("rollback {revision}"), model);
    }

    fn roll_out(&mut self, line: &str, model: usize) -> bool {
        self.models.lock().unwrap().begin(model);
        let (text, is_done) = attempt(line);
        let revision = text.split_once("revision ").filter(|_| text.contains("is in force"));
        let number = revision.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        if let (true, Some(number)) = (is_done, number) {
            self.models.lock().unwrap().complete(model);
            self.done.push((number, model));
            self.applied += 1;
        }
        is_done
    }
}

/// About the time that a move takes.
const ON_ITS_WAY_MS: u64 = 2000;

/// Moves ports.
pub(super) struct Movers(Rng);

impl Movers {
    pub(super) fn new(seed: u64) -> Movers {
        Movers(Rng::with_seed(seed))
    }

    /// Requests a move of a port, sometimes while another move of that port is under way.
    pub(super) fn do_something(&mut self) {
        let port = format!("{CLAIMED}{}", self.0.usize(..PORTS));
        let [first, second] = [(); 2].map(|()| NAMES[self.0.usize(..COUNT)]);
        if self.0.bool() {
            attempt(&format!("move {port} {first} --wait 0"));
            std::thread::sleep(Duration::from_millis(self.0.u64(..ON_ITS_WAY_MS)));
        }
        attempt(&format!("move {port} {second} --wait 3"));
    }

    /// Moves each port. Each must arrive.
    pub(super) fn move_all(&mut self) {
        for port in 0..PORTS {
            succeed(&format!("move {CLAIMED}{port} {}", NAMES[self.0.usize(..COUNT)]));
        }
    }
}
