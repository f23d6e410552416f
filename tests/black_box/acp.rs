//! `quack acp`: an editor that speaks the Agent Client Protocol, as raw lines over the real program's stdin and stdout.
//! The agent of the sessions is the fake Pi.

use crate::approvals::connect;
use crate::first_hour_network::can_test_network;
use crate::harness::tier::{self, needs};
use crate::harness::{Daemon, wait_for};
use crate::mcp::Agent;
use crate::pi::World;
use serde_json::{Value, json};

/// A running `quack acp` and the editor that started it.
struct Editor {
    agent: Agent,
    session: String,
}

impl Editor {
    /// Starts the program, and a session in the world's repository.
    #[track_caller]
    fn start(world: &World, capabilities: Value) -> Self {
        let mut editor = Self::spawn(&world.daemon, capabilities);
        let new =
            editor.ok("session/new", json!({"cwd": world.repo.join("src"), "mcpServers": []}));
        editor.session = new["sessionId"].as_str().expect("an id").to_owned();
        editor
    }

    #[track_caller]
    fn spawn(daemon: &Daemon, capabilities: Value) -> Self {
        let mut editor =
            Self { agent: Agent::spawn(daemon.command(&["acp"])), session: String::new() };
        let info = json!({"name": "Zed", "version": "1.0"});
        let initialized = editor.ok(
            "initialize",
            json!({"protocolVersion": 7, "clientCapabilities": capabilities, "clientInfo": info}),
        );
        assert_eq!(initialized["protocolVersion"], 1);
        assert_eq!(initialized["agentCapabilities"]["loadSession"], true);
        editor
    }

    /// The result of a request.
    #[track_caller]
    fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.agent.request(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    #[track_caller]
    fn code(&mut self, method: &str, params: Value) -> Value {
        self.agent.request(method, params)["error"]["code"].clone()
    }

    fn begin_prompt(&mut self, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.agent.begin("session/prompt", json!({"sessionId": self.session, "prompt": prompt}))
    }

    /// The answer to a request, and the updates before it.
    #[track_caller]
    fn updates_until(&mut self, id: u64) -> (Vec<Value>, Value) {
        let mut updates = Vec::new();
        loop {
            let message = self
                .agent
                .message(|message| message["id"] == id || message["method"] == "session/update");
            if message["method"] != "session/update" {
                return (updates, message);
            }
            assert_eq!(message["params"]["sessionId"], self.session.as_str());
            updates.push(message["params"]["update"].clone());
        }
    }

    /// Sends a prompt. Returns its updates and why its turn ended.
    #[track_caller]
    fn prompt(&mut self, text: &str) -> (Vec<Value>, Value) {
        let id = self.begin_prompt(text);
        let (updates, answer) = self.updates_until(id);
        assert!(answer["error"].is_null(), "{answer}");
        (updates, answer["result"]["stopReason"].clone())
    }

    #[track_caller]
    fn update(&mut self, kind: &str) -> Value {
        let message = self.agent.message(|m| m["params"]["update"]["sessionUpdate"] == kind);
        message["params"]["update"].clone()
    }

    #[track_caller]
    fn asked(&mut self, method: &str) -> Value {
        self.agent.message(|message| message["method"] == method)
    }

    fn answer(&mut self, asked: &Value, result: Value) {
        self.agent.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    }
}

fn of<'a>(updates: &'a [Value], kind: &str) -> Vec<&'a Value> {
    updates.iter().filter(|update| update["sessionUpdate"] == kind).collect()
}

/// The text of all chunks of a kind.
fn text(updates: &[Value], kind: &str) -> String {
    of(updates, kind).iter().filter_map(|update| update["content"]["text"].as_str()).collect()
}

const ANSWER: &str = "agent_message_chunk";

/// Sets the output of the fake Pi for the prompt `script`.
fn script(world: &World, lines: &[Value]) {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(world.fake("script"), lines).expect("a script");
}

fn message(role: &str, extra: Value) -> Value {
    let mut message = json!({"role": role, "content": [], "api": "a", "provider": "p", "model": "m",
        "stopReason": "stop", "timestamp": 1});
    message.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    message
}

#[test]
fn a_prompt_is_a_turn_whose_text_comes_before_its_end() {
    let world = World::new("");
    let user = world.daemon.wire();
    user.attach(&world.repo);
    let mut editor = Editor::start(&world, json!({}));
    let (updates, stop) = editor.prompt("hello");
    assert_eq!(stop, "end_turn");
    assert_eq!(text(&updates, ANSWER), "You said: hello");
    let chunks = of(&updates, ANSWER);
    assert!(1 < chunks.len() && chunks.iter().all(|it| it["messageId"] == chunks[0]["messageId"]));
    assert_eq!(of(&updates, "session_info_update")[0]["title"], "hello");
    // The editor shows the text of its prompts itself.
    assert_eq!(text(&updates, "user_message_chunk"), "");
    let (next, _) = editor.prompt("again");
    assert_ne!(of(&next, ANSWER)[0]["messageId"], chunks[0]["messageId"]);
    let sessions = user.request("sessions", json!({"all": true}));
    let named: Vec<_> = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["isActive"].as_bool().unwrap()))
        .collect();
    assert_eq!(named, [("duck-1", true), ("zed-1", false)]);
    // Another client's prompt is shown whole.
    user.request(
        "say",
        json!({"message": "from elsewhere", "sessionId": editor.session, "preferPi": true}),
    );
    assert_eq!(editor.update("user_message_chunk")["content"]["text"], "from elsewhere");
    editor.agent.leave();
}

#[test]
fn thoughts_tools_diffs_and_usage_are_updates() {
    let world = World::new("");
    let part = |part: Value| json!({"type": "message_update", "message": {"role": "assistant"}, "assistantMessageEvent": part});
    let edits = json!([{"oldText": "one", "newText": "two"}]);
    let args = json!({"path": "a.txt", "edits": edits});
    let call = json!({"type": "toolCall", "id": "c1", "name": "edit", "arguments": args});
    let usage = json!({"input": 10, "output": 5, "totalTokens": 15, "cost": {"total": 0.5}});
    script(
        &world,
        &[
            json!({"type": "message_start", "message": message("assistant", json!({}))}),
            part(json!({"type": "thinking_delta", "contentIndex": 0, "delta": "hm"})),
            part(json!({"type": "toolcall_end", "contentIndex": 1, "toolCall": call})),
            json!({"type": "message_end", "message": message("assistant", json!({"usage": usage, "stopReason": "toolUse"}))}),
            json!({"type": "tool_execution_start", "toolCallId": "c1", "toolName": "edit", "args": args}),
            json!({"type": "tool_execution_end", "toolCallId": "c1", "toolName": "edit", "isError": false,
            "result": {"content": [{"type": "text", "text": "ok"}], "details": {"firstChangedLine": 4}}}),
            json!({"type": "tool_execution_start", "toolCallId": "c2", "toolName": "bash", "args": {"command": "ls -l"}}),
            json!({"type": "tool_execution_update", "toolCallId": "c2", "toolName": "bash", "args": {"command": "ls -l"},
            "partialResult": {"content": [{"type": "text", "text": "a"}]}}),
            json!({"type": "tool_execution_end", "toolCallId": "c2", "toolName": "bash", "isError": true,
            "result": {"content": [{"type": "text", "text": "a\nb"}]}}),
            json!({"type": "message_start", "message": message("assistant", json!({}))}),
            json!({"type": "message_end", "message": message("assistant",
            json!({"content": [{"type": "text", "text": "whole"}], "stopReason": "length"}))}),
        ],
    );
    let mut editor = Editor::start(&world, json!({}));
    let (updates, stop) = editor.prompt("script");
    assert_eq!(stop, "max_tokens");
    assert_eq!(text(&updates, "agent_thought_chunk"), "hm");
    assert_eq!(text(&updates, ANSWER), "whole");
    let path = world.repo.join("a.txt");
    let calls = of(&updates, "tool_call");
    assert_eq!(calls.len(), 2, "{updates:?}");
    assert_eq!(
        (&calls[0]["toolCallId"], &calls[0]["kind"], &calls[0]["status"], &calls[0]["rawInput"]),
        (&json!("c1"), &json!("edit"), &json!("pending"), &args)
    );
    assert_eq!(calls[0]["locations"], json!([{"path": path}]));
    assert_eq!((&calls[1]["title"], &calls[1]["kind"]), (&json!("ls -l"), &json!("execute")));
    let changes = of(&updates, "tool_call_update");
    let states: Vec<_> = changes.iter().map(|it| (&it["toolCallId"], &it["status"])).collect();
    let (one, two) = (json!("c1"), json!("c2"));
    let (works, done, failed) = (json!("in_progress"), json!("completed"), json!("failed"));
    assert_eq!(states, [(&one, &works), (&one, &done), (&two, &works), (&two, &failed)]);
    let diff = json!({"type": "diff", "path": path, "oldText": "one", "newText": "two"});
    assert_eq!(changes[1]["content"], json!([diff]));
    assert_eq!(changes[1]["locations"], json!([{"path": path, "line": 4}]));
    assert_eq!(changes[3]["content"][0]["content"]["text"], "```\na\nb\n```");
    editor.agent.leave();
}

#[test]
fn a_cancelled_prompt_ends_as_cancelled_and_the_next_one_works() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    for by_request in [false, true] {
        let id = editor.begin_prompt("hang");
        editor.update(ANSWER);
        let session = json!({"sessionId": editor.session});
        let second = editor.begin_prompt("too early");
        let refused = editor.agent.answer(second)["error"].take();
        assert_eq!(refused["code"], -32600);
        assert!(refused["message"].as_str().unwrap().contains("cancel it, or wait"), "{refused}");
        let (method, params) = if by_request {
            ("$/cancel_request", json!({"requestId": id}))
        } else {
            ("session/cancel", session)
        };
        editor.agent.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
        assert_eq!(editor.agent.answer(id)["result"], json!({"stopReason": "cancelled"}));
    }
    // A cancel without a prompt does nothing, and the next prompt is not cancelled.
    let params = json!({"sessionId": editor.session});
    editor.agent.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    assert_eq!(editor.prompt("hello").1, "end_turn");
    editor.agent.leave();
}

#[test]
fn failures_are_errors_of_the_prompt_and_a_refusal_is_none() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    let refused = |editor: &mut Editor, text: &str| {
        let id = editor.begin_prompt(text);
        editor.agent.answer(id)["error"].clone()
    };
    assert_eq!(refused(&mut editor, "refuse")["message"], "No model selected");
    assert_eq!(refused(&mut editor, "late-refuse")["message"], "Out of credit");
    let died = refused(&mut editor, "die");
    assert_eq!(died["code"], -32603, "{died}");
    let end = |extra: Value| json!({"type": "message_end", "message": message("assistant", extra)});
    script(&world, &[end(json!({"stopReason": "error", "errorMessage": "overloaded"}))]);
    assert_eq!(refused(&mut editor, "script")["message"], "overloaded");
    script(&world, &[end(json!({"stopReason": "error", "rawStopReason": "refusal"}))]);
    assert_eq!(editor.prompt("script").1, "refusal");
    let prompt = json!([{"type": "audio", "data": "", "mimeType": "audio/wav"}]);
    let params = json!({"sessionId": editor.session, "prompt": prompt});
    assert_eq!(editor.code("session/prompt", params), -32602);
    editor.agent.leave();
}

#[test]
fn a_question_is_a_request_and_its_answer_reaches_the_agent() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({"elicitation": {"form": {}}}));
    let selected = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
    let dismissed = json!({"outcome": {"outcome": "cancelled"}});
    let accepted = json!({"action": "accept", "content": {"value": "Ada"}});
    let (permission, form) = ("session/request_permission", "elicitation/create");
    for (prompt, method, result, expected) in [
        ("confirm", permission, selected("yes"), "{\"confirmed\": true}"),
        ("confirm", permission, selected("no"), "{\"confirmed\": false}"),
        ("confirm", permission, dismissed, "{\"cancelled\": true}"),
        ("confirm", permission, json!("yes"), "{\"cancelled\": true}"),
        ("select", permission, selected("1"), "{\"value\": \"b\"}"),
        ("input", form, accepted, "{\"value\": \"Ada\"}"),
        ("input", form, json!({"action": "cancel"}), "{\"cancelled\": true}"),
    ] {
        let id = editor.begin_prompt(prompt);
        let asked = editor.asked(method);
        assert_eq!(asked["params"]["sessionId"], editor.session.as_str());
        editor.answer(&asked, result);
        let (updates, answer) = editor.updates_until(id);
        assert_eq!(text(&updates, ANSWER), format!("Answer: {expected}"), "{prompt}");
        assert_eq!(answer["result"]["stopReason"], "end_turn");
    }
    // Another client answers first.
    let id = editor.begin_prompt("confirm");
    let asked = editor.asked(permission);
    let other = world.daemon.wire();
    other.request("follow", json!({"sessionId": editor.session}));
    let question = other.events_until("extension_ui_request").pop().unwrap()["data"]["id"].clone();
    let answer = json!({"sessionId": editor.session, "id": question, "confirmed": true});
    other.request("extension_ui_response", answer);
    let cancelled = editor.agent.message(|message| message["method"] == "$/cancel_request");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    assert_eq!(editor.agent.answer(id)["result"]["stopReason"], "end_turn");
    // A cancelled prompt ends its question.
    let id = editor.begin_prompt("confirm");
    let asked = editor.asked(permission);
    let params = json!({"sessionId": editor.session});
    editor.agent.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    assert_eq!(editor.agent.answer(id)["result"]["stopReason"], "cancelled");
    editor.answer(&asked, selected("yes"));
    editor.agent.leave();
    // Without forms the question is cancelled.
    let mut plain = Editor::start(&world, json!({}));
    assert_eq!(text(&plain.prompt("input").0, ANSWER), "Answer: {\"cancelled\": true}");
    plain.agent.leave();
}

#[test]
fn a_question_that_an_editor_cannot_show_is_left_to_the_client_of_the_prompt() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    let other = world.daemon.wire();
    let session = json!({"sessionId": editor.session});
    other.request("follow", session.clone());
    let prompt = json!({"message": "input", "sessionId": editor.session, "preferPi": true});
    other.request("say", prompt);
    let question = other.events_until("extension_ui_request").pop().unwrap()["data"]["id"].clone();
    // The editor's connection has got the question before this answer.
    editor.ok("session/set_mode", json!({"sessionId": editor.session, "modeId": "ask"}));
    let mut late = Editor::spawn(&world.daemon, json!({}));
    let of_session = json!({"sessionId": editor.session, "cwd": world.repo, "mcpServers": []});
    late.ok("session/resume", of_session);
    let answer = json!({"sessionId": editor.session, "id": question, "value": "Ada"});
    other.request("extension_ui_response", answer);
    let events = other.events_until("agent_end");
    let told =
        events.iter().any(|it| it["data"].to_string().contains("Answer: {\\\"value\\\": \\\"Ada"));
    assert!(told, "{events:?}");
    late.agent.leave();
    editor.agent.leave();
}

#[test]
fn a_permission_is_allowed_once_or_denied_for_the_session() {
    // Without a setting the network is off, and hosts are asked about as well.
    // In the tier of macOS nothing sees what is refused then.
    let modes = ["network = \"hosts\"", ""];
    for network in modes.into_iter().filter(|mode| !(tier::is_macos() && mode.is_empty())) {
        permissions_are_asked(network);
    }
}

/// A daemon with this line in the section `sandbox` of its configuration.
fn configured(line: &str) -> Daemon {
    Daemon::start_with(format!("[sandbox]\n{line}\n"))
}

#[test]
fn the_mode_ask_does_not_claim_questions_about_hosts_where_the_user_has_turned_the_network_off() {
    needs!(Namespaces);
    let daemon = configured("network = \"off\"");
    let repo = daemon.repo("project");
    let mut editor = Editor::spawn(&daemon, json!({}));
    let new = editor.ok("session/new", json!({"cwd": repo.path(), "mcpServers": []}));
    let modes = new["modes"]["availableModes"].as_array().expect("modes");
    let ask = modes.iter().find(|mode| mode["id"] == "ask").expect("the mode");
    let text = ask["description"].as_str().unwrap();
    assert!(text.contains("denied without a question"), "{ask}");
    let wire = daemon.wire();
    if !can_test_network(&wire.attach(repo.path())) {
        return;
    }
    let arguments = json!({"command": connect("a.example:443")});
    let params = json!({"sessionId": new["sessionId"], "tool": "bash", "arguments": arguments});
    let denied = wire.request("quack.tool", params);
    assert!(denied["text"].as_str().unwrap_or_default().starts_with("HTTP/1.1 403 "), "{denied}");
    editor.agent.leave();
}

fn permissions_are_asked(network: &str) {
    let daemon = configured(network);
    let repo = daemon.repo("project");
    let wire = daemon.wire();
    if !can_test_network(&wire.attach(repo.path())) {
        return;
    }
    let mut editor = Editor::spawn(&daemon, json!({}));
    let new = editor.ok("session/new", json!({"cwd": repo.path(), "mcpServers": []}));
    assert!(new["modes"].to_string().contains("asks before anything that the sandbox denies"));
    let session = new["sessionId"].clone();
    for (kind, host, expected) in [
        ("allow_once", "a.example:443", "HTTP/1.1 502 "),
        ("reject_always", "b.example:443", "HTTP/1.1 403 "),
    ] {
        let arguments = json!({"command": connect(host)});
        let params =
            json!({"sessionId": session, "tool": "bash", "arguments": arguments, "callId": host});
        let call = wire.begin("quack.tool", &params);
        let asked = editor.asked("session/request_permission");
        assert_eq!(asked["params"]["toolCall"]["toolCallId"], host);
        let options = asked["params"]["options"].as_array().unwrap();
        let kinds: Vec<_> = options.iter().map(|option| option["kind"].as_str().unwrap()).collect();
        for kind in ["allow_once", "allow_always", "reject_once", "reject_always"] {
            assert!(kinds.contains(&kind), "{kinds:?}");
        }
        let option = options.iter().find(|option| option["kind"] == kind).unwrap();
        let outcome = json!({"outcome": "selected", "optionId": option["optionId"]});
        editor.answer(&asked, json!({ "outcome": outcome }));
        let reply = call.reply();
        let text = reply["data"]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with(expected), "{kind}: {reply}");
    }
    editor.agent.leave();
}

#[test]
fn a_loaded_session_replays_its_conversation_and_a_resumed_one_does_not() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    editor.prompt("hello");
    let state = world.daemon.wire().request("get_state", json!({"sessionId": editor.session}));
    let file = state["piState"]["sessionFile"].as_str().expect("a file").to_owned();
    let call =
        json!({"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "README.md"}});
    let entries = [
        json!({"type": "session", "version": 3, "id": "s", "cwd": world.repo}),
        json!({"type": "message", "message": {"role": "user", "content": "fix it", "timestamp": 1}}),
        json!({"type": "message", "message": message("assistant", json!({"content":
            [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I read"}, call]}))}),
        json!({"type": "model_change", "provider": "p", "modelId": "m"}),
        json!({"type": "message", "message": {"role": "toolResult", "toolCallId": "t1", "toolName": "read",
            "content": [{"type": "text", "text": "# A"}], "isError": false, "timestamp": 2}}),
        json!({"type": "message", "message": message("assistant", json!({"content": [{"type": "text", "text": "done"}]}))}),
    ];
    let linked = entries.into_iter().enumerate().map(|(n, mut entry)| {
        if n != 0 {
            entry["id"] = json!(format!("{n:08}"));
            entry["parentId"] = if n == 1 { Value::Null } else { json!(format!("{:08}", n - 1)) };
        }
        entry["timestamp"] = json!("2026-01-02T03:04:05.000Z");
        format!("{entry}\n")
    });
    let lines: String = linked.collect();
    std::fs::write(file, lines + "{\"type\":\"mess").expect("a session file");
    let mut next = Editor::spawn(&world.daemon, json!({}));
    next.session.clone_from(&editor.session);
    let of_session = json!({"sessionId": editor.session, "cwd": world.repo, "mcpServers": []});
    let id = next.agent.begin("session/load", of_session.clone());
    let (updates, answer) = next.updates_until(id);
    assert_eq!(answer["result"]["modes"]["currentModeId"], "ask", "{answer}");
    let kinds: Vec<_> = updates.iter().map(|it| it["sessionUpdate"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user_message_chunk", "agent_thought_chunk", ANSWER, "tool_call", ANSWER]);
    assert_eq!(updates[0]["content"]["text"], "fix it");
    assert_eq!(updates[3]["status"], "completed");
    assert_eq!(updates[3]["content"][0]["content"]["text"], "```\n# A\n```");
    assert_eq!(next.prompt("more").1, "end_turn");
    next.agent.leave();
    let mut resumed = Editor::spawn(&world.daemon, json!({}));
    resumed.session.clone_from(&editor.session);
    let id = resumed.agent.begin("session/resume", of_session.clone());
    let (updates, answer) = resumed.updates_until(id);
    assert!(updates.is_empty() && answer["error"].is_null(), "{updates:?} {answer}");
    // A copy is another session with the same conversation.
    let copy = resumed.ok("session/fork", of_session);
    assert!(copy["modes"]["availableModes"].is_array(), "{copy}");
    assert_ne!(copy["sessionId"], json!(editor.session));
    let of_copy = json!({"sessionId": copy["sessionId"], "cwd": world.repo, "mcpServers": []});
    let mut again = Editor::spawn(&world.daemon, json!({}));
    again.session = copy["sessionId"].as_str().expect("an id").to_owned();
    let id = again.agent.begin("session/load", of_copy);
    let (updates, _) = again.updates_until(id);
    let kinds: Vec<_> = updates.iter().map(|it| it["sessionUpdate"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["user_message_chunk", "agent_thought_chunk", ANSWER], "{updates:?}");
    assert_eq!(again.prompt("in the copy").1, "end_turn");
    again.agent.leave();
    resumed.agent.leave();
    editor.agent.leave();
}

#[test]
fn a_conversation_that_cannot_be_read_is_an_error_and_a_missing_one_is_empty() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    editor.prompt("hello");
    let state = world.daemon.wire().request("get_state", json!({"sessionId": editor.session}));
    let file = state["piState"]["sessionFile"].as_str().expect("a file").to_owned();
    let of_session = json!({"sessionId": editor.session, "cwd": world.repo, "mcpServers": []});
    std::fs::write(&file, "no session\n").unwrap();
    let error = editor.agent.request("session/load", of_session.clone())["error"].take();
    let text = error["message"].as_str().unwrap_or_default();
    assert!(text.contains("cannot read the conversation") && text.contains(&file), "{error}");
    std::fs::remove_file(&file).unwrap();
    let id = editor.agent.begin("session/load", of_session);
    assert!(editor.updates_until(id).1["error"].is_null());
    editor.agent.leave();
}

#[test]
fn sessions_are_listed_closed_and_deleted() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    let second = editor.ok("session/new", json!({"cwd": world.repo, "mcpServers": []}));
    let second = second["sessionId"].clone();
    let listed = editor.ok("session/list", json!({"cwd": world.repo.join("src")}));
    let found = listed["sessions"].as_array().unwrap();
    let titles: Vec<_> = found.iter().filter_map(|it| it["title"].as_str()).collect();
    assert!(titles.contains(&"zed-1") && titles.contains(&"zed-2"), "{listed}");
    assert!(found.iter().all(|it| it["cwd"] == json!(world.repo)), "{listed}");
    let elsewhere = editor.ok("session/list", json!({"cwd": "/nowhere"}));
    assert_eq!(elsewhere["sessions"], json!([]));
    let prompt = json!([{"type": "text", "text": "hang"}]);
    let id = editor.agent.begin("session/prompt", json!({"sessionId": second, "prompt": prompt}));
    editor.update(ANSWER);
    editor.ok("session/close", json!({"sessionId": second}));
    assert_eq!(editor.agent.answer(id)["result"]["stopReason"], "cancelled");
    let prompt = json!({"sessionId": second, "prompt": prompt});
    assert_eq!(editor.code("session/prompt", prompt), -32002);
    editor.ok("session/delete", json!({"sessionId": second}));
    let missing = json!({"sessionId": second, "cwd": world.repo, "mcpServers": []});
    assert_eq!(editor.code("session/load", missing.clone()), -32002);
    // A session is found by its id only.
    let named = json!({"sessionId": "zed-1", "cwd": world.repo, "mcpServers": []});
    assert_eq!(editor.code("session/load", named), -32002);
    assert_eq!(editor.code("session/resume", missing), -32002);
    let sessions = world.daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    editor.agent.leave();
}

#[test]
fn a_mode_narrows_the_sandbox_and_never_exceeds_the_configuration() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    let profile = || {
        let params = json!({"sessionId": editor.session});
        world.daemon.wire().request("quack.sandbox", params)["policy"]["profile"].clone()
    };
    let of = |mode: &str| json!({"sessionId": editor.session, "modeId": mode});
    let (read_only, ask, full) = (of("read-only"), of("ask"), of("full"));
    assert_eq!(profile(), "workspace-write");
    let mut requested = |params: &Value| editor.agent.request("session/set_mode", params.clone());
    assert_eq!(requested(&read_only)["result"], json!({}));
    assert_eq!(
        world.daemon.wire().request("quack.sandbox", json!({"sessionId": read_only["sessionId"]}))
            ["policy"]["profile"],
        "read-only"
    );
    assert_eq!(requested(&full)["error"]["code"], -32602);
    assert_eq!(requested(&ask)["result"], json!({}));
    let shown =
        world.daemon.wire().request("quack.sandbox", json!({"sessionId": ask["sessionId"]}));
    assert_eq!(
        (&shown["policy"]["profile"], &shown["layers"]["session"]),
        (&json!("workspace-write"), &json!({}))
    );
    editor.agent.leave();
}

#[test]
fn hostile_lines_are_answered_and_the_end_of_the_input_ends_everything() {
    let world = World::new("");
    let mut editor = Editor::start(&world, json!({}));
    let huge = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}", "x".repeat(9 << 20));
    for (line, code) in [
        ("hello", -32700),
        ("[]", -32600),
        ("{\"id\":7,\"method\":\"initialize\"}", -32600),
        (&"[".repeat(100_000), -32700),
        (&huge, -32600),
    ] {
        editor.agent.write(format!("{line}\n").as_bytes());
        let refused = editor.agent.message(|message| message["error"].is_object());
        assert_eq!(refused["error"]["code"], code, "{line:.50}: {refused}");
    }
    editor.agent.send(&json!({"jsonrpc": "2.0", "method": "made/up", "params": 5}));
    editor.agent.send(&json!({"jsonrpc": "2.0", "id": 4_000_000, "result": {}}));
    for (method, params, code) in [
        ("session/dance", json!({}), -32601),
        ("authenticate", json!({"methodId": "x"}), -32602),
        ("session/new", json!({"cwd": "relative", "mcpServers": []}), -32602),
        ("session/new", json!({"cwd": 5}), -32602),
        ("session/new", json!({"mcpServers": []}), -32602),
        (
            "session/fork",
            json!({"sessionId": "nobody", "cwd": world.repo, "mcpServers": []}),
            -32002,
        ),
        ("session/new", json!({"cwd": world.repo.join("nowhere"), "mcpServers": []}), -32602),
        ("session/new", json!({"cwd": "/proc/version", "mcpServers": []}), -32602),
        ("session/new", json!({"cwd": "/", "mcpServers": []}), -32602),
        ("session/load", json!({"sessionId": "zed-1", "cwd": world.repo.join("nowhere")}), -32602),
        ("session/load", json!({"sessionId": "", "cwd": world.repo}), -32002),
        (
            "session/prompt",
            json!({"sessionId": "nobody", "prompt": [{"type": "text", "text": "x"}]}),
            -32002,
        ),
        ("session/prompt", json!({"sessionId": editor.session, "prompt": []}), -32602),
        (
            "session/set_config_option",
            json!({"sessionId": editor.session, "configId": "model", "value": "x"}),
            -32602,
        ),
        ("session/list", json!({"cursor": "x"}), -32602),
    ] {
        assert_eq!(editor.code(method, params.clone()), code, "{method} {params}");
    }
    let id = editor.begin_prompt("hang");
    editor.update(ANSWER);
    editor.agent.send(&json!({"jsonrpc": "2.0", "id": id, "method": "session/list", "params": {}}));
    assert_eq!(editor.agent.answer(id)["error"]["code"], -32600, "the id is in use");
    editor.agent.leave();
    wait_for("the turn to be aborted", || {
        let ps = world.daemon.wire().request("quack.ps", json!({}));
        (ps["workers"][0]["pi"]["busy"] != true).then_some(())
    });
}

#[test]
fn only_64_sessions_are_open() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut editor = Editor::spawn(&daemon, json!({}));
    let new = json!({"cwd": repo.path(), "mcpServers": []});
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(editor.ok("session/new", new.clone())["sessionId"].clone());
    }
    assert_eq!(editor.code("session/new", new.clone()), -32600);
    editor.ok("session/close", json!({"sessionId": ids[0]}));
    editor.ok("session/new", new);
    editor.agent.leave();
}

#[test]
fn the_daemon_is_started_and_found_again() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("project");
    let mut editor = Editor::spawn(&daemon, json!({}));
    let new = editor.ok("session/new", json!({"cwd": repo.path(), "mcpServers": []}));
    let mode = json!({"sessionId": new["sessionId"], "modeId": "read-only"});
    assert_eq!(daemon.quack(&["stop"]).code(), Some(0));
    editor.ok("session/set_mode", mode.clone());
    assert_eq!(daemon.quack(&["stop"]).code(), Some(0));
    let load = json!({"sessionId": new["sessionId"], "cwd": repo.path(), "mcpServers": []});
    let loaded = editor.ok("session/resume", load);
    assert_eq!(loaded["modes"]["currentModeId"], "read-only");
    editor.agent.leave();
    assert_eq!(daemon.quack(&["stop"]).code(), Some(0));
}

#[test]
fn an_isolated_editor_gets_a_copy_of_the_workspace() {
    let world = World::new("");
    let mut editor = Editor {
        agent: Agent::spawn(world.daemon.command(&["acp", "--isolated"])),
        session: String::new(),
    };
    let info = json!({"name": "Zed", "version": "1.0"});
    editor.ok(
        "initialize",
        json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": info}),
    );
    let new = editor.ok("session/new", json!({"cwd": world.repo, "mcpServers": []}));
    let id = new["sessionId"].as_str().unwrap();
    let state = world.daemon.quack(&["state", id]).ok();
    assert!(state.contains("a private copy of the workspace"), "{state}");
    let made = ["tool", "bash", "--raw", "echo made > made.txt", "--session", id];
    world.daemon.quack(&made).ok();
    assert_eq!(world.daemon.quack(&["diff", "--stat", "--session", id]).ok(), "A  made.txt\n");
    assert!(!world.repo.join("made.txt").exists());
}
