//! The list of tools, calls, progress and cancellation.

use super::{Agent, calls_running, command, current, text};
use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<&str> {
    let tools = list["result"]["tools"].as_array().expect("tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[track_caller]
fn annotations(list: &Value, tool: &str) -> Value {
    let tools = list["result"]["tools"].as_array().expect("tools");
    tools.iter().find(|it| it["name"] == tool).expect("the tool")["annotations"].clone()
}

#[test]
fn parameters_that_agents_send_to_bash_by_habit_are_honoured() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let src = repo.path().join("src");
    for (more, directory) in [
        (json!({"description": "Print the directory"}), repo.path()),
        (json!({"timeout": 60_000, "cwd": "src"}), &*src),
        (json!({"timeout": 60, "workdir": src}), &*src),
        (json!({"cwd": "src/.."}), repo.path()),
    ] {
        let mut arguments = json!({"command": "pwd"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let result = agent.call("bash", arguments);
        assert_eq!(text(&result), format!("{}\n\n[Exit code: 0]", directory.display()), "{more}");
    }
    let result = agent.call("bash", json!({"command": "sleep 1000", "timeout": 1000}));
    assert_eq!(result["structuredContent"]["timedOut"], true, "{result}");
    let result = agent.call("bash", json!({"command": "true", "run_in_background": true}));
    assert!(text(&result).contains("job-1"), "{result}");
    for (arguments, part) in [
        (json!({"command": "pwd", "cwd": "/usr"}), "cwd"),
        (json!({"command": "pwd", "made_up": 1}), "made_up"),
    ] {
        let result = agent.call("bash", arguments);
        assert!(result["isError"] == true && text(&result).contains(part), "{result}");
    }
}

#[test]
fn an_agent_of_either_revision_lists_and_calls_tools() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
    let hello = agent.initialize(json!({}));
    assert_eq!(
        (&hello["protocolVersion"], &hello["serverInfo"]["name"]),
        (&json!("2025-11-25"), &json!("quackd"))
    );
    let list = agent.request("tools/list", json!({}));
    assert_eq!(
        names(&list),
        [
            "read_file",
            "write_file",
            "edit_file",
            "bash",
            "jobs",
            "job_output",
            "job_kill",
            "request_permission",
            "search",
            "find",
            "replace",
            "undo"
        ]
    );
    assert_eq!(
        text(&agent.call("bash", json!({"command": "echo hello"}))),
        "hello\n\n[Exit code: 0]"
    );
    agent.leave();

    let mut agent = Agent::spawn(command(&daemon, repo.path(), &["--tools", "search,bash"]));
    let found = agent.request("server/discover", current(json!({}), json!({})));
    assert_eq!(
        found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "quackd",
        "{found}"
    );
    let removed = agent.request("initialize", current(json!({}), json!({})));
    assert_eq!(removed["error"]["code"], -32601, "{removed}");
    let list = agent.request("tools/list", current(json!({}), json!({})));
    assert_eq!(names(&list), ["read_file", "bash", "search", "find"]);
    let call = current(json!({"name": "read_file", "arguments": {"path": "README.md"}}), json!({}));
    let read = agent.request("tools/call", call);
    assert_eq!(text(&read["result"]), "# A repository\n");
    assert_eq!(read["result"]["resultType"], "complete", "{read}");
    agent.leave();
}

#[test]
fn the_text_is_that_of_quack_tool_and_failures_say_so() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &["--tools", "all"]);
    let wire = daemon.wire();
    for (tool, arguments) in [
        ("bash", json!({"command": "echo out; echo err >&2; exit 3"})),
        ("read_file", json!({"path": "src/main.rs", "line_numbers": true, "limit": 1})),
        ("read_file", json!({"path": "../x"})),
        ("write_file", json!({"path": ".git/hooks/pre-commit", "content": "x"})),
        ("grep_search", json!({"pattern": "needle"})),
        ("ripgrep_search", json!({"pattern": "needle"})),
        ("search", json!({"pattern": "needle", "limit": "many"})),
        ("search", json!({"patern": "needle"})),
        ("find_files", json!({"pattern": "*.rs"})),
        ("jobs", json!({})),
        ("web_search", json!({"query": ""})),
    ] {
        let params = json!({"path": repo.path(), "tool": tool, "arguments": arguments});
        let direct = wire.request("quack.tool", params);
        let result = agent.call(tool, arguments);
        assert_eq!(text(&result), direct["text"], "{tool}");
        assert_eq!(result["isError"], direct["isError"], "{tool}");
        for field in ["exitCode", "signal", "fullOutputPath"] {
            assert_eq!(result["structuredContent"].get(field), direct.get(field), "{tool}");
        }
    }
    agent.leave();
}

#[test]
fn annotations_match_what_the_sandbox_enforces() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &["--tools", "all"]);
    let list = agent.request("tools/list", json!({}));
    let reads = json!({"readOnlyHint": true, "openWorldHint": false});
    for tool in [
        "read_file",
        "search",
        "find",
        "grep_search",
        "find_files",
        "search_content",
        "ripgrep_search",
    ] {
        assert_eq!(annotations(&list, tool), reads, "{tool}");
    }
    let hints = |destructive: bool, idempotent: bool, open: bool| json!({"readOnlyHint": false, "destructiveHint": destructive, "idempotentHint": idempotent, "openWorldHint": open});
    assert_eq!(annotations(&list, "write_file"), hints(true, true, false));
    assert_eq!(annotations(&list, "edit_file"), hints(true, false, false));
    assert_eq!(annotations(&list, "replace_content"), hints(true, false, false));
    assert_eq!(annotations(&list, "bash"), hints(true, false, false));
    assert_eq!(
        annotations(&list, "web_search"),
        json!({"readOnlyHint": true, "openWorldHint": true})
    );
    let set =
        json!({"path": repo.path(), "sessionId": "test-agent", "action": "set", "network": true});
    daemon.wire().request("quack.sandbox", set);
    let list = agent.request("tools/list", json!({}));
    assert_eq!(annotations(&list, "bash"), hints(true, false, true));
    agent.leave();

    let mut safe = Agent::start(&daemon, &repo, &["--safe"]);
    let list = safe.request("tools/list", json!({}));
    assert_eq!(
        names(&list),
        [
            "read_file",
            "bash",
            "jobs",
            "job_output",
            "job_kill",
            "request_permission",
            "search",
            "find"
        ]
    );
    assert_eq!(annotations(&list, "bash")["readOnlyHint"], true);
    let denied = safe.call("bash", json!({"command": "touch made"}));
    assert_eq!(denied["isError"], true, "{denied}");
    assert!(!repo.path().join("made").exists());
    let refused = safe.request("tools/call", json!({"name": "write_file", "arguments": {}}));
    assert_eq!(refused["error"]["code"], -32602);
    safe.leave();
}

#[test]
fn the_output_schema_describes_every_result() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let list = agent.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().expect("tools").clone();
    for (tool, arguments) in [
        ("bash", json!({"command": "kill -9 $$"})),
        ("bash", json!({"command": "seq 1 100000"})),
        ("bash", json!({"command": "sleep 60", "background": true})),
        ("job_kill", json!({"job": "job-1"})),
        ("read_file", json!({"path": "nothing"})),
        ("search", json!({"pattern": "needle"})),
    ] {
        let schema = &tools.iter().find(|it| it["name"] == tool).expect("the tool")["outputSchema"];
        let result = agent.call(tool, arguments);
        let validator = jsonschema::validator_for(schema).expect("a schema");
        assert!(validator.is_valid(&result["structuredContent"]), "{tool}: {result}");
    }
    agent.leave();
}

#[test]
fn a_long_output_is_linked_and_can_be_read() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let result = agent.call("bash", json!({"command": "seq 1 400000"}));
    let link = &result["content"][1];
    assert_eq!(link["type"], "resource_link", "{link}");
    let listed = agent.request("resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], link["uri"]);
    let read = agent.request("resources/read", json!({"uri": link["uri"]}));
    let whole = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
    assert!(whole.starts_with("1\n2\n") && whole.contains("The file continues: offset 2001"));
    for other in [
        "file:///etc/passwd",
        "https://127.0.0.1/",
        "x",
        &format!("file://{}/README.md", repo.path().display()),
    ] {
        let read = agent.request("resources/read", json!({"uri": other}));
        assert!(read["error"]["code"].is_i64(), "{read}");
    }
    agent.leave();
}

#[test]
fn progress_follows_the_output() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let gate = repo.path().join("gate");
    let command = "echo first; until [ -e gate ]; do sleep 0.05; done; echo last";
    let params =
        json!({"name": "bash", "arguments": {"command": command}, "_meta": {"progressToken": "p"}});
    let id = agent.begin("tools/call", params);
    let is_progress = |message: &Value| message["method"] == "notifications/progress";
    let first = agent.message(is_progress);
    assert_eq!(
        (&first["params"]["progressToken"], &first["params"]["message"]),
        (&json!("p"), &json!("first"))
    );
    // A command that prints nothing goes on reporting.
    let second = agent.message(is_progress);
    let value = |message: &Value| message["params"]["progress"].as_f64().expect("a number");
    assert!(value(&first) < value(&second), "{first} {second}");
    std::fs::write(gate, "").expect("open the gate");
    let answer = agent.answer(id);
    assert_eq!(text(&answer["result"]), "first\nlast\n\n[Exit code: 0]");
    agent.leave();
}

#[test]
fn a_cancelled_call_ends_its_command_and_no_other() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let sleep = json!({"name": "bash", "arguments": {"command": "sleep 60"}});
    let (one, _two) = (agent.begin("tools/call", sleep.clone()), agent.begin("tools/call", sleep));
    wait_for("two calls", || (calls_running(&daemon) == 2).then_some(()));
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": one}}));
    wait_for("one call", || (calls_running(&daemon) == 1).then_some(()));
    assert_eq!(
        text(&agent.call("bash", json!({"command": "echo more"}))),
        "more\n\n[Exit code: 0]"
    );
    assert!(
        !agent.early.iter().any(|message| message["id"] == one),
        "a cancelled call has no answer"
    );
    // The agent leaves in the middle of a command.
    agent.leave();
    wait_for("no call", || (calls_running(&daemon) == 0).then_some(()));
}
