//! Damaged files: whatever is at the path of one of the two files, the daemon starts, reports the
//! problem, keeps the entry and loads the previous generation. crates/store tests prefixes and
//! flipped bits of a file.

use super::{Client, FILES, METADATA, STATE, array, fresh_directory, skipped};
use crate::harness::{Daemon, Session, program, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{self, File, FileType};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

/// A saved state: session `first` in the previous generation, `first` and `second` in the last one,
/// all in safe mode.
struct Saved {
    workspaces: TempDir,
    files: Vec<(String, Vec<u8>)>,
    first: String,
    second: String,
}

impl Saved {
    fn make() -> Self {
        let workspaces = tempfile::tempdir().expect("a directory");
        let mut daemon = Daemon::start();
        let attach = |name: &str| {
            let path = workspaces.path().join(name);
            fs::create_dir(&path).expect("a workspace");
            let mut client = Client::connect(&daemon);
            client.attach(&path, true).expect("an answer").expect("a session").id
        };
        let (first, second) = (attach("first"), attach("second"));
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let names = FILES.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.bak")]);
        let files = names.map(|name| {
            let bytes = fs::read(daemon.app().join(&name)).expect("a generation");
            (name, bytes)
        });
        Self { files: files.collect(), first, second, workspaces }
    }

    /// Returns a world with this saved state and no daemon.
    fn world(&self) -> Daemon {
        let daemon = Daemon::absent();
        fs::create_dir(daemon.app()).expect("a state directory");
        for (name, bytes) in &self.files {
            fs::write(daemon.app().join(name), bytes).expect("a file");
        }
        daemon
    }
}

/// Damages a good file.
type Spoil = fn(&Path, &str);

const SPOILT: &[(&str, Spoil)] = &[
    ("no byte", |path, _| fs::write(path, "").unwrap()),
    ("one byte", |path, _| fs::write(path, "{").unwrap()),
    ("null", |path, _| fs::write(path, "null").unwrap()),
    ("an empty object", |path, _| fs::write(path, "{}").unwrap()),
    ("an empty list", |path, _| fs::write(path, "[]").unwrap()),
    ("trailing garbage", |path, good| fs::write(path, format!("{good}garbage")).unwrap()),
    ("zeros", |path, good| fs::write(path, vec![0; good.len()]).unwrap()),
    ("100 MB", |path, _| File::create(path).unwrap().set_len(100_000_000).unwrap()),
    ("a directory", |path, _| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
        fs::write(path.join("content"), "").unwrap();
    }),
    ("a FIFO", |path, _| {
        fs::remove_file(path).unwrap();
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }),
    ("a loop of links", |path, _| {
        fs::remove_file(path).unwrap();
        symlink(path, path).unwrap();
    }),
];

/// File type and size at a path.
fn look(path: &Path) -> (FileType, bool, u64) {
    let found = fs::symlink_metadata(path).unwrap_or_else(|_| panic!("nothing at {path:?}"));
    let kind = found.file_type();
    (kind, kind.is_fifo(), found.len())
}

/// Returns the log line about a file.
#[track_caller]
fn told(daemon: &Daemon, file: &str, what: &str) -> String {
    wait_for("the line in the log", || {
        let log = daemon.log();
        let found = log.lines().find(|line| line.contains(what) && line.contains(file));
        found.map(ToOwned::to_owned)
    })
}

fn listed(daemon: &Daemon) -> Vec<String> {
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    let id = |it: &Value| it["id"].as_str().expect("an id").to_owned();
    let mut ids: Vec<_> = array(&sessions["sessions"]).iter().map(id).collect();
    ids.sort();
    ids
}

fn sorted<const N: usize>(ids: [&String; N]) -> Vec<String> {
    let mut ids: Vec<_> = ids.into_iter().cloned().collect();
    ids.sort();
    ids
}

/// Asserts that the session is read-only.
#[track_caller]
fn assert_safe(daemon: &Daemon, id: &str, saved: &Saved) {
    let wire = daemon.wire();
    let session =
        Session { wire: &wire, id: id.to_owned(), name: String::new(), path: String::new() };
    let text = session.call("write_file", json!({"path": "made", "content": "x"}));
    assert!(text.starts_with("Error: "), "{text}");
    assert!(!saved.workspaces.path().join("first/made").exists());
}

/// Asserts that new sessions are saved.
#[track_caller]
fn assert_serves(daemon: &mut Daemon) {
    let path = fresh_directory(daemon, "new");
    let answer = Client::connect(daemon).attach(&path, false);
    let id = answer.expect("an answer").expect("a session").id;
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    assert!(listed(daemon).contains(&id));
}

/// Asserts that a start with a bad file keeps the file aside and loses no session: the other file has
/// them, and the previous generation of the state has the safe mode.
fn assert_recovers(saved: &Saved, mut daemon: Daemon, file: &str, start: impl FnOnce(&mut Daemon)) {
    let path = daemon.app().join(file);
    let aside = daemon.app().join(format!("{file}.corrupt-1"));
    let bad = look(&path);
    start(&mut daemon);
    told(&daemon, file, "recovered");
    assert_eq!(look(&aside), bad);
    assert_eq!(listed(&daemon), sorted([&saved.first, &saved.second]));
    assert_safe(&daemon, &saved.first, saved);
    assert_serves(&mut daemon);
    assert_eq!(look(&aside), bad, "it is kept");
}

#[test]
fn a_bad_file_is_kept_aside_and_the_generation_before_serves() {
    let saved = Saved::make();
    for file in FILES {
        for (what, spoil) in SPOILT {
            let daemon = saved.world();
            let path = daemon.app().join(file);
            spoil(&path, &fs::read_to_string(&path).unwrap());
            // The harness shows this only if the test fails.
            print_case(file, what);
            assert_recovers(&saved, daemon, file, Daemon::boot);
        }
    }
}

#[expect(clippy::print_stdout, reason = "a failed test shows its case")]
fn print_case(file: &str, what: &str) {
    println!("{file}: {what}");
}

#[test]
fn a_file_that_the_daemon_may_not_read_is_kept_aside() {
    let saved = Saved::make();
    for file in FILES {
        let daemon = saved.world();
        let path = daemon.app().join(file);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
        let is_super_user = File::open(&path).is_ok();
        // Root without the capabilities to read every file.
        let drop_rights = ["--bounding-set=-dac_override,-dac_read_search", "true"];
        let mut setpriv = program("setpriv");
        if is_super_user && !setpriv.args(drop_rights).status().is_ok_and(|it| it.success()) {
            return skipped("a_file_that_the_daemon_may_not_read_is_kept_aside", "no setpriv");
        }
        assert_recovers(&saved, daemon, file, |daemon| {
            if is_super_user {
                let quack = env!("CARGO_BIN_EXE_quack");
                daemon.boot_with("setpriv", &[drop_rights[0], quack, "daemon"]);
            } else {
                daemon.boot();
            }
        });
    }
}

#[test]
fn a_file_of_a_newer_version_is_left_alone_and_nothing_is_changed() {
    let saved = Saved::make();
    for file in FILES {
        let mut daemon = saved.world();
        let path = daemon.app().join(file);
        let newer = r#"{"version":999,"workspaces":{},"sessions":[],"future":true}"#;
        fs::write(&path, newer).unwrap();
        daemon.boot();
        told(&daemon, file, "newer version");
        daemon.wire().request("ping", json!({}));
        let directory = fresh_directory(&daemon, "new");
        let answer = Client::connect(&daemon).attach(&directory, false).expect("an answer");
        let text = answer.expect_err("a change must be refused");
        assert!(
            text.starts_with("Sessions cannot be changed: ") && text.contains("newer"),
            "{text}"
        );
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(), Some(0));
        for (name, bytes) in &saved.files {
            let wanted = if name == file { newer.as_bytes() } else { bytes };
            assert_eq!(fs::read(daemon.app().join(name)).unwrap(), wanted, "{name}");
        }
    }
}

#[test]
fn of_two_entries_with_one_id_the_first_counts_and_equal_names_are_nobodys_mistake() {
    let saved = Saved::make();
    let (first, second) = (&saved.first, &saved.second);
    let cases: [(&str, String, &str, &str); 2] = [
        (METADATA, format!(r#""id": "{second}""#), second, first),
        (STATE, format!(r#""{second}": {{"#), second, first),
    ];
    for (file, entry, from, to) in cases {
        let mut daemon = saved.world();
        let path = daemon.app().join(file);
        let good = fs::read_to_string(&path).unwrap();
        let twice = good.replace(&entry, &entry.replace(from, to));
        assert_ne!(good, twice);
        fs::write(&path, twice).unwrap();
        daemon.boot();
        told(&daemon, file, "left out an entry");
        assert!(listed(&daemon).contains(first));
        assert_safe(&daemon, first, &saved);
        assert!(!daemon.app().join(format!("{file}.corrupt-1")).exists());
        assert_serves(&mut daemon);
    }

    let mut daemon = saved.world();
    let path = daemon.app().join(METADATA);
    let mut metadata: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    metadata["sessions"][1]["name"] = metadata["sessions"][0]["name"].clone();
    metadata["sessions"][1]["workspaceId"] = metadata["sessions"][0]["workspaceId"].clone();
    fs::write(&path, metadata.to_string()).unwrap();
    daemon.boot();
    assert_eq!(listed(&daemon), sorted([first, second]));
    let log = daemon.log();
    assert!(!log.contains("left out") && !log.contains("recovered"), "{log}");
}
