//! Replays the transcripts of docs/protocol.md and docs/tools.md against a real daemon, and checks
//! that every method and every tool is documented.
//!
//! Each transcript has its own world: a daemon without a key, and a workspace `<repo>` with the
//! files of the harness. Replies are matched by their `id` and events by their order. Replies and
//! events are not compared with each other, because the wire promises no order between them.

mod block;
mod pattern;

use crate::harness::tier::needs;
use crate::harness::{Answer, Daemon, FakeExa, Wire, answer};
use crate::schema::Checker;
use block::{Action, Block, Step, blocks};
use pattern::Names;
use quackd_protocol::tools;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

/// A program that uses Pi's protocol.
const FAKE_PI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");

/// Requests that violate the schemas but that the daemon accepts: the schemas define what a client
/// should send.
const ODD: &[&str] = &[
    "unfollow is not as its schema says: /params: \"none\" is not",
    "voice_tool_call is not as its schema says: /params/arguments: {\"command\":\"true\"} is not",
];

/// Id of the request whose reply shows that no other line is pending.
const LAST: &str = "nothing is left";

#[track_caller]
pub(crate) fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_protocol_is_as_documented() {
    needs!(Answers);
    replay("docs/protocol.md");
}

#[test]
fn the_tools_are_as_documented() {
    needs!(Answers);
    replay("docs/tools.md");
}

#[test]
fn every_method_has_a_transcript() {
    let documented = words("docs/protocol.md", &["method"]);
    let (methods, _) = quackd_schema::names();
    assert!(methods.contains(&"ping") && 10 < methods.len(), "{methods:?}");
    let missing: Vec<_> = methods.iter().filter(|name| !documented.contains(**name)).collect();
    assert!(missing.is_empty(), "docs/protocol.md has no transcript of {missing:?}");
}

#[test]
fn every_tool_has_a_transcript() {
    let documented = words("docs/tools.md", &["tool", "toolName"]);
    let missing: Vec<_> = tools::all().filter(|tool| !documented.contains(tool.name)).collect();
    assert!(missing.is_empty(), "docs/tools.md has no transcript of {missing:?}");
}

/// Values of some keys in the requests of a document's transcripts.
fn words(document: &str, keys: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for step in blocks(&read(document)).iter().flat_map(|block| &block.steps) {
        let Action::Send(line) = &step.action else { continue };
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        for place in [&line, &line["params"]] {
            let values = keys.iter().filter_map(|key| place[key].as_str());
            found.extend(values.map(str::to_owned));
        }
    }
    found
}

fn replay(document: &str) {
    let blocks = blocks(&read(document));
    assert!(!blocks.is_empty(), "{document} has no transcript");
    let complaints: Vec<String> = blocks.iter().filter_map(|block| play(block).err()).collect();
    let all: Vec<String> = complaints.iter().map(|what| format!("{document}:{what}")).collect();
    assert!(all.is_empty(), "\n\n{}\n", all.join("\n\n"));
}

/// Plays one transcript in a fresh world. The error contains the line of the first difference.
fn play(block: &Block) -> Result<(), String> {
    let answers: Vec<Answer> =
        block.steps.iter().filter_map(|step| provided(&step.action)).collect();
    let provider = (!answers.is_empty()).then(|| FakeExa::start(&answers));
    let mut daemon = Daemon::absent();
    if block.steps.iter().any(|step| asks_for_link(&step.action)) {
        // Another daemon of this machine may have the usual port.
        let config = "[forward]\nlisten = \"127.0.0.1:0\"\n";
        daemon.configure(config);
    }
    match &provider {
        Some(exa) => {
            let endpoint = format!("QUACKD_EXA_ENDPOINT={}", exa.endpoint());
            daemon.boot_in(&[&endpoint]);
        }
        None if block.steps.iter().any(|step| speaks_to_pi(&step.action)) => {
            let binary = format!("RUBBER_DUCK_PI_BINARY={FAKE_PI}");
            let dir = format!("FAKE_PI_DIR={}", daemon.home().display());
            daemon.boot_in(&["OPENAI_API_KEY=x", &binary, &dir]);
        }
        None => daemon.boot_in(&["-u", "EXA_API_KEY"]),
    }
    let repo = daemon.repo("repo");
    let mut names = Names::default();
    names.set("repo", repo.path().to_string_lossy());
    names.set("state", daemon.app().to_string_lossy());
    names.set("home", daemon.home().to_string_lossy());
    let client = Client {
        wire: daemon.wire(),
        checker: Checker::default(),
        wrong: Vec::new(),
        replies: VecDeque::new(),
        events: VecDeque::new(),
    };
    client.play(block, names, &|name, content| repo.write(name, content))
}

fn asks_for_link(action: &Action) -> bool {
    matches!(action, Action::Send(text) if text.contains("\"link\":true"))
}

/// Returns true if the transcript needs a Pi, so its daemon runs the fake Pi.
fn speaks_to_pi(action: &Action) -> bool {
    matches!(action, Action::Send(line) if line.contains("\"method\":\"say\""))
}

fn provided(action: &Action) -> Option<Answer> {
    match action {
        Action::Provider(status, body) => Some(Answer::Says(answer(status, body))),
        _ => None,
    }
}

/// The client of a transcript, with its received but unchecked lines.
struct Client {
    wire: Wire,
    checker: Checker,
    /// Violations of the schemas.
    wrong: Vec<String>,
    replies: VecDeque<Value>,
    events: VecDeque<Value>,
}

impl Client {
    fn play(
        mut self,
        block: &Block,
        mut names: Names,
        write: &dyn Fn(&str, &str),
    ) -> Result<(), String> {
        let mut is_closed = false;
        for Step { line, action } in &block.steps {
            match action {
                Action::Send(text) => {
                    let text = names.fill(text);
                    self.checker.sent(&text);
                    self.wire.write(format!("{text}\n").as_bytes());
                }
                Action::Files(files) => {
                    files.iter().for_each(|(name, content)| write(name, content));
                }
                Action::Provider(..) => {}
                Action::Closed => is_closed = true,
                Action::Expect(text) => {
                    let found = self.next(text).map_err(|why| format!("{line}: {why}"))?;
                    names.compare(text, &found).map_err(|difference| {
                        format!("{line}: {difference}\n  documented: {text}\n  found:      {found}")
                    })?;
                }
            }
        }
        let wrong = std::mem::take(&mut self.wrong);
        let is_odd = |what: &&String| ODD.iter().any(|odd| what.contains(odd));
        if let Some(wrong) = wrong.iter().find(|what| !is_odd(what)) {
            return Err(format!("{}: {wrong}", block.line));
        }
        match self.rest(is_closed) {
            Some(left) => Err(format!("{}: not documented: {left}", block.line)),
            None => Ok(()),
        }
    }

    /// Returns the next event, or the reply with the documented id.
    fn next(&mut self, documented: &str) -> Result<Value, String> {
        let is_event = documented.starts_with("{\"event\"");
        let id = id_of(documented);
        let is_wanted = |reply: &Value| reply.get("id") == id.as_ref();
        loop {
            let found = if is_event {
                self.events.pop_front()
            } else {
                let at = self.replies.iter().position(is_wanted);
                at.and_then(|at| self.replies.remove(at))
            };
            match found {
                Some(found) => return Ok(found),
                None => self.receive().ok_or("the daemon closed the connection")?,
            }
        }
    }

    /// Receives one line from the daemon; `None` if the connection is closed.
    fn receive(&mut self) -> Option<()> {
        let line = self.wire.line()?;
        let line: Value = serde_json::from_str(&line).expect("a line of JSON");
        self.wrong.extend(self.checker.got(&line).err());
        let queue = if line.get("event").is_some() { &mut self.events } else { &mut self.replies };
        queue.push_back(line);
        Some(())
    }

    /// Returns a received line that the transcript does not contain.
    fn rest(mut self, is_closed: bool) -> Option<Value> {
        if is_closed {
            while self.receive().is_some() {}
        } else {
            self.wire.write(format!("{{\"id\":\"{LAST}\",\"method\":\"ping\"}}\n").as_bytes());
            while self.replies.back().is_none_or(|reply| reply["id"] != LAST) {
                self.receive().expect("closed instead of answering a ping");
            }
            self.replies.pop_back();
        }
        self.replies.pop_front().or_else(|| self.events.pop_front())
    }
}

/// The id of a documented reply, which is always its first key.
fn id_of(documented: &str) -> Option<Value> {
    let rest = documented.strip_prefix("{\"id\":")?;
    serde_json::Deserializer::from_str(rest).into_iter().next()?.ok()
}

/// A wrong transcript must fail.
#[test]
fn what_is_not_as_documented_is_told_with_its_line() {
    let document = "```transcript\n> {\"id\":1,\"method\":\"nosuch\"}\n< {\"id\":1,\"ok\":true}\n```\n\
                    ```transcript\n> {\"id\":1,\"method\":\"nosuch\"}\n```\n";
    let [wrong, incomplete] = blocks(document).try_into().expect("two transcripts");
    let told = play(&wrong).unwrap_err();
    assert!(told.starts_with("3: the line.ok: not true, but false\n"), "{told}");
    let told = play(&incomplete).unwrap_err();
    assert!(told.starts_with("5: not documented: {"), "{told}");
}
