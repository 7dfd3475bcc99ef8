//! Company for people and scripts: prints what happens, stores it, and waits for Enter.

use super::document::{Document, Row, Status, Table, TaskResult, Verdict};
use super::keep::Keep;
use super::script::End;
use super::walk::Company;
use crate::output::{print, table, tell};
use lab::Interrupt;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often a wait for Enter looks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(100);

/// Prints and stores.
pub(super) struct People<'k> {
    /// The state file.
    pub(super) keep: &'k Keep,
    /// Whether standard output is for JSON; then all lines go to standard error.
    pub(super) json: bool,
    /// Lines from the terminal; `None` if none are awaited.
    pub(super) lines: Option<Receiver<()>>,
    /// Set by Ctrl-C.
    pub(super) interrupt: Interrupt,
}

impl People<'_> {
    fn say(&self, text: &str) -> Result<(), End> {
        if self.json {
            tell(text);
            return Ok(());
        }
        Ok(print(text)?)
    }
}

impl Company for People<'_> {
    fn activity(&mut self, number: usize, title: &str) -> Result<(), End> {
        self.say(&format!("\n{}", activity(number, title)))
    }

    fn begins(&mut self, number: usize, task: &TaskResult) -> Result<(), End> {
        self.say(&heading(number, task))
    }

    fn known(&mut self, number: usize, task: &TaskResult) -> Result<(), End> {
        self.say(&format!("  Task {number}: {}\n    done before: {}", task.title, task.seen))
    }

    fn ended(&mut self, task: &TaskResult, document: &Document) -> Result<(), End> {
        self.keep.write(document)?;
        self.say(&result(task))
    }

    fn pause(&mut self) -> Result<(), End> {
        let Some(lines) = &self.lines else { return Ok(()) };
        tell("\nEnter for the next activity, Ctrl-C to end; the next run continues here.");
        loop {
            match lines.recv_timeout(GLANCE) {
                _ if self.interrupt.is_set() => return Err(End::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
                // After the end of the input, Enter cannot be pressed.
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// Returns a channel with a message for each line that is typed, unless standard input is no
/// terminal.
pub(super) fn lines() -> Option<Receiver<()>> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let (sender, receiver) = channel();
    // A read of standard input does not end with Ctrl-C, so it has a thread of its own.
    std::thread::spawn(move || {
        while std::io::stdin().read_line(&mut String::new()).is_ok_and(|read| read > 0) {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}

/// Returns the heading of an activity, with its number in the document.
fn activity(number: usize, title: &str) -> String {
    if number == 0 { title.to_owned() } else { format!("Activity {number}: {title}") }
}

/// Returns a task's title with both commands.
fn heading(number: usize, task: &TaskResult) -> String {
    let mut text = format!("  Task {number}: {}", task.title);
    for (label, command) in [("Windows", &task.windows), ("here", &task.here)] {
        if !command.is_empty() {
            text.push_str(&format!("\n    {:<9}{command}", format!("{label}:")));
        }
    }
    text
}

/// Returns what a task found.
fn result(task: &TaskResult) -> String {
    let mut text = format!("    {:<9}{}", format!("{}:", task.status.word()), task.seen);
    let is_problem = task.status == Status::Problem;
    for (label, words) in [("wanted", &task.wanted), ("remedy", &task.remedy)] {
        if !words.is_empty() {
            let label = if is_problem { label } else { "hint" };
            text.push_str(&format!("\n    {:<9}{words}", format!("{label}:")));
        }
    }
    text
}

/// Returns the guides with their documents, for `--list` without one.
pub(super) fn names(guides: &[Document]) -> String {
    let row = |guide: &Document| vec![guide.guide.clone(), guide.title.clone()];
    let names = table(&["GUIDE", "DOCUMENT"], guides.iter().map(row));
    format!("{names}\n\n`millrace guide GUIDE --list` prints its tasks.")
}

/// Returns the tasks of a guide with both commands, for `--list`.
pub(super) fn list(document: &Document) -> String {
    each(document, heading)
}

/// Returns what a finished guide found, as it was printed task by task.
pub(super) fn finished(document: &Document) -> String {
    let found = |number, task: &_| format!("{}\n{}", heading(number, task), result(task));
    format!("{}{}", each(document, found), summary(document))
}

/// Says what a run does with the document of an earlier one.
pub(super) fn earlier(document: &Document, file: &Path) -> String {
    let Document { guide, port, ended, .. } = document;
    let port = port.as_ref().map(|port| format!(" for port {port}")).unwrap_or_default();
    let file = file.display();
    match document.verdict {
        Verdict::Done => format!(
            "guide {guide}{port} finished at {ended}, and found what follows ({file}); --restart begins anew"
        ),
        _ => format!("continues from {file}; --restart begins anew"),
    }
}

/// Returns all tasks in these words, below their activities.
fn each(document: &Document, words: impl Fn(usize, &TaskResult) -> String) -> String {
    let mut text = format!("{}: {}\n", document.guide, document.title);
    for (number, it) in document.activities.iter().enumerate() {
        text.push_str(&format!("\n{}\n", activity(number, &it.title)));
        for (number, task) in (1..).zip(&it.tasks) {
            text.push_str(&format!("{}\n", words(number, task)));
        }
    }
    text
}

/// Returns the table and the verdict, for the end.
pub(super) fn summary(document: &Document) -> String {
    let mut text = String::from("\n");
    if let Some(shown) = &document.table {
        text.push_str(&format!("{}\n\n", table_text(shown)));
    }
    // A guide that stopped has not looked whether its notes are settled.
    let is_stopped = document.verdict == Verdict::Stopped;
    let shown = document.standing().filter(|task| !is_stopped || task.status == Status::Problem);
    for task in shown {
        text.push_str(&format!("{}\n", stands(task)));
    }
    text.push_str(match document.verdict {
        Verdict::Done => "All tasks are done; nothing was found. The next run prints this again; --restart begins anew.",
        Verdict::Noted => {
            "No problem was found. What is noted above is yours to do or decide; the next run looks at it again."
        }
        Verdict::Problems => {
            "All tasks were looked at; the next run looks again at those that are named above."
        }
        Verdict::Stopped => {
            "Stopped here: the rest would prove nothing. The next run looks at this task again."
        }
        Verdict::Unfinished => "Not finished; the next run continues here, --restart begins anew.",
    });
    text
}

/// Returns a line for a task that did not find what is wanted.
fn stands(task: &TaskResult) -> String {
    format!("{:<8} {}: {}", format!("{}:", task.status.word()), task.title, task.seen)
}

fn table_text(shown: &Table) -> String {
    let header = [""].into_iter().chain(shown.columns.iter().map(String::as_str));
    let header: Vec<_> = header.collect();
    let value = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let row = |Row { label, values }: &Row| {
        [label.clone()].into_iter().chain(values.iter().map(value)).collect()
    };
    let text = table(&header, shown.rows.iter().map(row));
    if shown.note.is_empty() { text } else { format!("{text}\n{}", shown.note) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::ActivityResult;

    fn problem() -> TaskResult {
        let word = str::to_owned;
        TaskResult {
            title: word("Review the switch"),
            windows: word("Get-VMSwitch"),
            here: word("millrace rsc show --switch"),
            status: Status::Problem,
            seen: word("False"),
            wanted: word("True"),
            remedy: word("`millrace rsc on --switch`"),
        }
    }

    /// A guide that had finished began anew without a word, and waited for traffic.
    #[test]
    fn a_finished_guide_says_when_and_what_it_found_and_how_to_begin_anew() {
        let mut document = Document::new("rsc", "A Document", Some("vm1".to_owned()));
        let tasks = vec![TaskResult { status: Status::Passed, ..problem() }];
        document.activities = vec![ActivityResult { title: "Prerequisites".to_owned(), tasks }];
        let earlier = |document: &Document| earlier(document, Path::new("/s/guide-rsc-vm1.json"));
        assert!(earlier(&document).starts_with("continues from /s/guide-rsc-vm1.json"));
        (document.verdict, document.ended) = (Verdict::Done, "2026-11-21T21:40:00Z".to_owned());
        let said = earlier(&document);
        assert!(said.starts_with("guide rsc for port vm1 finished at 2026-11-21T21:40:00Z"));
        assert!(said.ends_with("--restart begins anew"), "{said}");
        let found = finished(&document);
        for part in ["Task 1: Review the switch", "ok:      False", "nothing was found"] {
            assert!(found.contains(part), "{part} is missing: {found}");
        }
    }

    #[test]
    fn a_problem_shows_seen_wanted_and_remedy_below_both_commands() {
        let task = problem();
        assert_eq!(
            format!("{}\n{}", heading(2, &task), result(&task)),
            "  Task 2: Review the switch\n    Windows: Get-VMSwitch\n    here:    millrace rsc show --switch\n    \
             PROBLEM: False\n    wanted:  True\n    remedy:  `millrace rsc on --switch`"
        );
    }
}
