//! The client's end of a conversation with a host: one request at a time, each with a timeout of
//! its own.

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

/// Timeout of connecting to an agent, over all addresses of its name together.
const CONNECT: Duration = Duration::from_secs(5);
/// How long to wait for an agent's answer after the interrupt.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often the interrupt is checked.
const GLANCE: Duration = Duration::from_millis(50);
/// Maximum length of a child's answer, in bytes; a child runs programs that may print much.
const CHILD_ANSWER_MAX: usize = 16 << 20;
/// Maximum length of an agent's answer, in bytes.
const AGENT_ANSWER_MAX: usize = 64 << 10;

/// A connection to a host; dropping it ends the conversation.
pub(super) struct Client {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    /// Value of the `Authorization` header for an agent; empty for a child.
    bearer: String,
    /// Local and remote address of the connection to an agent; `None` for a child.
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    /// Cuts the wait for a slow agent short, so that what the lab has changed is restored soon.
    /// Never set for a child.
    interrupt: Interrupt,
}

/// Reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// The timeout has passed. An answer that arrives later is read and discarded.
    Late,
    /// The interrupt was set, and no answer arrived shortly after it.
    Interrupted,
    /// The host ended the conversation, or does not speak the protocol: the reason.
    Gone(String),
}

impl Client {
    /// Returns a client of the child at the other end of `stream`.
    pub(super) fn of_child(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Client::over(async { tokio::net::UnixStream::from_std(stream) }, String::new())
    }

    /// Connects to an agent.
    ///
    /// # Errors
    /// The name has no address, or none of its addresses answers in time.
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

    /// Sends a request, and waits for the answer, at most for `patience`.
    ///
    /// # Errors
    /// No answer arrives: [`Lost`] says why.
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

/// Returns [`FAREWELL`] after the interrupt is set.
async fn hurried(interrupt: &Interrupt) {
    while !interrupt.is_set() {
        sleep(GLANCE).await;
    }
    sleep(FAREWELL).await;
}

/// Connects to the first address that answers; each has an equal part of `time`. If none does,
/// returns the last one's error.
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
    // A separate task reads the whole answer even if the caller stops waiting, so that the next
    // answer on the connection belongs to the next request.
    let most = if bearer.is_empty() { CHILD_ANSWER_MAX } else { AGENT_ANSWER_MAX };
    let body = async move { Limited::new(answer.await?.into_body(), most).collect().await };
    let answer = tokio::spawn(body).await??.to_bytes();
    serde_json::from_slice(&answer).map_err(|_| {
        let text = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
        format!("an answer that is none of Millrace's: {text:?}").into()
    })
}

/// Returns the messages of an error and of its causes; hyper's message leaves the causes out.
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

    const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

    /// Returns a host that reports each request to the test, and answers with what the test sends
    /// it, until the test drops its end.
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
        // Repeated requests wait in the client: the host sees only the first, which has no answer
        // yet.
        while questions.try_recv().is_err() {
            let late = client.ask(&Request::StopSending, Duration::from_millis(20));
            assert!(matches!(late, Err(Lost::Late)), "{late:?}");
        }
        for words in ["late", "in time"] {
            answer.send(Reply::done(words)).unwrap();
        }
        assert_eq!(client.ask(&Request::Machine, ANSWER_TIMEOUT).unwrap(), Reply::done("in time"));
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
        let asking = std::thread::spawn(move || agent.ask(&Request::Machine, ANSWER_TIMEOUT));
        questions.recv().unwrap();
        let begun = std::time::Instant::now();
        interrupt.set();
        assert!(matches!(asking.join().unwrap(), Err(Lost::Interrupted)));
        assert!(begun.elapsed() < ANSWER_TIMEOUT / 2);
        drop(answer);
        // The conversation ended with an unanswered request, so this may be an error.
        let _ = served.join().unwrap();
    }

    #[test]
    fn an_address_that_never_answers_leaves_time_for_the_next_one() {
        let bound = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (deaf, live) = (bound(), bound());
        // The kernel ignores connection attempts while the listener's queue is full.
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
        assert_eq!(client.ask(&Request::Machine, ANSWER_TIMEOUT).unwrap(), long);
        drop(answer);
        let refused = client.ask(&Request::Machine, ANSWER_TIMEOUT).unwrap();
        assert_eq!(refused, Reply::Error { message: "no more".into() });
        let gone = client.ask(&Request::Machine, ANSWER_TIMEOUT);
        assert!(matches!(&gone, Err(Lost::Gone(why)) if !why.is_empty()), "{gone:?}");
        served.join().unwrap().unwrap();
    }
}
