//! Questions about denied operations: they reach every client that follows, the first answer counts, what it allows lasts
//! as long as it says, and nothing waits without a client that can answer.

use crate::first_hour_network::{PROXY, can_test_network, in_session};
use crate::harness::tier::{self, needs};
use crate::harness::{Daemon, Session, Terminal, Wire, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

const REQUEST: &str = "extension_ui_request";
const CLOSED: &str = "extension_ui_closed";

/// A command that connects through the proxy. Its first line is the status.
pub(crate) fn connect(host: &str) -> String {
    format!(
        "exec 3<>{PROXY}; printf 'CONNECT {host} HTTP/1.1\\r\\n\\r\\n' >&3; read -r status <&3; \
         echo \"$status\""
    )
}

/// A connection that follows a session and can answer.
pub(crate) fn answerer(daemon: &Daemon, session: &Session<'_>) -> Wire {
    let wire = daemon.wire();
    wire.request("follow", json!({"sessionId": session.id, "answers": true}));
    wire
}

/// The question of the next event of its kind.
pub(crate) fn question(wire: &Wire) -> Value {
    wire.events_until(REQUEST).pop().unwrap()["data"].take()
}

fn set_hosts(session: &Session<'_>) {
    let set = json!({"sessionId": session.id, "action": "set", "network": "hosts"});
    session.wire.request("quack.sandbox", set);
}

/// A worker with the policy in force, so that no worker is replaced in the middle of a test.
pub(crate) fn with_hosts(test: impl FnOnce(&Daemon, &Session<'_>)) {
    in_session(|daemon, session| {
        set_hosts(session);
        session.bash("true");
        test(daemon, session);
    });
}

#[test]
fn a_host_is_asked_about_in_the_default_policy_and_the_first_answer_counts() {
    in_session(|daemon, session| {
        // In the tier of macOS nothing sees what is refused by default.
        if tier::is_macos() {
            set_hosts(session);
            session.bash("true");
        }
        let (wire, watcher) = (answerer(daemon, session), daemon.wire());
        watcher.request("quack.approvals", json!({"watch": true}));
        let pid = session.worker()["pid"].clone();
        let call = session.begin("bash", json!({"command": connect("a.example:443")}));
        let asked = question(&wire);
        assert_eq!(asked["method"], "select");
        assert_eq!(asked["options"][0], "Deny");
        let permission = &asked["permission"];
        assert_eq!(
            (&permission["kind"], &permission["target"]),
            (&json!("network"), &json!("a.example:443"))
        );
        assert_eq!(permission["toolCallId"], "c");
        let message = asked["message"].as_str().unwrap();
        assert!(
            message.contains("connects to a.example:443") && message.contains("call c"),
            "{message}"
        );
        let seen = watcher.event();
        assert_eq!((&seen["event"], &seen["data"]), (&json!(REQUEST), &asked));
        assert_eq!(seen.get("seq"), None, "a direct event has no number");
        assert_eq!(session.worker()["status"], "waiting");
        let listed = watcher.request("quack.approvals", json!({}));
        assert_eq!(listed["pending"][0]["request"], asked);
        // A client that comes later gets the question too.
        assert_eq!(question(&answerer(daemon, session))["id"], asked["id"]);
        let id = asked["id"].as_str().unwrap();
        let refused =
            wire.refused("quack.answer", json!({"id": id, "decision": "deny", "scope": "always"}));
        assert_eq!(refused, "The question does not offer this scope: always");
        let allowed = daemon.quack(&["allow", id, "--session"]).ok();
        assert_eq!(allowed, "allowed for this session: network a.example:443\n");
        let late = wire.refused("extension_ui_response", json!({"id": id, "value": "Deny"}));
        assert!(
            late.starts_with(&format!(
                "UI request {id} was answered already (allowed for this session by "
            )),
            "{late}"
        );
        let closed = wire.events_until(CLOSED).pop().unwrap();
        assert_eq!(
            (&closed["data"]["decision"], &closed["data"]["scope"]),
            (&json!("allow"), &json!("session"))
        );
        let text = call.text();
        // The name does not exist, but the connection was allowed.
        assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
        let line =
            "[Sandbox: the network (a.example:443) was allowed by the user for this session]";
        assert!(text.ends_with(&format!("{line}\n[Exit code: 0]")), "{text}");
        // No question for the next connection, no new worker, and the rule is listed and can be revoked.
        assert!(session.bash(&connect("a.example:443")).starts_with("HTTP/1.1 502 "));
        assert_eq!(session.worker()["pid"], pid);
        let shown = wire.request("quack.sandbox", json!({"sessionId": session.id}));
        let grant = &shown["grants"][0];
        assert_eq!(
            (&grant["target"], &grant["scope"]),
            (&json!("a.example:443"), &json!("session"))
        );
        let revoke = json!({"sessionId": session.id, "action": "revoke", "rules": [grant["id"]]});
        wire.request("quack.sandbox", revoke);
        drop((wire, watcher));
        wait_for("the proxy to learn that nobody can answer", || {
            let text = session.bash(&connect("a.example:443"));
            text.starts_with("HTTP/1.1 403 ").then_some(())
        });
        check_record(daemon);
    });
}

/// The first record of the questions names the answer and the client.
#[track_caller]
fn check_record(daemon: &Daemon) {
    // A thread of the daemon writes it.
    let record = wait_for("the record", || {
        let text = std::fs::read_to_string(daemon.app().join("approvals.jsonl")).ok()?;
        text.split_once('\n').map(|(first, _)| first.to_owned())
    });
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!((&record["target"], &record["scope"]), (&json!("a.example:443"), &json!("session")));
    assert!(record["by"].as_str().unwrap().starts_with("quack (process "), "{record}");
}

#[test]
fn a_denial_is_remembered_and_equal_connections_share_a_question() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let one = session.begin("bash", json!({"command": connect("b.example:443")}));
        let asked = question(&wire);
        let two = session.begin("bash", json!({"command": connect("b.example:443")}));
        wait_for("the second command", || {
            let calls = session.worker()["calls"].as_array()?.len();
            (calls == 2).then_some(())
        });
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Deny"}));
        for text in [one.text(), two.text()] {
            assert!(text.contains("was denied") && text.contains("by the user]"), "{text}");
            assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        }
        // Denied again without a question.
        let text = session.bash(&connect("b.example:443"));
        assert!(text.contains("(b.example:443) was denied by the user]"), "{text}");
        let data = wire.request("quack.approvals", json!({}));
        assert_eq!(
            (data["pending"].clone(), data["recent"].as_array().unwrap().len()),
            (json!([]), 1)
        );
    });
}

#[test]
fn without_an_answer_the_host_is_denied_and_a_late_answer_helps_the_next_attempt() {
    needs!(Namespaces);
    let daemon = Daemon::start_with("[sandbox]\nask_wait_s = 5\nnetwork = \"hosts\"\n");
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !can_test_network(&session) {
        return;
    }
    let follower = answerer(&daemon, &session);
    session.bash("true");
    let text = session.bash(&connect("c.example:443"));
    let line = "[Sandbox: the network (c.example:443) was denied: no answer within 5 s. To allow the next attempt: quack allow c.example:443]";
    assert!(text.contains(line), "{text}");
    let closed = follower.events_until(CLOSED).pop().unwrap();
    assert_eq!(closed["data"]["reason"], "timeout");
    let allowed = daemon.quack(&["allow", "c.example:443"]);
    assert_eq!(allowed.ok(), "allowed once: network c.example:443\n");
    assert!(allowed.stderr().contains("the question had expired"), "{allowed:?}");
    let text = session.bash(&connect("c.example:443"));
    assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
    let refused = daemon.quack(&["allow", "c.example"]);
    assert!(refused.stderr().contains("no question is about c.example"), "{refused:?}");
}

#[test]
fn nothing_is_asked_if_no_client_can_answer_or_the_user_does_not_want_it() {
    with_hosts(|daemon, session| {
        // This follower cannot answer.
        let follower = daemon.wire();
        follower.request("follow", json!({"sessionId": session.id}));
        let text = session.bash(&connect("d.example:443"));
        assert!(text.contains("To allow it: quack sandbox allow d.example --session a]"), "{text}");
        let asked = json!({"kind": "network", "target": "d.example"});
        let text = session.call("request_permission", asked);
        assert!(
            text.contains("no client can answer")
                && text.contains("quack sandbox allow d.example:443"),
            "{text}"
        );
        assert_eq!(follower.request("quack.approvals", json!({}))["recent"], json!([]));
        // A client that can answer, of another session.
        let other_repo = daemon.repo("b");
        let other = daemon.wire();
        let other_session = other.attach(other_repo.path());
        let _answers = answerer(daemon, &other_session);
        let text = session.bash(&connect("d.example:443"));
        assert!(text.contains("To allow it: quack sandbox allow d.example --session a]"), "{text}");
    });
}

#[test]
fn allowed_once_means_the_waiting_connection_and_reaches_the_host() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        // A server of this machine is never asked about.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (mut stream, mut byte) = (stream, [0]);
                drop(stream.read(&mut byte).and_then(|_| stream.write_all(b"served\n")));
            }
        });
        for host in
            ["host.quackd.internal", "127.0.0.2", "10.0.0.7", "169.254.169.254", "[fd00::1]"]
        {
            let text = session.bash(&connect(&format!("{host}:{port}")));
            assert!(!text.contains("200 Connection established"), "{text}");
        }
        let data = wire.request("quack.approvals", json!({}));
        assert_eq!(data, json!({"pending": [], "recent": []}));
        let call = session.begin("bash", json!({"command": connect("e.example:8443")}));
        let asked = question(&wire);
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Allow once"}));
        let text = call.text();
        assert!(text.contains("(e.example:8443) was allowed by the user once]"), "{text}");
        let shown = wire.request("quack.sandbox", json!({"sessionId": session.id}));
        assert_eq!(shown.get("grants").cloned().unwrap_or(json!([])), json!([]));
        // Another port is another question.
        let call = session.begin("bash", json!({"command": connect("e.example:443")}));
        let asked = question(&wire);
        assert_eq!(asked["permission"]["target"], "e.example:443");
        wire.request("extension_ui_response", json!({"id": asked["id"], "cancelled": true}));
        assert!(call.text().contains("by the user]"));
    });
}

#[test]
fn a_network_that_was_turned_off_asks_nothing_and_forgets_what_was_allowed_once() {
    needs!(Network);
    in_session(|daemon, session| {
        let wire = answerer(daemon, session);
        let call = session.begin("bash", json!({"command": connect("a.example:443")}));
        let asked = question(&wire);
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Allow once"}));
        assert!(call.text().starts_with("HTTP/1.1 502 "), "the name does not exist");
        let again = session.bash(&connect("a.example:443"));
        assert!(again.starts_with("HTTP/1.1 502 "), "allowed for a minute: {again}");
        let set = |network: &str| {
            let set = json!({"sessionId": session.id, "action": "set", "network": network});
            wire.request("quack.sandbox", set);
        };
        set("off");
        let text = session.bash(&connect("a.example:443"));
        assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        let text =
            session.call("request_permission", json!({"kind": "network", "target": "b.example"}));
        assert_eq!(text, "Error: the network was turned off; the user is not asked about hosts");
        let recent = wire.request("quack.approvals", json!({}))["recent"].clone();
        assert_eq!(recent.as_array().unwrap().len(), 1, "nothing more was asked: {recent}");
        // What was allowed once does not come back, and questions do.
        set("hosts");
        let call = session.begin("bash", json!({"command": connect("a.example:443")}));
        let asked = question(&wire);
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Deny"}));
        assert!(call.text().contains("by the user]"));
    });
}

#[test]
fn a_rule_that_decides_an_open_question_ends_it() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let person = daemon.wire();
        let change = |mut change: Value| {
            change["sessionId"] = session.id.clone().into();
            person.request("quack.sandbox", change);
        };
        for (host, changed, status) in [
            ("b.example", json!({"action": "allow", "rules": ["b.example"]}), "HTTP/1.1 502 "),
            ("c.example", json!({"action": "allow", "rules": ["!c.example"]}), "HTTP/1.1 403 "),
            ("d.example", json!({"action": "set", "network": "off"}), "HTTP/1.1 403 "),
        ] {
            let call = session.begin("bash", json!({"command": connect(&format!("{host}:443"))}));
            let id = question(&wire)["id"].clone();
            change(changed);
            let text = call.text();
            assert!(text.starts_with(status) && !text.contains("user"), "{host}: {text}");
            let closed = wire.events_until(CLOSED).pop().unwrap();
            assert_eq!((&closed["data"]["id"], &closed["data"]["reason"]), (&id, &json!("ended")));
            assert_eq!(person.request("quack.approvals", json!({}))["pending"], json!([]));
        }
    });
}

#[test]
fn a_program_without_a_proxy_waits_for_the_answer_too() {
    needs!(Network);
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let direct = "(exec 3<>/dev/tcp/f.example/443; echo hello >&3; cat <&3) 2>&1; true";
        let call = session.begin("bash", json!({"command": direct}));
        let asked = question(&wire);
        assert_eq!(asked["permission"]["target"], "f.example:443");
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Deny"}));
        let text = call.text();
        assert!(text.contains("(f.example:443) was denied by the user]"), "{text}");
    });
}

#[test]
fn questions_are_limited_and_hostile_names_stay_text() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let all: Vec<_> =
            (0..8).map(|n| format!("({}) &", connect(&format!("h{n}.example:443")))).collect();
        let call = session.begin("bash", json!({"command": format!("{} wait", all.join(" "))}));
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.push(question(&wire)["id"].clone());
        }
        // Four questions are open: the other connections are refused at once.
        wait_for("the refusals", || {
            let network = json!({"sessionId": session.id, "action": "network"});
            let hosts = daemon.wire().request("quack.sandbox", network)["hosts"].clone();
            let denied = hosts.as_array()?.iter().filter(|host| host["denied"] == 1).count();
            (denied == 4).then_some(())
        });
        for id in &asked {
            wire.request("extension_ui_response", json!({"id": id, "value": "Deny"}));
        }
        let text = call.text();
        assert!(text.contains("too many open requests"), "{text}");
        assert_eq!(
            wire.request("quack.approvals", json!({}))["recent"].as_array().unwrap().len(),
            4
        );
        for host in [
            "a\u{1b}[31m.example:443",
            "x y.example:443",
            "0x7f.1:443",
            "2130706433:443",
            "a.example@b.example:443",
        ] {
            let text = session.bash(&connect(host));
            assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        }
        assert_eq!(wire.request("quack.approvals", json!({}))["pending"], json!([]));
    });
}

#[test]
fn a_directory_a_safe_command_and_safe_mode_are_asked_about() {
    in_session(|daemon, session| {
        let wire = answerer(daemon, session);
        let run = |arguments: Value, safe: bool| {
            let params = json!({"tool": "bash", "arguments": arguments, "sessionId": session.id, "callId": "q", "safeMode": safe});
            session.wire.begin("quack.tool", &params)
        };
        let text = |reply: Value| reply["data"]["text"].as_str().unwrap().to_owned();
        let answer = |value: &str| {
            let asked = question(&wire);
            wire.request("extension_ui_response", json!({"id": asked["id"], "value": value}));
            asked
        };

        // A directory that the worker does not show.
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let write = json!({"command": format!("echo x > {}/made", outside.path().display())});
        let call = run(write.clone(), false);
        let asked = answer("Allow for this session");
        let directory = outside.path().canonicalize().unwrap();
        assert_eq!(asked["permission"]["target"], directory.to_str().unwrap());
        assert_eq!(
            asked["options"],
            json!(["Deny", "Allow for this session", "Allow in this workspace"])
        );
        let told = text(call.reply());
        assert!(
            told.contains(" was allowed by the user for this session; call again]\n[Exit code: 1]"),
            "{told}"
        );
        assert!(text(run(write, false).reply()).ends_with("[Exit code: 0]"));
        assert_eq!(std::fs::read_to_string(outside.path().join("made")).unwrap(), "x\n");

        // A command that safe mode does not run: once, then for the session.
        let echo = json!({"command": "echo from safe mode"});
        for (value, asks_again) in [("Allow once", true), ("Allow for this session", false)] {
            let call = run(echo.clone(), true);
            let asked = answer(value);
            assert_eq!(asked["permission"]["target"], "echo from safe mode");
            assert_eq!(text(call.reply()), "from safe mode\n\n[Exit code: 0]");
            if !asks_again {
                assert_eq!(
                    text(run(echo.clone(), true).reply()),
                    "from safe mode\n\n[Exit code: 0]"
                );
            }
        }
        // The other name of the parameter, which the worker takes if the first is blank.
        let call = run(json!({"command": " ", "cmd": "echo third"}), true);
        assert_eq!(answer("Allow once")["permission"]["target"], "echo third");
        assert_eq!(text(call.reply()), "third\n\n[Exit code: 0]");
        let call = run(json!({"command": "echo other"}), true);
        answer("Deny");
        let told = text(call.reply());
        assert!(
            told.starts_with("Error: Command not allowed in safe mode\n")
                && told.contains("by the user]"),
            "{told}"
        );

        // Safe mode of the session.
        session.wire.request("attach", json!({"path": session.path, "safeMode": true}));
        let write = json!({"path": "w.txt", "content": "w"});
        let call = session.begin("write_file", write.clone());
        let asked = answer("Allow for this session");
        assert_eq!(asked["permission"]["kind"], "safe_mode");
        let told = call.text();
        assert!(
            told.contains("safe mode was allowed by the user for this session; call again]"),
            "{told}"
        );
        assert!(session.call("write_file", write).starts_with("Successfully wrote"));
    });
}

#[test]
fn an_agent_can_ask_before_it_tries() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let ask = json!({"kind": "network", "target": "g.example:443", "reason": "to \u{202e}download\u{1b}[2J"});
        let call = session.begin("request_permission", ask);
        let asked = question(&wire);
        let message = asked["message"].as_str().unwrap();
        assert!(
            message.starts_with("connect to g.example:443\nthe agent says: \"to "),
            "{message}"
        );
        assert!(!message.contains(['\u{202e}', '\u{1b}']), "{message}");
        wire.request(
            "extension_ui_response",
            json!({"id": asked["id"], "value": "Allow in this workspace"}),
        );
        assert_eq!(
            call.text(),
            "[Sandbox: the network (g.example:443) was allowed by the user in this workspace]"
        );
        assert!(session.bash(&connect("g.example:443")).starts_with("HTTP/1.1 502 "));
        // Once: the next connections, although nothing waited.
        let call =
            session.begin("request_permission", json!({"kind": "network", "target": "h.example"}));
        let asked = question(&wire);
        wire.request("extension_ui_response", json!({"id": asked["id"], "value": "Allow once"}));
        assert!(call.text().ends_with("was allowed by the user once]"));
        assert!(session.bash(&connect("h.example:443")).starts_with("HTTP/1.1 502 "));
        // Rules for them would mean this machine.
        let text = session.bash(&connect("machine:5432"));
        assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        for (arguments, part) in [
            (json!({"kind": "network", "target": "10.0.0.7:443"}), "the user is not asked"),
            (json!({"kind": "network", "target": "machine:5432"}), "the user is not asked"),
            (
                json!({"kind": "network", "target": "host.quackd.internal:5432"}),
                "the user is not asked",
            ),
            (json!({"kind": "network", "target": "a b"}), "not a host"),
            (json!({"kind": "write", "target": "/etc"}), "cannot be made writable"),
            (json!({"kind": "write", "target": "nowhere/at/all"}), "cannot be made writable"),
            (json!({"kind": "all", "target": "x"}), "kind must be network or write"),
            (json!({}), "kind must be network or write"),
        ] {
            let text = session.call("request_permission", arguments);
            assert!(text.starts_with("Error: "), "{text}");
            let last = text.lines().next().unwrap();
            assert!(last.contains(part) || last.contains("that can be made writable"), "{text}");
        }
    });
}

#[test]
fn a_deleted_session_and_a_stopped_daemon_close_their_questions() {
    with_hosts(|daemon, session| {
        let wire = answerer(daemon, session);
        let call = session.begin("bash", json!({"command": connect("i.example:443")}));
        let asked = question(&wire);
        let delete = json!({"sessionId": session.id, "force": true});
        daemon.wire().request("quack.session_delete", delete);
        let closed = wire.events_until(CLOSED).pop().unwrap();
        assert_eq!(
            (&closed["data"]["id"], &closed["data"]["reason"]),
            (&asked["id"], &json!("ended"))
        );
        drop(call.reply());
        let refused = wire.refused("quack.answer", json!({"id": asked["id"], "decision": "allow"}));
        assert!(refused.contains("was answered already (ended)"), "{refused}");
    });
}

pub(crate) fn quack_at(daemon: &Daemon, repo: &Path, args: &[&str]) -> std::process::Command {
    let mut command = daemon.command(args);
    command.current_dir(repo);
    command
}

#[test]
fn a_terminal_is_asked_and_enter_denies() {
    with_hosts(|daemon, session| {
        let repo = Path::new(&session.path);
        let command = connect("j.example:443");
        let terminal = Terminal::start(quack_at(daemon, repo, &["tool", "bash", &command]));
        terminal.see("Allow network access?");
        terminal.see("connects to j.example:443");
        terminal.see("[number, Enter denies] ");
        let answered = wait_for("the answer", || {
            // Lines in the first moments do not count.
            terminal.type_line("");
            let data = session.wire.request("quack.approvals", json!({}));
            data["recent"].as_array()?.first().cloned()
        });
        assert_eq!(
            (&answered["decision"], &answered["reason"]),
            (&json!("deny"), &json!("answered"))
        );
        terminal.see("(j.example:443) was denied by the user]");
        drop(terminal.end());
        let listed = daemon.quack(&["approvals"]).ok();
        assert!(listed.contains("network j.example:443  denied"), "{listed}");
        // --no-ask: this terminal is not asked.
        let silent = Terminal::start(quack_at(
            daemon,
            repo,
            &["tool", "bash", "--no-ask", &connect("k.example:443")],
        ));
        silent.see("To allow it: quack sandbox allow k.example --session a]");
        drop(silent.end());
    });
}

#[test]
fn a_question_about_a_call_ends_with_its_client() {
    let daemon = Daemon::start();
    let repo = daemon.repo("app2");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let other = answerer(&daemon, &session);
    let terminal =
        Terminal::start(quack_at(&daemon, repo.path(), &["tool", "--safe", "bash", "rm x"]));
    terminal.see("Allow the command?");
    let asked = question(&other);
    assert!(asked["message"].as_str().unwrap().contains("session app2"), "{asked}");
    drop(terminal);
    let closed = other.events_until(CLOSED).pop().unwrap();
    assert_eq!((&closed["data"]["id"], &closed["data"]["reason"]), (&asked["id"], &json!("ended")));
    assert_eq!(other.request("quack.approvals", json!({}))["pending"], json!([]));
}

#[test]
fn a_question_about_a_host_ends_with_its_call() {
    with_hosts(|daemon, session| {
        let other = answerer(daemon, session);
        for host in ["a.example:443", "b.example:443"] {
            // The call is cancelled while the connection waits.
            let client = daemon.wire();
            let call = json!({
                "sessionId": session.id, "tool": "bash", "arguments": {"command": connect(host)}, "callId": host,
            });
            drop(client.begin("quack.tool", &call));
            let asked = question(&other);
            assert!(asked["message"].as_str().unwrap().contains(host), "{asked}");
            client.request("quack.cancel", json!({"callId": host}));
            let closed = other.events_until(CLOSED).pop().unwrap();
            assert_eq!(
                (&closed["data"]["id"], &closed["data"]["reason"]),
                (&asked["id"], &json!("ended"))
            );
            assert_eq!(other.request("quack.approvals", json!({}))["pending"], json!([]));
        }
        // Nothing of it concerns the next command.
        assert_eq!(session.bash("echo harmless").lines().next(), Some("harmless"));
    });
}
