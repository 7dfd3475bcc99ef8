//! Our end of a conversation with a host: one request after the other, each waited for as long as
//! its kind takes.

use super::protocol::{Reply, Request};
use super::router::PATH;
use crate::interrupt::Interrupt;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use problem::token::Whereabouts;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// An agent that cannot be reached by then, at all addresses of its name together, does not listen.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an agent's answer is still waited for once we are interrupted.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often we look whether we are.
const GLANCE: Duration = Duration::from_millis(50);
/// Longest answer of a child, in bytes: it may run programs that print much.
const CHILD_ANSWER_MAX: usize = 16 << 20;
/// Longest answer of an agent, in bytes.
const AGENT_ANSWER_MAX: usize = 64 << 10;

/// See the module. The conversation ends when it is dropped.
pub(super) struct Client {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    /// An agent's token as it is sent; empty of a child.
    bearer: String,
    /// Our address and an agent's, as they see each other.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    /// An agent that dawdles must not keep us from putting back what we have changed; of a child
    /// never set.
    interrupt: Interrupt,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// It has not come in time. When it does, it is read and forgotten.
    Late,
    /// We were interrupted, and it has not come in a moment.
    Interrupted,
    /// The host has ended the conversation, or speaks something else: what was seen of it.
    Gone(String),
}

impl Client {
    /// Of a child, at the other end of this stream.
    pub(super) fn of_child(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Client::over(async { tokio::net::UnixStream::from_std(stream) }, String::new())
    }

    /// Of an agent.
    pub(super) fn of_agent(at: &Whereabouts, interrupt: &Interrupt) -> io::Result<Client> {
        let mut addresses = None;
        let connected = async {
            let all: Vec<_> = timeout(CONNECT, lookup_host(&at.at)).await??.collect();
            let stream = connect(&all, CONNECT).await?;
            stream.set_nodelay(true)?;
            addresses = Some((stream.local_addr()?.ip(), stream.peer_addr()?.ip()));
            Ok(stream)
        };
        let client = Client::over(connected, format!("Bearer {}", at.token))?;
        Ok(Client { addresses, interrupt: interrupt.clone(), ..client })
    }

    fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        connected: impl Future<Output = io::Result<S>>,
        bearer: String,
    ) -> io::Result<Client> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (sender, connection) = runtime.block_on(async {
            handshake(TokioIo::new(connected.await?)).await.map_err(io::Error::other)
        })?;
        runtime.spawn(connection);
        let interrupt = Interrupt::default();
        Ok(Client { runtime, sender, bearer, addresses: None, interrupt })
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request, patience: Duration) -> Result<Reply, Lost> {
        let Client { runtime, sender, bearer, interrupt, .. } = self;
        let answer = runtime.block_on(async {
            tokio::select! {
                answer = exchange(sender, bearer, request) => Ok(answer),
                () = sleep(patience) => Err(Lost::Late),
                () = hurried(interrupt), if !bearer.is_empty() => Err(Lost::Interrupted),
            }
        });
        answer?.map_err(|why| Lost::Gone(with_causes(&*why)))
    }
}

/// Ends a moment after the interrupt.
async fn hurried(interrupt: &Interrupt) {
    while !interrupt.is_set() {
        sleep(GLANCE).await;
    }
    sleep(FAREWELL).await;
}

/// The first address that answers, each within an equal part of the time; otherwise why the last
/// one did not.
async fn connect(all: &[SocketAddr], time: Duration) -> io::Result<TcpStream> {
    let part = time / u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
    let mut failed = io::Error::other("the name has no address");
    for address in all {
        match timeout(part, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = error,
            Err(late) => failed = late.into(),
        }
    }
    Err(failed)
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    bearer: &str,
    request: &Request,
) -> Result<Reply, Box<dyn Error + Send + Sync>> {
    let body = Full::from(serde_json::to_vec(request)?);
    let post = hyper::Request::post(PATH).header(HOST, "millrace").header(AUTHORIZATION, bearer);
    let post = post.header(CONTENT_TYPE, "application/json").body(body)?;
    sender.ready().await?;
    let answer = sender.send_request(post);
    // A task of its own reads the answer to its end, also if it is no longer waited for: the next
    // one comes after it.
    let most = if bearer.is_empty() { CHILD_ANSWER_MAX } else { AGENT_ANSWER_MAX };
    let body = async move { Limited::new(answer.await?.into_body(), most).collect().await };
    let answer = tokio::spawn(body).await??.to_bytes();
    serde_json::from_slice(&answer).map_err(|_| {
        let text = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
        format!("an answer that is none of Millrace's: {text:?}").into()
    })
}

/// An error and what caused it: hyper's own words leave the cause out.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::router::{Refusal, router, serve};
    use axum::http::StatusCode;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A host that tells what it is asked and gives the answers that the test has for it, as long
    /// as it has some.
    fn host(
        asked: Sender<Request>,
        answers: Receiver<Reply>,
    ) -> (Client, JoinHandle<io::Result<()>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let open = || tokio::net::UnixStream::from_std(theirs);
        let router = router(move |request| {
            asked.send(request).unwrap();
            answers.recv().map_err(|_| Refusal(StatusCode::GONE, "no more".into()))
        });
        let served = std::thread::spawn(move || serve(open, router, std::future::pending()));
        (Client::of_child(ours).unwrap(), served)
    }

    #[test]
    fn an_answer_that_came_too_late_is_not_taken_for_the_next_one() {
        let ((asked, questions), (answer, answers)) = (channel(), channel());
        let (mut client, served) = host(asked, answers);
        // However often it is asked, it hears the first question alone: that has no answer yet.
        while questions.try_recv().is_err() {
            let late = client.ask(&Request::StopSending, Duration::from_millis(20));
            assert!(matches!(late, Err(Lost::Late)), "{late:?}");
        }
        for words in ["late", "in time"] {
            answer.send(Reply::done(words)).unwrap();
        }
        assert_eq!(client.ask(&Request::Machine, PATIENCE).unwrap(), Reply::done("in time"));
        assert_eq!(questions.try_iter().collect::<Vec<_>>(), [Request::Machine]);
        drop(client);
        served.join().unwrap().unwrap();
    }

    #[test]
    fn an_agent_that_dawdles_is_not_waited_for_once_we_are_interrupted() {
        let ((asked, questions), (answer, answers)) = (channel(), channel());
        let (child, served) = host(asked, answers);
        let interrupt = Interrupt::default();
        let bearer = "Bearer x".to_owned();
        let mut agent = Client { bearer, interrupt: interrupt.clone(), ..child };
        let asking = std::thread::spawn(move || agent.ask(&Request::Machine, PATIENCE));
        questions.recv().unwrap();
        let begun = std::time::Instant::now();
        interrupt.set();
        assert!(matches!(asking.join().unwrap(), Err(Lost::Interrupted)));
        assert!(begun.elapsed() < PATIENCE / 2);
        drop(answer);
        // The conversation broke off with a request that has no answer.
        let _ = served.join().unwrap();
    }

    #[test]
    fn an_address_that_never_answers_leaves_time_for_the_next_one() {
        let bound = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (deaf, live) = (bound(), bound());
        // The kernel ignores those who come when its queue is full.
        rustix::net::listen(&deaf, 0).unwrap();
        let full = deaf.local_addr().unwrap();
        let come = |_| std::net::TcpStream::connect_timeout(&full, Duration::from_millis(50));
        let queue: Vec<_> = (0..3).map(come).collect();
        assert!(queue.iter().any(Result::is_err), "{queue:?}");
        let at = live.local_addr().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let reached = |all: &[SocketAddr]| {
            runtime.block_on(connect(all, Duration::from_secs(1))).map(|stream| stream.peer_addr())
        };
        assert_eq!(reached(&[full, at]).unwrap().unwrap(), at);
        assert_eq!(reached(&[full]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(reached(&[]).unwrap_err().to_string().contains("no address"));
    }

    #[test]
    fn a_long_answer_comes_whole_and_a_refusal_is_the_last() {
        let ((asked, _questions), (answer, answers)) = (channel(), channel());
        let (mut client, served) = host(asked, answers);
        let long = Reply::done("x".repeat(3 << 20));
        answer.send(long.clone()).unwrap();
        assert_eq!(client.ask(&Request::Machine, PATIENCE).unwrap(), long);
        drop(answer);
        let refused = client.ask(&Request::Machine, PATIENCE).unwrap();
        assert_eq!(refused, Reply::Error { message: "no more".into() });
        let gone = client.ask(&Request::Machine, PATIENCE);
        assert!(matches!(&gone, Err(Lost::Gone(why)) if !why.is_empty()), "{gone:?}");
        served.join().unwrap().unwrap();
    }
}
