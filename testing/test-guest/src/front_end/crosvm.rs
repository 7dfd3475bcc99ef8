//! crosvm, `--vhost-user net,socket=` (devices/src/virtio/vhost_user_frontend). It passes the control
//! queue on and all features of the device, few of the ring's. It asks for no acknowledgements, and
//! takes changes of the configuration space. It does not connect again.

use super::Base::Zero;
use super::RingStep::{Addresses, AskBase, Call, Enable, Kick, Size};
use super::Step::{
    AskConfig, AskFeatures, AskProtocol, AskQueues, Each, GiveChannel, GiveMemory, TakeFeatures,
    TakeProtocol, Tell,
};
use super::{Acknowledged, Calls, FrontEnd, RingStep, bits};
use crate::wire::Request;

/// As of August 2026.
pub(super) const NET: FrontEnd = FrontEnd {
    name: "crosvm, August 2026",
    // Bits 0 to 23 and 50 to 63, EVENT_IDX, the protocol's own, VERSION_1.
    features: 0xfffc_0000_00ff_ffff | bits(&[29, 30, 32, 43]),
    // MQ, REPLY_ACK, BACKEND_REQ, CONFIG, DEVICE_STATE, SHMEM.
    protocol: bits(&[0, 3, 5, 9, 19, 20]),
    acknowledged: Acknowledged::Among(&[]),
    counts_pairs: false,
    passes_commands: true,
    takes_what_it_keeps: false,
    calls: Calls::Eventfd,
    user: 0x7f56_0000_0000,
    greets: &[
        Tell(Request::SetOwner),
        AskFeatures,
        AskProtocol,
        TakeProtocol,
        GiveChannel,
        AskQueues,
    ],
    starts: &[
        AskConfig(8),
        TakeFeatures,
        GiveMemory,
        Each(&[Size, Addresses, RingStep::Base(Zero), Call, Kick, Enable(true)]),
    ],
    stops: &[Each(&[Enable(false), AskBase])],
    returns: &[],
};
