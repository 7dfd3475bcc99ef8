//! The redirect program and its attachment to an interface: every frame of a queue goes to the
//! queue's socket.
//!
//! A link attaches it. The kernel removes the link with its last descriptor: when the port closes,
//! or when the process ends in any way.

use crate::bpf::assemble::{Assembler, Helper, Instruction, Operation, Register, Width};
use crate::bpf::{self, Hook, SocketMap};
use crate::closing;
use crate::namespace;
use crate::packet::socket::PacketSocket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The program's result for a queue without a socket: the host's stack gets the frame (`XDP_PASS`).
const PASS: i32 = 2;
/// Offset of the receive queue in `struct xdp_md`.
const QUEUE: i16 = 16;

/// The loaded program.
pub(super) struct Program {
    sockets: SocketMap,
    program: OwnedFd,
}

/// Directs frames to a port until it is dropped: the program on the interface, which is promiscuous
/// if that was asked for.
pub(super) struct Attached {
    /// Declared first, so that it is dropped first.
    link: OwnedFd,
    _program: Program,
    _promiscuous: Option<PacketSocket>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        closing::collect(self.link.as_fd());
    }
}

impl Program {
    /// Loads a program for this many queues. Fails with EPERM if the process may not load one.
    pub(super) fn load(queues: u32) -> io::Result<Program> {
        let sockets = SocketMap::create(queues)?;
        let program = assemble(&sockets).ok_or(io::ErrorKind::InvalidInput)?;
        let program = bpf::load(bpf::Kind::Xdp, &program)?;
        Ok(Program { sockets, program })
    }

    /// Redirects the frames of a queue to this socket. Fails if the kernel refuses the socket.
    pub(super) fn redirect(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        self.sockets.set(queue, socket.as_fd())
    }

    /// Attaches the program to an interface of a namespace, or of the calling thread's. Fails if
    /// the hook is not supported or another program is attached.
    pub(super) fn attach(
        &self,
        netns: Option<&Path>,
        interface: u32,
        hook: Hook,
    ) -> io::Result<OwnedFd> {
        Ok(namespace::attach(netns, self.program.as_fd(), interface, hook)?)
    }

    /// Keeps the program attached by its link.
    pub(super) fn keep(self, link: OwnedFd, promiscuous: Option<PacketSocket>) -> Attached {
        Attached { link, _program: self, _promiscuous: promiscuous }
    }
}

/// `return redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`
fn assemble(sockets: &SocketMap) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    program.load(Register::R2, Width::Word, Register::R1, QUEUE);
    program.map(Register::R1, sockets);
    program.compute(Register::R3, Operation::Set, PASS);
    program.call(Helper::RedirectMap);
    program.exit();
    program.finish()
}
