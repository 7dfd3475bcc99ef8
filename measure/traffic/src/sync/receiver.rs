//! The receiver's side of the synchronisation, as a pure state machine over any number of senders.
//!
//! A sender may say anything at any time. Each sender's proposal counts for that sender only, so a
//! stranger that connects and talks nonsense changes nothing for the others.

use super::{Code, MARK, Message, Offer, word};
use std::collections::BTreeMap;

/// A sender's connection, numbered by the owner of the socket.
pub type ClientId = u64;

/// An action that follows a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this message to that sender.
    Reply(ClientId, Message),
    /// Begin the traffic with the replies that follow; `total_s` is 0 if only a stop ends it.
    Start {
        /// Warm-up, test and cool-down together.
        total_s: u32,
    },
    /// Stop: a sender of the running test ended it.
    Stop,
    /// A sender's figures; answer with ours when they are known.
    Figures(ClientId, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Running,
    Finished,
}

/// State of the receiver's synchronisation.
#[derive(Debug)]
pub struct ReceiverSync {
    own_total_s: u32,
    offer: Offer,
    senders: Senders,
    state: State,
    proposals: BTreeMap<ClientId, u32>,
    waiting: Vec<ClientId>,
}

/// The sender that begins the test with its `R`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// The n-th one; more than the first if the receiver has several addresses.
    Count(usize),
    /// The one that declares itself the last (Linux `-M`).
    UntilLast,
}

/// Most senders of a receiver that waits for the last one; one place is reserved for the last.
const SENDERS_MAX: usize = 8;

impl ReceiverSync {
    /// Makes the state of a receiver that would by itself take `own_total_s` (0: until stopped).
    pub fn new(own_total_s: u32, offer: Offer, senders: Senders) -> ReceiverSync {
        let (proposals, waiting) = (BTreeMap::new(), Vec::new());
        ReceiverSync { own_total_s, offer, senders, state: State::Idle, proposals, waiting }
    }

    /// Returns the actions that a sender's message asks for.
    pub fn on_message(&mut self, from: ClientId, message: Message) -> Vec<Action> {
        match message {
            Message::Word(word::QUERY) => vec![reply(from, self.marked_state())],
            Message::Word(word::EXIT) => self.on_exit(from),
            Message::Word(word::RUN) => self.on_run(from, false),
            Message::Word(word::RUN_LAST) => self.on_run(from, true),
            Message::Word(seconds) => vec![reply(from, self.agree(from, seconds))],
            Message::Body(Code::Offer, body) => vec![Action::Reply(from, self.compare(&body))],
            Message::Body(Code::Figures, body) => vec![Action::Figures(from, body)],
            // These are answers, which no sender sends.
            Message::Body(Code::Accepted | Code::Refused, _) => Vec::new(),
        }
    }

    /// Forgets a sender that disconnected.
    pub fn on_closed(&mut self, from: ClientId) {
        self.proposals.remove(&from);
        self.waiting.retain(|client| *client != from);
    }

    /// Marks the receiver as busy with a test that was not agreed on here; later queries are told
    /// so.
    pub fn occupy(&mut self) {
        self.state = State::Running;
    }

    /// Whether a test may begin.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Marks the test as finished; later queries are told so.
    pub fn finish(&mut self) {
        self.state = State::Finished;
    }

    /// Whether this sender is part of the running test.
    pub fn takes_part(&self, client: ClientId) -> bool {
        self.waiting.contains(&client)
    }

    /// Returns the number of senders of the running test that are connected or wait for its begin.
    pub fn senders(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the state as every NTttcp says it.
    fn state(&self) -> i32 {
        match self.state {
            State::Idle => word::IDLE,
            State::Running => word::RUNNING,
            State::Finished => word::FINISHED,
        }
    }

    /// Returns the state with our mark, except for 12: a foreign sender looks for exactly that
    /// number.
    fn marked_state(&self) -> i32 {
        if self.state == State::Running { word::RUNNING } else { MARK | self.state() }
    }

    /// Ends the test for a sender of the test; any other client only learns the state.
    fn on_exit(&mut self, from: ClientId) -> Vec<Action> {
        let stops = self.state == State::Running && self.takes_part(from);
        if stops {
            self.finish();
        }
        std::iter::once(reply(from, self.state())).chain(stops.then_some(Action::Stop)).collect()
    }

    fn agree(&mut self, from: ClientId, seconds: i32) -> i32 {
        let own = self.own_total_s;
        let agreed = match (u32::try_from(seconds), self.senders) {
            (_, Senders::UntilLast) | (Err(_), _) => own,
            (Ok(0), _) => 0,
            _ if own == 0 => 0,
            (Ok(theirs), _) => theirs.max(own),
        };
        self.proposals.insert(from, agreed);
        i32::try_from(agreed).unwrap_or(i32::MAX)
    }

    fn on_run(&mut self, from: ClientId, last: bool) -> Vec<Action> {
        let places = if last { SENDERS_MAX } else { SENDERS_MAX - 1 };
        let room = match self.senders {
            Senders::Count(wanted) => !last && self.waiting.len() < wanted,
            Senders::UntilLast => self.waiting.len() < places,
        };
        if self.state != State::Idle || !room || self.waiting.contains(&from) {
            return vec![reply(from, word::EXIT)];
        }
        self.waiting.push(from);
        let begins = match self.senders {
            Senders::Count(wanted) => self.waiting.len() >= wanted,
            Senders::UntilLast => last,
        };
        if !begins {
            return vec![reply(from, word::WAIT)];
        }
        self.state = State::Running;
        let start = Action::Start { total_s: self.running_total_s() };
        let replies = self.waiting.iter().map(|client| reply(*client, word::RUN));
        std::iter::once(start).chain(replies).collect()
    }

    /// Returns the longest time that a sender was told; 0 if one of them was told so.
    fn running_total_s(&self) -> u32 {
        let told = self.waiting.iter().map(|c| *self.proposals.get(c).unwrap_or(&self.own_total_s));
        if told.clone().any(|seconds| seconds == 0) { 0 } else { told.max().unwrap_or(0) }
    }

    fn compare(&self, body: &[u8]) -> Message {
        let objection = match strict::from_json::<Offer>(body) {
            Ok(theirs) => self.offer.objection(&theirs),
            Err(_) => Some("its offer is not readable: use the same release on both ends".into()),
        };
        match objection {
            None => Message::Body(Code::Accepted, Vec::new()),
            Some(reason) => Message::Body(Code::Refused, reason.into_bytes()),
        }
    }
}

fn reply(to: ClientId, word: i32) -> Action {
    Action::Reply(to, Message::Word(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Transport;
    use proptest::prelude::*;

    fn machine(own_total_s: u32, senders: Senders) -> ReceiverSync {
        let offer = Offer { transport: Transport::Tcp, ports: 1, verify: false, latency: false };
        ReceiverSync::new(own_total_s, offer, senders)
    }

    fn say(machine: &mut ReceiverSync, client: ClientId, number: i32) -> Vec<Action> {
        machine.on_message(client, Message::Word(number))
    }

    #[test]
    fn a_plain_sender_is_served() {
        let mut receiver = machine(10, Senders::Count(1));
        let idle = say(&mut receiver, 1, word::QUERY);
        assert!(
            matches!(idle[..], [Action::Reply(1, Message::Word(state))] if state != word::RUNNING)
        );
        assert_eq!(say(&mut receiver, 1, 20), [reply(1, 20)]);
        assert_eq!(
            say(&mut receiver, 1, word::RUN),
            [Action::Start { total_s: 20 }, reply(1, word::RUN)]
        );
        assert_eq!(say(&mut receiver, 2, word::QUERY), [reply(2, word::RUNNING)]);
        assert_eq!(say(&mut receiver, 2, word::RUN), [reply(2, word::EXIT)]);
        assert_eq!(say(&mut receiver, 1, word::EXIT), [reply(1, word::FINISHED), Action::Stop]);
    }

    #[test]
    fn the_longer_time_counts_and_zero_wins() {
        for (own, theirs, agreed) in
            [(10, 5, 10), (5, 10, 10), (0, 10, 0), (10, 0, 0), (10, -1, 10)]
        {
            let mut receiver = machine(own, Senders::Count(1));
            assert_eq!(say(&mut receiver, 1, theirs), [reply(1, agreed)], "{own} {theirs}");
        }
        assert_eq!(say(&mut machine(7, Senders::UntilLast), 1, 90), [reply(1, 7)]);
    }

    #[test]
    fn several_senders_wait_for_the_last() {
        let mut receiver = machine(7, Senders::UntilLast);
        for client in 1..=7 {
            assert_eq!(say(&mut receiver, client, word::RUN), [reply(client, word::WAIT)]);
        }
        assert_eq!(say(&mut receiver, 8, word::RUN), [reply(8, word::EXIT)]);
        let actions = say(&mut receiver, 9, word::RUN_LAST);
        assert_eq!(actions.len(), 9);
        assert_eq!(actions.first(), Some(&Action::Start { total_s: 7 }));
    }

    #[test]
    fn a_strangers_proposal_or_exit_changes_nothing_for_the_sender() {
        let mut receiver = machine(5, Senders::Count(1));
        say(&mut receiver, 1, 6);
        say(&mut receiver, 2, 1_195_725_856); // "GET "
        assert_eq!(say(&mut receiver, 2, word::EXIT), [reply(2, word::IDLE)]);
        assert_eq!(say(&mut receiver, 1, word::RUN).first(), Some(&Action::Start { total_s: 6 }));
        assert_eq!(say(&mut receiver, 2, word::EXIT), [reply(2, word::RUNNING)]);
    }

    #[test]
    fn an_offer_has_each_key_once_and_no_other() {
        let offer = "{\"transport\":\"tcp\",\"ports\":1,\"verify\":false,\"latency\":false}";
        let longer = offer.replace('}', ",\"more\":1}");
        for (body, code) in [
            (offer, Code::Accepted),
            ("[\"tcp\",1,false,false]", Code::Refused),
            (longer.as_str(), Code::Refused),
        ] {
            let body = Message::Body(Code::Offer, body.as_bytes().to_vec());
            let answers = machine(3, Senders::Count(1)).on_message(1, body);
            let [Action::Reply(1, Message::Body(answer, _))] = &answers[..] else {
                panic!("{answers:?}")
            };
            assert_eq!(*answer, code);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_said_starts_at_most_once_and_only_on_run(
            talk in prop::collection::vec((0u64..4, prop_oneof![
                any::<i32>(),
                prop::sample::select(vec![word::QUERY, word::RUN, word::RUN_LAST, word::EXIT]),
            ]), 0..60),
            until_last in any::<bool>(),
        ) {
            let senders = if until_last { Senders::UntilLast } else { Senders::Count(1) };
            let mut receiver = machine(3, senders);
            let mut starts = 0;
            for (client, number) in talk {
                let actions = say(&mut receiver, client, number);
                let started = actions.iter().filter(|a| matches!(a, Action::Start { .. })).count();
                prop_assert!(started == 0 || number == word::RUN || number == word::RUN_LAST);
                starts += started;
            }
            prop_assert!(starts <= 1);
        }

        #[test]
        fn any_offer_body_is_answered(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let answer = machine(3, Senders::Count(1)).on_message(1, Message::Body(Code::Offer, body));
            prop_assert_eq!(answer.len(), 1);
        }
    }
}
