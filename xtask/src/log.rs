//! Reads counts from the text that cargo and nextest print.

/// Numbers of passed, failed and ignored tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

/// Sums up the lines `test result: ` of documentation tests, which nextest does not run.
pub(crate) fn doctests(log: &str) -> Counts {
    let lines = log.lines().filter_map(|line| line.strip_prefix("test result: "));
    lines.fold(Counts::default(), |sum, line| Counts {
        passed: sum.passed + before(line, "passed"),
        failed: sum.failed + before(line, "failed"),
        ignored: sum.ignored + before(line, "ignored"),
    })
}

/// Returns the number of tests that a run of nextest left out, by its last line. Nextest names them
/// nowhere else.
pub(crate) fn left_out(log: &str) -> usize {
    let line = log.lines().rev().find(|line| line.trim_start().starts_with("Summary ["));
    line.map_or(0, |line| before(line, "skipped"))
}

/// Returns the number before a word.
fn before(line: &str, word: &str) -> usize {
    let mut words = line.split([' ', ',', ';', '.']).filter(|it| !it.is_empty()).rev();
    words.by_ref().find(|it| *it == word);
    words.next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_tests_of_all_crates_are_summed_up() {
        let log = "\
   Doc-tests wire
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.31s

all doctests ran in 0.52s; merged doctests compilation took 0.21s
   Doc-tests ports
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(doctests(log), Counts { passed: 4, failed: 2, ignored: 1 });
        assert_eq!(doctests("error: could not compile"), Counts::default());
    }

    #[test]
    fn what_nextest_left_out_stands_in_its_summary() {
        let log =
            "     Summary [   1.250s] 3 tests run: 2 passed (1 slow), 1 failed, 12 skipped\nend";
        assert_eq!(left_out(log), 12);
        assert_eq!(left_out("     Summary [   1.250s] 1 test run: 1 passed, 0 skipped"), 0);
        assert_eq!(left_out("error"), 0);
    }
}
