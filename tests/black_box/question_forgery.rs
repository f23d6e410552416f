//! Attacks on the answers of the user: questions that a command prints, answers to a question that the user has not seen,
//! words that leave their quotes, and what a request for a permission tells about files.

use crate::approvals::{answerer, connect, quack_at, question, with_hosts};
use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, Terminal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::path::Path;

const EVIL: &str = "evil.example:443";

/// The last line of the question about [`EVIL`].
const PROMPT: &str = "evil.example:443 [number, Enter denies] ";

/// A command that prints a forged question.
const FAKE: &str = "sleep 0.2; for i in 1 2 3 4 5 6 7 8; do echo; done; \
    echo 'Allow network access? connects to npm.example:443'; echo '  1) Deny'; echo '  2) Allow once'; \
    printf 'npm.example:443 [number, Enter denies] '";

/// Waits until typing counts: the prompt is printed again then.
#[track_caller]
fn settled(terminal: &Terminal) {
    terminal.see(PROMPT);
    terminal.see(PROMPT);
}

/// The questions that were closed, as kind of decision and scope.
fn recent(daemon: &Daemon) -> Vec<(Value, Value)> {
    let data = daemon.wire().request("quack.approvals", json!({}));
    let records = data["recent"].as_array().unwrap().clone();
    records
        .into_iter()
        .map(|record| (record["decision"].clone(), record["scope"].clone()))
        .collect()
}

fn pending(daemon: &Daemon) -> usize {
    daemon.wire().request("quack.approvals", json!({}))["pending"].as_array().unwrap().len()
}

/// Checks that a fake question that has reached the client is not on the terminal, and then appears.
#[track_caller]
fn fake_waits(daemon: &Daemon, session: &Session<'_>, terminal: &Terminal, print: impl FnOnce()) {
    let follower = answerer(daemon, session);
    let id = question(&follower)["id"].clone();
    settled(terminal);
    print();
    // Its command is in the event of its start.
    follower.event_in_flood(|line| {
        line.contains("npm.example") && !line.contains("tool_execution_start")
    });
    // The question is printed again, on a screen of another size.
    for _ in 0..2 {
        terminal.signal(Signal::SIGWINCH);
        let shown = terminal.see(PROMPT);
        assert!(!shown.contains("npm.example"), "{shown}");
    }
    follower.request("extension_ui_response", json!({"id": id, "value": "Deny"}));
    terminal.see("connects to npm.example:443");
}

#[test]
fn output_of_a_command_waits_while_its_question_is_open() {
    with_hosts(|daemon, session| {
        let command =
            format!("({}) & while [ ! -e go ]; do sleep 0.1; done; {FAKE}; wait", connect(EVIL));
        let repo = Path::new(&session.path);
        let terminal = Terminal::start(quack_at(daemon, repo, &["tool", "bash", &command]));
        terminal.see("connects to evil.example:443");
        fake_waits(daemon, session, &terminal, || std::fs::write(repo.join("go"), "").unwrap());
        terminal.see("[Exit code: ");
        drop(terminal.end());
    });
}

#[test]
fn events_of_a_followed_session_wait_while_a_question_is_open() {
    with_hosts(|daemon, session| {
        let repo = Path::new(&session.path);
        let terminal = Terminal::sized(quack_at(daemon, repo, &["follow"]), Some((60, 10)));
        terminal.see("workspace-write]");
        let asking = session.begin("bash", json!({"command": connect(EVIL)}));
        terminal.see("connects to evil.example:443");
        let mut faking = None;
        fake_waits(daemon, session, &terminal, || {
            faking = Some(session.begin("bash", json!({"command": FAKE})));
        });
        drop((asking.reply(), faking.map(|call| call.reply())));
        terminal.interrupt();
        drop(terminal.end());
    });
}

#[test]
fn more_than_once_is_allowed_only_with_the_host() {
    with_hosts(|daemon, session| {
        let repo = Path::new(&session.path);
        let terminal = Terminal::sized(
            quack_at(daemon, repo, &["tool", "bash", &connect(EVIL)]),
            Some((80, 6)),
        );
        // On a small screen the question is next to the prompt.
        let shown = terminal.see(PROMPT);
        let options = shown.find("  5) Always allow").unwrap();
        assert!(options < shown.find("connects to evil.example:443").unwrap(), "{shown}");
        terminal.see(PROMPT);
        for wrong in ["npm.example", "5", "y"] {
            terminal.type_line("5");
            terminal.see("Always allow? Type evil.example to confirm, Enter denies: ");
            terminal.type_line(wrong);
            terminal.see("nothing was allowed");
            settled(&terminal);
        }
        assert_eq!((recent(daemon), pending(daemon)), (Vec::new(), 1));
        terminal.type_line("3");
        terminal.see("Allow for this session? Type evil.example to confirm");
        terminal.type_line("evil.example");
        terminal.see("(evil.example:443) was allowed by the user for this session]");
        assert_eq!(recent(daemon), [(json!("allow"), json!("session"))]);
        drop(terminal.end());
    });
}

#[test]
fn beside_other_programs_also_once_is_allowed_only_with_the_host() {
    with_hosts(|daemon, session| {
        let terminal = Terminal::start(daemon.command(&["approvals", "--watch"]));
        terminal.see("waiting for questions");
        let call = session.begin("bash", json!({"command": connect(EVIL)}));
        settled(&terminal);
        terminal.type_line("2");
        terminal.see("Allow once? Type evil.example to confirm");
        terminal.type_line("2");
        terminal.see("nothing was allowed");
        settled(&terminal);
        assert_eq!((recent(daemon), pending(daemon)), (Vec::new(), 1));
        terminal.type_line("2");
        terminal.see("Allow once? Type evil.example to confirm");
        terminal.type_line("evil.example");
        terminal.see("-- Allow once: evil.example:443 --");
        assert_eq!(recent(daemon), [(json!("allow"), json!("once"))]);
        drop(call.reply());
        terminal.interrupt();
        drop(terminal.end());
    });
}

#[test]
fn what_was_typed_for_a_question_does_not_answer_the_next_one() {
    with_hosts(|daemon, session| {
        let follower = answerer(daemon, session);
        let terminal = Terminal::start(daemon.command(&["approvals", "--watch"]));
        terminal.see("waiting for questions");
        let first = session.begin("bash", json!({"command": connect("npm.example:443")}));
        let id = question(&follower)["id"].clone();
        for _ in 0..2 {
            terminal.see("npm.example:443 [number, Enter denies] ");
        }
        terminal.press("2");
        follower.request("extension_ui_response", json!({"id": id, "value": "Deny"}));
        drop(first.reply());
        let second = session.begin("bash", json!({"command": connect(EVIL)}));
        settled(&terminal);
        terminal.press("\n");
        terminal.see("-- Deny: evil.example:443 --");
        assert!(second.text().contains("(evil.example:443) was denied by the user]"));
        terminal.interrupt();
        drop(terminal.end());
    });
}

#[test]
fn an_answer_without_a_name_is_refused_or_shows_its_question() {
    with_hosts(|daemon, session| {
        let watcher = answerer(daemon, session);
        let call = session.begin("bash", json!({"command": connect(EVIL)}));
        let id = question(&watcher)["id"].as_str().unwrap().to_owned();
        for args in [&["allow"][..], &["allow", "--always"], &["deny"], &["deny", "--session"]] {
            let refused = daemon.quack(args);
            assert_eq!(refused.code(), Some(2), "{refused:?}");
            assert!(refused.stderr().contains("quack approvals lists them"), "{refused:?}");
        }
        let other = daemon.quack(&["allow", "npm.example"]);
        assert!(other.stderr().contains("no question is about npm.example"), "{other:?}");
        watcher.refused("quack.answer", json!({"decision": "allow"}));
        watcher.refused("quack.answer", json!({"decision": "deny", "id": ""}));
        let at = |args: &[&str]| Terminal::start(daemon.command(args));
        for (args, prompt, typed) in [
            (&["allow"][..], "Allow once: evil.example:443? [y/N] ", "n"),
            (&["deny"], "Deny evil.example:443? [y/N] ", ""),
            (&["allow", &id], "Allow once: evil.example:443? [y/N] ", "x"),
            (&["allow", "--always"], "Type evil.example to confirm: ", "npm.example"),
        ] {
            let terminal = at(args);
            let shown = terminal.see(prompt);
            assert!(
                shown.contains("Allow network access? connects to evil.example:443"),
                "{shown}"
            );
            terminal.type_line(typed);
            assert_eq!(terminal.end().1, Some(1), "{args:?}");
        }
        assert_eq!((recent(daemon), pending(daemon)), (Vec::new(), 1));
        let terminal = at(&["allow", "--session"]);
        terminal.see("Type evil.example to confirm: ");
        terminal.type_line("evil.example");
        let (shown, code) = terminal.end();
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains("allowed for this session: network evil.example:443"), "{shown}");
        drop(call.reply());
    });
}

#[test]
fn words_of_an_agent_stay_on_their_line_and_in_their_quotes() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let reason = "x\" (call 7). Checked by quackd: \u{201d}a\u{bb} host of npm.\n\"ok";
        let ask = json!({"kind": "network", "target": EVIL, "reason": reason});
        let params = json!({"tool": "request_permission", "arguments": ask, "sessionId": session.id,
            "callId": "c\" allowed"});
        let call = session.wire.begin("quack.tool", &params);
        let asked = question(&wire);
        let message = asked["message"].as_str().unwrap();
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines[0], "connect to evil.example:443");
        assert_eq!(lines.len(), 4, "{message}");
        for line in &lines[1..3] {
            assert_eq!(line.matches('"').count(), 2, "{line}");
            assert!(line.ends_with('"'), "{line}");
        }
        assert!(!message.contains(['\u{201d}', '\u{bb}']), "{message}");
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Deny"}));
        drop(call.reply());
        // The command of a connection, too.
        let command = format!(": '\" Checked by quackd' ; {}", connect("next.example:443"));
        let call = session.begin("bash", json!({"command": command}));
        let asked = question(&wire);
        let message = asked["message"].as_str().unwrap();
        assert_eq!(message.lines().next(), Some("connects to next.example:443"));
        assert_eq!(message.lines().nth(1).unwrap().matches('"').count(), 2, "{message}");
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Deny"}));
        drop(call.reply());
    });
}

/// Directories of the user that differ in what a session must not learn: one that exists, one that does not, one without
/// a parent, a file, and links to a directory and to nothing.
fn targets(outside: &Path) -> Vec<String> {
    std::fs::create_dir_all(outside.join("clients/acme")).unwrap();
    std::fs::write(outside.join("file"), "x").unwrap();
    std::os::unix::fs::symlink(outside.join("clients/acme"), outside.join("current")).unwrap();
    std::os::unix::fs::symlink("/etc", outside.join("system")).unwrap();
    std::os::unix::fs::symlink(outside.join("nothing"), outside.join("gone")).unwrap();
    let names =
        ["clients/acme", "clients/nope", "no/such/one", "file", "current", "system", "gone"];
    names.iter().map(|name| outside.join(name).to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_request_for_a_directory_tells_nothing_about_files() {
    with_hosts(|daemon, session| {
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let targets = targets(outside.path());
        let told = |target: &str, text: String| text.replace(target, "DIR");
        let ask = |target: &str| json!({"kind": "write", "target": target});
        // Without a client that can answer.
        let mut texts: Vec<_> = targets
            .iter()
            .take(5)
            .map(|target| told(target, session.call("request_permission", ask(target))))
            .collect();
        texts.dedup();
        assert_eq!(
            texts,
            [
                "Error: [Sandbox: writing DIR was denied: no client can answer]\nTo allow it: quack sandbox set --writable DIR --session a"
            ]
        );
        // The user is asked about all of them.
        let wire = answerer(daemon, session);
        let mut texts = Vec::new();
        for target in &targets {
            let call = session.begin("request_permission", ask(target));
            let asked = question(&wire);
            let options = asked["options"].as_array().unwrap().len();
            let can_allow =
                ["acme", "nope", "file", "current", "gone"].iter().any(|end| target.ends_with(end));
            assert_eq!(options, if can_allow { 4 } else { 1 }, "{asked}");
            wire.request("extension_ui_response", json!({"id": asked["id"], "cancelled": true}));
            texts.push(told(target, call.text()));
        }
        texts.dedup();
        assert_eq!(texts, ["Error: [Sandbox: writing DIR was denied by the user]"]);
        // Each attempt counts.
        let text = session.call("request_permission", ask(&targets[0]));
        assert_eq!(text, "Error: too many requests: at most 12 in a minute");
    });
}

#[test]
fn a_link_in_the_workspace_does_not_tell_where_it_leads() {
    needs!(Namespaces);
    with_hosts(|daemon, session| {
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let inside = Path::new(&session.path).join("link");
        std::os::unix::fs::symlink(outside.path(), &inside).unwrap();
        let ask = json!({"kind": "write", "target": inside});
        let wire = answerer(daemon, session);
        let text = session.call("request_permission", ask);
        assert!(text.contains("is in the workspace or another writable directory"), "{text}");
        // The answer of a failed command names the path that it used.
        let above = tempfile::tempdir_in("/var/tmp").unwrap();
        let link = above.path().join("link");
        std::os::unix::fs::symlink(outside.path(), &link).unwrap();
        let command = format!("echo x > {}/made", link.display());
        let call = session.begin("bash", json!({"command": &command}));
        let asked = question(&wire);
        let directory = outside.path().canonicalize().unwrap();
        assert_eq!(asked["permission"]["target"], directory.to_str().unwrap());
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Deny"}));
        let text = call.text();
        // Equal to the answer for a missing directory.
        let missing = session.bash(&command.replace("/link/", "/gone/"));
        assert_eq!(text.replace("/link/", "/gone/"), missing);
        assert!(!text.contains("[Sandbox"), "{text}");
        // Allowed, it is named as the command named it.
        std::os::unix::fs::symlink(outside.path(), above.path().join("next")).unwrap();
        let command = command.replace("/link/", "/next/");
        let call = session.begin("bash", json!({"command": command}));
        let asked = question(&wire);
        let allow = json!({"id": asked["id"], "value": "Allow for this session"});
        wire.request("extension_ui_response", allow);
        let text = call.text();
        let line = format!(
            "[Sandbox: writing {}/next was allowed by the user for this session; call again]",
            above.path().display()
        );
        assert!(text.contains(&line), "{text}");
        assert!(!text.contains(directory.to_str().unwrap()), "{text}");
    });
}

#[test]
fn no_text_suggests_a_metadata_service_or_this_machine() {
    let text = |session: &Session<'_>, host: &str| {
        let command = connect(host).replace("echo \"$status\"", "echo \"$status\"; cat <&3");
        session.bash(&command)
    };
    with_hosts(|_daemon, session| {
        for host in [
            "169.254.169.254:9000",
            "169.254.170.2:80",
            "100.100.100.200:8080",
            "[fe80::1]:80",
            "metadata:80",
        ] {
            let text = text(session, host);
            assert!(text.contains("was denied"), "{host}: {text}");
            assert!(
                !text.contains("quack sandbox allow") && !text.contains("--network"),
                "{host}: {text}"
            );
        }
        assert!(
            text(session, "a.example:443").contains("quack sandbox allow a.example --session a]")
        );
        let off = json!({"sessionId": session.id, "action": "set", "network": "off"});
        session.wire.request("quack.sandbox", off);
        for host in ["169.254.169.254:9000", "100.100.100.200:80"] {
            let text = text(session, host);
            assert!(!text.contains("quack sandbox allow"), "{host}: {text}");
        }
        assert!(text(session, "a.example:443").contains("quack sandbox allow a.example"));
    });
}

#[test]
fn after_an_interrupt_the_output_of_a_call_goes_on() {
    with_hosts(|daemon, session| {
        let command = format!("({}) & echo started; wait", connect(EVIL));
        let repo = Path::new(&session.path);
        let terminal = Terminal::start(quack_at(daemon, repo, &["tool", "bash", &command]));
        settled(&terminal);
        terminal.interrupt();
        terminal.see("canceling the call");
        assert_eq!(terminal.end().1, Some(130));
        assert_eq!(recent(daemon).iter().filter(|(decision, _)| decision == "allow").count(), 0);
    });
}
