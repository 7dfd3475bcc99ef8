//! Fuzz target: whatever a front end says, its guest writes into rings and descriptors, or their
//! frames are, the victims beside it lose nothing and get nothing that they may not, no turn costs
//! more than it may, and the next front end is served. A finding starts with `FINDING` and what
//! kind it is.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as
//! it is told, and `fuzz/prove` holds it against the faults of `fuzz/faults`. `FUZZ_ONLY=Frame`
//! leaves out all attacks but one kind.

mod world;

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;
use world::attack::Attack;
use world::{HOSTILE, World, modern};

use ports::vhost::Features;

/// Most attacks of a case.
const ATTACKS: usize = 12;

/// A finding is made smaller for so long: some seconds, or `FUZZ_SHRINK` of them.
fn shrink_time() -> Duration {
    let seconds = std::env::var("FUZZ_SHRINK").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Kept from case to case; a case that fails leaves none.
static WORLD: Mutex<Option<World>> = Mutex::new(None);

#[test]
fn fuzz_vhost() {
    bolero::check!().with_shrink_time(shrink_time()).with_type::<(bool, Vec<Attack>)>().for_each(
        |(packed, attacks)| {
            let mut kept = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
            let mut world = kept.take().unwrap_or_else(World::new);
            run(&mut world, *packed, attacks);
            *kept = Some(world);
        },
    );
}

fn run(world: &mut World, packed: bool, attacks: &[Attack]) {
    world.begin();
    world.check();
    let mut features = modern();
    features.set(Features::RING_PACKED, packed);
    let mut hostile = world.attacker(HOSTILE, features);
    for attack in attacks.iter().filter(|attack| is_chosen(attack)).take(ATTACKS) {
        world.carry_out(attack, &mut hostile);
    }
    hostile.guest.kick(0);
    hostile.guest.kick(1);
    world.check();
    drop(hostile);
    world.check();
}

/// Whether the attack is one of those that `FUZZ_ONLY` names; without it all are.
fn is_chosen(attack: &Attack) -> bool {
    static ONLY: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FUZZ_ONLY").ok());
    ONLY.as_ref().is_none_or(|only| format!("{attack:?}").starts_with(only))
}
