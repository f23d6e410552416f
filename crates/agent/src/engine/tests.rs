//! The engine with recorded kinds of answers: order of events, content of the session file, and every way to stop.

use super::*;
use crate::transcript::Header;
use quackd_protocol::model::{InputKind, ModelApi, ModelCompat, ModelCost, ModelFailureKind};
use serde_json::json;

/// An agent, with everything that it did.
pub(super) struct Bench {
    pub(super) agent: Agent,
    pub(super) effects: Vec<Effect>,
    unix_ms: i64,
    command: u64,
}

fn model(id: &str) -> ModelInfo {
    ModelInfo {
        id: id.into(),
        name: id.into(),
        api: ModelApi::OpenAiCompletions,
        provider: "fake".into(),
        base_url: "http://127.0.0.1:1/v1".into(),
        reasoning: true,
        input: vec![InputKind::Text],
        cost: ModelCost { input: 1.0, output: 2.0, cache_read: 0.0, cache_write: 0.0 },
        context_window: 128_000,
        max_tokens: 4096,
        compat: ModelCompat::default(),
    }
}

pub(super) fn header() -> Header {
    Header {
        id: "s1".into(),
        version: 3,
        timestamp: "2026-01-02T03:04:05.000Z".into(),
        cwd: "/w".into(),
        parent_session: None,
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(AgentSettings::default(), Transcript::new(header()))
    }

    pub(super) fn with(settings: AgentSettings, transcript: Transcript) -> Self {
        let setup = AgentSetup {
            session_file: "/s.jsonl".into(),
            workspace: "/w".into(),
            models: AgentModels {
                models: vec![model("one"), model("two")],
                default: model("one"),
                thinking: ThinkingLevel::Off,
            },
            is_model_chosen: false,
            settings,
            tools: Vec::new(),
            facts: Vec::new(),
            has_mcp_servers: false,
        };
        let agent = Agent::new(setup, transcript);
        Self { agent, effects: Vec::new(), unix_ms: 1_700_000_000_000, command: 0 }
    }

    pub(super) fn take(&mut self, input: Input) {
        self.unix_ms += 1;
        let now = Now { unix_ms: self.unix_ms, random: 7 };
        let effects = self.agent.handle(input, now);
        self.effects.extend(effects);
    }

    pub(super) fn send(&mut self, body: Value) -> u64 {
        self.command += 1;
        let name = body["type"].as_str().unwrap().to_owned();
        let body = to_raw_value(&body).unwrap();
        let command = PiCommand::Other(OtherCommand { name, body });
        self.take(Input::Command { number: self.command, command });
        self.command
    }

    /// Sends a prompt, and answers the call for instructions if there is one.
    pub(super) fn prompt(&mut self, message: &str) {
        self.send(json!({ "type": "prompt", "message": message }));
        if let Some(Effect::Call(call)) = self.effects.last()
            && call.tool == run::INSTRUCTIONS
        {
            let number = call.number;
            self.done(number, "", false);
        }
    }

    pub(super) fn done(&mut self, number: u64, text: &str, is_error: bool) {
        self.take(Input::ToolDone(Box::new(AgentToolDone {
            number,
            text: to_raw_value(text).unwrap(),
            data: None,
            is_error,
            exit_code: None,
            aborted: false,
            truncated: false,
            full_output_path: None,
            duration_ms: 3,
        })));
    }

    /// Number and body of the last request.
    pub(super) fn request(&self) -> (u64, Value) {
        let last = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Request(request) => Some(request),
            _ => None,
        });
        let request = last.expect("a request");
        (request.number, serde_json::from_str(request.body.get()).unwrap())
    }

    pub(super) fn part(&mut self, part: Part) {
        let (number, _) = self.request();
        self.take(Input::Model { number, part });
    }

    pub(super) fn bytes(&mut self, text: &str) {
        self.part(Part::Bytes(text.as_bytes().to_vec()));
    }

    pub(super) fn head(&mut self, status: u16) {
        self.part(Part::Head(ModelHead { status, ..ModelHead::default() }));
    }

    /// Answers the last request with a text.
    pub(super) fn say(&mut self, text: &str) {
        let (number, _) = self.request();
        let texts = [chunk(&json!({ "content": text }), None), chunk(&json!({}), Some("stop"))];
        let bytes = texts.concat() + "data: [DONE]\n\n";
        let head = ModelHead { status: 200, ..ModelHead::default() };
        for part in [Part::Head(head), Part::Bytes(bytes.into_bytes()), Part::Done] {
            self.take(Input::Model { number, part });
        }
    }

    /// Answers the last request with calls.
    pub(super) fn call(&mut self, calls: &[(&str, Value)]) {
        let call = |(index, (name, arguments)): (usize, &(&str, Value))| {
            json!({
                "index": index, "id": format!("call_{index}"), "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            })
        };
        let calls: Vec<_> = calls.iter().enumerate().map(call).collect();
        self.head(200);
        self.bytes(&chunk(&json!({ "tool_calls": calls }), None));
        self.bytes(&chunk(&json!({}), Some("tool_calls")));
        self.bytes("data: [DONE]\n\n");
        self.part(Part::Done);
    }

    fn refuse(&mut self, status: u16, text: &str) {
        self.head(status);
        self.bytes(&json!({ "error": { "message": text } }).to_string());
        self.part(Part::Done);
    }

    /// The running tool calls: number, tool, arguments.
    pub(super) fn calls(&self) -> Vec<(u64, String, Value)> {
        let calls = self.effects.iter().filter_map(|effect| match effect {
            Effect::Call(call) if call.tool != run::INSTRUCTIONS => {
                let arguments = serde_json::from_str(&call.arguments).unwrap();
                Some((call.number, call.tool.clone(), arguments))
            }
            _ => None,
        });
        calls.collect()
    }

    /// Names of the events since the last look, abbreviated: messages with their role.
    fn events(&mut self) -> String {
        let mut names = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            let Effect::Event { name, data } = effect else { continue };
            let data: Value = serde_json::from_str(data.get()).unwrap();
            assert_eq!(data["type"], name);
            let role = data["message"]["role"].as_str().unwrap_or_default();
            names.push(match name {
                "message_start" => format!("({role}"),
                "message_end" => match data["message"]["stopReason"].as_str() {
                    Some("error") => format!("{role}!)"),
                    Some("aborted") => format!("{role}-)"),
                    _ => format!("{role})"),
                },
                "message_update" => {
                    data["assistantMessageEvent"]["type"].as_str().unwrap().to_owned()
                }
                "tool_execution_start" => format!("[{}", data["toolName"].as_str().unwrap()),
                "tool_execution_end" => format!("{}]", data["toolName"].as_str().unwrap()),
                other => other.to_owned(),
            });
        }
        names.join(" ")
    }

    pub(super) fn event(&self, name: &str) -> Value {
        let found = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Event { name: found, data } if *found == name => Some(data.get()),
            _ => None,
        });
        serde_json::from_str(found.unwrap_or_else(|| panic!("no event {name}"))).unwrap()
    }

    pub(super) fn answered(&self, command: u64) -> Result<Value, String> {
        let found = self.effects.iter().find_map(|effect| match effect {
            Effect::Answer { number, result } if *number == command => Some(result),
            _ => None,
        });
        let result = found.unwrap_or_else(|| panic!("command {command} has no answer"));
        let data = result.as_ref().map_err(Clone::clone)?;
        Ok(data.as_ref().map_or(Value::Null, |data| serde_json::from_str(data.get()).unwrap()))
    }

    /// The session file.
    pub(super) fn file(&self) -> String {
        let lines = self.effects.iter().filter_map(|effect| match effect {
            Effect::Append(line) => Some(line.as_str()),
            _ => None,
        });
        header().to_line() + &lines.collect::<String>()
    }
}

pub(super) fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "c1", "object": "chat.completion.chunk", "model": "one",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    });
    format!("data: {chunk}\n\n")
}

const BEGIN: &str = "agent_start turn_start (user user)";
const SAID: &str = "(assistant text_start text_delta text_end assistant) turn_end";

#[test]
fn an_answer_has_the_events_of_pi_in_their_order() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    let (_, body) = bench.request();
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
    bench.say("hi");
    let file = bench.file();
    assert_eq!(bench.events(), format!("{BEGIN} {SAID} agent_end agent_settled"));
    let kept = Transcript::read(file.as_bytes()).unwrap();
    assert_eq!(kept.last_assistant_text().as_deref(), Some("hi"));
    assert_eq!(kept.context().model, Some(("fake".into(), "one".into())));
    assert!(bench.agent.is_idle());
}

#[test]
fn the_prompt_is_in_the_file_before_the_request() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    let at = |is_it: fn(&Effect) -> bool| bench.effects.iter().position(is_it).unwrap();
    let written = at(|effect| matches!(effect, Effect::Append(line) if line.contains("\"user\"")));
    assert!(written < at(|effect| matches!(effect, Effect::Request(_))));
}

#[test]
fn calls_of_one_answer_run_at_once_and_results_keep_the_order_of_the_answer() {
    let mut bench = Bench::new();
    bench.prompt("two tools");
    bench.call(&[
        ("bash", json!({ "command": "sleep 1", "timeout": 2 })),
        ("ls", json!({})),
        ("nosuch", json!({})),
    ]);
    let calls = bench.calls();
    assert_eq!(calls[0].1, "bash");
    assert_eq!(calls[0].2["timeout_ms"], 2000);
    assert_eq!(calls[1].1, "find");
    bench.done(calls[1].0, "(empty)", false);
    bench.done(calls[0].0, "out", false);
    bench.say("done");
    let expected = format!(
        "{BEGIN} (assistant toolcall_start toolcall_delta toolcall_end toolcall_start toolcall_delta toolcall_end \
         toolcall_start toolcall_delta toolcall_end assistant) \
         [bash [ls [nosuch nosuch] ls] bash] (toolResult toolResult) (toolResult toolResult) \
         (toolResult toolResult) turn_end turn_start {SAID} agent_end agent_settled"
    );
    let (_, body) = bench.request();
    let contents: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|it| &it["content"]).collect();
    assert_eq!(contents[3..], [&json!("out"), &json!("(empty)"), &json!("Tool nosuch not found")]);
    assert_eq!(bench.events(), expected);
}

#[test]
fn sequential_calls_have_the_order_of_early_versions_of_pi() {
    let settings = AgentSettings { parallel_tools: false, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt("two tools");
    bench.call(&[("read", json!({ "path": "a" })), ("read", json!({ "path": "b" }))]);
    assert_eq!(bench.calls().len(), 1);
    bench.done(bench.calls()[0].0, "A", false);
    bench.done(bench.calls()[1].0, "B", false);
    let events = bench.events();
    let expected = "[read read] (toolResult toolResult) [read read] (toolResult toolResult) turn_end turn_start";
    assert!(events.ends_with(expected), "{events}");
}

#[test]
fn changes_of_one_file_wait_for_each_other() {
    let mut bench = Bench::new();
    bench.prompt("edit");
    let edit = |path: &str| json!({ "path": path, "edits": [{ "oldText": "a", "newText": "b" }] });
    bench.call(&[("edit", edit("./f")), ("edit", edit("f")), ("write", json!({ "path": "g" }))]);
    let tools: Vec<_> = bench.calls().into_iter().map(|call| call.1).collect();
    assert_eq!(tools, ["edit_file", "write_file"]);
    assert_eq!(bench.calls()[0].2["edits"][0], json!({ "old_text": "a", "new_text": "b" }));
    bench.done(bench.calls()[0].0, "ok", false);
    assert_eq!(bench.calls().len(), 3);
}

#[test]
fn an_abort_keeps_the_text_so_far_and_is_answered_last() {
    let mut bench = Bench::new();
    bench.prompt("long");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "word " }), None));
    let abort = bench.send(json!({ "type": "abort" }));
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::CancelRequest { .. })));
    assert_eq!(bench.answered(abort), Ok(Value::Null));
    let end = bench.event("message_end");
    assert_eq!(end["message"]["content"][0]["text"], "word ");
    assert_eq!(end["message"]["errorMessage"], "Request was aborted");
    let at_end =
        bench.effects.iter().rposition(|it| matches!(it, Effect::Event { name: "agent_end", .. }));
    let answered = bench
        .effects
        .iter()
        .position(|it| matches!(it, Effect::Answer { number, .. } if *number == abort));
    assert!(at_end < answered);
    let expected = format!(
        "{BEGIN} (assistant text_start text_delta text_end assistant-) turn_end agent_end agent_settled"
    );
    assert_eq!(bench.events(), expected);
    // The next prompt works, and the aborted message is not sent.
    bench.prompt("again");
    let (_, body) = bench.request();
    assert!(!body.to_string().contains("word "), "{body}");
    assert!(body.to_string().contains("long") && body.to_string().contains("again"), "{body}");
}

#[test]
fn an_abort_during_a_call_stops_it_and_ends_with_an_empty_answer() {
    let mut bench = Bench::new();
    bench.prompt("sleep");
    bench.call(&[("bash", json!({ "command": "sleep 9" }))]);
    bench.send(json!({ "type": "abort" }));
    let number = bench.calls()[0].0;
    let is_it =
        |effect: &Effect| matches!(effect, Effect::CancelCall { number: n } if *n == number);
    assert!(bench.effects.iter().any(is_it));
    bench.done(number, "started\nCommand aborted", true);
    let events = bench.events();
    let expected = "[bash bash] (toolResult toolResult) turn_end turn_start (assistant assistant-) turn_end agent_end agent_settled";
    assert!(events.ends_with(expected), "{events}");
}

#[test]
fn a_failed_request_is_sent_again_after_a_delay_that_doubles() {
    let mut bench = Bench::new();
    bench.prompt("retry");
    bench.refuse(500, "exploded");
    let told = bench.event("auto_retry_start");
    assert_eq!((&told["attempt"], &told["delayMs"]), (&json!(1), &json!(2000)));
    assert!(bench.agent.state()["isStreaming"].as_bool().unwrap());
    bench.take(Input::Timer);
    bench.refuse(503, "busy");
    assert_eq!(bench.event("auto_retry_start")["delayMs"], 4000);
    bench.take(Input::Timer);
    bench.say("recovered");
    let failed = "(assistant assistant!) turn_end auto_retry_start agent_start turn_start";
    let good = "(assistant text_start text_delta text_end assistant) auto_retry_end turn_end agent_end agent_settled";
    assert_eq!(bench.events(), format!("{BEGIN} {failed} {failed} {good}"));
}

#[test]
fn retry_after_is_honoured_and_a_longer_one_than_the_limit_ends_the_turn() {
    let limited =
        |ms| Part::Head(ModelHead { status: 429, retry_after_ms: Some(ms), should_retry: None });
    let mut bench = Bench::new();
    bench.prompt("rate");
    bench.part(limited(6_000));
    bench.part(Part::Done);
    assert_eq!(bench.event("auto_retry_start")["delayMs"], 6000);
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::Timer(Some(6_000)))));
    bench.take(Input::Timer);
    bench.part(limited(3_600_000));
    bench.part(Part::Done);
    assert_eq!(bench.event("auto_retry_end")["success"], false);
    assert!(bench.agent.is_idle());
}

#[test]
fn after_the_first_byte_nothing_is_sent_again() {
    let failure = |kind| Part::Failed(ModelFailure { kind, text: "the connection ended".into() });
    let mut bench = Bench::new();
    bench.prompt("drop");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "half" }), None));
    bench.part(failure(ModelFailureKind::Broken));
    assert_eq!(bench.event("message_end")["message"]["stopReason"], "error");
    assert_eq!(bench.event("message_end")["message"]["content"][0]["text"], "half");
    assert!(bench.agent.is_idle());
    // A stream that ends without its end is no answer either.
    bench.prompt("cut");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "half" }), None));
    bench.part(Part::Done);
    let error = bench.event("message_end")["message"]["errorMessage"].clone();
    assert_eq!(error, "Stream ended without finish_reason");
    // Before it, another attempt costs nothing.
    bench.prompt("again");
    bench.part(failure(ModelFailureKind::NotConnected));
    assert_eq!(bench.event("auto_retry_start")["attempt"], 1);
    let abort = bench.send(json!({ "type": "abort_retry" }));
    assert_eq!(bench.answered(abort), Ok(Value::Null));
    assert_eq!(bench.event("auto_retry_end")["finalError"], "Retry cancelled");
    assert!(bench.agent.is_idle());
}

#[test]
fn queued_messages_are_delivered_after_the_calls_and_at_the_end() {
    let mut bench = Bench::new();
    bench.prompt("start");
    bench.call(&[("bash", json!({ "command": "one" }))]);
    let busy = bench.send(json!({ "type": "prompt", "message": "now" }));
    assert!(bench.answered(busy).unwrap_err().starts_with("Agent is already processing"));
    bench.send(json!({ "type": "steer", "message": "steered" }));
    bench.send(json!({ "type": "follow_up", "message": "later" }));
    assert_eq!(bench.agent.state()["pendingMessageCount"], 2);
    bench.done(bench.calls()[0].0, "one", false);
    let (_, body) = bench.request();
    assert_eq!(body["messages"].as_array().unwrap().last().unwrap()["content"], "steered");
    bench.say("ok");
    let (_, body) = bench.request();
    assert_eq!(body["messages"].as_array().unwrap().last().unwrap()["content"], "later");
    bench.say("ok");
    assert!(bench.agent.is_idle());
}

#[test]
fn an_overflow_is_summarized_once_and_the_turn_goes_on() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say(&"warm answer ".repeat(100));
    bench.prompt("overflow now");
    bench.refuse(400, "This model's maximum context length is 128000 tokens.");
    assert_eq!(bench.event("auto_compaction_start")["reason"], "overflow");
    let (_, body) = bench.request();
    let system = body["messages"][0]["content"].to_string();
    assert!(system.contains("context summarization assistant"), "{system}");
    bench.say("## Goal\nThe summary.");
    let end = bench.event("auto_compaction_end");
    assert_eq!((&end["willRetry"], &end["aborted"]), (&json!(true), &json!(false)));
    assert!(end["result"]["summary"].as_str().unwrap().contains("The summary."));
    bench.refuse(400, "This model's maximum context length is 128000 tokens.");
    assert!(bench.agent.is_idle(), "only once");
    let starts = bench.events().matches("auto_compaction_start").count();
    assert_eq!(starts, 1);
}

#[test]
fn a_summary_on_demand_is_answered_and_refused_when_there_is_nothing_to_do() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    let none = bench.send(json!({ "type": "compact" }));
    assert_eq!(bench.answered(none), Err("Nothing to compact (session too small)".into()));
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say("first");
    bench.prompt("second");
    bench.say(&"long answer ".repeat(50));
    let command = bench.send(json!({ "type": "compact", "customInstructions": "keep names" }));
    let waiting = bench.send(json!({ "type": "prompt", "message": "third" }));
    assert_eq!(bench.answered(waiting).unwrap()["disposition"], "started");
    while bench.agent.compaction.is_some() {
        bench.say("## Goal\nA summary.");
    }
    assert!(bench.answered(command).unwrap()["summary"].as_str().unwrap().contains("A summary."));
    // The prompt that waited begins.
    let (_, body) = bench.request();
    assert!(body.to_string().contains("third"));
    assert!(body.to_string().contains("A summary."));
}

#[test]
fn a_model_that_repeats_itself_is_told_and_then_stopped() {
    let mut bench = Bench::new();
    bench.prompt("loop");
    for n in 1..8 {
        bench.call(&[("bash", json!({ "command": "true" }))]);
        let number = bench.calls().last().unwrap().0;
        bench.done(number, "", false);
        let (_, body) = bench.request();
        assert_eq!(body.to_string().contains("made 4 times in a row"), n >= 4, "{n}");
    }
    let before = bench.calls().len();
    bench.call(&[("bash", json!({ "command": "true" }))]);
    assert_eq!(bench.calls().len(), before);
    assert_eq!(bench.event("agent_end")["reason"], "loop");
    assert!(bench.agent.is_idle());
}

#[test]
fn limits_of_turns_and_cost_end_the_run_with_their_reason() {
    let settings = AgentSettings { max_turns: 1, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt("go");
    bench.call(&[("bash", json!({ "command": "true" }))]);
    bench.done(bench.calls()[0].0, "", false);
    assert_eq!(bench.event("agent_end")["reason"], "max_turns");
    let settings = AgentSettings { max_cost_usd: 0.000_001, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt("go");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "x" }), Some("stop")));
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 9 } });
    bench.bytes(&format!("data: {usage}\n\ndata: [DONE]\n\n"));
    assert!(bench.agent.is_idle());
    bench.prompt("more");
    assert_eq!(bench.event("agent_end")["reason"], "budget");
}

#[test]
fn a_turn_that_ended_with_its_process_is_marked_and_its_calls_get_results() {
    let mut bench = Bench::new();
    bench.prompt("go");
    bench.call(&[("bash", json!({ "command": "deploy" }))]);
    let torn = bench.file();
    let transcript = Transcript::read(torn.as_bytes()).unwrap();
    let mut bench = Bench::with(AgentSettings::default(), transcript);
    bench.prompt("what happened?");
    let (_, body) = bench.request();
    let results: Vec<_> =
        body["messages"].as_array().unwrap().iter().filter(|it| it["role"] == "tool").collect();
    assert_eq!(results.len(), 1);
    let text = results[0]["content"].to_string();
    assert!(text.contains("It is not known whether the call had an effect."), "{text}");
    let marked = bench.file();
    assert!(marked.contains("Interrupted: the agent's process ended during this turn"));
    assert!(!bench.events().contains("toolResult"), "the marks are no events of this turn");
}

#[test]
fn arguments_that_are_not_json_do_not_run() {
    let mut bench = Bench::new();
    bench.prompt("go");
    bench.head(200);
    let call = json!({ "tool_calls": [{ "index": 0, "id": "c", "function": { "name": "bash", "arguments": "{\"command\": \"rm -rf" } }] });
    bench.bytes(&chunk(&call, Some("tool_calls")));
    bench.bytes("data: [DONE]\n\n");
    assert_eq!(bench.calls().len(), 0);
    let end = bench.event("tool_execution_end");
    assert_eq!(end["isError"], true);
    assert!(end["result"]["content"][0]["text"].as_str().unwrap().starts_with("Not run:"));
}

#[test]
fn the_model_and_its_level_are_chosen_recorded_and_kept() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    bench.say("hi");
    let set = bench.send(json!({ "type": "set_model", "provider": "fake", "modelId": "two" }));
    assert_eq!(bench.answered(set).unwrap()["id"], "two");
    let missing = bench.send(json!({ "type": "set_model", "provider": "fake", "modelId": "nope" }));
    assert_eq!(bench.answered(missing), Err("Model not found: fake/nope".into()));
    bench.send(json!({ "type": "set_thinking_level", "level": "xhigh" }));
    assert_eq!(bench.event("thinking_level_changed")["level"], "high");
    let kept = Transcript::read(bench.file().as_bytes()).unwrap();
    let bench = Bench::with(AgentSettings::default(), kept);
    let state = bench.agent.state();
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!("two"), &json!("high")));
    assert!(!state.to_string().contains("null"), "{state}");
}

#[test]
fn commands_of_the_user_are_recorded_outside_of_turns() {
    let mut bench = Bench::new();
    let command = bench.send(json!({ "type": "bash", "command": "echo out; exit 4" }));
    let (number, tool, _) = bench.calls()[0].clone();
    assert_eq!(tool, "bash");
    bench.take(Input::ToolDone(Box::new(AgentToolDone {
        number,
        text: to_raw_value("out\n\n[Exit code: 4]").unwrap(),
        data: None,
        is_error: true,
        exit_code: Some(4),
        aborted: false,
        truncated: false,
        full_output_path: None,
        duration_ms: 1,
    })));
    let data = bench.answered(command).unwrap();
    assert_eq!(
        data,
        json!({ "output": "out\n", "exitCode": 4, "cancelled": false, "truncated": false })
    );
    bench.prompt("what did I run?");
    assert!(bench.request().1.to_string().contains("echo out; exit 4"));
}

#[test]
fn unknown_and_wrong_commands_are_refused_with_their_number() {
    let mut bench = Bench::new();
    let unknown = bench.send(json!({ "type": "no_such_command" }));
    assert_eq!(bench.answered(unknown), Err("Unknown command: no_such_command".into()));
    let name = bench.send(json!({ "type": "set_session_name", "name": " " }));
    assert_eq!(bench.answered(name), Err("Session name cannot be empty".into()));
    let images = json!([{ "mimeType": "text/html", "data": "AA" }]);
    let image = bench.send(json!({ "type": "prompt", "message": "x", "images": images }));
    assert!(bench.answered(image).is_err());
    assert!(bench.agent.is_idle());
}

#[test]
fn tools_of_mcp_servers_are_listed_before_the_first_request_and_called_by_their_names() {
    let mut bench = Bench::new();
    bench.agent.servers = servers::ServerTools::new(true);
    bench.prompt("hi");
    let loading: Vec<_> = bench
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Call(call) => Some((call.number, call.tool.clone())),
            _ => None,
        })
        .collect();
    let [(instructions, _), (list, tool)] = &*loading else { panic!("{loading:?}") };
    assert_eq!(tool, run::MCP_LIST);
    let no_request =
        |bench: &Bench| !bench.effects.iter().any(|it| matches!(it, Effect::Request(_)));
    bench.done(*instructions, "", false);
    assert!(no_request(&bench), "the list is missing");
    let tool = json!({ "server": "db", "name": "query", "description": "", "parameters": {} });
    let data = json!({ "tools": [tool], "problems": ["gone: cannot\nstart"] });
    bench.take(Input::ToolDone(Box::new(AgentToolDone {
        number: *list,
        text: to_raw_value("").unwrap(),
        data: Some(to_raw_value(&data).unwrap()),
        is_error: false,
        exit_code: None,
        aborted: false,
        truncated: false,
        full_output_path: None,
        duration_ms: 3,
    })));
    let body = bench.request().1;
    assert_eq!(body["tools"][0]["function"]["name"], "mcp__db__query");
    assert!(body["messages"][0].to_string().contains("MCP servers: gone: cannot start"), "{body}");
    bench.call(&[("mcp__db__query", json!({ "sql": "x" }))]);
    let (_, tool, arguments) = bench.calls().pop().unwrap();
    let expected = json!({ "server": "db", "tool": "query", "arguments": { "sql": "x" } });
    assert_eq!((tool.as_str(), arguments), ("quack_mcp_call", expected));
}

#[test]
fn an_aborted_list_of_tools_is_asked_for_again_and_a_failed_one_is_not() {
    for is_aborted in [true, false] {
        let mut bench = Bench::new();
        bench.agent.servers = servers::ServerTools::new(true);
        bench.prompt("hi");
        bench.done(1, "", false);
        let done = AgentToolDone {
            number: 2,
            text: to_raw_value("Error: no").unwrap(),
            data: None,
            is_error: true,
            exit_code: None,
            aborted: is_aborted,
            truncated: false,
            full_output_path: None,
            duration_ms: 3,
        };
        bench.take(Input::ToolDone(Box::new(done)));
        bench.say("fine");
        bench.effects.clear();
        bench.send(json!({ "type": "prompt", "message": "again" }));
        let lists_again =
            |effect: &Effect| matches!(effect, Effect::Call(call) if call.tool == run::MCP_LIST);
        assert_eq!(bench.effects.iter().any(lists_again), is_aborted);
    }
}
