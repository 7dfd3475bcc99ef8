//! The host's part in `fleet mtu`: a responder, and while a check runs a thread that probes the
//! host's peers. The agent's rounds never wait for either.
//!
//! The thread orders its probes from this host's own responder, by a session with a token that only
//! this process knows. That session also makes the responder acknowledge probes with the check's
//! badge. Nothing in etcd can make the responder send.

use super::watcher::News;
use super::written::Written;
use crate::Name;
use crate::etcd::Lease;
use crate::store::{MtuAnswer, MtuPlan, MtuRequest, Store};
use path_mtu::frame::Badge;
use path_mtu::judge::Observation;
use path_mtu::probing::{Prober, Probing};
use path_mtu::session::{Host, Session};
use path_mtu::{Options, Responder, device_mtu};
use problem::Problem;
use problem::token::{Token, Whereabouts};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time an agent ends its part, even if the request is still in etcd.
const LIMIT: Duration = Duration::from_secs(600);
/// A session is renewed at this interval, since a responder ends one that is silent for two
/// minutes.
const RENEW: Duration = Duration::from_secs(60);
/// The interval between attempts to start the responder, while its address does not exist yet.
const RETRY: Duration = Duration::from_secs(10);

/// The host's part in `fleet mtu`.
pub(super) struct Paths {
    host: Name,
    /// The address at which the responder listens; `None` if this host has none.
    address: Option<SocketAddr>,
    /// The running responder, and the data by which this process connects to it.
    responder: Option<(Responder, Host)>,
    /// When starting it was last tried.
    tried: Option<Instant>,
    /// Wakes the agent when there is an answer.
    news_sender: Sender<News>,
    check: Option<Check>,
    /// The badge of the last check, so that a check is begun only once.
    last: String,
    written: Written<MtuAnswer>,
}

/// A running check. Its thread ends once `plans` is dropped.
struct Check {
    plans: Sender<MtuPlan>,
    /// Whether the thread has the plan.
    planned: bool,
    answer: Arc<Mutex<Option<MtuAnswer>>>,
}

impl Paths {
    pub(super) fn new(
        host: &Name,
        address: Option<SocketAddr>,
        news_sender: Sender<News>,
    ) -> Paths {
        let mut paths = Paths {
            host: host.clone(),
            address,
            responder: None,
            tried: None,
            news_sender,
            check: None,
            last: String::new(),
            written: Written::default(),
        };
        paths.listen(Instant::now());
        paths
    }

    /// Returns the address at which the responder listens.
    pub(super) fn responder(&self) -> Option<SocketAddr> {
        self.responder.as_ref().map(|(responder, _)| responder.address())
    }

    /// Starts the responder, unless it runs.
    pub(super) fn listen(&mut self, now: Instant) {
        let Some(address) = self.address.filter(|_| self.responder.is_none()) else { return };
        if self.tried.is_some_and(|tried| now.duration_since(tried) < RETRY) {
            return;
        }
        match start(address, &self.host) {
            Ok(started) => self.responder = Some(started),
            Err(problem) if self.tried.is_none() => tracing::warn!("{problem}"),
            Err(problem) => tracing::debug!("{problem}"),
        }
        self.tried = Some(now);
    }

    /// Begins, continues or ends this host's part as the request in etcd says.
    pub(super) fn hear(&mut self, request: Option<&MtuRequest>) {
        let Some(request) = request else {
            self.check = None;
            return;
        };
        if self.last != request.badge {
            self.last.clone_from(&request.badge);
            self.check = self.begin(request);
        }
        if let (Some(check), Some(plan)) = (&mut self.check, &request.plan)
            && !check.planned
        {
            // If this fails, the thread has ended, and has answered why.
            let _ = check.plans.send(plan.clone());
            check.planned = true;
        }
    }

    fn begin(&self, request: &MtuRequest) -> Option<Check> {
        let ((_, own), badge) = (self.responder.as_ref()?, request.badge()?);
        let (plans, receiver) = channel();
        let answer = Arc::new(Mutex::new(None));
        let (told, news_sender) = (Arc::clone(&answer), self.news_sender.clone());
        let tell = move |answer: &MtuAnswer| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.clone());
            // If this fails, the agent has ended and needs no answer.
            let _ = news_sender.send(News::Answer);
        };
        let part = Part { own: own.clone(), host: self.host.clone(), badge, plans: receiver };
        let empty = MtuAnswer { badge: request.badge.clone(), ..MtuAnswer::default() };
        let thread = std::thread::Builder::new().name("mtu".into());
        thread.spawn(move || part.run(empty, &tell)).ok()?;
        tracing::info!("{} checks MTUs: probing paths to other hosts", request.author);
        Some(Check { plans, planned: false, answer })
    }

    /// Writes the answer to a check under the lease, and deletes it after the check.
    pub(super) fn write_answer(
        &mut self,
        store: &Store,
        lease: Option<Lease>,
    ) -> Result<(), Problem> {
        let (answer, host) = (self.answer(), &self.host);
        self.written.set(
            answer,
            lease,
            |answer, lease| store.answer_mtu(host, answer, lease),
            || store.forget_mtu(host),
        )
    }

    /// Returns the current answer.
    fn answer(&self) -> Option<MtuAnswer> {
        let answer = &self.check.as_ref()?.answer;
        answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts a responder with a token of its own.
fn start(address: SocketAddr, host: &Name) -> Result<(Responder, Host), Problem> {
    let failed = |error: std::io::Error| {
        Problem::new(format!("the responder for `fleet mtu` cannot listen on {address}"))
            .seen(error)
            .wanted("an address of this host, and a port that is free for TCP and UDP")
            .remedy("check --mtu-address; it is tried again every 10 s, and the agent follows etcd meanwhile")
    };
    let token = Token::random().map_err(failed)?;
    let responder = Responder::start(Options::new(address, token.clone())).map_err(failed)?;
    let at = Whereabouts { token, at: responder.address().to_string() };
    Ok((responder, Host { name: host.to_string(), at, netns: None }))
}

/// The state of a check's thread.
struct Part {
    own: Host,
    host: Name,
    badge: Badge,
    plans: Receiver<MtuPlan>,
}

impl Part {
    fn run(&self, mut answer: MtuAnswer, tell: &dyn Fn(&MtuAnswer)) {
        let begun = Instant::now();
        let (own, badge) = (&self.own, self.badge);
        let open = || Session::open(own, badge);
        let session = match open() {
            Ok(session) => session,
            Err(problem) => {
                answer.problem = Some(problem);
                return tell(&answer);
            }
        };
        answer.ready = true;
        answer.device_mtu = device_mtu(session.address().ip()).unwrap_or_default();
        tell(&answer);
        let Ok(plan) = self.plans.recv_timeout(LIMIT) else { return };
        match probe(&plan, &self.host, open) {
            None => {}
            Some(Ok(directions)) => answer.directions = Some(directions),
            Some(Err(problem)) => answer.problem = Some(problem),
        }
        tell(&answer);
        // Other hosts may still probe this one.
        let mut session = Ok(session);
        while begun.elapsed() < LIMIT
            && matches!(self.plans.recv_timeout(RENEW), Err(RecvTimeoutError::Timeout))
        {
            let next = open();
            drop(std::mem::replace(&mut session, next));
        }
    }
}

/// Probes the directions that the plan gives this host. Returns the observations; `None` if the
/// plan leaves the host out.
pub(crate) fn probe<P: Prober>(
    plan: &MtuPlan,
    host: &Name,
    open: impl Fn() -> Result<P, Problem> + Sync,
) -> Option<Result<Vec<Observation>, Problem>> {
    let place = plan.hosts.iter().position(|(name, _)| name == host)?;
    let addresses = plan.hosts.iter().map(|(_, address)| *address).collect();
    let probing = Probing { addresses, wanted: plan.mtu };
    Some(probing.host(place, &plan.peers_of(place), open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use waiting::until;

    fn request(badge: u8, plan: Option<MtuPlan>) -> MtuRequest {
        let badge = format!("{badge:032x}");
        MtuRequest { badge, author: "me".to_owned(), since: 0, plan }
    }

    fn paths(last: u8) -> (Paths, Receiver<News>) {
        let (news_sender, news) = channel();
        let host = format!("h{last}").parse().unwrap();
        let address = SocketAddr::from(([127, 0, 9, last], 0));
        (Paths::new(&host, Some(address), news_sender), news)
    }

    fn plan(all: &[&Paths]) -> MtuPlan {
        let hosts = all.iter().map(|it| (it.host.clone(), it.responder().unwrap())).collect();
        MtuPlan { mtu: 9000, peers: None, seed: 1, hosts }
    }

    #[test]
    fn two_hosts_get_ready_and_probe_each_other_once_they_have_the_plan() {
        let ((mut a, news), (mut b, _)) = (paths(1), paths(2));
        let both = plan(&[&a, &b]);
        for it in [&mut a, &mut b] {
            it.hear(Some(&request(1, None)));
        }
        assert_eq!(news.recv_timeout(Duration::from_secs(10)), Ok(News::Answer));
        until("both are ready", || {
            [&a, &b].iter().all(|it| it.answer().is_some_and(|it| it.ready))
        });
        for it in [&mut a, &mut b] {
            it.hear(Some(&request(1, Some(both.clone()))));
        }
        for it in [&a, &b] {
            until("they have probed", || it.answer().is_some_and(|it| it.directions.is_some()));
            let answer = it.answer().unwrap();
            // No device has this address as its own.
            assert_eq!((answer.device_mtu, answer.problem), (0, None));
            assert_eq!(answer.directions.unwrap()[0].carried, 9000);
        }
        a.hear(None);
        assert!(a.answer().is_none());
        // The same check does not begin again, and another does.
        a.hear(Some(&request(1, Some(both))));
        assert!(a.check.is_none());
        a.hear(Some(&request(2, None)));
        assert!(a.check.is_some());
    }

    #[test]
    fn a_plan_without_this_host_has_it_probe_nothing() {
        let ((mut a, _), (b, _)) = (paths(3), paths(4));
        a.hear(Some(&request(1, Some(plan(&[&b])))));
        until("it is ready", || a.answer().is_some_and(|it| it.ready));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(a.answer().unwrap().directions, None);
    }

    #[test]
    fn an_address_that_is_not_there_is_no_responder_and_no_error() {
        let (news_sender, _) = channel();
        let address = "192.0.2.1:0".parse().unwrap();
        let mut paths = Paths::new(&"a".parse().unwrap(), Some(address), news_sender);
        paths.hear(Some(&request(1, None)));
        assert!(paths.responder().is_none() && paths.check.is_none());
    }
}
