//! A process that makes a copy, applies it, takes it back, or restores a state is killed at any moment: nothing is lost, and
//! the next one leaves everything or nothing of the change. `QUACKD_TEST_KILLS` sets the number of kills of each kind.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

use quackd_isolate::{
    Cause, Checkpoints, CopyOptions, IsolatedCopy, RecordedFiles, RefreshOptions, copy_workspace,
};
use quackd_protocol::isolate::IsolatedChoice;
use quackd_testkit::{TestDir, this_test};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Kills of each kind, unless the variable sets another number.
const KILLS: u32 = 16;

/// Names the work of a child process, and the directory with everything.
const WORK: &str = "QUACKD_TEST_ISOLATE_WORK";
const WORLD: &str = "QUACKD_TEST_ISOLATE_WORLD";

const FILES: usize = 60;

struct World {
    all: PathBuf,
    /// Deletes it at the end. The process that is killed has none.
    _owner: Option<TestDir>,
}

type Files = BTreeMap<PathBuf, String>;

impl World {
    fn new() -> Self {
        let owner = TestDir::with(&["copy", "states"]);
        let all = owner.to_path_buf();
        Self::fill(&all.join("base"));
        Self { all, _owner: Some(owner) }
    }

    fn fill(base: &Path) {
        fs::create_dir_all(base.join("src")).unwrap();
        for n in 0..FILES {
            fs::write(base.join(format!("src/{n}")), format!("old {n}\n")).unwrap();
        }
    }

    fn base(&self) -> PathBuf {
        self.all.join("base")
    }

    fn copy(&self) -> PathBuf {
        self.all.join("copy")
    }

    fn make(&self) {
        let options =
            CopyOptions { max_files: 10_000, max_bytes: 1 << 30, ..CopyOptions::default() };
        copy_workspace(&self.base(), &self.copy(), &options).unwrap();
    }

    fn open(&self) -> IsolatedCopy {
        IsolatedCopy::open(&self.base(), &self.copy(), None).unwrap()
    }

    fn states(&self) -> Checkpoints {
        let files = RecordedFiles {
            tree: self.base(),
            workspace: self.base(),
            max_files: 10_000,
            ..RecordedFiles::default()
        };
        Checkpoints::open(files, &self.all.join("states")).unwrap()
    }

    /// Changes, adds and deletes files in a tree.
    fn change(tree: &Path) {
        for n in 0..FILES {
            let path = tree.join(format!("src/{n}"));
            match n % 3 {
                0 => fs::write(path, format!("new {n}\n")).unwrap(),
                1 => fs::remove_file(path).unwrap(),
                _ => {
                    fs::create_dir_all(tree.join(format!("made/{n}"))).unwrap();
                    fs::write(tree.join(format!("made/{n}/file")), "made\n").unwrap();
                }
            }
        }
    }

    /// Does the work of a process.
    fn work(&self, work: &str) {
        let choice = IsolatedChoice::default();
        match work {
            "copy" => self.make(),
            "apply" => drop(self.open().apply(&choice, None, false, None).unwrap()),
            "undo" => drop(self.open().undo().unwrap()),
            "refresh" => {
                let options = RefreshOptions {
                    max_files: 10_000,
                    max_bytes: 1 << 30,
                    ..RefreshOptions::default()
                };
                assert!(self.open().refresh(&choice, options).unwrap().written);
            }
            "restore" => drop(self.states().restore(1, &choice, false).unwrap()),
            other => panic!("{other}"),
        }
    }

    /// Starts the work in another process, which runs only [`a_process_does_its_work`].
    fn start(&self, work: &str) -> Child {
        this_test("a_process_does_its_work")
            .env(WORK, work)
            .env(WORLD, &self.all)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Kills a process that does the work after a part of the time that the work takes.
    #[expect(clippy::disallowed_methods, reason = "chooses the moment of the kill")]
    fn kill(&self, work: &str, after: Duration) {
        let mut child = self.start(work);
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn files_of(tree: &Path) -> Files {
    let (mut files, mut left) = (Files::new(), vec![tree.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                drop(files.insert(path.clone(), fs::read_to_string(path).unwrap()));
            }
        }
    }
    files
}

/// The process that the other tests kill. Without the variables it does nothing.
#[test]
fn a_process_does_its_work() {
    if let (Ok(work), Some(all)) = (std::env::var(WORK), std::env::var_os(WORLD)) {
        World { all: all.into(), _owner: None }.work(&work);
    }
}

/// Returns delays that are spread over the time that the work takes in `world`, which is left with the work done.
fn delays(world: &World, work: &str) -> impl Iterator<Item = Duration> + use<> {
    let started = Instant::now();
    assert!(world.start(work).wait().unwrap().success());
    let whole = started.elapsed();
    let n = std::env::var("QUACKD_TEST_KILLS").ok().map_or(KILLS, |n| n.parse().unwrap());
    (0..n).map(move |at| whole * at / n)
}

/// Asserts that the tree is one of two, and returns whether it is the second.
#[track_caller]
fn is_second(tree: &Path, first: &Files, second: &Files) -> bool {
    let found = files_of(tree);
    assert!(found == *first || found == *second, "{:?}", found.keys());
    found == *second
}

#[test]
fn an_apply_and_an_undo_that_are_killed_leave_all_or_nothing() {
    let world = World::new();
    world.make();
    World::change(&world.copy().join("tree"));
    let before = files_of(&world.base());
    let choice = IsolatedChoice::default();
    let delays: Vec<Duration> = delays(&world, "apply").collect();
    let after = files_of(&world.base());
    assert_ne!(before, after);
    world.work("undo");
    for delay in delays {
        world.kill("apply", delay);
        // Opening takes back what was written of an unfinished apply.
        let left = world.open().diff(&choice, false).unwrap();
        if is_second(&world.base(), &before, &after) {
            assert!(left.files.is_empty(), "{left:?}");
        } else {
            assert_eq!(left.files.len(), FILES);
            world.work("apply");
        }
        world.kill("undo", delay);
        let left = world.open().diff(&choice, false).unwrap();
        if is_second(&world.base(), &before, &after) {
            world.work("undo");
            assert_eq!(files_of(&world.base()), before);
        } else {
            assert_eq!(left.files.len(), FILES);
        }
    }
}

#[test]
fn a_refresh_that_is_killed_leaves_all_or_nothing() {
    let world = World::new();
    let tree = world.copy().join("tree");
    let again = || {
        fs::remove_dir_all(world.copy()).unwrap();
        fs::create_dir(world.copy()).unwrap();
        fs::remove_dir_all(world.base()).unwrap();
        World::fill(&world.base());
        world.make();
        let before = files_of(&tree);
        World::change(&world.base());
        before
    };
    let before = again();
    let delays: Vec<Duration> = delays(&world, "refresh").collect();
    let after = files_of(&tree);
    assert_ne!(before, after);
    for delay in delays {
        again();
        let of_user = files_of(&world.base());
        world.kill("refresh", delay);
        // Opening takes back what was written of an unfinished refresh.
        let left = world.open().diff(&IsolatedChoice::default(), false).unwrap();
        is_second(&tree, &before, &after);
        assert!(left.files.is_empty(), "{left:?}");
        assert_eq!(files_of(&world.base()), of_user);
    }
}

#[test]
fn a_restore_that_is_killed_leaves_all_or_nothing() {
    let world = World::new();
    world.states().take(&Cause::default()).unwrap();
    let first = files_of(&world.base());
    World::change(&world.base());
    let changed = files_of(&world.base());
    let number = world.states().take(&Cause::default()).unwrap().unwrap().number;
    let delays: Vec<Duration> = delays(&world, "restore").collect();
    let again = || {
        // The oldest states may be gone: then the test has no more to show.
        world.states().restore(number, &IsolatedChoice::default(), false).unwrap();
        assert_eq!(files_of(&world.base()), changed);
    };
    again();
    for delay in delays.into_iter().take(95) {
        world.kill("restore", delay);
        let listed = world.states().list().unwrap();
        assert!(listed.iter().any(|one| one.number == number));
        if is_second(&world.base(), &changed, &first) {
            again();
        }
    }
}

#[test]
fn a_copy_that_is_killed_is_whole_or_none() {
    let world = World::new();
    let before = files_of(&world.base());
    let again = || {
        fs::remove_dir_all(world.copy()).unwrap();
        fs::create_dir(world.copy()).unwrap();
    };
    let delays: Vec<Duration> = delays(&world, "copy").collect();
    for delay in delays {
        again();
        world.kill("copy", delay);
        if let Ok(opened) = IsolatedCopy::open(&world.base(), &world.copy(), None) {
            let compared = opened.diff(&IsolatedChoice::default(), false).unwrap();
            assert!(compared.files.is_empty(), "{compared:?}");
        }
        assert_eq!(files_of(&world.base()), before);
    }
}
