//! What a run comes to, as text and as JSON.

use crate::Case;

/// What came of a case, by round.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Million frames a second of one worker.
    pub(crate) one: Vec<f64>,
    /// Million frames a second of two workers.
    pub(crate) two: Vec<f64>,
    /// How many times as much as one processor two do alone.
    pub(crate) bare: Vec<f64>,
}

impl Outcome {
    fn ratio(&self) -> Middle {
        Middle::of(self.two.iter().zip(&self.one).map(|(two, one)| two / one))
    }

    pub(crate) fn text(&self, case: &Case) -> String {
        let [one, two] = [&self.one, &self.two].map(|rates| Middle::of(rates.iter().copied()));
        let (ratio, bare) = (self.ratio(), Middle::of(self.bare.iter().copied()));
        let verdict = case.aim.map_or(String::new(), |aim| match ratio.median / aim {
            met if met >= 1.0 => format!("; wanted {aim}: met"),
            part => format!("; wanted {aim}: missed by {:.1} %", 100.0 * (1.0 - part)),
        });
        format!(
            "{}: one worker {:.2} Mpps, two {:.2}, ratio {}; processors alone {}; n = {}{verdict}",
            case.name,
            one.median,
            two.median,
            ratio.text(),
            bare.text(),
            self.one.len()
        )
    }

    pub(crate) fn json(&self, case: &Case) -> String {
        let [one, two, bare] =
            [&self.one, &self.two, &self.bare].map(|of| Middle::of(of.iter().copied()).json());
        let aim = case.aim.map_or("null".to_owned(), |aim| aim.to_string());
        format!(
            "{{\"name\":\"{}\",\"n\":{},\"one_mpps\":{one},\"two_mpps\":{two},\"ratio\":{},\
             \"processors_alone\":{bare},\"wanted\":{aim}}}",
            case.name,
            self.one.len(),
            self.ratio().json()
        )
    }
}

/// Where samples lie.
struct Middle {
    median: f64,
    /// Has the median in 99 of 100 such runs, however the samples are distributed.
    interval: [f64; 2],
    range: [f64; 2],
}

impl Middle {
    fn of(samples: impl Iterator<Item = f64>) -> Middle {
        let mut sorted: Vec<f64> = samples.collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        // The ranks of a sign test, by the normal approximation of its binomial distribution.
        let (middle, away) = (last as f64 / 2.0, 1.288 * (sorted.len() as f64).sqrt() + 0.5);
        let at = |rank: f64| sorted[rank.clamp(0.0, last as f64) as usize];
        Middle {
            median: (at(middle.floor()) + at(middle.ceil())) / 2.0,
            interval: [at((middle - away).floor()), at((middle + away).ceil())],
            range: [sorted[0], sorted[last]],
        }
    }

    fn text(&self) -> String {
        let Middle { median, interval: [from, to], range: [least, most] } = self;
        format!("{median:.3} (99 %: {from:.3}–{to:.3}; all: {least:.2}–{most:.2})")
    }

    fn json(&self) -> String {
        let Middle { median, interval: [from, to], range: [least, most] } = self;
        format!(
            "{{\"median\":{median:.4},\"interval\":[{from:.4},{to:.4}],\"range\":[{least:.4},{most:.4}]}}"
        )
    }
}
