//! Makes the calls of one case, through the socket as a client with a model would.

use super::corpus::Case;
use super::world::World;
use crate::harness::Session;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

/// Deadline of a call without its own. It never expires, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// Deadline of a call that exhausts a resource: long enough for a concurrent probe to notice it.
const GREEDY_MS: i64 = 5000;

/// Maximum duration of a repeated call.
const REPEATING: Duration = Duration::from_secs(8);

/// Maximum size of a long output that is inspected, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;

/// Result of the calls of one case.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// All reply texts.
    pub(super) text: String,
    /// Other data that the model can read: the spill files of long outputs.
    pub(super) spilled: String,
    pub(super) took: Duration,
    /// True if at least one call was not refused.
    pub(super) is_accepted: bool,
}

/// Makes the calls in one session.
pub(super) struct Caller<'a> {
    pub(super) world: &'a World,
    pub(super) session: &'a Session<'a>,
    /// Makes the calls in safe mode.
    pub(super) safe: bool,
    /// Deadline of a call without its own.
    deadline: Duration,
    /// Maximum deadline of a call, in milliseconds.
    longest_ms: i64,
}

impl<'a> Caller<'a> {
    pub(super) fn new(world: &'a World, session: &'a Session<'a>, case: &Case, safe: bool) -> Self {
        // A deadline shorter than the time under test would hide a slow call.
        let slow = case.must_not.iter().filter_map(|predicate| predicate["ms"].as_u64()).max();
        let slow = Duration::from_millis(slow.unwrap_or_default() + 2000);
        let is_greedy = case.only_limited.is_some();
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
                // If no call is running, `abort` replies with an error.
                wire.reply("abort", json!({"sessionId": self.session.id}));
            }
            "session.create" => {
                // The daemon generates ids itself; a client may choose a name.
                let params =
                    json!({"path": arguments["workspace"], "name": arguments["session_id"]});
                let reply = wire.reply("quack.session_new", params);
                answers.add(&reply.to_string(), reply["ok"] == true);
            }
            _ => self.repeat(tool, arguments, answers),
        }
    }

    /// Repeats a tool call as often as the case requires, or until time runs out.
    fn repeat(&self, tool: &str, arguments: &Value, answers: &mut Answers) {
        let n = arguments["repeat"].as_u64().unwrap_or(1);
        let begin = Instant::now();
        for _ in 0..n {
            let mut once = Answers::default();
            self.call(tool, arguments, &mut once);
            // Thousands of replies are identical.
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
            // A command has no terminal, but it can create one.
            let command = arguments["command"].as_str().expect("a command").replace('\'', "'\\''");
            arguments["command"] = json!(format!("script -qec '{command}' /dev/null"));
        }
        // The corpus has these parameters for the runner. The tool refuses unknown parameters.
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

    /// Calls with arguments that are not a JSON object, or that JSON libraries parse differently.
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

    /// Reads the files named in the texts: a model that reads the text can read them too.
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

/// Translates a tool name of the corpus to quackd's.
fn our_name(tool: &str) -> &str {
    match tool {
        "read" => "read_file",
        "write" => "write_file",
        "edit" => "edit_file",
        "grep" => "grep_search",
        // Listing tools map to `find_files` and back.
        "find" | "ls" => "find_files",
        other => other,
    }
}
