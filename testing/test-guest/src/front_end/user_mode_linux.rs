//! User-mode Linux (arch/um/drivers/virtio_uml.c). It passes the control queue on and most features,
//! is signalled by a Unix stream socket, and takes changes of the configuration space. Its rings end
//! by being turned off alone. It does not connect again.

use super::Base::Zero;
use super::RingStep::{Addresses, Call, Enable, Kick, Size};
use super::Step::{
    AskConfig, AskFeatures, AskProtocol, AskQueues, Each, GiveChannel, GiveMemory, TakeFeatures,
    TakeProtocol, Tell,
};
use super::{Acknowledged, Calls, FrontEnd, RingStep, bits};
use crate::wire::Request;

/// Version 7.2.7, as it sent them.
pub(super) const NET: FrontEnd = FrontEnd {
    name: "user-mode Linux 7.2.7",
    // All but RING_RESET, which its kernel takes out.
    features: !bits(&[40]),
    // MQ, REPLY_ACK, BACKEND_REQ, CONFIG.
    protocol: bits(&[0, 3, 5, 9]),
    acknowledged: Acknowledged::Among(&[
        Request::SetProtocol,
        Request::SetChannel,
        Request::SetFeatures,
        Request::GiveMemory,
        Request::Call,
        Request::Size,
        Request::SetBase,
        Request::Addresses,
        Request::Kick,
        Request::Enable,
    ]),
    counts_pairs: false,
    passes_commands: true,
    takes_what_it_keeps: false,
    calls: Calls::Stream,
    // Addresses are the guest's.
    user: 0,
    greets: &[
        Tell(Request::SetOwner),
        AskFeatures,
        AskProtocol,
        TakeProtocol,
        GiveChannel,
        AskQueues,
    ],
    starts: &[
        TakeFeatures,
        AskConfig(10),
        GiveMemory,
        Each(&[Call, Size, RingStep::Base(Zero), Addresses]),
        Each(&[Kick, Enable(true)]),
    ],
    stops: &[Each(&[Enable(false)]), AskFeatures],
    returns: &[],
};
