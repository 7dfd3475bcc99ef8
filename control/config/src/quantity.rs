//! Sizes, rates and durations as people write them: `64KiB`, `1.5Gbit`, `5min`. A bare number is
//! bytes, bits per second or seconds.

use super::scalar::{FromScalar, Scalar, text_or_number, through_scalar};
use problem::Problem;

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Bits per second, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub u32);

through_scalar!(Size, Rate, Seconds);
text_or_number!(Size, Rate, Seconds);

/// Units, smallest last, so that the largest unit that divides a value is written.
type Units = &'static [(&'static str, u64)];

const SIZES: Units = &[
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];
const RATES: Units = &[
    ("Tbit", 1_000_000_000_000),
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];
const SPANS: Units = &[("h", 3600), ("min", 60), ("s", 1)];

impl FromScalar for Size {
    fn read(scalar: &Scalar) -> Result<Size, Problem> {
        read(scalar, SIZES).map(Size).ok_or_else(|| {
            scalar.problem("not a size", "a number of bytes or a text such as \"64KiB\" or \"1MB\"")
        })
    }

    fn write(&self) -> Scalar {
        write(self.0, SIZES)
    }
}

impl FromScalar for Rate {
    fn read(scalar: &Scalar) -> Result<Rate, Problem> {
        read(scalar, RATES).filter(|rate| *rate > 0).map(Rate).ok_or_else(|| {
            scalar
                .problem("not a rate", "bits per second above 0, such as \"1Gbit\" or \"250Mbit\"")
        })
    }

    fn write(&self) -> Scalar {
        write(self.0, RATES)
    }
}

impl FromScalar for Seconds {
    fn read(scalar: &Scalar) -> Result<Seconds, Problem> {
        read(scalar, SPANS).and_then(|seconds| u32::try_from(seconds).ok()).map(Seconds).ok_or_else(
            || scalar.problem("not a duration", "seconds or a text such as \"300s\" or \"5min\""),
        )
    }

    fn write(&self) -> Scalar {
        write(u64::from(self.0), SPANS)
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.write() {
            Scalar::Text(text) => out.write_str(&text),
            other => other.fmt(out),
        }
    }
}

fn read(scalar: &Scalar, units: Units) -> Option<u64> {
    match scalar {
        Scalar::Number(number) => u64::try_from(*number).ok(),
        Scalar::Text(text) => parse(text.trim(), units),
        _ => None,
    }
}

/// Parses `1.5Gbit`: up to nine decimals, in integers throughout, so that nothing is rounded. Units
/// in any letter case.
fn parse(text: &str, units: Units) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(split)?;
    let unit = unit.trim_start();
    let scale = match units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)) {
        Some((_, scale)) => *scale,
        None if unit.is_empty() => 1,
        None => return None,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    if decimals.is_empty() || decimals.len() > 9 {
        return None;
    }
    let parts = 10u64.pow(u32::try_from(decimals.len()).ok()?);
    let small = u128::from(decimals.parse::<u64>().ok()?) * u128::from(scale);
    if small % u128::from(parts) != 0 {
        return None;
    }
    let small = u64::try_from(small / u128::from(parts)).ok()?;
    let value = whole.parse::<u64>().ok()?.checked_mul(scale)?.checked_add(small)?;
    // TOML's numbers end at 63 bits, and every value must be writable.
    i64::try_from(value).is_ok().then_some(value)
}

fn write(value: u64, units: Units) -> Scalar {
    let fits = units.iter().find(|(_, scale)| value >= *scale && value.is_multiple_of(*scale));
    match fits {
        Some((name, scale)) => Scalar::Text(format!("{}{name}", value / scale)),
        None => Scalar::Number(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in 0..=i64::MAX as u64, seconds: u32) {
            prop_assert_eq!(Size::read(&Size(value).write()), Ok(Size(value)));
            prop_assert_eq!(Rate::read(&Rate(value.max(1)).write()), Ok(Rate(value.max(1))));
            prop_assert_eq!(Seconds::read(&Seconds(seconds).write()), Ok(Seconds(seconds)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = (text.parse::<Size>(), text.parse::<Rate>(), text.parse::<Seconds>());
        }
    }

    #[test]
    fn people_write_it_so() {
        for (text, bits) in [
            ("1Gbit", 1_000_000_000),
            ("1.5 gbit", 1_500_000_000),
            ("64kbit", 64_000),
            ("9600", 9600),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bits)), "{text}");
        }
        assert_eq!("64KiB".parse(), Ok(Size(65536)));
        assert_eq!("1.5MB".parse(), Ok(Size(1_500_000)));
        assert_eq!("5min".parse(), Ok(Seconds(300)));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["", "fast", "-1", "1.Gbit", ".5Gbit", "1.5bit", "0", "1GB", "99999999Tbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        let problem = "1GB".parse::<Rate>().unwrap_err();
        assert_eq!(problem.seen, "\"1GB\"");
        assert!(problem.remedy.contains("1Gbit"), "{problem}");
    }
}
