//! `quack tool bash` in the first hour of a new user: output while the command runs, Ctrl-C,
//! `--detach`, `--raw`, the default deadline, and the prompt of `quack stop`.

use crate::harness::{Daemon, Running, Terminal, wait_for};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// A `quack` command in a directory.
fn verb(daemon: &Daemon, dir: &Path, args: &[&str]) -> Command {
    let mut command = daemon.command(args);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// Runs a subcommand to its end. Returns the exit code, stdout and stderr.
fn ran(daemon: &Daemon, dir: &Path, args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let output = verb(daemon, dir, args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), output.stdout, stderr)
}

/// Creates a FIFO in the workspace. A command that reads it blocks, and the test finds the command
/// by the name.
fn block(repo: &Path) {
    nix::unistd::mkfifo(&repo.join("block"), Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/usr/bin/cat", repo.join("blocked")).unwrap();
}

/// Whether this process ignores SIGHUP, as `nohup` makes it.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

const BLOCK: &str = "echo begun; ./blocked block; echo never";

fn is_blocked(daemon: &Daemon) -> bool {
    daemon.descendants().iter().any(|process| process.name == "blocked")
}

#[track_caller]
fn wait_until_gone(daemon: &Daemon) {
    wait_for("the command to end", || (!is_blocked(daemon)).then_some(()));
}

fn calls(daemon: &Daemon) -> usize {
    let ps = daemon.wire().request("quack.ps", json!({}));
    let workers = ps["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker["calls"].as_array().unwrap().len()).sum()
}

#[test]
fn output_comes_while_the_command_runs_and_an_interrupt_ends_this_call_alone() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    block(repo.path());
    // Another call of the same session continues.
    let other = daemon.gated("other", "echo other");
    let other = Running::start(verb(&daemon, repo.path(), &["tool", "bash", &other]));
    wait_for("the other call", || (calls(&daemon) == 1).then_some(()));
    // Under `nohup` the subcommand must ignore SIGHUP, and inherits that from this test.
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    let signals =
        signals.into_iter().filter(|signal| *signal != Signal::SIGHUP || !ignores_hangup());
    for signal in signals {
        let person = Terminal::start(verb(&daemon, repo.path(), &["tool", "bash", BLOCK]));
        person.see("begun\n");
        wait_for("the command to block", || is_blocked(&daemon).then_some(()));
        person.signal(signal);
        wait_until_gone(&daemon);
        let (shown, code) = person.end();
        assert_eq!(code, Some(130), "{signal}: {shown}");
        let end = "[Process aborted]\n[Killed by signal 15]";
        assert!(shown.contains(end), "{signal}: {shown}");
        // The output was shown before and is not shown again.
        assert!(!shown.contains("begun") && !shown.contains("never"), "{signal}: {shown}");
    }
    assert_eq!(calls(&daemon), 1);
    daemon.open_gate("other");
    assert_eq!(other.lines_to("[Exit code: 0]"), ["other", "", "[Exit code: 0]"]);
    assert_eq!(other.wait().0, Some(0));
}

#[test]
fn the_signal_that_ended_a_command_is_named_in_every_view() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let shown = |args: &[&str]| String::from_utf8(ran(&daemon, repo.path(), args).1).unwrap();
    let text = shown(&["tool", "bash", "echo begun; kill -9 $$"]);
    assert!(text.ends_with("begun\n\n[Killed by signal 9]\n"), "{text}");
    let document: Value =
        serde_json::from_str(&shown(&["tool", "bash", "kill -9 $$", "--json"])).unwrap();
    assert_eq!((&document["signal"], &document["exitCode"]), (&json!(9), &Value::Null));
    assert_eq!(ran(&daemon, repo.path(), &["tool", "bash", "--raw", "kill -9 $$"]).0, Some(137));
    shown(&["tool", "bash", "--detach", "kill -9 $$"]);
    assert!(shown(&["jobs", "-f", "job-1"]).ends_with("\n[Killed by signal 9]\n"));
    assert!(shown(&["jobs"]).contains(": signal 9  "), "{}", shown(&["jobs"]));
    block(repo.path());
    let person = Terminal::start(verb(&daemon, repo.path(), &["tool", "bash", BLOCK]));
    wait_for("the command to block", || is_blocked(&daemon).then_some(()));
    person.interrupt();
    person.see("[Killed by signal 15]");
    person.end();
    let log = wait_for("the journal", || {
        Some(shown(&["log"])).filter(|log| log.contains("aborted, killed by signal 15, "))
    });
    assert_eq!(log.matches("  killed by signal 9, ").count(), 4, "{log}");
    let line = log.lines().find(|line| line.contains("begun; kill")).unwrap();
    let details = shown(&["log", "show", line.rsplit(' ').next().unwrap()]);
    assert!(details.ends_with("[Killed by signal 9]\n"), "{details}");
    assert!(!(text + &log + &details).contains("unknown"));
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    block(repo.path());
    let person = Terminal::start(verb(&daemon, repo.path(), &["tool", "bash", BLOCK]));
    person.see("begun\n");
    wait_for("the command to block", || is_blocked(&daemon).then_some(()));
    // The daemon cannot reply, so the client would wait for the end of the call.
    daemon.signal(Signal::SIGSTOP);
    person.interrupt();
    person.see("press Ctrl-C again to exit at once");
    person.interrupt();
    let (shown, code) = person.end();
    assert_eq!(code, Some(130), "{shown}");
    daemon.signal(Signal::SIGCONT);
    wait_until_gone(&daemon);
}

#[test]
fn a_client_that_is_killed_ends_its_streamed_call() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    block(repo.path());
    for raw in [&[][..], &["--raw"]] {
        let args = [&["tool", "bash", BLOCK][..], raw].concat();
        let client = Running::start(verb(&daemon, repo.path(), &args));
        assert_eq!(client.line(), "begun");
        wait_for("the command to block", || is_blocked(&daemon).then_some(()));
        client.signal(Signal::SIGKILL);
        wait_until_gone(&daemon);
        wait_for("the call to end", || (calls(&daemon) == 0).then_some(()));
        drop(client);
    }
}

#[test]
fn output_is_printed_once_with_its_closing_lines_and_other_tools_print_as_before() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let text = |args: &[&str]| {
        let (code, stdout, stderr) = ran(&daemon, repo.path(), args);
        // Other tests cover the choice of the session.
        let stderr = stderr.lines().filter(|line| !line.starts_with("session one "));
        (code, String::from_utf8(stdout).unwrap() + &stderr.collect::<String>())
    };
    for (command, code, expected) in [
        ("echo hello", 0, "hello\n\n[Exit code: 0]\n"),
        ("printf hello", 0, "hello\n[Exit code: 0]\n"),
        ("true", 0, "\n[Exit code: 0]\n"),
        ("echo one; exit 3", 1, "one\n\n[Exit code: 3]\n"),
        ("echo oh >&2", 0, "oh\n\n[Exit code: 0]\n"),
        ("printf '\\033[31mred\\033[0m\\n'", 0, "red\n\n[Exit code: 0]\n"),
        (
            // The shell waits for the inner one, which has closed the output.
            "(sleep 60 &) >/dev/null 2>&1; echo x",
            0,
            "x\n\n[1 background process was ended]\n[Exit code: 0]\n",
        ),
    ] {
        assert_eq!(
            text(&["tool", "bash", command]),
            (Some(code), expected.to_owned()),
            "{command}"
        );
    }
    // A long output is printed completely, with the name of its spill file.
    let (code, shown) = text(&["tool", "bash", "seq 1 100000"]);
    let numbers: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let end = shown.strip_prefix(&numbers).expect("all of the output");
    assert_eq!(code, Some(0));
    assert!(end.starts_with("\n[588895 bytes of output; full output: /"), "{end}");
    assert!(end.ends_with("]\n[Exit code: 0]\n"), "{end}");
    // A refused call, and another tool.
    let (code, shown) = text(&["tool", "bash", "--safe", "touch x"]);
    assert!(code == Some(1) && shown.starts_with("Error: "), "{shown}");
    let (code, shown) = text(&["tool", "read_file", "README.md"]);
    assert!(code == Some(0) && shown.starts_with("# A repository\n"), "{shown}");
    repo.write("binary", b"a\0b\n");
    let (code, stdout, stderr) = ran(&daemon, repo.path(), &["tool", "read_file", "binary"]);
    assert_eq!((code, stdout.as_slice()), (Some(0), &b"a\0b\n"[..]));
    assert!(stderr.contains("this is a binary file"), "{stderr}");
    let person = Terminal::start(verb(&daemon, repo.path(), &["tool", "read_file", "binary"]));
    let (shown, code) = person.end();
    assert!(code == Some(0) && shown.contains("this is a binary file"), "{shown}");
    assert!(!shown.contains("a\u{2400}b") && !shown.contains("a\0b"), "{shown:?}");
    // The JSON document is the protocol's reply, without the fields that only streamed calls have.
    let (code, stdout, _) = ran(&daemon, repo.path(), &["tool", "bash", "echo hello", "--json"]);
    let document: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!((code, &document["text"]), (Some(0), &json!("hello\n\n[Exit code: 0]")));
    assert_eq!(document.get("closing"), None);
}

#[test]
fn a_worker_that_dies_is_reported_after_the_output_so_far() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let gated = daemon.gated("never", "true");
    let command = format!("printf half; {gated}");
    let person = Terminal::start(verb(&daemon, repo.path(), &["tool", "bash", &command]));
    person.see("half");
    wire.request("quack.kill", json!({"sessionId": session.id}));
    let (shown, code) = person.end();
    assert!(shown.contains("\nError: Worker died during bash"), "{shown:?}");
    assert_eq!(code, Some(1), "{shown}");
}

#[test]
fn raw_is_byte_exact_with_both_streams_and_the_exit_code() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let bytes: Vec<u8> =
        (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    repo.write("binary", &bytes);
    let raw = |command: &str| ran(&daemon, repo.path(), &["tool", "bash", "--raw", command]);
    let (code, stdout, stderr) = raw("cat binary");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout == bytes, "{} of {} bytes", stdout.len(), bytes.len());
    let (code, stdout, stderr) = raw("printf 'a\\0b\\377'; printf '\\033[1mno\\n' >&2; exit 42");
    assert_eq!((code, &*stdout, stderr.as_str()), (Some(42), &b"a\0b\xff"[..], "\u{1b}[1mno\n"));
    for (command, expected) in
        [("true", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        assert_eq!(raw(command), (Some(expected), Vec::new(), String::new()), "{command}");
    }
    // Exit codes of quack itself come with a line on stderr.
    for (args, expected) in [
        (&["bash", "sleep 60", "--timeout", "100ms"][..], 124),
        (&["bash", "touch x", "--safe"], 125),
        (&["bash", "true", "--session", "nobody"], 125),
        (&["read_file", "README.md"], 125),
        (&["bash", "true", "--nonsense"], 125),
        (&["bash", "{\"command\":\"true\",\"background\":true}"], 125),
    ] {
        let args = [&["tool", "--raw"][..], args].concat();
        let (code, stdout, stderr) = ran(&daemon, repo.path(), &args);
        assert_eq!((code, stdout.len()), (Some(expected), 0), "{args:?}: {stderr}");
        assert!(stderr.contains("error: "), "{args:?}: {stderr}");
    }
    let (code, _, stderr) = ran(&Daemon::absent(), repo.path(), &["stop", "--json"]);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn a_reader_that_leaves_ends_the_call_quietly_and_one_that_is_slow_makes_the_command_wait() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    for raw in [&[][..], &["--raw"]] {
        let args = [&["tool", "bash", "yes", "--timeout", "10m"][..], raw].concat();
        let mut command = verb(&daemon, repo.path(), &args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut first = [0; 4];
        stdout.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"y\ny\n");
        // The test stops reading the pipe: all buffers fill, then the command blocks.
        let stands = |name: &str| {
            let below = daemon.descendants();
            let pid = below.iter().find(|process| process.name == name).map(|process| process.pid);
            let wchan = pid.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/wchan")));
            wchan.and_then(Result::ok).filter(|wchan| wchan.contains("pipe"))
        };
        wait_for("the command to wait for its reader", || stands("yes"));
        drop(stdout);
        wait_for("the command to end", || {
            daemon.descendants().iter().all(|process| process.name != "yes").then_some(())
        });
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.lines().all(|line| line.starts_with("session one ")), "{args:?}: {stderr}");
    }
}

#[test]
fn detach_leaves_the_command_running_as_a_job() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    block(repo.path());
    let person = Terminal::start(verb(&daemon, repo.path(), &["tool", "bash", "--detach", BLOCK]));
    let (shown, code) = person.end();
    assert_eq!(code, Some(0), "{shown}");
    for part in ["job-1", "quack jobs -f job-1 --session ", "quack jobs kill job-1 --session "] {
        assert!(shown.contains(part), "{shown}");
    }
    wait_for("the command to block", || is_blocked(&daemon).then_some(()));
    // The worker may read the output after the command blocks.
    wait_for("the output", || {
        let (code, stdout, _) = ran(&daemon, repo.path(), &["tool", "job_output", "job-1"]);
        assert_eq!(code, Some(0));
        stdout.starts_with(b"begun\n").then_some(())
    });
    assert!(is_blocked(&daemon));
    assert_eq!(ran(&daemon, repo.path(), &["tool", "job_kill", "job-1"]).0, Some(0));
    wait_until_gone(&daemon);
    assert_eq!(ran(&daemon, repo.path(), &["tool", "--detach", "read_file", "a"]).0, Some(2));
}

#[test]
fn with_json_an_interrupt_is_an_error_document() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    block(repo.path());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut command = verb(&daemon, repo.path(), &["tool", "bash", BLOCK, "--json"]);
        let client = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the command to block", || is_blocked(&daemon).then_some(()));
        let pid = nix::unistd::Pid::from_raw(i32::try_from(client.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
        let output = client.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signal}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["code"], "interrupted", "{document}");
        let message = "interrupted; the command was killed by signal 15";
        assert_eq!(document["error"]["message"], message, "{document}");
        assert_eq!(document.as_object().unwrap().len(), 1, "{document}");
        wait_until_gone(&daemon);
    }
}

#[test]
fn the_configured_default_deadline_wins_over_the_built_in_one_and_the_flag_over_both() {
    let mut daemon = Daemon::absent();
    let repo = daemon.repo("one");
    std::fs::create_dir_all(daemon.app()).unwrap();
    for (setting, expected) in [("", 120_000), ("[tools]\ndefault_timeout_s = 300\n", 300_000)] {
        daemon.configure(setting);
        daemon.boot();
        for (flag, expected) in [(&[][..], expected), (&["--timeout", "45"], 45_000)] {
            let args = [&["tool", "bash", "sleep 600"][..], flag].concat();
            let client = Running::start(verb(&daemon, repo.path(), &args));
            let deadline = wait_for("the call", || {
                let ps = daemon.wire().request("quack.ps", json!({}));
                ps["workers"][0]["calls"][0]["deadlineMs"].as_u64()
            });
            assert_eq!(deadline, expected, "{setting} {flag:?}");
            assert_eq!(client.interrupt().0, Some(130));
            wait_for("the call to end", || (calls(&daemon) == 0).then_some(()));
        }
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
    }
}

#[test]
fn stop_lists_the_work_and_asks_at_a_terminal() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("one");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let _call = session.begin("bash", json!({"command": "sleep 600"}));
    wait_for("the call", || (calls(&daemon) == 1).then_some(()));
    for (answer, code) in [("n\n", 1), ("\n", 1), ("nonsense\n", 1), ("\x04", 1), ("", 130)] {
        let person = Terminal::start(daemon.command(&["stop"]));
        let shown = person.see("Stop the daemon? [y/N] ");
        assert!(shown.contains("bash"), "{shown}");
        match answer {
            "" => person.interrupt(),
            keys => person.press(keys),
        }
        let (shown, ended) = person.end();
        assert_eq!(ended, Some(code), "{answer:?}: {shown}");
        assert_eq!(calls(&daemon), 1, "{answer:?}: {shown}");
    }
    let person = Terminal::start(daemon.command(&["stop"]));
    person.see("Stop the daemon? [y/N] ");
    person.type_line("y");
    let (shown, code) = person.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Stopped the daemon"), "{shown}");
    daemon.wait();
}

#[test]
fn people_read_words_for_tiers_and_programs_letters() {
    let daemon = Daemon::start();
    let repo = daemon.repo("one");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let tier = session.worker()["tier"].as_str().unwrap().to_owned();
    let words = match tier.as_str() {
        "A" | "B" => "confined",
        "D" | "M" => "partly confined",
        other => panic!("{other}"),
    };
    for args in
        [&["ps"][..], &["state"], &["sandbox", "show"], &["doctor"], &["sandbox", "explain"]]
    {
        let (_, stdout, stderr) = ran(&daemon, repo.path(), args);
        let shown = String::from_utf8(stdout).unwrap();
        assert!(shown.contains(words), "{args:?}: {shown}{stderr}");
        assert!(!shown.contains(&format!("tier {tier}")), "{args:?}: {shown}");
        assert!(!shown.contains(&format!("  {tier}  ")), "{args:?}: {shown}");
    }
    let (_, stdout, _) = ran(&daemon, repo.path(), &["ps", "--json"]);
    let ps: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(ps["workers"][0]["tier"], tier.as_str());
    let person = Terminal::start(verb(&daemon, repo.path(), &["follow"]));
    person.see(words);
    person.interrupt();
    person.end();
    // No help text suggests `--force` for opening a home directory or `/`.
    for args in [&["--help"][..], &["tool", "--help"], &["new", "--help"], &["say", "--help"]] {
        let (_, stdout, _) = ran(&daemon, repo.path(), args);
        assert!(!String::from_utf8(stdout).unwrap().contains("--force"), "{args:?}");
    }
    let (code, stdout, stderr) = ran(&daemon, repo.path(), &["tool", "bash", "true", "-C", "/"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stdout.is_empty() && !stderr.contains("--force"), "{stderr}");
}
