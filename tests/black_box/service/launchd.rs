//! `quack service` with the manager of macOS, against a stand-in that reads the property list with Python's plistlib and
//! answers as launchctl does (`tests/fixtures/launchd.py`). They do not show what only a Mac can show.

use crate::harness::{Cli, Daemon, Process, is_alive, wait_for, write_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Stdio};

const LAUNCHD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/launchd.py");

/// A home with a graphical session of macOS. The stand-in ends with it, and kills what it started.
struct Mac {
    world: Daemon,
    launchd: Child,
}

impl Drop for Mac {
    fn drop(&mut self) {
        drop(self.launchd.stdin.take());
        drop(self.launchd.wait());
    }
}

impl Mac {
    #[track_caller]
    fn new() -> Self {
        let world = Daemon::absent();
        std::fs::create_dir(world.app()).unwrap();
        let (place, bin) = (world.home().join("launchd"), world.home().join("shims"));
        for directory in [&place, &bin] {
            std::fs::create_dir(directory).unwrap();
        }
        let (socket, log) = (place.join("socket"), place.join("log"));
        let shim = format!("#!/bin/sh\nexec {LAUNCHD} ctl '{}' \"$@\"\n", socket.display());
        write_program(&bin.join("launchctl"), shim);
        let mut command = world.program_for_tests(LAUNCHD);
        command.arg("serve").arg(&socket).arg(&log);
        let launchd = command.stdin(Stdio::piped()).spawn().expect("start python3");
        let mac = Self { world, launchd };
        wait_for("launchd to listen", || socket.exists().then_some(()));
        mac
    }

    #[track_caller]
    fn quack(&self, args: &[&str]) -> Cli {
        let mut command = self.world.command(args);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.world.home().join("shims").display()));
        Cli::run(command)
    }

    #[track_caller]
    fn service(&self, args: &[&str]) -> Cli {
        self.quack(&[&["service", "--manager", "launchd"], args].concat())
    }

    /// Installs the service. Returns the report.
    #[track_caller]
    fn install(&self) -> Value {
        self.service(&["install", "--yes", "--json"]).json()
    }

    fn place(&self, name: &str) -> PathBuf {
        self.world.home().join("launchd").join(name)
    }

    /// The verbs of launchctl so far, each with its exit code.
    fn verbs(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.place("log")).unwrap_or_default();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["words"][0] != "print")
            .map(|line| format!("{} {}", line["words"][0].as_str().unwrap(), line["code"]))
            .collect()
    }

    #[track_caller]
    fn pid(&self) -> i32 {
        let pid = self.world.wire().request("ping", Value::Null)["pid"].as_i64().unwrap();
        i32::try_from(pid).unwrap()
    }
}

#[test]
fn the_agent_is_installed_killed_stopped_changed_and_removed() {
    let mac = Mac::new();
    let installed = mac.install();
    assert_eq!(installed["manager"], "launchd", "{installed}");
    let pid = mac.pid();
    assert_eq!(installed["pid"], pid);
    assert_eq!(mac.verbs(), ["enable 0", "bootstrap 0", "kickstart 37"]);
    let status = mac.service(&["status"]).ok();
    assert!(status.contains(&format!("agent: running, process {pid}, starts 1")), "{status}");

    // Again: nothing to do.
    assert_eq!(mac.install()["pid"], pid);
    assert_eq!(mac.verbs().len(), 3);

    // After a kill launchd starts the next daemon, with the same sessions.
    let repo = mac.world.repo("repo");
    let attached = mac.world.wire().request("attach", json!({"path": repo.path()}));
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let next = wait_for("the next daemon", || {
        let status = mac.service(&["status", "--json"]).json();
        status["daemon"]["pid"].as_i64().filter(|next| *next != i64::from(pid))
    });
    let sessions = mac.world.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["id"], attached["session"]["id"]);

    // A stop by the user holds, and the agent stays loaded.
    let _stopped = mac.quack(&["stop"]).ok();
    let status = wait_for("the agent to rest", || {
        let status = mac.service(&["status"]);
        status.stdout().contains("agent: not running").then_some(status)
    });
    assert_eq!(status.code(), Some(1), "{status:?}");
    assert!(status.stdout().contains("starts 2, last exit code 0"), "{status:?}");
    // A loaded agent is unloaded first, and launchd refuses it for some time after that.
    let again = mac.install();
    assert!(again["pid"].as_i64().is_some_and(|pid| pid != next), "{again}");
    let verbs = mac.verbs();
    assert!(verbs.contains(&"bootout 0".to_owned()), "{verbs:?}");
    assert!(verbs.contains(&"bootstrap 5".to_owned()), "{verbs:?}");

    let restarted = mac.service(&["restart", "--json"]).json();
    assert_eq!(restarted["after"]["pid"], mac.pid(), "{restarted}");

    let process = Process::find(mac.pid()).unwrap();
    let list = mac.world.home().join("Library/LaunchAgents/dev.quackd.daemon.plist");
    assert!(list.exists());
    let removed = mac.service(&["uninstall", "--json"]).json();
    assert_eq!(removed["removed"], json!([list]));
    assert!(!is_alive(&process) && !list.exists());
    let status = mac.service(&["status"]).stdout();
    assert!(status.contains("agent: not loaded"), "{status}");
    let nothing = mac.service(&["uninstall"]).ok();
    assert!(nothing.contains("There was no service"), "{nothing}");
}

#[test]
fn a_changed_list_is_loaded_and_a_daemon_of_the_user_makes_room() {
    let mac = Mac::new();
    let _ran =
        mac.quack(&["tool", "bash", "true", "-C", mac.world.repo("repo").path().to_str().unwrap()]);
    let own = mac.pid();
    let first = mac.install();
    assert_ne!(first["pid"], own, "{first}");
    let list = mac.world.home().join("Library/LaunchAgents/dev.quackd.daemon.plist");
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, text.replace("<integer>10</integer>", "<integer>11</integer>")).unwrap();
    let second = mac.install();
    assert_eq!(second["written"], json!([list]));
    assert_ne!(second["pid"], first["pid"]);
    assert_eq!(std::fs::read_to_string(&list).unwrap(), text);
    let verbs = mac.verbs();
    assert_eq!(verbs.iter().filter(|verb| *verb == "bootout 0").count(), 1, "{verbs:?}");
    // The agent was unloaded by hand: a restart loads it.
    let target = format!("gui/{}/dev.quackd.daemon", rustix::process::getuid().as_raw());
    let mut bootout = mac.world.program_for_tests(LAUNCHD);
    bootout.arg("ctl").arg(mac.place("socket")).args(["bootout", &target]);
    assert!(bootout.status().unwrap().success());
    wait_for("the agent to be gone", || {
        mac.service(&["status"]).stdout().contains("agent: not loaded").then_some(())
    });
    let restarted = mac.service(&["restart"]).ok();
    assert_eq!(restarted, "Started the service.\n");
    wait_for("the daemon", || {
        let status = mac.service(&["status", "--json"]).json();
        (status["daemon"]["managedBy"] == "launchd").then_some(())
    });
}

#[test]
fn what_launchd_refuses_is_an_error_with_its_words() {
    let mac = Mac::new();
    std::fs::write(mac.place("no-domain"), "").unwrap();
    let refused = mac.service(&["install"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    for part in ["launchd cannot be reached", "125", "graphical login session", "--no-start"] {
        assert!(refused.stderr().contains(part), "{refused:?}");
    }
    assert!(!mac.world.home().join("Library").exists());
    std::fs::remove_file(mac.place("no-domain")).unwrap();

    std::fs::write(mac.place("no-bootstrap"), "").unwrap();
    let refused = mac.service(&["install"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    for part in ["launchctl bootstrap", "5: Input/output error", "quack daemon"] {
        assert!(refused.stderr().contains(part), "{refused:?}");
    }
    std::fs::remove_file(mac.place("no-bootstrap")).unwrap();
    assert_eq!(mac.install()["pid"], mac.pid());

    // A configuration that only the user can mend: the daemon exits with 0, so that launchd does not try again.
    mac.world.configure("nonsense = 1\n");
    kill(Pid::from_raw(mac.pid()), Signal::SIGKILL).unwrap();
    wait_for("the agent to give up", || {
        let status = mac.service(&["status"]).stdout();
        status.contains("agent: not running, starts 2, last exit code 0").then_some(())
    });
    let logs = mac.service(&["logs"]).ok();
    assert!(logs.contains("nonsense"), "{logs}");
}
