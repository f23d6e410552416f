//! Several users who send prompts to one session's Pi at the same time, each with a separate `quack
//! say`. Each sees the answer to their own prompt, and no user ends another user's turn.

use super::World;
use crate::harness::{Running, Terminal, Wire, wait_for};
use serde_json::{Value, json};

impl World {
    /// Starts a session with a turn during which Pi reads no input until [`World::hear`].
    #[track_caller]
    fn deaf(&self) -> (Wire, Running) {
        let wire = self.follower();
        let first = Running::start(self.say(&["deaf", "--session", "duck-1"]));
        assert_eq!(first.line(), "working");
        (wire, first)
    }

    /// Lets Pi continue and read the queued prompts.
    fn hear(&self) {
        std::fs::write(self.fake("hear"), "").unwrap();
    }

    fn say(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.daemon.command(&[&["say"], words].concat());
        command.current_dir(&self.repo);
        command
    }

    /// Waits until `prompts` prompts wait for Pi.
    #[track_caller]
    fn wait(&self, wire: &Wire, prompts: usize) {
        let calls = if prompts == 1 { "1 call".to_owned() } else { format!("{prompts} calls") };
        wait_for("the prompts to wait", || {
            let ps = wire.request("quack.ps", json!({}));
            let why = ps["workers"][0]["statusWhy"].as_str()?.to_owned();
            why.starts_with(&calls).then_some(())
        });
    }
}

/// The remaining output of a subcommand, and its exit code.
#[track_caller]
fn ended(running: Running) -> (Vec<String>, Option<i32>) {
    let mut lines = Vec::new();
    while let Some(line) = running.line_until_end() {
        lines.push(line);
    }
    let (code, stderr) = running.wait();
    assert_eq!(stderr, "");
    (lines, code)
}

fn lines(lines: &[&str], code: i32) -> (Vec<String>, Option<i32>) {
    (lines.iter().map(|line| (*line).to_owned()).collect(), Some(code))
}

#[test]
fn three_who_speak_at_once_see_their_own_answers_and_nothing_else() {
    for mode in ["", "new"] {
        let world = World::new(mode);
        let (wire, first) = world.deaf();
        let second = Running::start(world.say(&["two", "--session", "duck-1"]));
        world.wait(&wire, 1);
        let third = Running::start(world.say(&["three", "--session", "duck-1"]));
        world.wait(&wire, 2);
        world.hear();
        assert_eq!(ended(first), lines(&["You said: deaf"], 0), "{mode}");
        assert_eq!(ended(second), lines(&["You said: two"], 0), "{mode}");
        assert_eq!(ended(third), lines(&["You said: three"], 0), "{mode}");
    }
}

#[test]
fn those_who_wake_pi_together_each_see_their_own_answer() {
    let world = World::new("");
    world.follower();
    let words = ["alpha", "beta", "gamma", "alpha"];
    let all = words.map(|word| (word, Running::start(world.say(&[word, "--session", "duck-1"]))));
    for (word, running) in all {
        assert_eq!(ended(running), lines(&[&format!("You said: {word}")], 0));
    }
}

#[test]
fn a_script_gets_the_events_of_its_own_turn_only() {
    let world = World::new("");
    let (wire, first) = world.deaf();
    let script = Running::start(world.say(&["two", "--session", "duck-1", "--json"]));
    world.wait(&wire, 1);
    world.hear();
    assert_eq!(ended(first).1, Some(0));
    let (printed, code) = ended(script);
    let events: Vec<Value> =
        printed.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(super::names(&events).first(), Some(&"agent_start"));
    assert_eq!(super::names(&events).last(), Some(&"agent_end"));
    assert_eq!((super::text(&events), code), ("You said: two".to_owned(), Some(0)));
}

#[test]
fn ctrl_c_while_it_waits_ends_its_own_turn_when_that_begins_and_no_other() {
    let world = World::new("");
    let (wire, first) = world.deaf();
    let second = Terminal::start(world.say(&["two", "--session", "duck-1"]));
    world.wait(&wire, 1);
    let third = Running::start(world.say(&["three", "--session", "duck-1"]));
    world.wait(&wire, 2);
    second.interrupt();
    second.see("the agent has not begun this turn");
    assert!(!world.read("lines").contains("abort"), "it is another one's turn");
    world.hear();
    assert_eq!(ended(first), lines(&["You said: deaf"], 0));
    assert_eq!(ended(third), lines(&["You said: three"], 0));
    let (shown, code) = second.end();
    assert_eq!(code, Some(130));
    assert!(!shown.contains("working") && !shown.contains("three"), "{shown}");
}

#[test]
fn ctrl_c_twice_leaves_what_waits_to_pi_and_says_so() {
    let world = World::new("");
    let (wire, first) = world.deaf();
    let second = Terminal::start(world.say(&["two", "--session", "duck-1"]));
    world.wait(&wire, 1);
    second.interrupt();
    second.see("press Ctrl-C again to exit now");
    second.interrupt();
    second.see("may still do so");
    second.see("`quack abort --session repo` ends it");
    assert_eq!(second.end().1, Some(130));
    assert!(!world.read("lines").contains("abort"), "it is another one's turn");
    world.hear();
    assert_eq!(ended(first), lines(&["You said: deaf"], 0));
    assert_eq!(super::text(&wire.events_until("agent_end")), "working\nYou said: deaf");
    // The prompt was not withdrawn, so this is its answer.
    assert_eq!(super::text(&wire.events_until("agent_end")), "You said: two");
}

#[test]
fn who_runs_out_of_time_before_the_turn_begins_is_told_so() {
    let world = World::new("");
    let (wire, first) = world.deaf();
    let second = Running::start(world.say(&["two", "--session", "duck-1", "--timeout", "1s"]));
    world.wait(&wire, 1);
    let (code, stderr) = second.wait();
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("the agent has not begun this turn and may still do so"), "{stderr}");
    assert!(stderr.contains("`quack follow --session repo` shows it"), "{stderr}");
    world.hear();
    assert_eq!(ended(first), lines(&["You said: deaf"], 0));
}
