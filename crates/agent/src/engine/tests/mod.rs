//! The engine with recorded kinds of answers: order of events, content of the session file, and every way to stop.

mod calls;
mod commands;
mod failures;
mod faults;
mod models;
mod sizes;
mod summaries;
mod turns;

use super::*;
use crate::transcript::{Header, Transcript};
use quackd_protocol::agent::{
    AgentCommand, AgentModels, AgentSettings, AgentToolDone, OtherCommand,
};
use quackd_protocol::agent_options::AgentOptions;
use quackd_protocol::model::{
    InputKind, ModelApi, ModelCompat, ModelCost, ModelHead, ModelInfo, Price, ThinkingLevel,
};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

/// An agent, with everything that it did.
struct Bench {
    agent: Agent,
    effects: Vec<Effect>,
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
        price: Price::Known(ModelCost { input: 1.0, output: 2.0, ..ModelCost::default() }),
        context_window: 128_000,
        max_tokens: 4096,
        compat: ModelCompat::default(),
    }
}

fn header() -> Header {
    Header {
        id: "s1".into(),
        version: 3,
        timestamp: "2026-01-02T03:04:05.000Z".into(),
        cwd: "/w".into(),
        parent_session: None,
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(AgentSettings::default(), Transcript::new(header()))
    }

    fn with(settings: AgentSettings, transcript: Transcript) -> Self {
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
            options: AgentOptions::default(),
            small_tools: Vec::new(),
            facts: Vec::new(),
            has_mcp_servers: false,
            model_notice: None,
        };
        let agent = Agent::new(setup, transcript);
        Self { agent, effects: Vec::new(), unix_ms: 1_700_000_000_000, command: 0 }
    }

    fn take(&mut self, input: Input) {
        self.unix_ms += 1;
        let now = Now { unix_ms: self.unix_ms, random: 7 };
        let effects = self.agent.handle(input, now);
        self.effects.extend(effects);
    }

    fn send(&mut self, body: Value) -> u64 {
        self.command += 1;
        let name = body["type"].as_str().unwrap().to_owned();
        let body = to_raw_value(&body).unwrap();
        let command = AgentCommand::Other(OtherCommand { name, body });
        self.take(Input::Command { number: self.command, command });
        self.command
    }

    /// Sends a prompt, and answers the call for instructions if there is one.
    fn prompt(&mut self, message: &str) {
        self.send(json!({ "type": "prompt", "message": message }));
        self.answer_instructions();
    }

    /// Answers the call for instructions if a run has just made it.
    fn answer_instructions(&mut self) {
        if let Some(Effect::Call(call)) = self.effects.last()
            && call.tool == run::INSTRUCTIONS
        {
            let number = call.number;
            self.done(number, "", false);
        }
    }

    fn done(&mut self, number: u64, text: &str, is_error: bool) {
        self.done_with(number, text, is_error, None);
    }

    fn done_with(&mut self, number: u64, text: &str, is_error: bool, data: Option<&Value>) {
        self.take(Input::ToolDone(Box::new(AgentToolDone {
            number,
            text: to_raw_value(text).unwrap(),
            hint: None,
            data: data.map(|data| to_raw_value(data).unwrap()),
            is_error,
            exit_code: None,
            signal: None,
            aborted: false,
            truncated: false,
            full_output_path: None,
            duration_ms: 3,
            user_instructions: None,
        })));
    }

    /// Number and body of the last request.
    fn request(&self) -> (u64, Value) {
        let last = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Request(request) => Some(request),
            _ => None,
        });
        let request = last.expect("a request");
        (request.number, serde_json::from_str(request.body.get()).unwrap())
    }

    fn part(&mut self, part: Part) {
        let (number, _) = self.request();
        self.take(Input::Model { number, part });
    }

    fn bytes(&mut self, text: &str) {
        self.part(Part::Bytes(text.as_bytes().to_vec()));
    }

    fn head(&mut self, status: u16) {
        self.part(Part::Head(ModelHead { status, ..ModelHead::default() }));
    }

    /// Answers the last request with a text.
    fn say(&mut self, text: &str) {
        let (number, _) = self.request();
        let texts = [chunk(&json!({ "content": text }), None), chunk(&json!({}), Some("stop"))];
        let bytes = texts.concat() + "data: [DONE]\n\n";
        let head = ModelHead { status: 200, ..ModelHead::default() };
        for part in [Part::Head(head), Part::Bytes(bytes.into_bytes()), Part::Done] {
            self.take(Input::Model { number, part });
        }
    }

    /// Answers the last request with calls.
    fn call(&mut self, calls: &[(&str, Value)]) {
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
    fn calls(&self) -> Vec<(u64, String, Value)> {
        let calls = self.effects.iter().filter_map(|effect| match effect {
            Effect::Call(call) if call.tool != run::INSTRUCTIONS => {
                let arguments = serde_json::from_str(&call.arguments).unwrap();
                Some((call.number, call.tool.clone(), arguments))
            }
            _ => None,
        });
        calls.collect()
    }

    /// Names of the events since the last call, abbreviated: messages with their role.
    fn events(&mut self) -> String {
        let mut names = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            let Effect::Event { name, data } = effect else { continue };
            let name = name.as_str();
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

    fn event(&self, name: &str) -> Value {
        let found = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Event { name: found, data } if found.as_str() == name => Some(data.get()),
            _ => None,
        });
        serde_json::from_str(found.unwrap_or_else(|| panic!("no event {name}"))).unwrap()
    }

    fn answered(&self, command: u64) -> Result<Value, String> {
        let found = self.effects.iter().find_map(|effect| match effect {
            Effect::Answer { number, result } if *number == command => Some(result),
            _ => None,
        });
        let result = found.unwrap_or_else(|| panic!("command {command} has no answer"));
        let data = result.as_ref().map_err(Clone::clone)?;
        Ok(data.as_ref().map_or(Value::Null, |data| serde_json::from_str(data.get()).unwrap()))
    }

    /// The session file.
    fn file(&self) -> String {
        let lines = self.effects.iter().filter_map(|effect| match effect {
            Effect::Append(line) => Some(line.as_str()),
            _ => None,
        });
        header().to_line() + &lines.collect::<String>()
    }
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "c1", "object": "chat.completion.chunk", "model": "one",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    });
    format!("data: {chunk}\n\n")
}

const BEGIN: &str = "agent_start turn_start (user user)";
const SAID: &str = "(assistant text_start text_delta text_end assistant) turn_end";
