//! How many frames may get lost between judge and carrier before nothing is carried for a while.
//!
//! A few do when a port's process dies or its interface goes. Many mean that another program at an
//! interface takes frames that the judge has already hidden from the switch. Nobody says when such
//! a program has gone, so after a pause it is tried again, and each pause is twice as long as the
//! one before: trying costs at most [`MOST`] frames.

/// Lost frames that are borne at once.
const MOST: u64 = 100;

/// Time after which one lost frame is forgotten, in nanoseconds.
const FORGET: u64 = 1_000_000_000;

/// The first pause, and the longest. A pause is the first again after as long as the longest
/// without another.
const FIRST: u64 = 60_000_000_000;
const LONGEST: u64 = 60 * FIRST;

/// The state; times are the kernel's monotonic clock in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Lost frames that count no more.
    forgotten: u64,
    /// The time up to which `forgotten` is counted.
    counted: u64,
    /// The end of the pause that was begun last; 0: none was.
    until: u64,
    /// How long that was.
    pause: u64,
}

impl Patience {
    /// Whether flows may be carried now, when so many frames were lost in all.
    pub(super) fn lasts(&mut self, lost: u64, now: u64) -> bool {
        if self.is_pausing(now) {
            return false;
        }
        if self.counted < self.until {
            // The first look after a pause.
            (self.forgotten, self.counted) = (lost, now);
        }
        let forgets = now.saturating_sub(self.counted) / FORGET;
        self.counted += forgets * FORGET;
        self.forgotten = self.forgotten.saturating_add(forgets).min(lost);
        if lost - self.forgotten <= MOST {
            return true;
        }
        let is_calm = now.saturating_sub(self.until) > LONGEST;
        self.pause = if is_calm { FIRST } else { (2 * self.pause).clamp(FIRST, LONGEST) };
        self.until = now.saturating_add(self.pause);
        false
    }

    /// Whether nothing is carried for a while.
    pub(super) fn is_pausing(&self, now: u64) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a second while frames are lost at a rate, as long as they may be. Returns the
    /// pauses' starts, in seconds.
    fn pauses(seconds: u64, mut lost_in: impl FnMut(u64) -> u64) -> Vec<u64> {
        let (mut patience, mut lost, mut starts, mut paused) =
            (Patience::default(), 0, vec![], false);
        for second in 1..=seconds {
            let lasts = patience.lasts(lost, second * FORGET);
            assert_eq!(lasts, !patience.is_pausing(second * FORGET));
            if !lasts && !paused {
                starts.push(second);
            }
            paused = !lasts;
            lost += if lasts { lost_in(second) } else { 0 };
        }
        starts
    }

    /// A hundred lost frames, however long ago, ended it for ever.
    #[test]
    fn a_frame_lost_now_and_then_never_ends_it() {
        assert!(pauses(100_000, |_| 1).is_empty());
        assert!(pauses(100_000, |second| if second % 200 == 0 { 100 } else { 0 }).is_empty());
    }

    #[test]
    fn pauses_double_up_to_an_hour_and_begin_anew_after_a_calm_one() {
        let all = pauses(40_000, |_| 200);
        let gaps: Vec<u64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] >= 60 && gaps[0] < 65, "{gaps:?}");
        assert!(gaps.windows(2).all(|pair| pair[1] > pair[0] || pair[1] >= 3600), "{gaps:?}");
        assert!(gaps.iter().all(|gap| *gap <= 3605), "{gaps:?}");
        let calm = |second| if (100..10_000).contains(&second) { 0 } else { 200 };
        let all = pauses(10_200, calm);
        let after: Vec<u64> = all.into_iter().filter(|start| *start > 9_000).collect();
        assert!(after[1] - after[0] < 65, "{after:?}");
    }
}
