//! The escape corpus, run through the real daemon. Every attempt of
//! `tests/fixtures/escape-corpus.jsonl` and `escape-more.jsonl` runs in its own world. Afterwards
//! the test checks that no forbidden effect occurred.
//!
//! [`run_corpus`] runs the corpus in one [`Mode`]. Two kinds of tests use it:
//!
//! - The **positive control** runs with full access. The cases of `tests/fixtures/escape-live.txt`
//!   must escape there, and no others. A case that cannot escape even there would prove nothing
//!   when it is confined.
//! - **Confinement** uses the same run in every tier of the machine (`confined.rs`). The escapes
//!   must be exactly the documented ones: [`corpus::NOT_BY_THE_KERNEL`] with namespaces,
//!   `tests/fixtures/escape-exceptions-D.txt` without.
//!
//! If a daemon reports another tier than the requested one, every row is broken before the first
//! call of a case. Dangerous cases run only with confinement.

#![cfg(target_os = "linux")]

mod calls;
mod confined;
mod corpus;
mod leaks;
mod listeners;
mod modes;
mod predicates;
mod self_check;
mod world;

use crate::harness::stand_in::{REFUSAL, VARIABLE, sandbox_exec};
use crate::harness::tier::needs;
use crate::harness::{Session, Wire, copy_program};
use calls::Caller;
use corpus::{Case, LiveList};
use modes::{Mode, Reading};

use predicates::Watch;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use world::World;

pub(crate) use modes::{User, best_tier};
pub(crate) use world::{become_user, shell};

/// The program under test.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// Concurrent cases. They wait most of the time.
const N_AT_ONCE: usize = 5;

/// Part of a worker's error when it cannot apply the requested confinement.
const CANNOT_BE_CONFINED: &str = "cannot be confined: ";

/// Predicate kind of a worker that refuses to start.
const REFUSED: &str = "refused";

/// Number of lines in the live list.
const N_LIVE: usize = 77;

/// Outcome of one case.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// No predicate became true.
    Held,
    /// Kinds of the predicates that became true.
    Violated(Vec<String>),
    /// Not run, for this reason.
    LeftOut(&'static str),
    /// The case could not be run or judged.
    Broken(String),
}

/// A row of the table of results.
#[derive(Debug)]
struct Row {
    case: Case,
    verdict: Verdict,
    took: Duration,
}

/// Runs the requested cases concurrently, each in its own world. Returns the rows in the order of
/// the corpus.
///
/// # Panics
///
/// If a case cannot be run or judged. Also for an unconfined run of commands as root, because
/// nothing would stop them.
fn run_corpus(mode: &Mode, wanted: impl Fn(&Case) -> bool) -> Vec<Row> {
    run(mode, corpus::cases().into_iter().filter(wanted).collect())
}

fn run(mode: &Mode, cases: Vec<Case>) -> Vec<Row> {
    let is_root = mode.user == User::Root && mode.is_unconfined();
    assert!(!is_root || cases.iter().all(Case::is_without_commands), "not as root");
    let program = Program::new(mode.user);
    let program = if mode.tier == modes::MACOS { program.with_stand_in() } else { program };
    let next = AtomicUsize::new(0);
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..N_AT_ONCE {
            let (sender, cases, next, program) = (sender.clone(), &cases, &next, &program);
            scope.spawn(move || {
                if mode.user == User::Ordinary {
                    world::become_ordinary();
                }
                while let Some((n, case)) = take(cases, next) {
                    let begin = Instant::now();
                    let verdict = judge(mode, case, program);
                    sender.send((n, verdict, begin.elapsed())).expect("the test waits for it");
                }
            });
        }
    });
    drop(sender);
    let mut verdicts: BTreeMap<_, _> =
        receiver.iter().map(|(n, verdict, took)| (n, (verdict, took))).collect();
    let row = |(n, case)| {
        let (verdict, took) = verdicts.remove(&n).expect("a verdict");
        Row { case, verdict, took }
    };
    let rows: Vec<Row> = cases.into_iter().enumerate().map(row).collect();
    show(mode, &rows);
    let broken = rows.iter().filter(|row| matches!(row.verdict, Verdict::Broken(_)));
    let broken: Vec<_> = broken.map(|row| (&row.case.id, &row.verdict)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    rows
}

/// Returns the next case, from the end of the corpus: the last cases take longest, so they start
/// first.
fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let n = cases.len().checked_sub(1 + next.fetch_add(1, Ordering::SeqCst))?;
    Some((n, &cases[n]))
}

fn judge(mode: &Mode, case: &Case, program: &Program) -> Verdict {
    if let Some(why) = mode.left_out(case) {
        return Verdict::LeftOut(why);
    }
    // A failing check panics. Continue, so that one run reports every case.
    match catch_unwind(AssertUnwindSafe(|| violations(mode, case, program))) {
        Ok(violations) if violations.is_empty() => Verdict::Held,
        Ok(violations) => Verdict::Violated(violations),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            Verdict::Broken(text.unwrap_or_default())
        }
    }
}

/// Runs one case and returns the kinds of the predicates that became true.
fn violations(mode: &Mode, case: &Case, program: &Program) -> Vec<String> {
    let world = World::new(case, &program.words(), &mode.configuration(case));
    let wire = world.daemon().wire();
    let session = attach(&wire, &world, mode.is_safe_session(case));
    match calls::tier(&wire, &session) {
        Ok(tier) => assert_eq!(tier, mode.tier, "not what this run is to show"),
        // A worker that does not start prevents every escape, but the tier is unusable for work.
        Err(text) if text.contains(CANNOT_BE_CONFINED) => return vec![REFUSED.to_owned()],
        Err(text) => panic!("no worker: {text}"),
    }
    let must_not: Vec<_> = case.must_not.iter().map(|it| world.fill_all(it)).collect();
    let watch = Watch::begin(&world, &must_not);
    let caller = Caller::new(&world, &session, case, mode.has_safe_calls(case));
    let answers = watch.beside(&must_not, || caller.run(case));
    // A profile that the stand-in refuses would prevent everything.
    assert!(!answers.text.contains(REFUSAL), "{}", answers.text);
    let (at_end, at_once): (Vec<_>, Vec<_>) =
        must_not.iter().partition(|predicate| predicate["when"] == "session_end");
    let kind = |predicate: &serde_json::Value| predicate["kind"].as_str().unwrap().to_owned();
    let is_true = |predicate: &&&serde_json::Value| watch.is_true(predicate, &answers, &session);
    let mut violations: Vec<_> = at_once.iter().filter(is_true).map(|it| kind(it)).collect();
    if !at_end.is_empty() {
        predicates::end_session(&session);
        violations.extend(at_end.iter().filter(is_true).map(|it| kind(it)));
    }
    violations
}

fn attach<'a>(wire: &'a Wire, world: &World, is_safe: bool) -> Session<'a> {
    if is_safe {
        // The session stays in safe mode; the next attach finds it.
        wire.request("attach", json!({"path": world.workspace(), "safeMode": true}));
    }
    wire.attach(&world.workspace())
}

/// The program under test, at a path where the daemon's user can execute it.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The stand-in for `sandbox-exec`, for a daemon in tier M.
    stand_in: Option<PathBuf>,
    directory: Option<TempDir>,
}

impl Program {
    pub(crate) fn new(user: User) -> Self {
        if user == User::Root || !rustix::process::geteuid().is_root() {
            return Self { path: QUACK.into(), stand_in: None, directory: None };
        }
        // The build directory is often in a home that other users cannot enter.
        let directory = tempfile::Builder::new().prefix("quack").tempdir_in("/tmp").unwrap();
        let path = directory.path().join("quack");
        // Copy in a child process. A concurrent test's child could inherit the descriptor of a copy
        // made here, and a program that is open for writing cannot be executed (`ETXTBSY`).
        let copy = format!("cp '{QUACK}' '{}'", path.display());
        world::shell(directory.path(), &copy).expect("copy the program");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self { path, stand_in: None, directory: Some(directory) }
    }

    /// Words for `env` that start it.
    fn words(&self) -> Vec<String> {
        let stand_in = self.stand_in.iter().map(|path| format!("{VARIABLE}={}", path.display()));
        stand_in.chain([self.path.display().to_string()]).collect()
    }

    /// Adds the stand-in for `sandbox-exec`.
    fn with_stand_in(mut self) -> Self {
        let built = sandbox_exec();
        self.stand_in = Some(built.to_owned());
        if let Some(directory) = &self.directory {
            let copy = directory.path().join("sandbox-exec");
            copy_program(built, &copy, b"");
            std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
            self.stand_in = Some(copy);
        }
        self
    }
}

/// The ids of the cases that escaped.
fn violated(rows: &[Row]) -> Vec<&str> {
    let rows = rows.iter().filter(|row| matches!(row.verdict, Verdict::Violated(_)));
    rows.map(|row| &*row.case.id).collect()
}

/// Prints the table; visible with `--nocapture`.
#[expect(clippy::print_stdout, reason = "the result of a failed test, or of one that is watched")]
fn show(mode: &Mode, rows: &[Row]) {
    let (mut text, mut classes) = (format!("{mode:?}\n"), BTreeMap::<_, [usize; 4]>::new());
    for Row { case, verdict, took } in rows {
        let reference = &case.reference["none"];
        let counts = classes.entry(&case.class).or_default();
        counts[0] += 1;
        counts[1] += usize::from(!matches!(verdict, Verdict::LeftOut(_)));
        counts[2] += usize::from(matches!(verdict, Verdict::Violated(_)));
        counts[3] += usize::from(reference == "violated");
        let ms = took.as_millis();
        writeln!(text, "{:<12}{:<15}{reference:<10}{ms:>6} ms  {verdict:?}", case.id, case.class)
            .unwrap();
    }
    for (class, [n, run, violated, reference]) in classes {
        writeln!(
            text,
            "{class:<15}{n:>4} cases{run:>4} run{violated:>4} violated{reference:>4} by reference"
        )
        .unwrap();
    }
    println!("{text}");
}

/// Compares an unconfined run with the live list, limited to the cases of the run.
#[track_caller]
fn assert_live(rows: &[Row]) {
    let list = LiveList::read(world::has_program);
    let found: BTreeSet<&str> = violated(rows).into_iter().collect();
    let wanted = list.firm.iter().filter(|id| rows.iter().any(|row| row.case.id == **id));
    let lost: Vec<_> = wanted.filter(|id| !found.contains(**id)).collect();
    assert!(lost.is_empty(), "held, but nothing is there to hold it: {lost:?}");
    let listed: BTreeSet<&str> = list.firm.into_iter().chain(list.depends).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "got out and is not on the live list: {new:?}");
}

#[test]
fn every_case_of_the_corpus_is_accounted_for_once() {
    let cases = corpus::cases();
    let ids: BTreeSet<&str> = cases.iter().map(|case| &*case.id).collect();
    assert_eq!((ids.len(), cases.len()), (156, 156), "every id once");
    let list = LiveList::read(world::has_program);
    assert_eq!(list.firm.len() + list.depends.len(), N_LIVE, "the live list does not shrink");
    let tables = [corpus::NOT_APPLICABLE, corpus::ONLY_CONFINED, corpus::ONLY_WITH_LIMITS];
    let left_out = tables.iter().flat_map(|table| table.iter().map(|(id, _)| *id));
    let mut seen = BTreeSet::new();
    for id in left_out.chain(list.firm).chain(list.depends) {
        assert!(ids.contains(id), "no such case: {id}");
        assert!(seen.insert(id), "in two lists: {id}");
    }
}

#[test]
fn with_full_access_exactly_the_cases_of_the_live_list_get_out() {
    needs!(OwnTier);
    let mode = Mode::unconfined(User::Ordinary);
    assert_live(&run_corpus(&mode, |_| true));
}

#[test]
fn our_tools_hold_as_root_what_they_hold_as_an_ordinary_user() {
    needs!(OwnTier);
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let mode = Mode::unconfined(User::Root);
    assert_live(&run_corpus(&mode, Case::is_without_commands));
}

#[test]
fn safe_mode_refuses_what_would_write_in_the_guise_of_reading() {
    needs!(OwnTier);
    let mode = Mode { reading: Reading::SafeCalls, ..Mode::unconfined(User::Ordinary) };
    let rows = run_corpus(&mode, Case::is_read_only);
    assert_eq!(violated(&rows), Vec::<&str>::new());
}
