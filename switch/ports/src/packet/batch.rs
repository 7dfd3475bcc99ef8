//! Batches of moves that can run at once: no queue in a batch is both an old and a new one.

/// Moves of a batch to one queue.
#[derive(Debug)]
pub(super) struct Arrivals<T> {
    /// The new queue.
    pub(super) to: usize,
    /// The old queues, each once.
    pub(super) from: Vec<usize>,
    /// The moved items.
    pub(super) moves: Vec<T>,
}

/// Splits moves (old queue, new queue, what moves) into batches to run one after the other. Each
/// goes into the first possible batch, so the first moves run first. Moves that stay at their queue
/// are left out.
pub(super) fn batches<T>(
    moves: impl IntoIterator<Item = (usize, usize, T)>,
) -> Vec<Vec<Arrivals<T>>> {
    let mut batches: Vec<Vec<Arrivals<T>>> = Vec::new();
    for (from, to, moving) in moves.into_iter().filter(|(from, to, _)| from != to) {
        let is_apart = |arrivals: &Arrivals<T>| arrivals.to != from && !arrivals.from.contains(&to);
        match batches.iter_mut().find(|batch| batch.iter().all(is_apart)) {
            Some(batch) => add(batch, from, to, moving),
            None => batches.push(vec![Arrivals { to, from: vec![from], moves: vec![moving] }]),
        }
    }
    batches
}

fn add<T>(batch: &mut Vec<Arrivals<T>>, from: usize, to: usize, moving: T) {
    let Some(arrivals) = batch.iter_mut().find(|arrivals| arrivals.to == to) else {
        return batch.push(Arrivals { to, from: vec![from], moves: vec![moving] });
    };
    if !arrivals.from.contains(&from) {
        arrivals.from.push(from);
    }
    arrivals.moves.push(moving);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Returns old and new queue of each move, batch by batch.
    fn split(moves: &[(usize, usize)]) -> Vec<Vec<(usize, usize)>> {
        let moves = moves.iter().map(|&(from, to)| (from, to, (from, to)));
        let of_batch =
            |batch: Vec<Arrivals<_>>| batch.into_iter().flat_map(|it| it.moves).collect();
        batches(moves).into_iter().map(of_batch).collect()
    }

    #[test]
    fn one_queue_to_several_is_one_batch_and_a_circle_is_several() {
        assert_eq!(split(&[(0, 1), (0, 2), (0, 3)]).len(), 1);
        assert_eq!(split(&[(1, 0), (2, 0), (3, 0)]).len(), 1);
        assert_eq!(split(&[(0, 1), (1, 0)]), [[(0, 1)], [(1, 0)]]);
        let four = split(&[(0, 1), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(four, [[(0, 1), (2, 3)], [(1, 2), (3, 0)]]);
        assert_eq!(split(&[(0, 1), (1, 2), (2, 0)]).len(), 3);
        assert!(split(&[(2, 2)]).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_queue_of_a_batch_is_both_old_and_new_and_no_move_could_be_made_earlier(
            moves in vec((0usize..6, 0usize..6), 0..60),
        ) {
            let meets = |one: (usize, usize), other: (usize, usize)| one.0 == other.1 || one.1 == other.0;
            let of = split(&moves);
            for batch in &of {
                prop_assert!(batch.iter().all(|&one| batch.iter().all(|&other| !meets(one, other))));
            }
            for pair in of.windows(2) {
                let waits = |&one: &(usize, usize)| pair[0].iter().any(|&other| meets(one, other));
                prop_assert!(pair[1].iter().all(waits));
            }
            let mut all = of.concat();
            let mut wanted: Vec<_> = moves.into_iter().filter(|(from, to)| from != to).collect();
            [&mut all, &mut wanted].into_iter().for_each(|moves| moves.sort_unstable());
            prop_assert_eq!(all, wanted);
        }

        #[test]
        fn a_batch_names_each_new_queue_once_with_its_old_ones(
            moves in vec((0usize..6, 0usize..6), 0..60),
        ) {
            for batch in batches(moves.iter().map(|&(from, to)| (from, to, (from, to)))) {
                let news: BTreeSet<usize> = batch.iter().map(|arrivals| arrivals.to).collect();
                prop_assert_eq!(news.len(), batch.len());
                for Arrivals { to, from, moves } in batch {
                    prop_assert!(moves.iter().all(|moving| moving.1 == to));
                    let olds: BTreeSet<usize> = moves.iter().map(|moving| moving.0).collect();
                    prop_assert_eq!((olds.len(), olds), (from.len(), from.into_iter().collect()));
                }
            }
        }
    }
}
