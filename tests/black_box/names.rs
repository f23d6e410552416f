//! Names from clients and from files of other programs: unsafe characters are refused by name, or are not displayed.

use crate::harness::{Daemon, Wire, wait_for};
use crate::mcp::{Agent, command};
use serde_json::{Value, json};

/// Every class of unsafe characters, with examples.
pub(crate) const CLASSES: [(&str, &str); 17] = [
    ("C0 and DEL", "\0\u{7}\u{8}\t\n\r\u{1b}\u{7f}"),
    ("C1", "\u{80}\u{85}\u{9b}\u{9f}"),
    ("line and paragraph separators", "\u{2028}\u{2029}"),
    ("soft hyphen and grapheme joiner", "\u{ad}\u{34f}"),
    ("marks of direction", "\u{61c}\u{200e}\u{200f}"),
    ("embeddings and overrides", "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}"),
    ("isolates", "\u{2066}\u{2067}\u{2068}\u{2069}"),
    ("zero width", "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}"),
    ("invisible operators", "\u{2061}\u{2064}"),
    ("deprecated formats", "\u{206a}\u{206f}"),
    ("fillers", "\u{115f}\u{1160}\u{3164}\u{ffa0}\u{2800}"),
    ("vowels without a shape", "\u{17b4}\u{17b5}\u{180e}"),
    ("selectors", "\u{180b}\u{fe00}\u{fe0f}\u{e0100}"),
    ("reserved and annotations", "\u{fff0}\u{fff9}\u{fffb}"),
    ("shorthand and music", "\u{1bca0}\u{1d159}\u{1d173}"),
    ("tags", "\u{e0000}\u{e0001}\u{e0020}\u{e0041}\u{e007f}"),
    ("reserved tags", "\u{e0080}\u{e0fff}"),
];

/// Names that users and programs have.
pub(crate) const SAFE: [&str; 9] = [
    "Fix it",
    "naïve — café",
    "修复 漢字",
    "می\u{200c}خواهم",
    "क\u{94d}\u{200d}ष",
    "👩\u{200d}💻 at work",
    "👨\u{200d}👩\u{200d}👧\u{200d}👦",
    "❤\u{fe0f}\u{200d}🔥 🏳\u{fe0f}\u{200d}🌈",
    "1\u{fe0f}\u{20e3} 葛\u{e0100}飾",
];

/// Names with one unsafe character each, and the end of the error about it.
pub(crate) fn unsafe_names() -> impl Iterator<Item = (String, String)> {
    let chars = CLASSES.iter().flat_map(|(_, chars)| chars.chars());
    chars.map(|c| (format!("du{c}ck"), format!("without U+{:04X}", u32::from(c))))
}

/// Whether a text has an unsafe character that no safe name has.
fn is_unsafe(text: &str) -> bool {
    let listed = |c: char| CLASSES.iter().any(|(_, chars)| chars.contains(c));
    text.contains(|c: char| c != '\n' && listed(c))
}

#[test]
fn a_session_with_an_unsafe_name_is_not_created_and_others_are() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let new = |name: &str| json!({"path": repo.path(), "name": name});
    for (name, end) in unsafe_names() {
        let error = wire.refused("quack.session_new", new(&name));
        let expected = format!("Session name must be 1 to 100 printable characters, {end}");
        assert_eq!(error, expected, "{name:?}");
    }
    assert_eq!(wire.request("sessions", json!({"all": true}))["sessions"], json!([]));
    for name in SAFE {
        assert_eq!(wire.request("quack.session_new", new(name))["session"]["name"], name);
    }
    let refused = daemon.quack(&["new", "--name", "du\u{2028}ck", repo.path().to_str().unwrap()]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    assert!(refused.stderr().contains("without U+2028"), "{refused:?}");
}

#[test]
fn a_client_with_an_unsafe_name_version_or_door_is_refused_and_keeps_its_name() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    wire.request("quack.hello", json!({"name": "before"}));
    for (text, end) in unsafe_names() {
        for (field, max) in [("name", 64), ("version", 64), ("door", 16)] {
            let mut params = json!({"name": "after"});
            params[field] = text.as_str().into();
            let expected = format!(
                "Invalid parameters for quack.hello: {field} must have 1 to {max} printable characters, {end}"
            );
            assert_eq!(wire.refused("quack.hello", params), expected, "{text:?}");
        }
    }
    let clients =
        |wire: &crate::harness::Wire| wire.request("quack.ps", json!({}))["clients"].take();
    assert_eq!(clients(&wire)[0]["name"], "before");
    for name in SAFE {
        wire.request("quack.hello", json!({"name": name}));
        assert_eq!(clients(&wire)[0]["name"], name);
    }
}

#[test]
fn models_and_tools_of_a_session_have_no_unsafe_names() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let id = wire.attach(repo.path()).id;
    for (name, end) in unsafe_names() {
        let model = json!({"sessionId": id, "model": name});
        let expected = format!("model must have at most 256 printable characters, {end}");
        assert_eq!(wire.refused("quack.session_set", model), expected, "{name:?}");
        let expected = format!("agentOptions: a name of a tool or model has 1 to 256 bytes, {end}");
        for list in ["tools", "excludeTools", "models"] {
            let mut options = json!({});
            options[list] = json!(["read", name]);
            let params = json!({"sessionId": id, "agentOptions": options});
            assert_eq!(wire.refused("quack.session_set", params), expected, "{list}: {name:?}");
        }
        let server = json!([{"name": name, "command": "true"}]);
        let error =
            wire.refused("quack.session_set", json!({"sessionId": id, "mcpServers": server}));
        assert!(error.starts_with("Server 1 of mcpServers must have a name"), "{error}");
    }
}

#[test]
fn an_agent_with_an_unsafe_name_is_known_by_the_rest_of_it() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    for (class, chars) in CLASSES {
        let info = json!({"name": format!("Te{chars}st"), "version": format!("1{chars}2")});
        // Of the Model Context Protocol.
        let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        agent.request("initialize", hello);
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let call = json!({"name": "read_file", "arguments": {"path": "none"}});
        agent.request("tools/call", call);
        assert_known_and_leaves(&wire, agent, class);
        // Of the Agent Client Protocol.
        let mut editor = Agent::spawn(daemon.command(&["acp"]));
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": info});
        editor.request("initialize", hello);
        editor.request("session/new", json!({"cwd": repo.path(), "mcpServers": []}));
        assert_known_and_leaves(&wire, editor, class);
    }
}

/// Checks the name and version of the only client that named itself, and ends it.
#[track_caller]
fn assert_known_and_leaves(wire: &Wire, agent: Agent, class: &str) {
    let clients = || wire.request("quack.ps", json!({}))["clients"].take();
    let known = clients();
    let name = (&known[0]["name"], &known[0]["version"]);
    assert_eq!(name, (&"Test".into(), &"12".into()), "{class}");
    drop(agent);
    wait_for("the agent to leave", || clients().as_array().is_none_or(Vec::is_empty).then_some(()));
}

#[test]
fn unsafe_names_in_the_file_of_another_program_are_kept_and_displayed_without_them() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    for n in 0..CLASSES.len() {
        let params = json!({"path": repo.path(), "name": format!("name-{n:02}")});
        wire.request("quack.session_new", params);
    }
    // The macOS app may choose such a name.
    let path = daemon.app().join("metadata.json");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let named: Vec<String> =
        CLASSES.iter().enumerate().map(|(n, (_, chars))| format!("du{chars}ck-{n}")).collect();
    for (n, name) in named.iter().enumerate() {
        text = text.replace(&format!("\"name-{n:02}\""), &json!(name).to_string());
    }
    std::fs::write(&path, text).unwrap();
    let all = wait_for("the names to be known", || {
        let all = daemon.quack(&["sessions", "--all", "--json"]).json();
        (all[0]["name"] == *named[0]).then_some(all)
    });
    let names: Vec<&Value> = all.as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, named.iter().collect::<Vec<_>>());
    for one in all.as_array().unwrap() {
        assert!(!is_unsafe(one["label"].as_str().unwrap()), "{one}");
        let state = daemon.quack(&["state", "--session", one["id"].as_str().unwrap()]).ok();
        assert!(!is_unsafe(&state), "{state:?}");
    }
    for args in [&["sessions", "--all"][..], &["workspaces"], &["ps"]] {
        let shown = daemon.quack(args).ok();
        assert!(!is_unsafe(&shown), "{args:?}: {shown:?}");
    }
    assert_eq!(daemon.quack(&["sessions", "--all"]).ok().lines().count(), CLASSES.len() + 1);
    let mut editor = Agent::spawn(daemon.command(&["acp"]));
    editor.request("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}));
    let listed = editor.request("session/list", json!({}))["result"]["sessions"].take();
    for one in listed.as_array().unwrap() {
        assert!(!is_unsafe(one["title"].as_str().unwrap()), "{one}");
    }
}
