//! A session changes its copy, the user changes the workspace, and both are brought together. With real files and git.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

use quackd_isolate::{CopyOptions, IsolateError, IsolatedCopy, RefreshOptions, copy_workspace};
use quackd_protocol::isolate::{
    ApplyOutcome, CopiedTree, FileChange, IsolatedChoice, IsolatedReport, MergeRule,
};
use quackd_testkit::{TestDir, git, write_file};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

struct World {
    _all: TestDir,
    base: PathBuf,
    directory: PathBuf,
}

impl World {
    fn new() -> Self {
        let all = TestDir::with(&["base", "copy"]);
        Self { base: all.join("base"), directory: all.join("copy"), _all: all }
    }

    /// A repository with ignored outputs, a local change and a secret.
    fn repository() -> Self {
        let world = Self::new();
        world.base("src/main.rs", "one\ntwo\nthree\nfour\nfive\n");
        world.base("src/lib.rs", "lib\n");
        world.base(".gitignore", "/target\n.env\n*.log\n");
        world.git(&["init", "-q", "-b", "main"]);
        world.git(&["add", "-A"]);
        world.git(&["commit", "-q", "-m", "first"]);
        world.base("src/lib.rs", "lib, changed\n");
        world.base("target/debug/app", "built\n");
        world.base(".env", "KEY=1\n");
        world
    }

    fn git(&self, words: &[&str]) -> String {
        git_in(&self.base, words)
    }

    fn base(&self, path: &str, content: &str) {
        write_file(self.base.join(path), content);
    }

    fn copy(&self, path: &str) -> PathBuf {
        self.directory.join("tree").join(path)
    }

    fn session(&self, path: &str, content: &str) {
        write_file(self.copy(path), content);
    }

    fn make(&self) -> CopiedTree {
        let options = CopyOptions { max_files: 1000, max_bytes: 1 << 30, ..CopyOptions::default() };
        copy_workspace(&self.base, &self.directory, &options).unwrap()
    }

    fn open(&self) -> IsolatedCopy {
        IsolatedCopy::open(&self.base, &self.directory, None).unwrap()
    }

    fn diff(&self) -> IsolatedReport {
        self.open().diff(&IsolatedChoice::default(), true).unwrap()
    }

    fn apply(&self, merge: Option<MergeRule>) -> IsolatedReport {
        self.open().apply(&IsolatedChoice::default(), merge, false, None).unwrap()
    }

    fn undo(&self) -> IsolatedReport {
        self.open().undo().unwrap()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.base.join(path)).unwrap()
    }
}

fn git_in(directory: &Path, words: &[&str]) -> String {
    git(Path::new("/nonexistent"), directory, words)
}

fn outcomes(report: &IsolatedReport) -> BTreeMap<&str, (FileChange, ApplyOutcome)> {
    report.files.iter().map(|file| (&*file.path, (file.change, file.outcome))).collect()
}

/// Returns every file and link below a directory with its content, but those in `.git`.
fn files(directory: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                if entry.file_name() != ".git" {
                    left.push(path);
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                found.insert(path.strip_prefix(directory).unwrap().to_owned(), (0, target));
            } else if kind.is_file() {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o111;
                let content = fs::read(&path).unwrap();
                found.insert(path.strip_prefix(directory).unwrap().to_owned(), (mode, content));
            }
        }
    }
    found
}

#[test]
fn a_copy_has_everything_but_outputs_and_its_repository_works() {
    let world = World::repository();
    symlink("src/main.rs", world.base.join("link")).unwrap();
    fs::set_permissions(world.base.join("src/lib.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    let copied = world.make();
    assert_eq!(copied.outputs, [PathBuf::from("target")]);
    assert_eq!(copied.objects, Some(world.base.canonicalize().unwrap().join(".git/objects")));
    assert_eq!(copied.notes, [""; 0]);
    let mut expected = files(&world.base);
    expected.retain(|path, _| !path.starts_with("target"));
    assert_eq!(files(&world.copy("")), expected);
    assert_eq!(copied.files, expected.len() as u64);

    // In the session the objects are mounted there; here the test puts their place in.
    let alternates = world.copy(".git/objects/info/alternates");
    assert_eq!(fs::read_to_string(&alternates).unwrap(), "/run/quack/objects\n");
    fs::write(&alternates, format!("{}\n", copied.objects.unwrap().display())).unwrap();
    let status = git_in(&world.copy(""), &["status", "--porcelain"]);
    assert_eq!(status, world.git(&["status", "--porcelain"]));
    write_file(world.copy("new.rs"), "new\n");
    git_in(&world.copy(""), &["add", "-A"]);
    git_in(&world.copy(""), &["commit", "-q", "-m", "in the copy"]);
    assert_eq!(git_in(&world.copy(""), &["fsck"]), "");
    assert_eq!(world.git(&["log", "--oneline", "--all"]).lines().count(), 1);
    assert!(!world.copy(".git/hooks").exists());
}

#[test]
fn settings_that_run_programs_are_not_copied() {
    let world = World::repository();
    for (key, value) in [
        ("core.fsmonitor", "/bin/evil"),
        ("core.hooksPath", "/tmp/hooks"),
        ("filter.x.clean", "/bin/evil"),
        ("include.path", "/tmp/other"),
        ("user.name", "A \"B\""),
        ("remote.origin.url", "https://host.example/a.git"),
    ] {
        world.git(&["config", key, value]);
    }
    world.make();
    let config = fs::read_to_string(world.copy(".git/config")).unwrap();
    for absent in ["evil", "hooks", "include", "filter"] {
        assert!(!config.contains(absent), "{absent}: {config}");
    }
    let copy = world.copy("");
    assert_eq!(git_in(&copy, &["config", "--file", ".git/config", "user.name"]), "A \"B\"\n");
    assert_eq!(git_in(&copy, &["config", "remote.origin.url"]), "https://host.example/a.git\n");
}

#[test]
fn a_linked_worktree_is_copied_and_a_forged_one_has_no_repository() {
    let world = World::repository();
    let linked = world.directory.with_file_name("linked");
    world.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "-b", "other"]);
    let options = CopyOptions { max_files: 1000, max_bytes: 1 << 30, ..CopyOptions::default() };
    let copied = copy_workspace(&linked, &world.directory, &options).unwrap();
    assert!(copied.objects.unwrap().ends_with("base/.git/objects"));
    assert_eq!(fs::read_to_string(world.copy(".git/HEAD")).unwrap(), "ref: refs/heads/other\n");

    // A session could write this file, to read the repository that it names.
    let forged = World::new();
    let private = world.base.join(".git/worktrees/linked");
    forged.base(".git", &format!("gitdir: {}\n", private.display()));
    let copied = forged.make();
    assert_eq!(copied.objects, None);
    assert!(copied.notes[0].contains("does not list this worktree"), "{:?}", copied.notes);
    assert!(!forged.copy(".git").exists());
}

#[test]
fn changes_are_listed_with_what_applying_does() {
    let world = World::repository();
    world.make();
    world.session("src/main.rs", "one\nTWO\nthree\nfour\nfive\n");
    world.session("added/new.rs", "new\n");
    world.session("debug.log", "ignored\n");
    world.session(".envrc", "evil\n");
    fs::remove_file(world.copy("src/lib.rs")).unwrap();
    symlink("/etc/passwd", world.copy("outside")).unwrap();
    symlink("src/main.rs", world.copy("inside")).unwrap();
    world.base("src/main.rs", "one\ntwo\nthree\nfour\nFIVE\n");
    let report = world.diff();
    use ApplyOutcome::{Merged, Protected, Taken};
    use FileChange::{Added, Changed, Deleted};
    let expected = BTreeMap::from([
        (".envrc", (Added, Protected)),
        ("added/new.rs", (Added, Taken)),
        ("inside", (Added, Taken)),
        ("outside", (Added, Protected)),
        ("src/lib.rs", (Deleted, Taken)),
        ("src/main.rs", (Changed, Merged)),
    ]);
    assert_eq!(outcomes(&report), expected);
    let diff = report.files.iter().find(|file| file.path == "src/main.rs").unwrap();
    let text = "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,5 +1,5 @@\n one\n-two\n+TWO\n three\n four\n five\n";
    assert_eq!(diff.diff.as_deref(), Some(text));

    let before = files(&world.base);
    let applied = world.apply(None);
    assert!(applied.written);
    assert_eq!(world.read("src/main.rs"), "one\nTWO\nthree\nfour\nFIVE\n");
    assert_eq!(world.read("added/new.rs"), "new\n");
    assert_eq!(fs::read_link(world.base.join("inside")).unwrap(), Path::new("src/main.rs"));
    for absent in [".envrc", "outside", "src/lib.rs", "debug.log"] {
        assert!(!world.base.join(absent).exists(), "{absent}");
    }
    // Applied changes are no longer listed; the others still are.
    let left = world.diff();
    assert_eq!(outcomes(&left).keys().copied().collect::<Vec<_>>(), [".envrc", "outside"]);

    let undone = world.undo();
    assert_eq!(undone.files.len(), 4);
    assert_eq!(files(&world.base), before);
    assert_eq!(outcomes(&world.diff()), expected, "the changes are those of the session again");
    let again = world.open().undo();
    assert!(matches!(again, Err(IsolateError::NothingToUndo)), "{again:?}");
}

#[test]
fn with_a_conflict_nothing_is_written_until_it_is_resolved() {
    let make = || {
        let world = World::repository();
        world.make();
        world.session("src/main.rs", "one\nsession\nthree\nfour\nfive\n");
        world.base("src/main.rs", "one\nuser\nthree\nfour\nfive\n");
        world.session("other", "other\n");
        world
    };
    let world = make();
    let before = files(&world.base);
    let report = world.apply(None);
    assert!(!report.written && report.conflicts == 1, "{report:?}");
    assert_eq!(files(&world.base), before);

    let chosen = IsolatedChoice { paths: vec!["other".into()], ..IsolatedChoice::default() };
    assert!(world.open().apply(&chosen, None, false, None).unwrap().written);
    assert_eq!(world.read("other"), "other\n");

    for (merge, expected) in [
        (MergeRule::Ours, "one\nuser\nthree\nfour\nfive\n"),
        (MergeRule::Skip, "one\nuser\nthree\nfour\nfive\n"),
        (MergeRule::Theirs, "one\nsession\nthree\nfour\nfive\n"),
    ] {
        let world = make();
        assert!(world.apply(Some(merge)).written, "{merge:?}");
        assert_eq!(
            (world.read("src/main.rs").as_str(), world.read("other").as_str()),
            (expected, "other\n")
        );
    }
    let world = make();
    assert!(world.apply(Some(MergeRule::Markers)).written);
    let marked = world.read("src/main.rs");
    assert!(marked.contains("<<<<<<<") && marked.contains("user") && marked.contains("session"));
}

#[test]
fn what_the_user_has_seen_is_what_is_applied() {
    let world = World::repository();
    world.make();
    world.session("a", "1\n");
    let seen = world.diff().digest;
    world.session("a", "2\n");
    let choice = IsolatedChoice::default();
    let refused = world.open().apply(&choice, None, false, Some(&seen));
    assert!(matches!(refused, Err(IsolateError::Changed { .. })), "{refused:?}");
    let seen = world.diff().digest;
    let dry = world.open().apply(&choice, None, true, Some(&seen)).unwrap();
    assert!(!dry.written && !world.base.join("a").exists());
    assert!(world.open().apply(&choice, None, false, Some(&seen)).unwrap().written);
}

#[test]
fn an_undo_leaves_what_changed_since() {
    let world = World::repository();
    world.make();
    world.session("a", "session\n");
    world.session("b", "session\n");
    world.apply(None);
    world.base("a", "user\n");
    let report = world.undo();
    let left: Vec<_> = report.files.iter().filter(|file| file.reason.is_some()).collect();
    assert_eq!(left.len(), 1);
    assert_eq!((world.read("a").as_str(), world.base.join("b").exists()), ("user\n", false));
}

#[test]
fn hostile_trees_change_nothing_outside_and_are_told() {
    let world = World::repository();
    write_file(world.base.with_file_name("outside/victim"), "safe\n");
    world.make();
    // A directory that becomes a link: its files count as deleted, and the link needs the user's word.
    fs::remove_dir_all(world.copy("src")).unwrap();
    symlink("../../outside", world.copy("src")).unwrap();
    // An unreadable directory does not count as deleted.
    world.session("d/x", "x\n");
    fs::set_permissions(world.copy("d"), fs::Permissions::from_mode(0o000)).unwrap();
    world.session(".git/hooks/pre-commit", "evil\n");
    world.session("nested/.GIT/config", "evil\n");
    world.session("long\nname \u{1b}[31m", "x\n");
    let is_root = rustix::process::getuid().is_root();
    let report = world.diff();
    fs::set_permissions(world.copy("d"), fs::Permissions::from_mode(0o700)).unwrap();
    let found = outcomes(&report);
    assert_eq!(found["src"], (FileChange::Added, ApplyOutcome::Protected));
    assert_eq!(found["src/main.rs"], (FileChange::Deleted, ApplyOutcome::Taken));
    assert!(found.contains_key("long\nname \u{1b}[31m"));
    assert!(!found.keys().any(|path| path.to_lowercase().contains(".git/")), "{found:?}");
    assert!(
        is_root || report.notes.iter().any(|note| note.contains("cannot be opened")),
        "{report:?}"
    );
    world.apply(None);
    assert!(!world.base.join(".git/hooks/pre-commit").exists());
    assert_eq!(fs::read_to_string(world.base.with_file_name("outside/victim")).unwrap(), "safe\n");
}

#[test]
fn a_link_in_the_workspace_leads_no_write_elsewhere() {
    let world = World::repository();
    let outside = world.base.with_file_name("outside");
    write_file(outside.join("keep"), "safe\n");
    world.make();
    world.session("src/new.rs", "new\n");
    fs::remove_dir_all(world.base.join("src")).unwrap();
    symlink(&outside, world.base.join("src")).unwrap();
    let report = world.apply(None);
    assert!(!report.written && report.conflicts == 1, "{report:?}");
    assert_eq!(files(&outside).len(), 1);
}

#[test]
fn another_directory_in_place_of_the_workspace_is_refused() {
    let world = World::repository();
    world.make();
    rustix::fs::rename(&world.base, world.base.with_file_name("moved")).unwrap();
    fs::create_dir(&world.base).unwrap();
    let opened = IsolatedCopy::open(&world.base, &world.directory, None);
    assert!(matches!(opened, Err(IsolateError::Replaced)), "{opened:?}");
}

#[test]
fn limits_are_told_and_hidden_paths_are_not_copied() {
    let world = World::repository();
    let options = |max_files, max_bytes| CopyOptions {
        max_files,
        max_bytes,
        hidden: vec![world.base.join("src/lib.rs")],
        ..CopyOptions::default()
    };
    let few = copy_workspace(&world.base, &world.directory, &options(2, 1 << 20));
    // All files are counted, so that the user can choose a limit.
    let n_files = match few {
        Err(IsolateError::TooLarge { files, max_files: 2, .. }) => files,
        other => panic!("{other:?}"),
    };
    fs::remove_dir_all(world.copy("")).unwrap();
    let small = copy_workspace(&world.base, &world.directory, &options(100, 4));
    assert!(matches!(small, Err(IsolateError::TooLarge { max_bytes: 4, .. })), "{small:?}");
    let text = small.unwrap_err().to_string();
    assert!(text.contains("the workspace has 1 MiB, more than the smaller of"), "{text}");
    let none = IsolatedCopy::open(&world.base, &world.directory, None);
    assert!(matches!(none, Err(IsolateError::NoCopy)), "{none:?}");
    fs::remove_dir_all(world.copy("")).unwrap();
    let copied = copy_workspace(&world.base, &world.directory, &options(100, 1 << 20)).unwrap();
    assert_eq!(copied.files, n_files);
    assert!(!world.copy("src/lib.rs").exists());
    assert_eq!(world.diff().files, []);
}

#[test]
fn an_ignored_directory_with_tracked_files_is_copied() {
    let world = World::repository();
    let options = CopyOptions {
        max_files: 100,
        max_bytes: 1 << 20,
        tracked: BTreeSet::from([PathBuf::from("target/debug/app")]),
        ..CopyOptions::default()
    };
    let copied = copy_workspace(&world.base, &world.directory, &options).unwrap();
    assert!(copied.outputs.is_empty(), "{:?}", copied.outputs);
    assert!(world.copy("target/debug/app").exists());
}

#[test]
fn a_directory_without_a_repository_can_be_isolated() {
    let world = World::new();
    world.base("a/b", "1\n");
    world.make();
    world.session("a/b", "2\n");
    world.session("c", "3\n");
    assert!(world.apply(None).written);
    assert_eq!((world.read("a/b").as_str(), world.read("c").as_str()), ("2\n", "3\n"));
    fs::remove_dir_all(world.copy("a")).unwrap();
    assert!(world.apply(None).written);
    assert!(!world.base.join("a").exists(), "an empty directory goes with its last file");
}

#[test]
fn more_files_than_a_process_may_have_open_are_applied_and_taken_back() {
    let world = World::new();
    world.base("kept", "kept\n");
    fs::create_dir(world.base.join("empty")).unwrap();
    let options = CopyOptions { max_files: 100_000, max_bytes: 1 << 30, ..CopyOptions::default() };
    copy_workspace(&world.base, &world.directory, &options).unwrap();
    for number in 0..2_000 {
        world.session(&format!("d{number}/file"), "new\n");
    }
    world.session("empty/file", "new\n");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit { current: Some(512), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let applied = world.apply(None);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    assert!(applied.written);
    assert_eq!(files(&world.base).len(), 2_002);
    world.undo();
    assert_eq!(files(&world.base).len(), 1);
    // Directories that were made for the files go with them; that of the user stays.
    let mut left: Vec<_> =
        fs::read_dir(&world.base).unwrap().flatten().map(|it| it.file_name()).collect();
    left.sort();
    assert_eq!(left, ["empty", "kept"]);
}

#[test]
fn new_files_keep_the_permissions_of_the_session_without_those_of_others_to_write() {
    let world = World::new();
    world.base("old", "old\n");
    fs::set_permissions(world.base.join("old"), fs::Permissions::from_mode(0o640)).unwrap();
    world.make();
    for (name, mode) in [("private", 0o600), ("program", 0o777), ("old", 0o777)] {
        world.session(name, "new\n");
        fs::set_permissions(world.copy(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    world.apply(None);
    let mode =
        |name: &str| fs::metadata(world.base.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("private"), mode("program"), mode("old")], [0o600, 0o755, 0o750]);
}

/// Brings the changes of the workspace into the copy.
fn refresh(world: &World, merge: Option<MergeRule>) -> IsolatedReport {
    let options =
        RefreshOptions { merge, max_files: 1000, max_bytes: 1 << 30, ..RefreshOptions::default() };
    world.open().refresh(&IsolatedChoice::default(), options).unwrap()
}

#[test]
fn a_refresh_takes_the_changes_of_the_workspace_and_keeps_those_of_the_session() {
    let world = World::repository();
    world.make();
    world.session("src/main.rs", "one\ntwo\nthree\nfour\nby the session\n");
    world.session("new.rs", "new\n");
    world.base("src/main.rs", "by the user\ntwo\nthree\nfour\nfive\n");
    world.base("src/added.rs", "added\n");
    world.base(".envrc", "export A=1\n");
    fs::remove_file(world.base.join("src/lib.rs")).unwrap();

    let report = refresh(&world, None);
    assert!(report.written && report.conflicts == 0, "{report:?}");
    let expected = [
        (".envrc", (FileChange::Added, ApplyOutcome::Taken)),
        ("src/added.rs", (FileChange::Added, ApplyOutcome::Taken)),
        ("src/lib.rs", (FileChange::Deleted, ApplyOutcome::Taken)),
        ("src/main.rs", (FileChange::Changed, ApplyOutcome::Merged)),
    ];
    assert_eq!(outcomes(&report), BTreeMap::from(expected));
    let merged = "by the user\ntwo\nthree\nfour\nby the session\n";
    assert_eq!(fs::read_to_string(world.copy("src/main.rs")).unwrap(), merged);
    assert!(!world.copy("src/lib.rs").exists());
    assert_eq!(world.read("src/main.rs"), "by the user\ntwo\nthree\nfour\nfive\n");

    // Only what the session changed is left to apply.
    let left = world.diff();
    let expected = [
        ("new.rs", (FileChange::Added, ApplyOutcome::Taken)),
        ("src/main.rs", (FileChange::Changed, ApplyOutcome::Taken)),
    ];
    assert_eq!(outcomes(&left), BTreeMap::from(expected));
    assert!(!refresh(&world, None).written);
    world.apply(None);
    assert_eq!(world.read("src/main.rs"), merged);
}

#[test]
fn a_refresh_with_a_conflict_writes_nothing_until_it_is_resolved() {
    let world = World::repository();
    world.make();
    for (content, write) in [("session\n", true), ("user\n", false)] {
        if write { world.session("src/lib.rs", content) } else { world.base("src/lib.rs", content) }
    }
    world.base("other", "of the user\n");
    let report = refresh(&world, None);
    assert!(!report.written && report.conflicts == 1, "{report:?}");
    assert!(!world.copy("other").exists());

    let marked = refresh(&world, Some(MergeRule::Markers));
    assert!(marked.written, "{marked:?}");
    let text = fs::read_to_string(world.copy("src/lib.rs")).unwrap();
    assert!(text.starts_with("<<<<<<< ours\nuser\n"), "{text}");
    assert!(text.contains("session\n>>>>>>> theirs"), "{text}");
    assert_eq!(world.read("src/lib.rs"), "user\n");
    // The session resolves it, and its version is a change of what the workspace has now.
    world.session("src/lib.rs", "both\n");
    assert!(world.apply(None).written);
    assert_eq!(world.read("src/lib.rs"), "both\n");
    assert_eq!(world.read("other"), "of the user\n");
}

#[test]
fn an_apply_before_a_refresh_can_still_be_taken_back() {
    let world = World::repository();
    world.make();
    world.session("src/lib.rs", "by the session\n");
    world.apply(None);
    world.base("later", "of the user\n");
    refresh(&world, None);
    world.undo();
    assert_eq!(world.read("src/lib.rs"), "lib, changed\n");
    // The refreshed file is no change of the session.
    let left = world.diff();
    let expected = [("src/lib.rs", (FileChange::Changed, ApplyOutcome::Taken))];
    assert_eq!(outcomes(&left), BTreeMap::from(expected));
}

#[test]
fn hidden_files_and_too_many_files_are_not_brought_into_the_copy() {
    let world = World::repository();
    world.make();
    world.base("secret/key", "KEY\n");
    world.base("a", "a\n");
    let options = |max_files| RefreshOptions {
        hidden: vec![PathBuf::from("secret")],
        max_files,
        max_bytes: 1 << 30,
        ..RefreshOptions::default()
    };
    let refused = world.open().refresh(&IsolatedChoice::default(), options(3)).unwrap_err();
    assert!(matches!(refused, IsolateError::TooLarge { max_files: 3, .. }), "{refused}");
    assert!(!world.copy("a").exists());
    let report = world.open().refresh(&IsolatedChoice::default(), options(100)).unwrap();
    assert_eq!(outcomes(&report).keys().copied().collect::<Vec<_>>(), ["a"]);
    assert!(!world.copy("secret").exists());
}

#[test]
fn a_refresh_brings_new_commits_unless_the_session_made_some() {
    let world = World::repository();
    world.make();
    world.session("mine", "by the session\n");
    world.base("src/main.rs", "second\n");
    world.git(&["commit", "-q", "-a", "-m", "second"]);
    let report = refresh(&world, None);
    assert!(report.written, "{report:?}");
    let status = |world: &World| git_in(&world.copy(""), &["status", "--porcelain"]);
    let subject = |world: &World| {
        let objects = world.base.join(".git/objects");
        let alternates = world.copy(".git/objects/info/alternates");
        fs::write(alternates, format!("{}\n", objects.display())).unwrap();
        git_in(&world.copy(""), &["log", "-1", "--format=%s"])
    };
    assert_eq!(subject(&world), "second\n");
    assert_eq!(status(&world), "?? mine\n");
    // The earlier repository is kept, with what was staged in it.
    assert!(world.directory.join("git.replaced/.git/index").exists());
    assert!(!world.directory.join("git.new").exists());

    fs::create_dir(world.copy(".git/rebase-merge")).unwrap();
    world.base("src/main.rs", "while rebasing\n");
    world.git(&["commit", "-q", "-a", "-m", "while rebasing"]);
    let report = refresh(&world, None);
    assert!(report.notes.iter().any(|note| note.contains("rebase")), "{report:?}");
    assert_eq!(subject(&world), "second\n");
    fs::remove_dir(world.copy(".git/rebase-merge")).unwrap();
    assert!(refresh(&world, None).written);
    assert_eq!(subject(&world), "while rebasing\n");
    assert!(!world.diff().own_references);

    git_in(&world.copy(""), &["add", "-A"]);
    git_in(&world.copy(""), &["commit", "-q", "-m", "by the session"]);
    assert!(world.diff().own_references);
    world.base("src/main.rs", "third\n");
    world.git(&["commit", "-q", "-a", "-m", "third"]);
    let report = refresh(&world, None);
    assert!(report.notes.iter().any(|note| note.contains("its own references")), "{report:?}");
    assert_eq!(subject(&world), "by the session\n");
    assert_eq!(fs::read_to_string(world.copy("src/main.rs")).unwrap(), "third\n");
}

#[test]
fn a_hostile_repository_of_the_copy_stops_no_refresh_and_leads_nowhere() {
    let world = World::repository();
    world.make();
    let outside = world.directory.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::remove_dir_all(world.copy(".git")).unwrap();
    symlink(&outside, world.copy(".git")).unwrap();
    world.base("src/main.rs", "second\n");
    world.git(&["commit", "-q", "-a", "-m", "second"]);
    let report = refresh(&world, None);
    assert!(report.written, "{report:?}");
    assert!(fs::symlink_metadata(world.copy(".git")).unwrap().is_symlink());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}
