//! The kernel path without packet sockets and traffic, for tests: the programs run on single frames,
//! at the test's call.
//!
//! The judge is loaded as a classifier, so that the frame of a run begins at its Ethernet header as
//! it does for a packet socket. Judge and carrier share a verdict by processor: the calling thread
//! stays on one.

use super::changes::Changed;
use super::claims::Claims;
use super::program::{Maps, Verdict, carrier, context, judge};
use super::{Flow, Hook, HookError, KernelPath, first, lock};
use crate::bpf::assemble::{Assembler, Condition, Helper, Operation, Register, Width};
use crate::bpf::run::{Context, run};
use crate::bpf::{self, Kind, PerProcessor};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The carrier's result for a frame that it redirects: `TC_ACT_REDIRECT`.
const REDIRECTED: u32 = 7;

/// The programs of a kernel path, to be run at a call.
pub struct Trial {
    path: KernelPath,
    judge: OwnedFd,
    carrier: OwnedFd,
}

/// A frame as an interface receives it.
#[derive(Clone, Copy, Debug)]
pub struct Received<'f> {
    /// The interface's number in the calling thread's namespace.
    pub interface: u32,
    /// The bytes, from the Ethernet header on.
    pub bytes: &'f [u8],
    /// The tag beside them, if there is one.
    pub tag: Option<u16>,
    /// Payload bytes of each segment; 0: it is no train.
    pub segment_size: u16,
    /// Segments of a train.
    pub segments: u16,
}

impl Trial {
    /// Prepares the programs of a path that no port is attached to, and keeps the thread on the
    /// processor that it is on.
    ///
    /// # Errors
    /// Fails as [`KernelPath::load`] does.
    pub fn new(path: &KernelPath) -> io::Result<Trial> {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here)?;
        let shared = &path.0;
        shared.is_tried.store(true, Ordering::Relaxed);
        let maps = Maps {
            flows: shared.flows.as_fd(),
            slots: shared.slots.as_fd(),
            generations: shared.generations.as_fd(),
            control: shared.control.as_fd(),
            verdict: shared.verdict.as_fd(),
        };
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        let claims = Claims::of_kernel().ok().filter(|_| path.unchecked().is_none());
        let claims = claims.map(Claims::of_runs);
        let judge = judge(tagging(), &maps, claims.as_ref()).ok_or_else(too_long)?;
        let carrier = carrier(&maps).ok_or_else(too_long)?;
        Ok(Trial {
            judge: match claims {
                Some(_) => bpf::load_reader(Kind::Classifier, &judge)?,
                None => bpf::load(Kind::Classifier, &judge)?,
            },
            carrier: bpf::load(Kind::Classifier, &carrier)?,
            path: path.clone(),
        })
    }

    /// Makes a hook whose frames only [`Trial::run`] sees.
    ///
    /// # Errors
    /// Fails if there are too many.
    pub fn hook(&self, interface: u32) -> Result<Hook, HookError> {
        let shared = self.path.0.clone();
        let number = lock(&shared.table).add_hook().ok_or(HookError::TooMany)?;
        Ok(Hook {
            shared,
            number,
            interface,
            namespace: 0,
            way: Flow::OUT,
            pending: Mutex::default(),
            pending_count: AtomicUsize::new(0),
            may_wait: true,
            is_station: true,
            changed: Changed::default(),
            big_until: AtomicU64::new(0),
            link: None,
        })
    }

    /// Runs the programs on a frame. Returns the interface that it is redirected to; `None`: the
    /// port's socket gets it.
    ///
    /// # Errors
    /// Fails if the kernel refuses the frame, or if the programs do not agree about it.
    pub fn run(&self, frame: &Received<'_>) -> io::Result<Option<u32>> {
        let context = frame.context();
        let (shown, _) = run(self.judge.as_fd(), frame.bytes, Some(&context), 1)?;
        if shown != 0 {
            return Ok(None);
        }
        let place = self.verdict()?.ok_or_else(|| io::Error::other("hidden without a verdict"))?;
        let (result, _) = run(self.carrier.as_fd(), frame.bytes, Some(&context), 1)?;
        if result != REDIRECTED {
            return Err(io::Error::other(format!("the carrier's result is {result}")));
        }
        Ok(Some(first(self.path.0.word(place, Flow::INTERFACE).load(Ordering::Relaxed))))
    }

    /// Returns the place of the flow that the judge left for the carrier.
    fn verdict(&self) -> io::Result<Option<u32>> {
        let mut values = [0; PerProcessor::ROOM];
        self.path.0.verdict.read(&mut values)?;
        let at = usize::from(Verdict::FLOW.unsigned_abs());
        let flow = |value: &[u8]| Some(u32::from_ne_bytes(*value.get(at..)?.first_chunk()?));
        let flows = values.chunks_exact(Verdict::SIZE as usize).filter_map(flow);
        Ok(flows.filter(|flow| *flow != 0).map(|flow| flow - 1).next())
    }
}

impl Received<'_> {
    fn context(&self) -> Context {
        let mut context = [0; 48];
        let mut set = |offset: i16, value| {
            let place = context.get_mut(usize::from(offset.unsigned_abs()) / 4);
            place.into_iter().for_each(|place: &mut u32| *place = value);
        };
        set(context::INTERFACE, self.interface);
        set(context::SEGMENTS, self.segments.into());
        set(context::SEGMENT_SIZE, self.segment_size.into());
        set(context::MARK, self.tag.map_or(0, |tag| 1 << 16 | u32::from(tag)));
        context
    }
}

/// Puts a tag beside the frame if the run's mark has one: a run cannot give it.
fn tagging() -> Assembler {
    use Register::{R1, R2, R3, R6};
    let mut code = Assembler::default();
    let untagged = code.label();
    code.combine(R6, Operation::Set, R1);
    code.load(R3, Width::Word, R6, context::MARK);
    code.jump_if(R3, Condition::Equal, 0, untagged);
    code.compute(R3, Operation::And, 0xffff);
    code.compute(R2, Operation::Set, i32::from(0x8100u16.to_be()));
    code.call(Helper::PushTag);
    code.place(untagged);
    code.combine(R1, Operation::Set, R6);
    code
}
