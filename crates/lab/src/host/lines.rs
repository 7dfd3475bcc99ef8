//! Lines from someone who may mean harm, or may have gone: of limited length, and in limited time.
//!
//! Both sides of a control connection read with this. Time is the business of the reader that is given ([`Patient`] for a
//! connection), so that any bytes can be fed to the rest.

use super::protocol::Request;
use crate::interrupt::Interrupt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest line, in bytes. The longest that is ever said is a tenth of it.
pub const LINE_MAX: usize = 16 * 1024;

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A line without an end.
    #[error("a line longer than {LINE_MAX} bytes")]
    TooLong,
    /// It closed the connection before it had ended the line.
    #[error("it ended in the middle of a line")]
    Cut,
    /// Bytes that are no text, or text that is no request.
    #[error("not a request: {0}")]
    NotARequest(String),
    /// A request that is not for peers.
    #[error("{0}")]
    Forbidden(String),
    /// Nothing came, or nothing can come any more.
    #[error("{0}")]
    Silent(#[from] io::Error),
}

/// See the module.
#[derive(Debug)]
pub struct Lines<R> {
    source: BufReader<R>,
}

impl<R: Read> Lines<R> {
    /// Of a source.
    pub fn new(source: R) -> Lines<R> {
        Lines { source: BufReader::new(source) }
    }

    /// The source, to set it up for the next line.
    pub(super) fn source(&mut self) -> &mut R {
        self.source.get_mut()
    }

    /// The next line without its end; `None` where the source ends.
    ///
    /// # Errors
    /// There is no such line, and nothing further can be read.
    pub fn line(&mut self) -> Result<Option<String>, Refusal> {
        let mut line = Vec::new();
        let limit = LINE_MAX as u64 + 1;
        self.source.by_ref().take(limit).read_until(b'\n', &mut line)?;
        match line.pop() {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) if line.len() >= LINE_MAX => return Err(Refusal::TooLong),
            Some(_) => return Err(Refusal::Cut),
        }
        let text = String::from_utf8(line);
        text.map(Some).map_err(|error| Refusal::NotARequest(error.to_string()))
    }

    /// The next request, whatever it asks for.
    ///
    /// # Errors
    /// There is no such line, or it is no request.
    pub(super) fn any_request(&mut self) -> Result<Option<Request>, Refusal> {
        let Some(line) = self.line()? else { return Ok(None) };
        let request = serde_json::from_str(&line);
        request.map(Some).map_err(|error| Refusal::NotARequest(error.to_string()))
    }

    /// The next request that an agent does for a peer.
    ///
    /// # Errors
    /// There is no such line, or it is no request, or none for peers.
    pub fn request(&mut self) -> Result<Option<Request>, Refusal> {
        let Some(request) = self.any_request()? else { return Ok(None) };
        request.forbidden().map_or(Ok(Some(request)), |why| Err(Refusal::Forbidden(why)))
    }
}

/// How often a wait for bytes looks at the interrupt.
const GLANCE: Duration = Duration::from_millis(100);

/// A connection that is read until a moment, or until someone interrupts.
pub(super) struct Patient {
    pub(super) stream: TcpStream,
    /// Bytes that have not come by then are not waited for.
    pub(super) until: Instant,
    pub(super) interrupt: Interrupt,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(GLANCE))?;
        // Looked at before each read: who sends a byte now and then does not win time by it.
        while Instant::now() < self.until {
            if self.interrupt.is_set() {
                return Err(io::Error::other("the agent was interrupted"));
            }
            match self.stream.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
        Err(io::Error::new(ErrorKind::TimedOut, "it sent nothing for too long"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn told(bytes: &[u8]) -> Result<Option<Request>, String> {
        Lines::new(bytes).request().map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn what_is_no_request_for_peers_is_refused_with_its_reason() {
        let long = vec![b' '; LINE_MAX + 1];
        let table: [(&[u8], &str); 10] = [
            (b"\n", "not a request"),
            (b"{}\n", "not a request"),
            (b"\xff\xfe\n", "not a request"),
            (b"{\"do\":\"dance\"}\n", "not a request"),
            (b"{\"do\":\"stop_sending\"}", "middle of a line"),
            (&long, "longer than 16384 bytes"),
            (b"{\"do\":\"run\",\"program\":\"sh\",\"arguments\":[]}\n", "does not run programs"),
            (
                b"{\"do\":\"become\",\"program\":\"sh\",\"arguments\":[]}\n",
                "become another program",
            ),
            (b"{\"do\":\"answer\",\"port\":22}\n", "ports from 1024, not on 22"),
            (
                b"{\"do\":\"round_trips\",\"to\":\"1.2.3.4:5\",\"milliseconds\":60001}\n",
                "the maximum is 60000",
            ),
        ];
        for (bytes, why) in table {
            let error = told(bytes).unwrap_err();
            assert!(error.contains(why), "{error:?} says not {why:?}");
        }
        assert_eq!(told(b"{\"do\":\"stop_sending\"}\n"), Ok(Some(Request::StopSending)));
        assert_eq!(told(b""), Ok(None));
    }

    #[test]
    fn who_sends_a_byte_now_and_then_wins_no_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, until) = (listener.accept().unwrap().0, Instant::now() + GLANCE);
        let writer = std::thread::spawn(move || {
            // Until the reader has gone.
            while slow.write_all(b" ").is_ok() {
                std::thread::sleep(GLANCE / 50);
            }
        });
        let mut lines = Lines::new(Patient { stream, until, interrupt: Interrupt::default() });
        let Err(Refusal::Silent(error)) = lines.line() else { panic!("a line") };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(lines);
        writer.join().unwrap();
    }

    #[test]
    fn the_longest_line_is_read_and_the_next_one_too() {
        let mut bytes = vec![b'a'; LINE_MAX];
        bytes.extend(b"\nb\n");
        let mut lines = Lines::new(bytes.as_slice());
        assert_eq!(lines.line().unwrap().map(|line| line.len()), Some(LINE_MAX));
        assert_eq!(lines.line().unwrap().as_deref(), Some("b"));
        assert_eq!(lines.line().unwrap(), None);
    }
}
