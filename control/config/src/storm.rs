//! Storm control as written: `10000/s,100Mbit`, either limit alone, or `off`.

use super::Rate;
use super::scalar::{FromScalar, Scalar, through_scalar};
use problem::Problem;
use std::fmt;

/// Limits on the frames that a port floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    /// No limit.
    Off,
    /// Both limits apply.
    Limit {
        /// Frames per second, never 0.
        frames: u64,
        /// Bits per second.
        rate: Rate,
    },
}

through_scalar!(Storm);

impl Storm {
    const FRAMES: u64 = 10_000;
    const RATE: Rate = Rate(100_000_000);

    /// The default of a vNIC: far above what a busy guest needs for name resolution and neighbour
    /// discovery.
    pub const DEFAULT: Storm = Storm::Limit { frames: Storm::FRAMES, rate: Storm::RATE };

    fn parse(text: &str) -> Option<Storm> {
        if text.trim().eq_ignore_ascii_case("off") {
            return Some(Storm::Off);
        }
        let (mut frames, mut rate) = (None, None);
        for part in text.split(',').map(str::trim) {
            let earlier = match part.strip_suffix("/s") {
                Some(number) => {
                    let number = number.trim().parse().ok().filter(|number| *number > 0)?;
                    frames.replace(number).is_some()
                }
                // A bare number may be meant as frames or as bits.
                None if part.bytes().all(|byte| byte.is_ascii_digit()) => return None,
                None => rate.replace(part.parse().ok()?).is_some(),
            };
            if earlier {
                return None;
            }
        }
        let (frames, rate) = (frames.unwrap_or(Storm::FRAMES), rate.unwrap_or(Storm::RATE));
        Some(Storm::Limit { frames, rate })
    }
}

impl FromScalar for Storm {
    fn read(scalar: &Scalar) -> Result<Storm, Problem> {
        let read = match scalar {
            Scalar::Text(text) => Storm::parse(text),
            _ => None,
        };
        read.ok_or_else(|| {
            scalar.problem(
                "not a storm control limit",
                "frames and bits per second above 0, such as \"10000/s,100Mbit\", or \"off\"",
            )
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.to_string())
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storm::Off => out.write_str("off"),
            Storm::Limit { frames, rate } => write!(out, "{frames}/s,{rate}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(frames in 1..=u64::MAX, rate in 1..=i64::MAX as u64) {
            let storm = Storm::Limit { frames, rate: Rate(rate) };
            prop_assert_eq!(Storm::read(&storm.write()), Ok(storm));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Storm>();
        }
    }

    #[test]
    fn people_write_it_so() {
        let limit = |frames, rate| Ok(Storm::Limit { frames, rate: Rate(rate) });
        assert_eq!("off".parse(), Ok(Storm::Off));
        assert_eq!("2000/s".parse(), limit(2000, 100_000_000));
        assert_eq!("1Gbit".parse(), limit(10_000, 1_000_000_000));
        assert_eq!("20Mbit, 500/s".parse(), limit(500, 20_000_000));
        for text in ["", "0/s", "1/s,2/s", "1Gbit,1Gbit", "fast", "-1/s", "1/s,", "12"] {
            assert!(text.parse::<Storm>().is_err(), "{text}");
        }
    }
}
