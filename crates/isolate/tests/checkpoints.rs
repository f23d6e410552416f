//! States of a session's files are recorded and restored. With real files and git.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

use quackd_isolate::{
    Cause, Checkpoints, CopyOptions, IsolateError, IsolatedCopy, RecordedFiles, RefreshOptions,
    copy_workspace,
};
use quackd_protocol::isolate::{
    ApplyOutcome, Checkpoint, FileChange, IsolatedChoice, IsolatedReport,
};
use quackd_testkit::{TestDir, write_file};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

struct World {
    all: TestDir,
}

impl World {
    /// A workspace without git.
    fn new() -> Self {
        let world = Self { all: TestDir::with(&["base", "states", "copy"]) };
        world.write("src/a.rs", "a\n");
        world.write("src/b.rs", "b\n");
        world.write(".gitignore", "/target\n*.log\n");
        world.write("target/out", "out\n");
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.all.path().join("base").join(path)
    }

    fn write(&self, path: &str, content: &str) {
        write_file(self.path(path), content);
    }

    fn files(&self) -> RecordedFiles {
        let tree = self.all.path().join("base");
        RecordedFiles { workspace: tree.clone(), tree, max_files: 1000, ..RecordedFiles::default() }
    }

    fn open(&self) -> Checkpoints {
        Checkpoints::open(self.files(), &self.all.path().join("states")).unwrap()
    }

    fn take(&self, call: &str) -> Option<Checkpoint> {
        self.open().take(&Cause { calls: vec![call.to_owned()], ..Cause::default() }).unwrap()
    }

    fn restore(&self, number: u64) -> IsolatedReport {
        self.open().restore(number, &IsolatedChoice::default(), false).unwrap()
    }

    /// Every file outside of `target` with its content or target and its permissions.
    fn all(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
        let (mut all, mut left) = (BTreeMap::new(), vec![self.path("")]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let stat = fs::symlink_metadata(&path).unwrap();
                if stat.is_dir() && !path.ends_with("target") {
                    left.push(path);
                } else if stat.is_symlink() {
                    let target =
                        fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                    all.insert(path, (target, 0));
                } else if stat.is_file() {
                    all.insert(path.clone(), (fs::read(path).unwrap(), stat.permissions().mode()));
                }
            }
        }
        all
    }
}

fn outcomes(report: &IsolatedReport) -> Vec<(&str, FileChange, ApplyOutcome)> {
    report.files.iter().map(|file| (file.path.as_str(), file.change, file.outcome)).collect()
}

#[test]
fn a_state_is_recorded_and_restored_and_newer_files_go() {
    let world = World::new();
    assert_eq!(world.take("first"), None);
    let first = world.all();
    assert_eq!(world.take("nothing"), None);

    world.write("src/a.rs", "changed\n");
    world.write("new/deep/c.rs", "c\n");
    fs::remove_file(world.path("src/b.rs")).unwrap();
    symlink("a.rs", world.path("src/link")).unwrap();
    fs::set_permissions(world.path("src/a.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    world.write("target/out", "rebuilt\n");
    let second = world.take("bash: make a mess").unwrap();
    assert_eq!((second.number, second.files), (2, 4));
    assert_eq!(second.calls, ["bash: make a mess"]);
    let changed = second.changes.iter().map(|one| (one.path.as_str(), one.change));
    let expected = [
        ("new/deep/c.rs", FileChange::Added),
        ("src/a.rs", FileChange::Changed),
        ("src/b.rs", FileChange::Deleted),
        ("src/link", FileChange::Added),
    ];
    assert_eq!(changed.collect::<Vec<_>>(), expected);
    let messy = world.all();

    let shown = world.open().restore(1, &IsolatedChoice::default(), true).unwrap();
    assert!(!shown.written);
    assert_eq!(shown.files.len(), 4);
    assert_eq!(world.all(), messy);

    let report = world.restore(1);
    assert!(report.written);
    assert_eq!(
        outcomes(&report),
        [
            ("new/deep/c.rs", FileChange::Deleted, ApplyOutcome::Taken),
            ("src/a.rs", FileChange::Changed, ApplyOutcome::Taken),
            ("src/b.rs", FileChange::Added, ApplyOutcome::Taken),
            ("src/link", FileChange::Deleted, ApplyOutcome::Taken),
        ]
    );
    assert_eq!(world.all(), first);
    assert!(!world.path("new").exists());
    assert_eq!(fs::read_to_string(world.path("target/out")).unwrap(), "rebuilt\n");

    // The restore is a state too, so it can be taken back.
    world.restore(2);
    assert_eq!(world.all(), messy);
    let listed = world.open().list().unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.number, one.files)).collect();
    assert_eq!(listed, [(1, 0), (2, 4), (3, 4), (4, 4)]);
}

#[test]
fn what_changed_since_the_last_state_is_recorded_before_a_restore() {
    let world = World::new();
    world.take("first");
    world.write("src/a.rs", "by a person, never recorded\n");
    world.restore(1);
    assert_eq!(fs::read_to_string(world.path("src/a.rs")).unwrap(), "a\n");
    world.restore(2);
    assert_eq!(
        fs::read_to_string(world.path("src/a.rs")).unwrap(),
        "by a person, never recorded\n"
    );
}

#[test]
fn a_file_in_the_place_of_a_directory_and_the_reverse_are_restored() {
    let world = World::new();
    world.write("x/y/z", "deep\n");
    world.write("flat", "flat\n");
    world.take("first");
    let first = world.all();
    fs::remove_dir_all(world.path("x")).unwrap();
    world.write("x", "a file now\n");
    fs::remove_file(world.path("flat")).unwrap();
    world.write("flat/inner", "a directory now\n");
    world.take("bash");
    let second = world.all();
    world.restore(1);
    assert_eq!(world.all(), first);
    world.restore(2);
    assert_eq!(world.all(), second);
}

#[test]
fn only_chosen_files_are_restored_and_names_that_programs_obey_must_be_named() {
    let world = World::new();
    world.write(".envrc", "export A=1\n");
    world.take("first");
    for path in ["src/a.rs", "src/b.rs", ".envrc"] {
        fs::remove_file(world.path(path)).unwrap();
    }
    let choice = IsolatedChoice { paths: vec!["src/a.rs".into()], ..IsolatedChoice::default() };
    let report = world.open().restore(1, &choice, false).unwrap();
    assert_eq!(outcomes(&report), [("src/a.rs", FileChange::Added, ApplyOutcome::Taken)]);
    assert!(!world.path("src/b.rs").exists());

    let report = world.restore(1);
    let protected = (".envrc", FileChange::Added, ApplyOutcome::Protected);
    assert_eq!(outcomes(&report)[0], protected);
    assert!(!world.path(".envrc").exists());
    let choice = IsolatedChoice { protected: vec![".envrc".into()], ..IsolatedChoice::default() };
    world.open().restore(1, &choice, false).unwrap();
    assert!(world.path(".envrc").exists());
}

#[test]
fn hidden_and_ignored_files_and_repositories_are_not_recorded() {
    let world = World::new();
    world.write("secret", "PRIVATE\n");
    world.write("inner/.git/config", "x\n");
    world.write("large.log", &"x".repeat(2 * 1024 * 1024));
    let files = RecordedFiles { hidden: vec![world.path("secret")], ..world.files() };
    let states = world.all.path().join("states");
    let open = || Checkpoints::open(files.clone(), &states).unwrap();
    open().take(&Cause::default()).unwrap();
    world.write("secret", "PRIVATE 2\n");
    world.write("inner/.git/config", "y\n");
    world.write("large.log", "small\n");
    world.write("target/out", "2\n");
    let taken = open().take(&Cause::default()).unwrap().unwrap();
    // The log is small now, so its state is recorded from here on.
    assert_eq!(taken.changes.len(), 1);
    assert_eq!(taken.changes[0].path, "large.log");
    for file in fs::read_dir(&states).unwrap() {
        let content = fs::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("PRIVATE"));
    }
}

#[test]
fn a_tracked_file_in_an_ignored_directory_is_recorded() {
    let world = World::new();
    let tracked = BTreeSet::from([PathBuf::from("target/out")]);
    let files = RecordedFiles { tracked, ..world.files() };
    let states = world.all.path().join("states");
    Checkpoints::open(files.clone(), &states).unwrap().take(&Cause::default()).unwrap();
    world.write("target/out", "2\n");
    let taken = Checkpoints::open(files, &states).unwrap().take(&Cause::default()).unwrap();
    assert_eq!(taken.unwrap().changes[0].path, "target/out");
}

#[test]
fn the_first_state_of_a_copy_is_the_copy_as_it_was_made() {
    let world = World::new();
    let copy = world.all.path().join("copy");
    world.write("image", "\0binary\n");
    let options = CopyOptions { max_files: 100, max_bytes: 1 << 20, ..CopyOptions::default() };
    copy_workspace(&world.path(""), &copy, &options).unwrap();
    let states = copy.join("checkpoints");
    fs::create_dir(&states).unwrap();
    let files = RecordedFiles {
        tree: copy.join("tree"),
        workspace: world.path(""),
        copy: Some(copy.clone()),
        max_files: 1000,
        ..RecordedFiles::default()
    };
    let at = |path: &str| copy.join("tree").join(path);
    for path in ["src/a.rs", "image"] {
        fs::write(at(path), "by the session\n").unwrap();
    }
    let taken = Checkpoints::open(files.clone(), &states).unwrap().take(&Cause::default()).unwrap();
    assert_eq!(taken.unwrap().number, 1);

    // The text is in the record of the copy, and the other content still in the workspace.
    let restore = || Checkpoints::open(files.clone(), &states).unwrap();
    let report = restore().restore(0, &IsolatedChoice::default(), false).unwrap();
    assert!(report.files.iter().all(|file| file.outcome == ApplyOutcome::Taken), "{report:?}");
    assert_eq!(fs::read(at("image")).unwrap(), b"\0binary\n");
    assert_eq!(fs::read(at("src/a.rs")).unwrap(), b"a\n");

    // A file whose old content no longer exists is named and left.
    restore().restore(1, &IsolatedChoice::default(), false).unwrap();
    world.write("image", "another\n");
    let report = restore().restore(0, &IsolatedChoice::default(), false).unwrap();
    let left: Vec<_> =
        report.files.iter().filter(|file| file.outcome == ApplyOutcome::Left).collect();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].reason.as_deref(), Some("its content was not kept"));
    assert_eq!(fs::read(at("src/a.rs")).unwrap(), b"a\n");
}

#[test]
fn old_states_go_and_their_contents_too() {
    let world = World::new();
    world.take("first");
    for number in 0..205 {
        world.write("src/a.rs", &format!("version {number}\n"));
        world.take("edit").unwrap();
    }
    let listed = world.open().list().unwrap();
    // The oldest tenth goes at once.
    assert!((181..=201).contains(&listed.len()), "{}", listed.len());
    let oldest = listed[0].number;
    assert!(1 < oldest);
    let packs = fs::read_dir(world.all.path().join("states")).unwrap();
    let packs = packs.filter(|file| {
        file.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "pack")
    });
    // The first one still has the other files.
    assert_eq!(packs.count(), listed.len() + 1);
    world.restore(oldest);
    let version = format!("version {}\n", oldest - 2);
    assert_eq!(fs::read_to_string(world.path("src/a.rs")).unwrap(), version);
    let gone = world.open().restore(oldest - 1, &IsolatedChoice::default(), false);
    assert!(matches!(gone, Err(IsolateError::NoState(_))), "{gone:?}");
    let future = world.open().restore(10_000, &IsolatedChoice::default(), false);
    assert!(matches!(future, Err(IsolateError::NoState(10_000))));
}

#[test]
fn a_damaged_or_foreign_record_is_refused_and_harms_no_file() {
    let world = World::new();
    world.take("first");
    world.write("src/a.rs", "2\n");
    world.take("second");
    let before = world.all();
    let changes = world.all.path().join("states/2.changes");
    let text = fs::read_to_string(&changes).unwrap().replace("src/a.rs", "../a.rs/");
    fs::write(&changes, text).unwrap();
    let refused = world.open().restore(1, &IsolatedChoice::default(), false);
    assert!(matches!(refused, Err(IsolateError::DamagedStates { .. })), "{refused:?}");
    assert_eq!(world.all(), before);
    let held = world.open();
    let states = world.all.path().join("states");
    assert!(matches!(Checkpoints::open(world.files(), &states), Err(IsolateError::Busy)));
    drop(held);
}

#[test]
fn links_lead_no_restore_out_of_the_tree() {
    let world = World::new();
    let outside = world.all.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.rs"), "of the user\n").unwrap();
    world.take("first");
    fs::remove_dir_all(world.path("src")).unwrap();
    symlink(&outside, world.path("src")).unwrap();
    // The link is a newer file, which goes first.
    world.restore(1);
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "of the user\n");
    assert!(fs::symlink_metadata(world.path("src")).unwrap().is_dir());
    assert_eq!(fs::read_to_string(world.path("src/a.rs")).unwrap(), "a\n");
    assert!(Path::new(&outside).exists());
}

#[test]
fn states_of_another_directory_with_the_same_path_are_not_restored_into_this_one() {
    let world = World::new();
    world.take("first");
    world.write("src/a.rs", "2\n");
    world.take("second");
    rustix::fs::rename(world.path(""), world.all.path().join("moved")).unwrap();
    fs::create_dir(world.path("")).unwrap();
    world.write("of-the-user", "another project\n");
    let states = world.all.path().join("states");
    let refused = Checkpoints::open(world.files(), &states);
    assert!(matches!(refused, Err(IsolateError::OtherDirectory(_))), "{refused:?}");
    assert_eq!(world.all().len(), 1);
    // They still serve the directory that they belong to.
    rustix::fs::rename(world.path(""), world.all.path().join("other")).unwrap();
    rustix::fs::rename(world.all.path().join("moved"), world.path("")).unwrap();
    world.restore(1);
    assert_eq!(fs::read_to_string(world.path("src/a.rs")).unwrap(), "a\n");
}

#[test]
fn files_that_were_not_recorded_are_not_taken_for_new_ones() {
    let world = World::new();
    world.write("large.log", &"x".repeat(2 * 1024 * 1024));
    world.write("secret", "PRIVATE\n");
    let states = world.all.path().join("states");
    let hidden = RecordedFiles { hidden: vec![world.path("secret")], ..world.files() };
    Checkpoints::open(hidden, &states).unwrap().take(&Cause::default()).unwrap();
    // The rules go, the large file gets small, and the hidden one is shown.
    world.write(".gitignore", "");
    world.write("large.log", "small\n");
    world.write("src/new.rs", "new\n");
    world.take("bash").unwrap();
    let report = world.restore(1);
    let left: Vec<&str> = report
        .files
        .iter()
        .filter(|file| file.outcome == ApplyOutcome::Left)
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(left, ["large.log", "secret", "target/out"]);
    for stays in ["large.log", "secret", "target/out"] {
        assert!(world.path(stays).exists(), "{stays}");
    }
    assert!(!world.path("src/new.rs").exists());
}

#[test]
fn a_touched_file_costs_no_state_and_no_content() {
    let world = World::new();
    let copy = world.all.path().join("copy");
    world.write("image", "\0binary\n");
    world.write("other", "\0other\n");
    let options = CopyOptions { max_files: 100, max_bytes: 1 << 20, ..CopyOptions::default() };
    copy_workspace(&world.path(""), &copy, &options).unwrap();
    let states = copy.join("checkpoints");
    fs::create_dir(&states).unwrap();
    let files = RecordedFiles {
        tree: copy.join("tree"),
        workspace: world.path(""),
        copy: Some(copy.clone()),
        max_files: 1000,
        ..RecordedFiles::default()
    };
    let open = || Checkpoints::open(files.clone(), &states).unwrap();
    let image = copy.join("tree/image");
    fs::write(&image, "\0binary\n").unwrap();
    assert_eq!(open().take(&Cause::default()).unwrap(), None);
    assert!(!states.join("1.pack").exists());
    // The next state has a pack with the same number.
    fs::write(copy.join("tree/other"), "by the session\n").unwrap();
    open().take(&Cause::default()).unwrap().unwrap();
    fs::write(&image, "changed\n").unwrap();
    open().take(&Cause::default()).unwrap().unwrap();
    open().restore(1, &IsolatedChoice::default(), false).unwrap();
    assert_eq!(fs::read(&image).unwrap(), b"\0binary\n");
}

#[test]
fn what_is_in_the_way_is_left_and_the_rest_is_restored() {
    let world = World::new();
    world.write("a", "file\n");
    world.write("b", "file\n");
    world.take("first");
    for name in ["a", "b"] {
        fs::remove_file(world.path(name)).unwrap();
        fs::create_dir(world.path(name)).unwrap();
    }
    // An empty directory is not recorded; one with a repository stays.
    world.write("src/a.rs", "2\n");
    world.take("bash").unwrap();
    let report = world.restore(1);
    let expected = [
        ("a", FileChange::Added, ApplyOutcome::Left),
        ("b", FileChange::Added, ApplyOutcome::Left),
        ("src/a.rs", FileChange::Changed, ApplyOutcome::Taken),
    ];
    assert_eq!(outcomes(&report), expected);
    assert!(world.path("a").is_dir());

    // A directory that stays because of what is not recorded in it: everything is taken back.
    world.write("a/x", "x\n");
    fs::create_dir(world.path("a/empty")).unwrap();
    world.write("src/a.rs", "3\n");
    world.take("bash").unwrap();
    let before = world.all();
    let refused = world.open().restore(1, &IsolatedChoice::default(), false);
    assert!(matches!(refused, Err(IsolateError::ChangedNow(_))), "{refused:?}");
    assert_eq!(world.all(), before);
    let others = IsolatedChoice { paths: vec!["src".into()], ..IsolatedChoice::default() };
    world.open().restore(1, &others, false).unwrap();
    assert_eq!(fs::read_to_string(world.path("src/a.rs")).unwrap(), "a\n");
}

#[test]
fn a_content_that_is_too_large_is_named_and_not_restored() {
    let world = World::new();
    world.take("first");
    // A sparse file takes no space here.
    fs::File::create(world.path("large")).unwrap().set_len(65 * 1024 * 1024).unwrap();
    world.take("too large to be kept").unwrap();
    fs::remove_file(world.path("large")).unwrap();
    let report = world.restore(2);
    assert_eq!(outcomes(&report), [("large", FileChange::Added, ApplyOutcome::Left)]);
    assert_eq!(report.files[0].reason.as_deref(), Some("its content was not kept"));

    // It is neither deleted nor replaced: it could not be restored then.
    fs::File::create(world.path("large")).unwrap().set_len(65 * 1024 * 1024).unwrap();
    let report = world.restore(1);
    assert_eq!(outcomes(&report), [("large", FileChange::Deleted, ApplyOutcome::Left)]);
    assert!(world.path("large").exists());
}

#[test]
fn a_tree_with_too_many_files_has_no_states() {
    let world = World::new();
    let files = RecordedFiles { max_files: 2, ..world.files() };
    let mut opened = Checkpoints::open(files, &world.all.path().join("states")).unwrap();
    let refused = opened.take(&Cause::default());
    assert!(matches!(refused, Err(IsolateError::TooManyFiles { max: 2 })), "{refused:?}");
}

#[test]
fn a_restore_leaves_what_a_refresh_brought_after_that_state() {
    let world = World::new();
    let copy = world.all.path().join("copy");
    let options = CopyOptions { max_files: 100, max_bytes: 1 << 20, ..CopyOptions::default() };
    copy_workspace(&world.path(""), &copy, &options).unwrap();
    let states = copy.join("checkpoints");
    fs::create_dir(&states).unwrap();
    let files = RecordedFiles {
        tree: copy.join("tree"),
        workspace: world.path(""),
        copy: Some(copy.clone()),
        max_files: 1000,
        ..RecordedFiles::default()
    };
    let open = || Checkpoints::open(files.clone(), &states).unwrap();
    let at = |path: &str| copy.join("tree").join(path);
    fs::write(at("src/b.rs"), "by the session\n").unwrap();
    assert_eq!(open().take(&Cause::default()).unwrap().unwrap().number, 1);

    world.write("src/a.rs", "by the user\n");
    world.write("new.rs", "new\n");
    let options =
        RefreshOptions { max_files: 100, max_bytes: 1 << 20, ..RefreshOptions::default() };
    let isolated = IsolatedCopy::open(&world.path(""), &copy, None).unwrap();
    assert!(isolated.refresh(&IsolatedChoice::default(), options).unwrap().written);
    let report = open().restore(0, &IsolatedChoice::default(), false).unwrap();
    let expected = [
        ("new.rs", FileChange::Deleted, ApplyOutcome::Left),
        ("src/a.rs", FileChange::Changed, ApplyOutcome::Left),
        ("src/b.rs", FileChange::Changed, ApplyOutcome::Taken),
    ];
    assert_eq!(outcomes(&report), expected);
    assert_eq!(fs::read(at("src/a.rs")).unwrap(), b"by the user\n");
    assert_eq!(fs::read(at("src/b.rs")).unwrap(), b"b\n");

    // So an apply takes nothing of the user's away.
    let isolated = IsolatedCopy::open(&world.path(""), &copy, None).unwrap();
    let left = isolated.diff(&IsolatedChoice::default(), false).unwrap();
    assert!(left.files.is_empty(), "{left:?}");
}
