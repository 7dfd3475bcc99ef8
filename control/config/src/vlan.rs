//! VLANs as written: `vlan = 10`, or `trunk = "10,20-30"` with a `native` VLAN for untagged frames.

use super::port::PortConfig;
use super::scalar::{FromScalar, Scalar, text_or_number, through_scalar};
use problem::Problem;
use std::fmt;
use std::ops::RangeInclusive;

const LAST: u16 = 4094;

/// A VLAN in the switch: 1 to 4094, or 0 for untagged frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanId(pub u16);

/// The VLANs that a trunk allows: sorted ranges that neither touch nor overlap, so that equal sets
/// are equal values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanList(Vec<RangeInclusive<u16>>);

through_scalar!(VlanId, VlanList);
text_or_number!(VlanList);

impl VlanList {
    /// Returns the ids of the VLANs, in ascending order.
    pub fn ids(&self) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(RangeInclusive::clone)
    }

    /// Returns whether a VLAN is in the list.
    pub fn contains(&self, vlan: u16) -> bool {
        self.0.iter().any(|range| range.contains(&vlan))
    }

    /// Makes a list of the ranges: sorts them, and joins those that touch.
    fn of(mut ranges: Vec<RangeInclusive<u16>>) -> VlanList {
        ranges.sort_by_key(|range| *range.start());
        let mut joined: Vec<RangeInclusive<u16>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if *range.start() <= last.end() + 1 => {
                    *last = *last.start()..=*range.end().max(last.end());
                }
                _ => joined.push(range),
            }
        }
        VlanList(joined)
    }
}

impl PortConfig {
    /// Returns whether the port carries frames of a VLAN, where 0 is the VLAN of untagged frames.
    pub fn carries_vlan(&self, vlan: u16) -> bool {
        let untagged = if self.trunk.is_some() { self.native } else { self.vlan };
        let is_tagged = self.trunk.as_ref().is_some_and(|list| list.contains(vlan));
        is_tagged || vlan == untagged.map_or(0, |id| id.0)
    }

    /// Returns the port's VLAN mode: `untagged`, `access 10` or `trunk 10,20-30 native 1`.
    pub fn vlan_text(&self) -> String {
        match (&self.trunk, self.native, self.vlan) {
            (Some(list), Some(native), _) => format!("trunk {list} native {}", native.0),
            (Some(list), None, _) => format!("trunk {list}"),
            (None, _, Some(vlan)) if vlan.0 > 0 => format!("access {}", vlan.0),
            (None, ..) => "untagged".to_owned(),
        }
    }
}

impl fmt::Display for VlanList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if range.start() == range.end() {
                write!(out, "{comma}{}", range.start())?;
            } else {
                write!(out, "{comma}{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

impl FromScalar for VlanId {
    fn typed(word: &str) -> Scalar {
        Scalar::typed_number(word)
    }

    fn read(scalar: &Scalar) -> Result<VlanId, Problem> {
        let number = scalar.number(0..=i64::from(LAST))?;
        u16::try_from(number).map(VlanId).map_err(|_| scalar.problem("out of range", "0 to 4094"))
    }

    fn write(&self) -> Scalar {
        Scalar::Number(i64::from(self.0))
    }
}

impl FromScalar for VlanList {
    fn read(scalar: &Scalar) -> Result<VlanList, Problem> {
        let text = match scalar {
            Scalar::Text(text) => text.clone(),
            other => other.to_string(),
        };
        text.split(',').map(range).collect::<Option<Vec<_>>>().map(VlanList::of).ok_or_else(|| {
            scalar.problem(
                "not a list of VLANs",
                "numbers and ranges from 1 to 4094, such as \"10,20-30\"",
            )
        })
    }

    fn write(&self) -> Scalar {
        Scalar::Text(self.to_string())
    }
}

/// Parses `10` or `20-30`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (1 <= first && first <= last && last <= LAST).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_means_what_its_parts_mean(parts in proptest::collection::vec((1u16..=LAST, 0u16..50), 1..8)) {
            let ranges: Vec<_> = parts.iter().map(|(first, more)| *first..=(first + more).min(LAST)).collect();
            let list = VlanList::of(ranges.clone());
            for id in 0..=LAST {
                let expected = ranges.iter().any(|range| range.contains(&id));
                prop_assert_eq!(list.contains(id), expected);
            }
            prop_assert_eq!(list.to_string().parse(), Ok(list));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = (text.parse::<VlanList>(), text.parse::<VlanId>());
        }
    }

    #[test]
    fn equal_sets_are_written_alike() {
        let list: VlanList = "30, 20-25,26-29,10".parse().unwrap();
        assert_eq!(list.to_string(), "10,20-30");
        for text in ["", "0", "4095", "20-10", "1-", "-", "10;20", "1-2-3"] {
            assert!(text.parse::<VlanList>().is_err(), "{text}");
        }
        assert!("4095".parse::<VlanId>().is_err() && "-1".parse::<VlanId>().is_err());
    }
}
