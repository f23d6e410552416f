//! The subcommands, as users and scripts run them.

use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

#[test]
fn help_and_version_need_no_daemon() {
    let world = Daemon::absent();
    let help = world.quack(&["--help"]).ok();
    for verb in [
        "demo",
        "tool",
        "say",
        "follow",
        "sessions",
        "workspaces",
        "new",
        "activate",
        "delete",
        "state",
        "ps",
        "remote",
        "abort",
        "doctor",
        "logs",
        "daemon",
        "stop",
        "version",
    ] {
        assert!(help.contains(verb), "{verb} is missing in: {help}");
        let own = world.quack(&[verb, "--help"]).ok();
        assert!(own.contains("Examples"), "{verb} has no examples: {own}");
    }
    assert!(!help.contains("\n  worker"), "the worker verb is hidden: {help}");
    assert_eq!(world.quack(&["help"]).ok(), help);
    assert_eq!(world.quack(&["help", "say"]).ok(), world.quack(&["say", "--help"]).ok());
    assert!(world.quack(&["version"]).ok().contains(env!("CARGO_PKG_VERSION")));
    let version = world.quack(&["version", "--json"]).json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(!world.socket().exists());
}

#[test]
fn usage_errors_are_2_and_go_to_stderr() {
    let world = Daemon::absent();
    for arguments in [
        &["--nonsense"][..],
        &["tool"],
        &["tool", "bash", "x", "--timeout", "soon"],
        &["abort", "a", "b"],
    ] {
        let run = world.quack(arguments);
        assert_eq!((run.code(), run.stdout()), (Some(2), String::new()), "{arguments:?}: {run:?}");
        assert!(!run.stderr().is_empty());
    }
}

#[test]
fn tool_starts_the_daemon_and_prints_the_tools_text() {
    let world = Daemon::absent();
    let repo = world.repo("a");
    let dir = repo.path().to_str().unwrap();
    let run = world.quack(&["tool", "read_file", "README.md", "-C", dir]);
    assert_eq!(run.ok(), "# A repository\n");
    assert_eq!(world.quack(&["tool", "bash", "echo hi", "-C", dir]).ok(), "hi\n\n[Exit code: 0]\n");
    let arguments = json!({"pattern": "needle", "include": "*.rs"}).to_string();
    let run = world.quack(&["tool", "grep_search", &arguments, "-C", dir]);
    assert_eq!(run.ok(), "src/main.rs:2:    println!(\"needle\");\n");

    let failed = world.quack(&["tool", "read_file", "missing", "-C", dir]);
    assert_eq!(
        (failed.code(), failed.stdout().trim_end()),
        (Some(1), "Error: File not found at 'missing'")
    );
    let failed = world.quack(&["tool", "bash", "exit 7", "-C", dir, "--json"]);
    assert_eq!(failed.code(), Some(1));
    assert_eq!(
        (&failed.json()["exitCode"], &failed.json()["text"]),
        (&json!(7), &json!("\n[Exit code: 7]"))
    );
    let late = world.quack(&["tool", "bash", "sleep 60", "-C", dir, "--timeout", "300ms"]);
    assert_eq!(late.code(), Some(4), "{late:?}");
    let safe = world.quack(&["tool", "bash", "touch x", "-C", dir, "--safe"]);
    assert_eq!(safe.stdout().trim_end(), "Error: Command not allowed in safe mode");
    assert_eq!(safe.code(), Some(1));

    assert_eq!(world.quack(&["stop"]).code(), Some(0));
    assert!(!world.socket().exists());
    assert_eq!(world.quack(&["stop"]).code(), Some(0), "stopping twice is fine");
}

#[test]
fn tool_reads_its_arguments_from_standard_input() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let mut child = daemon
        .command(&["tool", "bash", "-", "-C", repo.path().to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(br#"{"command":"echo from stdin"}"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "from stdin\n\n[Exit code: 0]\n");
}

#[test]
fn sessions_and_ps_show_what_there_is() {
    let daemon = Daemon::start();
    assert!(daemon.quack(&["sessions"]).ok().contains("No sessions yet."));
    assert_eq!(daemon.quack(&["sessions", "--json"]).json(), json!([]));
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let table = daemon.quack(&["sessions", "--all"]).ok();
    assert!(table.starts_with("SESSION"), "{table}");
    assert!(table.contains("a ◇") && table.contains("idle"), "{table}");
    let rows = daemon.quack(&["sessions", "--json"]).json();
    assert_eq!((&rows[0]["id"], &rows[0]["isActive"]), (&json!(session.id), &json!(true)));
    let tree = daemon.quack(&["ps"]).ok();
    for part in [
        "supervisor",
        "─ a  ",
        "workspace-write",
        &daemon.pid().to_string(),
        &session.pid("pid").to_string(),
    ] {
        assert!(tree.contains(part), "{part} is missing in: {tree}");
    }
    assert_eq!(
        daemon.quack(&["ps", "--json"]).json()["workers"][0]["sessionId"],
        session.id.as_str()
    );
    assert!(!tree.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn attach_shows_the_session_and_makes_it_active() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let shown = daemon.quack(&[repo.path().to_str().unwrap(), "--no-follow"]).ok();
    assert!(shown.starts_with("a  "), "{shown}");
    let sessions = daemon.wire().request("sessions", json!({}));
    assert_eq!(sessions["sessions"][0]["isActive"], true);
    for risky in ["/", daemon.home().to_str().unwrap()] {
        let refused = daemon.quack(&[risky]);
        assert_eq!(refused.code(), Some(2), "{refused:?}");
        assert!(refused.stderr().contains("name a directory"), "{refused:?}");
        let forced = daemon.quack(&[risky, "--force", "--no-follow"]);
        assert_eq!(forced.code(), Some(1), "{forced:?}");
        assert!(forced.stderr().contains("Not a workspace: "), "{forced:?}");
    }
}

#[test]
fn abort_ends_a_call_from_another_terminal() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let nothing = daemon.quack(&["abort", "a"]);
    assert_eq!(nothing.code(), Some(1));
    assert!(nothing.stderr().contains("No running operation to abort"), "{nothing:?}");
    let call = session.begin("bash", json!("sleep 60"));
    wait_for("the command to run", || {
        daemon.descendants().iter().any(|process| process.name == "sleep").then_some(())
    });
    assert_eq!(daemon.quack(&["abort", "--session", "duck-1"]).code(), Some(0));
    let text = call.text();
    assert!(text.contains("[Process aborted]"), "{text}");
}

#[test]
fn a_daemon_that_cannot_start_is_explained() {
    let world = Daemon::absent();
    std::fs::write(world.app(), "a file in the way").unwrap();
    let run = world.quack(&["sessions"]);
    assert_eq!(run.code(), Some(3), "{run:?}");
    assert!(run.stderr().contains("not a directory"), "{run:?}");
    assert_eq!(run.stdout(), "");
    let run = world.quack(&["sessions", "--json"]);
    assert_eq!((run.code(), &run.json()["error"]["code"]), (Some(3), &"no_daemon".into()));
}

#[test]
fn a_daemon_started_by_a_verb_outlives_it_and_serves_the_next() {
    let world = Daemon::absent();
    world.quack(&["sessions"]).ok();
    let first = world.wire().request("ping", json!({}));
    world.quack(&["sessions"]).ok();
    assert_eq!(world.wire().request("ping", json!({}))["pid"], first["pid"]);
    let pid = i32::try_from(first["pid"].as_i64().unwrap()).unwrap();
    assert_eq!(nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid))).unwrap().as_raw(), pid);
    world.quack(&["stop"]).ok();
    let gone: Value =
        json!(crate::harness::Process::find(pid).is_none_or(|process| process.state == 'Z'));
    assert_eq!(gone, true);
}

/// The subcommands that the help lists.
fn verbs(help: &str) -> Vec<&str> {
    let (_, listed) = help.split_once("\nRun\n").expect("groups of verbs");
    let (listed, _) = listed.split_once("\nOptions: ").expect("options");
    let rows = listed.lines().filter_map(|line| line.strip_prefix("  "));
    rows.filter_map(|row| row.split("  ").next()).flat_map(|names| names.split(", ")).collect()
}

#[test]
fn completions_and_manual_pages_have_every_verb() {
    let world = Daemon::absent();
    let help = world.quack(&["--help"]).ok();
    let all = verbs(&help);
    assert!(30 < all.len(), "{all:?}");
    let pages = world.home().join("man");
    world.quack(&["man", pages.to_str().unwrap()]).ok();
    for verb in all.iter().filter(|verb| **verb != "help") {
        let mut completing = world.command(&["--", "quack", verb]);
        completing.env("QUACK_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "1");
        let offered = String::from_utf8(completing.output().unwrap().stdout).unwrap();
        assert!(offered.lines().any(|word| word == *verb), "{verb}: {offered}");
        let page = std::fs::read_to_string(pages.join(format!("quack-{verb}.1"))).unwrap();
        assert!(page.contains("Examples") && page.contains("json"), "{verb}: {page}");
    }
}

/// Words of the first example in the help of a subcommand, without the name of the program.
fn example(help: &str) -> Vec<&str> {
    let (_, examples) = help.split_once("Examples:\n").expect("examples");
    let first = examples.lines().next().unwrap_or_default().trim();
    let words = first.split_whitespace().skip(1).take_while(|word| ![">", "|"].contains(word));
    let words: Vec<&str> = words.collect();
    assert!(!first.contains(['\'', '"']) && !first.contains("  "), "{first} needs a row in CALLS");
    words
}

/// No subcommand fails differently because its output has no reader. Subcommands without a row are
/// called as in their first example.
/// A call of each subcommand whose help has no example that can run here.
const CALLS: &[&[&str]] = &[
    &["--help"],
    &[".", "--no-follow"],
    &["demo"],
    &["tool", "bash", "echo hi"],
    &["grep", "needle"],
    &["find"],
    &["replace", "--dry-run", "needle", "thread"],
    &["say", "hello"],
    &["run", "-d", "--", "true"],
    &["attach", "duck-1"],
    &["detach", "duck-1"],
    &["play", "/dev/null"],
    &["agents"],
    &["follow", "--session", "duck-1"],
    &["jobs", "kill", "job-1"],
    &["tools"],
    &["login"],
    &["rpc", "--no-session"],
    &["fork", "--list"],
    &["sessions", "--all"],
    &["new", "--name", "second"],
    &["activate", "duck-1"],
    &["delete", "second", "--yes"],
    &["ps"],
    &["ps", "--watch=1"],
    &["sandbox", "show"],
    &["forward", "--list"],
    &["mcp", "install", "cursor", "--print"],
    &["remote", "status"],
    &["pin", "duck-1"],
    &["unpin", "duck-1"],
    &["doctor"],
    &["doctor", "--tree"],
    &["logs"],
    &["logs", "-f"],
    &["gc", "--dry-run"],
    &["daemon"],
    // A restart would leave a daemon that the test does not own.
    &["restart", "--help"],
    &["service", "status"],
    &["uninstall", "--dry-run"],
    &["config", "show"],
    &["completions", "zsh"],
    &["help"],
    &["stop"],
];

#[test]
fn no_verb_panics_when_nobody_reads_what_it_prints() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    daemon.wire().attach(repo.path()).bash("true");
    let help = daemon.quack(&["--help"]).ok();
    let others = verbs(&help).into_iter().filter(|verb| CALLS.iter().all(|call| call[0] != *verb));
    let helps: Vec<String> = others.map(|verb| daemon.quack(&[verb, "--help"]).ok()).collect();
    let examples: Vec<Vec<&str>> = helps.iter().map(|help| example(help)).collect();
    assert!(examples.contains(&vec!["schema"]), "{examples:?}");
    // The last call stops the daemon.
    for call in examples.iter().map(Vec::as_slice).chain(CALLS.iter().copied()) {
        for json in [&[][..], &["--json"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = daemon.command(&[call, json].concat());
            command.current_dir(repo.path()).stdin(Stdio::null());
            let output = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
            let output = output.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!stderr.contains("panicked"), "{call:?} {json:?}: {stderr}");
            // No subcommand ends by a signal or with the exit code of a panic.
            assert!(matches!(output.status.code(), Some(0..=4)), "{call:?} {json:?}: {output:?}");
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = daemon.command(&[call, json].concat());
            command.current_dir(repo.path()).stdin(Stdio::null());
            command.stdout(writer.try_clone().unwrap()).stderr(writer);
            let code = command.status().unwrap().code();
            assert!(matches!(code, Some(0..=4)), "{call:?} {json:?}: {code:?}");
        }
    }
}

#[test]
fn a_session_that_there_is_not_comes_with_those_that_may_be_meant() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let none = daemon.quack(&["state", "--session", "duck-1"]);
    assert_eq!(none.code(), Some(1));
    assert!(
        none.stderr().ends_with("Session not found: duck-1; there is none; `quack` makes one\n")
    );
    daemon.wire().attach(repo.path());
    for args in [
        &["state", "--session", "duk-1"][..],
        &["activate", "duk-1"],
        &["follow", "--session", "duk-1"],
        &["tool", "bash", "true", "--session", "duk-1"],
        &["grep", "x", "--session", "duk-1"],
        &["say", "x", "--session", "duk-1"],
        &["abort", "--session", "duk-1"],
        &["pin", "duk-1"],
        &["delete", "duk-1", "--yes"],
        &["sandbox", "show", "--session", "duk-1"],
    ] {
        let run = daemon.quack(args);
        // 1 of `grep` means that nothing was found.
        let code = if args[0] == "grep" { 2 } else { 1 };
        assert_eq!(run.code(), Some(code), "{args:?}: {run:?}");
        let told = "Session not found: duk-1; did you mean `a`?";
        assert!(run.stderr().contains(told), "{args:?}: {run:?}");
    }
    let other = daemon.quack(&["state", "--session", "zzz"]);
    assert!(other.stderr().contains("`quack sessions` lists them"), "{other:?}");
    let tool = daemon.quack(&["tool", "read_fil", "x", "-C", repo.path().to_str().unwrap()]);
    assert_eq!(tool.code(), Some(1), "{tool:?}");
    assert!(tool.stderr().contains("did you mean `read_file`?"), "{tool:?}");
    let verb = daemon.quack(&["sesions"]);
    assert_eq!(verb.code(), Some(2));
    assert!(verb.stderr().contains("did you mean `quack sessions`?"), "{verb:?}");
}

#[test]
fn a_full_disk_behind_stdout_is_an_error_with_a_code_of_its_own_and_a_closed_pipe_is_none() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let session = daemon.wire().attach(repo.path()).id.clone();
    let run = |args: &[&str], out: Stdio| {
        let mut command = daemon.command(args);
        let command = command.current_dir(repo.path()).stdin(Stdio::null()).stdout(out);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let named = ["log", "show", "nothing"];
    assert_eq!(run(&named, Stdio::null()).0, Some(1));
    for (args, code) in [
        // 1 would mean that nothing was found.
        (&["grep", "needle"][..], 2),
        (&["grep", "--json", "needle"], 2),
        (&["grep", "-c", "needle"], 2),
        (&["find"], 2),
        (&["find", "--json"], 2),
        (&["tool", "bash", "echo hi"], 1),
        (&["tool", "bash", "--raw", "echo hi"], 125),
        (&["tool", "read_file", "README.md"], 1),
        (&["log", "--all"], 1),
        (&["sessions"], 1),
        (&["sessions", "--json"], 1),
        (&["state", "--session", &session], 1),
        (&["config", "show"], 1),
        (&["--help"], 1),
        (&["grep", "--help"], 1),
        (&["--version"], 1),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (found, error) = run(args, full.into());
        assert_eq!(found, Some(code), "{args:?} {error}");
        assert!(error.contains("error: cannot write to stdout: "), "{args:?} {error}");
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let (found, error) = run(args, closed.into());
        assert!(found == Some(0) && !error.contains("error"), "{args:?} {found:?} {error}");
    }
}
