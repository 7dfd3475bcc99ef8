//! An experiment of the lab between two hosts: the request, which all agents see, an order with a
//! secret below each of the two hosts' names, and the hosts' answers there.
//!
//! The request is there while `fleet validate` runs, under its lease, and so are the orders. It
//! comes in two parts: first the two hosts, and once the sender listens its address.

use super::hosts::{key, prefix};
use super::{Read, Store, document, text, told};
use crate::Name;
use crate::etcd::{Compare, KeyValue, Lease, Operation};
use config::PortName;
use problem::Problem;
use problem::token::Token;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// The request's key, among those that agents watch.
pub(super) const REQUEST: &str = "/millrace/v1/experiment";
/// The name of an order's key below a host's own name, which only this host and people may read.
const ORDER: &str = "order";
/// The name of an answer's key below a host's own name.
const ANSWER: &str = "experiment";
/// Most bytes of an answer: etcd accepts no request above 1.5 MiB.
pub(crate) const LONGEST: usize = 1 << 20;

/// The experiment of the lab to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Receive segment coalescing on and off.
    Rsc,
    /// Unlimited coalescing against trains of at most four segments.
    Limits,
}

impl Experiment {
    /// Returns the name that `millrace validate` uses.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Rsc => "rsc",
            Experiment::Limits => "limits",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Options of `millrace validate`. Those that are left out have that command's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The port of the receiver's switch that is toggled.
    #[serde(default)]
    pub port: Option<PortName>,
    /// Numbers of connections that are measured one after the other.
    #[serde(default)]
    pub connections: Vec<u16>,
    /// Intervals per arm.
    #[serde(default)]
    pub repetitions: Option<u32>,
    /// Whether intervals are few and short.
    #[serde(default)]
    pub quick: bool,
}

/// The request of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentRequest {
    /// Identifies the experiment: 32 hexadecimal digits.
    pub number: String,
    /// The person who asked for it.
    pub author: String,
    /// When it was asked for, in seconds since 1970.
    pub since: u64,
    /// The experiment of the lab to run.
    pub experiment: Experiment,
    /// Options of the measurement.
    pub extent: Extent,
    /// The host that sends.
    pub from: Name,
    /// The host that receives, and that toggles its switch's settings.
    pub to: Name,
    /// The address at which the sender listens, once it does.
    #[serde(default)]
    pub sender: Option<SocketAddr>,
}

/// The order to a host: the secret that no other host may know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    number: String,
    token: String,
}

/// A host's answer about its part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentAnswer {
    /// The experiment that it is for.
    pub number: String,
    /// The address at which the sender listens, once it does.
    #[serde(default)]
    pub sender: Option<SocketAddr>,
    /// The outcome of the receiver's command.
    #[serde(default)]
    pub outcome: Option<Outcome>,
    /// Why the host cannot do its part.
    #[serde(default)]
    pub problem: Option<Problem>,
}

/// The outcome of `millrace validate` at the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its exit code.
    pub code: u8,
    /// Its output, by lines.
    pub text: Vec<String>,
    /// Its report as JSON.
    pub report: serde_json::Value,
}

/// Returns the request among the keys that an agent has read. One that cannot be read is ignored,
/// so that it does not keep the agent from following.
pub(super) fn request(keys: &[KeyValue]) -> Option<ExperimentRequest> {
    let request: ExperimentRequest =
        keys.iter().find(|pair| pair.key == REQUEST).and_then(|pair| told(pair).ok())?;
    // Checked, because the number becomes part of a path.
    let is_number = |text: &str| text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
    is_number(&request.number).then_some(request)
}

impl Store {
    /// Reads the request of the running experiment, if there is one.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request, or the document cannot be read.
    pub fn experiment_request(&self) -> Result<Read<ExperimentRequest>, Problem> {
        self.read(REQUEST)
    }

    /// Begins an experiment, unless another one runs, and gives both hosts the token. Returns
    /// etcd's revision of the request; `None` if another one runs.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn begin_experiment(
        &self,
        request: &ExperimentRequest,
        token: &Token,
        lease: Lease,
    ) -> Result<Option<i64>, Problem> {
        let order = text(&Order { number: request.number.clone(), token: token.to_string() })?;
        let order = |host: &Name| Operation::put(&key(host, ORDER), order.clone(), Some(lease));
        let put = Operation::put(REQUEST, text(request)?, Some(lease));
        let all = vec![put, order(&request.from), order(&request.to)];
        self.transact(vec![Compare::absent(REQUEST)], all)
    }

    /// Writes the request again, with the sender's address. Returns false if it was deleted or
    /// replaced meanwhile.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn go_on_with_experiment(
        &self,
        request: &ExperimentRequest,
        lease: Lease,
        unchanged: i64,
    ) -> Result<bool, Problem> {
        let put = Operation::put(REQUEST, text(request)?, Some(lease));
        let written = self.transact(vec![Compare::unchanged(REQUEST, unchanged)], vec![put])?;
        Ok(written.is_some())
    }

    /// Returns the token of an experiment for this host; `None` if there is no order for it.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn experiment_token(&self, host: &Name, number: &str) -> Result<Option<Token>, Problem> {
        let found = self.etcd.get(&key(host, ORDER))?;
        let Some(pair) = found.keys.first() else { return Ok(None) };
        // An order that cannot be read is ignored, so that it does not keep the agent from
        // following.
        let order = document::<Order>(pair).ok().filter(|order| order.number == number);
        Ok(order.and_then(|order| order.token.parse().ok()))
    }

    /// Writes a host's answer, which is deleted with the lease of its status.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn answer_experiment(
        &self,
        host: &Name,
        answer: &ExperimentAnswer,
        lease: Lease,
    ) -> Result<(), Problem> {
        let put = Operation::put(&key(host, ANSWER), text(answer)?, Some(lease));
        self.transact(Vec::new(), vec![put]).map(drop)
    }

    /// Deletes a host's answer.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn forget_experiment(&self, host: &Name) -> Result<(), Problem> {
        self.transact(Vec::new(), vec![Operation::delete(&key(host, ANSWER))]).map(drop)
    }

    /// Returns a host's answer to this experiment. One that cannot be read is ignored.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn experiment_answer(
        &self,
        host: &Name,
        number: &str,
    ) -> Result<Option<ExperimentAnswer>, Problem> {
        let found = self.etcd.list(&prefix(host))?;
        let own = key(host, ANSWER);
        let pair = found.keys.iter().find(|pair| pair.key == own);
        Ok(pair.and_then(read_answer).filter(|answer| answer.number == number))
    }
}

fn read_answer(pair: &KeyValue) -> Option<ExperimentAnswer> {
    if pair.value.len() > LONGEST { None } else { told(pair).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: &str = "000102030405060708090a0b0c0d0e0f";

    fn pair(key: &str, value: &str) -> KeyValue {
        let (key, value) = (key.to_owned(), value.to_owned());
        KeyValue { key, value, create_revision: 1, mod_revision: 1, lease: 0 }
    }

    #[test]
    fn what_is_no_request_is_none_and_agents_follow_on() {
        let text = |number: &str, from: &str| {
            format!(
                r#"{{"number":"{number}","author":"me","since":1,"experiment":"rsc","extent":{{}},"from":"{from}","to":"b"}}"#
            )
        };
        let good = request(&[pair(REQUEST, &text(NUMBER, "a"))]).unwrap();
        assert_eq!((good.experiment, good.sender), (Experiment::Rsc, None));
        for wrong in [text("../../etc", "a"), text("00", "a"), text(NUMBER, "../b"), String::new()]
        {
            assert_eq!(request(&[pair(REQUEST, &wrong)]), None, "{wrong}");
        }
    }

    #[test]
    fn an_answer_of_a_hostile_host_is_bounded_and_cannot_steer_a_terminal() {
        let answer = |line: &str| {
            format!(
                r#"{{"number":"{NUMBER}","outcome":{{"code":0,"text":["{line}"],"report":{{"a":"{line}"}}}}}}"#
            )
        };
        let read = read_answer(&pair("k", &answer("\\u001b[2J"))).unwrap().outcome.unwrap();
        assert_eq!(read.text, ["\u{fffd}[2J"]);
        assert_eq!(read.report["a"], "\u{fffd}[2J");
        assert_eq!(read_answer(&pair("k", &answer(&"x".repeat(LONGEST)))), None);
    }
}
