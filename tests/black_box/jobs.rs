//! Background jobs: they continue after their call and between calls, and end with their session's
//! worker.

use crate::harness::tier::{self, needs};
use crate::harness::{Daemon, Process, Session, is_alive, one_takes_less_than, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Calls a tool and returns all fields of the reply, not only the text.
#[track_caller]
fn quack_tool(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    let params = json!({"sessionId": session.id, "tool": tool, "arguments": arguments});
    session.wire.request("quack.tool", params)
}

#[track_caller]
fn start(session: &Session<'_>, command: &str) -> String {
    let started = quack_tool(session, "bash", json!({"command": command, "background": true}));
    let id = started["data"]["jobId"].as_str();
    id.unwrap_or_else(|| panic!("no job: {started}")).to_owned()
}

/// Reads a job's output until it contains `what`.
#[track_caller]
fn read_until(session: &Session<'_>, job: &str, what: &str) -> String {
    let (mut text, mut cursor) = (String::new(), json!(0));
    wait_for(what, || {
        let ask = json!({"job": job, "cursor": cursor, "wait_ms": 1000});
        let page = quack_tool(session, "job_output", ask);
        text.push_str(page["text"].as_str().unwrap());
        cursor = page["data"]["cursor"].clone();
        text.contains(what).then(|| text.clone())
    })
}

/// The descendants of the session's worker.
#[track_caller]
fn below(session: &Session<'_>) -> BTreeSet<Process> {
    crate::harness::descendants_of(session.pid("pid"))
}

#[track_caller]
fn all_gone(processes: &BTreeSet<Process>) {
    wait_for("the jobs' processes to be gone", || (!processes.iter().any(is_alive)).then_some(()));
}

/// A command with a child in a separate session and process group.
const FAMILY: &str = "setsid sleep 1001 & sleep 1002 & echo up; wait";

/// Starts [`FAMILY`] and waits until its processes run.
#[track_caller]
fn start_family(session: &Session<'_>) -> (String, BTreeSet<Process>) {
    let job = start(session, FAMILY);
    let processes = wait_for("the job's processes", || {
        let below = below(session);
        (below.iter().filter(|process| process.name == "sleep").count() == 2).then_some(below)
    });
    (job, processes)
}

#[test]
fn a_job_goes_on_between_calls_and_its_output_is_read_with_a_cursor() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let command = format!(
        "echo one; {}; {}; exit 4",
        daemon.gated("two", "printf 'tw\\xc3'"),
        daemon.gated("rest", "printf '\\xb6\\xff\\n'")
    );
    let started = session.call("bash", json!({"command": command, "background": true}));
    assert_eq!(
        started,
        "Started background job job-1\n[Its output: job_output job-1. To end it: job_kill job-1]"
    );
    let wait = |cursor: u64| json!({"job": "job-1", "cursor": cursor, "wait_ms": 20_000});
    assert_eq!(session.call("job_output", wait(0)), "one\n\n[Cursor: 4]\n[Job running]");
    assert_eq!(session.call("job_output", json!("job-1")), "one\n\n[Cursor: 4]\n[Job running]");
    // This call waits for future output while other calls continue.
    let waiting = session.begin("job_output", wait(4));
    assert_eq!(session.bash("echo beside"), "beside\n\n[Exit code: 0]");
    daemon.open_gate("two");
    // An incomplete character is held back until its last byte arrives.
    assert_eq!(waiting.text(), "tw\n[Cursor: 6 of 7 bytes]\n[Job running]");
    let waiting = session.begin("job_output", wait(6));
    daemon.open_gate("rest");
    assert!(waiting.text().starts_with("ö\u{fffd}\n"));
    read_until(&session, "job-1", "[Exit code: 4]");
    let whole = quack_tool(&session, "job_output", json!({"job": "job-1"}));
    assert_eq!(whole["text"], "one\ntwö\u{fffd}\n\n[Exit code: 4]");
    assert_eq!(
        whole["data"],
        json!({"jobId": "job-1", "running": false, "cursor": 10, "totalBytes": 10, "exitCode": 4})
    );
    assert_eq!(whole["isError"], false);
    assert!(session.call("jobs", json!({})).contains(": exit code 4  10 bytes  echo one; "));
    let file = daemon.app().join("run").join(&session.id).join("job-1.log");
    assert_eq!(session.call("read_file", json!({"path": file})), "one\ntwö\u{fffd}\n");
}

#[test]
fn ps_shows_running_jobs_and_nothing_of_ended_ones() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    assert_eq!(session.worker().get("jobs"), None);
    start(&session, "sleep 1003\n# and more");
    let jobs = session.worker()["jobs"].take();
    assert_eq!((&jobs[0]["jobId"], &jobs[0]["command"]), (&json!("job-1"), &json!("sleep 1003")));
    assert!(jobs[0]["elapsedMs"].as_u64().unwrap() < 20_000);
    assert_eq!(session.worker()["state"], "ready");
    let ps = daemon.quack(&["ps"]).ok();
    assert!(ps.contains("└─ job-1  ") && ps.contains("s  sleep 1003\n"), "{ps}");
    session.call("job_kill", json!("job-1"));
    wait_for("the end of the job to be reported", || {
        session.worker().get("jobs").is_none().then_some(())
    });
}

#[test]
fn a_killed_job_is_gone_with_everything_below_it_when_the_answer_comes() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let session = wire.attach(repo.path());
    let (_, processes) = start_family(&session);
    // A job belongs to no call, so neither the end of a call nor an abort ends the job.
    // The pipe makes the shell wait until its background process has closed the output: on a busy machine that
    // process could hold it longer than a command waits for, and the answer would name it.
    assert_eq!(
        session.bash(
            "mkfifo closed; exec 3>&1 >/dev/null 2>&1
             { exec 3>&-; echo >closed; exec sleep 1004; } & read -r <closed; echo x >&3"
        ),
        "x\n\n[1 background process was ended]\n[Exit code: 0]"
    );
    let slow = session.begin("bash", json!("echo begun > marker; sleep 1005"));
    wait_for("the call to run", || (repo.read("marker") == "begun\n").then_some(()));
    wire.request("abort", json!({}));
    assert!(slow.text().contains("[Process aborted]"));
    assert!(processes.iter().all(is_alive));
    assert_eq!(wire.refused("abort", json!({})), "No running operation to abort");
    let text = session.call("job_kill", json!("job-1"));
    // On macOS one that hides could be left.
    let doubt = if tier::is_macos() { "[Some of its processes may still be there]\n" } else { "" };
    let ended = "Ended background job job-1: 3 processes\n";
    assert_eq!(text, format!("{ended}{doubt}[Process aborted]\n[Exit code: unknown]"));
    assert!(!processes.iter().any(is_alive), "answered before everything was gone");
}

#[test]
fn jobs_end_with_their_worker_and_the_next_one_says_so() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let (job, processes) = start_family(&session);
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).unwrap();
    all_gone(&processes);
    wait_for("the death to be noticed", || (session.worker()["restarts"] == 1).then_some(()));
    assert_eq!(session.worker().get("jobs"), None);
    assert_eq!(
        session.call("job_output", json!(job)),
        "Error: No background job 'job-1'; jobs end with their session's worker"
    );
    // A number means one job of the session.
    assert_eq!(start(&session, "echo again"), "job-2");
    assert!(read_until(&session, "job-2", "[Exit code: 0]").starts_with("again\n"));
    assert_eq!(
        session.call("job_output", json!(job)),
        "Error: No background job 'job-1'; jobs end with their session's worker"
    );
}

#[test]
fn nothing_of_a_job_outlives_a_killed_daemon() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let (_, processes) = start_family(&session);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    all_gone(&processes);
}

#[test]
fn a_daemon_that_stops_does_not_wait_for_jobs() {
    // Calls get 5 s.
    one_takes_less_than(Duration::from_secs(5), || {
        let mut daemon = Daemon::start();
        let wire = daemon.wire();
        let session = wire.attach(daemon.repo("a").path());
        let (_, processes) = start_family(&session);
        let begun = Instant::now();
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(), Some(0));
        let took = begun.elapsed();
        all_gone(&processes);
        took
    });
}

#[test]
fn a_session_with_jobs_is_deleted_with_force_only() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let (_, processes) = start_family(&session);
    let delete = |force: bool| json!({"sessionId": session.id, "force": force});
    assert_eq!(
        wire.refused("quack.session_delete", delete(false)),
        "Session is busy: 1 background job is running; end with force"
    );
    start(&session, "sleep 1006");
    let slow = session.begin("job_output", json!({"job": "job-2", "wait_ms": 25_000}));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    assert_eq!(
        wire.refused("quack.session_delete", delete(false)),
        "Session is busy: 1 call and 2 background jobs are running; end with force"
    );
    assert!(processes.iter().all(is_alive));
    let deleted = wire.request("quack.session_delete", delete(true));
    assert_eq!((&deleted["callsEnded"], &deleted["jobsEnded"]), (&json!(1), &json!(2)));
    assert!(slow.text().starts_with("Error: Session was deleted during job_output."));
    all_gone(&processes);
}

#[test]
fn a_worker_with_a_job_keeps_its_environment_until_the_job_has_ended() {
    let mut daemon = Daemon::absent();
    for name in [".bash_profile", ".zprofile", ".profile"] {
        let text = "until [ -e ~/../gates/go ]; do sleep 0.02; done; export LANG=en_DUCK\n";
        std::fs::write(daemon.home().join(name), text).unwrap();
    }
    daemon.boot_bare();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    start(&session, "sleep 1007");
    let pid = session.pid("pid");
    daemon.open_gate("go");
    let kept = daemon.app().join("login-environment.json");
    wait_for("the answer of the login shell", || kept.exists().then_some(()));
    assert!(!session.bash("echo $LANG").contains("DUCK"));
    assert_eq!(session.pid("pid"), pid);
    session.call("job_kill", json!("job-1"));
    wait_for("the new environment", || session.bash("echo $LANG").contains("DUCK").then_some(()));
    assert_ne!(session.pid("pid"), pid);
}

#[test]
fn a_flood_in_a_job_is_drained_counted_and_costs_no_memory() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let n: u64 = 1024 * 1024 * 1024;
    start(&session, "head -c 1G /dev/zero | tr '\\0' x; echo end; exit 5");
    // Other calls get replies during the flood, and the newest output is available.
    assert_eq!(session.bash("echo beside"), "beside\n\n[Exit code: 0]");
    let mut cursor = json!(0);
    let last = wait_for("the end of the flood", || {
        let ask = json!({"job": "job-1", "cursor": cursor, "wait_ms": 1000});
        let page = quack_tool(&session, "job_output", ask);
        cursor = page["data"]["totalBytes"].clone();
        (page["data"]["running"] == false).then_some(page)
    });
    assert_eq!(
        (&last["data"]["exitCode"], &last["data"]["totalBytes"]),
        (&json!(5), &json!(n + 4))
    );
    let page = quack_tool(&session, "job_output", json!("job-1"));
    let text = page["text"].as_str().unwrap();
    assert!(text.ends_with("xxxend\n\n[Exit code: 5]"), "{}", &text[text.len() - 200..]);
    let kept: u64 = 64 * 1024 * 1024;
    let note = format!("; first {kept} bytes of the output: ");
    assert!(text[..500].contains(&note), "{}", &text[..500]);
    // The middle was discarded, and the end of the file says this.
    let ask = json!({"job": "job-1", "cursor": kept});
    let gap = quack_tool(&session, "job_output", ask);
    let missing = gap["text"].as_str().unwrap().strip_prefix("[... ");
    let missing = missing.and_then(|text| text.split_once(" bytes left out; first ")).unwrap().0;
    let missing: u64 = missing.parse().unwrap();
    assert!((n + 4 - kept - 102_400..n + 4 - kept).contains(&missing), "{missing} bytes");
    let file = text[..500].split_once(&note).unwrap().1.split_once(']').unwrap().0;
    let said = format!("\n[... {} more bytes of output were not written]\n", n + 4 - kept);
    wait_for("the note in the file", || {
        session.bash(&format!("tail -c 100 '{file}'")).contains(&said).then_some(())
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", session.pid("pid"))).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 64 * 1024, "the worker's peak was {peak} KiB");
}

#[test]
fn eight_jobs_run_beside_calls_and_one_more_is_refused() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    for n in 1..=8 {
        start(&session, &format!("setsid sleep 110{n} & echo up; wait"));
    }
    let refused = session.call("bash", json!({"command": "true", "background": true}));
    assert!(refused.starts_with("Error: 8 background jobs are running"), "{refused}");
    assert_eq!(session.worker()["jobs"].as_array().unwrap().len(), 8);
    let sleeps = |processes: BTreeSet<Process>| {
        // Count by name, which does not change while the processes run. Process 1 may reap a killed one after the
        // answer to its call.
        let sleeps =
            processes.into_iter().filter(|process| process.name == "sleep" && process.state != 'Z');
        sleeps.map(|process| (process.pid, process.started)).collect::<BTreeSet<_>>()
    };
    let jobs = wait_for("all jobs to be up", || {
        let sleeps = sleeps(below(&session));
        (sleeps.len() == 8).then_some(sleeps)
    });
    // Leftover processes of a call are killed with the call, and no other processes are.
    let calls: Vec<_> = (0..10)
        .map(|n| {
            session.begin(
                "bash",
                json!(format!("(setsid sleep 120{n} & sleep 1300 &) >/dev/null 2>&1; echo {n}")),
            )
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        let text = call.text();
        let expected = format!("{n}\n\n[2 background processes were ended]\n[Exit code: 0]");
        assert_eq!(text, expected);
    }
    assert_eq!(sleeps(below(&session)), jobs);
    session.call("job_kill", json!("job-3"));
    wait_for("one job to be gone", || (sleeps(below(&session)).len() == 7).then_some(()));
    assert_eq!(start(&session, "true"), "job-9");
}

#[test]
fn a_running_job_does_not_disable_commands_when_the_user_allows_more() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    if !["A", "B"].contains(&session.worker()["tier"].as_str().unwrap()) {
        return crate::harness::untested("workers have no namespaces here");
    }
    session.call("bash", json!({"command": "sleep 1000", "background": true}));
    let monitor = session.pid("monitorPid");
    let quack = |args: &[&str]| {
        let mut command = daemon.command(args);
        command.current_dir(repo.path()).stdin(std::process::Stdio::null()).output().unwrap()
    };
    // A host is allowed in the running worker.
    let connect = "(: < /dev/tcp/a.example/443) 2>/dev/null; exit 3";
    let line = |mode| {
        format!(
            "the network (a.example) was denied to a command of this session (workspace-write, network {mode})"
        )
    };
    assert!(session.bash(connect).contains(&line("off")));
    assert!(quack(&["sandbox", "allow", "example.com"]).status.success());
    assert!(session.bash(connect).contains(&line("hosts")));
    let shown = String::from_utf8(quack(&["sandbox", "show"]).stdout).unwrap();
    assert!(shown.contains("confined, workspace-write, network hosts"), "{shown}");
    assert_eq!(session.pid("monitorPid"), monitor);
    // With the machine's network, commands go on with the permissions that the worker has, and a denial names the job.
    assert!(quack(&["sandbox", "set", "--network", "on"]).status.success());
    assert_eq!(session.bash("echo on"), "on\n\n[Exit code: 0]");
    assert_eq!(session.pid("monitorPid"), monitor);
    let denied = session.bash("(: < /dev/tcp/192.0.2.1/443) 2>/dev/null; exit 3");
    assert!(denied.contains("quack jobs kill job-1 --session a]"), "{denied}");
    assert!(denied.ends_with("[Exit code: 3]"), "{denied}");
    let shown = String::from_utf8(quack(&["sandbox", "show"]).stdout).unwrap();
    assert!(shown.contains("in force after 1 background job"), "{shown}");
    // Less than the worker allows stops its commands at once.
    assert!(quack(&["sandbox", "set", "read-only"]).status.success());
    let refused = session.bash("echo x > f");
    assert!(refused.starts_with("Error: Session worker is restarting ("), "{refused}");
    assert!(quack(&["sandbox", "set", "workspace-write"]).status.success());
    assert_eq!(session.bash("echo on"), "on\n\n[Exit code: 0]");
    session.call("job_kill", json!("job-1"));
    assert_eq!(session.bash("echo new"), "new\n\n[Exit code: 0]");
    assert_ne!(session.pid("monitorPid"), monitor, "the next worker has the new permissions");
}
