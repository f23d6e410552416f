//! Options of `quack rpc`: those of Pi, which programs that start `pi --mode rpc` pass.

use super::rpc::{Rpc, echo};
use super::{World, only, say, text};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Output, Stdio};

/// Runs the subcommand with an empty stdin.
#[track_caller]
fn ran(world: &World, args: &[&str]) -> Output {
    let mut command = world.daemon.command(&[&["rpc"], args].concat());
    command.current_dir(&world.repo).env("PI_CODING_AGENT_DIR", &world.agent);
    command.stdin(Stdio::null()).output().expect("run quack rpc")
}

fn stderr(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

/// Names of the tools that a request offers.
fn offered(request: &Value) -> Vec<&str> {
    let tools = request["body"]["tools"].as_array();
    let names = tools.into_iter().flatten().map(|tool| tool["function"]["name"].as_str());
    names.map(|name| name.expect("a name")).collect()
}

/// The only end of a tool call among these lines.
#[track_caller]
fn call_end(lines: &[Value]) -> Value {
    let mut ends = lines.iter().filter(|line| line["type"] == "tool_execution_end");
    let end = ends.next().expect("a call").clone();
    assert!(ends.next().is_none(), "{lines:?}");
    end
}

/// A world whose model writes a file with every first answer.
fn writing() -> World {
    let call = json!({"name": "write", "arguments": {"path": "out.txt", "content": "x"}});
    World::new(&json!({
        "rules": [{"if": {"last_role": "user"}, "reply": {"tool_calls": [call]}}],
        "on_exhausted": "echo"}))
}

#[test]
fn every_option_of_pi_is_taken_and_those_without_a_meaning_are_named_once() {
    let world = echo();
    let all = [
        "--mode",
        "rpc",
        "--no-themes",
        "-ne",
        "-ns",
        "-np",
        "-na",
        "--approve",
        "--offline",
        "--verbose",
        "-e",
        "ext.ts",
        "--skill",
        "s",
        "--theme",
        "t",
        "--session-dir",
        "/nowhere",
        "--plan",
        "--depth",
        "3",
        "--key=secret",
        "-z",
        "@file",
        "words",
        "--no-session",
        "--thinking",
        "enormous",
        "--thinking",
        "off",
        "--model",
    ];
    let ran = ran(&world, &all);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert!(ran.stdout.is_empty());
    let stderr = stderr(&ran);
    let expected = "note: no effect here: --no-themes, -ne, -ns, -np, -na, --approve, --offline, --verbose, \
        --extension, --skill, --theme, --session-dir, --plan, --depth, --key, -z, @file, words, \
        --model without a value\n";
    assert_eq!(stderr, expected);
    let version = self::ran(&world, &["--version"]);
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), env!("CARGO_PKG_VERSION"));
    // Combinations that Pi refuses are refused, and leave no session behind.
    for refused in [
        &["--fork", "x", "--continue"][..],
        &["--session-id", "-x-"],
        &["--session-id", "x", "--resume"],
        &["--tools", "read,+bash"],
    ] {
        let ran = self::ran(&world, refused);
        assert_eq!(ran.status.code(), Some(1), "{refused:?}: {}", self::stderr(&ran));
    }
    let sessions = world.daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"], json!([]), "{sessions}");
}

#[test]
fn only_the_listed_tools_are_offered_and_run() {
    let world = writing();
    let out = world.repo.join("out.txt");
    let rpc = Rpc::start(&world, &["--tools", "read,grep"]);
    let refused = |lines: &[Value]| {
        let end = call_end(lines);
        let shown = text(&end["result"]);
        assert_eq!(end["isError"], true, "{end}");
        assert_eq!(shown, "Tool write not found. The tools are: read_file, search");
        assert!(!out.exists());
    };
    refused(&rpc.turn("one"));
    let requests = world.model.requests();
    assert!(
        requests.len() == 2 && requests.iter().all(|it| offered(it) == ["read_file", "search"])
    );
    // Also in the sessions to which the client changes, and in a copy that another client makes.
    let entry =
        rpc.call(json!({"type": "get_fork_messages"}))["data"]["messages"][0]["entryId"].take();
    let wire = world.follower();
    let copy = wire.request("quack.fork", json!({}))["sessionId"].take();
    wire.request("unfollow", json!({}));
    wire.request("follow", json!({"sessionId": copy}));
    wire.request("say", json!({"sessionId": copy, "message": "go", "preferPi": true}));
    refused(
        &wire.events_until("agent_settled").iter().map(|it| it["data"].clone()).collect::<Vec<_>>(),
    );
    for switch in [json!({"type": "fork", "entryId": entry}), json!({"type": "new_session"})] {
        assert_eq!(rpc.call(switch)["success"], true);
        refused(&rpc.turn("two"));
    }
    assert_eq!(rpc.end(), Some(0));
    // The options of Pi are those of its process.
    let rpc = Rpc::start(&world, &["--continue"]);
    assert_eq!(call_end(&rpc.turn("three"))["isError"], false);
    assert!(out.exists());
}

#[test]
fn excluded_tools_and_no_tools_are_neither_offered_nor_run() {
    for (args, n_tools) in [
        (&["-xt", "write,bash"][..], None),
        (&["--no-tools"], Some(0)),
        (&["--no-builtin-tools"], Some(0)),
        (&["--tools", "-write"], None),
    ] {
        let world = writing();
        let rpc = Rpc::start(&world, args);
        let lines = rpc.turn("go");
        assert_eq!(call_end(&lines)["isError"], true, "{args:?}");
        assert!(!world.repo.join("out.txt").exists(), "{args:?}");
        let request = &world.model.requests()[0];
        let offered = offered(request);
        assert!(!offered.contains(&"write_file") && n_tools.is_none_or(|n| n == offered.len()));
        assert_eq!(offered.contains(&"edit_file"), n_tools.is_none(), "{offered:?}");
    }
}

#[test]
fn the_tools_of_pis_settings_limit_the_agent_of_every_client() {
    let call = json!({"name": "write", "arguments": {"path": "out.txt", "content": "x"}});
    let script = json!({"replies": [{"tool_calls": [call]}], "on_exhausted": "echo"});
    let world = World::with(&script, &json!({"defaultTools": ["read", "bash"]}), "");
    let wire = world.follower();
    say(&wire, "go");
    let events = wire.events_until("agent_settled");
    assert_eq!(only(&events, "tool_execution_end")["isError"], true);
    assert!(!world.repo.join("out.txt").exists());
}

#[test]
fn a_users_pi_gets_the_options_as_arguments() {
    let world = crate::pi::World::new("");
    let mut command = world.daemon.command(&[
        "rpc",
        "--engine",
        "pi",
        "--exclude-tools",
        "bash,write",
        "--append-system-prompt",
        "Be brief.",
    ]);
    command.current_dir(&world.repo).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start quack rpc");
    let mut stdin = child.stdin.take().expect("a pipe");
    writeln!(stdin, "{}", json!({"type": "get_state"})).unwrap();
    drop(stdin);
    assert!(child.wait().expect("wait").success());
    let argv = std::fs::read_to_string(world.fake("argv")).unwrap();
    let last: Vec<String> = serde_json::from_str(argv.lines().last().unwrap()).unwrap();
    let line = last.join(" ");
    assert!(line.contains(" --tools read,edit,grep,find,ls "), "{line}");
    assert!(line.contains(" --append-system-prompt Be brief."), "{line}");
}

#[test]
fn prompts_replace_and_extend_the_system_prompt() {
    let world = echo();
    std::fs::write(world.repo.join("AGENTS.md"), "Use tabs.").unwrap();
    std::fs::write(world.repo.join("more.txt"), "Answer in rhymes.").unwrap();
    let system = |args: &[&str]| {
        let rpc = Rpc::start(&world, args);
        rpc.turn("hello");
        assert_eq!(rpc.end(), Some(0));
        world.model.requests().last().unwrap()["body"]["messages"][0]["content"]
            .as_str()
            .expect("a system prompt")
            .to_owned()
    };
    let usual = system(&[]);
    assert!(usual.starts_with("You are a coding agent.") && usual.contains("Use tabs."), "{usual}");
    let append = ["--append-system-prompt", "more.txt", "--append-system-prompt", "-- Be brief."];
    let own = system(&[&["--system-prompt", "You write poems."][..], &append].concat());
    assert!(own.starts_with("You write poems.\n\nThe working directory is "), "{own}");
    for part in ["\nAnswer in rhymes.\n", "\n-- Be brief.\n", "Use tabs.", "bash runs commands"] {
        assert!(own.contains(part), "{part}: {own}");
    }
    assert!(!own.contains("You are a coding agent"), "{own}");
    let without = system(&["-nc"]);
    assert!(without.starts_with("You are a coding agent.") && !without.contains("Use tabs."));
}

#[test]
fn a_conversation_has_the_id_and_the_name_that_the_client_gives() {
    let world = echo();
    let state = |args: &[&str], prompt: Option<&str>| {
        let rpc = Rpc::start(&world, args);
        if let Some(prompt) = prompt {
            rpc.turn(prompt);
        }
        let state = rpc.call(json!({"type": "get_state"}))["data"].take();
        assert_eq!(rpc.end(), Some(0));
        state
    };
    let new = state(&["--session-id", "my.task-1", "--name", "The task"], Some("hello"));
    assert_eq!((&new["sessionId"], &new["sessionName"]), (&"my.task-1".into(), &"The task".into()));
    for again in [&["--session-id", "my.task-1"][..], &["--session", "my.ta"], &["--resume"]] {
        let found = state(again, None);
        assert_eq!(
            (&found["sessionId"], &found["messageCount"]),
            (&"my.task-1".into(), &2.into()),
            "{again:?}"
        );
    }
    let copy = state(&["--fork", "my.task-1"], None);
    assert_eq!(copy["messageCount"], 2);
    assert_ne!(copy["sessionId"], "my.task-1");
    let other = state(&["--session-id", "other"], None);
    assert_eq!((&other["sessionId"], &other["messageCount"]), (&"other".into(), &0.into()));
}

#[test]
fn models_limit_the_choice_and_a_level_follows_the_name() {
    let world = echo();
    let rpc = Rpc::start(&world, &["--models", "fake-2, fake/fake-1:high"]);
    let model = |rpc: &Rpc| rpc.call(json!({"type": "get_state"}))["data"]["model"]["id"].take();
    assert_eq!(model(&rpc), "fake-2");
    let cycled = rpc.call(json!({"type": "cycle_model"}))["data"].take();
    assert_eq!(
        (&cycled["model"]["id"], &cycled["thinkingLevel"], &cycled["isScoped"]),
        (&"fake-1".into(), &"high".into(), &true.into())
    );
    let only_one = Rpc::start(&world, &["--models", "*-1"]);
    assert_eq!(only_one.call(json!({"type": "cycle_model"}))["data"], Value::Null);
    assert_eq!(model(&only_one), "fake-1");
    let named = Rpc::start(&world, &["--provider", "fake", "--model", "fake-1:low"]);
    let state = named.call(json!({"type": "get_state"}))["data"].take();
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&"fake-1".into(), &"low".into()));
}

#[test]
fn a_key_of_the_command_line_is_given_to_the_daemon_and_kept_in_memory() {
    let world = echo();
    let key = "sk-of-the-command-line";
    let ran =
        ran(&world, &["--model", "groq/openai/gpt-oss-120b", "--api-key", key, "--no-session"]);
    assert_eq!((ran.status.code(), stderr(&ran)), (Some(0), String::new()));
    let names = world.daemon.wire().request("quack.keys", json!({"variables": {}}))["names"].take();
    assert_eq!(names, json!(["GROQ_API_KEY"]));
    assert!(!world.daemon.log().contains(key));
    let own = self::ran(&world, &["--model", "fake/fake-1", "--api-key", key, "--no-session"]);
    let expected = "note: --api-key has no effect: fake is no provider with a variable for its key; \
        `quack login` stores a key\n";
    assert_eq!((own.status.code(), stderr(&own)), (Some(0), expected.to_owned()));
}
