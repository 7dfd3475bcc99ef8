//! QEMU, `-netdev vhost-user`, as one of 10.0.2 sent it that ran; its sources are hw/net/vhost_net.c,
//! hw/virtio/vhost.c and hw/virtio/vhost-user.c. It has one `vhost_dev` for each pair, and asks twice for
//! the features, before and after it owns the session. It sends only features of a list of its own,
//! and serves the control queue itself. It gives a region of memory once, and keeps it over resets;
//! version 7.2 gives it once for each pair.

use super::Base::{Used, ZeroTwice};
use super::RingStep::{Addresses, AskBase, Call, Enable, Error, Kick, Size};
use super::Step::{
    AddMemory, AskFeatures, AskProtocol, AskQueues, AskSlots, AskStatus, Each, FirstTime,
    GiveChannel, Once, Others, Pairs, SetMtu, SetStatus, TakeFeatures, TakeProtocol, Tell,
};
use super::{Acknowledged, Calls, FrontEnd, RingStep, Step, bits};
use crate::wire::Request;

/// `VHOST_USER_PROTOCOL_F_` MQ to BACKEND_REQ, INFLIGHT_SHMFD, RESET_DEVICE, CONFIGURE_MEM_SLOTS and
/// STATUS. It leaves CONFIG out for a network device.
const PROTOCOL: u64 = bits(&[0, 1, 2, 3, 4, 5, 12, 13, 15, 16]);

const GREET: Step = Pairs(&[
    AskFeatures,
    AskProtocol,
    TakeProtocol,
    Once(&[AskQueues]),
    AskSlots,
    Once(&[GiveChannel, Tell(Request::SetOwner)]),
    AskFeatures,
    Each(&[Call, Error]),
]);

/// The first pair alone is in use.
const ONE_PAIR: Step = Pairs(&[Once(&[Each(&[Enable(true)])]), Others(&[Each(&[Enable(false)])])]);

const FRESH: &[RingStep] = &[Size, RingStep::Base(ZeroTwice), Addresses, Kick, Call];
const GOES_ON: &[RingStep] = &[Size, RingStep::Base(Used), Addresses, Kick, Call];

const STARTS: &[Step] = &[
    SetMtu(1500),
    Pairs(&[
        Once(&[Each(&[Enable(true)])]),
        TakeFeatures,
        AskStatus,
        Once(&[SetStatus(8), FirstTime(&[AddMemory])]),
        Each(FRESH),
    ]),
    AskStatus,
    SetStatus(15),
    ONE_PAIR,
    // Once the driver has asked for all pairs.
    Pairs(&[Each(&[Enable(true)])]),
];

/// As [`STARTS`], with memory for each pair.
const SEVEN_STARTS: &[Step] = &[
    SetMtu(1500),
    Pairs(&[
        Once(&[Each(&[Enable(true)])]),
        TakeFeatures,
        AskStatus,
        Once(&[SetStatus(8)]),
        FirstTime(&[AddMemory]),
        Each(FRESH),
    ]),
    AskStatus,
    SetStatus(15),
    ONE_PAIR,
    Pairs(&[Each(&[Enable(true)])]),
];

const RETURNS: &[Step] = &[
    GREET,
    SetMtu(1500),
    Pairs(&[
        Each(&[Enable(true)]),
        TakeFeatures,
        AskStatus,
        Once(&[SetStatus(8), AddMemory]),
        Each(GOES_ON),
    ]),
    AskStatus,
    SetStatus(15),
];

/// As [`RETURNS`], with memory for each pair.
const SEVEN_RETURNS: &[Step] = &[
    GREET,
    SetMtu(1500),
    Pairs(&[
        Each(&[Enable(true)]),
        TakeFeatures,
        AskStatus,
        Once(&[SetStatus(8)]),
        AddMemory,
        Each(GOES_ON),
    ]),
    AskStatus,
    SetStatus(15),
];

/// Version 10.0.2.
pub(super) const TEN: FrontEnd = FrontEnd {
    name: "QEMU 10.0.2",
    features: SEVEN.features | bits(&[35, 38, 54, 55, 56, 61]),
    acknowledged: Acknowledged::Among(&[
        Request::SetChannel,
        Request::SetMtu,
        Request::AddMemory,
        Request::Enable,
    ]),
    greets: &[GREET, Tell(Request::ResetDevice), ONE_PAIR],
    starts: STARTS,
    stops: &[Pairs(&[Each(&[AskBase])]), SetStatus(0), Tell(Request::ResetDevice), ONE_PAIR],
    returns: RETURNS,
    ..SEVEN
};

/// Version 7.2: without what was added since, which is features, RESET_DEVICE, a reset of the status,
/// and the wait for SET_VRING_ENABLE.
pub(super) const SEVEN: FrontEnd = FrontEnd {
    name: "QEMU 7.2",
    features: bits(&[
        0, 1, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 21, 22, 24, 27, 28, 29, 30, 32, 33, 34, 40,
        57, 60,
    ]),
    protocol: PROTOCOL,
    acknowledged: Acknowledged::Among(&[Request::SetChannel, Request::SetMtu, Request::AddMemory]),
    counts_pairs: true,
    passes_commands: false,
    takes_what_it_keeps: false,
    calls: Calls::Eventfd,
    user: 0x7f12_0000_0000,
    greets: &[GREET, ONE_PAIR],
    starts: SEVEN_STARTS,
    stops: &[Pairs(&[Each(&[AskBase])])],
    returns: SEVEN_RETURNS,
};
