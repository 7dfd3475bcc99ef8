//! Fuzz target: whatever frames arrive and whatever changes in between, the kernel path leaves a
//! frame to the switch, or carries it to the one port that the switch delivers it to, and to no
//! other, as it is. A finding starts with `FINDING` and what kind it is.
//!
//! The kernel's side are the programs themselves, run on single frames; the decisions get there by
//! the switch's own turns, as in production. Each frame is tried in the kernel first, and then sent
//! through the switch, whose answer is the right one.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told, and `fuzz/prove` holds it against the faults of `fuzz/faults`.

mod change;
mod frame;
mod world;

use bolero::TypeGenerator;
pub(crate) use change::plain;
use frame::Conversation;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use world::{Site, World};

/// A case: conversations between stations, and what happens in order.
#[derive(Clone, Debug, TypeGenerator)]
struct Case {
    conversations: [Conversation; 4],
    #[generator(bolero::generator::produce::<Vec<Step>>().with().len(0usize..400))]
    steps: Vec<Step>,
}

/// What happens next; the numbers say what and with what values.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Step {
    kind: u8,
    place: u8,
    edit: u8,
    values: [u16; 2],
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    frames: u64,
    carried: u64,
    changes: u64,
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

#[test]
fn fuzz_kernel_path() {
    at_a_site(|| {
        let start = Instant::now();
        // Within the test, whose name the target has.
        bolero::check!().with_shrink_time(shrink_time()).with_type::<Case>().for_each(try_out);
        report(start);
    });
}

/// The kernel carried on to the uplink what had become a guest's.
#[test]
fn a_flow_ends_when_the_port_comes_up_that_has_its_address() {
    let step = |kind, place, edit, values| Step { kind, place, edit, values };
    let [change, wander, talk] = [206, 200, 0];
    let told = step(change, 2, 25, [0, 0]);
    let heard = step(talk, 1, 255, [0, 0]);
    let case = |comes_up| Case {
        conversations: [(1, 2), (132, 3), (1, 3), (1, 3)].map(Conversation::tcp),
        steps: vec![
            // Station 1 is known, so that no frame to it is flooded.
            step(talk, 2, 255, [0, 0]),
            // Port 2 has the address of its station, and goes down.
            step(change, 2, 5, [2, 0]),
            step(change, 2, 24, [0, 0]),
            // The station is at the uplink, and is called from port 1.
            step(wander, 0x10, 0, [0, 0]),
            step(talk, 0, 80, [0, 0]),
            step(talk, 0, 255, [0, 0]),
            comes_up,
            step(talk, 0, 255, [0, 0]),
        ],
    };
    for comes_up in [told, heard] {
        at_a_site(|| {
            try_out(&case(comes_up));
            let tried = SITE.with_borrow(|site| site.as_ref().expect("made before").tried);
            assert_eq!(tried.carried, 1, "the frame before port 2 came up: {tried:?}");
        });
    }
}

/// Calls `work` in a namespace with a site, where that is possible.
fn at_a_site(work: impl FnOnce() + Send) {
    let tested = ports::namespace::fresh(|| match Site::make() {
        Ok(site) => {
            SITE.set(Some(site));
            work();
        }
        Err(error) => eprintln!("skipped: needs CAP_BPF and CAP_NET_ADMIN: {error}"),
    });
    if let Err(error) = tested {
        eprintln!("skipped: needs the right to make a network namespace: {error}");
    }
}

fn shrink_time() -> Duration {
    let seconds = std::env::var("FUZZ_SHRINK").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

fn try_out(case: &Case) {
    SITE.with_borrow_mut(|site| {
        let mut world = World::new(site.as_mut().expect("made before"));
        case.steps.iter().for_each(|step| world.carry_out(&case.conversations, *step));
    });
}

fn report(start: Instant) {
    let tried = SITE.with_borrow(|site| site.as_ref().expect("made before").tried);
    let rate = tried.frames as f64 / start.elapsed().as_secs_f64();
    eprintln!("{tried:?}, {rate:.0} frames a second");
    assert!(tried.carried > tried.frames / 100, "hardly any frame was carried: {tried:?}");
}
