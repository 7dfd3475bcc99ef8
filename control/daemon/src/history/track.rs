//! The history of one port, or of the switch: each second of ten minutes, each minute of a day.

use super::cell::{decode, encode};
use super::series::{BLOCK, Series};

/// Blocks of seconds: ten whole minutes and the current one.
pub(super) const SECONDS: usize = 11;
/// Most blocks of minutes: 24 whole hours and the current one.
pub(super) const MINUTES: usize = 25;

/// `N` values a second, of which the first `SUMS` are counts and the others levels: a minute has the
/// sum of a count, and the highest of a level.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Track<const N: usize, const SUMS: usize> {
    /// The counters at the last look.
    last: [u64; N],
    /// The second of the last look.
    pub(super) looked: u64,
    /// The minute of which `minute` has the values so far.
    number: u64,
    minute: [u64; N],
    /// `None` if there is no room for seconds.
    pub(super) seconds: Option<Series<N>>,
    pub(super) minutes: Series<N>,
}

impl<const N: usize, const SUMS: usize> Track<N, SUMS> {
    /// Creates a track, with or without seconds.
    pub(super) fn new(has_seconds: bool) -> Track<N, SUMS> {
        let seconds = has_seconds.then(Series::default);
        Track {
            last: [0; N],
            looked: 0,
            number: 0,
            minute: [0; N],
            seconds,
            minutes: Series::default(),
        }
    }

    /// Returns a track that goes on where another process stopped.
    pub(super) fn resumed(seconds: Option<Series<N>>, minutes: Series<N>) -> Track<N, SUMS> {
        let number = minutes.newest;
        let minute = minutes.get(number).map_or([0; N], |cell| cell.map(decode));
        Track { last: [0; N], looked: 0, number, minute, seconds, minutes }
    }

    /// Takes counters and levels at the end of a second, after a look that many seconds ago. What
    /// was counted since is spread over these seconds, and returned. Keeps at most so many blocks of
    /// minutes.
    pub(super) fn take(
        &mut self,
        second: u64,
        elapsed: u64,
        now: [u64; N],
        hours: usize,
    ) -> [u64; N] {
        let mut left = now;
        for ((left, now), last) in left.iter_mut().zip(now).zip(self.last).take(SUMS) {
            // A port that was opened anew counts from zero.
            *left = now.checked_sub(last).unwrap_or(now);
        }
        (self.last, self.looked) = (now, second);
        let growth = left;
        // More seconds than are kept are not filled one by one.
        let elapsed = elapsed.clamp(1, BLOCK * SECONDS as u64);
        for rest in (0..elapsed).rev() {
            let mut own = left;
            for (own, left) in own.iter_mut().zip(&mut left).take(SUMS) {
                *own = *left / (rest + 1);
                *left -= *own;
            }
            self.put(second.saturating_sub(rest), own, hours);
        }
        growth
    }

    fn put(&mut self, second: u64, own: [u64; N], hours: usize) {
        if let Some(seconds) = &mut self.seconds {
            seconds.put(second, own.map(encode), SECONDS);
        }
        let number = second / BLOCK;
        if number != self.number {
            (self.number, self.minute) = (number, [0; N]);
        }
        for (place, (minute, own)) in self.minute.iter_mut().zip(own).enumerate() {
            *minute = if place < SUMS { minute.saturating_add(own) } else { own.max(*minute) };
        }
        self.minutes.put(number, self.minute.map(encode), hours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_seconds_of_a_minute_add_up_to_it(
            steps in prop::collection::vec((1_u64..5, 0_u64..1 << 34, 0_u64..9), 1..300),
            start in 0_u64..600,
        ) {
            let (mut track, mut second) = (Track::<2, 1>::new(true), 6000 + start);
            let (mut counter, mut counted) = (0, 0);
            for (elapsed, count, level) in steps {
                second += elapsed;
                (counter, counted) = (counter + count, counted + count);
                track.take(second, elapsed, [counter, level], MINUTES);
                // Its device is opened anew now and then.
                if count % 7 == 0 {
                    (counter, track.last[0]) = (0, 0);
                }
            }
            let seconds = track.seconds.as_ref().unwrap();
            let of = |number: u64| (number * BLOCK..(number + 1) * BLOCK).filter_map(|at| seconds.get(at));
            let mut sum = 0;
            for number in (second / BLOCK).saturating_sub(9)..=second / BLOCK {
                let Some(minute) = track.minutes.get(number) else { continue };
                let added: u64 = of(number).map(|[count, _]| decode(count)).sum();
                let whole = decode(minute[0]);
                prop_assert!(added.abs_diff(whole) * 2000 <= whole, "{added} in {whole}");
                prop_assert_eq!(of(number).map(|[_, level]| level).max(), Some(minute[1]));
                sum += whole;
            }
            // Until the first of them is dropped, all minutes have all that was counted.
            if second / BLOCK - (6000 + start) / BLOCK < 10 {
                prop_assert!(sum.abs_diff(counted) * 2000 <= counted, "{sum} of {counted}");
            }
        }
    }

    #[test]
    fn a_late_look_is_spread_over_its_seconds() {
        let mut track = Track::<1, 1>::new(true);
        track.take(100, 1, [7], MINUTES);
        track.take(103, 3, [17], MINUTES);
        let seconds = track.seconds.unwrap();
        assert_eq!(
            [100, 101, 102, 103].map(|at| seconds.get(at)),
            [7, 3, 3, 4].map(|code| Some([code]))
        );
    }
}
