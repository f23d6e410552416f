//! Tests of applying plans: changed files, and what stays.

use super::world::{World, outcomes};
use crate::replace::journal::report::JournalError;
use crate::replace::journal::{ApplyError, Backup, EarlyStop, Expect, Journal, apply_blocking};
use quackd_sandbox::FileVersion;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

fn written(names: &[&'static str]) -> Vec<(&'static str, String)> {
    names.iter().map(|name| (*name, "written".to_owned())).collect()
}

#[test]
fn planned_files_change_and_no_others() {
    let world = World::new(&[("a", "a\r\nb"), ("b", "b"), ("sub/c", "xa\u{e9}\n"), ("d", "q")]);
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let unchanged = fs::File::options().write(true).open(world.ws("d")).unwrap();
    unchanged.set_modified(long_ago).unwrap();
    let before = (world.inode("d"), fs::metadata(world.ws("d")).unwrap().modified().unwrap());
    let mut expected = world.contents();
    let applied = world.replace("[ab]", "b");
    assert_eq!(outcomes(&applied), written(&["a", "sub/c"]));
    assert!(applied.undo_id.is_some() && applied.stopped.is_none() && applied.dropped.is_empty());
    expected.insert(world.ws("a"), b"b\r\nb".to_vec());
    expected.insert(world.ws("sub/c"), "xb\u{e9}\n".into());
    assert_eq!(world.contents(), expected);
    let after = (world.inode("d"), fs::metadata(world.ws("d")).unwrap().modified().unwrap());
    assert_eq!(after, before);
    // The second time, nothing changes and nothing can be undone.
    let again = world.replace("[ab]", "b");
    assert!(again.files.is_empty() && again.undo_id.is_none());
}

#[test]
fn a_file_that_changed_since_is_left_and_the_others_go_on() {
    let world = World::new(&[("a", "a"), ("b", "a"), ("c", "a"), ("d", "a"), ("e", "a")]);
    let plan = world.plan("a", "b");
    world.write("a", "a changed");
    fs::remove_file(world.ws("b")).unwrap();
    world.write("c", "b");
    fs::remove_file(world.ws("d")).unwrap();
    symlink("e", world.ws("d")).unwrap();
    let applied = world.apply(&plan).unwrap();
    let expected = [
        ("a", "changed since"),
        ("b", "is gone"),
        ("c", "has the wanted content already"),
        ("d", "changed since"),
        ("e", "written"),
    ];
    assert_eq!(outcomes(&applied), expected.map(|(name, why)| (name, why.to_owned())));
    assert_eq!((world.read("a").as_str(), world.read("e").as_str()), ("a changed", "b"));
}

#[test]
fn all_or_none_looks_at_every_file_first() {
    let world = World::new(&[("a", "a"), ("b", "a")]);
    let plan = world.plan("a", "b");
    world.write("b", "a changed");
    let expect = Expect { unchanged: true, ..Expect::default() };
    let refused = apply_blocking(world.session(), &plan, &expect, Backup::Journal, &|| false);
    let Err(ApplyError::Changed { n: 1, first }) = refused else { panic!("{refused:?}") };
    assert_eq!(first, [std::path::PathBuf::from("b")]);
    assert_eq!(world.read("a"), "a");
}

#[test]
fn what_is_not_expected_is_not_done() {
    let world = World::new(&[("a", "aa\na"), ("b", "a")]);
    let plan = world.plan("a", "b");
    let attempt = |expect: Expect| {
        apply_blocking(world.session(), &plan, &expect, Backup::Journal, &|| false)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let none = Expect::default();
    let refused = |what, n| {
        Err(format!("expected {n} {what}, but {} would change; nothing was changed", n - 1))
    };
    assert_eq!(attempt(Expect { files: Some(3), ..none }), refused("files", 3));
    assert_eq!(attempt(Expect { lines: Some(4), ..none }), refused("lines", 4));
    assert_eq!(attempt(Expect { replacements: Some(5), ..none }), refused("replacements", 5));
    assert_eq!(world.read("a"), "aa\na");
    let all = Expect { files: Some(2), lines: Some(3), replacements: Some(4), ..none };
    assert_eq!(attempt(all), Ok(()));
    assert_eq!(world.read("a"), "bb\nb");
    let mut cut = world.plan("b", "a");
    cut.timed_out = true;
    assert!(matches!(world.apply(&cut), Err(ApplyError::Incomplete)));
}

#[test]
fn protected_names_are_left() {
    let world =
        World::new(&[(".envrc", "a"), (".git/config", "a"), ("b", "a"), (".vscode/x", "a")]);
    let mut request = world.request("a", "b");
    request.scope.vcs_dirs = true;
    let plan = world.plan_of(&request);
    let applied = world.apply(&plan).unwrap();
    for (name, why) in outcomes(&applied) {
        assert_eq!(why == "written", name == "b", "{name}: {why}");
        assert_eq!(why.starts_with("is protected: it "), name != "b", "{name}: {why}");
    }
    assert_eq!((world.read(".envrc").as_str(), world.read("b").as_str()), ("a", "b"));
}

#[test]
fn modes_and_attributes_stay() {
    let world = World::new(&[("a", "a"), ("run.sh", "a")]);
    fs::set_permissions(world.ws("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let has_attributes = rustix::fs::setxattr(world.ws("a"), "user.colour", b"red", flags).is_ok();
    world.replace("a", "b");
    assert_eq!(fs::metadata(world.ws("run.sh")).unwrap().permissions().mode() & 0o777, 0o750);
    if has_attributes {
        let mut value = [0; 8];
        let len = rustix::fs::getxattr(world.ws("a"), "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"red");
    }
}

#[test]
fn names_stay_joined_if_all_of_them_are_in_the_workspace() {
    let world = World::new(&[("a", "a"), ("out", "a"), ("hook", "a"), ("half", "a")]);
    fs::create_dir(world.ws("sub")).unwrap();
    fs::hard_link(world.ws("a"), world.ws("sub/joined")).unwrap();
    fs::hard_link(world.ws("out"), world.base.join("outside/out")).unwrap();
    fs::create_dir(world.ws(".husky")).unwrap();
    fs::hard_link(world.ws("hook"), world.ws(".husky/hook")).unwrap();
    // Only one of its names is in the scope.
    fs::hard_link(world.ws("half"), world.ws("sub/.half")).unwrap();
    let inode = world.inode("a");
    let mut request = world.request("a", "b");
    request.scope.hidden = quackd_search::Hidden::Leave;
    let applied = world.apply(&world.plan_of(&request)).unwrap();
    let of = |name: &str| {
        outcomes(&applied).into_iter().find(|(found, _)| *found == name).map(|(_, why)| why)
    };
    assert_eq!(of("a").as_deref(), Some("written"));
    assert_eq!(of("sub/joined").as_deref(), Some("written"));
    assert_eq!(of("half").as_deref(), Some("written"));
    assert_eq!(of("out").as_deref(), Some("written, detached"));
    assert_eq!(of("hook").as_deref(), Some("written, detached"));
    assert_eq!((world.inode("a"), world.inode("sub/joined")), (inode, inode));
    assert_eq!((world.read("sub/joined").as_str(), world.read("sub/.half").as_str()), ("b", "b"));
    assert_eq!(fs::read_to_string(world.base.join("outside/out")).unwrap(), "a");
    assert_eq!(world.read(".husky/hook"), "a");

    world.undo_last().unwrap();
    assert_eq!((world.inode("a"), world.read("sub/joined").as_str()), (inode, "a"));
    assert_eq!((world.read("out").as_str(), world.read("sub/.half").as_str()), ("a", "a"));
    assert!(world.left_over().is_empty());
}

#[test]
fn a_cancelled_write_ends_between_files_and_can_be_undone() {
    let names: Vec<String> = (100..200).map(|n| n.to_string()).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "a")).collect();
    let world = World::new(&files);
    let before = world.contents();
    let n_asked = Cell::new(0);
    let cancelled = || {
        n_asked.set(n_asked.get() + 1);
        120 < n_asked.get()
    };
    let plan = world.plan("a", "b");
    let expect = Expect::default();
    let applied =
        apply_blocking(world.session(), &plan, &expect, Backup::Journal, &cancelled).unwrap();
    assert_eq!(applied.stopped, Some(EarlyStop::Cancelled));
    let n_written = applied.n_written();
    assert!(0 < n_written && n_written < 100, "{n_written}");
    let n_new = world.contents().values().filter(|content| **content == b"b").count();
    assert_eq!(n_new, n_written);
    world.undo_last().unwrap();
    assert_eq!(world.contents(), before);
}

#[test]
fn what_the_session_had_read_counts_as_read_after_it_is_replaced() {
    let world = World::new(&[("read", "a"), ("stale", "a"), ("unread", "a")]);
    let version = |name: &str| -> FileVersion { world.root.open_file(name).unwrap().version };
    for name in ["read", "stale"] {
        world.seen.remember_blocking(name.into(), version(name));
    }
    let stale = version("stale");
    world.write("stale", "a changed");
    world.replace("a", "b");
    let known = |name: &str| world.seen.version_blocking(std::path::Path::new(name));
    assert_eq!(known("read"), Some(version("read")));
    assert_eq!(known("stale"), Some(stale));
    assert_eq!(known("unread"), None);
}

#[test]
fn without_room_for_originals_nothing_is_written_unless_none_are_wanted() {
    let mut world = World::new(&[("a", &"a".repeat(3000))]);
    world.journal = Journal::kept_in(world.base.join("run")).with_max_bytes(2000);
    let plan = world.plan("a", "b");
    let refused = world.apply(&plan);
    let Err(ApplyError::Journal(JournalError::TooLarge { max: 2000, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(world.read("a").starts_with("aa"));
    let none = Expect::default();
    let applied = apply_blocking(world.session(), &plan, &none, Backup::None, &|| false).unwrap();
    assert_eq!((applied.n_written(), applied.undo_id), (1, None));
    assert!(world.read("a").starts_with("bb"));
    // The marker that the replacement cannot be undone.
    let names = fs::read_dir(world.base.join("run/journal")).unwrap();
    assert_eq!(names.count(), 1);
}

#[test]
fn a_directory_that_may_not_be_written_is_told() {
    let world = World::new(&[("sub/a", "a"), ("b", "a")]);
    fs::set_permissions(world.ws("sub"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(world.ws("sub/probe"), "").is_ok() {
        fs::remove_file(world.ws("sub/probe")).unwrap();
        // Root can write everywhere, so the test is skipped.
        return;
    }
    let applied = world.replace("a", "b");
    assert_eq!(outcomes(&applied)[1], ("sub/a", "failed".to_owned()));
    assert_eq!(world.read("b"), "b");
    fs::set_permissions(world.ws("sub"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(world.read("sub/a"), "a");
}

#[test]
fn a_name_that_is_no_text_is_written_and_undone() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new(&[]);
    let path = world.base.join("ws").join(std::ffi::OsStr::from_bytes(b"\xff\n"));
    if fs::write(&path, "a").is_err() {
        // Some file systems accept only UTF-8 names.
        return;
    }
    world.replace("a", "b");
    assert_eq!(fs::read(&path).unwrap(), b"b");
    world.undo_last().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"a");
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
}
