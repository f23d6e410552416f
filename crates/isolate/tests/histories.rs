//! Random histories of both sides against a plain model, which merges with `git merge-file`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

use quackd_isolate::{CopyOptions, IsolatedCopy, RefreshOptions, copy_workspace};
use quackd_protocol::isolate::{ApplyOutcome, IsolatedChoice, IsolatedReport, MergeRule};
use quackd_testkit::{TestDir, program, write_file};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of files, unless the variable `QUACKD_TEST_HISTORIES` sets another one. Each has one history.
const FILES: usize = 150;

/// Number of rounds: changes on both sides, then a command.
const ROUNDS: usize = 10;

/// A random number generator: the histories are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n
    }

    /// Changes, creates or deletes a file.
    fn change(&mut self, content: Option<String>) -> Option<String> {
        let Some(content) = content else {
            return (self.below(2) == 0).then(|| self.text(12));
        };
        let mut lines: Vec<String> = content.lines().map(str::to_owned).collect();
        match self.below(10) {
            0 => return None,
            1 => return Some(self.text(12)),
            2 => return Some("\0not a text\n".to_owned()),
            _ => {}
        }
        for _ in 0..=self.below(2) {
            let at = self.below(lines.len() + 1);
            match self.below(3) {
                0 => lines.insert(at, self.line()),
                1 if at < lines.len() => drop(lines.remove(at)),
                _ if at < lines.len() => lines[at] = self.line(),
                _ => lines.push(self.line()),
            }
        }
        Some(lines.iter().map(|line| format!("{line}\n")).collect())
    }

    fn text(&mut self, n: usize) -> String {
        (0..n).map(|_| format!("{}\n", self.line())).collect()
    }

    fn line(&mut self) -> String {
        format!("line {}", self.below(1000))
    }
}

/// The three versions of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Versions {
    common: Option<String>,
    base: Option<String>,
    session: Option<String>,
}

/// Expected treatment of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Untouched,
    Same,
    Taken,
    Merged,
    Conflict,
}

impl Versions {
    /// Takes the changes of `source` into `target`, both of which changed since `common`.
    fn take(
        &self,
        source: &Option<String>,
        target: &Option<String>,
        scratch: &Path,
    ) -> (Expected, Option<String>) {
        if *source == self.common {
            return (Expected::Untouched, target.clone());
        }
        if source == target {
            return (Expected::Same, target.clone());
        }
        if *target == self.common {
            return (Expected::Taken, source.clone());
        }
        if let (Some(common), Some(source), Some(target)) = (&self.common, source, target)
            && [common, source, target].iter().all(|text| !text.contains('\0'))
            && let Some(merged) = git_merge(common, target, source, scratch)
        {
            return (Expected::Merged, Some(merged));
        }
        (Expected::Conflict, target.clone())
    }
}

/// Returns the result of `git merge-file`, or `None` for a conflict.
fn git_merge(common: &str, ours: &str, theirs: &str, scratch: &Path) -> Option<String> {
    for (name, text) in [("common", common), ("ours", ours), ("theirs", theirs)] {
        fs::write(scratch.join(name), text).unwrap();
    }
    let output = program("git")
        .args(["merge-file", "-p", "-q", "ours", "common", "theirs"])
        .current_dir(scratch)
        .output()
        .unwrap();
    // The code is the number of conflicts.
    match output.status.code() {
        Some(0) => Some(String::from_utf8(output.stdout).unwrap()),
        Some(1..=127) => None,
        code => panic!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

struct World {
    all: TestDir,
    model: BTreeMap<String, Versions>,
    /// Number of merges of git without a conflict, and of those that had one here.
    merges: (usize, usize),
}

impl World {
    fn new(random: &mut Random) -> Self {
        let all = TestDir::with(&["base", "copy", "scratch"]);
        let mut world = Self { all, model: BTreeMap::new(), merges: (0, 0) };
        let n = std::env::var("QUACKD_TEST_HISTORIES").ok().map_or(FILES, |n| n.parse().unwrap());
        for number in 0..n {
            let text = (random.below(5) != 0).then(|| random.text(12));
            let versions =
                Versions { common: text.clone(), base: text.clone(), session: text.clone() };
            let name = format!("d{}/{number}", number % 20);
            put(&world.base(), &name, text.as_deref());
            world.model.insert(name, versions);
        }
        let options =
            CopyOptions { max_files: 10_000, max_bytes: 1 << 30, ..CopyOptions::default() };
        copy_workspace(&world.base(), &world.copy(), &options).unwrap();
        world
    }

    fn base(&self) -> PathBuf {
        self.all.path().join("base")
    }

    fn copy(&self) -> PathBuf {
        self.all.path().join("copy")
    }

    fn open(&self) -> IsolatedCopy {
        IsolatedCopy::open(&self.base(), &self.copy(), None).unwrap()
    }

    /// Changes about half of the files on each side.
    fn change(&mut self, random: &mut Random) {
        let (base, tree) = (self.base(), self.copy().join("tree"));
        for (name, versions) in &mut self.model {
            for (root, side) in [(&base, &mut versions.base), (&tree, &mut versions.session)] {
                if random.below(2) == 0 {
                    let changed = random.change(side.clone());
                    if changed != *side {
                        put(root, name, changed.as_deref());
                        *side = changed;
                    }
                }
            }
        }
    }

    /// Applies, or refreshes, with a rule for conflicts. Compares what is reported.
    fn write(&mut self, is_apply: bool, rule: MergeRule) {
        let choice = IsolatedChoice::default();
        let report = if is_apply {
            self.open().apply(&choice, Some(rule), false, None)
        } else {
            let options = RefreshOptions {
                merge: Some(rule),
                max_files: 10_000,
                max_bytes: 1 << 30,
                ..RefreshOptions::default()
            };
            self.open().refresh(&choice, options)
        };
        let report = report.unwrap();
        let outcomes = outcomes(&report);
        let scratch = self.all.path().join("scratch");
        for (name, versions) in &mut self.model {
            let (source, target) = if is_apply {
                (versions.session.clone(), versions.base.clone())
            } else {
                (versions.base.clone(), versions.session.clone())
            };
            let (mut expected, mut result) = versions.take(&source, &target, &scratch);
            let outcome = outcomes.get(name.as_str()).copied();
            if expected == Expected::Merged {
                self.merges.0 += 1;
                // With repeated lines next to both changes, git finds a merge that is not found here. The user decides then.
                if outcome != Some(ApplyOutcome::Merged) {
                    self.merges.1 += 1;
                    (expected, result) = (Expected::Conflict, target.clone());
                }
            }
            let takes_source = rule == if is_apply { MergeRule::Theirs } else { MergeRule::Ours };
            let wanted = match expected {
                Expected::Untouched => None,
                Expected::Same => Some(ApplyOutcome::Same),
                Expected::Taken => Some(ApplyOutcome::Taken),
                Expected::Merged => Some(ApplyOutcome::Merged),
                Expected::Conflict if takes_source => Some(ApplyOutcome::Taken),
                Expected::Conflict => Some(ApplyOutcome::Left),
            };
            assert_eq!(outcome, wanted, "{name}: {versions:?}");
            if outcome == Some(ApplyOutcome::Taken) {
                result = source.clone();
            }
            if !matches!(outcome, None | Some(ApplyOutcome::Left)) {
                versions.common = source;
            }
            if is_apply { versions.base = result } else { versions.session = result }
        }
    }

    /// Compares the files of both sides with the model.
    fn check(&self, what: &str) {
        let tree = self.copy().join("tree");
        for (name, versions) in &self.model {
            let read = |root: &Path| fs::read_to_string(root.join(name)).ok();
            assert_eq!(read(&self.base()), versions.base, "{what}, workspace: {name}");
            assert_eq!(read(&tree), versions.session, "{what}, session: {name}");
        }
    }
}

fn outcomes(report: &IsolatedReport) -> BTreeMap<&str, ApplyOutcome> {
    assert_eq!(report.more, 0);
    report.files.iter().map(|file| (&*file.path, file.outcome)).collect()
}

/// Writes or deletes a file.
fn put(root: &Path, name: &str, content: Option<&str>) {
    let path = root.join(name);
    match content {
        Some(content) => write_file(path, content),
        None => drop(fs::remove_file(path)),
    }
}

#[test]
fn both_sides_end_as_in_the_model() {
    let mut random = Random(0x0005_deec_e66d);
    let mut world = World::new(&mut random);
    let rules = [MergeRule::Skip, MergeRule::Theirs, MergeRule::Ours];
    for round in 0..ROUNDS {
        world.change(&mut random);
        world.check("before");
        let before = world.model.clone();
        let (is_apply, rule) = (random.below(2) == 0, rules[random.below(rules.len())]);
        world.write(is_apply, rule);
        let what = format!("round {round}, apply: {is_apply}, {rule:?}");
        world.check(&what);
        if is_apply && random.below(2) == 0 {
            world.open().undo().unwrap();
            for (name, versions) in &mut world.model {
                // Files that were equal on both sides stay recorded as common; the others are as before.
                if versions.base != before[name].base {
                    *versions = before[name].clone();
                }
            }
            world.check(&format!("{what}, undone"));
        }
    }
    let (all, missed) = world.merges;
    assert!(10 < all && missed * 20 <= all, "{missed} of {all} merges were not found");
}
