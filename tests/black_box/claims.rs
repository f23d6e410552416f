//! `quack.hello` and `quack.claim`: each client has separate sessions, and a disconnect ends its work.

use crate::harness::tier::needs;
use crate::harness::{
    Daemon, Process, Repo, Running, Terminal, Wire, descendants_of, is_alive, wait_for,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Connects a client that names itself.
#[track_caller]
fn client(daemon: &Daemon, name: &str) -> Wire {
    let wire = daemon.wire();
    wire.request("quack.hello", json!({"name": name, "version": "1.0", "door": "mcp"}));
    wire
}

/// Claims a session. Returns its id and its name.
#[track_caller]
fn claim(wire: &Wire, repo: &Repo) -> (String, String) {
    let data = wire.request("quack.claim", json!({"path": repo.path()}));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&data["session"]["id"]), text(&data["session"]["name"]))
}

#[track_caller]
fn tool(wire: &Wire, session: &str, tool: &str, arguments: Value) -> Value {
    let params = json!({"sessionId": session, "tool": tool, "arguments": arguments});
    wire.request("quack.tool", params)
}

/// Starts a background job with a child. Returns its processes.
#[track_caller]
fn start_job(wire: &Wire, session: &str) -> BTreeSet<Process> {
    let command = json!({"command": "sleep 1001 & sleep 1002; wait", "background": true});
    assert_eq!(tool(wire, session, "bash", command)["data"]["jobId"], "job-1");
    wait_for("the job's processes", || {
        let processes = descendants_of(worker(wire, session)?);
        (processes.iter().filter(|it| it.name == "sleep").count() == 2).then_some(processes)
    })
}

fn worker(wire: &Wire, session: &str) -> Option<i32> {
    let ps = wire.request("quack.ps", json!({}));
    let worker = ps["workers"].as_array()?.iter().find(|it| it["sessionId"] == session)?.clone();
    i32::try_from(worker["pid"].as_i64()?).ok()
}

#[track_caller]
fn calls(wire: &Wire) -> usize {
    let ps = wire.request("quack.ps", json!({}));
    let workers = ps["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker["calls"].as_array().unwrap().len()).sum()
}

#[test]
fn clients_with_the_same_name_have_different_sessions_and_each_client_keeps_its_own() {
    let daemon = Daemon::start();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let one = client(&daemon, "Claude Code");
    let two = client(&daemon, "claude code");
    let zed = client(&daemon, "zed");
    let first = claim(&one, &a);
    assert_eq!(first.1, "claude-code");
    assert_eq!(claim(&two, &a).1, "claude-code-2");
    assert_eq!(claim(&zed, &a).1, "zed");
    // Claims are for each workspace, and a path below it is the same workspace.
    assert_eq!(claim(&two, &b).1, "claude-code");
    let below = json!({"path": a.path().join("src"), "safeMode": true});
    let again = one.request("quack.claim", below);
    assert_eq!(again["session"], json!({"id": first.0, "name": first.1}));
    assert_eq!(again["label"], "a/claude-code");
    let written = tool(&one, &first.0, "write_file", json!({"path": "x", "content": ""}));
    assert_eq!(written["text"], "Error: write_file is disabled in safe mode");
    // No claim made a session active.
    assert_eq!(one.refused("get_state", json!({})), "No active session");
    // A client that takes another name keeps its session.
    one.request("quack.hello", json!({"name": "other"}));
    assert_eq!(claim(&one, &a), first);
}

#[test]
fn a_client_that_comes_back_gets_the_first_free_session_of_its_name() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    // The user prepared a session for the client.
    let prepared = json!({"path": repo.path(), "name": "Codex", "safeMode": true});
    let prepared = daemon.wire().request("quack.session_new", prepared)["session"]["id"].clone();
    let one = client(&daemon, "codex");
    let two = client(&daemon, "codex");
    let first = claim(&one, &repo);
    assert_eq!(first, (prepared.as_str().unwrap().to_owned(), "Codex".to_owned()));
    let second = claim(&two, &repo);
    assert_eq!(second.1, "codex-2");
    drop((one, two));
    wait_for("both claims to end", || {
        (daemon.wire().request("ping", json!({}))["clients"] == 1).then_some(())
    });
    let one = client(&daemon, "codex");
    assert_eq!(claim(&one, &repo), first);
    let two = client(&daemon, "codex");
    assert_eq!(claim(&two, &repo), second);
    // A deleted session is no claim any longer, and its number is used again.
    two.request("quack.session_delete", json!({"sessionId": second.0}));
    let third = claim(&two, &repo);
    assert_eq!(third.1, "codex-2");
    assert_ne!(third.0, second.0);
    drop((one, two));
    // Sessions stay when the daemon stops.
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.wait();
    daemon.boot();
    assert_eq!(claim(&client(&daemon, "codex"), &repo), first);
}

#[test]
fn many_clients_at_once_have_different_sessions() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let clients: Vec<Wire> = (0..50).map(|_| client(&daemon, "swarm")).collect();
    let params = json!({"path": repo.path()});
    let pending: Vec<_> = clients.iter().map(|it| it.begin("quack.claim", &params)).collect();
    let names = pending.into_iter().map(|pending| {
        let reply = pending.reply();
        assert_eq!(reply["ok"], true, "{reply}");
        reply["data"]["session"]["name"].as_str().unwrap().to_owned()
    });
    let names: BTreeSet<String> = names.collect();
    let expected = (1..=50).map(|n| if n == 1 { "swarm".to_owned() } else { format!("swarm-{n}") });
    assert_eq!(names, expected.collect());
}

#[test]
fn a_disconnect_ends_the_jobs_of_claimed_sessions_unless_they_are_kept() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let other = daemon.wire();
    let wire = client(&daemon, "codex");
    let (session, _) = claim(&wire, &repo);
    tool(&wire, &session, "write_file", json!({"path": "made", "content": "by codex"}));
    let job = start_job(&wire, &session);
    // The job of a session that no client claimed.
    let free = other.request("quack.session_new", json!({"path": repo.path()}));
    let free = free["session"]["id"].as_str().unwrap().to_owned();
    let unclaimed = start_job(&wire, &free);
    drop(wire);
    wait_for("the job to end", || (!job.iter().any(is_alive)).then_some(()));
    assert!(unclaimed.iter().all(is_alive));

    // The session stays and works.
    let wire = client(&daemon, "codex");
    assert_eq!(claim(&wire, &repo).0, session);
    let jobs = tool(&wire, &session, "jobs", json!({}));
    assert_eq!(jobs["text"], "No background jobs");
    assert_eq!(tool(&wire, &session, "read_file", json!("made"))["text"], "by codex");
    wire.request("quack.claim", json!({"path": repo.path(), "keepJobs": true}));
    let job = start_job(&wire, &session);
    drop(wire);
    let wire = wait_for("the claim to end", || {
        let wire = client(&daemon, "codex");
        (claim(&wire, &repo).0 == session).then_some(wire)
    });
    assert!(job.iter().all(is_alive));
    let ended = tool(&wire, &session, "job_kill", json!("job-1"));
    assert!(ended["text"].as_str().unwrap().starts_with("Ended background job job-1"), "{ended}");
}

#[test]
fn jobs_end_after_the_calls_that_run_when_the_client_disconnects() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let other = daemon.wire();
    let wire = client(&daemon, "codex");
    let (session, _) = claim(&wire, &repo);
    let job = start_job(&wire, &session);
    // A call of another client in the same session.
    let command = json!({"command": format!("touch begun; {}", daemon.gated("go", "echo done"))});
    let params = json!({"sessionId": session, "tool": "bash", "arguments": command});
    let running = other.begin("quack.tool", &params);
    wait_for("the call to run", || repo.path().join("begun").exists().then_some(()));
    drop(wire);
    let wire = wait_for("the claim to end", || {
        let wire = client(&daemon, "codex");
        (claim(&wire, &repo).0 == session).then_some(wire)
    });
    assert!(job.iter().all(is_alive), "the call is not interrupted");
    daemon.open_gate("go");
    assert_eq!(running.reply()["data"]["text"], "done\n\n[Exit code: 0]");
    wait_for("the job to end", || (!job.iter().any(is_alive)).then_some(()));
    // The jobs of the next client are its own.
    let job = start_job(&wire, &session);
    tool(&wire, &session, "bash", json!({"command": "true"}));
    assert!(job.iter().all(is_alive));
}

#[test]
fn a_disconnect_cancels_streamed_calls_of_every_tool() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let other = daemon.wire();
    let wire = client(&daemon, "codex");
    let (session, _) = claim(&wire, &repo);
    wire.request("quack.claim", json!({"path": repo.path(), "keepJobs": true}));
    start_job(&wire, &session);
    let waiting = json!({"job": "job-1", "wait_ms": 60_000});
    let call = |tool: &str, arguments: &Value, id: &str| {
        let params = json!({"sessionId": session, "tool": tool, "arguments": arguments,
            "callId": id, "stream": true, "timeoutMs": 600_000});
        drop(wire.begin("quack.tool", &params));
    };
    call("job_output", &waiting, "c1");
    call("bash", &json!({"command": "sleep 1003"}), "c2");
    wait_for("the calls to run", || (calls(&other) == 2).then_some(()));
    drop(wire);
    wait_for("the calls to end", || (calls(&other) == 0).then_some(()));
}

#[test]
fn what_is_no_name_and_no_claim_is_refused() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let required = "quack.hello is required before quack.claim";
    assert_eq!(wire.refused("quack.claim", json!({"path": repo.path()})), required);
    let hello = |params: Value| wire.reply("quack.hello", params);
    for bad in ["", "  ", &"x".repeat(65)] {
        let error =
            "Invalid parameters for quack.hello: name must have 1 to 64 printable characters";
        assert_eq!(hello(json!({"name": bad}))["error"], error, "{bad:?}");
    }
    for (field, text, max) in [("version", "x".repeat(65), 64), ("door", "x".repeat(17), 16)] {
        let error = format!(
            "Invalid parameters for quack.hello: {field} must have 1 to {max} printable characters"
        );
        assert_eq!(hello(json!({"name": "a", field: text}))["error"], error);
    }
    for params in [json!({}), json!({"name": 7}), json!({"name": "a", "nam": "b"})] {
        let error = hello(params.clone())["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with("Invalid parameters for quack.hello: "), "{params}: {error}");
    }
    // No refused name counts.
    assert_eq!(wire.refused("quack.claim", json!({"path": repo.path()})), required);
    hello(json!({"name": "x".repeat(64), "version": ""}));
    assert_eq!(wire.refused("quack.claim", json!({"path": ""})), "The path is empty");
    assert_eq!(wire.refused("quack.claim", json!({})), "The path is empty");
    let claimed = wire.request("quack.claim", json!({"path": repo.path()}));
    assert_eq!(claimed["session"]["name"], "x".repeat(40));
}

#[test]
fn a_client_may_claim_64_sessions() {
    let daemon = Daemon::start();
    let wire = client(&daemon, "many");
    let repos: Vec<Repo> = (0..65).map(|n| daemon.repo(&format!("r{n}"))).collect();
    for repo in &repos[..64] {
        claim(&wire, repo);
    }
    let params = json!({"path": repos[64].path()});
    let error = "Too many claimed sessions: a client may have 64";
    assert_eq!(wire.refused("quack.claim", params.clone()), error);
    // The client's own sessions, and those of others.
    let (first, _) = claim(&wire, &repos[0]);
    client(&daemon, "many").request("quack.claim", params.clone());
    wire.request("quack.session_delete", json!({"sessionId": first}));
    wire.request("quack.claim", params);
}

#[test]
fn ps_and_top_show_the_clients_that_named_themselves() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let other = daemon.wire();
    assert_eq!(other.request("quack.ps", json!({})).get("clients"), None);
    let wire = client(&daemon, "Claude Code");
    let (session, _) = claim(&wire, &repo);
    tool(&wire, &session, "bash", json!("true"));
    // A call of a client without a name counts for no client.
    tool(&other, &session, "bash", json!("true"));
    let command = json!({"command": daemon.gated("go", "true")});
    let params = json!({"sessionId": session, "tool": "bash", "arguments": command});
    let running = wire.begin("quack.tool", &params);
    let clients = wait_for("the call to run", || {
        let ps = other.request("quack.ps", json!({}));
        assert_eq!(ps["namedClients"], 1);
        (ps["clients"][0]["callsRunning"] == 1).then(|| ps["clients"].clone())
    });
    let connected_at = clients[0]["connectedAt"].as_str().unwrap().to_owned();
    assert!(connected_at.ends_with('Z'), "{connected_at}");
    let expected = json!([{"name": "Claude Code", "version": "1.0", "door": "mcp", "callsRunning": 1,
        "connectedAt": connected_at, "sessions": ["a/claude-code"], "calls": 2}]);
    assert_eq!(clients, expected);
    let ps = daemon.quack(&["ps"]).ok();
    let row: Vec<&str> = ps.lines().last().unwrap().split("  ").map(str::trim).collect();
    let row: Vec<&str> = row.into_iter().filter(|cell| !cell.is_empty()).collect();
    assert_eq!(row, ["Claude Code 1.0", "a/claude-code", "1", "2", "just now"], "{ps}");
    let mut command = daemon.command(&["top"]);
    command.env("TERM", "xterm-256color");
    let screen = Terminal::sized(command, Some((120, 24)));
    screen.stands("Claude Code");
    screen.press("q");
    drop(screen);
    daemon.open_gate("go");
    assert_eq!(running.reply()["ok"], true);
    drop(wire);
    wait_for("the client to be gone", || {
        let ps = other.request("quack.ps", json!({}));
        (ps.get("clients").is_none() && ps.get("namedClients").is_none()).then_some(())
    });
}

#[test]
fn events_and_follow_name_the_client_of_a_call() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = client(&daemon, "codex");
    let (session, _) = claim(&wire, &repo);
    let other = daemon.wire();
    other.request("follow", json!({"sessionId": session}));
    let follower = Running::start(daemon.command(&["follow", "--session", &session]));
    follower.lines_to("a  ");
    tool(&wire, &session, "read_file", json!("README.md"));
    tool(&other, &session, "read_file", json!("nothing.md"));
    tool(&wire, &session, "read_file", json!("nothing.md"));
    let name = json!({"name": "codex", "version": "1.0"});
    let clients: Vec<Value> = (0..6).map(|_| other.event()["data"]["client"].take()).collect();
    assert_eq!(clients, [&name, &name, &Value::Null, &Value::Null, &name, &name].map(Value::clone));
    let lines = follower.lines_to("[error] codex: ");
    assert_eq!(lines[0], "[tool] codex: read_file path=README.md");
    assert!(lines[2].starts_with("[codex: read_file] ok ["), "{lines:#?}");
    assert_eq!(lines[3], "[tool] read_file path=nothing.md");
    assert!(lines[5].starts_with("[error] read_file failed ["), "{lines:#?}");
    assert!(lines[8].starts_with("[error] codex: read_file failed ["), "{lines:#?}");
}

#[test]
fn the_log_has_a_line_for_each_call_of_a_client_that_named_itself() {
    needs!(Signals);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = client(&daemon, "Claude Code");
    let (session, _) = claim(&wire, &repo);
    // Equal lines would be counted instead of written.
    for _ in 0..20 {
        tool(&wire, &session, "read_file", json!("README.md"));
    }
    tool(&daemon.wire(), &session, "read_file", json!("README.md"));
    tool(&wire, &session, "bash", json!({"command": "echo secret; exit 3"}));
    let params =
        json!({"sessionId": session, "tool": "bash", "arguments": "sleep 60", "timeoutMs": 100});
    wire.request("quack.tool", params);
    tool(&wire, &session, "bash", json!({"command": "kill -9 $PPID"}));
    let params =
        json!({"sessionId": session, "tool": "bash", "arguments": "sleep 60", "callId": "c"});
    let running = wire.begin("quack.tool", &params);
    assert_eq!(wire.request("quack.cancel", json!({"callId": "c"}))["found"], true);
    running.reply();
    let lines = wait_for("the log", || {
        let lines: Vec<Value> =
            daemon.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let calls = lines.into_iter().filter(|line: &Value| line["message"] == "tool call");
        let calls: Vec<Value> = calls.collect();
        (calls.len() == 24).then_some(calls)
    });
    for (n, line) in lines.iter().enumerate() {
        assert_eq!((&line["client"], &line["level"]), (&json!("Claude Code"), &json!("INFO")));
        assert_eq!((&line["session"], &line["call"]), (&json!(session), &json!(n + 1)));
        assert!(line["duration_ms"].is_u64(), "{line}");
    }
    let outcomes: Vec<_> =
        lines[18..].iter().map(|line| (&line["tool"], &line["outcome"])).collect();
    let (read, bash) = (json!("read_file"), json!("bash"));
    let words = ["ok", "ok", "failed", "timed_out", "died", "aborted"].map(Value::from);
    assert_eq!(
        outcomes,
        [&read, &read, &bash, &bash, &bash, &bash].into_iter().zip(&words).collect::<Vec<_>>()
    );
    assert!(!daemon.log().contains("secret") && !daemon.log().contains("README"));
    let shown = daemon.quack(&["logs", "--session", &session]).ok();
    let line = shown.lines().find(|line| line.contains("outcome=failed")).unwrap();
    for part in [
        "INFO  tool call ",
        "client=\"Claude Code\"",
        "tool=bash",
        "session=a/claude-code ",
        "duration_ms=",
    ] {
        assert!(line.contains(part), "{line}");
    }
}
