//! The calls of one case, made through the socket as a model would have them made.

use super::corpus::{self, Case};
use super::world::World;
use crate::harness::{Session, Wire};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

/// Deadline of a call that names none. Nothing needs it, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// Longest time for a call that takes all of something: enough to be noticed by whoever looks beside it.
const GREEDY_MS: i64 = 5000;

/// Longest time for a call that is repeated.
const REPEATING: Duration = Duration::from_secs(8);

/// How much of a long output is looked at.
const MAX_OUTPUT: u64 = 16 << 20;

/// What came of the calls of one case.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The texts.
    pub(super) text: String,
    /// What the model can read besides: the file of a long output.
    pub(super) spilled: String,
    pub(super) took: Duration,
    /// Whether a call was more than refused.
    pub(super) is_accepted: bool,
}

/// Who calls.
pub(super) struct Caller<'a> {
    pub(super) world: &'a World,
    pub(super) session: &'a Session<'a>,
    /// Whether calls are made in safe mode.
    pub(super) safe: bool,
    /// Deadline of a call that names none.
    deadline: Duration,
    /// The longest deadline that a call may name.
    longest_ms: i64,
}

impl<'a> Caller<'a> {
    pub(super) fn new(world: &'a World, session: &'a Session<'a>, case: &Case, safe: bool) -> Self {
        // A deadline that comes before the time that is too slow would hide it.
        let slow = case.must_not.iter().filter_map(|predicate| predicate["ms"].as_u64()).max();
        let slow = Duration::from_millis(slow.unwrap_or_default() + 2000);
        let is_greedy = corpus::only_with_limits(&case.id).is_some();
        let longest_ms = if is_greedy { GREEDY_MS } else { i64::MAX };
        Self { world, session, safe, deadline: slow.max(DEADLINE), longest_ms }
    }

    /// Makes every call of a case.
    pub(super) fn run(&self, case: &Case) -> Answers {
        let mut answers = Answers::default();
        let arguments = self.world.fill_all(&case.args);
        let begin = Instant::now();
        self.step(&case.tool, &arguments, &mut answers);
        answers.took = begin.elapsed();
        answers.read_spilled();
        answers
    }

    fn step(&self, tool: &str, arguments: &Value, answers: &mut Answers) {
        let wire = self.session.wire;
        match tool {
            "seq" => {
                for step in arguments["steps"].as_array().expect("steps") {
                    self.step(step["tool"].as_str().expect("a tool"), &step["args"], answers);
                }
            }
            "host" => self.world.as_user(arguments["command"].as_str().expect("a command")),
            "cancel" => {
                // There may be nothing to abort any more, and that is told.
                wire.reply("abort", json!({"sessionId": self.session.id}));
            }
            "session.create" => {
                // The daemon makes ids itself; a name is what a client may choose.
                let params =
                    json!({"path": arguments["workspace"], "name": arguments["session_id"]});
                let reply = wire.reply("quack.session_new", params);
                answers.add(&reply.to_string(), reply["ok"] == true);
            }
            _ => self.repeat(tool, arguments, answers),
        }
    }

    /// Calls a tool as often as the case says, or as there is time for.
    fn repeat(&self, tool: &str, arguments: &Value, answers: &mut Answers) {
        let n = arguments["repeat"].as_u64().unwrap_or(1);
        let begin = Instant::now();
        for _ in 0..n {
            let mut once = Answers::default();
            self.call(tool, arguments, &mut once);
            // Thousands of answers say the same.
            if n == 1 || answers.text.len() < 10_000 {
                answers.add(&once.text, once.is_accepted);
            }
            if REPEATING < begin.elapsed() {
                return;
            }
        }
    }

    fn call(&self, tool: &str, arguments: &Value, answers: &mut Answers) {
        if let Some(raw) = arguments["__raw__"].as_str() {
            return self.call_raw(our_name(tool), raw, answers);
        }
        let mut arguments = arguments.clone();
        let mut params = json!({"tool": our_name(tool), "sessionId": self.session.id});
        if self.safe {
            params["safeMode"] = json!(true);
        }
        match arguments["timeout"].as_i64() {
            Some(seconds) => {
                arguments["timeout_ms"] = json!((seconds * 1000).min(self.longest_ms));
            }
            None => params["timeoutMs"] = json!(self.deadline.as_millis()),
        }
        if arguments["pty"] == true {
            // There is no terminal, but a command can make one.
            let command = arguments["command"].as_str().expect("a command").replace('\'', "'\\''");
            arguments["command"] = json!(format!("script -qec '{command}' /dev/null"));
        }
        // The corpus says these to whoever runs it. The tool refuses parameters that it does not know.
        if let Some(arguments) = arguments.as_object_mut() {
            for name in ["timeout", "pty", "repeat", "env"] {
                arguments.remove(name);
            }
        }
        params["arguments"] = arguments;
        let reply = self.session.wire.reply("quack.tool", params);
        let data = &reply["data"];
        match data["text"].as_str() {
            Some(text) => answers.add(text, data["isError"] == false),
            None => answers.add(&reply.to_string(), false),
        }
    }

    /// Calls with arguments that are no JSON object, or one that JSON libraries read differently.
    fn call_raw(&self, tool: &str, arguments: &str, answers: &mut Answers) {
        let params = json!({"callId": "c", "toolName": tool, "arguments": arguments,
                            "sessionId": self.session.id, "safeMode": self.safe});
        let reply = self.session.wire.reply("voice_tool_call", params);
        match reply["data"]["result"].as_str() {
            Some(text) => answers.add(text, !text.starts_with("Error: ")),
            None => answers.add(&reply.to_string(), false),
        }
    }
}

impl Answers {
    fn add(&mut self, text: &str, is_accepted: bool) {
        writeln!(self.text, "{text}").expect("write to a text");
        self.is_accepted |= is_accepted;
    }

    /// Reads the files that the texts name: who reads the text can read them too.
    fn read_spilled(&mut self) {
        for part in self.text.split("full output: ").skip(1) {
            let Some((path, _)) = part.split_once(']') else { continue };
            if let Ok(file) = File::open(path) {
                let mut bytes = Vec::new();
                file.take(MAX_OUTPUT).read_to_end(&mut bytes).expect("read a long output");
                self.spilled.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
}

/// The name that a tool has here.
fn our_name(tool: &str) -> &str {
    match tool {
        "read" => "read_file",
        "write" => "write_file",
        "edit" => "edit_file",
        "grep" => "grep_search",
        // What lists files finds them, and the other way round.
        "find" | "ls" => "find_files",
        other => other,
    }
}

/// Starts the worker, so that no case waits for it, and says in what tier it runs; or what the daemon says of a
/// worker that refuses to start.
pub(super) fn tier(wire: &Wire, session: &Session<'_>) -> Result<String, String> {
    let params = json!({"tool": "find_files", "sessionId": session.id,
                        "arguments": {"pattern": "notes.txt"}});
    let reply = wire.reply("quack.tool", params);
    match session.worker()["tier"].as_str() {
        Some(tier) => Ok(tier.to_owned()),
        None => Err(reply.to_string()),
    }
}
