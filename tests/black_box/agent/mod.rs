//! quackd's own agent, with a fake model server. Needs python3.
//!
//! The expected orders of events are those that Pi was recorded with (`tests/fixtures/agent-transcripts`), except where
//! quackd differs on purpose: one `agent_end` per turn, also after a retry, and deltas without the message so far.

mod answers;
mod compaction;
mod confinement;
mod costs;
mod deaths;
mod dialects;
mod engines;
mod files;
mod headless;
mod keys;
mod line_editor;
mod mcp_servers;
mod names;
mod prompt;
mod providers;
mod queues;
mod retries;
mod rpc;
mod rpc_dialect;
mod rpc_options;
mod secrets;
mod tools;
mod undo;

use crate::harness::{Daemon, FakeModel, Process, Wire, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A world with a model server and a daemon whose sessions use it.
struct World {
    daemon: Daemon,
    model: FakeModel,
    repo: PathBuf,
    /// The directory of Pi's files.
    agent: PathBuf,
}

impl World {
    /// Creates a world whose model server plays this script.
    #[track_caller]
    fn new(script: &Value) -> Self {
        Self::with(script, &json!({}), "")
    }

    /// Like [`World::new`], with Pi's settings and with quackd's configuration.
    #[track_caller]
    fn with(script: &Value, settings: &Value, config: &str) -> Self {
        let mut world = Self::absent(script);
        std::fs::write(world.agent.join("settings.json"), settings.to_string()).unwrap();
        world.configure(config);
        world.boot(&[]);
        world
    }

    /// Creates a world without a daemon.
    #[track_caller]
    fn absent(script: &Value) -> Self {
        let daemon = Daemon::absent();
        let repo = daemon.repo("repo").path().to_owned();
        let agent = daemon.home().join("agent");
        std::fs::create_dir(&agent).unwrap();
        let model = FakeModel::start(&daemon.home().join("model"), script);
        let world = Self { daemon, model, repo, agent };
        world.write_models(&world.model.v1(), "openai-completions");
        world
    }

    /// Writes Pi's `models.json`: two models of one provider.
    fn write_models(&self, base_url: &str, api: &str) {
        let first = json!({"id": "fake-1", "name": "Fake One", "reasoning": true,
            "input": ["text", "image"], "contextWindow": 128_000, "maxTokens": 4096,
            "cost": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1.25}});
        let mut second = first.clone();
        (second["id"], second["reasoning"]) = ("fake-2".into(), false.into());
        let models = json!({"providers": {"fake": {"baseUrl": base_url, "apiKey": "sk-fake",
            "authHeader": true, "api": api, "models": [first, second]}}});
        std::fs::write(self.agent.join("models.json"), models.to_string()).unwrap();
    }

    /// Writes quackd's configuration.
    fn configure(&self, config: &str) {
        use std::os::unix::fs::DirBuilderExt as _;
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(self.daemon.app()).unwrap();
        self.daemon.configure(config);
    }

    #[track_caller]
    fn boot(&mut self, variables: &[&str]) {
        let dir = format!("PI_CODING_AGENT_DIR={}", self.agent.display());
        let mut args = vec![dir.as_str()];
        args.extend(variables);
        self.daemon.boot_in(&args);
    }

    /// A client that follows the session.
    #[track_caller]
    fn follower(&self) -> Wire {
        let wire = self.daemon.wire();
        wire.attach(&self.repo);
        wire.request("follow", json!({}));
        wire
    }

    /// The processes of agents.
    fn agents(&self) -> BTreeSet<Process> {
        self.daemon.descendants().into_iter().filter(|it| it.name == "quack-agent").collect()
    }

    /// The only agent process.
    #[track_caller]
    fn agent_process(&self) -> Process {
        wait_for("one agent process", || {
            let mut agents = self.agents().into_iter();
            agents.next().filter(|_| agents.next().is_none())
        })
    }
}

/// Sends a prompt that must be accepted.
#[track_caller]
fn say(wire: &Wire, message: &str) {
    let data = wire.request("say", json!({"message": message, "preferPi": true}));
    assert!(data["sessionId"].is_string() && data["turn"].is_u64(), "{data}");
}

/// Sends a prompt. Returns the events up to the end of its turn.
#[track_caller]
fn turn(wire: &Wire, message: &str) -> Vec<Value> {
    say(wire, message);
    wire.events_until("agent_settled")
}

/// Sends a command of Pi's protocol that must succeed. Returns its data.
#[track_caller]
fn command(wire: &Wire, command: Value) -> Value {
    wire.request("quack.agent", json!({ "command": command }))["data"].take()
}

/// Sends a command of Pi's protocol that must be refused. Returns the error.
#[track_caller]
fn refusal(wire: &Wire, command: Value) -> String {
    let reply = wire.reply("quack.agent", json!({ "command": command }));
    assert_eq!(reply["ok"], false, "{reply}");
    reply["error"].as_str().expect("an error text").to_owned()
}

#[track_caller]
fn state(wire: &Wire) -> Value {
    command(wire, json!({"type": "get_state"}))
}

/// The order of the events as one text. Messages have the first letter of their role; `message_update` has the type of
/// its delta, and repeats are left out.
fn order(events: &[Value]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for event in events {
        let (name, data) = (event["event"].as_str().unwrap_or_default(), &event["data"]);
        let shown = match name {
            "message_start" | "message_end" => {
                let role = data["message"]["role"].as_str().unwrap_or_default();
                format!("{name} {role}")
            }
            "message_update" => {
                data["assistantMessageEvent"]["type"].as_str().unwrap_or_default().to_owned()
            }
            name => name.to_owned(),
        };
        if order.last() != Some(&shown) || !shown.ends_with("_delta") {
            order.push(shown);
        }
    }
    order
}

/// Asserts the order of events. `expected` has one event per word pair or line; see [`order`].
#[track_caller]
fn assert_order(events: &[Value], expected: &[&str]) {
    let expected: Vec<&str> = expected.iter().flat_map(|line| line.split(", ")).collect();
    assert_eq!(order(events), expected);
}

/// The events with this name.
fn all<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).map(|event| &event["data"]).collect()
}

/// The data of the only event with this name.
#[track_caller]
fn only<'a>(events: &'a [Value], name: &str) -> &'a Value {
    match all(events, name).as_slice() {
        [one] => one,
        found => panic!("{} times {name} in {:?}", found.len(), order(events)),
    }
}

/// The whole messages of the assistant.
fn answers(events: &[Value]) -> Vec<&Value> {
    let ends = all(events, "message_end").into_iter().map(|data| &data["message"]);
    ends.filter(|message| message["role"] == "assistant").collect()
}

/// The last whole message of the assistant.
#[track_caller]
fn answer(events: &[Value]) -> &Value {
    answers(events).pop().unwrap_or_else(|| panic!("no answer in {:?}", order(events)))
}

/// The text blocks of a message.
fn text(message: &Value) -> String {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}

/// The entries of the session file, which are all complete lines.
#[track_caller]
fn entries(path: &Value) -> Vec<Value> {
    let text = std::fs::read_to_string(path.as_str().expect("a path")).expect("a session file");
    assert!(text.ends_with('\n'), "a torn line");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The messages in the session file, each as its role and its reason for the stop.
#[track_caller]
fn stored(path: &Value) -> Vec<String> {
    let entries = entries(path);
    let messages = entries.iter().filter(|entry| entry["type"] == "message");
    messages
        .map(|entry| {
            let message = &entry["message"];
            let role = message["role"].as_str().unwrap_or_default();
            match message["stopReason"].as_str() {
                Some(reason) => format!("{role} {reason}"),
                None => role.to_owned(),
            }
        })
        .collect()
}

/// Settings of Pi whose retries wait for a moment only.
fn fast() -> Value {
    json!({"retry": {"enabled": true, "maxRetries": 2, "baseDelayMs": 10}})
}

fn kill(process: &Process) {
    let pid = nix::unistd::Pid::from_raw(process.pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("kill a process");
}

/// Kills the idle agent of the followed session, and waits until the daemon knows, so that the next prompt starts
/// another one.
#[track_caller]
fn end_agent(world: &World, wire: &Wire) {
    kill(&world.agent_process());
    wire.events_until("extension_error");
}
