//! The redirect program and where it is attached: every frame of a queue goes to the queue's
//! socket.
//!
//! It is attached by a link, which the kernel removes with its last descriptor: with the port, or
//! with the process however that ends.

use crate::bpf::assemble::{Assembler, Helper, Instruction, Operation, Register, Width};
use crate::bpf::{self, Hook, SocketMap};
use crate::closing;
use crate::namespace;
use crate::packet::socket::PacketSocket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What the program returns for a queue without a socket: the host's stack gets the frame
/// (`XDP_PASS`).
const PASS: i32 = 2;
/// Where `struct xdp_md` has the receive queue.
const QUEUE: i16 = 16;

/// The program, loaded.
pub(super) struct Program {
    sockets: SocketMap,
    program: OwnedFd,
}

/// What has frames come to a port, until this is dropped: the program on the interface, which is
/// promiscuous where that was asked for.
pub(super) struct Attached {
    /// First, so that it goes first.
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
    /// A program for this many queues. EPERM: the process may not load one.
    pub(super) fn load(queues: u32) -> io::Result<Program> {
        let sockets = SocketMap::create(queues)?;
        let program = assemble(&sockets).ok_or(io::ErrorKind::InvalidInput)?;
        let program = bpf::load(bpf::Kind::Xdp, &program)?;
        Ok(Program { sockets, program })
    }

    /// The frames of a queue go to this socket.
    pub(super) fn redirect(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        self.sockets.set(queue, socket.as_fd())
    }

    /// Attaches it to an interface of a namespace, or of the calling thread's.
    pub(super) fn attach(
        &self,
        netns: Option<&Path>,
        interface: u32,
        hook: Hook,
    ) -> io::Result<OwnedFd> {
        Ok(namespace::attach(netns, self.program.as_fd(), interface, hook)?)
    }

    /// Keeps it attached by its link.
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
