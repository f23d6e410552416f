//! write_file, edit_file and find_files through the daemon: texts, what is on the disk, and races.

use crate::harness::{Daemon, PATIENCE, Session};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Calls a tool with its arguments as text, as a voice client sends them.
#[track_caller]
fn check(session: &Session<'_>, tool: &str, arguments: &str, expected: &str) {
    let params = json!({"toolName": tool, "arguments": arguments, "sessionId": session.id});
    let data = session.wire.request("voice_tool_call", params);
    let expected = expected.replace("WS", &session.path);
    assert_eq!(data["result"].as_str().unwrap(), expected, "{tool} {arguments}");
}

#[test]
fn write_file_texts_are_exact() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    symlink("README.md", repo.path().join("link")).unwrap();
    symlink("../escaped", repo.path().join("out")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let escapes = "Error: Path escapes workspace root";
    for (arguments, expected) in [
        (r#"{"path":"n","content":"é"}"#, "Successfully wrote 2 bytes to n"),
        (r#"{"file":"n","content":""}"#, "Successfully wrote 0 bytes to n"),
        (r#"{"filepath":"x/y/n","content":"x"}"#, "Successfully wrote 1 bytes to x/y/n"),
        (r#"{"file_path":"n","content":"x"}"#, "Successfully wrote 1 bytes to n"),
        (r#"{"filename":"n","content":"x"}"#, "Successfully wrote 1 bytes to n"),
        (r#"{"path":"link","content":"by link\n"}"#, "Successfully wrote 8 bytes to link"),
        (r#""n""#, "Error: Tool arguments must be a JSON object"),
        (r#"{"content":"x"}"#, "Error: Missing required parameter 'path'"),
        (r#"{"path":"n","content":1}"#, "Error: Missing required parameter 'content'"),
        (r#"{"path":"../n","content":"x"}"#, escapes),
        (r#"{"path":"/tmp/quackd-test","content":"x"}"#, escapes),
        (r#"{"path":"out","content":"x"}"#, escapes),
        (
            r#"{"path":"src","content":"x"}"#,
            "Error: Failed to write file: Error: EISDIR: illegal operation on a directory, open 'WS/src'",
        ),
    ] {
        check(&session, "write_file", arguments, expected);
    }
    assert_eq!((repo.read("n").as_str(), repo.read("x/y/n").as_str()), ("x", "x"));
    assert_eq!(repo.read("README.md"), "by link\n");
    assert!(fs::symlink_metadata(repo.path().join("link")).unwrap().is_symlink());
    assert!(!daemon.home().join("../escaped").exists());
}

#[test]
fn edit_file_texts_are_exact_and_edits_touch_nothing_else() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("f", b"\xef\xbb\xbfone\r\n\xfftwo two\n");
    fs::set_permissions(repo.path().join("f"), fs::Permissions::from_mode(0o754)).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    for (arguments, expected) in [
        (r#"{"path":"f","old_text":"one","new_text":"$& $$"}"#, "Successfully edited f"),
        (r#"{"path":"f","oldText":"\r\n","newText":"\n"}"#, "Successfully edited f"),
        (r#"{"path":"f","find":" two","replace":""}"#, "Successfully edited f"),
        (
            r#"{"path":"f","old_text":"$","new_text":"x"}"#,
            "Error: old_text found 3 times (ambiguous edit)",
        ),
        (r#"{"path":"f","old_text":"none","new_text":"x"}"#, "Error: old_text not found in file"),
        (r#"{"path":"f","new_text":"x"}"#, "Error: Missing required parameter 'old_text'"),
        (r#"{"path":"f","old_text":"x"}"#, "Error: Missing required parameter 'new_text'"),
        (
            r#"{"path":"none","old_text":"a","new_text":"b"}"#,
            "Error: Failed to edit file: Error: ENOENT: no such file or directory, open 'WS/none'",
        ),
        (r#"{"path":"../f","old_text":"a","new_text":"b"}"#, "Error: Path escapes workspace root"),
    ] {
        check(&session, "edit_file", arguments, expected);
    }
    let path = repo.path().join("f");
    assert_eq!(fs::read(&path).unwrap(), b"\xef\xbb\xbf$& $$\n\xfftwo\n");
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o754);
}

#[test]
fn safe_mode_writes_nothing() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    for tool in ["write_file", "edit_file"] {
        let arguments =
            json!({"path": "README.md", "content": "x", "old_text": "A", "new_text": "x"});
        let params = json!({
            "toolName": tool, "arguments": arguments.to_string(), "sessionId": session.id, "safeMode": true,
        });
        let data = wire.request("voice_tool_call", params);
        assert_eq!(data["result"], format!("Error: {tool} is disabled in safe mode"));
    }
    assert_eq!(repo.read("README.md"), "# A repository\n");
}

#[test]
fn a_file_that_changed_since_it_was_read_is_not_overwritten() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let write = r#"{"path":"README.md","content":"ours"}"#;
    check(&session, "read_file", r#""README.md""#, "# A repository\n");
    session.bash("echo more >> README.md");
    let stale =
        "Error: File changed since it was last read: 'README.md'. Read it again before writing.";
    check(&session, "write_file", write, stale);
    check(&session, "read_file", r#""README.md""#, "# A repository\nmore\n");
    check(&session, "write_file", write, "Successfully wrote 4 bytes to README.md");
}

#[test]
fn find_files_texts_are_exact() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    for name in
        ["src/lib.TS", "src/deep/a.tsx", ".env", ".build/x.ts", "node_modules/x.ts", "src-b/c.ts"]
    {
        repo.write(name, "");
    }
    symlink("/", repo.path().join("root")).unwrap();
    symlink("..", repo.path().join("src/up")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let everything = "README.md\nroot\nsrc-b/c.ts\nsrc/deep/a.tsx\nsrc/lib.TS\nsrc/main.rs\nsrc/up";
    for (arguments, expected) in [
        ("{}", everything),
        (r#"{"pattern":"**/*"}"#, everything),
        (r#""*.ts""#, "src-b/c.ts\nsrc/lib.TS"),
        (r#"{"glob":"*.{ts,tsx}"}"#, "src-b/c.ts\nsrc/deep/a.tsx\nsrc/lib.TS"),
        (r#"{"pattern":"deep/*","path":"src"}"#, "src/deep/a.tsx"),
        (r#"{"pattern":"s*","include_directories":true}"#, "src\nsrc-b"),
        (r#"{"pattern":".*","include_hidden":true}"#, ".env"),
        (r#"{"pattern":"*.py"}"#, "No files found matching '*.py'"),
        (r#"{"path":"none"}"#, "Error: Search path not found: 'none'"),
        (r#"{"path":"README.md"}"#, "Error: Search path is not a directory: 'README.md'"),
        (r#"{"path":"root"}"#, "Error: Path escapes workspace root"),
    ] {
        check(&session, "find_files", arguments, expected);
    }
    for n in 0..300 {
        repo.write(&format!("many/{n:03}"), "");
    }
    let text = session.call("find_files", json!({"path": "many"}));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[199]), (201, "many/000", "many/199"));
    assert_eq!(lines[200], "[Results truncated at 200 entries]");
}

#[test]
fn two_workers_that_edit_one_file_lose_no_edit_and_tear_nothing() {
    const N_EDITS: usize = 500;
    let daemons = [Daemon::start(), Daemon::start()];
    let repo = daemons[0].repo("a");
    repo.write("log", "BEGIN\nEND\n");
    let is_over = AtomicBool::new(false);
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
        let editors: Vec<_> = daemons
            .iter()
            .zip(["left", "right"])
            .map(|(daemon, who)| {
                let repo = &repo;
                scope.spawn(move || {
                    let wire = daemon.wire();
                    let session = wire.attach(repo.path());
                    for n in 0..N_EDITS {
                        let new = format!("{who} {n}\nEND");
                        let edit = json!({"path": "log", "old_text": "END", "new_text": new});
                        assert_eq!(session.call("edit_file", edit), "Successfully edited log");
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
    // Without this the test would also pass if one came after the other.
    let n_turns = text.lines().map(|line| &line[..1]).collect::<Vec<_>>();
    let n_turns = n_turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(10 < n_turns && 0 < n_reads, "{n_turns} turns, {n_reads} reads");
}

#[test]
fn a_directory_that_is_swapped_for_a_link_leads_no_write_outside() {
    const N_WRITES: usize = 300;
    let daemon = Daemon::start();
    let (repo, outside) = (daemon.repo("a"), daemon.repo("outside"));
    repo.write("work/file", "inside");
    outside.write("file", "secret");
    symlink(outside.path(), repo.path().join("link")).unwrap();
    let listing = || -> Vec<(String, Option<String>)> {
        let entries = fs::read_dir(outside.path()).unwrap().map(Result::unwrap);
        let mut listing: Vec<_> = entries
            .map(|entry| {
                let content = fs::read_to_string(entry.path()).ok();
                (entry.file_name().into_string().unwrap(), content)
            })
            .collect();
        listing.sort();
        listing
    };
    let before = listing();
    let (wire, is_over) = (daemon.wire(), AtomicBool::new(false));
    let session = wire.attach(repo.path());
    let (mut n_written, mut n_refused) = (0, 0);
    let n_swaps = thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let (a, b) = (repo.path().join("work"), repo.path().join("link"));
            let mut n_swaps = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
                n_swaps += 1;
            }
            n_swaps
        });
        let begin = Instant::now();
        while (n_written < N_WRITES || n_refused == 0) && begin.elapsed() < 3 * PATIENCE {
            let n = n_written + n_refused;
            let path = if n % 2 == 0 { "work/file".to_owned() } else { format!("work/{n}/new") };
            let text = session.call("write_file", json!({"path": path, "content": "written"}));
            // The file that is swapped away and back is another one than this session has seen.
            match text.starts_with("Successfully wrote ") {
                true => n_written += 1,
                false => n_refused += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
        attacker.join().unwrap()
    });
    assert_eq!(listing(), before);
    assert!(
        N_WRITES <= n_written && 0 < n_refused && 100 < n_swaps,
        "{n_written} written, {n_refused} refused, {n_swaps} swaps"
    );
}
