//! `quack log` and the journal of calls.

use crate::harness::{Daemon, Running, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

fn calls(daemon: &Daemon, args: &[&str]) -> Vec<Value> {
    let text = daemon.quack(&[&["log", "--json"], args].concat()).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until the journal has `n` calls: it is written after the reply.
#[track_caller]
fn recorded(daemon: &Daemon, n: usize) -> Vec<Value> {
    wait_for("the calls to be in the journal", || {
        Some(calls(daemon, &["--all"])).filter(|calls| calls.len() == n)
    })
}

fn in_directory(daemon: &Daemon, dir: &Path, args: &[&str]) -> Output {
    daemon.command(args).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn every_call_is_in_the_journal_and_outlives_the_daemon_and_its_session() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("work");
    let id = {
        let wire = daemon.wire();
        wire.request("quack.hello", json!({"name": "tester"}));
        let session = wire.attach(repo.path());
        session.bash("echo seen; exit 3");
        session.call("write_file", json!({"path": "a.txt", "content": "secret"}));
        session.call("read_file", json!({"path": "a.txt"}));
        session.call("replace", json!({"pattern": "secret", "replacement": "x"}));
        wire.request("quack.session_delete", json!({"sessionId": session.id}));
        session.id.clone()
    };
    recorded(&daemon, 4);
    daemon.signal(Signal::SIGKILL);
    assert_eq!(daemon.wait(), None);
    daemon.boot();

    let all = calls(&daemon, &["--all"]);
    let of = |tool: &str| all.iter().find(|call| call["tool"] == tool).unwrap();
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all.iter().all(|call| call["label"] == "work"));
    assert!(all.iter().all(|call| call["client"] == "tester" && call["sessionId"] == id.as_str()));
    let bash = of("bash");
    assert_eq!((&bash["exitCode"], &bash["outcome"]), (&json!(3), &json!("failed")));
    assert_eq!(bash["arguments"]["command"], "echo seen; exit 3");
    assert!(bash["text"].as_str().unwrap().starts_with("seen"), "{bash}");
    assert_eq!(of("write_file")["files"], json!(["a.txt"]));
    assert_eq!((&of("replace")["files"], &of("replace")["nFiles"]), (&json!(["a.txt"]), &json!(1)));
    assert!(of("read_file").get("text").is_none(), "no content of files is kept");

    // A deleted session is found by its name.
    assert_eq!(calls(&daemon, &[&id]).len(), 4);
    assert_eq!(calls(&daemon, &["--all", "--agent", "test"]).len(), 4);
    assert!(calls(&daemon, &["--all", "--agent", "claude"]).is_empty());
    assert!(calls(&daemon, &["--all", "--since", "2999-01-01T00:00:00Z"]).is_empty());
    let call = bash["id"].as_str().unwrap();
    let shown = daemon.quack(&["log", "show", call]).ok();
    assert!(
        shown.contains("tester") && shown.contains("exit 3") && shown.contains("\nseen\n"),
        "{shown}"
    );
    assert_eq!(daemon.quack(&["log", "show", "nothing"]).code(), Some(1));

    let dir = daemon.app().join("journal");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in fs::read_dir(&dir).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

#[test]
fn a_long_output_comes_from_its_file_and_a_path_of_a_worker_leads_nowhere_else() {
    let daemon = Daemon::start();
    let repo = daemon.repo("work");
    daemon.wire().attach(repo.path()).bash("seq 1 60000");
    let call = recorded(&daemon, 1).remove(0);
    let id = call["id"].as_str().unwrap();
    let shown = daemon.quack(&["log", "show", id]).ok();
    assert!(shown.contains("\n30000\n"), "the middle is not in the journal itself");

    // A worker that lies about its file cannot make the user print another one.
    let file = fs::read_dir(daemon.app().join("journal")).unwrap().next().unwrap().unwrap().path();
    let path = call["fullOutputPath"].as_str().unwrap();
    let lie = daemon.home().join("private.txt");
    fs::write(&lie, "not for the terminal").unwrap();
    let changed = fs::read_to_string(&file).unwrap().replace(path, lie.to_str().unwrap());
    fs::write(&file, changed).unwrap();
    let shown = daemon.quack(&["log", "show", id]).ok();
    assert!(
        !shown.contains("not for the terminal") && shown.contains("bytes are not in the journal")
    );
}

#[test]
fn without_a_session_the_calls_are_those_of_this_directory() {
    let mut daemon = Daemon::start();
    let (one, other) = (daemon.repo("one"), daemon.repo("other"));
    let wire = daemon.wire();
    wire.attach(one.path()).bash("echo 1");
    wire.attach(other.path()).bash("echo 2");
    recorded(&daemon, 2);
    let run = in_directory(&daemon, one.path(), &["log", "--json"]);
    let in_one = String::from_utf8(run.stdout).unwrap();
    assert_eq!(in_one.lines().count(), 1);
    assert!(in_one.contains("echo 1"), "{in_one}");
    fs::create_dir_all(daemon.home()).unwrap();
    let run = in_directory(&daemon, &daemon.home(), &["log"]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    let stderr = String::from_utf8(run.stderr).unwrap();
    for way in ["-C DIR", "--session REF", "--all"] {
        assert!(stderr.contains(way), "{stderr}");
    }
    // Without a daemon, the session has the same label, which also finds it.
    drop(wire);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    for args in [&["log"][..], &["log", "one"]] {
        let run = in_directory(&daemon, one.path(), args);
        let stdout = String::from_utf8(run.stdout).unwrap();
        assert!(stdout.contains("  one  bash echo 1  ok, "), "{args:?} {stdout}");
    }
}

#[test]
fn following_shows_new_calls_and_follow_begins_with_earlier_ones() {
    let daemon = Daemon::start();
    let repo = daemon.repo("work");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("echo before");
    recorded(&daemon, 1);
    let follower = Running::start(daemon.command(&["log", "--all", "-f", "--json"]));
    assert!(follower.line().contains("echo before"));
    session.bash("echo after");
    assert!(follower.line().contains("echo after"));
    assert_eq!(follower.interrupt(), (Some(0), String::new()));

    let follow = ["follow", "--session", &session.id, "--json", "--since", "1h"];
    let follower = Running::start(daemon.command(&follow));
    for command in ["echo before", "echo after"] {
        let line: Value = serde_json::from_str(&follower.line()).unwrap();
        assert_eq!(line["event"], "quack_call");
        assert_eq!(line["data"]["arguments"]["command"], command);
    }
    session.bash("echo live");
    assert!(follower.line().contains("echo live"));
    follower.interrupt();
}

#[test]
fn the_journal_can_be_turned_off() {
    let daemon = Daemon::start_with("[keep]\njournal_days = 0\n");
    let repo = daemon.repo("work");
    daemon.wire().attach(repo.path()).bash("echo unseen");
    assert!(calls(&daemon, &["--all"]).is_empty());
    assert!(!daemon.app().join("journal").exists());
}

#[test]
fn the_end_of_a_job_and_its_denials_are_recorded_when_it_ends() {
    let daemon = Daemon::start();
    let repo = daemon.repo("work");
    let id = {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        let start =
            |command: &str| session.call("bash", json!({"command": command, "background": true}));
        // Nobody asks for the output of the first two.
        let ends = |n: usize| {
            wait_for("the ends of the jobs", || {
                let mut all = calls(&daemon, &["--all"]);
                all.retain(|call| call["tool"] == "job_end");
                all.sort_by_key(|call| call["arguments"]["job"].to_string());
                Some(all).filter(|all| all.len() == n)
            })
        };
        start("curl -sS https://example.com; exit 3");
        // The attempts of commands that run at the same time are counted for each.
        ends(1);
        start("kill -9 $$");
        start("sleep 1000");
        session.call("job_kill", json!({"job": "job-3"}));
        let ended = ends(3);
        let facts: Vec<_> =
            ended.iter().map(|it| (&it["outcome"], &it["exitCode"], &it["signal"])).collect();
        let (failed, null) = (json!("failed"), Value::Null);
        assert_eq!(facts[..2], [(&failed, &json!(3), &null), (&failed, &null, &json!(9))]);
        assert_eq!(facts[2].0, "aborted");
        assert_eq!(ended[0]["arguments"]["command"], "curl -sS https://example.com; exit 3");
        assert_eq!(ended[0]["denials"].as_array().map(Vec::len), Some(1), "{:#?}", ended[0]);
        let denied =
            wire.request("quack.sandbox", json!({"sessionId": session.id, "action": "denials"}));
        assert_eq!((&denied["total"], &denied["denials"][0]["tool"]), (&json!(1), &json!("bash")));
        // The answer about the job has them too, and they are counted once.
        let output = session.call("job_output", json!({"job": "job-1"}));
        assert!(output.contains("[Sandbox: "), "{output}");
        let after =
            wire.request("quack.sandbox", json!({"sessionId": session.id, "action": "denials"}));
        assert_eq!(after["total"], 1);
        let all = recorded(&daemon, 8);
        let output = all.iter().find(|call| call["tool"] == "job_output").unwrap();
        assert!(output.get("denials").is_none(), "{output}");
        start("sleep 1001");
        session.id.clone()
    };
    // A job whose worker ends is recorded as well.
    daemon.wire().request("quack.kill", json!({"sessionId": id}));
    let all = recorded(&daemon, 10);
    let lost = all.last().unwrap();
    assert_eq!((&lost["tool"], &lost["arguments"]["job"]), (&json!("job_end"), &json!("job-4")));
    let shown = in_directory(&daemon, repo.path(), &["log"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("job_end job-2 kill -9 $$  killed by signal 9"), "{shown}");
}

#[test]
fn a_directory_without_a_session_and_a_call_is_an_error() {
    let daemon = Daemon::start();
    let (repo, other) = (daemon.repo("work"), daemon.repo("other"));
    for args in [&["log"][..], &["log", "--json"], &["log", "-n", "3"]] {
        let ran = in_directory(&daemon, other.path(), args);
        let error = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{args:?} {error}");
        assert!(error.contains("has no session, and no call in the journal"), "{error}");
    }
    let named = daemon.quack(&["log", "-C", other.path().to_str().unwrap()]);
    assert_eq!(named.code(), Some(2), "{named:?}");
    // A session without a call, and a selection without a result, are no errors.
    daemon.wire().attach(repo.path());
    assert_eq!(in_directory(&daemon, repo.path(), &["log"]).status.code(), Some(0));
    let none = in_directory(&daemon, other.path(), &["log", "--since", "1h"]);
    assert_eq!(none.status.code(), Some(0));
}

#[test]
fn a_call_that_runs_when_the_daemon_is_killed_is_in_the_journal() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("work");
    {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        session.bash("true");
        drop(session.begin("bash", json!({"command": "exec sleep 1000"})));
        let begun = |call: &Value| call["outcome"] == "running";
        let all = wait_for("the beginning of the call", || {
            Some(calls(&daemon, &["--all"])).filter(|all| all.iter().any(begun))
        });
        assert_eq!(all.len(), 2, "{all:#?}");
    }
    let line = |daemon: &Daemon| {
        let shown = daemon.quack(&["log", "--all"]).ok();
        shown.lines().find(|line| line.contains("sleep 1000")).expect("the call").to_owned()
    };
    let running = line(&daemon);
    assert!(running.contains("  running  "), "{running}");
    daemon.signal(Signal::SIGKILL);
    assert_eq!(daemon.wait(), None);
    // No daemon has recorded the end yet.
    let ended = line(&daemon);
    assert!(ended.contains("  ended with the daemon  "), "{ended}");
    daemon.boot();
    let ended = wait_for("the end of the call", || {
        let all = calls(&daemon, &["--all"]);
        all.into_iter().find(|call| call["outcome"] == "daemon_died")
    });
    assert_eq!(ended["arguments"]["command"], "exec sleep 1000");
    let shown = daemon.quack(&["log", "show", ended["id"].as_str().unwrap()]).ok();
    let why = "Error: The daemon was killed during bash. It may have run; it was not retried.";
    assert!(shown.contains("ended with the daemon") && shown.contains(why), "{shown}");
    let shown = daemon.quack(&["log", "--all"]).ok();
    let lines: Vec<_> = shown.lines().filter(|line| line.contains("sleep 1000")).collect();
    assert_eq!(lines.len(), 1, "{shown}");
    assert!(lines[0].contains("  ended with the daemon  "), "{shown}");

    // A call that ends has one record.
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call =
        session.begin("bash", json!({"command": "until [ -e go ]; do sleep 0.1; done; echo went"}));
    wait_for("the beginning of the call", || {
        calls(&daemon, &["--all"])
            .iter()
            .any(|call| call["outcome"] == "running" && call.to_string().contains("went"))
            .then_some(())
    });
    repo.write("go", "");
    assert!(call.text().starts_with("went"));
    // The record of its end is behind its answer. Until then the call has that of its beginning.
    let all = wait_for("the end of the call", || {
        let all = calls(&daemon, &["--all"]);
        all.iter().all(|call| call["outcome"] != "running").then_some(all)
    });
    let ended: Vec<&Value> = all.iter().filter(|call| call.to_string().contains("went")).collect();
    assert_eq!((all.len(), ended.len(), &ended[0]["outcome"]), (3, 1, &json!("ok")), "{all:#?}");
}

#[test]
fn every_long_call_gets_a_beginning_while_short_ones_come_and_go() {
    let daemon = Daemon::start();
    let repo = daemon.repo("work");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let long =
        |name: &str| session.begin("bash", json!({"command": format!("exec sleep 1000 # {name}")}));
    let begun = |name: &str| {
        wait_for("the beginning of a call", || {
            session.call("read_file", json!({"path": "README.md"}));
            let all = calls(&daemon, &["--all", "-n", "10000"]);
            let is_it = |call: &&Value| {
                call["outcome"] == "running" && call["arguments"].to_string().contains(name)
            };
            all.iter().any(|call| is_it(&call)).then_some(())
        });
    };
    let first = [long("a1"), long("a2")];
    begun("a1");
    begun("a2");
    // The timer of the first ones has expired.
    let later = long("a3");
    begun("a3");
    let short = |call: &&Value| call["tool"] == "read_file" && call["outcome"] == "running";
    let all = calls(&daemon, &["--all", "-n", "10000"]);
    assert_eq!(all.iter().filter(short).count(), 0, "{all:#?}");
    wire.request("abort", json!({"sessionId": session.id}));
    drop((first, later));
}

#[test]
fn keys_in_commands_outputs_and_files_are_masked_in_the_journal() {
    let daemon = Daemon::start();
    let repo = daemon.repo("work");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let key = format!("sk-{}", "a1B2c3D4".repeat(5));
    session.bash(&format!("export OPENAI_API_KEY={key}; echo $OPENAI_API_KEY"));
    session.bash(&format!("echo 'Authorization: Bearer {key}' '{key}' PASSWORD=hunter2"));
    let content = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
    session.call("write_file", json!({"path": "id", "content": content}));
    let job = format!("echo {key}; sleep 1000");
    session.call("bash", json!({"command": job, "background": true}));
    session.call("job_kill", json!({"job": "job-1"}));
    // Where a text is cut, no part of a key is left.
    let long = format!(": {}; : {key}", "x".repeat(184));
    session.call("bash", json!({"command": long, "background": true}));
    session.bash(&format!("for n in $(seq 600); do echo {key}; done"));
    recorded(&daemon, 9);
    let shown: Vec<_> = calls(&daemon, &["--all"]).iter().map(Value::to_string).collect();
    assert!(shown.iter().any(|call| call.contains("export OPENAI_API_KEY=[masked]; echo")));
    for file in fs::read_dir(daemon.app().join("journal")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("a1B2c3D4") && !text.contains("hunter2"), "{text}");
        assert!(text.contains("Authorization: Bearer [masked]"), "{text}");
    }
    // The files and the answers have them as they are.
    assert_eq!(repo.read("id"), content);
}

#[test]
fn keys_in_the_commands_that_a_stop_interrupts_are_masked() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("work");
    let key = format!("sk-{}", "a1B2c3D4".repeat(5));
    {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        for command in [
            format!("export OPENAI_API_KEY={key}; exec sleep 1000"),
            // The end of the description is within the key.
            format!(": {}; : {key}; exec sleep 1000", "x".repeat(70)),
        ] {
            session.call("bash", json!({"command": command, "background": true}));
        }
        daemon.quack(&["stop"]).ok();
    }
    daemon.wait();
    let text = fs::read_to_string(daemon.app().join("interrupted.json")).unwrap();
    assert!(text.contains("export OPENAI_API_KEY=[masked]; exec sleep"), "{text}");
    assert!(text.contains("sk-[masked]") && !text.contains("a1B2"), "{text}");
    daemon.boot();
    let shown = daemon.quack(&["ps"]).ok();
    assert!(!shown.contains("a1B2"), "{shown}");
}

#[test]
fn a_job_that_runs_when_the_daemon_is_killed_ended_with_it() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("work");
    {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        for command in ["true", "exec sleep 1000"] {
            session.call("bash", json!({"command": command, "background": true}));
        }
        // The record of the beginning is behind that of the call.
        wait_for("the records of the jobs", || {
            let mut text = String::new();
            for file in fs::read_dir(daemon.app().join("journal")).ok()? {
                text += &fs::read_to_string(file.ok()?.path()).ok()?;
            }
            let ends: Vec<_> = text.lines().filter(|line| line.contains("job_end")).collect();
            let is_beginning = |line: &&str| line.contains("job-1") && line.contains("running");
            // The first job may end before its beginning is recorded.
            (ends.len() == 3 || ends.len() == 2 && !ends.iter().any(is_beginning)).then_some(())
        });
        assert!(calls(&daemon, &["--all"]).iter().all(|call| call["outcome"] != "running"));
    }
    daemon.signal(Signal::SIGKILL);
    assert_eq!(daemon.wait(), None);
    daemon.boot();
    let lost = wait_for("the end of the job", || {
        let all = calls(&daemon, &["--all"]);
        all.into_iter().find(|call| call["outcome"] == "daemon_died")
    });
    assert_eq!(lost["arguments"], json!({"job": "job-2", "command": "exec sleep 1000"}));
    let shown = in_directory(&daemon, repo.path(), &["log"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("job_end job-2 exec sleep 1000  ended with the daemon"), "{shown}");
    let listed = in_directory(&daemon, repo.path(), &["jobs"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("job-2 exec sleep 1000  ended with the daemon"), "{listed}");
    assert!(!listed.contains("job-1 "), "{listed}");
    let listed = in_directory(&daemon, repo.path(), &["jobs", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("one document");
    let lost = &listed["lost"][0];
    assert_eq!(
        (&lost["jobId"], &lost["command"], &lost["outcome"], &lost["running"]),
        (&json!("job-2"), &json!("exec sleep 1000"), &json!("daemon_died"), &json!(false))
    );
    assert_eq!((&listed["lost"][1], &listed["jobs"]), (&Value::Null, &json!([])));
    // Another restart adds nothing.
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    daemon.boot();
    daemon.wire().attach(repo.path()).bash("true");
    let ends = |calls: &[Value]| calls.iter().filter(|it| it["outcome"] == "daemon_died").count();
    let all = wait_for("the next call", || {
        Some(calls(&daemon, &["--all"]))
            .filter(|all| all.last().is_some_and(|it| it["tool"] == "bash"))
    });
    assert_eq!(ends(&all), 1, "{all:#?}");
}
