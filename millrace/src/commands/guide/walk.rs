//! Walks through a guide: task by task, storing each result at once, so that the next run continues
//! where this one ends.

use super::document::{ActivityResult, Document, Status, TaskResult, Verdict};
use super::script::{Activity, End, Guide, Sight, Task};

/// Who walks along: shows what happens, and stores it.
pub(super) trait Company {
    /// An activity begins. `number` is the document's; 0 for the prerequisites.
    fn activity(&mut self, number: usize, title: &str) -> Result<(), End>;
    /// A task begins.
    fn begins(&mut self, number: usize, task: &TaskResult) -> Result<(), End>;
    /// A task was done in an earlier run.
    fn known(&mut self, number: usize, task: &TaskResult) -> Result<(), End>;
    /// A task ended; the document has its result.
    fn ended(&mut self, task: &TaskResult, document: &Document) -> Result<(), End>;
    /// Waits until the person wants the next activity.
    fn pause(&mut self) -> Result<(), End>;
}

/// Looks at all tasks that earlier runs have not finished: those without a result, and those that
/// found a problem or noted something to do. Their earlier results are forgotten first, so that a
/// run that is interrupted leaves none of them beside its own.
///
/// # Errors
/// It was interrupted, or a task could not look.
pub(super) fn walk<C>(
    guide: &Guide<C>,
    context: &mut C,
    document: &mut Document,
    company: &mut dyn Company,
) -> Result<(), End> {
    (document.verdict, document.table) = (Verdict::Unfinished, None);
    document.activities = done_before(guide, document);
    for (number, activity) in guide.activities.iter().enumerate() {
        let is_open = |task: &Task<C>| document.task(activity.title, task.title).is_none();
        if number > 0 && activity.tasks.iter().any(is_open) {
            company.pause()?;
        }
        company.activity(number, activity.title)?;
        for (number, task) in (1..).zip(activity.tasks) {
            if let Some(known) = document.task(activity.title, task.title) {
                company.known(number, known)?;
            } else if look((number, task), activity, (&mut *context, &mut *document), company)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns all activities with those results of earlier runs that stand.
fn done_before<C>(guide: &Guide<C>, document: &Document) -> Vec<ActivityResult> {
    let activities = guide.activities.iter().map(|activity| {
        let once = activity.tasks.iter().filter(|task| !task.repeats);
        let known = once.filter_map(|task| document.task(activity.title, task.title));
        let tasks = known.filter(|known| known.status == Status::Passed).cloned().collect();
        ActivityResult { title: activity.title.to_owned(), tasks }
    });
    activities.collect()
}

/// Ends a walk that has looked at all tasks: looks again at what did not pass and costs nothing to
/// look at, because a later task or the person may have settled it meanwhile.
///
/// # Errors
/// It was interrupted, or a task could not look.
pub(super) fn settle<C>(
    guide: &Guide<C>,
    context: &mut C,
    document: &mut Document,
) -> Result<(), End> {
    if document.verdict == Verdict::Stopped {
        return Ok(());
    }
    for activity in guide.activities {
        for (place, task) in activity.tasks.iter().enumerate().filter(|(_, task)| task.repeats) {
            let known = document.task(activity.title, task.title);
            if known.is_some_and(|known| known.status != Status::Passed) {
                let sight = (task.look)(context, document)?;
                keep((place, task), activity, sight, document);
            }
        }
    }
    document.verdict = match document.worst() {
        Status::Passed => Verdict::Done,
        Status::Noted => Verdict::Noted,
        Status::Problem => Verdict::Problems,
    };
    Ok(())
}

/// Looks at one task, and stores the result. Returns whether the guide stops here.
fn look<C>(
    (number, task): (usize, &Task<C>),
    activity: &Activity<C>,
    (context, document): (&mut C, &mut Document),
    company: &mut dyn Company,
) -> Result<bool, End> {
    company.begins(number, &unseen(task, document))?;
    let sight = (task.look)(context, document)?;
    let stops = sight.stops;
    let result = keep((number - 1, task), activity, sight, document);
    if stops {
        document.verdict = Verdict::Stopped;
    }
    company.ended(&result, document)?;
    Ok(stops)
}

/// Stores what a task found, at its place in the activity.
fn keep<C>(
    (place, task): (usize, &Task<C>),
    activity: &Activity<C>,
    sight: Sight,
    document: &mut Document,
) -> TaskResult {
    let mut result = unseen(task, document);
    let Sight { status, seen, wanted, remedy, measured, table, .. } = sight;
    result.status = status.unwrap_or(Status::Noted);
    (result.seen, result.wanted, result.remedy) = (seen, wanted, remedy);
    measured.into_iter().for_each(|measurement| document.measured(measurement));
    if table.is_some() {
        document.table = table;
    }
    document.put(activity.title, place, result.clone());
    result
}

/// Returns the document with all tasks of the guide, none of which was looked at.
pub(super) fn list<C>(guide: &Guide<C>, mut document: Document) -> Document {
    let activities = guide.activities.iter().map(|activity| {
        let tasks = activity.tasks.iter().map(|task| unseen(task, &document)).collect();
        ActivityResult { title: activity.title.to_owned(), tasks }
    });
    document.activities = activities.collect();
    document
}

/// Returns a task with its commands, before it is looked at.
fn unseen<C>(task: &Task<C>, document: &Document) -> TaskResult {
    TaskResult {
        title: task.title.to_owned(),
        windows: task.windows.to_owned(),
        here: task.here.replace("PORT", document.port.as_deref().unwrap_or("PORT")),
        status: Status::Noted,
        seen: String::new(),
        wanted: String::new(),
        remedy: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::{Measurement, Table};

    /// Answers of a switch that is not there, in the order of asking, and what was asked.
    #[derive(Default)]
    struct Fake {
        answers: Vec<Result<Sight, End>>,
        asked: usize,
    }

    fn answer(fake: &mut Fake, _: &Document) -> Result<Sight, End> {
        fake.asked += 1;
        fake.answers.remove(0)
    }

    const fn task(title: &'static str, repeats: bool) -> Task<Fake> {
        Task { title, windows: "Get-It", here: "millrace it PORT", repeats, look: answer }
    }

    const GUIDE: Guide<Fake> = Guide {
        name: "fake",
        title: "A Document",
        is_of_one_vnic: true,
        activities: &[
            Activity { title: "First", tasks: &[task("look", true)] },
            Activity { title: "Second", tasks: &[task("look", false), task("measure", false)] },
        ],
    };

    /// Keeps every stored document, and counts the pauses and the tasks known before.
    #[derive(Default)]
    struct Quiet {
        stored: Vec<Document>,
        pauses: usize,
        known: usize,
    }

    impl Company for Quiet {
        fn activity(&mut self, _: usize, _: &str) -> Result<(), End> {
            Ok(())
        }
        fn begins(&mut self, _: usize, _: &TaskResult) -> Result<(), End> {
            Ok(())
        }
        fn known(&mut self, _: usize, _: &TaskResult) -> Result<(), End> {
            self.known += 1;
            Ok(())
        }
        fn ended(&mut self, _: &TaskResult, document: &Document) -> Result<(), End> {
            self.stored.push(document.clone());
            Ok(())
        }
        fn pause(&mut self) -> Result<(), End> {
            self.pauses += 1;
            Ok(())
        }
    }

    fn run(document: &mut Document, answers: Vec<Result<Sight, End>>) -> (usize, Quiet, bool) {
        let (mut fake, mut quiet) = (Fake { answers, asked: 0 }, Quiet::default());
        let walked = walk(&GUIDE, &mut fake, document, &mut quiet);
        let ended = walked.and_then(|()| settle(&GUIDE, &mut fake, document));
        (fake.asked, quiet, ended.is_ok())
    }

    fn new() -> Document {
        Document::new("fake", "A Document", Some("vm1".into()))
    }

    #[test]
    fn each_result_is_stored_at_once_with_the_ports_name_in_its_command() {
        let mut document = new();
        let answers = ["a", "b", "c"].map(|seen| Ok(Sight::passed(seen))).into();
        let (asked, quiet, ended) = run(&mut document, answers);
        assert_eq!((asked, quiet.stored.len(), quiet.pauses, ended), (3, 3, 1, true));
        assert_eq!(document.verdict, Verdict::Done);
        assert_eq!(quiet.stored[0].verdict, Verdict::Unfinished);
        assert_eq!(document.task("Second", "look").unwrap().here, "millrace it vm1");
    }

    #[test]
    fn an_interrupted_guide_continues_where_it_ended_and_repeats_what_may_have_changed() {
        let mut document = new();
        let answers = vec![Ok(Sight::passed("a")), Ok(Sight::passed("b")), Err(End::Interrupted)];
        let (asked, quiet, ended) = run(&mut document, answers);
        assert_eq!((asked, quiet.stored.len(), ended), (3, 2, false));
        assert_eq!(document.verdict, Verdict::Unfinished);
        // By way of the state file.
        let text = serde_json::to_string(&document).unwrap();
        let mut document: Document = serde_json::from_str(&text).unwrap();
        let answers = vec![Ok(Sight::passed("again")), Ok(Sight::passed("c"))];
        let (asked, quiet, ended) = run(&mut document, answers);
        assert_eq!((asked, quiet.known, ended), (2, 1, true));
        assert_eq!(document.task("First", "look").unwrap().seen, "again");
        assert_eq!(document.task("Second", "look").unwrap().seen, "b");
        assert_eq!(document.verdict, Verdict::Done);
    }

    #[test]
    fn a_problem_is_looked_at_again_and_one_that_stops_leaves_the_rest() {
        let mut document = new();
        let problem = || Sight::problem("1", "2", "add 1");
        let answers = vec![Ok(Sight::passed("a")), Ok(problem().stop())];
        let (asked, _, _) = run(&mut document, answers);
        assert_eq!((asked, document.verdict), (2, Verdict::Stopped));
        assert!(document.task("Second", "measure").is_none());
        let answers = vec![Ok(Sight::passed("a")), Ok(Sight::passed("2")), Ok(problem())];
        let (asked, quiet, _) = run(&mut document, answers);
        assert_eq!((asked, quiet.known, document.verdict), (3, 0, Verdict::Problems));
        assert_eq!(document.task("Second", "measure").unwrap().remedy, "add 1");
    }

    /// Guides ended with "nothing was found" although something was noted that the user had to do,
    /// and the next run took it for done.
    #[test]
    fn a_note_is_looked_at_again_and_stands_at_the_end() {
        let mut document = new();
        let note = || Ok(Sight::noted("too small").remedy("raise it"));
        let answers = vec![Ok(Sight::passed("a")), Ok(Sight::passed("b")), note()];
        let (asked, _, _) = run(&mut document, answers);
        assert_eq!((asked, document.verdict), (3, Verdict::Noted));
        let answers = vec![Ok(Sight::passed("a")), Ok(Sight::passed("c"))];
        let (asked, quiet, _) = run(&mut document, answers);
        assert_eq!((asked, quiet.known, document.verdict), (2, 1, Verdict::Done));
        assert_eq!(document.task("Second", "measure").unwrap().seen, "c");
    }

    #[test]
    fn what_later_tasks_have_settled_is_looked_at_once_more_at_the_end() {
        let mut document = new();
        let answers = vec![
            Ok(Sight::noted("is the firewall open?")),
            Ok(Sight::passed("b")),
            Ok(Sight::passed("traffic came")),
            Ok(Sight::passed("it is open")),
        ];
        let (asked, quiet, _) = run(&mut document, answers);
        assert_eq!((asked, quiet.stored.len(), document.verdict), (4, 3, Verdict::Done));
        assert_eq!(document.task("First", "look").unwrap().seen, "it is open");
    }

    /// The summary of a run that was interrupted still said "not measured: host has MTU 1500" of what
    /// had been mended, and had been measured since.
    #[test]
    fn an_interrupted_run_leaves_no_note_of_an_earlier_one() {
        let mut document = new();
        let note = |seen| Ok(Sight::noted(seen));
        let answers = vec![Ok(Sight::passed("a")), note("not measured"), note("not measured")];
        run(&mut document, answers);
        assert_eq!(document.standing().count(), 2);
        document.table = Some(Table::default());
        let answers = vec![Ok(Sight::passed("a")), Ok(Sight::passed("b")), Err(End::Interrupted)];
        let (asked, quiet, ended) = run(&mut document, answers);
        assert_eq!((asked, quiet.stored.len(), ended), (3, 2, false));
        assert_eq!((document.standing().count(), &document.table), (0, &None));
        assert_eq!(quiet.stored[0].standing().count(), 0);
    }

    #[test]
    fn a_task_that_is_looked_at_again_keeps_its_place() {
        let mut document = new();
        let passed = || Ok(Sight::passed(""));
        run(&mut document, vec![passed(), Ok(Sight::noted("later")), passed()]);
        run(&mut document, vec![passed(), passed()]);
        let titles: Vec<_> = document.activities[1].tasks.iter().map(|it| &it.title).collect();
        assert_eq!(titles, ["look", "measure"]);
    }

    #[test]
    fn a_problem_that_was_mended_meanwhile_does_not_stand_at_the_end() {
        let mut document = new();
        let passed = |seen| Ok(Sight::passed(seen));
        let problem = Ok(Sight::problem("down", "up", "start it"));
        run(&mut document, vec![problem, passed("b"), passed("c"), passed("up")]);
        assert_eq!(document.verdict, Verdict::Done);
        assert_eq!(document.task("First", "look").unwrap().seen, "up");
    }

    #[test]
    fn a_measurement_replaces_the_one_of_its_name() {
        let mut document = new();
        let measured = |megabytes_per_s| {
            let name = "on".to_owned();
            Sight::problem("", "", "").with([Measurement {
                name,
                megabytes_per_s,
                ..Measurement::default()
            }])
        };
        let passed = || Ok(Sight::passed(""));
        run(&mut document, vec![passed(), passed(), Ok(measured(1.0))]);
        run(&mut document, vec![passed(), Ok(measured(2.0))]);
        assert_eq!(document.measurements.len(), 1);
        assert_eq!(document.measurement("on").unwrap().megabytes_per_s, 2.0);
    }
}
