//! Kills during a replacement over many files: every file is complete with its old or new content,
//! an interrupted replacement can be undone, and no other file changes.
//!
//! The default is six kills over 600 files; `QUACKD_KILLS` and `QUACKD_FILES` increase it.

use crate::harness::{Daemon, wait_within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for thousands of files on a slow disk.
const LONG: Duration = Duration::from_secs(120);

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn text_of(reply: &Value) -> String {
    reply["data"]["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// Every file in a directory with its content, recursively, without `.git`.
fn content_of(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name() != Some(".git".as_ref()) {
                pending.push(path);
            } else if path.is_file() {
                let content = fs::read(&path).expect("a file");
                found.insert(path, content);
            }
        }
    }
    found
}

#[test]
fn a_kill_in_the_middle_of_a_replacement_leaves_whole_files_that_can_be_taken_back() {
    let (n_kills, n_files) = (number("QUACKD_KILLS", 6), number("QUACKD_FILES", 600));
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let tail = "unchanged\r\nlast line without an end".repeat(20);
    for n in 0..n_files {
        repo.write(&format!("d{}/f{n:05}.txt", n % 17), format!("before word {n}\n{tail}"));
    }
    repo.write("other.txt", "nothing to replace");
    let old = content_of(repo.path());
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let mut n_interrupted = 0;
    for round in 0..n_kills {
        let replacement = format!("after {round}");
        let arguments = json!({"pattern": "before", "replacement": replacement,
                               "max_files": 20_000, "diff": "none"});
        let worker = session.pid("pid");
        // A different file in each round. The kill happens when this file changes, wherever it is
        // in the order.
        let sentinel = old.keys().nth((round * 7919 + 13) % n_files).expect("a file");
        let params = json!({"tool": "replace", "arguments": arguments, "sessionId": session.id,
                            "timeoutMs": 600_000});
        let is_changed = || fs::read(sentinel).is_ok_and(|now| now != old[sentinel]);
        let call = wire.begin("quack.tool", &params);
        let is_begun = wait_within(LONG, "one file to change", || {
            if call.is_there() {
                // The replacement may have finished before this check.
                Some(is_changed())
            } else {
                is_changed().then_some(true)
            }
        });
        assert!(is_begun, "round {round}: nothing was replaced: {}", text_of(&call.reply()));
        kill(Pid::from_raw(worker), Signal::SIGKILL).expect("the worker is there");
        let told = text_of(&call.reply());

        let now = content_of(repo.path());
        let mut n_new = 0;
        for (path, before) in &old {
            let after = String::from_utf8(before.clone()).expect("text");
            let after = after.replace("before", &replacement).into_bytes();
            let is_new = now[path] != *before;
            assert!(!is_new || now[path] == after, "{} is neither old nor new", path.display());
            n_new += usize::from(is_new);
        }
        assert!(0 < n_new);
        if told.starts_with("Error: Worker died during replace") {
            n_interrupted += 1;
        } else {
            // The replacement finished before the kill.
            assert!(told.contains("To take it back"), "{told}");
        }

        let undone = wait_within(LONG, "the next worker", || {
            let params = json!({"tool": "undo", "arguments": {}, "sessionId": session.id,
                                "timeoutMs": 600_000});
            let told = text_of(&wire.begin("quack.tool", &params).reply());
            if told.starts_with("Error: Session worker") {
                // The worker crashed too often recently. An attach allows another start.
                wire.attach(repo.path());
                return None;
            }
            Some(told)
        });
        assert!(undone.starts_with("Undid "), "{undone}");
        assert!(undone.contains(&format!("restored {n_new} file")), "{n_new} new; {undone}");
        // No temporary files are left next to the files either.
        let now = content_of(repo.path());
        let names: Vec<_> = now.keys().filter(|path| !old.contains_key(*path)).collect();
        assert_eq!(names, Vec::<&PathBuf>::new(), "round {round}");
        assert!(now == old, "round {round}");
    }
    assert!(0 < n_interrupted, "no kill came in time");
}
