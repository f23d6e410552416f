//! The session in which the calls of an agent run, and its end.

use super::{Agent, calls_running, command, text};
use crate::harness::tier::needs;
use crate::harness::{Daemon, descendants_of, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::Path;

/// The sessions of all agents, as `quack.ps` lists them.
#[track_caller]
fn sessions(daemon: &Daemon) -> Vec<String> {
    let all = daemon.wire().request("sessions", json!({"all": true}));
    let names = all["sessions"].as_array().expect("sessions").iter();
    names.map(|session| session["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn each_agent_has_a_session_of_its_own_and_gets_it_again() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut one = Agent::start(&daemon, &repo, &[]);
    assert_eq!(sessions(&daemon), Vec::<String>::new());
    one.call("write_file", json!({"path": "a", "content": "1"}));
    let mut two = Agent::start(&daemon, &repo, &[]);
    two.call("read_file", json!({"path": "a"}));
    assert_eq!(sessions(&daemon), ["test-agent", "test-agent-2"]);
    one.leave();
    wait_for("the daemon to see that", || {
        let ping = daemon.wire().request("ping", json!({}));
        (ping["clients"] == 2).then_some(())
    });
    let mut three = Agent::start(&daemon, &repo, &[]);
    three.call("read_file", json!({"path": "a"}));
    assert_eq!(sessions(&daemon), ["test-agent", "test-agent-2"]);
    // Neither the active session nor another session was touched.
    let found = daemon.wire().request("quack.find", json!({}));
    assert_eq!(found["session"], Value::Null);
    two.leave();
    three.leave();
}

#[test]
fn an_agent_that_is_killed_leaves_no_process() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    agent.call("bash", json!({"command": "sleep 60", "background": true}));
    agent.begin("tools/call", json!({"name": "bash", "arguments": {"command": "sleep 60"}}));
    let sleeps = || descendants_of(daemon.pid()).iter().filter(|it| it.name == "sleep").count();
    wait_for("both commands", || (sleeps() == 2).then_some(()));
    drop(agent);
    wait_for("no command", || (sleeps() == 0).then_some(()));
}

#[test]
fn jobs_stay_if_they_should() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &["--keep"]);
    agent.call("bash", json!({"command": "sleep 60", "background": true}));
    agent.leave();
    let mut again = Agent::start(&daemon, &repo, &["--keep"]);
    wait_for("the job in the same session", || {
        let jobs = again.call("jobs", json!({}));
        text(&jobs).starts_with("job-1  running").then_some(())
    });
    again.leave();
}

#[test]
fn a_directory_that_can_be_no_workspace_is_explained_and_a_root_helps() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let home = daemon.home();
    let mut agent = Agent::spawn(command(&daemon, &home, &[]));
    agent.initialize(json!({}));
    let list = agent.request("tools/list", json!({}));
    assert!(list["result"]["tools"].is_array(), "{list}");
    let refused = agent.call("bash", json!({"command": "true"}));
    assert_eq!(refused["isError"], true);
    assert!(
        text(&refused).ends_with("Start `quack mcp` in a project, or with --workspace DIR"),
        "{refused}"
    );
    agent.leave();

    let mut agent = Agent::spawn(command(&daemon, &home, &[]));
    agent.initialize(json!({"roots": {}}));
    let id =
        agent.begin("tools/call", json!({"name": "read_file", "arguments": {"path": "README.md"}}));
    let asked = agent.message(|message| message["method"] == "roots/list");
    let roots = json!({"roots": [{"uri": "https://x/"}, {"uri": format!("file://{}", repo.path().display())}]});
    agent.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots}));
    let answer = agent.answer(id);
    assert_eq!(text(&answer["result"]), "# A repository\n");
    agent.leave();
}

#[test]
fn a_call_chooses_its_directory_only_if_it_may() {
    let daemon = Daemon::start();
    let (one, two) = (daemon.repo("one"), daemon.repo("two"));
    two.write("only-here", "yes\n");
    let read = json!({"path": "only-here", "workspace": two.path()});
    let mut agent = Agent::start(&daemon, &one, &["--any-workspace"]);
    let list = agent.request("tools/list", json!({}));
    assert!(list["result"]["tools"][0]["inputSchema"]["properties"]["workspace"].is_object());
    assert_eq!(text(&agent.call("read_file", read.clone())), "yes\n");
    assert_eq!(text(&agent.call("read_file", json!({"path": "README.md"}))), "# A repository\n");
    let relative = agent.call("read_file", json!({"path": "x", "workspace": "two"}));
    assert_eq!(text(&relative), "Error: the argument `workspace` must be an absolute path");
    let home = agent.call("read_file", json!({"path": "x", "workspace": daemon.home()}));
    assert_eq!(home["isError"], true);
    agent.leave();

    let mut agent = Agent::start(&daemon, &one, &[]);
    let refused = agent.call("read_file", read);
    assert!(text(&refused).starts_with("Error: Unknown parameter 'workspace'"), "{refused}");
    agent.leave();
}

#[test]
fn a_session_by_name_is_used_and_stays() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    daemon.wire().request("quack.session_new", json!({"path": repo.path(), "name": "mine"}));
    let mut agent = Agent::start(&daemon, &repo, &["--session", "mine"]);
    agent.call("bash", json!({"command": "true"}));
    agent.leave();
    assert_eq!(sessions(&daemon), ["mine"]);
    let mut agent = Agent::start(&daemon, &repo, &["--session", "nobody"]);
    let refused = agent.call("bash", json!({"command": "true"}));
    assert_eq!(text(&refused), "Error: Session not found: nobody");
    agent.leave();
}

#[test]
fn the_daemon_is_started_and_found_again() {
    needs!(Signals);
    let daemon = Daemon::absent();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    agent.call("write_file", json!({"path": "a", "content": "1"}));
    assert!(daemon.quack(&["stop"]).code() == Some(0));
    assert_eq!(text(&agent.call("read_file", json!({"path": "a"}))), "1");
    // A worker that dies costs one call.
    let died = agent.call("bash", json!({"command": "kill -9 $PPID"}));
    assert!(text(&died).starts_with("Error: Worker died during bash (signal 9)."), "{died}");
    assert_eq!(died["structuredContent"]["workerDied"], true);
    assert_eq!(text(&agent.call("read_file", json!({"path": "a"}))), "1");
    // The daemon dies during a call.
    let id =
        agent.begin("tools/call", json!({"name": "bash", "arguments": {"command": "sleep 60"}}));
    wait_for("the call", || (calls_running(&daemon) == 1).then_some(()));
    let ping = daemon.wire().request("ping", json!({}));
    let pid = i32::try_from(ping["pid"].as_i64().expect("a pid")).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("kill the daemon");
    let answer = agent.answer(id);
    assert_eq!(
        text(&answer["result"]),
        "Error: The daemon ended during bash. It may have run; it was not retried."
    );
    assert_eq!(text(&agent.call("read_file", json!({"path": "a"}))), "1");
    agent.leave();
    assert!(daemon.quack(&["stop"]).code() == Some(0));
    assert!(repo.path().join("a").exists());
}

#[test]
fn two_agents_keep_their_sessions_over_a_restart_of_the_daemon() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("project");
    let mut one = Agent::start(&daemon, &repo, &[]);
    one.call("bash", json!({"command": "seq 1 100000"}));
    let mut two = Agent::start(&daemon, &repo, &[]);
    two.call("read_file", json!({"path": "README.md"}));
    let session_of = |agent: &mut Agent| {
        let result = agent.call("bash", json!({"command": "seq 1 100000"}));
        let path =
            result["structuredContent"]["fullOutputPath"].as_str().expect("a path").to_owned();
        Path::new(&path).parent().expect("a directory").to_owned()
    };
    let before = (session_of(&mut one), session_of(&mut two));
    assert_ne!(before.0, before.1);
    assert!(daemon.quack(&["stop"]).code() == Some(0));
    // The second agent is the first one to return.
    let second = session_of(&mut two);
    assert_eq!((session_of(&mut one), second), before);
    one.leave();
    two.leave();
    assert!(daemon.quack(&["stop"]).code() == Some(0));
}

#[test]
fn a_long_output_of_another_workspace_can_be_read() {
    let daemon = Daemon::start();
    let (one, two) = (daemon.repo("one"), daemon.repo("two"));
    let mut agent = Agent::start(&daemon, &one, &["--any-workspace"]);
    let result = agent.call("bash", json!({"command": "seq 1 100000", "workspace": two.path()}));
    let read = agent.request("resources/read", json!({"uri": result["content"][1]["uri"]}));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
    assert!(text.starts_with("1\n2\n"));
    agent.leave();
}
