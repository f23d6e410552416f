//! The life cycle of the daemon: start, second start, stop, kill, and the files left afterwards.

use crate::harness::tier;
use crate::harness::{Daemon, is_alive, one_takes_less_than, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn the_state_directory_and_the_socket_are_private() {
    let daemon = Daemon::start();
    let mode = |path: &std::path::Path| {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(&daemon.app()), 0o700);
    assert_eq!(mode(&daemon.socket()), 0o600);
    for file in ["quackd.lock", "duck-daemon.log", "duck-daemon.pid"] {
        // The last file is written after the daemon accepts clients.
        wait_for(file, || daemon.app().join(file).exists().then_some(()));
        assert_eq!(mode(&daemon.app().join(file)) & 0o077, 0, "{file}");
    }
    wait_for("its process id", || {
        let pid = std::fs::read_to_string(daemon.app().join("duck-daemon.pid")).unwrap();
        (pid == daemon.pid().to_string()).then_some(())
    });
}

#[test]
fn a_directory_that_was_open_to_others_is_closed() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    std::fs::set_permissions(daemon.app(), PermissionsExt::from_mode(0o755)).unwrap();
    daemon.boot();
    let mode = std::fs::metadata(daemon.app()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_second_daemon_says_so_and_disturbs_nothing() {
    let daemon = Daemon::start();
    let second = daemon.quack(&["daemon"]);
    assert_eq!(second.code(), Some(0));
    assert!(format!("{}{}", second.stdout(), second.stderr()).contains("already running"));
    assert_eq!(daemon.wire().request("ping", json!({}))["pid"], daemon.pid());
}

/// The ways in which the programs of the Rubber Duck project start their daemon.
#[test]
fn started_as_the_rubber_duck_daemon_it_is_that_daemon() {
    let mut daemon = Daemon::absent();
    let link = daemon.home().join("duck-daemon");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_quack"), &link).unwrap();
    let link = link.to_str().unwrap().to_owned();
    daemon.boot_with(&link, &["--verbose"]);
    let pid = wait_for("its process id", || {
        let pid = std::fs::read_to_string(daemon.app().join("duck-daemon.pid")).ok()?;
        (pid == daemon.pid().to_string()).then_some(pid)
    });
    let again = format!("Daemon already running (pid {pid})\n");
    for (args, mode, said) in [
        (&["--daemon", "--verbose"][..], None, again.as_str()),
        (&["--daemon"], None, ""),
        (&["--verbose"], Some("1"), again.as_str()),
        (&[], Some("1"), ""),
    ] {
        let mut command = daemon.command(args);
        command.stdin(Stdio::null()).envs(mode.map(|mode| ("RUBBER_DUCK_DAEMON_MODE", mode)));
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(0), said), "{args:?} {mode:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    assert_eq!(daemon.wire().request("ping", json!({}))["pid"], daemon.pid());
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    daemon.configure("nonsense\n");
    let failed = daemon.quack(&["--daemon"]);
    assert_eq!(failed.code(), Some(1), "{failed:?}");
    assert!(failed.stderr().starts_with("Daemon failed to start: "), "{failed:?}");
}

#[test]
fn of_fifty_daemons_started_at_once_exactly_one_serves() {
    let daemon = Daemon::absent();
    // Files of a crashed daemon exist at all of these paths.
    std::fs::create_dir(daemon.app()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(daemon.socket()).unwrap());
    std::fs::write(daemon.app().join("duck-daemon.pid"), "1").unwrap();
    let mut children: Vec<_> = (0..50)
        .map(|_| {
            let mut command = daemon.command(&["daemon"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    wait_for("49 of them to end", || {
        let ended = children.iter_mut().filter_map(|child| child.try_wait().unwrap()).count();
        (ended == 49).then_some(())
    });
    let mut serving = None;
    for child in &mut children {
        match child.try_wait().unwrap() {
            Some(status) => assert_eq!(status.code(), Some(0)),
            None => serving = Some(child),
        }
    }
    let serving = serving.expect("one daemon");
    let pid = wait_for("it to answer", || {
        std::os::unix::net::UnixStream::connect(daemon.socket()).ok()?;
        Some(daemon.wire().request("ping", json!({}))["pid"].clone())
    });
    assert_eq!(pid, serving.id());
    daemon.wire().request("quack.shutdown", Value::Null);
    wait_for("it to end", || serving.try_wait().unwrap());
}

#[test]
fn what_is_in_the_way_of_the_socket_is_not_removed() {
    let daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    std::fs::write(daemon.socket(), "precious").unwrap();
    let run = daemon.quack(&["daemon"]);
    assert_eq!(run.code(), Some(3), "{run:?}");
    assert!(run.stderr().contains("it is not a socket"), "{run:?}");
    assert_eq!(std::fs::read_to_string(daemon.socket()).unwrap(), "precious");

    std::fs::remove_file(daemon.socket()).unwrap();
    let _stranger = std::os::unix::net::UnixListener::bind(daemon.socket()).unwrap();
    let run = daemon.quack(&["daemon"]);
    assert_eq!(run.code(), Some(3), "{run:?}");
    assert!(run.stderr().contains("Daemon socket already in use: "), "{run:?}");
}

#[test]
fn a_path_that_is_too_long_for_a_socket_falls_back_to_the_temporary_directory() {
    let daemon = Daemon::absent();
    let app = daemon.home().join("a-directory-with-a-long-name".repeat(4));
    let mut child = daemon
        .command(&["daemon"])
        .env("RUBBER_DUCK_APP_SUPPORT", &app)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let socket = {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(app.to_str().unwrap().as_bytes());
        let hex: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        std::path::PathBuf::from(format!("/tmp/duck-{hex}.sock"))
    };
    wait_for("the fallback to answer", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let found =
        daemon.command(&["sessions", "--json"]).env("RUBBER_DUCK_APP_SUPPORT", &app).output();
    assert!(found.unwrap().status.success());
    crate::harness::Wire::connect(&socket).request("quack.shutdown", Value::Null);
    wait_for("the daemon to end", || child.try_wait().unwrap());
    assert!(!socket.exists());
}

#[test]
fn after_kill_9_nothing_is_left_and_the_next_start_lists_the_same_sessions() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let mut slow = Vec::new();
    let mut sessions = Vec::new();
    for name in ["a", "b", "c"] {
        let session = wire.attach(daemon.repo(name).path());
        slow.push(
            session.begin("bash", json!("setsid sleep 61 & (trap '' TERM; sleep 62) & sleep 60")),
        );
        sessions.push(session);
    }
    for session in &sessions {
        wait_for("the calls to run", || (session.worker()["state"] == "busy").then_some(()));
    }
    let before = wire.request("sessions", json!({"all": true}));
    let below = wait_for("the commands' processes", || {
        let below = daemon.descendants();
        // Per session: worker, shell and three sleeps, and on Linux monitor and process 1. At least some of them must run.
        let least = if tier::is_macos() { 12 } else { 18 };
        (least <= below.len()).then_some(below)
    });

    daemon.signal(Signal::SIGKILL);
    wait_for("every process of the daemon to be gone", || {
        (!below.iter().any(is_alive)).then_some(())
    });
    assert_eq!(daemon.wait(), None);
    assert_eq!(wire.drain(), "", "no answer came");

    assert!(daemon.socket().exists(), "the debris of a killed daemon");
    daemon.boot();
    let wire = daemon.wire();
    let mut after = wire.request("sessions", json!({"all": true}));
    let mut expected = before;
    for rows in [&mut after, &mut expected] {
        for row in rows["sessions"].as_array_mut().unwrap() {
            row["isRunning"] = Value::Null;
            // `lastActiveAt` becomes durable with the next change.
            row["lastActiveAt"] = Value::Null;
            // The status is not durable either.
            for status in ["status", "statusSince", "statusWhy"] {
                row[status] = Value::Null;
            }
        }
    }
    assert_eq!(after, expected);
    let session = wire.attach(daemon.repo("b").path());
    assert_eq!(session.id, sessions[1].id);
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    drop(slow);
}

#[test]
fn terminate_right_after_the_start_is_a_clean_stop() {
    for _ in 0..10 {
        let mut daemon = Daemon::start();
        daemon.wire().request("ping", json!({}));
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(), Some(0));
        assert!(!daemon.socket().exists());
        assert!(!daemon.app().join("duck-daemon.pid").exists());
    }
}

#[test]
fn terminate_lets_calls_finish_and_refuses_new_ones() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let running = session.begin("bash", json!(daemon.gated("gate", "echo finished")));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    daemon.signal(Signal::SIGTERM);
    wait_for("new work to be refused", || {
        (session.bash("echo new") == "Error: Daemon is shutting down").then_some(())
    });
    assert_eq!(wire.refused("attach", json!({"path": session.path})), "Daemon is shutting down");
    // A client's second request does not shorten the shutdown.
    wire.request("quack.shutdown", Value::Null);
    wire.request("ping", json!({}));
    daemon.open_gate("gate");
    assert_eq!(running.text(), "finished\n\n[Exit code: 0]");
    assert_eq!(daemon.wait(), Some(0));
    assert!(!daemon.socket().exists());
}

#[test]
fn terminate_ends_calls_that_outlast_the_grace() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let running = session.begin("bash", json!("trap '' TERM; sleep 60"));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let below = daemon.descendants();
    let asked = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(
        running.text(),
        "Error: Worker died during bash (daemon is shutting down). It may have run; it was not retried."
    );
    assert_eq!(daemon.wait(), Some(0));
    let took = asked.elapsed();
    assert!(Duration::from_secs(4) < took, "took {took:?}");
    assert!(!below.iter().any(is_alive));
}

#[test]
fn a_second_terminate_does_not_wait() {
    // The first one alone waits for 5 s.
    one_takes_less_than(Duration::from_secs(5), || {
        let mut daemon = Daemon::start();
        let wire = daemon.wire();
        let session = wire.attach(daemon.repo("a").path());
        let running = session.begin("bash", json!("trap '' TERM; sleep 60"));
        wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
        let below = daemon.descendants();
        let begun = Instant::now();
        daemon.signal(Signal::SIGTERM);
        wait_for("the first signal to be taken", || {
            daemon.log().contains("shutting down").then_some(())
        });
        daemon.signal(Signal::SIGTERM);
        assert_eq!(
            running.text(),
            "Error: Worker died during bash (daemon is shutting down). It may have run; it was not retried."
        );
        assert_eq!(daemon.wait(), Some(0));
        let took = begun.elapsed();
        wait_for("everything below to be gone", || (!below.iter().any(is_alive)).then_some(()));
        took
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nothing durable")]
fn a_daemon_whose_state_directory_is_gone_ends_and_the_next_one_is_alone() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    wire.attach(daemon.repo("a").path()).bash("true");
    let below = daemon.descendants();
    let away = daemon.app().with_extension("away");
    std::fs::rename(daemon.app(), &away).unwrap();
    // The daemon checks every 5 s, and needs two failed checks.
    assert_eq!(daemon.wait(), Some(0));
    assert!(!below.iter().any(is_alive));
    std::fs::remove_dir_all(daemon.app()).ok();
    std::fs::rename(&away, daemon.app()).unwrap();
    daemon.boot();
    let sessions = daemon.wire().request("sessions", json!({}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
}

#[test]
fn damaged_metadata_is_set_aside_and_the_generation_before_serves() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    wire.attach(daemon.repo("b").path());
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let metadata = daemon.app().join("metadata.json");
    let good = std::fs::read_to_string(&metadata).unwrap();
    let parsed: Value = serde_json::from_str(&good).unwrap();
    assert_eq!(parsed["version"], 1);
    std::fs::write(&metadata, &good[..good.len() / 2]).unwrap();
    daemon.boot();
    let wire = daemon.wire();
    let sessions = wire.request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["id"], first.id.as_str());
    let aside = std::fs::read_to_string(daemon.app().join("metadata.json.corrupt-1")).unwrap();
    assert_eq!(aside, good[..good.len() / 2]);
    daemon.wait_for_log("metadata.json was recovered");
}

#[test]
fn metadata_of_a_newer_version_is_left_alone() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    let newer = r#"{"version":999,"workspaces":[],"sessions":[],"future":true}"#;
    std::fs::write(daemon.app().join("metadata.json"), newer).unwrap();
    daemon.boot();
    let wire = daemon.wire();
    let text = wire.refused("attach", json!({"path": daemon.repo("a").path()}));
    assert!(text.starts_with("Sessions cannot be changed: ") && text.contains("newer"), "{text}");
    wire.request("ping", json!({}));
    assert_eq!(wire.request("sessions", json!({"all": true})), json!({"sessions": []}));
    let left = std::fs::read_to_string(daemon.app().join("metadata.json")).unwrap();
    assert_eq!(left, newer);
}

#[test]
fn a_change_that_cannot_be_saved_is_refused_and_taken_back() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let kept = wire.attach(daemon.repo("a").path());
    // No file may grow beyond a few bytes: like a full disk, but without a signal that kills the
    // daemon.
    let pid = rustix::process::Pid::from_raw(daemon.pid());
    let limit = |bytes| {
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    };
    limit(Some(16));
    let text = wire.refused("attach", json!({"path": daemon.repo("b").path()}));
    assert!(text.contains("Disk is full"), "{text}");
    let sessions = wire.request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "memory and disk agree");
    assert_eq!(kept.bash("echo fine"), "fine\n\n[Exit code: 0]");
    limit(None);
    wire.attach(daemon.repo("b").path());
}

#[test]
fn clients_survive_when_descriptors_run_out() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let pid = rustix::process::Pid::from_raw(daemon.pid());
    let used = wire.request("quack.ps", json!({}))["supervisor"]["openFiles"].as_u64().unwrap();
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = |files: u64| {
        let limit = rustix::process::Rlimit { current: Some(files), maximum };
        rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).unwrap();
    };
    limit(used + 2);
    let crowd: Vec<_> = (0..100)
        .filter_map(|_| std::os::unix::net::UnixStream::connect(daemon.socket()).ok())
        .collect();
    assert_eq!(session.bash("echo still"), "still\n\n[Exit code: 0]");
    limit(1024);
    drop(crowd);
    wait_for("new clients to be served", || {
        let wire = daemon.wire();
        wire.write(b"{\"id\":\"p\",\"method\":\"ping\"}\n");
        wire.line()
    });
}

#[test]
fn an_attach_is_answered_after_it_is_on_disk_also_for_the_second_who_asks() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    // Two clients attach to the same new directory at once, and the daemon is killed at the first
    // answer.
    let (one, two) = (daemon.wire(), daemon.wire());
    let params = json!({"path": repo.path()});
    let (first, second) = (one.begin("attach", &params), two.begin("attach", &params));
    let id = second.reply()["data"]["session"]["id"].clone();
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    drop(first);
    daemon.boot();
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["id"], id);
}

#[test]
fn children_that_came_with_the_daemon_are_not_ended() {
    let mut daemon = Daemon::absent();
    let program = env!("CARGO_BIN_EXE_quack");
    let script = format!("sleep 300 & echo $! > \"$HOME/pid\"; exec '{program}' daemon");
    daemon.boot_with("/bin/sh", &["-c", &script]);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let text = std::fs::read_to_string(daemon.home().join("pid")).unwrap();
    let stranger = crate::harness::Process::find(text.trim().parse().unwrap()).unwrap();
    let worker = nix::unistd::Pid::from_raw(session.pid("pid"));
    nix::sys::signal::kill(worker, Signal::SIGKILL).unwrap();
    wait_for("the death to be noticed", || (session.worker()["restarts"] == 1).then_some(()));
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    assert!(is_alive(&stranger));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(stranger.pid), Signal::SIGKILL).unwrap();
}

#[test]
fn a_socket_file_that_is_deleted_is_made_again() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    std::fs::remove_file(daemon.socket()).unwrap();
    // The file exists a moment before the daemon listens.
    let connect = || std::os::unix::net::UnixStream::connect(daemon.socket()).ok();
    drop(wait_for("the socket to be back", connect));
    let mode = std::fs::metadata(daemon.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["id"], session.id, "the same daemon");
    // Connected clients are not interrupted.
    assert_eq!(session.bash("echo still"), "still\n\n[Exit code: 0]");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    assert!(!daemon.socket().exists(), "the new one is unlinked");
}
