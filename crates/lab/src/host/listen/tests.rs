//! An agent and its enemies.

use super::*;
use crate::host::{Host, Whereabouts};
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::thread::JoinHandle;

const TOKEN: &str = "0123456789abcdef";

/// An agent that ends with the test, and what it said.
struct Fixture {
    at: SocketAddr,
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new() -> Fixture {
        let (interrupt, said) = (Interrupt::default(), Arc::<Mutex<Vec<String>>>::default());
        let log = said.clone();
        let say = move |line: &str| log.lock().unwrap().push(line.to_owned());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let token = TOKEN.parse().unwrap();
        let listening = Listening::start(any, token, interrupt.clone(), say).unwrap();
        let at = listening.address().unwrap();
        let thread = Some(std::thread::spawn(move || listening.serve()));
        Fixture { at, interrupt, thread, said }
    }

    /// Waits for a line with these words.
    fn comes_to_say(&self, words: &str) {
        let end = Instant::now() + ANSWER;
        while !self.said.lock().unwrap().iter().any(|line| line.contains(words)) {
            assert!(Instant::now() < end, "{words} is not among {:?}", self.said.lock());
            std::thread::yield_now();
        }
    }

    /// A peer that says these bytes and then closes its side. What it is answered.
    fn hears(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.at).unwrap();
        // It may be refused before it has said everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    /// A peer whose token was taken.
    fn friend(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.write_all(hello(TOKEN).as_bytes()).unwrap();
        let mut friend = BufReader::new(stream);
        assert_eq!(line(&mut friend), "{\"is\":\"done\"}");
        friend
    }

    /// Connects as a validation does.
    fn host(&self) -> Result<Host, LabError> {
        let whereabouts: Whereabouts = format!("{TOKEN}@{}", self.at).parse().unwrap();
        Host::connect("receiver", &whereabouts)
    }

    /// Waits until the agent takes the next one.
    fn is_ready(&self) -> Host {
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
        self.interrupt.set();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn hello(token: &str) -> String {
    format!("{{\"do\":\"hello\",\"protocol\":{PROTOCOL},\"token\":\"{token}\"}}\n")
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn a_stranger_is_told_why_and_the_next_one_is_served() {
    let agent = Fixture::new();
    let long = "x".repeat(100_000);
    let table = [
        ("{\"do\":\"machine\"}\n".to_owned(), "no token was sent"),
        (hello("0123456789abcdeX"), "token is not the one"),
        (hello(""), "token is not the one"),
        (hello(TOKEN).replace(":3,", ":77,"), "speaks version 3, not 77"),
        (hello(TOKEN).trim_end().to_owned(), "middle of a line"),
        (long, "longer than 16384 bytes"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "not a request"),
        (
            hello(TOKEN) + "{\"do\":\"run\",\"program\":\"id\",\"arguments\":[]}\n",
            "not run programs",
        ),
        (hello(TOKEN) + "[[[[[[[[\n", "not a request"),
        (hello(TOKEN) + &hello(TOKEN), "sent once"),
    ];
    for (bytes, why) in table {
        let answer = agent.hears(bytes.as_bytes());
        // Where much was still unread, the kernel may have taken the answer back.
        let told = answer.contains(why) || bytes.len() > 20_000;
        assert!(told, "{bytes:.80}: {answer}");
        agent.comes_to_say(why);
    }
    drop(agent.is_ready());
}

#[test]
fn one_experiment_runs_and_the_second_is_told() {
    let agent = Fixture::new();
    let first = agent.friend();
    let error = agent.host().err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("another experiment is running here"), "{error}");
    drop(first);
    drop(agent.is_ready());
}

#[test]
fn a_peer_that_vanishes_takes_its_load_with_it() {
    let agent = Fixture::new();
    let mut peer = agent.friend();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bulk = "\"bulk\":{\"connections\":1,\"buffer_bytes\":65536}";
    let listen = format!("{{\"do\":\"listen\",\"at\":\"127.0.0.1:{port}\",{bulk}}}\n");
    let send = format!("{{\"do\":\"send\",\"to\":\"127.0.0.1:{port}\",{bulk}}}\n");
    for request in [listen, send] {
        peer.get_mut().write_all(request.as_bytes()).unwrap();
        assert_eq!(line(&mut peer), "{\"is\":\"done\"}");
    }
    // In the middle of a request.
    peer.get_mut().write_all(b"{\"do\":").unwrap();
    drop(peer);
    drop(agent.is_ready());
    TcpListener::bind(("127.0.0.1", port)).expect("nobody listens any more");
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_out() {
    let agent = Fixture::new();
    let silent: Vec<TcpStream> =
        (0..PEERS_MAX - 1).map(|_| TcpStream::connect(agent.at).unwrap()).collect();
    drop(agent.is_ready());
    drop(silent);
}

#[test]
fn an_interrupt_ends_an_experiment_that_runs() {
    let agent = Fixture::new();
    let mut peer = agent.friend();
    agent.interrupt.set();
    assert!(line(&mut peer).contains("interrupted"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_bytes_come_the_agent_lives(
        known in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        lines in proptest::collection::vec("[ -~]{0,60}", 0..3),
    ) {
        // One agent for all of them.
        static AGENT: std::sync::LazyLock<Fixture> = std::sync::LazyLock::new(Fixture::new);
        let mut said = if known { hello(TOKEN).into_bytes() } else { Vec::new() };
        said.extend(lines.join("\n").into_bytes());
        said.extend(bytes);
        AGENT.hears(&said);
        drop(AGENT.is_ready());
    }
}
