//! Tests a kill at any moment: a child process that replaces files is killed repeatedly, and the next worker
//! examines the result.
//!
//! `QUACKD_KILLS=200 QUACKD_FILES=5000 cargo test -p quackd-tools --release kill -- --nocapture` is the long run;
//! without the variables it is small enough for every day.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "output of the child, and numbers for the developer"
)]

use super::world::World;
use crate::replace::journal::InterruptedReplace;
use quackd_search::replace::Digest;
use quackd_testkit::{Random, this_test};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const DIRECTORY: &str = "QUACKD_TEST_REPLACING_IN";

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The child process. Does nothing when it runs as a normal test.
#[test]
fn child_that_is_killed() {
    let Some(base) = std::env::var_os(DIRECTORY) else { return };
    let world = World::at(Path::new(&base));
    let plan = world.plan("old", "new and longer");
    println!("planned");
    let applied = world.apply(&plan).unwrap();
    println!("applied {}", applied.n_written());
}

fn start(world: &World) -> (Child, BufReader<std::process::ChildStdout>) {
    let name = "replace::journal::tests::kills::child_that_is_killed";
    let mut command = this_test(name);
    command.env(DIRECTORY, &world.base).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("planned") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the child has not planned");
    }
    (child, lines)
}

#[test]
fn a_kill_at_any_moment_leaves_old_or_new_files_and_all_can_be_undone() {
    let (n_kills, n_files) = (number("QUACKD_KILLS", 12), number("QUACKD_FILES", 300));
    let mut world = World::new(&[("untouched", "nothing of interest")]);
    let text = "old text\r\n".repeat(20);
    for n in 0..n_files {
        let folder = world.ws(&format!("{}", n % 50));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(n.to_string()), &text).unwrap();
    }
    fs::hard_link(world.ws("0/0"), world.ws("0/joined")).unwrap();
    let before = world.contents();
    let new = |old: &[u8]| String::from_utf8_lossy(old).replace("old", "new and longer");
    let after: BTreeMap<PathBuf, Vec<u8>> =
        before.iter().map(|(name, old)| (name.clone(), new(old).into_bytes())).collect();

    // Measure the duration without a kill.
    let began = Instant::now();
    let (mut child, lines) = start(&world);
    let planned = began.elapsed();
    let _rest = lines.lines().count();
    assert!(child.wait().unwrap().success());
    let whole = began.elapsed() - planned;
    assert!(world.contents() == after);
    world = world.next_worker();
    world.undo_last().unwrap();
    assert!(world.contents() == before);

    let seed = u64::from(began.elapsed().subsec_nanos());
    eprintln!("seed {seed}, {n_files} files planned in {planned:?}, applied in {whole:?}");
    let mut random = Random::from_seed(seed);
    let mut sums = [0; 4];
    for _ in 0..n_kills {
        let (mut child, lines) = start(&world);
        let after_time = Duration::from_micros(
            random.below(u64::try_from(whole.as_micros()).unwrap() * 11 / 10),
        );
        // If the child is fast, its output ends before the kill.
        let (ended, wait) = mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let _rest = lines.lines().count();
            drop(ended);
        });
        let _elapsed = wait.recv_timeout(after_time);
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        world = world.next_worker();
        check(&world, &before, &after, &mut sums);
        world = world.next_worker();
    }
    eprintln!(
        "of files after kills: {} new, {} old, {} torn, {} other",
        sums[0], sums[1], sums[2], sums[3]
    );
    assert_eq!(sums[3], 0);
}

fn check(
    world: &World,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    after: &BTreeMap<PathBuf, Vec<u8>>,
    sums: &mut [usize; 4],
) {
    let found = world.recover();
    assert!(world.left_over().is_empty(), "{:?}", world.left_over());
    let now = world.contents();
    assert!(now.keys().eq(before.keys()));
    let is_whole =
        |name: &PathBuf, content: &Vec<u8>| *content == before[name] || *content == after[name];
    let torn: Vec<_> = now.iter().filter(|(name, content)| !is_whole(name, content)).collect();
    if let Some(InterruptedReplace { undo_id, n_new, n_old, n_torn, n_other }) =
        found.first().cloned()
    {
        assert_eq!(found.len(), 1);
        for (sum, n) in sums.iter_mut().zip([n_new, n_old, n_torn, n_other]) {
            *sum += n;
        }
        // Only a file that is written in place can be torn, and then both of its names are.
        assert!(
            torn.len() == 2 * n_torn
                && torn.iter().all(|(name, _)| name.starts_with(world.ws("0")))
        );
        world.undo(&undo_id).unwrap();
    } else {
        assert!(
            torn.is_empty(),
            "{:?}",
            torn.iter().map(|(name, now)| (name, Digest::of(now))).collect::<Vec<_>>()
        );
        // The replacement did not start, or it finished.
        if now != *before {
            assert!(now == *after);
            world.undo_last().unwrap();
        }
    }
    assert!(world.contents() == *before);
    assert!(world.left_over().is_empty());
}
