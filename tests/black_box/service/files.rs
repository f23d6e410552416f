//! Files that `quack service install` creates and `quack uninstall` removes, without a reachable
//! service manager.

use crate::harness::{Daemon, Process, is_alive, wait_for, write_file};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Every entry in a directory, recursively.
fn everything(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(everything(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

#[test]
fn installing_is_repeatable_atomic_and_never_over_another_ones_file() {
    let world = Daemon::absent();
    let units = world.home().join(".config/systemd/user");
    let shown = world.quack(&["service", "install", "--dry-run"]).ok();
    assert!(shown.contains("Would write") && shown.contains("Type=notify"), "{shown}");
    assert!(!units.exists());

    // This world has no bus.
    let refused = world.quack(&["service", "install"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    for part in ["systemd cannot be reached", "XDG_RUNTIME_DIR", "--no-start"] {
        assert!(refused.stderr().contains(part), "{refused:?}");
    }
    assert!(!units.exists());

    let written = world.quack(&["service", "install", "--no-start", "--json"]).json();
    assert_eq!(written["written"].as_array().map(Vec::len), Some(2), "{written}");
    let unit = std::fs::read_to_string(units.join("quackd.service")).unwrap();
    let app = world.app();
    assert!(unit.contains(&format!("\"RUBBER_DUCK_APP_SUPPORT={}\"", app.display())), "{unit}");
    assert!(!unit.contains("secret-of-the-daemon"), "{unit}");
    let again = world.quack(&["service", "install", "--no-start", "--json"]).json();
    assert_eq!(again["written"], serde_json::json!([]), "{again}");
    // A file of another version is replaced, without leftovers next to it.
    let older = unit.replace("WatchdogSec=30", "WatchdogSec=9");
    std::fs::write(units.join("quackd.service"), older).unwrap();
    let again = world.quack(&["service", "install", "--no-start", "--json"]).json();
    assert_eq!(again["written"].as_array().map(Vec::len), Some(1), "{again}");
    assert_eq!(std::fs::read_to_string(units.join("quackd.service")).unwrap(), unit);
    assert_eq!(everything(&units).len(), 2);

    std::fs::write(units.join("quackd.service"), "[Service]\nExecStart=/mine\n").unwrap();
    let refused = world.quack(&["service", "install", "--no-start"]);
    assert_eq!(refused.code(), Some(1), "{refused:?}");
    assert!(refused.stderr().contains("--force"), "{refused:?}");
    let _socket_unit = world.quack(&["service", "uninstall"]).ok();
    assert_eq!(everything(&units), [units.join("quackd.service")].into());
    let forced = world.quack(&["service", "install", "--no-start", "--force", "--json"]).json();
    assert_eq!(forced["written"].as_array().map(Vec::len), Some(2), "{forced}");
}

#[test]
fn the_status_says_that_nothing_is_installed_and_how_that_is_changed() {
    let world = Daemon::absent();
    let status = world.quack(&["service", "status"]);
    assert_eq!(status.code(), Some(1), "{status:?}");
    for part in ["not there", "no daemon runs", "`quack service install`"] {
        assert!(status.stdout().contains(part), "{status:?}");
    }
    let status = world.quack(&["service", "status", "--json"]).json();
    assert_eq!((&status["installed"], &status["daemon"]), (&Value::Bool(false), &Value::Null));
}

#[test]
fn the_units_pass_the_check_of_systemd() {
    let world = Daemon::absent();
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        crate::harness::skipped("systemd-analyze is not installed");
        return;
    }
    let units = world.home().join(".config/systemd/user");
    // The path of a state directory may contain any character.
    let strange = world.home().join(r#"a [b]*? 100% "c" $HOME \x 'd' ;#{e}"#);
    for dir in [world.app(), strange] {
        let mut install = world.command(&["service", "install", "--no-start"]);
        let installed = install.env("RUBBER_DUCK_APP_SUPPORT", &dir).output().unwrap();
        assert!(installed.status.success(), "{installed:?}");
        let mut verify = world.program_for_tests(analyze.to_str().unwrap());
        verify.args(["--user", "--man=no", "verify"]);
        verify.args([units.join("quackd.socket"), units.join("quackd.service")]);
        verify.env("XDG_RUNTIME_DIR", world.home());
        let output = verify.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains("quackd"), "{dir:?}: {said}");
    }
}

#[test]
fn a_property_list_is_printed_for_the_other_system() {
    let world = Daemon::absent();
    let printed = world.quack(&["service", "print", "--manager", "launchd", "--json"]).json();
    assert_eq!(printed["manager"], "launchd");
    let path = printed["files"][0]["path"].as_str().unwrap();
    assert!(path.ends_with("Library/LaunchAgents/dev.quackd.daemon.plist"), "{path}");
    let text = printed["files"][0]["text"].as_str().unwrap();
    for part in ["<key>KeepAlive</key>", "<key>SuccessfulExit</key>", "<string>launchd</string>"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn uninstalling_with_purge_stops_the_daemon_and_leaves_nothing() {
    let world = Daemon::absent();
    let repo = world.repo("repo");
    let home = world.home();
    let before = everything(&home);
    let _ran = world.quack(&["tool", "bash", "echo hi", "-C", repo.path().to_str().unwrap()]).ok();
    let _written = world.quack(&["service", "install", "--no-start"]).ok();
    let pages = home.join(".local/share/man/man1");
    let _pages = world.quack(&["man", pages.to_str().unwrap()]).ok();
    for (shell, path) in [
        ("bash", ".local/share/bash-completion/completions/quack"),
        ("fish", ".config/fish/completions/quack.fish"),
        ("zsh", ".local/share/zsh/site-functions/_quack"),
    ] {
        let script = world.quack(&["completions", shell]).ok();
        write_file(home.join(path), script);
    }
    let ours = world.app().join("notes.txt");
    std::fs::write(&ours, "mine").unwrap();
    let pid = world.wire().request("ping", Value::Null)["pid"].as_i64().unwrap();
    let process = Process::find(i32::try_from(pid).unwrap()).unwrap();

    let nobody = world.quack(&["uninstall", "--purge"]);
    assert_eq!(nobody.code(), Some(2), "{nobody:?}");
    let shown = world.quack(&["uninstall", "--purge", "--dry-run", "--json"]).json();
    assert!(shown["removed"].as_array().unwrap().len() > 40, "{shown}");
    assert!(world.app().join("metadata.json").exists());

    let done = world.quack(&["uninstall", "--purge", "--yes"]);
    assert_eq!(done.code(), Some(0), "{done:?}");
    assert!(done.stdout().contains("notes.txt (not known to be ours)"), "{done:?}");
    assert!(!is_alive(&process), "the daemon runs");
    assert_eq!(everything(&world.app()), [ours.clone()].into());
    std::fs::remove_file(ours).unwrap();
    let _again = world.quack(&["uninstall", "--purge", "--yes"]).ok();
    assert!(!world.app().exists() || everything(&world.app()).is_empty());
    let left: Vec<_> = everything(&home).difference(&before).cloned().collect();
    let files: Vec<_> = left.iter().filter(|path| !path.is_dir()).collect();
    assert_eq!(files, Vec::<&PathBuf>::new());
    wait_for("only the repository's files", || {
        let found = everything(repo.path());
        found.iter().all(|path| !path.to_string_lossy().contains("quackd")).then_some(())
    });
}

#[test]
fn without_purge_the_state_stays_and_the_next_daemon_has_its_sessions() {
    let world = Daemon::absent();
    let repo = world.repo("repo");
    let _made = world.quack(&["new", repo.path().to_str().unwrap(), "--name", "kept"]).ok();
    let done = world.quack(&["uninstall", "--yes"]).ok();
    assert!(done.contains("Stays: ") && done.contains("--purge"), "{done}");
    let sessions = world.quack(&["sessions", "--json"]).ok();
    assert!(sessions.contains("kept"), "{sessions}");
}

#[test]
fn uninstalling_names_the_daemon_and_the_work_that_it_ends() {
    let world = Daemon::absent();
    let repo = world.repo("repo");
    let at = repo.path().to_str().unwrap();
    let usual = world.home().join(".config/quackd/quackd.toml");
    world.quack(&["config", "set", "worker.idle_minutes", "10"]).ok();
    let before = world.quack(&["uninstall", "--dry-run"]).ok();
    assert!(!before.contains("the daemon"), "{before}");
    assert!(world.quack(&["uninstall", "--dry-run", "--json"]).json()["daemon"].is_null());

    world.quack(&["tool", "bash", "--detach", "sleep 1000", "-C", at]).ok();
    let pid = world.wire().request("ping", Value::Null)["pid"].clone();
    for purge in [&[][..], &["--purge"]] {
        let dry = world.quack(&[&["uninstall", "--dry-run"], purge].concat()).ok();
        for part in
            [&format!("Would stop the daemon (process {pid})"), "repo: background job job-1"]
        {
            assert!(dry.contains(part), "{part}: {dry}");
        }
    }
    let dry = world.quack(&["uninstall", "--dry-run", "--json"]).json();
    assert_eq!(
        (&dry["daemon"]["pid"], &dry["daemon"]["waitsFor"][0]["kind"]),
        (&pid, &"job".into())
    );

    let done = world.quack(&["uninstall", "--purge", "--yes"]).ok();
    assert!(done.contains(&format!("Stopped the daemon (process {pid})")), "{done}");
    // Another state directory shares the configuration, so it stays and is named.
    assert!(done.contains(&format!("Stays: {}", usual.display())), "{done}");
}
