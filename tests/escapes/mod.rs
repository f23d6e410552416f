//! The escape corpus, run through the real daemon. Every attempt of `corpus.jsonl` runs in its own world. Afterwards
//! the test checks that no forbidden effect occurred.
//!
//! [`run_corpus`] runs the corpus in one [`Mode`]. The columns of docs/escapes.md are such runs (`table.rs`):
//!
//! - The **positive control** runs with full access. A case that does not escape even there proves nothing when it is
//!   confined.
//! - **Confinement** uses the same run in every tier of the machine. Each accepted escape has a reason in the corpus.
//!
//! `confined.rs` has further runs, which are compared with the same table. If a daemon reports another tier than the
//! requested one, every row is broken before the first call of a case. Dangerous cases run only with confinement.

mod calls;
mod confined;
mod corpus;
mod listeners;
mod modes;
mod predicates;
mod self_check;
mod table;
mod world;

use crate::harness::stand_in::{REFUSAL, VARIABLE, sandbox_exec};
use crate::harness::tier::needs;
use crate::harness::users::{Program, User, become_ordinary, best_tier, tier_of};
use crate::harness::{Session, Wire, copy_program, untested};
use calls::Caller;
use corpus::Case;
use modes::{ALONE, MACOS, Mode, Reading};
use table::Table;

use predicates::Watch;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use world::World;

/// Concurrent cases. They wait most of the time.
const N_AT_ONCE: usize = 5;

/// Maximum number of runs of a case whose only effect is that it takes long.
const N_ATTEMPTS: usize = 8;

/// Part of a worker's error when it cannot apply the requested confinement.
const CANNOT_BE_CONFINED: &str = "cannot be confined: ";

/// Predicate kind of a worker that refuses to start.
const REFUSED: &str = "refused";

/// Outcome of one case.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// No predicate became true.
    Held,
    /// Kinds of the predicates that became true.
    Violated(Vec<String>),
    /// Not run in this tier, for this reason.
    LeftOut(String),
    /// This machine lacks something.
    NotHere(&'static str),
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
    let words = words(mode, &program);
    let next = AtomicUsize::new(0);
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..N_AT_ONCE {
            let (sender, cases, next, words) = (sender.clone(), &cases, &next, &words);
            scope.spawn(move || {
                if mode.user == User::Ordinary {
                    become_ordinary();
                }
                while let Some((n, case)) = take(cases, next) {
                    let begin = Instant::now();
                    let verdict = judge(mode, case, words);
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

/// Words for `env` that start the program, in tier M with the stand-in for `sandbox-exec` where its user can execute it.
fn words(mode: &Mode, program: &Program) -> Vec<String> {
    let path = program.path.display().to_string();
    if mode.tier != MACOS {
        return vec![path];
    }
    let mut stand_in = sandbox_exec().to_owned();
    if program.path != Path::new(env!("CARGO_BIN_EXE_quack")) {
        let copy = program.path.with_file_name("sandbox-exec");
        copy_program(&stand_in, &copy, b"");
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
        stand_in = copy;
    }
    vec![format!("{VARIABLE}={}", stand_in.display()), path]
}

/// Returns the next case, from the end of the corpus: the last cases take longest, so they start
/// first.
fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let n = cases.len().checked_sub(1 + next.fetch_add(1, Ordering::SeqCst))?;
    Some((n, &cases[n]))
}

fn judge(mode: &Mode, case: &Case, words: &[String]) -> Verdict {
    if let Some(why) = case.left_out(mode) {
        return Verdict::LeftOut(why.to_owned());
    }
    if let Some(why) = Mode::lacks(case) {
        return Verdict::NotHere(why);
    }
    // A failing check panics. Continue, so that one run reports every case.
    let once = || catch_unwind(AssertUnwindSafe(|| violations(mode, case, words)));
    // A busy machine may need several attempts to show that a case takes no time.
    let is_slow_only =
        |found: &Vec<String>| !found.is_empty() && found.iter().all(|kind| kind == "slow");
    let mut found = once();
    for _ in 1..N_ATTEMPTS {
        if found.as_ref().is_ok_and(is_slow_only) {
            found = once();
        }
    }
    match found {
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
fn violations(mode: &Mode, case: &Case, words: &[String]) -> Vec<String> {
    let world = World::new(case, words, &mode.configuration(case));
    let wire = world.daemon().wire();
    let session = attach(&wire, &world, mode.is_safe_session(case));
    match tier_of(&wire, &session) {
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

/// Prints to the descriptor: the output of a test that passes is captured.
fn print(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
}

/// Prints the cases that took longest; visible with `--nocapture`.
#[expect(clippy::print_stdout, reason = "the result of a failed test, or of one that is watched")]
fn show(mode: &Mode, rows: &[Row]) {
    let mut slowest: Vec<_> = rows.iter().map(|row| (row.took.as_millis(), &row.case.id)).collect();
    slowest.sort_unstable();
    let all: u128 = slowest.iter().map(|(ms, _)| ms).sum();
    println!(
        "{mode:?}: {} cases, {all} ms, slowest {:?}",
        rows.len(),
        &slowest[rows.len().saturating_sub(5)..]
    );
}

/// The runs of the table's columns. A tier that this machine lacks keeps what the document says.
fn columns() -> Vec<Mode> {
    let mut modes = vec![Mode::unconfined(User::Ordinary)];
    for user in [User::Root, User::Ordinary] {
        match best_tier(user) {
            // An ordinary user with delegated control groups has tier A too.
            Ok(tier) if modes.iter().any(|mode| mode.tier == tier) => {}
            Ok(tier) => modes.push(Mode::confined(user, tier)),
            Err(why) => untested(&why),
        }
    }
    match modes::no_landlock() {
        None => modes.extend([ALONE, MACOS].map(|tier| Mode::confined(User::Ordinary, tier))),
        Some(why) => untested(&why),
    }
    modes
}

#[test]
fn every_case_does_in_every_tier_what_docs_escapes_md_says() {
    needs!(OwnTier);
    let (mut table, mut broken) = (Table::read(), Vec::new());
    let columns = columns();
    // One column waits for its slow cases while another one has work for the processors.
    for pair in columns.chunks(2) {
        std::thread::scope(|scope| {
            let runs: Vec<_> =
                pair.iter().map(|mode| scope.spawn(move || run_corpus(mode, |_| true))).collect();
            for (mode, run) in pair.iter().zip(runs) {
                match run.join() {
                    Ok(rows) => table.put(mode.tier, &rows),
                    Err(_) => broken.push(mode.tier),
                }
            }
        });
    }
    let tiers: Vec<&str> = columns.iter().map(|mode| mode.tier).collect();
    print(&format!("\n{}\nRun here: {}.\n", table.render(), tiers.join(", ")));
    table.assert_documented();
    assert_eq!(broken, Vec::<&str>::new(), "columns with cases that could not be judged");
}

#[test]
fn every_case_of_the_corpus_is_there_once_and_says_what_it_tries() {
    let cases = corpus::cases();
    let ids: BTreeSet<&str> = cases.iter().map(|case| &*case.id).collect();
    assert_eq!(ids.len(), cases.len(), "every id once");
    assert!(150 < cases.len() && cases.iter().all(|case| !case.tries.is_empty()));
}

#[test]
fn our_tools_hold_as_root_what_they_hold_as_an_ordinary_user() {
    needs!(OwnTier);
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let mode = Mode::unconfined(User::Root);
    table::assert_documented(mode.tier, &run_corpus(&mode, Case::is_without_commands));
}

#[test]
fn safe_mode_refuses_what_would_write_in_the_guise_of_reading() {
    needs!(OwnTier);
    let mode = Mode { reading: Reading::SafeCalls, ..Mode::unconfined(User::Ordinary) };
    let rows = run_corpus(&mode, Case::is_read_only);
    let is_escape = |row: &&Row| matches!(row.verdict, Verdict::Violated(_));
    let escaped: Vec<_> = rows.iter().filter(is_escape).map(|row| &*row.case.id).collect();
    assert_eq!(escaped, Vec::<&str>::new());
}
