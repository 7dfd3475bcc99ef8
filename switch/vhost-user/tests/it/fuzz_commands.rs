//! Fuzz target: whatever a guest's driver sends over its control queue, each command is answered,
//! what is set is within the bounds of the port, and the next process goes on with the same.
//!
//! `cargo test` runs it for a moment, `fuzz/run` under libFuzzer for as long as it is told.

use crate::commands::{Told, telling, told, wanted};
use bolero::TypeGenerator;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_guest::Guest;
use vhost_user::{GuestSettings, Inherited, Session};
use waiting::until;
use wire::Mac;

const PAIRS: u16 = 4;

/// A command, or something like one.
#[derive(Debug, TypeGenerator)]
enum Sent {
    /// Any bytes for a class and a command that exist, or nearly.
    Any(u8, u8, Vec<u8>),
    /// A table of a power of two of entries, of which some name other queues; the bytes are cut off
    /// its end.
    Table { types: u16, size: u8, queues: Vec<(u8, u8)>, other: u8, pairs: u8, key: u8, cut: u8 },
    /// Addresses: so many in each list, and as many are said to be.
    Macs { counts: [u8; 2], said: [u8; 2] },
    /// A VLAN.
    Vlan(bool, u16),
    /// How signals are held back.
    Hold(u8, u8, u32, u32),
    /// A receive mode.
    Mode(u8, bool),
}

impl Sent {
    /// Returns class, command and content.
    fn bytes(&self) -> (u8, u8, Vec<u8>) {
        match self {
            Sent::Any(class, command, bytes) => (class % 7, command % 7, bytes.clone()),
            Sent::Table { types, size, queues, other, pairs, key, cut } => {
                let mut table = vec![0u16; 1 << (size % 9)];
                let entries = table.len();
                for (entry, queue) in queues {
                    table[usize::from(*entry) % entries] = u16::from(queue % 6);
                }
                let mut bytes = u32::from(types % 0x400).to_le_bytes().to_vec();
                let words = [(entries - 1).try_into().unwrap(), u16::from(other % 6)].into_iter();
                let words = words.chain(table).chain([u16::from(pairs % 6)]);
                words.for_each(|word| bytes.extend(word.to_le_bytes()));
                bytes.push(key % 42);
                bytes.extend(vec![*cut; (key % 42).into()]);
                let cut = if *cut < 16 { (*cut).into() } else { 0 };
                bytes.truncate(bytes.len().saturating_sub(cut));
                (4, 1, bytes)
            }
            Sent::Macs { counts, said } => {
                let mut bytes = Vec::new();
                for (count, said) in counts.iter().zip(said) {
                    let said =
                        if said.is_multiple_of(4) { u32::from(*said) } else { (*count).into() };
                    bytes.extend(said.to_le_bytes());
                    (0..*count).for_each(|last| bytes.extend([2, 0, 0, 0, 0, last]));
                }
                (1, 0, bytes)
            }
            Sent::Vlan(add, vlan) => (2, u8::from(!add), (vlan % 4100).to_le_bytes().to_vec()),
            Sent::Hold(command, ring, packets, microseconds) => {
                let command = command % 4;
                let mut bytes = if command < 2 { vec![] } else { vec![ring % 10, 0, 0, 0] };
                bytes.extend([*packets, *microseconds].map(u32::to_le_bytes).concat());
                (6, command, bytes)
            }
            Sent::Mode(mode, on) => (0, mode % 7, vec![u8::from(*on)]),
        }
    }
}

/// Checks that no queue is named that the port has not.
fn check(settings: &GuestSettings) {
    let Some(table) = &settings.table else { return };
    let named = table.entries().iter().chain([&table.unclassified()]).copied().max();
    assert!(named < Some(PAIRS), "FINDING (a queue that the port has not): {table:?}");
    let entries = table.entries().len();
    assert!(entries.is_power_of_two() && entries <= 128, "FINDING (a table of {entries})");
    assert!(settings.hash.is_some(), "FINDING (a table without a hash)");
}

/// Checks that the settings of two processes are the same.
fn compare(one: &GuestSettings, other: &GuestSettings) {
    let hash = |it: &GuestSettings| it.hash.as_ref().map(|hash| (*hash.key(), hash.types()));
    assert_eq!(one.table, other.table, "FINDING (another table)");
    assert_eq!(hash(one), hash(other), "FINDING (another hash)");
    assert_eq!(one.filter, other.filter, "FINDING (another filter)");
    let wants = |it: &GuestSettings| {
        it.filter.as_ref().is_none_or(|filter| filter.wants(Mac::BROADCAST, Some(1), false))
    };
    assert_eq!(wants(one), wants(other));
}

#[test]
fn fuzz_commands() {
    bolero::check!().with_type::<Vec<Sent>>().for_each(|commands| {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("s");
        let (before, after) = (Told::default(), Told::default());
        let mut session = Session::open(telling(&socket, &before)).unwrap();
        let features = wanted().bits();
        let mut guest = Guest::connect_with_commands(&socket, features, PAIRS).unwrap();
        for sent in commands {
            let (class, command, content) = sent.bytes();
            guest.command(class, command, &content);
            check(&told(&before));
        }
        let set = told(&before);
        session.suspend();
        let record = session.suspended(Instant::now() + Duration::from_secs(10)).unwrap();
        let listener = session.listener().map(Result::unwrap);
        drop(session);
        let inherited = Inherited { listener, session: Some(record) };
        let session = Session::open_with(telling(&socket, &after), inherited).unwrap();
        until("it goes on", || session.status().negotiated.pairs > 0);
        compare(&set, &told(&after));
    });
}
