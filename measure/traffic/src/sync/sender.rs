//! The sender's side of the synchronisation, as a pure state machine: one question at a time.

use super::{Code, MARK, Message, word};

/// The sender's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write this message and wait for the answer.
    Ask(Message),
    /// Open the data connections, then go on with [`SenderSync::ready`].
    Connect {
        /// Warm-up, test and cool-down together; 0 means until stopped.
        total_s: u32,
        /// Whether the receiver is Millrace's too.
        ours: bool,
    },
    /// Wait for the next message, however long: other senders are still to come.
    Wait,
    /// Traffic begins now.
    Run,
}

/// Why the receiver refuses the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another test is running.
    Busy,
    /// The receiver gave a reason.
    Reason(String),
    /// The answer is not part of the protocol.
    Unexpected(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    State,
    Acceptance,
    Time,
    Connections,
    Go,
    Nothing,
}

/// State of one sender's synchronisation.
#[derive(Debug)]
pub struct SenderSync {
    total_s: u32,
    last: bool,
    offer: Vec<u8>,
    ours: bool,
    waiting: Waiting,
}

impl SenderSync {
    /// Makes the state of a sender that would by itself take `total_s`, with its [`super::Offer`]
    /// as JSON. `total_s` must be clear of commands.
    pub fn new(total_s: u32, last: bool, offer: Vec<u8>) -> SenderSync {
        SenderSync { total_s, last, offer, ours: false, waiting: Waiting::State }
    }

    /// Returns the first question.
    pub fn begin(&self) -> Message {
        Message::Word(word::QUERY)
    }

    /// Returns the question to ask after all data connections are open.
    pub fn ready(&mut self) -> Message {
        self.waiting = Waiting::Go;
        Message::Word(if self.last { word::RUN_LAST } else { word::RUN })
    }

    /// Returns the step that follows an answer.
    ///
    /// # Errors
    /// [`Refusal`] if the receiver refuses or answers something unexpected; close the connection
    /// then.
    pub fn on_answer(&mut self, answer: &Message) -> Result<Step, Refusal> {
        match (self.waiting, answer) {
            (Waiting::State, Message::Word(word::RUNNING)) => Err(Refusal::Busy),
            (Waiting::State, Message::Word(state)) => Ok(self.on_state(*state)),
            (Waiting::Acceptance, Message::Body(Code::Accepted, _)) => Ok(self.propose()),
            (Waiting::Acceptance, Message::Body(Code::Refused, reason)) => {
                Err(Refusal::Reason(printable(reason)))
            }
            (Waiting::Time, Message::Word(seconds)) => self.on_time(*seconds),
            (Waiting::Go, Message::Word(word::WAIT)) => Ok(Step::Wait),
            (Waiting::Go, Message::Word(word::RUN)) => {
                self.waiting = Waiting::Nothing;
                Ok(Step::Run)
            }
            (Waiting::Go, Message::Word(word::EXIT)) => Err(Refusal::Reason(self.why_not_go())),
            (waiting, other) => {
                Err(Refusal::Unexpected(format!("{} when waiting for {waiting:?}", brief(other))))
            }
        }
    }

    fn on_state(&mut self, state: i32) -> Step {
        self.ours = state & !0xffff == MARK;
        if !self.ours {
            return self.propose();
        }
        self.waiting = Waiting::Acceptance;
        Step::Ask(Message::Body(Code::Offer, self.offer.clone()))
    }

    fn propose(&mut self) -> Step {
        self.waiting = Waiting::Time;
        Step::Ask(Message::Word(i32::try_from(self.total_s).unwrap_or(i32::MAX)))
    }

    fn on_time(&mut self, seconds: i32) -> Result<Step, Refusal> {
        let Ok(total_s) = u32::try_from(seconds) else {
            return Err(Refusal::Unexpected(format!("a test of {seconds} s")));
        };
        self.waiting = Waiting::Connections;
        Ok(Step::Connect { total_s, ours: self.ours })
    }

    fn why_not_go(&self) -> String {
        if self.last {
            "it does not wait for several senders, or has no seat left: start it with -M, or leave out -L".into()
        } else {
            "another sender came first, or no seat is left: a receiver with -M takes seven and the last one with -L".into()
        }
    }
}

/// Returns a peer's text without control characters, at most 500 characters.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).take(500).collect()
}

fn brief(message: &Message) -> String {
    match message {
        Message::Word(word) => format!("{word}"),
        Message::Body(code, body) => format!("{code:?} with {} bytes", body.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answers(total_s: u32, last: bool, answers: &[Message]) -> Result<Vec<Step>, Refusal> {
        let mut sync = SenderSync::new(total_s, last, b"{}".to_vec());
        let mut steps = Vec::new();
        for answer in answers {
            let step = sync.on_answer(answer)?;
            if matches!(step, Step::Connect { .. }) {
                sync.ready();
            }
            steps.push(step);
        }
        Ok(steps)
    }

    #[test]
    fn a_plain_receiver_never_hears_our_own_words() {
        let script = [word::IDLE, 20, word::WAIT, word::RUN].map(Message::Word);
        let steps = answers(20, false, &script).unwrap();
        let connect = Step::Connect { total_s: 20, ours: false };
        assert_eq!(steps, [Step::Ask(Message::Word(20)), connect, Step::Wait, Step::Run]);
    }

    #[test]
    fn a_marked_receiver_is_asked_whether_it_means_the_same() {
        let accepted = Message::Body(Code::Accepted, Vec::new());
        let steps = answers(5, false, &[Message::Word(MARK | word::IDLE), accepted]).unwrap();
        assert!(matches!(
            steps[..],
            [Step::Ask(Message::Body(Code::Offer, _)), Step::Ask(Message::Word(5))]
        ));
    }

    #[test]
    fn a_refusal_says_what_the_receiver_said_and_no_escape_codes() {
        let script =
            [Message::Word(MARK | word::IDLE), Message::Body(Code::Refused, b"no\x1b[2J".to_vec())];
        assert_eq!(answers(5, false, &script), Err(Refusal::Reason("no[2J".into())));
        assert_eq!(answers(5, false, &[Message::Word(word::RUNNING)]), Err(Refusal::Busy));
    }

    proptest! {
        #[test]
        fn whatever_is_answered_runs_only_after_a_run(words in prop::collection::vec(
            prop_oneof![any::<i32>(), Just(word::RUN), Just(word::WAIT), Just(MARK | word::IDLE), 0i32..100], 0..12,
        )) {
            let script: Vec<Message> = words.iter().copied().map(Message::Word).collect();
            if let Ok(steps) = answers(9, true, &script) {
                let runs = steps.iter().filter(|step| **step == Step::Run).count();
                prop_assert!(runs == 0 || words.contains(&word::RUN));
                prop_assert!(runs <= 1);
            }
        }
    }
}
