//! Fuzz target: whatever a responder reads from the network, it neither panics nor sends to a group
//! or in packets that are none; what it acknowledges is a whole probe; and an answer of any bytes
//! is read without a panic.

use path_mtu::frame::{Answer, Hello, LEN, Order, Probe, SIZES, SMALLEST};
use std::net::IpAddr;
use zerocopy::FromBytes;

#[test]
fn fuzz_frame() {
    bolero::check!().with_type::<(Vec<u8>, [u8; 16])>().for_each(|(bytes, ip)| {
        let mut message = [0; LEN];
        message.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        let hello = Hello::read_from_bytes(&message).unwrap();
        assert!(hello.token().is_none_or(|token| token.len() <= 128));
        if let Ok(wish) = Order::read_from_bytes(&message).unwrap().read() {
            let ip = wish.to.ip();
            assert!(!ip.is_multicast() && !ip.is_unspecified() && wish.to.port() != 0);
            assert!(wish.sizes.len() <= SIZES && wish.sizes.iter().all(|size| *size >= SMALLEST));
            assert_eq!(Order::new(&wish).read().unwrap(), wish);
        }
        if let Ok(outcome) = Answer::read_from_bytes(&message).unwrap().read(SIZES) {
            assert!(outcome.interface.bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(outcome.arrives_by.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        if let Ok(at) = Answer::read_from_bytes(&message).unwrap().attachment() {
            let names = at.below.iter().map(|it| &it.name).chain([&at.interface]);
            assert!(names.flat_map(|it| it.bytes()).all(|byte| byte.is_ascii_graphic()));
            assert!(at.prefix.is_none_or(|prefix| prefix <= 128));
        }
        assert!(Probe::arrival(bytes).bytes().all(|byte| byte.is_ascii_graphic()));
        let from = IpAddr::from(*ip);
        if let Some(probe) = Probe::read(bytes) {
            let reply = probe.reply("eth0", bytes.len());
            assert!(reply.len() <= bytes.len(), "FINDING (amplification)");
            assert!(Probe::read(&reply).is_none(), "FINDING (loop)");
            if probe.is_whole(bytes.len(), from) {
                assert!(Probe::acknowledged(&reply, *probe.badge(), probe.order()).is_some());
            }
        }
    });
}
