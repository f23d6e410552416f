//! A state directory with every kind of file, old and new, and with links where they could do harm.

use super::{Kind, Known, Rules, find_blocking, remove_blocking};
use crate::Home;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const DAY: u64 = 24 * 60 * 60;

fn home(dir: &Path) -> Home {
    let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
    let home = Home::resolve_blocking(&var).unwrap();
    home.prepare_blocking().unwrap();
    home
}

fn rules() -> Rules {
    let days = |n| Duration::from_secs(n * DAY);
    Rules {
        is_served: true,
        outputs: days(7),
        undo: days(7),
        undo_max_bytes: u64::MAX,
        caches_max_bytes: u64::MAX,
        quarantined: None,
        histories: None,
        agents: None,
    }
}

fn known(sessions: &[&str]) -> Known {
    Known { sessions: sessions.iter().map(|id| (*id).to_owned()).collect(), ..Known::default() }
}

/// Creates a file that was changed `days` days ago, and its parent directories.
fn file(home: &Home, path: &str, days: u64) {
    sized(home, path, days, 4096);
}

fn sized(home: &Home, path: &str, days: u64, bytes: usize) {
    let path = home.dir().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, vec![b'x'; bytes]).unwrap();
    age(&path, days);
}

fn age(path: &Path, days: u64) {
    let changed = SystemTime::now() - Duration::from_secs(days * DAY);
    fs::File::open(path).unwrap().set_modified(changed).unwrap();
}

fn paths(home: &Home, rules: &Rules, known: Option<&Known>) -> Vec<String> {
    let found = find_blocking(home, rules, known).unwrap();
    assert!(!found.is_cut);
    let mut paths: Vec<String> = found.items.into_iter().map(|item| item.path).collect();
    paths.sort();
    paths
}

#[test]
fn what_is_old_and_nobodys_goes_and_the_rest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    for name in
        ["metadata.json", "quackd-state.json", "quackd.toml", "duck-daemon.log", "quackd.lock"]
    {
        file(&home, name, 400);
    }
    file(&home, "run.old-77/s/bash-1.log", 0);
    file(&home, "run.old-77/.quackd", 0);
    file(&home, "isolated/gone/tree/a/b", 1);
    file(&home, "checkpoints/gone/current", 1);
    for path in ["isolated/gone", "checkpoints/gone"] {
        age(&home.dir().join(path), 1);
    }
    file(&home, "isolated/idle/tree/a", 1);
    file(&home, "run/idle/bash-1.log", 8);
    file(&home, "run/idle/bash-2.log", 6);
    file(&home, "run/idle/seen.jsonl", 400);
    file(&home, "run/idle/journal/1-00000001/originals", 8);
    file(&home, "run/idle/journal/2-00000001/originals", 8);
    age(&home.dir().join("run/idle/journal/1-00000001"), 8);
    file(&home, "run/idle/tmp/old", 1);
    file(&home, "run/idle/tmp/new", 0);
    file(&home, "run/idle/whose", 8);
    file(&home, "run/busy/bash-1.log", 8);
    file(&home, "run/live/tmp/old", 8);
    file(&home, "run/gone/seen.jsonl", 1);
    age(&home.dir().join("run/gone"), 1);
    file(&home, "run/new/seen.jsonl", 1);
    let mut known = known(&["idle", "busy", "live"]);
    known.busy.insert("busy".to_owned());
    known.live.extend(["busy".to_owned(), "live".to_owned()]);
    let wanted = [
        "checkpoints/gone",
        "isolated/gone",
        "run.old-77",
        "run/gone",
        "run/idle/bash-1.log",
        // The directory of the second one is young.
        "run/idle/journal/1-00000001",
        "run/idle/tmp/old",
        "run/idle/whose",
    ];
    assert_eq!(paths(&home, &rules(), Some(&known)), wanted);
    assert_eq!(paths(&home, &rules(), None), ["run.old-77"]);

    let found = find_blocking(&home, &rules(), Some(&known)).unwrap();
    let removed = remove_blocking(&home, &found.items);
    assert_eq!((removed.items(), removed.failed, &removed.why), (wanted.len(), 0, &None));
    assert_eq!(removed, super::Tally::of(&found.items));
    assert!(0 < removed.bytes());
    assert!(paths(&home, &rules(), Some(&known)).is_empty());
    for stays in [
        "run/idle/bash-2.log",
        "run/idle/seen.jsonl",
        "run/busy/bash-1.log",
        "metadata.json",
        "isolated/idle",
    ] {
        assert!(home.dir().join(stays).exists(), "{stays}");
    }
    // A missing item is not a failure.
    assert_eq!(remove_blocking(&home, &found.items).failed, 0);
}

#[test]
fn originals_go_oldest_first_until_the_others_are_few_enough() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    for (session, days) in [("a", 3), ("b", 2), ("c", 1)] {
        let entry = format!("run/{session}/journal/1-00000001");
        sized(&home, &format!("{entry}/originals"), days, 64 * 1024);
        age(&home.dir().join(entry), days);
    }
    let known = known(&["a", "b", "c"]);
    let rules = Rules { undo_max_bytes: 70 * 1024, ..rules() };
    let wanted = ["run/a/journal/1-00000001", "run/b/journal/1-00000001"];
    assert_eq!(paths(&home, &rules, Some(&known)), wanted);
}

#[test]
fn histories_go_only_if_asked_for_and_only_those_of_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    file(&home, "sessions/here.jsonl", 90);
    file(&home, "sessions/gone.jsonl", 90);
    file(&home, "sessions/young.jsonl", 3);
    for (name, header) in [
        ("kept.jsonl", r#"{"type":"session","cwd":"/gone"}"#),
        ("earlier.jsonl", r#"{"type":"session","cwd":"/here"}"#),
        ("gone.jsonl", r#"{"type":"session","cwd":"/gone"}"#),
        ("strange.jsonl", "no header"),
    ] {
        file(&home, &format!("pi-sessions/{name}"), 90);
        let path = home.dir().join("pi-sessions").join(name);
        fs::write(&path, format!("{header}\n{{}}\n")).unwrap();
        age(&path, 90);
    }
    let mut known = known(&["here"]);
    known.pi_files.insert("kept.jsonl".to_owned());
    known.workspaces.insert("/here".to_owned());
    assert!(paths(&home, &rules(), Some(&known)).is_empty());
    let asked = Rules { histories: Some(Duration::from_secs(30 * DAY)), ..rules() };
    assert_eq!(
        paths(&home, &asked, Some(&known)),
        ["pi-sessions/gone.jsonl", "sessions/gone.jsonl"]
    );
    assert!(paths(&home, &asked, None).is_empty(), "the live set is unknown");
}

#[test]
fn what_saves_left_goes_only_where_none_can_be_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    for name in ["metadata.json.tmp", "quackd-state.json.bak.tmp", "mine.tmp"] {
        file(&home, name, 90);
    }
    file(&home, "metadata.json.corrupt-3", 90);
    file(&home, "mine.corrupt-3", 90);
    assert!(paths(&home, &rules(), None).is_empty());
    let alone =
        Rules { is_served: false, quarantined: Some(Duration::from_secs(30 * DAY)), ..rules() };
    let wanted = ["metadata.json.corrupt-3", "metadata.json.tmp", "quackd-state.json.bak.tmp"];
    assert_eq!(paths(&home, &alone, None), wanted);
}

#[test]
fn no_link_leads_out_of_the_state_directory() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let home = home(dir.path());
    let precious = outside.path().join("1-00000001");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("originals"), "precious").unwrap();
    fs::write(outside.path().join("bash-1.log"), "precious").unwrap();
    for path in [&precious, &outside.path().join("bash-1.log"), &precious.join("originals")] {
        age(path, 90);
    }
    fs::create_dir_all(home.dir().join("run/b")).unwrap();
    symlink(outside.path(), home.dir().join("run/a")).unwrap();
    symlink(outside.path(), home.dir().join("run/b/journal")).unwrap();
    symlink(outside.path(), home.dir().join("run/b/tmp")).unwrap();
    symlink(outside.path(), home.dir().join("run.old-1")).unwrap();
    let none = Duration::ZERO;
    let all = Rules { outputs: none, undo: none, undo_max_bytes: 0, ..rules() };
    assert!(paths(&home, &all, Some(&known(&["a", "b"]))).is_empty());

    // One tree contains a link; in the other, links are created after the scan.
    file(&home, "run.old-2/s/x", 1);
    file(&home, "run.old-2/.quackd", 1);
    symlink(outside.path(), home.dir().join("run.old-2/link")).unwrap();
    file(&home, "run/c/journal/1-00000001/originals", 90);
    age(&home.dir().join("run/c/journal/1-00000001"), 90);
    let found = find_blocking(&home, &all, Some(&known(&["a", "b", "c"]))).unwrap();
    assert_eq!(found.items.len(), 2, "{found:?}");
    fs::remove_dir_all(home.dir().join("run/c")).unwrap();
    fs::create_dir(home.dir().join("run/c")).unwrap();
    symlink(outside.path(), home.dir().join("run/c/journal")).unwrap();
    let removed = remove_blocking(&home, &found.items);
    assert_eq!((removed.items(), removed.failed), (1, 1), "{removed:?}");
    assert!(!home.dir().join("run.old-2").exists());
    assert_eq!(fs::read_to_string(precious.join("originals")).unwrap(), "precious");
}

/// Directories without rights for their owner. Only Linux can open such a directory (`readable`).
#[cfg(target_os = "linux")]
mod closed {
    use super::{file, home};
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    #[test]
    fn directories_that_may_not_be_read_or_written_go_too() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        file(&home, "run/s/tmp/module/closed/file", 0);
        file(&home, "run/s/tmp/blind/file", 0);
        for (path, mode) in [("run/s/tmp/module", 0o555), ("run/s/tmp/blind", 0)] {
            fs::set_permissions(home.dir().join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        home.remove_session_run_dir_blocking("s").unwrap();
        assert!(!home.dir().join("run/s").exists());
        home.remove_session_run_dir_blocking("s").unwrap();
    }

    /// Creates `depth` nested directories, each with an additional directory and a file.
    fn dig(top: &Path, depth: usize) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = openat(CWD, top, flags, Mode::empty()).unwrap();
        for level in 0..depth {
            for name in ["d", "side"] {
                mkdirat(&at, name, Mode::RWXU).unwrap();
            }
            openat(&at, "side/file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
            let next = openat(&at, "d", flags, Mode::empty()).unwrap();
            if level % 100 == 99 {
                rustix::fs::fchmod(&at, Mode::empty()).unwrap();
            }
            at = next;
        }
    }

    #[test]
    fn trees_go_however_deep_and_wide_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        for part in ["left", "left/right", "left/right/more"] {
            let top = home.dir().join("run/s").join(part);
            fs::create_dir_all(&top).unwrap();
            dig(&top, 700);
        }
        for n in 0..2500 {
            file(&home, &format!("run/s/wide/{n}"), 0);
        }
        home.remove_session_run_dir_blocking("s").unwrap();
        assert!(!home.dir().join("run/s").exists());
    }
}

#[test]
fn a_writer_does_not_hold_up_a_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    file(&home, "run/s/0/0/x", 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let path = home.dir().join(format!("run/s/{}/{}", n % 7, n % 1000));
                drop(fs::create_dir_all(path));
            }
        });
        // Success and failure are both valid: the writer may refill the directory at any time.
        drop(home.remove_session_run_dir_blocking("s"));
        is_over.store(true, Ordering::SeqCst);
    });
    home.remove_session_run_dir_blocking("s").unwrap();
    assert!(!home.dir().join("run/s").exists());
}

#[test]
fn what_launchd_writes_is_emptied_when_it_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    super::trim_service_log_blocking(&home).unwrap();
    for (bytes, left) in [(1024 * 1024, 1024 * 1024), (1024 * 1024 + 1, 0)] {
        sized(&home, "launchd.log", 0, bytes);
        super::trim_service_log_blocking(&home).unwrap();
        assert_eq!(home.dir().join("launchd.log").metadata().unwrap().len(), left);
    }
}

#[test]
fn every_kind_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
}
