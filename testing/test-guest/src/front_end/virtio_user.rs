//! DPDK's virtio-user (drivers/net/virtio/virtio_user): a driver and its front end in one. It serves
//! the control queue itself, takes RSS if its application wants that, and keeps the table. It gives
//! each ring's call descriptor before the features. One of 22.11 that ran sent the same, with all
//! receiving rings before the sending ones.

use super::Base::Zero;
use super::RingStep::{Addresses, AskBase, Call, Enable, Kick, Size};
use super::Step::{
    AskFeatures, AskProtocol, AskStatus, Each, GiveMemory, Once, Others, Pairs, SetStatus,
    TakeFeatures, TakeProtocol, Tell,
};
use super::{Acknowledged, Calls, FrontEnd, RingStep, bits};
use crate::wire::Request;

/// Version 26.11-rc0, as a client, which does not connect again.
pub(super) const CLIENT: FrontEnd = FrontEnd {
    name: "DPDK virtio-user 26.11-rc0",
    // Without MAC, STATUS and CTRL_VQ, which it adds for its own driver and does not send.
    features: bits(&[0, 1, 7, 8, 11, 12, 15, 18, 19, 22, 23, 28, 30, 32, 34, 35, 36, 38, 57, 60]),
    // MQ, REPLY_ACK, STATUS.
    protocol: bits(&[0, 3, 16]),
    acknowledged: Acknowledged::Among(&[Request::GiveMemory, Request::SetStatus]),
    counts_pairs: false,
    passes_commands: false,
    takes_what_it_keeps: true,
    calls: Calls::Eventfd,
    user: 0x1_0020_0000,
    greets: &[Tell(Request::SetOwner), AskFeatures, AskProtocol, TakeProtocol],
    starts: &[
        Each(&[Call]),
        TakeFeatures,
        SetStatus(0xb),
        AskStatus,
        GiveMemory,
        Each(&[Size, RingStep::Base(Zero), Addresses, Kick]),
        Pairs(&[Once(&[Each(&[Enable(true)])])]),
        SetStatus(0xf),
        // Once its driver has asked for all pairs.
        Pairs(&[Others(&[Each(&[Enable(true)])])]),
    ],
    stops: &[Each(&[Enable(false)]), Each(&[AskBase])],
    returns: &[],
};
