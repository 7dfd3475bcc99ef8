//! Folds lines that say the same of many ports: one line, with a count and the first names.

use std::collections::BTreeMap;

/// Names that a folded line lists.
const NAMED: usize = 3;
/// From this many lines on that say the same, they are folded.
pub(crate) const LEAST: usize = 5;

/// Groups things by what their lines say, each group where its first thing is.
pub(crate) fn groups<'t, T, K: Ord>(things: &'t [T], key: impl Fn(&T) -> K) -> Vec<Vec<&'t T>> {
    let mut places: BTreeMap<K, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&T>> = Vec::new();
    for thing in things {
        let place = *places.entry(key(thing)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(thing),
            None => groups.push(vec![thing]),
        }
    }
    // Small groups are as short unfolded.
    let unfold = |group: Vec<&'t T>| match group.len() {
        0..LEAST => group.into_iter().map(|thing| vec![thing]).collect(),
        _ => vec![group],
    };
    groups.into_iter().flat_map(unfold).collect()
}

/// Returns a text such as `vm1, vm2, vm3 and 497 more`.
pub(crate) fn names<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let rest = names.len().saturating_sub(NAMED);
    let first: Vec<_> = names.take(NAMED).collect();
    let first = first.join(", ");
    if rest == 0 { first } else { format!("{first} and {rest} more") }
}

/// Returns a message without what differs between ports: words after `port`, wherever they stand
/// again, and numbers. Also returns the first such word.
pub(crate) fn template(text: &str) -> (String, Option<&str>) {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mark = |word: &'_ str| word.trim_matches(|letter: char| !letter.is_alphanumeric()).len();
    let name = words.iter().position(|word| *word == "port");
    let name = name.and_then(|place| words.get(place + 1)).or(words.first());
    let name =
        name.map(|word| word.trim_end_matches([':', ',', ';', '.'])).filter(|it| mark(it) > 0);
    let plain = match name {
        Some(name) => text.split(name).collect::<Vec<_>>().join("\u{0}"),
        None => text.to_owned(),
    };
    let mut template = String::new();
    for letter in plain.chars() {
        let is_digit = letter.is_ascii_digit();
        if !is_digit || !template.ends_with('#') {
            template.push(if is_digit { '#' } else { letter });
        }
    }
    (template, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_equal_ones_are_a_group_and_few_are_not() {
        let things = ["a1", "b1", "a2", "a3", "b2", "a4", "a5"];
        let groups = groups(&things, |thing| thing.get(..1).map(str::to_owned));
        let lengths: Vec<_> = groups.iter().map(Vec::len).collect();
        assert_eq!(lengths, [5, 1, 1]);
        assert_eq!(names(things.into_iter()), "a1, b1, a2 and 4 more");
        assert_eq!(names(["a", "b"].into_iter()), "a, b");
    }

    #[test]
    fn messages_about_different_ports_have_one_template() {
        let (one, name) = template("port vm1 is broken: tap vm1 is gone");
        assert_eq!(name, Some("vm1"));
        assert_eq!(one, template("port web is broken: tap web is gone").0);
        assert_ne!(one, template("port web is down: tap web is gone").0);
        assert_eq!(template("uplink0 has MTU 1500").0, template("up has MTU 9000").0);
        assert_eq!(template("").1, None);
    }
}
