//! Splits the bytes of a synchronisation connection into messages. The peer is not trusted: a
//! length is checked before its bytes are awaited, so a stranger can make us keep no more than
//! [`BODY_MAX`] bytes.

use super::{Code, Message};

/// The longest JSON body of a message, in bytes.
pub const BODY_MAX: usize = 256 * 1024;

/// A length that no valid peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes, {BODY_MAX} are the most")]
pub struct Garbled {
    /// The length in the message.
    pub length: u32,
}

/// Bytes received and not yet returned as messages.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole message, if there is one.
    ///
    /// # Errors
    /// [`Garbled`] if a body is too long; close the connection then.
    pub fn pop(&mut self) -> Result<Option<Message>, Garbled> {
        let Some(word) = self.word_at(0) else { return Ok(None) };
        let word = i32::from_be_bytes(word);
        let Some(code) = Code::of(word) else {
            self.bytes.drain(..4);
            return Ok(Some(Message::Word(word)));
        };
        let Some(length) = self.word_at(4).map(u32::from_be_bytes) else { return Ok(None) };
        let end = 8 + length as usize;
        if length as usize > BODY_MAX {
            return Err(Garbled { length });
        }
        let Some(body) = self.bytes.get(8..end).map(<[u8]>::to_vec) else { return Ok(None) };
        self.bytes.drain(..end);
        Ok(Some(Message::Body(code, body)))
    }

    fn word_at(&self, offset: usize) -> Option<[u8; 4]> {
        self.bytes.get(offset..offset + 4)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> impl Strategy<Value = Message> {
        let code = prop::sample::select(Code::ALL.to_vec());
        prop_oneof![
            any::<i32>()
                .prop_filter("a code has a body", |word| Code::of(*word).is_none())
                .prop_map(Message::Word),
            (code, prop::collection::vec(any::<u8>(), 0..300))
                .prop_map(|(c, b)| Message::Body(c, b)),
        ]
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_read_back_however_it_is_cut(
            messages in prop::collection::vec(message(), 0..10),
            cut in 1usize..50,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(Message::encode).collect();
            let mut inbox = Inbox::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(cut) {
                inbox.push(piece);
                while let Some(message) = inbox.pop().unwrap() {
                    read.push(message);
                }
            }
            prop_assert_eq!(read, messages);
            prop_assert!(inbox.bytes.is_empty());
        }

        #[test]
        fn garbage_never_makes_it_keep_more_than_one_message(
            bytes in prop::collection::vec(any::<u8>(), 0..4000),
        ) {
            let mut inbox = Inbox::default();
            inbox.push(&bytes);
            let mut words = 0;
            while let Ok(Some(_)) = inbox.pop() {
                words += 1;
            }
            prop_assert!(words <= bytes.len() / 4);
            prop_assert!(inbox.bytes.len() <= bytes.len());
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let mut inbox = Inbox::default();
        inbox.push(&Code::Figures.word().to_be_bytes());
        inbox.push(&u32::MAX.to_be_bytes());
        assert_eq!(inbox.pop(), Err(Garbled { length: u32::MAX }));
    }
}
