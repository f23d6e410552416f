//! Terminals as tools of an agent: `bash` with `tty`, `term_read` and `term_write`.

use crate::harness::{Daemon, Session, skipped, wait_for};
use crate::mcp::{Agent, text};
use crate::terminals::{Viewer, run_script};
use serde_json::{Value, json};

/// Shows each byte that is typed as text.
const KEYS: &str = "stty -icanon -isig -echo -icrnl; echo up; exec cat -A";

#[track_caller]
fn tool(session: &Session<'_>, tool: &str, arguments: &Value) -> Value {
    let params = json!({"sessionId": session.id, "tool": tool, "arguments": arguments});
    session.wire.request("quack.tool", params)
}

/// Starts a command line on a terminal. Returns the id.
#[track_caller]
fn start(session: &Session<'_>, command: &str) -> String {
    let data = tool(session, "bash", &json!({"command": command, "tty": true}));
    let text = data["text"].as_str().unwrap();
    assert!(text.contains("term_read") && text.contains("term_write"), "{text}");
    let id = data["data"]["jobId"].as_str().unwrap_or_else(|| panic!("no terminal: {data}"));
    assert!(text.contains(id), "{text}");
    id.to_owned()
}

/// Calls `term_read` or `term_write`, which must succeed. Returns the text.
#[track_caller]
fn screen(session: &Session<'_>, name: &str, arguments: &Value) -> String {
    let data = tool(session, name, arguments);
    assert_eq!(data["isError"], false, "{data}");
    data["text"].as_str().unwrap().to_owned()
}

/// Reads the screen until it contains `part`.
#[track_caller]
fn read_until(session: &Session<'_>, terminal: &str, part: &str) -> String {
    wait_for(part, || {
        let text = screen(session, "term_read", &json!({"terminal": terminal, "wait_ms": 200}));
        text.contains(part).then_some(text)
    })
}

#[test]
fn an_agent_starts_types_and_reads() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = start(&session, "tty >/dev/null && stty size; echo $TERM; exec cat");
    assert_eq!(terminal, "term-1");
    let shown = read_until(&session, &terminal, "xterm-256color");
    assert!(shown.starts_with("24 80\n"), "{shown}");
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("[term-1: 80×24, cursor row ") && last.ends_with(']'), "{shown}");

    let typed = json!({"terminal": "term-1", "text": "six times seven", "keys": ["Enter"]});
    screen(&session, "term_write", &typed);
    wait_for("the line and its echo", || {
        let shown = screen(&session, "term_read", &json!({"terminal": 1}));
        (shown.matches("six times seven").count() == 2).then_some(())
    });
    let data = tool(&session, "term_read", &json!({"terminal": "1"}))["data"].take();
    assert_eq!((&data["cols"], &data["rows"]), (&json!(80), &json!(24)), "{data}");
    // A user attaches to the terminal of the agent, and the agent sees what the user types.
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("six times seven");
    viewer.echoes("typed by the user");
    read_until(&session, &terminal, "typed by the user");

    screen(&session, "term_write", &json!({"terminal": "term-1", "keys": ["C-d"]}));
    assert_eq!(viewer.news("term_exit")["exitCode"], 0);
}

#[test]
fn keys_have_the_bytes_of_a_terminal_in_both_modes_of_the_cursor_keys() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let press = |terminal: &str, number: usize, key: &str, shown: &str| {
        let keys = json!({"terminal": terminal, "text": format!("{number}<"), "keys": [key]});
        screen(&session, "term_write", &keys);
        let end = json!({"terminal": terminal, "text": ">\n"});
        screen(&session, "term_write", &end);
        read_until(&session, terminal, &format!("{number}<{shown}>"));
    };
    let terminal = start(&session, KEYS);
    read_until(&session, &terminal, "up");
    for (number, (key, shown)) in [
        ("Enter", "^M"),
        ("Tab", "^I"),
        ("Escape", "^["),
        ("Backspace", "^?"),
        ("Up", "^[[A"),
        ("Down", "^[[B"),
        ("Right", "^[[C"),
        ("Left", "^[[D"),
        ("Home", "^[[H"),
        ("End", "^[[F"),
        ("PageUp", "^[[5~"),
        ("PageDown", "^[[6~"),
        ("Delete", "^[[3~"),
        ("F1", "^[OP"),
        ("F5", "^[[15~"),
        ("F12", "^[[24~"),
        ("C-c", "^C"),
        ("C-d", "^D"),
        ("M-x", "^[x"),
    ]
    .into_iter()
    .enumerate()
    {
        press(&terminal, number, key, shown);
    }
    let refused = tool(&session, "term_write", &json!({"terminal": terminal, "keys": ["Hyper-Q"]}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused["text"].as_str().unwrap().contains("Hyper-Q"), "{refused}");

    let terminal = start(&session, &format!("printf '\\033[?1h'; {KEYS}"));
    read_until(&session, &terminal, "up");
    for (number, (key, shown)) in [("Up", "^[OA"), ("Home", "^[OH")].into_iter().enumerate() {
        press(&terminal, number, key, shown);
    }
}

#[test]
fn a_read_waits_for_a_change_and_shows_lines_above_the_screen() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let command = format!("seq 1 100; echo up; {}", daemon.gated("go", "echo changed; exec cat"));
    let terminal = start(&session, &command);
    let shown = read_until(&session, &terminal, "up");
    assert!(!shown.contains("\n42\n"), "{shown}");
    let history = json!({"terminal": terminal, "history": 70});
    let shown = screen(&session, "term_read", &history);
    assert!(shown.contains("\n42\n43\n") && shown.contains("\n99\n100\nup"), "{shown}");
    assert!(!shown.contains("\n2\n3\n"), "{shown}");

    let params = json!({"sessionId": session.id, "tool": "term_read",
                        "arguments": {"terminal": terminal, "wait_ms": 50_000}});
    let waiting = wire.begin("quack.tool", &params);
    assert_eq!(session.bash("echo beside"), "beside\n\n[Exit code: 0]");
    daemon.open_gate("go");
    let reply = waiting.reply();
    assert!(reply["data"]["text"].as_str().unwrap().contains("changed"), "{reply}");
}

#[test]
fn an_ended_terminal_shows_its_last_screen_and_others_are_refused() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = start(&session, "echo last words; read -r x; exit 57");
    read_until(&session, &terminal, "last words");
    screen(&session, "term_write", &json!({"terminal": terminal, "keys": ["Enter"]}));
    wait_for("the end", || session.worker().get("jobs").is_none().then_some(()));
    let read = tool(&session, "term_read", &json!({"terminal": terminal}));
    let shown = read["text"].as_str().unwrap();
    assert!(shown.contains("last words") && shown.contains("57"), "{read}");
    let written = tool(&session, "term_write", &json!({"terminal": terminal, "text": "x"}));
    assert_eq!(written["isError"], true, "{written}");

    session.call("bash", json!({"command": "sleep 1001", "background": true}));
    for (name, arguments) in [
        ("term_read", json!({"terminal": "term-9"})),
        ("term_read", json!({"terminal": "job-2"})),
        ("term_read", json!({})),
        ("term_write", json!({"terminal": "term-9", "text": "x"})),
        ("term_write", json!({"terminal": "job-2", "text": "x"})),
    ] {
        let refused = tool(&session, name, &arguments);
        assert_eq!(refused["isError"], true, "{name} {arguments}: {refused}");
    }
}

#[test]
fn a_terminal_of_the_user_is_read_and_typed_into_by_the_agent_of_its_session_only() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let other = wire.attach(daemon.repo("b").path());
    other.bash("true");
    let terminal = run_script(&session, "echo started by the user; exec cat");
    read_until(&session, &terminal, "started by the user");
    let typed = json!({"terminal": terminal, "text": "by the agent", "keys": ["Enter"]});
    screen(&session, "term_write", &typed);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.until("the line twice", |viewer| viewer.text().matches("by the agent").count() == 2);
    for (name, arguments) in [
        ("term_read", json!({"terminal": terminal})),
        ("term_write", json!({"terminal": terminal, "text": "by another agent"})),
    ] {
        assert_eq!(tool(&other, name, &arguments)["isError"], true);
    }
    viewer.echoes("later");
    assert!(!viewer.text().contains("another"), "{}", viewer.text());
}

#[test]
fn a_python_prompt_computes() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    if !session.bash("/usr/bin/python3 -c 'print(6*7)'").starts_with("42\n") {
        return skipped("no python3 in a session");
    }
    let terminal = start(&session, "exec /usr/bin/python3 -q");
    read_until(&session, &terminal, ">>>");
    let typed = json!({"terminal": terminal, "text": "print(6*7)", "keys": ["Enter"]});
    screen(&session, "term_write", &typed);
    read_until(&session, &terminal, "\n42\n");
}

#[test]
fn agents_use_terminals_through_mcp() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let mut agent = Agent::start(&daemon, &repo, &["--tools", "all"]);
    let list = agent.request("tools/list", json!({}));
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"term_read") && names.contains(&"term_write"), "{names:?}");

    let started = agent.call("bash", json!({"command": "echo up; exec cat", "tty": true}));
    assert!(text(&started).contains("term-1"), "{started}");
    let write = json!({"terminal": "term-1", "text": "through mcp", "keys": ["Enter"]});
    let written = agent.call("term_write", write);
    assert!(text(&written).contains("[term-1: 80×24, cursor row "), "{written}");
    wait_for("the line and its echo", || {
        let read = agent.call("term_read", json!({"terminal": "term-1", "wait_ms": 200}));
        (text(&read).matches("through mcp").count() == 2).then_some(())
    });
    let killed = agent.call("job_kill", json!({"job": "term-1"}));
    assert!(text(&killed).contains("term-1"), "{killed}");
    agent.leave();
}
