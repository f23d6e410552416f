//! read_file, bash and grep_search through the daemon: aliases, tolerated arguments, limits, texts
//! and markers.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, is_alive, wait_for};
use serde_json::{Value, json};
use std::path::Path;

/// Calls a tool with its arguments as text, like a voice client.
#[track_caller]
fn check(session: &Session<'_>, tool: &str, arguments: &str, expected: &str) {
    let params = json!({"toolName": tool, "arguments": arguments, "sessionId": session.id});
    let data = session.wire.request("voice_tool_call", params);
    assert_eq!(data["result"].as_str().unwrap(), expected, "{tool} {arguments}");
}

#[test]
fn the_dispatcher_answers_in_its_order() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    for (tool, arguments, expected) in [
        ("nonsense", "not json", "Error: Invalid JSON arguments"),
        ("nonsense", "", "Error: Invalid JSON arguments"),
        ("nonsense", "[1]", "Error: Tool arguments must be a JSON object"),
        ("bash", "null", "Error: Tool arguments must be a JSON object"),
        ("bash", "5", "Error: Tool arguments must be a JSON object"),
        ("write_file", "\"x\"", "Error: Tool arguments must be a JSON object"),
        ("nonsense", "{}", "Error: Unknown tool 'nonsense'"),
        ("bash", "{}", "Error: Missing required parameter 'command'"),
        ("bash", r#"{"command":"  ","cmd":5}"#, "Error: Missing required parameter 'command'"),
        ("read_file", "{}", "Error: Missing required parameter 'path'"),
        ("grep_search", "{}", "Error: Missing required parameter 'pattern'"),
    ] {
        check(&session, tool, arguments, expected);
    }
    // Arguments that are not text are not JSON text either.
    let params =
        json!({"toolName": "bash", "arguments": {"command": "true"}, "sessionId": session.id});
    assert_eq!(wire.request("voice_tool_call", params)["result"], "Error: Invalid JSON arguments");
    let params = json!({"toolName": "bash", "sessionId": session.id});
    assert!(
        wire.request("voice_tool_call", params)["result"].as_str().unwrap().starts_with("Error: ")
    );
}

#[test]
fn read_file_gives_whole_files_under_every_name_of_its_argument() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("crlf.txt", b"\xef\xbb\xbfa\r\nb\xff\n");
    repo.write("empty", "");
    let limit = 1_048_576;
    repo.write("exact", vec![b'x'; limit]);
    repo.write("over", vec![b'x'; limit + 1]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    for key in ["path", "file", "filepath", "file_path", "filename"] {
        check(
            &session,
            "read_file",
            &json!({"other": 1, key: "README.md"}).to_string(),
            "# A repository\n",
        );
    }
    check(&session, "read_file", r#"{"path":5,"file":"README.md"}"#, "# A repository\n");
    check(&session, "read_file", "\"README.md\"", "# A repository\n");
    check(&session, "read_file", "\"src/../README.md\"", "# A repository\n");
    let absolute = json!(repo.path().join("README.md")).to_string();
    check(&session, "read_file", &absolute, "# A repository\n");
    check(&session, "read_file", "\"crlf.txt\"", "\u{feff}a\r\nb\u{fffd}\n");
    check(&session, "read_file", "\"empty\"", "");
    assert_eq!(session.call("read_file", json!("exact")).len(), limit);
    check(&session, "read_file", "\"over\"", "Error: File exceeds 1MB limit (1048577 bytes)");
    check(&session, "read_file", "\"missing.txt\"", "Error: File not found at 'missing.txt'");
    check(
        &session,
        "read_file",
        "\"src\"",
        "Error: Failed to read file: Error: EISDIR: illegal operation on a directory, read",
    );
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let outside = daemon.home().join("secret");
    std::fs::write(&outside, "secret").unwrap();
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, repo.path().join(name)).unwrap();
    };
    link(&outside, "out");
    link(Path::new("../home/secret"), "out-relative");
    link(daemon.home().as_path(), "out-dir");
    link(&daemon.home().join("not-there"), "out-dangling");
    link(&repo.path().join("README.md"), "in-absolute");
    link(Path::new("src/../README.md"), "in-relative");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let escapes = "Error: Path escapes workspace root";
    for path in [
        "../home/secret",
        "/etc/passwd",
        "src/../../home/secret",
        "out",
        "out-relative",
        "out-dir/secret",
        "out-dangling",
        "/",
        "..",
    ] {
        check(&session, "read_file", &json!({"path": path}).to_string(), escapes);
        let grep = json!({"pattern": "secret", "path": path}).to_string();
        check(&session, "grep_search", &grep, escapes);
    }
    for path in ["in-absolute", "in-relative"] {
        check(&session, "read_file", &json!({"path": path}).to_string(), "# A repository\n");
    }
    // A search of the whole tree does not follow the links either.
    check(&session, "grep_search", "\"secret\"", "No matches found");
}

#[test]
fn a_fifo_blocks_nothing() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    nix::unistd::mkfifo(&repo.path().join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600))
        .unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let text = session.call("read_file", json!("fifo"));
    assert!(text.starts_with("Error: Failed to read file: "), "{text}");
    check(
        &session,
        "grep_search",
        r#"{"pattern":"needle"}"#,
        "src/main.rs:2:    println!(\"needle\");\n",
    );
}

#[test]
fn bash_texts_are_exact() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    for (command, expected) in [
        ("true", "\n[Exit code: 0]"),
        ("printf hi", "hi\n[Exit code: 0]"),
        ("echo hi; echo err >&2", "hi\n\nerr\n\n[Exit code: 0]"),
        ("printf err >&2; exit 7", "err\n[Exit code: 7]"),
        ("kill -TERM $$", "\n[Exit code: unknown]"),
        ("cat", "\n[Exit code: 0]"),
        ("printf 'a\\377b'", "a\u{fffd}b\n[Exit code: 0]"),
        ("basename \"$PWD\"", "a\n\n[Exit code: 0]"),
        ("echo $0", "/bin/bash\n\n[Exit code: 0]"),
    ] {
        check(&session, "bash", &json!({"command": command}).to_string(), expected);
        check(&session, "bash", &json!({"cmd": command}).to_string(), expected);
        check(&session, "bash", &json!(command).to_string(), expected);
    }
}

#[test]
fn commands_get_no_secret_no_terminal_and_no_descriptor_of_ours() {
    needs!(Procfs);
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let env = session.bash("env; cat /proc/$PPID/environ | tr '\\0' '\\n'");
    assert!(!env.contains("secret-of-the-daemon") && !env.contains("RUBBER_DUCK"), "{env}");
    assert!(env.contains("TERM=dumb\n") && env.contains("PATH=/"), "{env}");
    let files =
        session.bash("ls -l /proc/self/fd | grep -c ' [012] -> '; ls /proc/self/fd | wc -l");
    assert!(files.starts_with("3\n4\n") || files.starts_with("3\n5\n"), "{files}");
    assert_eq!(
        session.bash("(exec < /dev/tty) 2>/dev/null || echo none"),
        "none\n\n[Exit code: 0]"
    );
    // The worker itself has no key either.
    let environ = std::fs::read(format!("/proc/{}/environ", session.pid("pid"))).unwrap();
    let arguments = std::fs::read(format!("/proc/{}/cmdline", session.pid("pid"))).unwrap();
    assert_eq!(
        (String::from_utf8(environ).unwrap(), arguments),
        (String::new(), b"quack\0worker\0".to_vec())
    );
}

#[test]
fn a_background_process_neither_holds_the_call_nor_outlives_it() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    for command in [
        "sleep 61 & echo hi",
        "setsid sleep 61 & echo hi",
        "nohup sleep 61 >/dev/null 2>&1 & disown; echo hi",
        "(setsid sh -c 'trap \"\" TERM HUP; sleep 61; true' &) ; echo hi",
    ] {
        let text = session.bash(command);
        assert!(text.starts_with("hi\n"), "{command}: {text}");
        assert!(text.ends_with("\n[Exit code: 0]"), "{command}: {text}");
        assert!(text.contains(" background process"), "{command}: {text}");
        let mut left = crate::harness::descendants_of(session.pid("pid"));
        // A zombie has ended. Its parent may reap it after the answer.
        left.retain(is_alive);
        assert!(left.is_empty(), "{command}: {left:?}");
    }
}

#[test]
fn a_deadline_ends_everything_and_says_how_long_it_was() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    // The wait for a worker counts toward the deadline.
    session.bash("true");
    // The longer times are for a machine that is too slow to begin within the first one.
    for seconds in [1, 8, 30] {
        let command = "echo begun; trap '' TERM; setsid sleep 610 & sleep 620";
        let call = session.begin("bash", json!({"command": command, "timeout_ms": 1000 * seconds}));
        let below = wait_for("the command's processes, or its end", || {
            let below = crate::harness::descendants_of(session.pid("pid"));
            (3 <= below.len() || call.is_there()).then_some(below)
        });
        let text = call.text();
        if below.len() < 3 && seconds < 30 {
            continue;
        }
        let begin = format!("begun\n\n[Process timed out after {seconds}s and was terminated]\n");
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.ends_with("\n[Exit code: unknown]"), "{text}");
        wait_for("all of it to be gone", || (!below.iter().any(is_alive)).then_some(()));
        break;
    }
}

#[test]
fn long_output_keeps_head_and_tail_and_tells_where_the_rest_is() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let exact = session.bash("head -c 102400 /dev/zero | tr '\\0' x");
    assert_eq!(exact.len(), 102_400 + "\n[Exit code: 0]".len());
    assert!(!exact.contains("truncated"));

    let text = session.bash("for i in $(seq 1 30000); do echo \"line $i é\"; done");
    assert!(text.starts_with("line 1 é\nline 2 é\n"));
    assert!(
        text.ends_with("line 30000 é\n\n[Output truncated at 100KB]\n[Exit code: 0]"),
        "{}",
        &text[text.len() - 200..]
    );
    let at = text.find("\n[... ").expect("a marker");
    assert!((51_196..=51_200).contains(&at), "{at}");
    let marker = text[at..].lines().nth(1).unwrap();
    let (omitted, path) = marker
        .strip_prefix("[... ")
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(|rest| rest.split_once(" bytes omitted; full output: "))
        .expect(marker);
    let whole = std::fs::read_to_string(path).unwrap();
    assert_eq!(whole.lines().count(), 30_000);
    let omitted: usize = omitted.parse().unwrap();
    let kept = whole.len() - omitted;
    assert!((102_390..=102_400).contains(&kept), "{kept}");
    // The rest can be read with the tools.
    let part = session.call("bash", json!({"command": format!("sed -n 15000p '{path}'")}));
    assert_eq!(part, "line 15000 é\n\n[Exit code: 0]");
    assert_eq!(session.call("read_file", json!({"path": path})), whole);
}

#[test]
fn a_flood_is_drained_counted_and_costs_no_memory() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    for command in ["head -c 1G /dev/zero", "head -c 1G /dev/zero >&2", "yes | head -c 300M"] {
        let text = session.bash(command);
        assert!(text.ends_with("[Output truncated at 100KB]\n[Exit code: 0]"), "{command}");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", session.pid("pid"))).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 64 * 1024, "the worker's peak was {peak} KiB");
    let ps = wire.request("quack.ps", json!({}));
    assert!(ps["supervisor"]["rssKb"].as_u64().unwrap() < 64 * 1024);
}

#[test]
fn safe_mode_refuses_what_the_list_does_not_name() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let session = wire.attach(repo.path());
    let safe = |session: &Session<'_>, arguments: Value, flag: Value| {
        let params = json!({
            "toolName": "bash", "arguments": arguments.to_string(), "sessionId": session.id, "safeMode": flag,
        });
        session.wire.request("voice_tool_call", params)["result"].as_str().unwrap().to_owned()
    };
    let refused = "Error: Command not allowed in safe mode";
    for command in ["touch x", "/bin/ls", "ls;", "npm install", "sh -c ls"] {
        assert_eq!(safe(&session, json!(command), json!(true)), refused, "{command}");
    }
    for command in ["ls 'x", "ls \"x"] {
        let text = safe(&session, json!(command), json!(true));
        assert_eq!(text, "Error: Invalid command syntax in safe mode", "{command}");
    }
    assert_eq!(
        safe(&session, json!("cat README.md"), json!(true)),
        "# A repository\n\n[Exit code: 0]"
    );
    let text = safe(&session, json!("ls && touch x"), json!(true));
    assert!(text.contains("[Exit code: 2]"), "`&&` is an argument: {text}");
    assert!(!repo.path().join("x").exists());
    // The next call is unrestricted again, until the session itself is in safe mode.
    assert_eq!(safe(&session, json!("touch x"), json!(false)), "\n[Exit code: 0]");
    wire.request("attach", json!({"path": repo.path(), "safeMode": true}));
    assert_eq!(safe(&session, json!("touch y"), json!(false)), refused);
    wire.request("attach", json!({"path": repo.path(), "safeMode": false}));
    assert_eq!(safe(&session, json!("touch y"), Value::Null), "\n[Exit code: 0]");
}

#[test]
fn grep_search_answers_as_promised() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("src/lib.ts", "export function alpha() {}\nexport const beta = 1;\n");
    repo.write("src/z.tsx", "alpha();\r\n");
    repo.write(".hidden/x.txt", "alpha\n");
    for skipped in [".git", ".build", "node_modules"] {
        repo.write(&format!("{skipped}/x.txt"), "alpha\n");
    }
    repo.write("bin.dat", b"alpha\0beta\n");
    repo.write("ignored.log", "alpha\n");
    repo.write(".gitignore", "*.log\n");
    repo.write("-e.txt", "--version\n");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let all = ".hidden/x.txt:1:alpha\nignored.log:1:alpha\nsrc/lib.ts:1:export function alpha() {}\nsrc/z.tsx:1:alpha();\r\n";
    for arguments in [
        json!({"pattern": "alpha"}),
        json!({"query": "alpha"}),
        json!({"regex": "alpha"}),
        json!("alpha"),
        json!({"pattern": "alpha", "path": "."}),
        json!({"pattern": "alpha", "directory": repo.path()}),
    ] {
        check(&session, "grep_search", &arguments.to_string(), all);
    }
    for (arguments, expected) in [
        (
            json!({"pattern": "alpha", "path": "src"}),
            "src/lib.ts:1:export function alpha() {}\nsrc/z.tsx:1:alpha();\r\n",
        ),
        (json!({"pattern": "alpha", "dir": "src/z.tsx"}), "src/z.tsx:1:alpha();\r\n"),
        (
            json!({"pattern": "alpha", "include": "*.ts"}),
            "src/lib.ts:1:export function alpha() {}\n",
        ),
        (
            json!({"pattern": "alpha", "include": "*.{ts,tsx}"}),
            "src/lib.ts:1:export function alpha() {}\nsrc/z.tsx:1:alpha();\r\n",
        ),
        (json!({"pattern": "alpha", "include": ""}), "No matches found"),
        (json!({"pattern": "ALPHA"}), "No matches found"),
        (
            json!({"pattern": "alpha\\(|beta"}),
            "src/lib.ts:1:export function alpha() {}\nsrc/lib.ts:2:export const beta = 1;\nsrc/z.tsx:1:alpha();\r\n",
        ),
        (json!({"pattern": "--version"}), "-e.txt:1:--version\n"),
        (json!({"pattern": "alpha", "path": "node_modules"}), "node_modules/x.txt:1:alpha\n"),
        (
            json!({"pattern": "alpha", "path": "none"}),
            "Error: grep failed with exit code 2: grep: none: No such file or directory",
        ),
    ] {
        check(&session, "grep_search", &arguments.to_string(), expected);
    }
}

#[test]
fn grep_search_explains_patterns_that_it_cannot_read() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("src/lib.ts", "export function alpha() {}\nexport const beta = 1;\n");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let text = session.call("grep_search", json!({"pattern": "a("}));
    assert!(
        text.starts_with("Error: grep failed with exit code 2: ") && !text.contains('\n'),
        "{text}"
    );
    for unsupported in ["(?=a)", "(a)\\1"] {
        let text = session.call("grep_search", json!({"pattern": unsupported}));
        assert!(text.contains("not supported"), "{text}");
    }
    // A basic regular expression that finds nothing as written is tried with basic syntax.
    let text =
        session.call("grep_search", json!({"pattern": "alpha\\|beta", "path": "src/lib.ts"}));
    assert!(
        text.starts_with(
            "src/lib.ts:1:export function alpha() {}\nsrc/lib.ts:2:export const beta = 1;\n"
        ),
        "{text}"
    );
    assert!(text.contains("basic regular expression"), "{text}");
}

#[test]
fn grep_search_keeps_what_it_found_beside_unreadable_files_and_cuts_at_a_row() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    for n in 0..200 {
        repo.write(
            &format!("many/{n:03}.txt"),
            "abcdefghij ".repeat(60).trim_end().to_owned() + "\n",
        );
    }
    std::os::unix::fs::symlink("nowhere", repo.path().join("many/dangling")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let text = session.call("grep_search", json!({"pattern": "abc"}));
    let body = text.strip_suffix("\n[Output truncated at 100KB]").expect("the marker");
    assert!((101_000..=102_400).contains(&body.len()), "{}", body.len());
    assert!(body.lines().all(|row| row.starts_with("many/") && row.ends_with("hij")), "whole rows");
    assert!(body.starts_with("many/000.txt:1:abc"));
}

/// Every tool that searches finds the lines of a file with CRLF that `replace` would change.
#[test]
fn every_search_finds_the_lines_of_files_with_crlf() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    std::fs::remove_dir_all(repo.path().join("src")).unwrap();
    std::fs::remove_file(repo.path().join("README.md")).unwrap();
    repo.write("c.txt", "one;\r\nfoo\r\n\r\nbar \r\n");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let last = |n: usize| n..=n;
    for (pattern, lines) in [
        (";$", last(1)),
        ("^foo$", last(2)),
        ("^$", last(3)),
        (r"\s$", last(4)),
        ("^[^;]+$", 2..=4),
        (r"foo\n\nbar", 2..=4),
    ] {
        for tool in ["search", "grep_search", "search_content", "ripgrep_search"] {
            let arguments = match tool {
                "search_content" => json!({"pattern": pattern, "glob_pattern": "**/*"}),
                _ => json!({"pattern": pattern}),
            };
            let text = session.call(tool, arguments);
            for line in 1..=4 {
                let is_found = text.contains(&format!("{line}:"));
                let is_wanted = lines.contains(&line) && (pattern != "^[^;]+$" || line != 3);
                assert_eq!(is_found, is_wanted, "{tool} {pattern:?}: {text}");
            }
        }
        let changes = json!({"pattern": pattern, "replacement": "x", "dry_run": true});
        let text = session.call("replace", changes);
        let n = if pattern == "^[^;]+$" { 2 } else { 1 };
        assert!(text.starts_with(&format!("Would replace {n} match")), "{pattern:?}: {text}");
    }
    // A pattern that names it sees the carriage return.
    assert_eq!(session.call("search", json!({"pattern": r"foo\r$"})), "c.txt:2:foo");
}

/// A file with a very long line, such as a bundle, is named with the reason. The names are bounded.
#[test]
fn every_search_names_the_files_that_it_does_not_search_to_the_end() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let mut bundle = vec![b'x'; 9_000_000];
    bundle.extend_from_slice(b"needle\n");
    repo.write("bundle.min.js", &bundle);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let named = "bundle.min.js (a line is longer than 8 MiB; searched only up to it)";
    for tool in ["search", "grep_search", "search_content", "ripgrep_search"] {
        let arguments = match tool {
            "search_content" => json!({"pattern": "needle", "glob_pattern": "**/*"}),
            _ => json!({"pattern": "needle"}),
        };
        let text = session.call(tool, arguments);
        assert!(
            text.contains("[Warning: 1 file(s) were not searched to the end]"),
            "{tool}: {text}"
        );
        assert!(text.contains(named), "{tool}: {text}");
    }
    let grep = daemon.quack(&["grep", "needle", "-C", repo.path().to_str().unwrap()]);
    let shown = grep.stdout() + &grep.stderr();
    assert!(shown.contains("bundle.min.js: a line is longer than 8 MiB"), "{shown}");
    for n in 0..7 {
        repo.write(&format!("b{n}.js"), &bundle);
    }
    let text = session.call("search", json!({"pattern": "absent"}));
    assert!(text.contains("[Warning: 8 file(s) were not searched to the end]"), "{text}");
    assert_eq!(text.matches("[Warning] ").count(), 5, "{text}");
}
