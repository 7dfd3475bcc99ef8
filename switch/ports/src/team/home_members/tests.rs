use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn mac(number: u32) -> Mac {
    Mac::from_u64(0x0200_0000_0000 + u64::from(number))
}

fn known(addresses: u32, alive: Mask) -> HomeMembers {
    let homes = HomeMembers::new();
    for number in 0..addresses {
        homes.note(mac(number).to_u64(), alive, 1).unwrap();
    }
    homes
}

fn spread(homes: &HomeMembers, alive: Mask) -> Vec<usize> {
    alive
        .places()
        .map(|place| {
            homes.list().iter().filter(|(_, home)| home.current(alive) == Some(place)).count()
        })
        .collect()
}

fn differ_by_one(counts: &[usize]) -> bool {
    counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0) <= 1
}

proptest! {
    #[test]
    fn homes_are_even_after_any_sequence_of_members(
        addresses in 1u32..200,
        masks in vec(1u8..=255, 1..12),
    ) {
        let mut alive = Mask(masks[0]);
        let homes = known(addresses, alive);
        prop_assert!(differ_by_one(&spread(&homes, alive)));
        for mask in masks {
            let (old, new) = (alive, Mask(mask));
            let before: Vec<_> = homes.list();
            let moved = homes.change(old, new, Mask(255), || ());
            alive = new;
            for (mac, home) in homes.list() {
                let to = home.current(alive).unwrap();
                prop_assert!(alive.has(to));
                let was = before.iter().find(|(other, _)| *other == mac).unwrap().1.current(old);
                let is_told = moved.contains(&Moved { mac, to });
                prop_assert_eq!(is_told, was != Some(to));
            }
        }
    }

    /// Addresses that did not leave by the failed member stay where they are; the others spread
    /// evenly, and return home.
    #[test]
    fn a_failure_moves_only_what_it_must(addresses in 1u32..200, members in 3u8..=255, which: u8) {
        let all = Mask(members);
        let Some(failed) = all.nth(which.into()) else { return Ok(()) };
        let left = all.without(failed);
        if left.is_empty() {
            return Ok(());
        }
        let homes = known(addresses, all);
        let before = homes.list();
        let at_failed = before.iter().filter(|(_, home)| home.home() == failed).count();
        let moved = homes.change(all, left, all, || ());
        prop_assert_eq!(moved.len(), at_failed);
        prop_assert!(moved.iter().all(|moved| left.has(moved.to)));
        prop_assert!(differ_by_one(&spread(&homes, left)));
        let back = homes.change(left, all, all, || ());
        prop_assert_eq!(back.len(), at_failed);
        let after: Vec<_> = homes.list().iter().map(|(mac, home)| (*mac, home.current(all))).collect();
        let first: Vec<_> = before.iter().map(|(mac, home)| (*mac, home.current(all))).collect();
        prop_assert_eq!(after, first);
    }

    /// A member that joins takes its share and no more.
    #[test]
    fn a_member_that_joins_moves_its_share_alone(addresses in 1u32..200, members in 1u8..=127) {
        let (old, new) = (Mask(members), Mask(members).with(Place(7)));
        let homes = known(addresses, old);
        let moved = homes.change(old, new, new, || ());
        prop_assert!(differ_by_one(&spread(&homes, new)));
        prop_assert!(moved.iter().all(|moved| moved.to == Place(7)));
        prop_assert!(moved.len() <= (addresses as usize).div_ceil(new.0.count_ones() as usize));
    }

    #[test]
    fn a_pinned_address_leaves_by_its_member_or_not_at_all(masks in vec(any::<u8>(), 1..10)) {
        let homes = known(9, Mask(255));
        homes.pin(&[(mac(3), Place(5)), (mac(77), Place(6))], Mask(255), 1);
        let mut alive = Mask(255);
        for mask in masks {
            homes.change(alive, Mask(mask), Mask(255), || ());
            alive = Mask(mask);
            for (pinned, place) in [(3, Place(5)), (77, Place(6))] {
                let home = homes.get(mac(pinned).to_u64()).unwrap();
                prop_assert_eq!(home.current(alive), alive.has(place).then_some(place));
            }
        }
    }
}

#[test]
fn a_place_without_a_member_is_nobodys_home() {
    let (all, left) = (Mask(7), Mask(5));
    let homes = known(30, all);
    homes.change(all, left, left, || ());
    assert!(homes.list().iter().all(|(_, home)| left.has(home.home())));
    assert!(differ_by_one(&spread(&homes, left)));
}

#[test]
fn an_address_that_is_freed_moves_with_the_others_again() {
    let homes = known(2, Mask(3));
    let pins = [(mac(0), Place(0))];
    homes.pin(&pins, Mask(3), 1);
    assert!(homes.get(mac(0).to_u64()).unwrap().is_pinned());
    homes.pin(&[], Mask(3), 1);
    homes.change(Mask(3), Mask(2), Mask(3), || ());
    assert_eq!(homes.get(mac(0).to_u64()).unwrap().current(Mask(2)), Some(Place(1)));
}

proptest! {
    /// Every write updates the counts, so a new address costs no scan of the table.
    #[test]
    fn the_counts_are_those_of_the_table(
        steps in vec((0u8..5, 0u32..40, any::<u8>()), 1..60),
    ) {
        let (homes, mut alive) = (HomeMembers::new(), Mask(255));
        let mut now_ms = 1;
        for (step, number, mask) in steps {
            let place = Place(mask & 7);
            match step {
                0 | 1 => drop(homes.note(mac(number).to_u64(), alive, now_ms)),
                2 => homes.forget(mac(number).to_u64()),
                3 => drop(homes.pin(&[(mac(number), place)], alive, now_ms)),
                _ => {
                    homes.change(alive, Mask(mask), Mask(mask | 1), || ());
                    alive = Mask(mask);
                    now_ms += STALE_MS / 3;
                }
            }
            prop_assert_eq!(*lock(&homes.counts), homes.counted());
        }
    }
}

/// A guest that sent from millions of addresses filled the table, and a pinned vNIC then left by
/// any member.
#[test]
fn a_pin_finds_room_in_a_full_table() {
    let homes = known(0, Mask(3));
    for number in 0..80_000 {
        homes.note(mac(number).to_u64(), Mask(3), 1);
    }
    let pins: Vec<_> = (100_000..100_050).map(|number| (mac(number), Place(1))).collect();
    assert_eq!(homes.pin(&pins, Mask(3), 2), (Vec::new(), Vec::new()));
    for (pinned, _) in pins {
        let home = homes.get(pinned.to_u64()).unwrap();
        assert!(home.is_pinned() && home.home() == Place(1));
    }
    assert_eq!(*lock(&homes.counts), homes.counted());
}

#[test]
fn a_full_table_refuses_until_an_address_is_stale() {
    let homes = HomeMembers::new();
    let mut refused = None;
    for number in 0..80_000 {
        if homes.note(mac(number).to_u64(), Mask(3), 1).is_none() {
            refused = Some(mac(number).to_u64());
        }
    }
    let refused = refused.unwrap();
    assert!(homes.note(refused, Mask(3), STALE_MS).is_none());
    assert!(homes.note(refused, Mask(3), STALE_MS + 2).is_some());
}

/// The age of an address wrapped if another worker's clock was ahead: addresses that had just sent
/// gave way to new ones and to pins.
#[test]
fn an_address_that_sent_by_a_clock_that_is_ahead_keeps_its_slot() {
    let homes = HomeMembers::new();
    for number in 0..80_000 {
        homes.note(mac(number).to_u64(), Mask(3), 500);
    }
    let known = (0..80_000).map(|number| mac(number).to_u64());
    let known: Vec<u64> = known.filter(|mac| homes.get(*mac).is_some()).collect();
    for number in 80_000..90_000 {
        homes.note(mac(number).to_u64(), Mask(3), 499);
    }
    assert!(known.iter().all(|known| homes.get(*known).is_some()));
    let ahead = || known.iter().step_by(8);
    assert!(ahead().all(|known| homes.note(*known, Mask(3), 1001).is_some()));
    let pins: Vec<_> = (100_000..100_050).map(|number| (mac(number), Place(1))).collect();
    assert_eq!(homes.pin(&pins, Mask(3), 1000), (Vec::new(), Vec::new()));
    assert!(ahead().all(|known| homes.get(*known).is_some()));
}

/// A product with a random number put addresses in a row into few slots, and 200 had no room.
#[test]
fn addresses_in_a_row_have_room() {
    for _ in 0..20 {
        known(1000, Mask(3));
    }
}
