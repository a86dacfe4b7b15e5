//! Going through files, cases and runs: one case's trouble never reaches another. Files are run side by side, and told of
//! in their order.

use std::{
    any::Any,
    io::{IsTerminal as _, Write, stderr},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{
    gates::{Gate, Gates},
    quirks::{Quirk, Quirks},
};
use serde_json::Value;

use super::{
    Args,
    compare::Comparison,
    family::{self, Context, Family},
    file::{self, Case, VectorFile},
    report::{self, Failure, Outcome},
    sidecar,
};

/// What is done to the inputs and the gate. The expectations are the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    AsIs,
    SidecarsAdded,
    GateOn,
}

const HAS_SIDECARS: &str =
    "with native sidecars of their own, which the original never sizes: run with the gate off";

type Answer = fn(&Value, &Context) -> anyhow::Result<Value>;

pub(super) fn run(args: &Args, files: &[PathBuf], out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let passes: &[Pass] = if args.add_native_sidecars {
        &[Pass::SidecarsAdded, Pass::GateOn]
    } else {
        &[Pass::AsIs]
    };
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<_>> {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(index) else {
                return Ok(done);
            };
            let mut printed = Vec::new();
            let outcome = run_path(args, passes, path, &mut printed)?;
            done.push((index, outcome, printed));
        }
    };
    let mut done = thread::scope(|scope| -> anyhow::Result<Vec<_>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut done = Vec::new();
        for worker in workers {
            let found = worker.join().map_err(|_| anyhow::anyhow!("a worker met a bug"))?;
            done.extend(found?);
        }
        Ok(done)
    })?;
    done.sort_by_key(|(index, ..)| *index);
    let mut all = Outcome::default();
    for (_, outcome, printed) in done {
        out.write_all(&printed)?;
        all.merge(outcome);
    }
    Ok(all)
}

fn run_path(args: &Args, passes: &[Pass], path: &Path, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    match read(path, &args.family) {
        Ok(Some((family, file))) => {
            for pass in passes {
                run_file(args, *pass, family, &file, &mut outcome, out)?;
            }
        }
        Ok(None) => {}
        Err(error) => {
            outcome.bad_files += 1;
            writeln!(out, "FAILED {}: {error:#}", path.display())?;
        }
    }
    Ok(outcome)
}

fn read(path: &Path, families: &[String]) -> anyhow::Result<Option<(&'static Family, VectorFile)>> {
    let file = file::read(path, families)?;
    file.map(|file| Ok((family::find(&file.family)?, file)))
        .transpose()
}

fn run_file(
    args: &Args,
    pass: Pass,
    family: &'static Family,
    file: &VectorFile,
    outcome: &mut Outcome,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(answer) = family.answer else {
        outcome.families.entry(family.name).or_default().skipped += file.cases.len();
        return Ok(());
    };
    let mut known = Known::default();
    let mut progress = Progress::new(format!("{}{}", family.name, pass.label()), file.cases.len());
    for case in &file.cases {
        progress.step();
        let context = pass.context(args.quirks, &case.input);
        if pass == Pass::GateOn && !context.gates.enabled(Gate::NativeSidecar) {
            *outcome.notes.entry(HAS_SIDECARS).or_default() += 1;
        }
        let case = pass.prepare(family, case);
        let name = format!("{}{}", case.name, pass.label());
        let tally = outcome.families.entry(family.name).or_default();
        let trouble = match attempt(family, answer, &case, &context) {
            Ok(comparison) => {
                tally.passed += 1;
                for note in comparison.notes {
                    *outcome.notes.entry(note).or_default() += 1;
                }
                if let Some(reason) = comparison.stricter {
                    outcome.stricter.insert(format!("{}/{name}", family.name), reason);
                }
                if args.verbose {
                    writeln!(out, "passed {}/{name}", family.name)?;
                }
                continue;
            }
            Err(trouble) => trouble,
        };
        let passes_with = |quirks| {
            attempt(
                family,
                answer,
                &case,
                &Context {
                    quirks,
                    ..context.clone()
                },
            )
            .is_ok()
        };
        if let Some(quirks) = explanation(context.quirks, &known, passes_with) {
            known.remember(quirks);
            tally.passed += 1;
            outcome.add_explained(quirks);
            if args.verbose {
                writeln!(out, "passed {}/{name}, different by {quirks}", family.name)?;
            }
        } else {
            tally.failed += 1;
            report::failure(out, family, &name, &case.input, &trouble, args.verbose)?;
        }
    }
    Ok(())
}

impl Pass {
    fn label(self) -> &'static str {
        match self {
            Self::AsIs => "",
            Self::SidecarsAdded => " (native sidecars added, gate off)",
            Self::GateOn => " (gate NativeSidecar on)",
        }
    }

    /// The gate stays off for pods that have native sidecars themselves: the original never sizes them.
    fn context(self, quirks: Quirks, input: &Value) -> Context {
        let is_on = self == Self::GateOn && !sidecar::is_in(input);
        Context {
            gates: Gates::default().with(Gate::NativeSidecar, is_on),
            quirks,
        }
    }

    fn prepare(self, family: &Family, case: &Case) -> Case {
        let mut case = case.clone();
        if self == Self::SidecarsAdded {
            (family.add_sidecars)(&mut case.input);
        }
        case
    }
}

/// One case with one context: a comparison without differences, or what is wrong.
fn attempt(family: &Family, answer: Answer, case: &Case, context: &Context) -> Result<Comparison, Failure> {
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let got = answer(&case.input, context)?;
        Ok((!case.expects_panic()).then(|| (family.compare)(&case.input, &case.expect, &got)))
    }));
    match answered {
        Ok(Ok(None)) => Ok(Comparison::default()),
        Ok(Ok(Some(comparison))) if comparison.differences.is_empty() => Ok(comparison),
        Ok(Ok(Some(comparison))) => Err(Failure::Different(comparison.differences)),
        Ok(Err(error)) => {
            let error: anyhow::Error = error;
            Err(Failure::NoAnswer(format!("{error:#}")))
        }
        Err(panic) => Err(Failure::Panicked(panic_message(panic.as_ref()))),
    }
}

/// The sets of quirks that explained earlier cases of a family, the one that did so most often first: most likely one of
/// them explains the next case too, and a case may take long.
#[derive(Default)]
struct Known(Vec<(Quirks, usize)>);

impl Known {
    fn remember(&mut self, quirks: Quirks) {
        match self.0.iter_mut().find(|(known, _)| *known == quirks) {
            Some((_, times)) => *times += 1,
            None => self.0.push((quirks, 1)),
        }
        self.0.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    }
}

/// A set of further quirks with which a case passes, and of which none can be left out: what is left of a known set or
/// else of all of them when each that is not needed is taken away. Sets are not tried out one by one: there are too many.
/// `None` if not even all of them help.
fn explanation(on: Quirks, known: &Known, passes: impl Fn(Quirks) -> bool) -> Option<Quirks> {
    let with = |further: Quirks| further.iter().fold(on, Quirks::with);
    let all: Quirks = Quirk::ALL.into_iter().filter(|quirk| !on.has(*quirk)).collect();
    let candidates = known.0.iter().map(|(quirks, _)| *quirks).chain([all]);
    let mut candidates = candidates.filter(|further| *further != Quirks::none());
    let enough = candidates.find(|further| passes(with(*further)))?;
    if enough == all
        && let Some(one) = all.iter().find(|one| passes(on.with(*one)))
    {
        return Some(Quirks::none().with(one));
    }
    let needed = enough.iter().fold(enough, |needed, quirk| {
        let fewer = needed.without(quirk);
        // That it does not pass without any is why we are here.
        let still = fewer != Quirks::none() && passes(with(fewer));
        if still { fewer } else { needed }
    });
    Some(needed)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

/// A line on the terminal now and then, for work that takes long.
struct Progress {
    what: String,
    done: usize,
    total: usize,
    last: Option<Instant>,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(2);

    fn new(what: String, total: usize) -> Self {
        Self {
            what,
            done: 0,
            total,
            last: stderr().is_terminal().then(Instant::now),
        }
    }

    fn step(&mut self) {
        if let Some(last) = self.last
            && last.elapsed() >= Self::EVERY
        {
            eprintln!("{}: {} of {}", self.what, self.done, self.total);
            self.last = Some(Instant::now());
        }
        self.done += 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vectors::compare;

    fn family(answer: Answer) -> Family {
        Family {
            name: "quantity",
            answer: Some(answer),
            compare: compare::as_json,
            add_sidecars: sidecar::nowhere,
        }
    }

    fn attempted(answer: Answer, expect: Value) -> Result<Comparison, Failure> {
        let case = Case {
            name: "case".into(),
            input: json!({}),
            expect,
        };
        let context = Pass::AsIs.context(Quirks::all(), &case.input);
        attempt(&family(answer), answer, &case, &context)
    }

    #[test]
    fn a_panic_is_a_failure_of_its_case() {
        let failure = attempted(|_, _| panic!("out of {}", "range"), json!({})).unwrap_err();
        assert!(matches!(failure, Failure::Panicked(message) if message == "out of range"));
        let failure = attempted(|_, _| anyhow::bail!("no pod"), json!({})).unwrap_err();
        assert!(matches!(failure, Failure::NoAnswer(message) if message == "no pod"));
        let failure = attempted(|_, _| Ok(json!({"a": 1})), json!({})).unwrap_err();
        assert!(matches!(failure, Failure::Different(differences) if differences.len() == 1));
    }

    #[test]
    fn an_expected_panic_only_has_to_be_answered() {
        let expect = json!({"panic": "assignment to entry in nil map"});
        assert!(attempted(|_, _| Ok(json!({"a": 1})), expect.clone()).is_ok());
        assert!(attempted(|_, _| panic!("me too"), expect.clone()).is_err());
        assert!(attempted(|_, _| anyhow::bail!("no pod"), expect).is_err());
    }

    #[test]
    fn differences_are_explained_by_the_fewest_quirks() {
        let quirks = |text: &str| text.parse::<Quirks>().unwrap();
        let contains = |text: &str| {
            let needed = quirks(text);
            move |on: Quirks| needed.iter().all(|quirk| on.has(quirk))
        };
        assert_eq!(
            explanation(Quirks::none(), &Known::default(), contains("Q8")),
            Some(quirks("Q8"))
        );
        assert_eq!(
            explanation(Quirks::none(), &Known::default(), contains("Q26,Q3")),
            Some(quirks("Q3,Q26"))
        );
        assert_eq!(
            explanation(Quirks::none(), &Known::default(), contains("Q3,Q12,Q26")),
            Some(quirks("Q3,Q12,Q26"))
        );
        assert_eq!(
            explanation(quirks("Q3,Q12"), &Known::default(), contains("Q3,Q12,Q26")),
            Some(quirks("Q26"))
        );
        assert_eq!(explanation(Quirks::none(), &Known::default(), |_| false), None);
        assert_eq!(explanation(Quirks::all(), &Known::default(), |_| true), None);
    }

    #[test]
    fn passes_differ_in_gate_and_input_only() {
        let family = Family {
            add_sidecars: |input| *input = json!("changed"),
            ..family(|_, _| Ok(json!({})))
        };
        let case = Case {
            name: "case".into(),
            input: json!("as it was"),
            expect: json!({}),
        };
        let seen = [Pass::AsIs, Pass::SidecarsAdded, Pass::GateOn].map(|pass| {
            let context = pass.context(Quirks::all(), &case.input);
            let gate = context.gates.enabled(Gate::NativeSidecar);
            (pass.prepare(&family, &case).input, gate)
        });
        assert_eq!(
            seen,
            [
                (json!("as it was"), false),
                (json!("changed"), false),
                (json!("as it was"), true)
            ]
        );
    }

    #[test]
    fn the_gate_stays_off_for_pods_with_native_sidecars() {
        let pod = |restart| json!({"pods": [{"spec": {"initContainers": [{"name": "i", "restartPolicy": restart}]}}]});
        for (restart, is_on) in [("Always", false), ("OnFailure", true)] {
            let context = Pass::GateOn.context(Quirks::all(), &pod(restart));
            assert_eq!(context.gates.enabled(Gate::NativeSidecar), is_on, "{restart}");
        }
    }
}
