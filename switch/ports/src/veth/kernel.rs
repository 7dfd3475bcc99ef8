//! What the kernel is asked about veth pairs by rtnetlink, in the network namespace of the calling
//! thread. The numbers are those of `linux/if_link.h`, `linux/rtnetlink.h` and `linux/pkt_cls.h`.

use super::HostEnd;
use netlink::{ACK, DUMP, Socket, attribute, attributes, number, of};
use rustix::io::{Errno, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use wire::Mac;

/// `NLM_F_CREATE | NLM_F_EXCL`.
const NEW: u16 = 0x600;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_DISCIPLINE: u16 = 36;
const NEW_FILTER: u16 = 44;
const GET_NAMESPACE: u16 = 90;

/// Attributes of a link, `IFLA_*`.
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const PEER: u16 = 5;
const INFO: u16 = 18;
const ALIAS: u16 = 20;
const BY_FAMILY: u16 = 26;
const NAMESPACE_BY_FILE: u16 = 28;
const PEER_NAMESPACE: u16 = 37;

/// Attributes inside `IFLA_LINKINFO`.
const KIND: u16 = 1;
const DATA: u16 = 2;
/// `VETH_INFO_PEER`: a link's header and attributes.
const OTHER_END: u16 = 1;

/// A link as the kernel describes it.
pub(super) struct Seen {
    pub(super) index: u32,
    /// Its name and address, by which a host end is known.
    pub(super) end: HostEnd,
    pub(super) is_veth: bool,
    pub(super) alias: String,
    /// The number of the other end, in its namespace.
    pub(super) peer: Option<u32>,
    /// The number by which this namespace knows that of the other end; `None` if it is the same.
    pub(super) peer_namespace: Option<u32>,
}

/// The ends of a pair to make.
pub(super) struct NewPair<'a> {
    pub(super) host: &'a HostEnd,
    /// The name of the other end.
    pub(super) name: &'a str,
    /// Its address; `None` for a random one.
    pub(super) mac: Option<Mac>,
    /// Its namespace; `None` for this one.
    pub(super) namespace: Option<BorrowedFd<'a>>,
    /// Largest IP packet of both ends in bytes; `None` for the kernel's default.
    pub(super) mtu: Option<u16>,
}

/// An rtnetlink socket.
pub(super) struct Kernel(Socket);

impl Kernel {
    pub(super) fn open() -> Result<Kernel> {
        Socket::open().map(Kernel)
    }

    /// Returns the link of this name; `None` if there is none.
    pub(super) fn find(&self, name: &str) -> Result<Option<Seen>> {
        let mut body = header(0);
        attribute(&mut body, NAME, &text(name));
        match self.0.ask(GET_LINK, ACK, body) {
            Ok(found) => Ok(found.first().and_then(|body| seen(body))),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all links of this namespace.
    pub(super) fn links(&self) -> Result<Vec<Seen>> {
        let bodies = self.0.ask(GET_LINK, DUMP, header(0))?;
        Ok(bodies.iter().filter_map(|body| seen(body)).collect())
    }

    /// Returns the number by which this namespace knows another one; `None` if it knows none.
    pub(super) fn number_of(&self, namespace: BorrowedFd<'_>) -> Result<Option<u32>> {
        /// `NETNSA_NSID` and `NETNSA_FD`.
        const NUMBER: u16 = 1;
        const FILE: u16 = 3;
        let mut body = vec![0; 4];
        attribute(&mut body, FILE, &file(namespace));
        let answers = self.0.ask(GET_NAMESPACE, ACK, body)?;
        let answer = answers.first().and_then(|body| body.get(4..)).unwrap_or_default();
        let told = of(&attributes(answer), NUMBER).and_then(number);
        // All ones: it has none.
        Ok(told.filter(|number| *number != u32::MAX))
    }

    /// Makes a pair in one step, the other end under its name in its namespace. Both are down: an end
    /// cannot come up before it has the other. Fails with EXIST if one of the names is taken.
    pub(super) fn make(&self, pair: &NewPair<'_>) -> Result<()> {
        let end = |body: &mut Vec<u8>, name: &str, mac: Option<Mac>| {
            attribute(body, NAME, &text(name));
            if let Some(mac) = mac {
                attribute(body, ADDRESS, &mac.0);
            }
            if let Some(mtu) = pair.mtu {
                attribute(body, MTU, &u32::from(mtu).to_ne_bytes());
            }
        };
        let mut other = header(0);
        end(&mut other, pair.name, pair.mac);
        if let Some(namespace) = pair.namespace {
            attribute(&mut other, NAMESPACE_BY_FILE, &file(namespace));
        }
        let mut body = header(0);
        end(&mut body, &pair.host.name, Some(pair.host.mac));
        let mut info = nest(&[(KIND, b"veth")]);
        attribute(&mut info, DATA, &nest(&[(OTHER_END, &other)]));
        attribute(&mut body, INFO, &info);
        self.0.ask(NEW_LINK, ACK | NEW, body).map(drop)
    }

    /// Deletes a link, and the other end with it.
    pub(super) fn delete(&self, index: u32) -> Result<()> {
        match self.0.ask(DELETE_LINK, ACK, header(index)) {
            // Its namespace ended, or somebody else deleted it.
            Err(Errno::NODEV) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Notes for people what a link is for.
    pub(super) fn describe(&self, index: u32, alias: &str) -> Result<()> {
        let mut body = header(index);
        attribute(&mut body, ALIAS, &text(alias));
        self.0.ask(NEW_LINK, ACK, body).map(drop)
    }

    /// Keeps the kernel from giving a link an IPv6 address when it comes up.
    pub(super) fn assign_no_address(&self, index: u32) -> Result<()> {
        /// `IFLA_INET6_ADDR_GEN_MODE`, and `IN6_ADDR_GEN_MODE_NONE` of it.
        const GENERATE: (u16, &[u8]) = (8, &[1]);
        /// `AF_INET6`
        const INET6: u16 = 10;
        let mut body = header(index);
        attribute(&mut body, BY_FAMILY, &nest(&[(INET6, &nest(&[GENERATE]))]));
        match self.0.ask(NEW_LINK, ACK, body) {
            // The kernel has no IPv6, or the link's MTU is too small for it.
            Err(Errno::AFNOSUPPORT) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Has the stack take no IPv4 packet that arrives at a link but broadcasts and multicasts from
    /// 0.0.0.0: without an address there no other source is plausible, nothing is forwarded, and no
    /// ARP request is answered.
    pub(super) fn believe_no_source(&self, index: u32) -> Result<()> {
        /// `IFLA_INET_CONF`, and of it `IPV4_DEVCONF_FORWARDING`, `…_RP_FILTER`, `…_ARP_IGNORE`.
        const CONFIGURATION: u16 = 1;
        const SETTINGS: [(u16, &[u8]); 3] =
            [(1, &0u32.to_ne_bytes()), (8, &1u32.to_ne_bytes()), (19, &8u32.to_ne_bytes())];
        /// `AF_INET`
        const INET: u16 = 2;
        let configuration = nest(&[(CONFIGURATION, &nest(&SETTINGS))]);
        let mut body = header(index);
        attribute(&mut body, BY_FAMILY, &nest(&[(INET, &configuration)]));
        self.0.ask(NEW_LINK, ACK, body).map(drop)
    }

    /// Drops what arrives at a link before the host's stack gets it. Packet sockets have taken it by
    /// then, and so have filters of others.
    pub(super) fn drop_for_stack(&self, index: u32) -> Result<()> {
        /// `TC_H_CLSACT`, and its ingress.
        const CLSACT: u32 = 0xffff_fff1;
        const INGRESS: u32 = 0xffff_fff2;
        /// `ETH_P_ALL`, after the last priority.
        const LAST_OF_ALL: u32 = 0xffff << 16 | 3u16.to_be() as u32;
        let mut body = traffic(index, 0xffff_0000, CLSACT, 0);
        attribute(&mut body, KIND, b"clsact\0");
        done_before(self.0.ask(NEW_DISCIPLINE, ACK | NEW, body))?;
        let mut body = traffic(index, 1, INGRESS, LAST_OF_ALL);
        attribute(&mut body, KIND, b"bpf\0");
        attribute(&mut body, DATA, &nest(&DROP_ALL));
        done_before(self.0.ask(NEW_FILTER, ACK | NEW, body))
    }
}

/// Attributes of a filter: one instruction of classic BPF, `return TC_ACT_SHOT`, which needs no
/// privilege for eBPF; and its result is the verdict (`TCA_BPF_FLAG_ACT_DIRECT`).
const DROP_ALL: [(u16, &[u8]); 3] = {
    const LENGTH: [u8; 2] = 1u16.to_ne_bytes();
    const RETURN: [u8; 2] = 6u16.to_ne_bytes();
    const SHOT: [u8; 4] = 2u32.to_ne_bytes();
    const DIRECT: [u8; 4] = 1u32.to_ne_bytes();
    const INSTRUCTION: [u8; 8] = [RETURN[0], RETURN[1], 0, 0, SHOT[0], SHOT[1], SHOT[2], SHOT[3]];
    [(4, &LENGTH), (5, &INSTRUCTION), (8, &DIRECT)]
};

/// Returns a `struct ifinfomsg` for the link of this number, 0 for none.
fn header(index: u32) -> Vec<u8> {
    [0, index, 0, 0].map(u32::to_ne_bytes).concat()
}

/// Returns a `struct tcmsg`.
fn traffic(index: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, index, handle, parent, info].map(u32::to_ne_bytes).concat()
}

/// Returns attributes as the value of another one.
fn nest(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut nested = Vec::new();
    attributes.iter().for_each(|(kind, value)| attribute(&mut nested, *kind, value));
    nested
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn file(file: BorrowedFd<'_>) -> [u8; 4] {
    file.as_raw_fd().to_ne_bytes()
}

/// An earlier process has done the same.
fn done_before(done: Result<Vec<Vec<u8>>>) -> Result<()> {
    match done {
        Err(Errno::EXIST) => Ok(()),
        done => done.map(drop),
    }
}

fn seen(body: &[u8]) -> Option<Seen> {
    let attributes = attributes(body.get(16..)?);
    let string = |value: &[u8]| String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
    let named = |kind| of(&attributes, kind).map(string);
    let info = netlink::attributes(of(&attributes, INFO).unwrap_or_default());
    Some(Seen {
        index: number(body.get(4..8)?)?,
        end: HostEnd {
            name: named(NAME)?,
            // A tunnel has an address of another length, or none.
            mac: Mac(of(&attributes, ADDRESS)
                .and_then(|it| it.try_into().ok())
                .unwrap_or_default()),
        },
        is_veth: of(&info, KIND).map(string).is_some_and(|kind| kind == "veth"),
        alias: named(ALIAS).unwrap_or_default(),
        peer: of(&attributes, PEER).and_then(number),
        peer_namespace: of(&attributes, PEER_NAMESPACE).and_then(number),
    })
}
