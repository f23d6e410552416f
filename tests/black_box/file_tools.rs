//! Races for files through the daemon: two workers that change one file, and a program that
//! redirects a path while it is in use.
//!
//! `tool_tables` tests the answers of the tools without races.

use crate::harness::{Daemon, KillOnDrop, PATIENCE, Session, Wire, this_test};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Creates another session in the same workspace, which has its own worker.
#[track_caller]
fn second_session<'a>(wire: &'a Wire, first: &Session<'_>) -> Session<'a> {
    let data = wire.request("quack.session_new", json!({"path": first.path}));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (id, name) = (text(&data["session"]["id"]), text(&data["session"]["name"]));
    Session { wire, id, name, path: first.path.clone() }
}

#[test]
fn two_workers_that_make_a_thousand_edits_to_one_file_lose_none_and_tear_nothing() {
    const N_EDITS: usize = 500;
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("log", "BEGIN\nEND\n");
    let is_over = AtomicBool::new(false);
    let wires = [daemon.wire(), daemon.wire()];
    let first = wires[0].attach(repo.path());
    let second = second_session(&wires[1], &first);
    first.bash("true");
    second.bash("true");
    assert_ne!(first.pid("pid"), second.pid("pid"), "two workers");
    let ids = [first.id, second.id];
    let n_reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut n_reads = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let text = repo.read("log");
                assert!(text.starts_with("BEGIN\n") && text.ends_with("END\n"), "torn: {text}");
                n_reads += 1;
            }
            n_reads
        });
        let editors: Vec<_> = ids
            .iter()
            .zip(["left", "right"])
            .map(|(id, who)| {
                let daemon = &daemon;
                scope.spawn(move || {
                    let wire = daemon.wire();
                    for n in 0..N_EDITS {
                        let new = format!("{who} {n}\nEND");
                        let edit = json!({"path": "log", "old_text": "END", "new_text": new});
                        let params =
                            json!({"tool": "edit_file", "arguments": edit, "sessionId": id});
                        let data = wire.request("quack.tool", params);
                        assert_eq!(data["text"], "Successfully edited log");
                    }
                })
            })
            .collect();
        let ended: Vec<_> = editors.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|editor| editor.is_ok()), "an edit was refused");
        reader.join().unwrap()
    });
    let text = repo.read("log");
    for who in ["left ", "right "] {
        let landed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(who)).collect();
        let expected: Vec<String> = (0..N_EDITS).map(|n| n.to_string()).collect();
        assert_eq!(landed, expected, "{who}");
    }
    assert_eq!(text.lines().count(), 2 * N_EDITS + 2);
    // Otherwise the test would also pass if the editors ran one after the other.
    let n_turns = text.lines().map(|line| &line[..1]).collect::<Vec<_>>();
    let n_turns = n_turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(10 < n_turns && 0 < n_reads, "{n_turns} turns, {n_reads} reads");
}

/// Environment variable with the directory to attack. If it is set, this program is the attacker.
const VICTIM: &str = "QUACKD_TEST_SWAP_IN";

/// Starts a process that swaps directories and links as fast as possible: this test program, as the attacker.
fn attacker(test: &str, directory: &Path) -> KillOnDrop {
    let mut command = this_test(test);
    command.env(VICTIM, directory).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().unwrap().into()
}

/// Swaps the entries until the attacker or its parent is killed.
fn attack(directory: &Path) {
    let parent = std::os::unix::process::parent_id();
    let swap = |a: &str, b: &str| {
        let (a, b) = (directory.join(a), directory.join(b));
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
    };
    let mut counter = File::create(directory.with_file_name("swaps")).unwrap();
    while std::os::unix::process::parent_id() == parent {
        for _ in 0..50 {
            swap("work", "link");
            swap("deep/work", "deep/link");
            // On a machine with few CPUs the attacked processes need time to run too.
            thread::yield_now();
        }
        // The file's length is the count, so it is correct at any time.
        counter.write_all(b".").unwrap();
    }
}

/// Every entry in a directory, recursively, with its content.
fn listing(directory: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut listing = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        listing.push((path.clone(), fs::read_to_string(&path).ok()));
        if path.is_dir() {
            listing.extend(self::listing(&path));
        }
    }
    listing.sort();
    listing
}

/// Repeats the call until `n_wanted` calls have succeeded and one was refused. Returns both
/// numbers.
#[track_caller]
fn under_attack(n_wanted: usize, mut call: impl FnMut(usize) -> bool) -> (usize, usize) {
    let (mut n_done, mut n_refused) = (0, 0);
    let begin = Instant::now();
    while n_done < n_wanted || n_refused == 0 {
        if call(n_done + n_refused) {
            n_done += 1;
        } else {
            n_refused += 1;
        }
        let limit = 3 * PATIENCE;
        assert!(begin.elapsed() < limit, "{n_done} done, {n_refused} refused in {limit:?}");
    }
    (n_done, n_refused)
}

#[test]
fn a_process_that_swaps_a_directory_and_a_link_leads_no_tool_outside() {
    const NAME: &str =
        "file_tools::a_process_that_swaps_a_directory_and_a_link_leads_no_tool_outside";
    const N_CALLS: usize = 300;
    if let Some(directory) = std::env::var_os(VICTIM) {
        return attack(Path::new(&directory));
    }
    let daemon = Daemon::start();
    let (repo, outside) = (daemon.repo("a"), daemon.repo("outside"));
    // One link has an absolute target, one a relative target.
    for (directory, target) in [("", outside.path()), ("deep/", Path::new("../../outside"))] {
        repo.write(&format!("{directory}work/file"), "inside");
        repo.write(&format!("{directory}work/log"), "END\n");
        symlink(target, repo.path().join(format!("{directory}link"))).unwrap();
    }
    outside.write("file", "secret");
    outside.write("log", "secret END\n");
    outside.write("secret-name", "secret");
    let before = listing(outside.path());
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let attacker = attacker(NAME, repo.path());
    let place = |n: usize| if n.is_multiple_of(2) { "work" } else { "deep/work" };

    let reads = under_attack(N_CALLS, |n| {
        let text = session.call("read_file", json!({"path": format!("{}/file", place(n))}));
        assert!(text == "inside" || text.starts_with("Error: "), "read {text}");
        text == "inside"
    });
    let edits = under_attack(N_CALLS, |n| {
        let edit =
            json!({"path": format!("{}/log", place(n)), "old_text": "END", "new_text": "x\nEND"});
        session.call("edit_file", edit).starts_with("Successfully edited ")
    });
    let writes = under_attack(N_CALLS, |n| {
        // An existing file, a new file, and a new directory.
        let name =
            ["file".to_owned(), format!("new-{n}"), format!("new-dir-{n}/file")][n % 3].clone();
        let write = json!({"path": format!("{}/{name}", place(n / 3)), "content": "inside"});
        session.call("write_file", write).starts_with("Successfully wrote ")
    });
    let searches = under_attack(N_CALLS, |n| {
        let text = if n % 4 < 2 {
            session.call("grep_search", json!({"pattern": "secret", "path": place(n)}))
        } else {
            session.call("find_files", json!({"pattern": "secret*", "path": place(n)}))
        };
        let is_refused = text.starts_with("Error: ");
        let is_nothing = |line: &str| {
            ["No matches found", "No files found matching 'secret*'"].contains(&line)
                || line.starts_with("[Warning")
        };
        assert!(is_refused || text.lines().all(is_nothing), "found {text}");
        !is_refused
    });
    drop(attacker);

    assert_eq!(listing(outside.path()), before);
    // Every reported edit was made exactly once.
    let n_edits: usize = ["", "deep/"]
        .map(|directory| {
            let logs = ["work", "link"].map(|name| repo.read(&format!("{directory}{name}/log")));
            let ours: Vec<_> = logs.iter().filter(|log| !log.contains("secret")).collect();
            assert_eq!(ours.len(), 1);
            ours[0].matches("x\n").count()
        })
        .into_iter()
        .sum();
    assert_eq!(n_edits, edits.0);
    // Otherwise the test would also pass without any swap.
    let n_swaps = 100 * fs::metadata(repo.path().with_file_name("swaps")).unwrap().len();
    let told = format!("{reads:?} {edits:?} {writes:?} {searches:?} in {n_swaps} swaps");
    assert!(1000 < n_swaps, "{told}");
}

#[test]
fn a_path_with_a_tilde_is_told_as_a_name_in_the_workspace() {
    let daemon = Daemon::start();
    let repo = daemon.repo("tilde");
    let write = |path: &str| {
        let arguments = json!({"path": path, "content": "x"}).to_string();
        let dir = repo.path().to_str().unwrap();
        daemon.quack(&["tool", "write_file", &arguments, "-C", dir]).ok()
    };
    let shown = write("~/x.txt");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "Successfully wrote 1 bytes to ~/x.txt");
    assert!(lines[1].contains("a directory named ~ in the workspace, not your home"), "{shown}");
    assert!(repo.path().join("~/x.txt").exists());
    assert_eq!(write("./~/y.txt"), "Successfully wrote 1 bytes to ./~/y.txt\n");
}
