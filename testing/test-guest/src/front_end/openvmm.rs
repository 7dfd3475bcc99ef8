//! OpenVMM, `--vhost-user PATH,device_id=1` (vm/devices/virtio/vhost_user_frontend). It passes all
//! features and the control queue on. It asks for the features before it owns the session, as QEMU
//! does, but once. It does not connect again.

use super::Base::ZeroTwice;
use super::RingStep::{Addresses, AskBase, Call, Enable, Kick, Size};
use super::Step::{
    AskConfig, AskFeatures, AskProtocol, AskQueues, Each, FirstTime, GiveMemory, TakeFeatures,
    TakeProtocol, Tell,
};
use super::{Acknowledged, Calls, FrontEnd, RingStep, bits};
use crate::wire::Request;

/// Its generic device, as of August 2026.
pub(super) const GENERIC: FrontEnd = FrontEnd {
    name: "OpenVMM, August 2026",
    features: u64::MAX,
    // MQ, REPLY_ACK, CONFIG, RESET_DEVICE.
    protocol: bits(&[0, 3, 9, 13]),
    acknowledged: Acknowledged::Among(&[
        Request::SetFeatures,
        Request::GiveMemory,
        Request::Size,
        Request::Addresses,
        Request::SetBase,
        Request::Kick,
        Request::Call,
        Request::Enable,
        Request::ResetDevice,
    ]),
    counts_pairs: false,
    passes_commands: true,
    takes_what_it_keeps: false,
    calls: Calls::Eventfd,
    // Addresses are the guest's, from here on.
    user: 1 << 52,
    greets: &[AskFeatures, AskProtocol, TakeProtocol, Tell(Request::SetOwner), AskQueues],
    starts: &[
        AskConfig(4),
        FirstTime(&[GiveMemory]),
        TakeFeatures,
        Each(&[Size, Addresses, RingStep::Base(ZeroTwice), Kick, Call, Enable(true)]),
    ],
    stops: &[Each(&[Enable(false), AskBase]), Tell(Request::ResetDevice)],
    returns: &[],
};
