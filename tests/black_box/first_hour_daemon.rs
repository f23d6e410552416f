//! The first hour with the daemon itself: a restart with an invalid configuration, login shells,
//! Pis that cannot start, missing directories, and work interrupted by a shutdown.

use crate::harness::init::{Init, Unit};
use crate::harness::{
    Daemon, copy_program, is_alive, one_takes_less_than, wait_for, write_program,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn pid_of_daemon(world: &Daemon) -> u64 {
    world.wire().request("ping", Value::Null)["pid"].as_u64().unwrap()
}

#[test]
fn a_restart_with_a_wrong_configuration_leaves_the_daemon_in_service() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("repo");
    let _attached = daemon.quack(&["--no-follow", repo.path().to_str().unwrap()]).ok();
    let before = pid_of_daemon(&daemon);
    let file = daemon.app().join("quackd.toml");
    let home = daemon.home().display().to_string();
    for (text, line, part) in [
        ("[pi]\nidle_minuts = 3\n", 2, "idle_minutes"),
        ("[worker]\n\nmax_live = \"many\"\n", 3, "max_live"),
        ("[worker\n", 1, ""),
        (&*format!("[sandbox]\nwritable = [\"{home}\"]\n"), 2, "sandbox.writable"),
    ] {
        daemon.configure(text);
        for args in [&["restart"][..], &["restart", "--force"], &["restart", "--wait", "1m"]] {
            let refused = daemon.quack(args);
            assert_eq!(refused.code(), Some(1), "{args:?} {refused:?}");
            let place = format!("{}:{line}", file.display());
            assert!(refused.stderr().contains(&place), "{place}: {refused:?}");
            assert!(refused.stderr().contains(part), "{part}: {refused:?}");
        }
        let refused = daemon.wire().refused("quack.restart", json!({"force": true}));
        assert!(refused.contains(&format!("quackd.toml:{line}")), "{refused}");
        assert_eq!(pid_of_daemon(&daemon), before);
    }
    daemon.configure("");
    let mut wrong = daemon.command(&["restart"]);
    let refused = wrong.env("QUACKD_CONFIG", "/no/such/file.toml").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(pid_of_daemon(&daemon), before);
    let _restarted = daemon.quack(&["restart"]).ok();
    assert_ne!(pid_of_daemon(&daemon), before);
}

#[test]
fn the_program_that_will_start_decides_whether_the_configuration_is_valid() {
    let mut init = Init::new();
    let bin = init.world.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let original = std::mem::replace(&mut init.program, bin.join("quack"));
    copy_program(&original, &init.program, b"");
    init.start();
    init.until("it to be ready", |init| (init.unit == Unit::Ready).then_some(()));
    let (before, starts) = (init.pid(), init.starts);

    // The service manager starts the next daemon, so its environment counts, not the client's.
    init.world.configure("[pi]\nnew_key = 1\n");
    let (code, _, err) = init.quack(&["restart"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("quackd.toml:2") && err.contains("new_key"), "{err}");

    // A newer program that rejects another file, then a program that accepts the key.
    let replace = |text: &str| {
        let new = bin.join("new");
        write_program(&new, text);
        #[expect(clippy::disallowed_methods, reason = "an installer would")]
        std::fs::rename(new, bin.join("quack")).unwrap();
    };
    replace("#!/bin/sh\necho 'error: /x/quackd.toml:7: no such key' >&2\nexit 1\n");
    let (code, _, err) = init.quack(&["restart"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("/x/quackd.toml:7: no such key"), "{err}");
    assert_eq!((init.pid(), init.starts), (before, starts));
    replace("#!/bin/sh\n[ \"$*\" = 'config show' ] && exit 0\nexit 9\n");
    let asked = init.world.wire().request("quack.restart", Value::Null);
    assert_eq!(asked["restarting"], true);
    // It ends, and then the new program.
    init.until("the new program to be started", |init| {
        (starts < init.ends.len().try_into().unwrap()).then_some(())
    });
}

#[test]
fn programs_that_wait_for_memory_end_no_worker_while_there_is_enough() {
    let mut daemon = Daemon::absent();
    let pressure = daemon.home().join("pressure");
    std::fs::write(&pressure, "some avg10=90.00 avg60=90.00 avg300=90.00 total=9\n").unwrap();
    let wanted = format!("mount --bind {} /proc/pressure/memory", pressure.display());
    let mut trial = daemon.program_for_tests("unshare");
    let can = trial.args(["-m", "/bin/sh", "-c", &wanted]).output();
    if !can.is_ok_and(|done| done.status.success()) {
        return;
    }
    daemon.configure("[worker]\nevict_below_mb = 16\n[sandbox]\nprofile = \"full-access\"\n");
    let script = format!("{wanted} && exec {} daemon", env!("CARGO_BIN_EXE_quack"));
    daemon.boot_with("unshare", &["-m", "/bin/sh", "-c", &script]);
    let wire = daemon.wire();
    let (idle, busy) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    let kept = idle.pid("pid");
    // The daemon checks every 2 s, and may evict a worker that was idle for 2 s.
    assert_eq!(busy.bash("sleep 8; echo done"), "done\n\n[Exit code: 0]");
    assert_eq!(idle.pid("pid"), kept);
    assert!(!daemon.log().contains("memory is short"), "{}", daemon.log());
}

/// Writes the start files of every login shell that the user may have.
fn write_start_files(world: &Daemon, text: &str) {
    for name in [".bash_profile", ".zprofile", ".profile"] {
        std::fs::write(world.home().join(name), text).unwrap();
    }
}

#[test]
fn a_login_shell_that_is_cut_short_leaves_no_lock_and_no_process() {
    // Like `pyenv rehash`. The lock belongs to a child of the start file, or to the shell itself.
    let child =
        "bash -c 'trap \"rm -f ~/lock\" EXIT; echo $$ >~/lock; while :; do sleep 0.02; done'\n";
    let itself = "trap 'rm -f ~/lock' EXIT; echo $$ >~/lock; while :; do sleep 0.02; done\n";
    for (text, signal) in [
        (child, Signal::SIGTERM),
        (child, Signal::SIGKILL),
        (itself, Signal::SIGTERM),
        (itself, Signal::SIGKILL),
    ] {
        let mut world = Daemon::absent();
        write_start_files(&world, text);
        world.boot_bare();
        let lock = world.home().join("lock");
        let processes = wait_for("the start file to run", || {
            let all = world.descendants();
            all.iter().any(|process| process.name == "sleep").then_some(all)
        });
        world.signal(signal);
        let code = world.wait();
        if signal == Signal::SIGTERM {
            // A service manager kills the remaining processes at this point.
            assert_eq!(code, Some(0));
            assert!(!processes.iter().any(is_alive), "{text}");
        }
        wait_for("the processes to end", || (!processes.iter().any(is_alive)).then_some(()));
        assert!(!lock.exists(), "{signal}: {text}");
    }
}

#[test]
fn a_first_say_without_a_key_has_the_login_shell_asked_at_once() {
    const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");
    let took = || {
        let mut daemon = Daemon::absent();
        let repo = daemon.repo("repo");
        let fake = daemon.home().join("fake");
        std::fs::create_dir(&fake).unwrap();
        std::fs::write(fake.join("mode"), "").unwrap();
        let (binary, dir) =
            (format!("RUBBER_DUCK_PI_BINARY={FAKE}"), format!("FAKE_PI_DIR={}", fake.display()));
        let args = ["-u", "EXA_API_KEY", &binary, &dir, env!("CARGO_BIN_EXE_quack"), "daemon"];
        daemon.boot_with("/usr/bin/env", &args);
        let began = Instant::now();
        let wire = daemon.wire();
        wire.attach(repo.path());
        wire.request("say", json!({"message": "hello", "preferPi": true}));
        began.elapsed()
    };
    // An earlier version paused until 2 s after the daemon's start, so it failed on every machine.
    one_takes_less_than(Duration::from_millis(1700), took);
}

/// Returns a check of `doctor`.
#[track_caller]
fn check(daemon: &Daemon, name: &str) -> Value {
    let doctor = daemon.wire().request("doctor", Value::Null);
    let checks = doctor["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap().clone()
}

#[test]
fn doctor_runs_pi_and_reports_the_last_failure_of_a_sessions_pi() {
    let mut daemon = Daemon::absent();
    let package = daemon.home().join("pi-coding-agent");
    std::fs::create_dir(&package).unwrap();
    let manifest = r#"{"name":"@earendil-works/pi-coding-agent","version":"1.5.2"}"#;
    std::fs::write(package.join("package.json"), manifest).unwrap();
    let pi = package.join("pi");
    let binary = format!("RUBBER_DUCK_PI_BINARY={}", pi.display());
    write_program(&pi, "#!/bin/sh\n");
    daemon.boot_in(&[&binary]);
    for (program, status, part) in [
        ("echo \"Error: Cannot find module 'chalk'\" >&2; exit 1\n", "fail", "Cannot find module"),
        ("kill -9 $$\n", "fail", "signal"),
        ("sleep 1000\n", "fail", "did not end within 6 s"),
        ("exit 0\n", "fail", "says nothing"),
        ("echo 0.55.0\n", "fail", "0.55.0"),
        ("yes | head -c 9000000; exit 1\n", "fail", "exit code 1"),
        ("echo 1.5.2\n", "ok", " 1.5.2"),
    ] {
        write_program(&pi, format!("#!/bin/sh\n{program}"));
        let check = check(&daemon, "pi");
        let message = check["message"].as_str().unwrap();
        assert_eq!(check["status"], status, "{program}: {check}");
        assert!(message.starts_with(pi.to_str().unwrap()) && message.contains(part), "{check}");
    }
    let upstreams = format!("{} 1.5.2", pi.display());
    assert_eq!(check(&daemon, "pi")["message"], upstreams);

    // The program reports a version but does not start. `doctor` reports its last error until it
    // works.
    let dies = "#!/bin/sh\n[ \"$1\" = --version ] && echo 1.5.2 && exit\necho 'boom: no model' >&2\nexit 3\n";
    write_program(&pi, dies);
    let wire = daemon.wire();
    wire.attach(daemon.repo("repo").path());
    let reply = wire.reply("say", json!({"message": "hello", "preferPi": true}));
    assert_eq!(reply["ok"], false, "{reply}");
    let told = wait_for("the failure to be reported", || {
        let check = check(&daemon, "pi");
        (check["status"] == "warn").then_some(check)
    });
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with(&upstreams) && message.contains("boom: no model"), "{told}");
    assert!(message.contains("last failure, in duck-1 at "), "{told}");
    wire.request("quack.session_delete", json!({"sessionId": "duck-1", "force": true}));
    assert_eq!(check(&daemon, "pi")["message"], upstreams);
}

/// Workspace paths of the daemon's sessions.
fn known(daemon: &Daemon) -> Vec<String> {
    let data = daemon.wire().request("sessions", json!({"all": true}));
    let paths = data["sessions"].as_array().unwrap().iter();
    paths.map(|it| it["workspacePath"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn sessions_whose_directory_is_gone_are_a_warning_and_are_forgotten_on_request() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let names = ["stays", "gone", "pinned", "busy"];
    let repos = names.map(|name| daemon.repo(name));
    let sessions = repos.each_ref().map(|repo| wire.attach(repo.path()));
    let paths = repos.each_ref().map(|repo| repo.path().display().to_string());
    let [stays, gone, pinned, busy] = paths;
    let id_of = |path: &str| {
        let data = daemon.wire().request("sessions", json!({"all": true}));
        let all = data["sessions"].as_array().unwrap();
        all.iter().find(|it| it["workspacePath"] == path).unwrap()["id"].clone()
    };
    wire.request("quack.pin", json!({"sessionId": id_of(&pinned), "pinned": true}));
    let command = format!("touch started; {}", daemon.gated("go", "echo went"));
    let call = sessions[3].begin("bash", json!(command));
    wait_for("the call", || repos[3].path().join("started").exists().then_some(()));
    for repo in &repos[1..] {
        std::fs::remove_dir_all(repo.path()).unwrap();
    }
    // A call in a deleted directory fails, but it is not a failure of the daemon.
    assert!(sessions[1].bash("true").starts_with("Error: "));
    assert!(sessions[2].bash("true").starts_with("Error: "));
    let found = check(&daemon, "sessions");
    assert_eq!(found["status"], "warn", "{found}");
    assert!(found["hint"].as_str().unwrap().contains("quack sessions prune"), "{found}");
    assert!(found["message"].as_str().unwrap().contains("3 sessions"), "{found}");

    let shown = daemon.quack(&["sessions", "prune", "-n"]).ok();
    assert!(shown.contains(&gone) && shown.contains("it is pinned"), "{shown}");
    assert_eq!(known(&daemon).len(), 4);
    let pruned = daemon.quack(&["sessions", "prune", "--json"]).json();
    assert_eq!(pruned["sessions"][0]["workspacePath"], json!(gone), "{pruned}");
    assert_eq!(known(&daemon), [stays.clone(), pinned.clone(), busy.clone()]);
    let _pruned = daemon.quack(&["sessions", "prune", "--force"]).ok();
    assert_eq!(known(&daemon), [stays.clone(), busy]);
    daemon.open_gate("go");
    drop(call.text());
    // `gc` does the same.
    let text = wait_for("the rest to be forgotten", || {
        let text = daemon.quack(&["gc"]).ok();
        text.contains("session without a directory").then_some(text)
    });
    assert!(text.contains("Deleted 1 session"), "{text}");
    assert_eq!(known(&daemon), [&*stays]);
    let data = daemon.wire().request("workspaces", json!({}));
    assert_eq!(data["workspaces"].as_array().unwrap().len(), 1, "{data}");
    let file = std::fs::read_to_string(daemon.app().join("metadata.json")).unwrap();
    assert!(!file.contains(&gone) && file.contains(&stays), "{file}");
    assert_eq!(check(&daemon, "sessions")["status"], "ok");
}

#[test]
fn a_session_whose_workspace_is_unknown_is_described_and_says_so() {
    // Written by another daemon: a daemon with this workspace in memory would restore it.
    let first = Daemon::start();
    first.wire().attach(first.repo("repo").path());
    let file = std::fs::read(first.app().join("metadata.json")).unwrap();
    let mut metadata: Value = serde_json::from_slice(&file).unwrap();
    metadata["sessions"][0]["workspaceId"] = json!("nobody");
    let id = metadata["sessions"][0]["id"].clone();
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    std::fs::write(daemon.app().join("metadata.json"), metadata.to_string()).unwrap();
    daemon.boot();
    let wire = daemon.wire();
    let listed = wire.request("sessions", json!({"all": true}));
    assert_eq!(listed["sessions"][0]["workspacePath"], "unknown", "{listed}");
    let followed = wire.request("follow", json!({"sessionId": id}));
    assert_eq!(
        (&followed["workspacePath"], &followed["isRunning"]),
        (&json!("unknown"), &json!(false))
    );
    let state = wire.request("get_state", json!({"sessionId": id}));
    assert_eq!((&state["sessionId"], &state["isRunning"]), (&id, &json!(false)));
    let refused =
        wire.refused("say", json!({"sessionId": id, "message": "hello", "preferPi": true}));
    assert_eq!(refused, "Workspace for session \"duck-1\" was not found");
    let refused =
        wire.refused("quack.tool", json!({"sessionId": id, "tool": "bash", "arguments": "true"}));
    assert!(!refused.is_empty());
}

#[test]
fn a_stop_lists_what_it_would_cut_short() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("repo");
    let wire = daemon.wire();
    let call = wire.attach(repo.path()).begin("bash", json!("touch started; sleep 100"));
    wait_for("the call", || repo.path().join("started").exists().then_some(()));
    // Without a terminal there is no prompt: the command lists the calls and continues.
    let stopped = daemon.quack(&["stop"]);
    assert_eq!(stopped.code(), Some(0), "{stopped:?}");
    assert!(stopped.stderr().contains("repo: bash, for "), "{stopped:?}");
    drop(call.reply());
    assert_eq!(daemon.wait(), Some(0));
}
