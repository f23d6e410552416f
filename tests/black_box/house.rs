//! Garbage collection: `quack gc` deletes only unused data, and the state directory does not grow.

use crate::harness::{Daemon, Wire, wait_for, write_file};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: u64 = 24 * 60 * 60;

/// Creates a file with a modification time `days` ago, including its parent directories.
#[track_caller]
fn old(path: &Path, content: &str, days: u64) {
    write_file(path, content);
    age(path, days);
}

#[track_caller]
fn age(path: &Path, days: u64) {
    let changed = SystemTime::now() - Duration::from_secs(days * DAY);
    File::open(path).expect("open").set_modified(changed).expect("make it old");
}

/// The kinds and their counts.
fn kinds(data: &Value) -> BTreeMap<String, u64> {
    let kinds = data["kinds"].as_array().expect("kinds").iter();
    kinds
        .map(|it| (it["kind"].as_str().unwrap().to_owned(), it["items"].as_u64().unwrap()))
        .collect()
}

fn counted<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(kind, n)| (kind.to_owned(), n)).into()
}

/// Every file in a directory, recursively.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn gc_deletes_what_nobody_needs_and_nothing_else() {
    let mut daemon = Daemon::start();
    // The daemon must load its sessions from a file that existed at its start. Otherwise it does
    // not trust its list.
    let repo = daemon.repo("a");
    drop(daemon.wire().attach(repo.path()));
    daemon.quack(&["stop"]).ok();
    daemon.wait();
    daemon.boot();
    let (app, wire) = (daemon.app(), daemon.wire());
    let session = wire.attach(repo.path());
    session.bash("head -c 200000 /dev/zero | tr '\\0' x");
    // The journal has its file when the record of the call is in it.
    wait_for("the journal", || app.join("journal").read_dir().ok()?.next().map(|_| ()));
    let run = app.join("run").join(&session.id);
    old(&run.join("bash-old.log"), "old", 8);
    old(&run.join("bash-young.log"), "young", 2);
    old(&app.join("run/nobody/bash-1.log"), "x", 8);
    age(&app.join("run/nobody"), 8);
    old(&app.join("metadata.json.corrupt-1"), "{", 40);
    old(&app.join("sessions").join(format!("{}.jsonl", session.id)), "{}", 400);
    old(&app.join("sessions/nobody.jsonl"), "{}", 400);
    let header = |cwd: &str| json!({"type": "session", "cwd": cwd}).to_string() + "\n";
    old(&app.join("pi-sessions/ours.jsonl"), &header(&session.path), 400);
    old(&app.join("pi-sessions/nobody.jsonl"), &header("/nowhere"), 400);
    old(&repo.path().join("kept"), "the user's", 400);
    let before = files(&app);

    let safe = counted([("runs", 1), ("outputs", 1), ("quarantined", 1)]);
    let dry = daemon.quack(&["gc", "--dry-run", "--json"]).json();
    assert_eq!((kinds(&dry), dry["dryRun"].as_bool()), (safe.clone(), Some(true)));
    let named: Vec<&str> =
        dry["found"].as_array().unwrap().iter().filter_map(|it| it["path"].as_str()).collect();
    let output = format!("run/{}/bash-old.log", session.id);
    assert_eq!(named, ["run/nobody", output.as_str(), "metadata.json.corrupt-1"]);
    assert_eq!(files(&app), before, "a dry run deletes nothing");

    // Data of a session with a running call stays, regardless of its age.
    let running = session.begin("bash", json!({"command": daemon.gated("gate", "true")}));
    wait_for("the call", || (session.worker()["calls"][0]["tool"] == "bash").then_some(()));
    assert_eq!(kinds(&wire.request("quack.gc", json!({"dryRun": true}))).get("outputs"), None);
    daemon.open_gate("gate");
    running.text();

    let shown = daemon.quack(&["gc"]).ok();
    assert!(shown.contains("Deleted 1 long output  "), "{shown}");
    assert!(daemon.quack(&["gc"]).ok().contains("Nothing to delete."));
    assert!(run.join("bash-young.log").exists() && !run.join("bash-old.log").exists());
    assert!(!app.join("run/nobody").exists());

    // Histories are deleted only on request, and only those without a session.
    let refused = daemon.quack(&["gc", "--histories"]);
    assert_eq!(refused.code(), Some(2), "{refused:?}");
    let data = daemon.quack(&["gc", "--histories", "--yes", "--json"]).json();
    assert_eq!(kinds(&data), counted([("histories", 2)]));
    let left: Vec<_> =
        ["sessions", "pi-sessions"].iter().flat_map(|dir| files(&app.join(dir))).collect();
    assert_eq!(
        left,
        [
            app.join("sessions").join(format!("{}.jsonl", session.id)),
            app.join("pi-sessions/ours.jsonl")
        ]
    );

    // Files from the last moments stay, even on request.
    let data = wire.request("quack.gc", json!({"olderThanS": 0}));
    assert_eq!(kinds(&data), counted([("outputs", 1)]));
    assert!(
        !run.join("bash-young.log").exists()
            && files(&run).iter().any(|it| it.extension() == Some("log".as_ref()))
    );
    assert_eq!(repo.read("kept"), "the user's");
    assert_eq!(session.bash("echo fine"), "fine\n\n[Exit code: 0]");
}

/// Creates the state directory of a daemon that has ended, and returns its path.
fn left_by_a_daemon(daemon: &Daemon) -> PathBuf {
    let app = daemon.app();
    std::fs::create_dir_all(app.join("run")).unwrap();
    std::fs::write(app.join("quackd.lock"), "").unwrap();
    std::fs::write(app.join("run/.quackd"), "").unwrap();
    app
}

#[test]
fn gc_works_without_a_daemon_and_starts_none() {
    let daemon = Daemon::absent();
    assert_eq!(daemon.quack(&["gc"]).ok(), "Nothing to delete.\n");
    let app = left_by_a_daemon(&daemon);
    old(&app.join("run.old-1/s/bash-1.log"), "x", 0);
    old(&app.join("run.old-1/.quackd"), "", 0);
    old(&app.join("metadata.json.tmp"), "{", 1);
    old(&app.join("sessions/s.jsonl"), "{}", 400);
    old(&app.join("run/s/bash-1.log"), "x", 400);
    age(&app.join("run/s"), 400);
    let refused = daemon.quack(&["gc", "--histories", "--yes"]);
    assert_eq!(refused.code(), Some(1));
    assert!(refused.stderr().contains("the existing sessions are not known"), "{refused:?}");
    let data = daemon.quack(&["gc", "--json"]).json();
    assert_eq!(kinds(&data), counted([("leftovers", 1), ("unfinished", 1)]));
    let metadata = json!({"version": 1, "workspaces": [], "sessions": []}).to_string();
    std::fs::write(app.join("metadata.json"), metadata).unwrap();
    let data = daemon.quack(&["gc", "--histories", "--yes", "--json"]).json();
    assert_eq!(kinds(&data), counted([("runs", 1), ("histories", 1)]));
    assert!(!daemon.socket().exists());
}

#[test]
fn gc_without_a_daemon_keeps_the_files_of_sessions_that_only_its_own_state_has() {
    let daemon = Daemon::absent();
    let app = left_by_a_daemon(&daemon);
    let session = json!({"id": "s", "workspaceId": "w", "name": "s"});
    let workspace = json!({"id": "w", "path": "/w"});
    let empty = json!({"version": 1, "workspaces": [], "sessions": []});
    let full = json!({"version": 1, "workspaces": [workspace], "sessions": [session]});
    let state = json!({"version": 1, "sessions": {}, "metadata": full});
    // A daemon was killed before it wrote metadata.json.
    std::fs::write(app.join("metadata.json"), empty.to_string()).unwrap();
    std::fs::write(app.join("quackd-state.json"), state.to_string()).unwrap();
    for name in ["s", "nobody"] {
        old(&app.join(format!("run/{name}/bash-1.log")), "x", 1);
        age(&app.join(format!("run/{name}")), 1);
    }
    let data = daemon.quack(&["gc", "--json"]).json();
    assert_eq!(kinds(&data), counted([("runs", 1)]));
    assert!(app.join("run/s/bash-1.log").exists() && !app.join("run/nobody").exists());
}

#[test]
fn gc_without_a_daemon_goes_by_the_configuration() {
    let daemon = Daemon::absent();
    let app = left_by_a_daemon(&daemon);
    let session = json!({"id": "s", "workspaceId": "w", "name": "s"});
    let workspace = json!({"id": "w", "path": "/w"});
    let metadata = json!({"version": 1, "workspaces": [workspace], "sessions": [session]});
    std::fs::write(app.join("metadata.json"), metadata.to_string()).unwrap();
    for days in [20, 40] {
        old(&app.join(format!("run/s/bash-{days}.log")), "x", days);
    }
    let kept = |days: u64| app.join(format!("run/s/bash-{days}.log")).exists();
    let config = app.join("quackd.toml");
    // With an invalid configuration the daemon would not start. `gc` must not fall back to the
    // defaults.
    std::fs::write(&config, "[keep]\noutputs_days = \"many\"\n").unwrap();
    let refused = daemon.quack(&["gc"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    assert!(refused.stderr().contains("outputs_days"), "{refused:?}");
    assert!(kept(20) && kept(40));
    std::fs::write(&config, "[keep]\noutputs_days = 30\n").unwrap();
    let data = daemon.quack(&["gc", "--json"]).json();
    assert_eq!(kinds(&data), counted([("outputs", 1)]), "{data}");
    assert!(kept(20) && !kept(40));
    // An explicit age overrides the configuration.
    let data = daemon.quack(&["gc", "--older-than", "10d", "--json"]).json();
    assert_eq!(kinds(&data), counted([("outputs", 1)]), "{data}");
    assert!(!kept(20));
}

/// Resources used by a daemon.
#[derive(Debug)]
struct Size {
    rss_kb: u64,
    open_files: u64,
    /// Bytes in the state directory, without the files excluded below.
    disk: u64,
    n_files: usize,
}

fn size(daemon: &Daemon, wire: &Wire) -> Size {
    let supervisor = wire.request("quack.ps", json!({}))["supervisor"].take();
    let number = |key: &str| supervisor[key].as_u64().expect("a number");
    let files = files(&daemon.app());
    // The log and the journal of calls have their own limits. The login shell's environment is saved later, once the shell has
    // answered.
    let counts = |path: &&PathBuf| {
        let path = path.to_string_lossy();
        !["duck-daemon.log", "login-environment.json", "/journal/"]
            .iter()
            .any(|name| path.contains(name))
    };
    let files: Vec<_> = files.iter().filter(counts).collect();
    let disk =
        files.iter().filter_map(|path| path.symlink_metadata().ok()).map(|it| it.len()).sum();
    Size { rss_kb: number("rssKb"), open_files: number("openFiles"), disk, n_files: files.len() }
}

/// Creates, uses and deletes `n` sessions, one after the other.
#[track_caller]
fn sessions_come_and_go(daemon: &Daemon, repo: &Path, n: usize) {
    let wire = daemon.wire();
    for i in 0..n {
        let made = wire.request("quack.session_new", json!({"path": repo}));
        let id = made["session"]["id"].as_str().expect("an id").to_owned();
        let call = |tool: &str, arguments: Value| {
            let params = json!({"tool": tool, "arguments": arguments, "sessionId": id});
            wire.request("quack.tool", params)["text"].as_str().expect("text").to_owned()
        };
        let command = match i % 3 {
            0 => "head -c 300000 /dev/zero | tr '\\0' x",
            1 => "echo short",
            _ => "sleep 300 & echo left one behind",
        };
        let text = call("bash", json!({"command": command}));
        assert!(
            text.ends_with("[Exit code: 0]") || text.contains("background process"),
            "{text:.200}"
        );
        if i % 5 == 0 {
            let replace = json!({"pattern": "needle", "replacement": "needle"});
            call("replace", replace);
        }
        wire.request("quack.session_delete", json!({"sessionId": id, "force": true}));
    }
}

#[test]
fn three_hundred_sessions_that_come_and_go_leave_nothing() {
    const THREADS: usize = 4;

    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let wave = |n: usize| {
        std::thread::scope(|scope| {
            let work = || sessions_come_and_go(&daemon, repo.path(), n);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("sessions come and go"));
        });
    };
    // The first sessions fill structures that are filled only once: thread pools, the allocator,
    // tables.
    wave(10);
    let before = size(&daemon, &wire);
    wave(65);
    let mut pinned = false;
    let after = wait_for("everything to be as before", || {
        // Each save writes the deletions of the last 10 s.
        pinned = !pinned;
        wire.request("quack.pin", json!({"sessionId": session.id, "pinned": pinned}));
        let after = size(&daemon, &wire);
        let is_back = after.open_files <= before.open_files && after.n_files <= before.n_files;
        (is_back && after.disk <= before.disk + 4096).then_some(after)
    });
    assert!(after.rss_kb <= before.rss_kb + 16 * 1024, "{before:?} {after:?}");
    let run: Vec<_> = files(&daemon.app().join("run"));
    let run: Vec<_> = run.iter().filter(|path| !path.ends_with("run/.quackd")).collect();
    // The remaining session has its record of read files and, in the tier of macOS, its settings of git.
    let of_remaining =
        ["seen.jsonl", "tmp/.gitconfig", "tmp/.gitignore_of_user", "tmp/.gitattributes_of_user"]
            .map(|name| daemon.app().join("run").join(&session.id).join(name));
    assert!(run.iter().all(|path| of_remaining.contains(path)), "{run:?}");
    // The remaining session has a worker, which may have recorded its repository.
    assert!(files(&daemon.app().join("placeholders")).len() <= 1);
}
