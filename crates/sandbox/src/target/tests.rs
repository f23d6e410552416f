//! Tests of writes under a root, for both methods of access. macOS has one method only.

#![cfg(target_os = "linux")]

use super::*;
use quackd_testkit::TestDir;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::thread;
use std::time::{Duration, SystemTime};

const NEVER: &dyn Fn() -> bool = &|| false;

/// A workspace next to a directory that must not be written to.
struct Tree {
    base: TestDir,
}

impl Tree {
    fn new() -> Self {
        let tree = Self { base: TestDir::with(&["ws/sub"]) };
        tree.base.write("outside/secret", "secret");
        tree.write("a", "old");
        // Long ago, so that a change is later also where time is coarse.
        let file = File::options().write(true).open(tree.ws("a")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        tree.link("a", "to-a");
        tree.link("../a", "sub/up-to-a");
        tree.link(tree.ws("a").to_str().unwrap(), "absolute-to-a");
        tree.link("sub", "to-sub");
        tree.link("new/deep/file", "dangling-in");
        tree.link("../outside/new", "dangling-out");
        tree.link("../outside/secret", "out");
        tree.link("../outside", "out-dir");
        tree.link("loop-b", "loop-a");
        tree.link("loop-a", "loop-b");
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.ws("fifo"), Mode::RUSR).unwrap();
        tree
    }

    fn ws(&self, name: &str) -> PathBuf {
        self.base.join("ws").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.ws(name), content).unwrap();
    }

    fn link(&self, target: &str, name: &str) {
        symlink(target, self.ws(name)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.ws(name)).unwrap()
    }

    fn root(&self) -> Root {
        Root::open(&self.base.join("ws")).unwrap()
    }

    /// Names of temporary files that were left anywhere.
    fn left_over(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.base.to_path_buf()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    open.push(entry.path());
                } else if entry.file_name().to_str().unwrap().contains("quackd") {
                    found.push(entry.path().display().to_string());
                }
            }
        }
        found
    }
}

fn put(root: &Root, argument: &str, content: &str) -> Result<FileVersion, WriteError> {
    root.open_target(argument, Purpose::Write, NEVER)?.replace(content.as_bytes(), NEVER)
}

/// Path that got the content, or the name of the error.
fn outcome(tree: &Tree, root: &Root, argument: &str, purpose: Purpose) -> String {
    let content = format!("by {argument:.40}");
    let written = root.open_target(argument, purpose, NEVER).and_then(|mut target| {
        target.replace(content.as_bytes(), NEVER)?;
        Ok(target.relative().to_str().unwrap().to_owned())
    });
    match written {
        Ok(relative) => {
            assert_eq!(tree.read(&relative), content);
            relative
        }
        Err(WriteError::Path(PathError::Io(source)) | WriteError::Io { source, .. }) => {
            Errno::from_io_error(&source).map_or_else(|| source.to_string(), |e| format!("{e:?}"))
        }
        Err(WriteError::Path(error)) => error.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn nothing_is_written_at_a_hidden_path() {
    let tree = Tree::new();
    fs::create_dir(tree.ws("keys")).unwrap();
    tree.write("keys/one", "KEY");
    let hidden = ["a", "keys", "new"].map(|name| tree.ws(name));
    for root in [tree.root(), tree.root().by_walk()] {
        let root = root.with_hidden(&hidden);
        for argument in
            ["a", "A", "to-a", "absolute-to-a", "keys/one", "keys/two", "KEYS/two", "dangling-in"]
        {
            for purpose in [Purpose::Write, Purpose::Edit] {
                let opened = root.open_target(argument, purpose, NEVER);
                let is_missing = matches!(opened, Err(WriteError::Path(PathError::NotFound)));
                assert!(is_missing, "{argument} {purpose:?} with {root:?}");
            }
            let at = Path::new(argument);
            let opened = root.open_target_at(at, Purpose::Write, NEVER);
            assert!(matches!(opened, Err(WriteError::Path(PathError::NotFound))), "{argument}");
        }
        put(&root, "sub/other", "x").unwrap();
    }
    assert_eq!((tree.read("a"), tree.read("keys/one")), ("old".to_owned(), "KEY".to_owned()));
    assert!(!tree.ws("new").exists() && !tree.ws("KEYS").exists());
}

#[test]
fn every_spelling_is_written_or_refused_alike_by_both_ways() {
    let escapes = "path escapes the root directory";
    let cases: Vec<(String, &str, &str)> = vec![
        ("a".into(), "a", "a"),
        ("new".into(), "new", "no such file or directory"),
        ("x/y/z/new".into(), "x/y/z/new", "no such file or directory"),
        ("sub/../other/new".into(), "other/new", "no such file or directory"),
        ("to-a".into(), "a", "a"),
        ("sub/up-to-a".into(), "a", "a"),
        ("absolute-to-a".into(), "a", "a"),
        ("to-sub/new".into(), "sub/new", "no such file or directory"),
        ("dangling-in".into(), "new/deep/file", "no such file or directory"),
        ("dangling-out".into(), escapes, escapes),
        ("out".into(), escapes, escapes),
        ("out-dir/new".into(), escapes, escapes),
        ("out-dir/new/deeper".into(), escapes, escapes),
        ("../outside/new".into(), escapes, escapes),
        ("/etc/quackd-test".into(), escapes, escapes),
        ("".into(), "is a directory", "is a directory"),
        ("sub".into(), "is a directory", "is a directory"),
        ("to-sub".into(), "is a directory", "is a directory"),
        ("fifo".into(), "not a regular file (fifo)", "not a regular file (fifo)"),
        ("a/below".into(), "Os { code: 20", "no such file or directory"),
        ("a/below/deeper".into(), "Os { code: 20", "no such file or directory"),
        ("loop-a".into(), "Os { code: 40", "Os { code: 40"),
        ("x".repeat(300), "Os { code: 36", "Os { code: 36"),
        ("a\0b".into(), "path contains a NUL byte", "path contains a NUL byte"),
    ];
    for walk in [false, true] {
        for (argument, to_write, to_edit) in &cases {
            for (purpose, expected) in [(Purpose::Write, to_write), (Purpose::Edit, to_edit)] {
                let tree = Tree::new();
                let root = if walk { tree.root().by_walk() } else { tree.root() };
                let outcome = outcome(&tree, &root, argument, purpose);
                assert!(outcome.starts_with(expected), "{argument:.60} {purpose:?}: {outcome}");
                let secret = fs::read_to_string(tree.base.join("outside/secret")).unwrap();
                assert_eq!(secret, "secret");
                assert_eq!(fs::read_dir(tree.base.join("outside")).unwrap().count(), 1);
                assert_eq!(tree.left_over(), [""; 0]);
                assert!(fs::symlink_metadata(tree.ws("to-a")).unwrap().is_symlink());
            }
        }
    }
}

#[test]
fn a_replaced_file_keeps_its_mode_and_attributes_and_a_new_one_has_those_of_the_umask() {
    let tree = Tree::new();
    let root = tree.root();
    let mode = |name: &str| fs::metadata(tree.ws(name)).unwrap().permissions().mode() & 0o7777;
    for bits in [0o600, 0o644, 0o755, 0o666, 0o4711] {
        fs::set_permissions(tree.ws("a"), fs::Permissions::from_mode(bits)).unwrap();
        put(&root, "a", "new").unwrap();
        assert_eq!(mode("a"), bits & 0o777, "{bits:o}");
    }
    File::create(tree.ws("by-the-system")).unwrap();
    put(&root, "by-us", "x").unwrap();
    assert_eq!(mode("by-us"), mode("by-the-system"));

    // Only root may give files away.
    if std::os::unix::fs::chown(tree.ws("a"), Some(1234), Some(5678)).is_ok() {
        put(&root, "a", "new").unwrap();
        let metadata = fs::metadata(tree.ws("a")).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 5678));
    }

    let file = File::open(tree.ws("a")).unwrap();
    let set = sys::fsetxattr(&file, "user.note", b"kept", sys::XattrFlags::empty());
    if set == Err(Errno::NOTSUP) {
        return;
    }
    set.unwrap();
    put(&root, "a", "newer").unwrap();
    let mut value = [0; 8];
    let len = sys::getxattr(tree.ws("a"), "user.note", value.as_mut_slice()).unwrap();
    assert_eq!((&value[..len], tree.read("a").as_str()), (b"kept".as_slice(), "newer"));
}

#[test]
fn a_replaced_file_is_a_new_file_and_its_other_names_keep_the_old_one() {
    let tree = Tree::new();
    let root = tree.root();
    let reader = File::open(tree.ws("a")).unwrap();
    put(&root, "a", "new").unwrap();
    assert_eq!(io::read_to_string(reader).unwrap(), "old", "readers keep what they opened");

    // One name is inside the root, the other outside.
    let outside = tree.base.join("outside/secret");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(&outside, tree.ws("sub/second")).unwrap();
    for content in ["longer than before", "short", ""] {
        let version = put(&root, "sub/second", content).unwrap();
        assert_eq!(tree.read("sub/second"), content);
        assert_eq!(root.open_file("sub/second").unwrap().version, version);
        assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
    }
    let links = |path: &Path| fs::metadata(path).unwrap().nlink();
    assert_eq!((links(&outside), links(&tree.ws("sub/second"))), (1, 1));
    let mode = fs::metadata(tree.ws("sub/second")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(tree.left_over(), [""; 0]);
}

#[test]
fn what_changes_between_reading_and_replacing_is_not_overwritten() {
    type Change = (&'static str, fn(&Tree));
    let changes: [Change; 4] = [
        ("other content", |tree| tree.write("a", "by an editor")),
        ("the same size", |tree| tree.write("a", "OLD")),
        ("another file", |tree| sys::rename(tree.ws("b"), tree.ws("a")).unwrap()),
        ("removed", |tree| fs::remove_file(tree.ws("a")).unwrap()),
    ];
    for several_names in [false, true] {
        for (what, change) in changes {
            let tree = Tree::new();
            tree.write("b", "old");
            if several_names {
                fs::hard_link(tree.ws("a"), tree.ws("second")).unwrap();
            }
            let mut target = tree.root().open_target("a", Purpose::Edit, NEVER).unwrap();
            assert_eq!(target.read(10).unwrap(), b"old");
            change(&tree);
            let after = fs::read(tree.ws("a")).ok();
            let refused = target.replace(b"ours", NEVER);
            assert!(matches!(refused, Err(WriteError::Changed)), "{what}: {refused:?}");
            assert_eq!(fs::read(tree.ws("a")).ok(), after, "{what}");
            assert_eq!(tree.left_over(), [""; 0]);
        }
    }
    let tree = Tree::new();
    let mut target = tree.root().open_target("new", Purpose::Write, NEVER).unwrap();
    tree.write("new", "theirs");
    assert!(matches!(target.replace(b"ours", NEVER), Err(WriteError::Changed)));
    assert_eq!(tree.read("new"), "theirs");
}

#[test]
fn a_target_can_be_replaced_again_and_tells_the_version_that_a_reader_sees() {
    let tree = Tree::new();
    let root = tree.root();
    for name in ["a", "new"] {
        let mut target = root.open_target(name, Purpose::Write, NEVER).unwrap();
        for content in ["one", "two"] {
            let version = target.replace(content.as_bytes(), NEVER).unwrap();
            assert_eq!(target.version(), Some(version));
            assert_eq!(root.open_file(name).unwrap().version, version);
            assert_eq!(target.read(3).unwrap(), content.as_bytes());
        }
        assert!(matches!(target.read(2), Err(WriteError::TooLarge { len: 3 })));
    }
}

#[test]
fn who_comes_second_waits_and_then_sees_what_the_first_one_wrote() {
    let tree = Tree::new();
    let root = tree.root();
    for name in ["a", "new"] {
        let mut first = root.open_target(name, Purpose::Write, NEVER).unwrap();
        first.replace(b"first", NEVER).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut target = root.open_target(name, Purpose::Edit, NEVER).unwrap();
                let seen = target.read(100).unwrap();
                target.replace(&[&seen, b" second".as_slice()].concat(), NEVER).unwrap();
            });
            first.replace(b"again", NEVER).unwrap();
            drop(first);
            second.join().unwrap();
        });
        assert_eq!(tree.read(name), "again second");
    }
}

#[test]
fn waiting_ends_after_two_seconds_or_when_nobody_wants_it_any_more() {
    let tree = Tree::new();
    let root = tree.root();
    let held = root.open_target("a", Purpose::Write, NEVER).unwrap();
    let given_up = root.open_target("a", Purpose::Write, &|| true);
    assert!(matches!(given_up, Err(WriteError::GivenUp)), "{given_up:?}");
    let begin = Instant::now();
    let locked = root.open_target("a", Purpose::Write, NEVER);
    assert!(matches!(locked, Err(WriteError::Locked)), "{locked:?}");
    assert!(PATIENCE <= begin.elapsed() && begin.elapsed() < PATIENCE + Duration::from_secs(5));
    drop(held);
    put(&root, "a", "free").unwrap();
}

#[test]
fn a_write_that_is_given_up_changes_nothing() {
    let tree = Tree::new();
    let root = tree.root();
    fs::hard_link(tree.ws("a"), tree.ws("second")).unwrap();
    tree.write("b", "old");
    for name in ["a", "b", "new"] {
        let mut target = root.open_target(name, Purpose::Write, NEVER).unwrap();
        assert!(matches!(target.replace(b"x", &|| true), Err(WriteError::GivenUp)), "{name}");
    }
    assert_eq!((tree.read("a").as_str(), tree.read("b").as_str()), ("old", "old"));
    assert!(!tree.ws("new").exists());
    assert_eq!(tree.left_over(), [""; 0]);
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    let tree = Tree::new();
    fs::set_permissions(tree.ws("a"), fs::Permissions::from_mode(0o444)).unwrap();
    if File::options().append(true).open(tree.ws("a")).is_ok() {
        // Root writes everything: nothing to see here.
        return;
    }
    for purpose in [Purpose::Write, Purpose::Edit] {
        assert_eq!(
            outcome(&tree, &tree.root(), "a", purpose),
            "Os { code: 13, kind: PermissionDenied, message: \"Permission denied\" }"
        );
    }
    fs::set_permissions(tree.ws("a"), fs::Permissions::from_mode(0o200)).unwrap();
    put(&tree.root(), "a", "unread").unwrap();
    fs::set_permissions(tree.ws("a"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(tree.read("a"), "unread");
}

/// Only root can create files of other users. The rest of the test runs without that right.
#[test]
fn a_file_of_somebody_else_is_written_in_place_unless_it_has_another_name() {
    let tree = Tree::new();
    if std::os::unix::fs::chown(tree.ws("a"), Some(1234), Some(1234)).is_err() {
        return;
    }
    fs::set_permissions(tree.ws("a"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(&tree.base, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(tree.base.join("ws"), fs::Permissions::from_mode(0o777)).unwrap();
    let inode = |name: &str| fs::metadata(tree.ws(name)).unwrap().ino();
    let before = inode("a");
    // Capabilities belong to threads, so this one drops its own.
    let as_user = |work: &(dyn Fn() + Sync)| {
        thread::scope(|scope| {
            let worked = scope.spawn(|| {
                let user = rustix::process::Uid::from_raw(5678);
                rustix::thread::set_thread_uid(user).unwrap();
                work();
            });
            worked.join().unwrap();
        });
    };
    as_user(&|| assert!(put(&tree.root(), "a", "in place").is_ok()));
    assert_eq!((tree.read("a").as_str(), inode("a")), ("in place", before));

    fs::hard_link(tree.ws("a"), tree.base.join("outside/second")).unwrap();
    as_user(&|| {
        let refused = put(&tree.root(), "a", "new");
        assert!(matches!(refused, Err(WriteError::Io { call: "rename", .. })), "{refused:?}");
    });
    assert_eq!(tree.read("a"), "in place");
    assert_eq!(tree.left_over(), [""; 0]);
}

fn staged(root: &Root, name: &str, content: &str, names: OtherNames) -> Result<(), WriteError> {
    let mut target = root.open_target_at(Path::new(name), Purpose::Edit, NEVER)?;
    let content = content.as_bytes();
    let new = target.stage(content, StagedTag::random().unwrap(), names)?;
    new.sync()?;
    target.put(new, content, NEVER)?;
    target.sync_parent()
}

#[test]
fn the_names_of_a_file_stay_joined_if_that_is_asked_for() {
    let tree = Tree::new();
    fs::hard_link(tree.ws("a"), tree.ws("sub/joined")).unwrap();
    for root in [tree.root(), tree.root().by_walk()] {
        let before = fs::metadata(tree.ws("a")).unwrap();
        staged(&root, "a", "short", OtherNames::Join).unwrap();
        staged(&root, "sub/joined", "something longer", OtherNames::Join).unwrap();
        let after = fs::metadata(tree.ws("a")).unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
        assert_eq!((tree.read("a"), after.nlink()), ("something longer".to_owned(), 2));
    }
    staged(&tree.root(), "a", "apart", OtherNames::Leave).unwrap();
    assert_eq!(
        (tree.read("a").as_str(), tree.read("sub/joined").as_str()),
        ("apart", "something longer")
    );
    assert_eq!(tree.left_over(), [""; 0]);
}

#[test]
fn a_name_that_appears_meanwhile_keeps_a_file_from_being_written_in_place() {
    let tree = Tree::new();
    fs::hard_link(tree.ws("a"), tree.ws("sub/joined")).unwrap();
    let root = tree.root();
    let mut target = root.open_target_at(Path::new("a"), Purpose::Edit, NEVER).unwrap();
    let new = target.stage(b"new", StagedTag::random().unwrap(), OtherNames::Join).unwrap();
    fs::hard_link(tree.ws("a"), tree.base.join("outside/third")).unwrap();
    let refused = target.put(new, b"new", NEVER);
    assert!(matches!(refused, Err(WriteError::Changed)), "{refused:?}");
    assert_eq!((tree.read("a").as_str(), tree.left_over()), ("old", vec![]));
}

#[test]
fn what_a_death_left_beside_a_file_is_removed_by_its_tag_and_nothing_else_is() {
    let tree = Tree::new();
    let tag = StagedTag::random().unwrap();
    assert_eq!(StagedTag::from_hex(&tag.to_string()), Some(tag));
    for text in ["", "0", "../../../../../x", "00000000000000000", "+000000000000000"] {
        assert_eq!(StagedTag::from_hex(text), None, "{text}");
    }
    tree.write(&format!("sub/{}", tag.file_name()), "left");
    fs::write(tree.base.join("outside").join(tag.file_name()), "not ours").unwrap();
    for root in [tree.root(), tree.root().by_walk()] {
        for beside in ["out-dir/x", "../outside/x", "/x", "missing/x"] {
            assert!(root.remove_staged(Path::new(beside), tag).is_err(), "{beside}");
        }
        assert!(!root.remove_staged(Path::new("x"), tag).unwrap());
    }
    assert!(tree.root().remove_staged(Path::new("sub/x"), tag).unwrap());
    assert!(!tree.ws("sub").join(tag.file_name()).exists());
    assert!(tree.base.join("outside").join(tag.file_name()).exists());
}

#[test]
fn a_name_that_no_walk_gives_is_refused() {
    let tree = Tree::new();
    for name in ["../outside/secret", "/a", "sub/../a"] {
        let refused = tree.root().open_target_at(Path::new(name), Purpose::Edit, NEVER);
        assert!(
            matches!(refused, Err(WriteError::Path(PathError::Escapes))),
            "{name}: {refused:?}"
        );
    }
    let linked = tree.root().open_target_at(Path::new("to-a"), Purpose::Edit, NEVER).unwrap();
    assert_eq!(linked.relative(), Path::new("a"));
}
