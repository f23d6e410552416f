//! The choice of a session's agent: quackd's own, or the user's Pi.

use super::{World, answer, text, turn};
use crate::harness::{Daemon, Terminal, Wire, wait_for};
use serde_json::{Value, json};

const FAKE_PI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");

/// The agent that answers. Both repeat the prompt, each with its own words.
#[track_caller]
fn engine(wire: &Wire) -> &'static str {
    engine_of(wire, &Value::Null)
}

/// Like [`engine`], for a session.
#[track_caller]
fn engine_of(wire: &Wire, session: &Value) -> &'static str {
    wire.request("say", json!({"message": "hi", "sessionId": session, "preferPi": true}));
    let events = wire.events_until("agent_end");
    let updates = events.iter().filter(|event| event["event"] == "message_update");
    let said: String = updates
        .filter_map(|event| event["data"]["assistantMessageEvent"]["delta"].as_str())
        .collect();
    match said.as_str() {
        "echo: hi" => "native",
        "You said: hi" => "pi",
        other => panic!("nobody says {other:?}: {events:?}"),
    }
}

/// A world with a model, and with a Pi if `binary` is set.
#[track_caller]
fn world(binary: bool, config: &str, variables: &[&str]) -> World {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    let dir = world.daemon.home().join("fake");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("mode"), "").unwrap();
    world.configure(config);
    let binary = binary.then(|| format!("RUBBER_DUCK_PI_BINARY={FAKE_PI}"));
    let dir = format!("FAKE_PI_DIR={}", dir.display());
    let mut all: Vec<&str> = variables.to_vec();
    all.extend(binary.as_deref());
    all.push(&dir);
    world.boot(&all);
    world
}

#[test]
fn the_first_that_says_something_decides() {
    let native = "[agent]\nengine = \"native\"\n";
    let pi = "[agent]\nengine = \"pi\"\n";
    // Whether a Pi is named, the configuration, a variable, parameters of `quack.session_set`, and who answers.
    let cases: &[(bool, &str, &str, Value, &str)] = &[
        (false, "", "", Value::Null, "native"),
        (true, "", "", Value::Null, "pi"),
        (true, native, "", Value::Null, "native"),
        (true, "", "QUACKD_ENGINE=native", Value::Null, "native"),
        (true, "", "QUACKD_ENGINE=auto", Value::Null, "pi"),
        (true, native, "QUACKD_ENGINE=pi", Value::Null, "pi"),
        (true, pi, "", Value::Null, "pi"),
        (true, "", "", json!({"engine": "native"}), "native"),
        (true, native, "", json!({"engine": "pi"}), "pi"),
        (true, native, "", json!({"engine": "auto"}), "native"),
        (true, "", "", json!({"model": "fake/fake-2"}), "native"),
        (true, pi, "", json!({"model": "fake/fake-2"}), "pi"),
        (true, "", "QUACKD_ENGINE=pi", json!({"engine": "native"}), "native"),
    ];
    for (binary, config, variable, set, expected) in cases {
        let variables: &[&str] = if variable.is_empty() { &[] } else { &[variable] };
        let world = world(*binary, config, variables);
        let wire = world.follower();
        if !set.is_null() {
            wire.request("quack.session_set", set.clone());
        }
        assert_eq!(engine(&wire), *expected, "{binary} {config:?} {variable:?} {set}");
    }
}

#[test]
fn a_session_can_change_its_agent_and_its_model() {
    let world = world(true, "", &[]);
    let wire = world.follower();
    let shown = || {
        let ran = world.daemon.command(&["models"]).current_dir(&world.repo).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    assert_eq!(engine(&wire), "pi");
    assert!(shown().contains(" uses Pi"), "{}", shown());
    wire.request("quack.session_set", json!({"engine": "native"}));
    assert_eq!(engine(&wire), "native");
    wire.request("quack.session_set", json!({"model": "fake/fake-2"}));
    assert_eq!(engine(&wire), "native");
    assert!(shown().contains(" uses quackd's own agent with fake/fake-2."), "{}", shown());
    assert_eq!(world.model.requests().pop().unwrap()["body"]["model"], "fake-2");
    wire.request("quack.session_set", json!({"engine": "pi"}));
    assert_eq!(engine(&wire), "pi");
    let error = wire.refused("quack.session_set", json!({"engine": "other"}));
    assert!(error.contains("native") && error.contains("pi"), "{error}");
}

#[test]
fn a_new_session_takes_the_agent_and_the_model_that_it_is_given() {
    let world = world(true, "", &[]);
    for (args, expected) in [
        (&["--engine", "native"][..], "native"),
        (&["--engine", "pi"], "pi"),
        (&[], "pi"),
        (&["--model", "fake/fake-2"], "native"),
    ] {
        let mut words = vec!["new"];
        words.extend(args);
        words.push("--json");
        let repo = world.repo.to_str().unwrap().to_owned();
        words.push(&repo);
        let made = world.daemon.quack(&words);
        assert_eq!(made.code(), Some(0), "{made:?}");
        let wire = world.daemon.wire();
        let id = made.json()["session"]["id"].clone();
        wire.request("follow", json!({"sessionId": id}));
        assert_eq!(engine_of(&wire, &id), expected, "{args:?}");
    }
}

#[test]
fn a_model_that_no_list_has_is_asked_for_at_the_only_provider() {
    let world = world(false, "", &[]);
    let wire = world.follower();
    wire.request("quack.session_set", json!({"model": "fake/in-no-list"}));
    assert_eq!(text(answer(&turn(&wire, "hi"))), "echo: hi");
    assert_eq!(world.model.requests().pop().unwrap()["body"]["model"], "in-no-list");
}

#[test]
fn a_choice_during_a_turn_applies_to_the_next_one() {
    let mut world = World::absent(&json!({}));
    let command = world.daemon.gated("go", "echo x");
    let call = json!({"name": "bash", "arguments": {"command": command}});
    world.model.script(&json!({"replies": [{"tool_calls": [call]}], "on_exhausted": "echo"}));
    world.boot(&[]);
    let wire = world.follower();
    super::say(&wire, "first");
    wire.events_until("tool_execution_start");
    wire.request("quack.session_set", json!({"model": "fake/fake-2"}));
    world.daemon.open_gate("go");
    let events = wire.events_until("agent_settled");
    assert_eq!(answer(&events)["model"], "fake-1");
    assert_eq!(answer(&turn(&wire, "second"))["model"], "fake-2");
}

#[test]
fn without_a_model_and_a_pi_say_tells_what_to_do() {
    let mut daemon = Daemon::absent();
    daemon.boot();
    let repo = daemon.repo("repo");
    for engine in ["auto", "native"] {
        let wire = daemon.wire();
        wire.attach(repo.path());
        wire.request("quack.session_set", json!({ "engine": engine }));
        let mut say = daemon.command(&["say", "hello"]);
        let ran = say.current_dir(repo.path()).output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        let stderr = String::from_utf8(ran.stderr).unwrap();
        let parts = [
            "No model is configured",
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "ollama",
            "model.base_url",
            "models.json",
            "quack models --test",
        ];
        for part in parts {
            assert!(stderr.contains(part), "{engine}: no {part} in {stderr}");
        }
    }
    let wire = daemon.wire();
    wire.attach(repo.path());
    wire.request("quack.session_set", json!({"engine": "native", "model": "nowhere/x"}));
    let error = wire.refused("say", json!({"message": "hi", "preferPi": true}));
    assert!(error.starts_with("The session's model nowhere/x is not available"), "{error}");
    let models = daemon.quack(&["models"]);
    let shown = models.stdout() + &models.stderr();
    assert!(shown.contains("No model is configured"), "{shown}");
}

#[test]
fn models_that_commands_could_change_are_not_used() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    // A command of the session could name another server there, which would get the key.
    world.agent = world.repo.join("settings");
    std::fs::create_dir(&world.agent).unwrap();
    world.write_models(&world.model.v1(), "openai-completions");
    world.boot(&[]);
    let wire = world.daemon.wire();
    wire.attach(&world.repo);
    let error = wire.refused("say", json!({"message": "hi", "preferPi": true}));
    assert!(error.contains("commands write"), "{error}");
    assert_eq!(world.model.count("requests"), 0);
}

#[test]
fn the_next_turn_knows_of_another_network_and_of_the_end_of_safe_mode() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    let asked = |message: &str| {
        turn(&wire, message);
        world.model.requests().pop().unwrap()["body"].to_string()
    };
    let no_network = "Commands have no network";
    assert!(asked("one").contains(no_network));
    let first = world.agent_process();
    assert!(asked("two").contains(no_network));
    assert_eq!(world.agent_process().pid, first.pid, "nothing has changed");
    wire.request("quack.sandbox", json!({"action": "set", "network": "on"}));
    assert!(!asked("three").contains(no_network));
    wire.request("attach", json!({"path": world.repo, "safeMode": true}));
    let safe = asked("four");
    assert!(safe.contains("Safe mode is on") && !safe.contains("edit_file"), "{safe}");
    wire.request("attach", json!({"path": world.repo, "safeMode": false}));
    let last = asked("five");
    assert!(!last.contains("Safe mode is on") && last.contains("edit_file"), "{last}");
    assert!(last.contains("echo: one"), "the conversation goes on");
}

#[test]
fn models_use_switches_the_session_of_the_directory_and_refuses_unknown_names() {
    let script = json!({"on_exhausted": "echo", "models": ["fake-1", "fake-2", "fake-3-large"]});
    let world = World::new(&script);
    let run = |args: &[&str]| {
        let output = super::prompt::at_repo(&world, args).output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(all).unwrap())
    };
    let asked = || world.model.requests().pop().unwrap()["body"]["model"].clone();
    // The directory has no session.
    assert_eq!(run(&["models", "use", "fake/fake-2"]).0, Some(2));
    assert_eq!(run(&["say", "one"]).0, Some(0));
    assert_eq!(asked(), "fake-1");
    for (name, model) in
        [("fake/fake-2", "fake-2"), ("fake-1", "fake-1"), ("fake/fake-3-large", "fake-3-large")]
    {
        let (code, text) = run(&["models", "use", name]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("uses fake/{model} from now on")), "{text}");
        assert_eq!(run(&["say", "two"]).0, Some(0));
        assert_eq!(asked(), model);
    }
    for (name, part) in [
        ("fake/fake-3-small", "fake has no model fake-3-small; it has fake-3-large"),
        ("nobody/x", "The model nobody/x is not known"),
        ("", "is not known"),
    ] {
        let (code, text) = run(&["models", "use", name]);
        assert!(code == Some(1) && text.contains(part), "{name}: {text}");
    }
    // Another session, and the choice outlives the agent.
    assert_eq!(run(&["new", "--name", "other", "--model", "fake/fake-2"]).0, Some(0));
    assert_eq!(run(&["models", "use", "fake/fake-1", "--session", "other"]).0, Some(0));
    assert_eq!(run(&["say", "three", "--session", "other"]).0, Some(0));
    assert_eq!(asked(), "fake-1");
    for agent in world.agents() {
        super::kill(&agent);
    }
    wait_for("the agents to end", || world.agents().is_empty().then_some(()));
    assert_eq!(run(&["say", "four", "--session", "other"]).0, Some(0));
    assert_eq!(asked(), "fake-1");
    assert_eq!(run(&["say", "five", "--session", "repo"]).0, Some(0));
    assert_eq!(asked(), "fake-3-large");
}

#[test]
fn a_server_that_lists_its_window_decides_about_it_and_the_answer_is_kept() {
    let mut world = World::absent(&json!({"on_exhausted": "echo",
        "list": [{"id": "m", "max_model_len": 8192}]}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    let base = world.model.v1();
    world.configure(&format!("model.base_url = \"{base}\"\nmodel.name = \"m\"\n"));
    world.boot(&[]);
    let say = |world: &World| {
        let run = super::prompt::at_repo(world, &["say", "hi"]).output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        let asked = world.model.requests().pop().unwrap()["body"].clone();
        asked["max_tokens"].as_u64().unwrap()
    };
    // Half of the window.
    assert_eq!(say(&world), 4096);
    let file = world.daemon.app().join("model-lists.json");
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let list = &kept.as_object().unwrap().values().next().unwrap();
    assert_eq!((&list["models"][0]["window"], &list["base"]), (&json!(8192), &json!(base)));
    let data = world.daemon.quack(&["models", "--json"]).json();
    assert_eq!(data["chosen"]["model"]["contextWindow"], 8192);
    assert_eq!(data["listed"].as_object().unwrap().len(), 1);
    // The next daemon knows it, also if the server no longer answers.
    world.daemon.quack(&["stop"]).ok();
    world.daemon.wait();
    world.model.script(&json!({"on_exhausted": "echo", "list": "nothing"}));
    world.boot(&[]);
    assert_eq!(say(&world), 4096);
}

/// Runs a subcommand in the repository. Returns its exit code, stdout and stderr.
fn run(world: &World, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = super::prompt::at_repo(world, args);
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_default_that_its_provider_no_longer_offers_is_told_by_say_and_the_prompt() {
    let mut world = World::absent(&json!({"on_exhausted": "echo", "models": ["gpt-4.1"]}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    let base = format!("OPENAI_BASE_URL={}", world.model.v1());
    world.boot(&["OPENAI_API_KEY=sk-x", &base]);
    let told = "openai offers its usual model gpt-4o-mini no more; gpt-4.1 is used";
    let (_, shown, error) = run(&world, &["say", "hi"]);
    assert_eq!(shown.trim(), "echo: hi");
    assert!(error.contains(told), "{error}");
    assert_eq!(world.model.requests()[0]["body"]["model"], "gpt-4.1");
    let (_, _, error) = run(&world, &["say", "hi"]);
    assert!(!error.contains("usual model"), "told once: {error}");
    for (args, is_line) in [(&["--json"][..], true), (&["--result", "json"], false)] {
        let name = args.join("").replace('-', "");
        assert_eq!(run(&world, &["new", "--name", &name]).0, Some(0));
        let (_, shown, error) = run(&world, &[&["say", "hi", "--session", &name], args].concat());
        assert_eq!(
            (shown.contains(told), error.contains(told)),
            (is_line, !is_line),
            "{shown} {error}"
        );
        let is_one = serde_json::from_str::<Value>(&shown).is_ok();
        assert_eq!(is_one, !is_line, "one object: {shown}");
    }
    assert_eq!(run(&world, &["new", "--name", "typed"]).0, Some(0));
    let at = ["--session", "typed"];
    let person = Terminal::sized(
        super::prompt::at_repo(&world, &[&["follow"][..], &at].concat()),
        Some((120, 24)),
    );
    // The header comes when the session is followed.
    person.stands("repo/typed  ");
    let wire = world.daemon.wire();
    wire.attach(&world.repo);
    assert_eq!(run(&world, &["say", "hi", "--session", "typed"]).0, Some(0));
    person.stands(&format!("-- {told} --"));
}

#[test]
fn a_model_that_no_list_has_outlives_the_agent_and_the_daemon() {
    // The provider has no list.
    let mut world = World::new(&json!({"on_exhausted": "echo", "list": "nothing"}));
    let asked = |world: &World| {
        let (code, _, error) = run(world, &["say", "hi"]);
        assert_eq!(code, Some(0), "{error}");
        world.model.requests().pop().unwrap()["body"]["model"].as_str().unwrap().to_owned()
    };
    assert_eq!(asked(&world), "fake-1");
    let (code, _, error) = run(&world, &["models", "use", "fake/hidden"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(asked(&world), "hidden");
    for agent in world.agents() {
        super::kill(&agent);
    }
    wait_for("the agents to end", || world.agents().is_empty().then_some(()));
    assert_eq!(asked(&world), "hidden");
    world.daemon.quack(&["stop"]).ok();
    world.daemon.wait();
    world.boot(&[]);
    assert_eq!(asked(&world), "hidden");
    // The prompt can do the same.
    let person = Terminal::sized(super::prompt::at_repo(&world, &[]), Some((80, 24)));
    person.stands("> ");
    person.press("/model fake/other\r");
    person.stands("uses fake/other from now on");
    person.stands("other · ");
    person.press("\x04");
    assert_eq!(person.end().1, Some(0));
    assert_eq!(asked(&world), "other");
}

#[test]
fn a_small_window_of_ollama_leads_to_few_tools_and_says_what_to_set() {
    // <https://docs.ollama.com/api-reference/show-model-details>, <https://docs.ollama.com/api/ps>
    let show = |parameters: &str| {
        json!({"parameters": parameters, "details": {"family": "qwen3"}, "capabilities": ["completion", "tools"],
            "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960}})
    };
    let loaded = json!({"models": [{"name": "qwen3:latest", "model": "qwen3:latest", "size": 1,
        "context_length": 4096}]});
    let setting =
        show("num_ctx                        8192\nstop                           \"<|im_end|>\"");
    let cases = [
        (json!({"show": setting, "ps": loaded}), 8192),
        (json!({"show": show(""), "ps": loaded}), 4096),
        (json!({"show": show(""), "ps": {"models": []}}), 40_960),
    ];
    for (api, window) in cases {
        let mut script =
            json!({"on_exhausted": "echo", "list": [{"id": "qwen3:latest", "object": "model"}]});
        script.as_object_mut().unwrap().extend(api.as_object().unwrap().clone());
        let mut world = World::absent(&script);
        std::fs::remove_file(world.agent.join("models.json")).unwrap();
        let base = world.model.v1();
        world.configure(&format!(
            "model.provider = \"ollama\"\nmodel.name = \"qwen3\"\nmodel.base_url = \"{base}\"\n"
        ));
        world.boot(&[]);
        let (code, shown, error) = run(&world, &["say", "hi"]);
        assert_eq!((code, shown.trim()), (Some(0), "echo: hi"), "{error}");
        let body = world.model.requests().pop().unwrap()["body"].clone();
        let tools = body["tools"].as_array().unwrap();
        let names: Vec<&str> =
            tools.iter().filter_map(|it| it["function"]["name"].as_str()).collect();
        let told = format!("ollama/qwen3 has a window of {window} tokens");
        let is_small = window < 16_384;
        for text in [error, run(&world, &["models"]).1] {
            assert_eq!(
                text.contains(&told) && text.contains("OLLAMA_CONTEXT_LENGTH=65536"),
                is_small,
                "{text}"
            );
        }
        if is_small {
            assert_eq!(names, ["bash", "read_file", "write_file", "edit_file", "search", "find"]);
            // A token of English or JSON has about 4 bytes.
            let size = body["tools"].to_string().len() + body["messages"][0].to_string().len();
            assert!(size / 4 < 1000, "{size} bytes");
            assert!(tools.iter().all(|it| {
                it["function"]["parameters"]["properties"].as_object().unwrap().len() > 1
            }));
            assert!(body["max_tokens"].as_u64().unwrap() <= window / 2, "{body}");
        } else {
            assert!(names.len() > 6 && names.contains(&"replace"), "{names:?}");
        }
    }
}
