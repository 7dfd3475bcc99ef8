//! Many agents in one process follow one real etcd. Measures how soon a change of a network reaches
//! every host, what a restart of etcd costs, how many requests an idle fleet makes, and how long
//! `fleet mtu` takes. The agents are the real ones; their switches do nothing.
//!
//! `cargo run -p millrace-fleet --example many_agents -- PATH_OF_ETCD [AGENTS] [IDLE_SECONDS]`
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a failure ends the measurement, whose output is for people"
)]

use api::body::{Origin, PlanBody};
use api::client::ClientError;
use config::{Config, PortConfig};
use fleet::agent::{self, Look, Options, Switch};
use fleet::configuration::Host;
use fleet::etcd::{Access, Etcd, Identity};
use fleet::model::Model;
use fleet::store::{Phase, Store};
use fleet::{Apply, CheckMtu};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ADDRESS: &str = "127.0.0.1:2379";
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// The ports that the agent gave the switch last, and when.
type Given = Arc<Mutex<(Vec<PortConfig>, Instant)>>;

/// A switch that does nothing.
struct Stub {
    given: Given,
    start: Instant,
}

impl Switch for Stub {
    fn look(&self) -> Result<Look, ClientError> {
        let ports = self.given.lock().unwrap().0.clone().into_iter();
        Ok(Look {
            version: "stub".to_owned(),
            uptime_s: self.start.elapsed().as_secs(),
            workers: 1,
            findings: Vec::new(),
            ports: ports.map(|port| (port.name.clone(), (Origin::Fleet, port))).collect(),
        })
    }

    fn drops(&self) -> Result<BTreeMap<String, u64>, ClientError> {
        Ok(BTreeMap::new())
    }

    fn put(&self, _revision: u64, ports: &[PortConfig]) -> Result<PlanBody, ClientError> {
        *self.given.lock().unwrap() = (ports.to_vec(), Instant::now());
        let etag = String::new();
        Ok(PlanBody { steps: Vec::new(), applied: true, etag, config: Config::default() })
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().expect("the path of etcd");
    let count: usize = arguments.next().map_or(1000, |it| it.parse().expect("a number of agents"));
    let idle: u64 = arguments.next().map_or(30, |it| it.parse().expect("seconds"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut etcd = Running::start(&program, folder.path());
    let store = Store::new(Etcd::new(access()).expect("a client"));

    let begun = Instant::now();
    let all: Vec<Given> = (0..count).map(|number| start(number, folder.path())).collect();
    until("all agents are registered", || {
        let hosts = store.hosts().unwrap_or_default();
        (hosts.iter().filter(|host| host.status.is_some()).count() == count).then_some(())
    });
    println!("{count} agents registered after {:.1} s", begun.elapsed().as_secs_f64());
    change(&store, &all, 1500, "the first revision");
    change(&store, &all, 1400, "a change of one network");

    check_mtu(&store);

    let (before, size) = (requests(), figure("etcd_mvcc_db_total_size_in_bytes"));
    std::thread::sleep(Duration::from_secs(idle));
    let rate = (requests() - before) / idle as f64;
    let grown = figure("etcd_mvcc_db_total_size_in_bytes") - size;
    println!(
        "idle for {idle} s: {rate:.0} requests a second; the database had {size} bytes and grew by {grown}"
    );

    etcd.end();
    std::thread::sleep(Duration::from_secs(15));
    let mut etcd = Running::start(&program, folder.path());
    let restarted = Instant::now();
    let watch = std::thread::spawn(move || {
        let rates = (0..20).map(|_| {
            let before = requests();
            std::thread::sleep(Duration::from_secs(1));
            requests() - before
        });
        rates.collect::<Vec<f64>>()
    });
    change(&store, &all, 1300, "a change right after etcd was restarted");
    println!("all have it {:.1} s after the restart", restarted.elapsed().as_secs_f64());
    println!("requests in each second after the restart: {:?}", watch.join().expect("it counts"));
    etcd.end();
    // Agents run until the process ends.
    std::process::exit(0);
}

/// Returns an address of loopback for each host's responder.
fn responder(number: usize) -> SocketAddr {
    let (high, low) = (u8::try_from(number / 250).unwrap(), u8::try_from(number % 250).unwrap());
    SocketAddr::from(([127, 2, high, low + 1], 5910))
}

/// Has all agents probe each other over loopback, which carries everything, and prints how long
/// that takes.
fn check_mtu(store: &Store) {
    let check = CheckMtu {
        mtu: Some(9000),
        peers: None,
        seed: 1,
        wait: STEP_TIMEOUT,
        author: "many_agents".to_owned(),
    };
    let begun = Instant::now();
    let tell = &mut |line: &str| println!("  {:.1} s: {line}", begun.elapsed().as_secs_f64());
    let report = check.run(store, tell, &|| false).expect("etcd answers").expect("a report");
    let (hosts, directions) = (report.hosts.len(), report.directions.len());
    println!(
        "fleet mtu: {hosts} hosts, {directions} directions, {} findings, {} unchecked: {:.1} s",
        report.findings.len(),
        report.unchecked.len(),
        begun.elapsed().as_secs_f64()
    );
    report.unchecked.iter().take(3).for_each(|problem| println!("{problem}"));
}

/// Starts the agent of a host with one port.
fn start(number: usize, folder: &Path) -> Given {
    let given: Given = Arc::new(Mutex::new((Vec::new(), Instant::now())));
    let name = format!("h{number}").parse().expect("a name");
    let options = Options {
        host: Host { name, labels: BTreeMap::new() },
        etcd: access(),
        state_directory: folder.join(format!("agent-{number}")),
        metrics: None,
        mtu_address: Some(responder(number)),
        lab: None,
    };
    let stub = Stub { given: Arc::clone(&given), start: Instant::now() };
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(move || agent::run(options, Box::new(stub)).map(|never| match never {}))
        .expect("a thread");
    given
}

/// Applies a network with this MTU, and prints how soon the hosts' switches have it.
fn change(store: &Store, all: &[Given], mtu: u16, what: &str) {
    let apply = Apply {
        model: model(all.len(), mtu),
        author: "many_agents".to_owned(),
        message: what.to_owned(),
        base: None,
        back_to: None,
        at_once: false,
        rollback_on_failure: false,
    };
    let mut written = None;
    let applied = apply.run(store, &mut |_| {
        written.get_or_insert_with(Instant::now);
    });
    let applied = applied.unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(applied.phase, Phase::Done, "{}", applied.reason);
    let written = written.expect("a step");
    let mut seconds: Vec<f64> = all
        .iter()
        .map(|given| {
            let (ports, at) = &*given.lock().unwrap();
            assert_eq!(ports[0].mtu.map(|mtu| mtu.0), Some(mtu));
            at.duration_since(written).as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let at = |percent: usize| seconds[(seconds.len() * percent).div_ceil(100) - 1];
    println!("{what}: half {:.2} s, 99 % {:.2} s, all {:.2} s", at(50), at(99), at(100));
}

fn model(count: usize, mtu: u16) -> Model {
    let mut text = format!(
        "version = 1\n[[network]]\nname = 'n'\nmtu = {mtu}\n\
         [rollout]\nsteps = ['100%']\nwait = '120s'\nsoak = '1s'\n"
    );
    for number in 0..count {
        let (high, low) = (number / 256, number % 256);
        let _ = writeln!(
            text,
            "[[port]]\nname = 'p{number}'\nnetwork = 'n'\nhost = 'h{number}'\n\
             mac = '02:00:00:00:{high:02x}:{low:02x}'\ntap = 't{number}'"
        );
    }
    Model::from_toml("many", &text).expect("a model")
}

fn access() -> Arc<Access> {
    let endpoint = format!("http://{ADDRESS}").parse().expect("an endpoint");
    Arc::new(Access::new(&[endpoint], &Identity::default(), false).expect("no files"))
}

/// A running etcd.
struct Running(Child);

impl Running {
    fn start(program: &str, folder: &Path) -> Running {
        let log = std::fs::File::create(folder.join("etcd.log")).expect("a log");
        let child = Command::new(program)
            .args(["--data-dir", "etcd", "--log-level", "error"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd");
        until("etcd listens", || TcpStream::connect(ADDRESS).ok());
        Running(child)
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many requests etcd has served.
fn requests() -> f64 {
    figure("grpc_server_handled_total")
}

/// Returns the sum of a metric of etcd; 0 while etcd does not answer.
fn figure(name: &str) -> f64 {
    let Ok(mut stream) = TcpStream::connect(ADDRESS) else { return 0.0 };
    let mut text = String::new();
    let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
    let _ = stream.read_to_string(&mut text);
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Waits longer than for one agent.
fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    let answer = waiting::within(STEP_TIMEOUT, ask);
    answer.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}
