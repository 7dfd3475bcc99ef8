//! Cloud Hypervisor, `--net vhost_user=true` (virtio-devices/src/vhost_user). Built on the `vhost`
//! crate. It serves the control queue itself, takes no packed rings, and says at each start that a
//! ring begins at what is available.

use super::Base::Available;
use super::RingStep::{Addresses, AskBase, Call, Enable, Kick, Size};
use super::Step::{
    AskConfig, AskFeatures, AskInflight, AskProtocol, AskQueues, Each, GiveInflight, GiveMemory,
    TakeFeatures, TakeProtocol, Tell,
};
use super::{Acknowledged, Calls, FrontEnd, RingStep, bits};
use crate::wire::Request;

/// As of August 2026, after version 53.
pub(super) const NET: FrontEnd = FrontEnd {
    name: "Cloud Hypervisor, August 2026",
    features: bits(&[
        0, 1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 21, 22, 26, 28, 29, 30, 32, 35, 36, 38,
    ]),
    // MQ, LOG_SHMFD, REPLY_ACK, CONFIG, INFLIGHT_SHMFD, CONFIGURE_MEM_SLOTS, DEVICE_STATE.
    protocol: bits(&[0, 1, 3, 9, 12, 15, 19]),
    acknowledged: Acknowledged::All,
    counts_pairs: false,
    passes_commands: false,
    takes_what_it_keeps: false,
    calls: Calls::Eventfd,
    user: 0x7f34_0000_0000,
    greets: &[
        Tell(Request::SetOwner),
        AskFeatures,
        AskProtocol,
        TakeProtocol,
        AskQueues,
        AskConfig(60),
    ],
    starts: &[
        TakeFeatures,
        GiveMemory,
        Each(&[Size]),
        AskInflight,
        GiveInflight,
        Each(&[Addresses, RingStep::Base(Available), Call, Kick]),
        Each(&[Enable(true)]),
    ],
    stops: &[Each(&[Enable(false), AskBase])],
    returns: &[
        Tell(Request::SetOwner),
        AskFeatures,
        TakeProtocol,
        TakeFeatures,
        GiveMemory,
        Each(&[Size]),
        GiveInflight,
        Each(&[Addresses, RingStep::Base(Available), Call, Kick]),
        Each(&[Enable(true)]),
    ],
};
