//! `say` and the life of a session's Pi, with a fake Pi that can misbehave on request
//! (`tests/fixtures/fake_pi.py`). Needs python3.

mod dialogs;
mod faults;
mod history;
mod many;
mod memory;
mod real;
mod speakers;
mod turns;
mod verbs;
mod waiting;

use crate::harness::{Daemon, Process, Wire, wait_for};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A world with a daemon that runs the fake Pi.
pub(crate) struct World {
    pub(crate) daemon: Daemon,
    pub(crate) repo: PathBuf,
}

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");

impl World {
    /// Creates a world whose fake Pi starts in this mode.
    #[track_caller]
    pub(crate) fn new(mode: &str) -> Self {
        Self::with(mode, &[])
    }

    /// Like [`World::new`], with additional environment variables of the daemon.
    #[track_caller]
    fn with(mode: &str, variables: &[&str]) -> Self {
        let mut world = Self::absent(mode);
        world.boot(variables);
        world
    }

    fn absent(mode: &str) -> Self {
        let daemon = Daemon::absent();
        let repo = daemon.repo("repo").path().to_owned();
        let world = Self { daemon, repo };
        std::fs::create_dir(world.fake("")).unwrap();
        world.mode(mode);
        world
    }

    #[track_caller]
    fn boot(&mut self, variables: &[&str]) {
        let binary = format!("RUBBER_DUCK_PI_BINARY={FAKE}");
        let dir = format!("FAKE_PI_DIR={}", self.fake("").display());
        let mut args = vec![binary.as_str(), &dir, "OPENAI_API_KEY=sk-test"];
        args.extend(variables);
        self.daemon.boot_in(&args);
    }

    /// Path of a file of the fake Pi.
    pub(crate) fn fake(&self, name: &str) -> PathBuf {
        self.daemon.home().join("fake").join(name)
    }

    /// Sets the mode of the next Pi.
    fn mode(&self, words: &str) {
        std::fs::write(self.fake("mode"), words).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.fake(name)).unwrap_or_default()
    }

    /// The most recently started Pi.
    #[track_caller]
    fn pi(&self) -> Process {
        self.process("pid")
    }

    #[track_caller]
    fn process(&self, name: &str) -> Process {
        wait_for("a process to say its number", || {
            Process::find(self.read(name).trim().parse().ok()?)
        })
    }

    /// A client that follows the session.
    #[track_caller]
    fn follower(&self) -> Wire {
        let wire = self.daemon.wire();
        wire.attach(&self.repo);
        wire.request("follow", json!({}));
        wire
    }
}

fn kill(process: &Process) {
    let pid = nix::unistd::Pid::from_raw(process.pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("kill a process");
}

/// Sends a prompt that Pi must accept.
#[track_caller]
fn say(wire: &Wire, message: &str) {
    let data = wire.request("say", json!({"message": message, "preferPi": true}));
    assert!(data["sessionId"].is_string() && data["sessionName"].is_string(), "{data}");
}

/// Sends a prompt that must be refused. Returns the error.
#[track_caller]
fn refused(wire: &Wire, message: &str) -> String {
    let reply = wire.reply("say", json!({"message": message, "preferPi": true}));
    assert_eq!(reply["ok"], false, "{reply}");
    reply["error"].as_str().unwrap_or_default().to_owned()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

/// The concatenated deltas of these events.
fn text(events: &[Value]) -> String {
    let updates = events.iter().filter(|event| event["event"] == "message_update");
    updates.filter_map(|event| event["data"]["assistantMessageEvent"]["delta"].as_str()).collect()
}

#[track_caller]
fn find<'a>(events: &'a [Value], name: &str) -> &'a Value {
    let found = events.iter().find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", names(events)))
}
