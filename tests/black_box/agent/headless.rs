//! `quack say` for scripts: prompts to a running turn, images, one result, an answer with a schema.

use super::prompt::{at_repo, last_request};
use super::queues::gated;
use super::{World, end_agent, say};
use crate::harness::{Running, wait_for, write_file};
use serde_json::{Value, json};

/// Runs `quack` in the repository. Returns the exit code, stdout and stderr.
#[track_caller]
fn run(world: &World, args: &[&str]) -> (Option<i32>, String, String) {
    let output = at_repo(world, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_prompt_joins_the_running_turn_of_another_client() {
    let world = gated();
    let wire = world.follower();
    say(&wire, "start");
    wire.events_until("tool_execution_start");
    let (code, shown, _) = run(&world, &["say", "--queue", "at the end"]);
    assert_eq!((code, shown.contains("queued")), (Some(0), true), "{shown}");
    let (code, shown, _) = run(&world, &["say", "--steer", "before the next step", "--json"]);
    let line: Value = serde_json::from_str(shown.trim()).unwrap();
    assert_eq!((code, &line["disposition"]), (Some(0), &json!("queued")), "{shown}");
    assert_eq!(run(&world, &["say", "neither"]).0, Some(4));
    world.daemon.open_gate("go");
    wire.events_until("agent_settled");
    let sent = last_request(&world);
    let at = |text: &str| sent.iter().position(|it| it.contains(text));
    assert!(at("before the next step").unwrap() < at("at the end").unwrap(), "{sent:?}");
    // Without a turn, it begins one.
    for way in ["--steer", "--queue"] {
        let (code, shown, _) = run(&world, &["say", way, "alone"]);
        assert_eq!((code, shown.trim()), (Some(0), "echo: alone"));
    }
    assert_eq!(run(&world, &["say", "--steer", "--queue", "x"]).0, Some(2));
}

#[test]
fn images_are_known_by_their_content_and_bounded() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let png = b"\x89PNG\r\n\x1a\nrest".as_slice();
    let write = |name: &str, bytes: &[u8]| std::fs::write(world.repo.join(name), bytes).unwrap();
    write("a.txt", png);
    write("b", b"RIFF\x04\0\0\0WEBPVP8 ");
    write("text.png", b"no image");
    write("large.png", &[png, &vec![0; 3 * 1024 * 1024]].concat());
    let (code, shown, error) = run(&world, &["say", "look", "--image", "a.txt", "--image", "b"]);
    assert_eq!((code, shown.trim()), (Some(0), "echo: look"), "{error}");
    let request = world.model.requests().pop().unwrap()["body"].to_string();
    assert!(request.contains("data:image/png;base64,iVBORw0KGgpyZXN0"), "{request}");
    assert!(request.contains("data:image/webp;base64,"), "{request}");
    for (file, part) in [
        ("text.png", "is not a PNG, JPEG, GIF or WebP image"),
        ("large.png", "is too large"),
        ("missing.png", "cannot read"),
        ("src", "is not a file"),
    ] {
        let (code, _, error) = run(&world, &["say", "look", "--image", file]);
        assert!(code == Some(2) && error.contains(part), "{file}: {error}");
    }
    assert_eq!(world.model.count("requests"), 1);
    // A model that is not known to read images.
    let path = world.agent.join("models.json");
    let mut models: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let blind = json!({"id": "blind", "contextWindow": 8000, "maxTokens": 100});
    models["providers"]["fake"]["models"].as_array_mut().unwrap().push(blind);
    std::fs::write(&path, models.to_string()).unwrap();
    assert_eq!(run(&world, &["new", "--name", "other", "--model", "fake/blind"]).0, Some(0));
    let args = ["say", "look", "--image", "a.txt", "--session", "other"];
    let (code, _, error) = run(&world, &args);
    assert!(code == Some(1) && error.contains("fake/blind is not known to read images"), "{error}");
}

/// Bodies of the requests so far.
fn bodies(world: &World) -> Vec<String> {
    world.model.requests().iter().map(|request| request["body"].to_string()).collect()
}

#[test]
fn an_image_that_the_provider_refuses_is_not_sent_again() {
    const IMAGE: &str = "data:image/png;base64,";
    const LEFT_OUT: &str = "(image left out: the provider refused it)";
    let refusal =
        json!({"status": 400, "error": "messages.0.content.1.image: image exceeds 5 MB maximum"});
    let world = World::new(&json!({"replies": [refusal], "on_exhausted": "echo"}));
    std::fs::write(world.repo.join("a.png"), b"\x89PNG\r\n\x1a\nrest").unwrap();
    let (code, shown, error) = run(&world, &["say", "look", "--image", "a.png"]);
    let lines: Vec<&str> =
        shown.lines().chain(error.lines()).filter(|it| it.contains("5 MB")).collect();
    assert_eq!((code, lines.len()), (Some(1), 1), "{shown}{error}");
    assert!(lines[0].contains("(the image was left out of the conversation: send a smaller PNG"));
    // The conversation goes on, also in another process.
    let wire = world.follower();
    end_agent(&world, &wire);
    assert_eq!(run(&world, &["say", "go on"]).0, Some(0));
    // A new image is sent.
    assert_eq!(run(&world, &["say", "look again", "--image", "a.png"]).0, Some(0));
    let images =
        || -> Vec<_> { bodies(&world).iter().map(|body| body.matches(IMAGE).count()).collect() };
    let sent = bodies(&world);
    assert_eq!(images(), [1, 0, 1], "{sent:?}");
    assert!(sent[2].contains(LEFT_OUT), "{}", sent[2]);

    // An image that a tool returned: the turn goes on without it.
    let read = json!({"name": "read_file", "arguments": {"path": "a.png"}});
    let refusal = json!({"status": 500, "error": "image input is not supported"});
    world
        .model
        .script(&json!({"replies": [{"tool_calls": [read]}, refusal, refusal, {"text": "blind"}]}));
    let (code, shown, error) = run(&world, &["say", "read it"]);
    assert_eq!((code, shown.contains("blind")), (Some(0), true), "{shown}{error}");
    assert!(
        format!("{shown}{error}").contains("(sent again without the images)"),
        "{shown}{error}"
    );
    // First that of the tool is left out, then those before, which the model has read.
    assert_eq!(images()[3..], [1, 2, 1, 0]);
    // Another model gets them.
    world.model.script(&json!({"on_exhausted": "echo"}));
    assert_eq!(run(&world, &["models", "use", "fake/fake-2"]).0, Some(0));
    assert_eq!(run(&world, &["say", "look"]).0, Some(0));
    assert_eq!(images().pop(), Some(3));
}

#[test]
fn one_result_has_text_files_cost_and_the_reason() {
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let calls = [
        call("write_file", json!({"path": "new.txt", "content": "x"})),
        call("edit_file", json!({"path": "src/main.rs", "old_text": "nowhere", "new_text": "y"})),
        call("read_file", json!({"path": "src/main.rs"})),
    ];
    let usage = json!({"prompt": 100, "completion": 10});
    let script = json!({"replies": [{"tool_calls": calls, "usage": usage}, {"text": "done", "usage": usage}]});
    let world = World::new(&script);
    let (code, shown, error) = run(&world, &["say", "work", "--result", "json"]);
    let result: Value = serde_json::from_str(&shown).expect("one object");
    assert_eq!(code, Some(0), "{error}");
    assert_eq!((&result["text"], &result["filesChanged"]), (&json!("done"), &json!(["new.txt"])));
    assert!(result.get("filesError").is_none(), "{result}");
    assert_eq!((&result["stopReason"], &result["tokens"]), (&json!("stop"), &json!(220)));
    assert!((result["cost"].as_f64().unwrap() - 0.000_24).abs() < 1e-9, "{result}");
    assert!(result["sessionId"].is_string() && result["reason"].is_null(), "{result}");
    world.model.script(&json!({"replies": [{"text": "half", "finish_reason": "length"}]}));
    let (code, shown, _) = run(&world, &["say", "more", "--result", "json"]);
    let result: Value = serde_json::from_str(&shown).expect("one object");
    assert_eq!((code, &result["reason"]), (Some(5), &json!("length")));
    world.model.script(&json!({"replies": [{"status": 400, "error": "no such parameter"}]}));
    let (code, shown, _) = run(&world, &["say", "more", "--result", "json"]);
    let result: Value = serde_json::from_str(&shown).expect("one object");
    assert_eq!((code, &result["error"]), (Some(1), &json!("400 no such parameter")));
    assert_eq!(run(&world, &["say", "x", "--result", "json", "--json"]).0, Some(2));
    // Ctrl-C ends the turn, and there is a result.
    world.model.script(&json!({"replies": [{"text": "one two", "chunk_chars": 4, "hang_after": 1, "hang_ms": 60_000}]}));
    let wire = world.follower();
    let running = Running::start(at_repo(&world, &["say", "long", "--result", "json"]));
    wire.events_until("message_update");
    running.signal(nix::sys::signal::Signal::SIGINT);
    let lines: Vec<_> = std::iter::from_fn(|| running.line_until_end()).collect();
    let (shown, (code, _)) = (lines.join("\n"), running.wait());
    let result: Value = serde_json::from_str(&shown).expect("one object");
    assert_eq!((code, &result["stopReason"]), (Some(130), &json!("aborted")));
}

#[test]
fn an_answer_is_held_to_a_schema_where_the_provider_can() {
    let script = json!({"replies": [{"text": "{\"n\": 7}"}, {"text": "seven"},
        {"text": "{\"n\": \"seven\"}"}, {"text": "plain"}]});
    let world = World::new(&script);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}},
        "required": ["n"], "additionalProperties": false});
    std::fs::write(world.repo.join("s.json"), schema.to_string()).unwrap();
    std::fs::write(world.repo.join("list.json"), "[]").unwrap();
    let (code, shown, error) =
        run(&world, &["say", "n?", "--schema", "s.json", "--result", "json"]);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(result["output"], json!({"n": 7}));
    let body = &world.model.requests().pop().unwrap()["body"];
    let expected = json!({"type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": true}});
    assert_eq!(body["response_format"], expected);
    let (code, shown, error) = run(&world, &["say", "n?", "--schema", "s.json"]);
    assert_eq!((code, shown.trim()), (Some(5), "seven"));
    assert!(error.contains("is not JSON"), "{error}");
    let (code, shown, error) =
        run(&world, &["say", "n?", "--schema", "s.json", "--result", "json"]);
    let result: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, &result["output"]), (Some(5), &json!({"n": "seven"})));
    assert!(error.contains("does not fit the schema at /n: "), "{error}");
    assert_eq!(result["schemaErrors"].as_array().unwrap().len(), 1, "{result}");
    // The next prompt has none.
    assert_eq!(run(&world, &["say", "plain"]).0, Some(0));
    assert!(world.model.requests().pop().unwrap()["body"].get("response_format").is_none());
    std::fs::write(world.repo.join("wrong.json"), r#"{"type": "nonsense"}"#).unwrap();
    for file in ["list.json", "missing.json", "wrong.json"] {
        assert_eq!(run(&world, &["say", "x", "--schema", file]).0, Some(2), "{file}");
    }
    let models = std::fs::read_to_string(world.agent.join("models.json")).unwrap();
    let models = models.replace("\"fake\":", "\"deepseek\":");
    std::fs::write(world.agent.join("models.json"), models).unwrap();
    assert_eq!(run(&world, &["new", "--name", "d", "--model", "deepseek/fake-1"]).0, Some(0));
    // The daemon looks at models.json once in a second.
    wait_for("the refusal", || {
        let (code, _, error) = run(&world, &["say", "n?", "--schema", "s.json", "--session", "d"]);
        (code == Some(1) && error.contains("no structured output")).then_some(())
    });
}

#[test]
fn files_that_commands_and_all_tools_change_are_listed() {
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let command = "echo x > by-bash.txt; mkdir -p .hidden build; echo x > .hidden/f; echo x > build/out; \
        touch -d 2001-01-01 old.txt";
    let calls = [
        call("bash", json!({"command": command})),
        call("write_file", json!({"path": "build/kept", "content": "x"})),
        call("write_file", json!({"path": "here.txt", "content": "x"})),
        call("replace", json!({"pattern": "needle", "replacement": "thread"})),
    ];
    let world = World::new(&json!({"replies": [{"tool_calls": calls}, {"text": "done"}]}));
    std::fs::write(world.repo.join(".gitignore"), "build/\n").unwrap();
    let (_, shown, _) = run(&world, &["say", "work", "--result", "json"]);
    let result: Value = serde_json::from_str(&shown).expect("one object");
    // An ignored file is listed only if a tool that writes one file wrote it.
    let expected = [".hidden/f", "build/kept", "by-bash.txt", "here.txt", "old.txt", "src/main.rs"];
    assert_eq!(result["filesChanged"], json!(expected), "{result}");
    assert_eq!((&result["filesDeleted"], &result["filesRenamed"]), (&json!([]), &json!([])));
}

#[test]
fn files_that_a_turn_deletes_and_renames_are_listed() {
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments});
    let command = "rm gone.txt -r old-dir/sub; mv one.txt two.txt; mv names other; mv edited.txt new-name.txt; \
        echo more >> new-name.txt; echo x > short-lived; rm short-lived; mkdir -p build; mv kept.txt build/; \
        mv a.txt c.txt; mv b.txt a.txt; mv c.txt b.txt; echo more.log >> .gitignore; echo x > again.txt.new; \
        mv again.txt.new again.txt; touch -d 2001-01-01 dated.txt; ln -s one.txt link; mv over.txt covered.txt; chmod +x 'a name'";
    let calls = [
        call("bash", json!({"command": command})),
        call("write_file", json!({"path": "temporary.txt", "content": "x"})),
    ];
    let then = [call("bash", json!({"command": "rm temporary.txt"}))];
    let script =
        json!({"replies": [{"tool_calls": calls}, {"tool_calls": then}, {"text": "done"}]});
    let world = World::new(&script);
    for name in [
        "gone.txt",
        "old-dir/sub/x",
        "old-dir/y",
        "one.txt",
        "names/a",
        "names/b",
        "edited.txt",
        "kept.txt",
        "a.txt",
        "b.txt",
        "covered.txt",
        "more.log",
        "was.ignored",
        "again.txt",
        "dated.txt",
        "a name",
        "same.txt",
        "over.txt",
    ] {
        write_file(world.repo.join(name), name);
    }
    std::fs::write(world.repo.join(".gitignore"), "build/\n*.ignored\n").unwrap();
    let (_, shown, error) = run(&world, &["say", "work", "--result", "json"]);
    let result: Value = serde_json::from_str(&shown).expect("one object");
    let renamed = |from: &str, to: &str| json!({"from": from, "to": to});
    // A file that is ignored now has neither changed nor gone, except if it has another name.
    assert_eq!(
        result["filesDeleted"],
        json!(["gone.txt", "kept.txt", "old-dir/sub/x"]),
        "{result}"
    );
    let names = [
        renamed("edited.txt", "new-name.txt"),
        renamed("names/a", "other/a"),
        renamed("names/b", "other/b"),
        renamed("one.txt", "two.txt"),
        renamed("over.txt", "covered.txt"),
    ];
    assert_eq!(result["filesRenamed"], json!(names), "{result}");
    let changed = [
        ".gitignore",
        "a name",
        "a.txt",
        "again.txt",
        "b.txt",
        "covered.txt",
        "dated.txt",
        "link",
        "new-name.txt",
        "other/a",
        "other/b",
        "two.txt",
    ];
    assert_eq!(result["filesChanged"], json!(changed), "{result} {error}");
    assert!(result.get("filesError").is_none(), "{result}");
}
