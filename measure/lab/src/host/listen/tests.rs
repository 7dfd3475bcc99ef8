//! Tests of an agent with well-behaved and hostile peers.

use super::*;
use crate::host::router::PATH;
use crate::host::{Host, Whereabouts};
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddrV4};
use std::thread::JoinHandle;

const TOKEN: &str = "0123456789abcdef";
const BULK: &str = "\"bulk\":{\"connections\":1,\"buffer_bytes\":65536}";

/// An agent that ends with the test, and the lines that it printed.
struct Fixture {
    at: SocketAddr,
    listening: Arc<Listening>,
    thread: Option<JoinHandle<()>>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::for_load(Targets::Any)
    }

    fn for_load(targets: Targets) -> Fixture {
        let said = Arc::<Mutex<Vec<String>>>::default();
        let log = said.clone();
        let say = move |line: &str| log.lock().unwrap().push(line.to_owned());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let token = TOKEN.parse().unwrap();
        let listening = Listening::start(any, (token, targets), Interrupt::default(), say).unwrap();
        let at = listening.address().unwrap();
        let agent = listening.clone();
        let thread = Some(std::thread::spawn(move || agent.serve()));
        Fixture { at, listening, thread, said }
    }

    /// Waits until a printed line contains these words.
    fn wait_for_line(&self, words: &str) {
        let end = Instant::now() + END;
        while !self.said.lock().unwrap().iter().any(|line| line.contains(words)) {
            assert!(Instant::now() < end, "{words} is not among {:?}", self.said.lock());
            std::thread::yield_now();
        }
    }

    /// Connects, sends these bytes and closes its sending side. Returns the agent's answer.
    fn answer_to(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.at).unwrap();
        // The agent may refuse and close before all bytes are sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// Returns a connected client after its first request was served.
    fn served_peer(&self) -> TcpStream {
        let mut peer = TcpStream::connect(self.at).unwrap();
        request(&mut peer, "\"ready\"");
        peer
    }

    /// Connects as a validation does.
    fn host(&self) -> Result<Host, LabError> {
        let whereabouts: Whereabouts = format!("{TOKEN}@{}", self.at).parse().unwrap();
        Host::connect("receiver", &whereabouts, &Interrupt::default())
    }

    /// Waits until the agent accepts the next peer.
    fn wait_until_ready(&self) -> Host {
        loop {
            match self.host() {
                Ok(host) => return host,
                Err(error) => assert!(error.to_string().contains("another experiment"), "{error}"),
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.listening.interrupt.set();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Returns the bytes of a request on the wire.
fn post(token: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {PATH} HTTP/1.1\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// Makes a request that must succeed.
fn request(peer: &mut TcpStream, body: &str) {
    peer.write_all(post(TOKEN, body).as_bytes()).unwrap();
    let mut answer = String::new();
    while !answer.ends_with("{\"is\":\"done\"}") {
        let mut bytes = [0; 1000];
        let length = peer.read(&mut bytes).unwrap();
        assert!(length > 0, "{answer}");
        answer.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
}

#[test]
fn load_goes_nowhere_but_to_the_client_if_that_is_wanted() {
    let agent = Fixture::for_load(Targets::Client);
    let send = |to: &str| {
        agent.answer_to(post(TOKEN, &format!("{{\"send\":{{\"to\":\"{to}\",{BULK}}}}}")).as_bytes())
    };
    let trips = "{\"round_trips\":{\"to\":\"127.0.0.2:4999\",\"milliseconds\":1}}";
    let refused = "this agent sends only to 127.0.0.1, which asks, not to 127.0.0.2";
    for answer in [send("127.0.0.2:5001"), agent.answer_to(post(TOKEN, trips).as_bytes())] {
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(refused), "{answer}");
    }
    // The answer names the port, which must not look like the status of a refusal.
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let unused = std::iter::repeat_with(free).find(|at| !at.contains("403")).unwrap();
    let answer = send(&unused);
    assert!(answer.contains("error") && !answer.contains("403"), "{answer}");
}

/// Eight silent connections kept everybody away for as long as there were more of them.
#[test]
fn silent_connections_of_one_address_keep_no_other_away() {
    let agent = Fixture::new();
    let silent: Vec<_> = (0..100)
        .map(|_| {
            let socket =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
            let socket = socket.unwrap();
            bind(&socket, &SocketAddrV4::new([127, 0, 0, 9].into(), 0)).unwrap();
            connect(&socket, &agent.at).unwrap();
            socket
        })
        .collect();
    drop(agent.served_peer());
    let said = agent.said.lock().unwrap();
    assert!(
        !said.iter().any(|line| line.contains("no request")),
        "their time was not over: {said:?}"
    );
    drop(silent);
}

#[test]
fn a_stranger_is_told_why_and_the_next_one_is_served() {
    let agent = Fixture::new();
    let known = |body: &str| post(TOKEN, body);
    let machine = known("\"machine\"");
    let table = [
        (machine.replace("authorization", "x-token"), "401", "no token was sent"),
        (machine.replace("Bearer", "Basic"), "401", "no token was sent"),
        (post("0123456789abcdeX", "{}"), "401", "token is not the one"),
        (post("0123456789abcde", "{}"), "401", "token is not the one"),
        (post("0123456789abcdef0", "{}"), "401", "token is not the one"),
        (machine.replace("v5", "v77"), "404", "use the same Millrace"),
        (machine.replace("POST", "GET"), "404", "use the same Millrace"),
        (machine.replace("application/json", "text/plain"), "415", "application/json"),
        (known(&" ".repeat(17_000)), "413", "length limit exceeded"),
        (known("[[[[[[[["), "4", "JSON"),
        (known("\"machine"), "400", "JSON"),
        (known("\"dance\""), "422", "dance"),
        (known("{\"answer\":[4999]}"), "422", "keys with values"),
        (known("{\"answer\":{\"port\":4999,\"ports\":1}}"), "422", "unknown field"),
        (
            known("{\"send\":{\"to\":\"127.0.0.1:5001\",\"bulk\":[1,65536]}}"),
            "422",
            "keys with values",
        ),
        (known("{\"run\":{\"program\":\"id\",\"arguments\":[]}}"), "403", "not run programs"),
        (known("{\"start\":{\"program\":\"id\",\"arguments\":[]}}"), "403", "not start programs"),
        (known("{\"become\":{\"program\":\"id\",\"arguments\":[]}}"), "403", "another program"),
        (known("{\"answer\":{\"port\":22}}"), "403", "ports from 1024, not on 22"),
        (
            known("{\"round_trips\":{\"to\":\"1.2.3.4:5\",\"milliseconds\":60001}}"),
            "403",
            "the maximum is 60000",
        ),
        (machine.replace("\r\n\r\n", &format!("\r\nx: {}\r\n\r\n", "x".repeat(20_000))), "", ""),
        ("{\"do\":\"hello\",\"protocol\":3}\n".to_owned(), "400", ""),
        (machine.replace("content-length: 9", "content-length: 10"), "", ""),
    ];
    for (bytes, status, why) in table {
        let answer = agent.answer_to(bytes.as_bytes());
        // If much was still unread, the kernel may have discarded the answer.
        let told = answer.contains(why) && answer.contains(&format!("HTTP/1.1 {status}"));
        assert!(told || bytes.len() > 15_000 || status.is_empty(), "{bytes:.80}: {answer}");
        assert!(!answer.contains("200 OK"), "{bytes:.80}: {answer}");
        agent.wait_for_line(why);
    }
    drop(agent.wait_until_ready());
    let said = agent.said.lock().unwrap();
    assert!(!said.iter().any(|line| line.contains(TOKEN)), "{said:?}");
}

#[test]
fn a_refusal_is_the_end_of_the_conversation() {
    let agent = Fixture::new();
    let run = "{\"run\":{\"program\":\"id\",\"arguments\":[]}}";
    for first in [post("0123456789abcdeX", "\"ready\""), post(TOKEN, run)] {
        let answer = agent.answer_to((first + &post(TOKEN, "\"ready\"")).as_bytes());
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
}

#[test]
fn one_experiment_runs_and_the_second_is_told() {
    let agent = Fixture::new();
    let first = agent.served_peer();
    let error = agent.host().err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("another experiment is running on this agent"), "{error}");
    drop(first);
    drop(agent.wait_until_ready());
}

#[test]
fn a_peer_that_vanishes_takes_its_load_with_it() {
    let agent = Fixture::new();
    let mut peer = agent.served_peer();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    request(&mut peer, &format!("{{\"listen\":{{\"at\":\"127.0.0.1:{port}\",{BULK}}}}}"));
    request(&mut peer, &format!("{{\"send\":{{\"to\":\"127.0.0.1:{port}\",{BULK}}}}}"));
    // The peer disconnects in the middle of a request.
    peer.write_all(b"POST").unwrap();
    drop(peer);
    drop(agent.wait_until_ready());
    TcpListener::bind(("127.0.0.1", port)).expect("nobody listens any more");
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out() {
    let agent = Fixture::new();
    let silent: Vec<TcpStream> =
        (0..PEERS_MAX).map(|_| TcpStream::connect(agent.at).unwrap()).collect();
    drop(agent.wait_until_ready());
    drop(silent);
}

#[test]
fn a_byte_now_and_then_wins_no_time() {
    let agent = Fixture::new();
    let peer = Peer::new(&agent.listening, agent.at, None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.state().until = Instant::now() + 5 * GLANCE;
    let writer = std::thread::spawn(move || {
        slow.write_all(b"POST / HTTP/1.1\r\nx: ").unwrap();
        // Waits until the agent has ended.
        while slow.write_all(b"x").is_ok() {
            std::thread::sleep(GLANCE / 50);
        }
    });
    peer.meet(listener.accept().unwrap().0);
    agent.wait_for_line("the client made no request for too long");
    writer.join().unwrap();
}

#[test]
fn a_peer_that_asks_on_is_told_that_the_agent_was_interrupted() {
    let agent = Fixture::new();
    let mut peer = agent.served_peer();
    agent.listening.interrupt.set();
    peer.write_all(post(TOKEN, "\"ready\"").as_bytes()).unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(INTERRUPTED), "{answer}");
}

#[test]
fn an_interrupt_ends_an_experiment_that_runs() {
    let agent = Fixture::new();
    let mut peer = agent.served_peer();
    agent.listening.interrupt.set();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    agent.wait_for_line("interrupted");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_bytes_come_the_agent_lives(
        known in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        lines in proptest::collection::vec("[ -~]{0,60}", 0..3),
    ) {
        // One agent serves all peers of this test.
        static AGENT: std::sync::LazyLock<Fixture> = std::sync::LazyLock::new(Fixture::new);
        let mut said = if known { post(TOKEN, "\"ready\"").into_bytes() } else { Vec::new() };
        said.extend(lines.join("\r\n").into_bytes());
        said.extend(bytes);
        AGENT.answer_to(&said);
        drop(AGENT.wait_until_ready());
    }
}
