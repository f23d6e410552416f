//! Agents that run inside of sessions: `quack agents`, and the state that the sessions of a workspace keep for them.

use crate::caches::{another, restart};
use crate::harness::tier::needs;
use crate::harness::{Cli, Daemon, Session, Terminal};
use crate::isolated::{isolated, repository};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const LOGIN: &str = "echo secret > ~/.claude/.credentials.json; echo $CLAUDE_CONFIG_DIR";
const READ: &str = "cat ~/.claude/.credentials.json 2>&1 || ls -A ~/.claude";

/// Creates a program in a directory of `PATH`, which commands see too. Returns its path.
fn install(daemon: &Daemon, name: &str) -> PathBuf {
    let program = daemon.home().parent().unwrap().join("gates").join(name);
    fs::write(&program, "#!/bin/sh\necho agent\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// A daemon on a machine with Claude Code.
fn started() -> Daemon {
    let mut daemon = Daemon::absent();
    install(&daemon, "claude");
    daemon.boot();
    daemon
}

/// The facts of an agent, as `quack agents` prints them for a workspace.
#[track_caller]
fn facts(daemon: &Daemon, agent: &str, workspace: &Path) -> Value {
    let at = workspace.to_str().unwrap();
    daemon.quack(&["agents", agent, "-C", at, "--json"]).json()["agents"][0].clone()
}

/// Sets the times of everything in a directory to `days` ago.
fn age(directory: &Path, days: u64) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            age(&entry.path(), days);
        } else {
            set_age(&entry.path(), days);
        }
    }
    set_age(directory, days);
}

fn set_age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    fs::File::open(path).unwrap().set_modified(then).unwrap();
}

#[track_caller]
fn log_in(session: &Session<'_>, daemon: &Daemon) {
    let directory = daemon.home().join(".claude");
    assert_eq!(session.bash(LOGIN), format!("{}\n\n[Exit code: 0]", directory.display()));
}

#[test]
fn a_login_survives_workers_sessions_and_daemons_and_stays_in_its_workspace() {
    needs!(Namespaces);
    let mut daemon = started();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let first = wire.attach(a.path());
    if !first.shows_namespaces() {
        return;
    }
    log_in(&first, &daemon);
    let secret = "secret\n\n[Exit code: 0]";

    // At the same time, and for a session that is deleted later.
    let second = another(&first);
    assert_eq!(second.bash(READ), secret);
    wire.request("quack.session_delete", json!({"sessionId": first.id}));
    assert_eq!(second.bash(READ), secret);

    let other = wire.attach(b.path()).bash("ls -A ~/.claude; ls -d ~/.codex 2>/dev/null; true");
    assert_eq!(other, "\n[Exit code: 0]", "another workspace, and an agent that is not installed");

    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        restart(&mut daemon, signal);
        let wire = daemon.wire();
        assert_eq!(wire.attach(a.path()).bash(READ), secret, "{signal}");
    }
    assert!(!daemon.home().join(".claude").exists(), "the user's own directory");
    let mode = fs::metadata(daemon.app().join("agents")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_session_that_may_not_write_does_not_see_the_state() {
    needs!(Namespaces);
    let daemon = started();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    log_in(&session, &daemon);
    let set = json!({"sessionId": session.id, "action": "set", "profile": "read-only"});
    wire.request("quack.sandbox", set);
    let seen = session.bash("ls -d ~/.claude 2>/dev/null || echo nothing");
    assert_eq!(seen, "nothing\n\n[Exit code: 0]");
}

#[test]
fn an_isolated_session_has_state_of_its_own() {
    needs!(Namespaces);
    let daemon = started();
    let repo = repository(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    log_in(&session, &daemon);
    isolated(&daemon, &repo, "one");
    let bash =
        |command: &str| daemon.quack(&["tool", "bash", "--raw", command, "--session", "one"]).ok();
    assert_eq!(bash("ls -A ~/.claude; echo hook > ~/.claude/settings.json"), "");
    assert_eq!(session.bash("ls -A ~/.claude"), ".credentials.json\n\n[Exit code: 0]");
    assert_eq!(bash("cat ~/.claude/settings.json"), "hook\n");
}

#[test]
fn quack_agents_shows_the_state_and_follows_no_link_in_it() {
    needs!(Namespaces);
    let daemon = started();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    let before = facts(&daemon, "claude", repo.path());
    assert_eq!((&before["hasLogin"], &before["stateBytes"]), (&json!(false), &Value::Null));
    assert!(before["path"].is_string(), "{before}");

    log_in(&session, &daemon);
    let after = facts(&daemon, "claude", repo.path());
    assert_eq!(after["hasLogin"], json!(true));
    assert!(after["stateBytes"].as_u64().unwrap() < 100_000, "{after}");

    let link = "cd ~/.claude && rm .credentials.json && ln -s /etc/passwd .credentials.json && ln -s / root";
    assert_eq!(session.bash(link), "\n[Exit code: 0]");
    let linked = facts(&daemon, "claude", repo.path());
    assert_eq!(linked["hasLogin"], json!(false), "{linked}");
    assert!(linked["stateBytes"].as_u64().unwrap_or(0) < 100_000, "{linked}");
}

#[test]
fn forgetting_deletes_the_state_also_while_a_session_uses_it() {
    needs!(Namespaces);
    let daemon = started();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (here, there) = (wire.attach(a.path()), wire.attach(b.path()));
    if !here.shows_namespaces() {
        return;
    }
    log_in(&here, &daemon);
    log_in(&there, &daemon);

    let unasked = daemon.quack(&["agents", "forget", "claude"]);
    assert_eq!(unasked.code(), Some(2), "{unasked:?}");
    let at = a.path().to_str().unwrap();
    let words = ["agents", "forget", "claude", "--workspace", "-C", at, "--yes"];
    let told = daemon.quack(&words).ok();
    assert!(told.contains("Deleted the state of claude in 1 workspace ("), "{told}");
    assert!(told.contains("what they write from now on is kept"), "{told}");
    assert_eq!(here.bash("ls -A ~/.claude"), "\n[Exit code: 0]");
    assert_eq!(there.bash(READ), "secret\n\n[Exit code: 0]");

    // The directory is still the kept one.
    log_in(&here, &daemon);
    assert_eq!(another(&here).bash(READ), "secret\n\n[Exit code: 0]");
    let told = daemon.quack(&["agents", "forget", "claude", "--yes", "--json"]).json();
    assert_eq!((&told["places"], &told["inUse"]), (&json!(2), &json!(2)), "{told}");
    assert_eq!(there.bash("ls -A ~/.claude"), "\n[Exit code: 0]");
}

#[test]
fn gc_deletes_state_that_was_not_used_for_ninety_days() {
    needs!(Namespaces);
    let mut daemon = started();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (old, young) = (wire.attach(a.path()), wire.attach(b.path()));
    if !old.shows_namespaces() {
        return;
    }
    log_in(&old, &daemon);
    log_in(&young, &daemon);
    // No worker uses the state afterwards.
    restart(&mut daemon, Signal::SIGTERM);
    age(&daemon.app().join("agents"), 91);
    let state = daemon.app().join("agents");
    let is_of = |path: &Path| facts(&daemon, "claude", path)["hasLogin"] == json!(true);
    assert!(is_of(a.path()) && is_of(b.path()));

    let wire = daemon.wire();
    assert_eq!(wire.attach(b.path()).bash("touch ~/.claude/used"), "\n[Exit code: 0]");
    let dry = daemon.quack(&["gc", "--dry-run", "--older-than", "1d", "--json"]).json();
    let kinds = dry["kinds"].as_array().unwrap();
    let agents = kinds.iter().find(|kind| kind["kind"] == "agents").unwrap();
    assert_eq!(agents["items"], json!(1), "{dry}");
    daemon.quack(&["gc"]).ok();
    assert!(!is_of(a.path()) && is_of(b.path()), "{}", state.display());
}

#[test]
fn agents_are_listed_without_a_daemon_and_a_missing_one_has_a_remedy() {
    let daemon = Daemon::absent();
    install(&daemon, "codex");
    // Without the agents of the machine that runs the test.
    let quack = |words: &[&str]| {
        let mut command = daemon.command(words);
        let path = daemon.home().parent().unwrap().join("gates");
        command.env("PATH", path).env("OPENAI_API_KEY", "k-1");
        Cli::run(command)
    };
    let listed = quack(&["agents"]).ok();
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap();
    let codex = row("codex ");
    assert!(codex.contains("/gates/codex") && codex.contains("OPENAI_API_KEY"), "{listed}");
    assert!(row("goose ").ends_with("unconfirmed") && !listed.contains("k-1"), "{listed}");
    assert!(listed.contains("Searched in PATH: /"), "{listed}");

    let shown = quack(&["agents", "codex"]).ok();
    assert!(shown.contains("codex: its own sandbox is off, quackd confines it"), "{shown}");
    assert!(shown.contains("sandbox_mode=\"danger-full-access\""), "{shown}");
    let missing = quack(&["agents", "amp"]).ok();
    assert!(missing.contains("amp not found in PATH\n"), "{missing}");
    assert!(missing.contains("\nSearched in PATH: /"), "{missing}");

    let unknown = quack(&["agents", "nobody"]);
    assert_eq!(unknown.code(), Some(2), "{unknown:?}");
    assert!(unknown.stderr().contains("nobody is not a known agent; known are claude"));
    let nothing = quack(&["agents", "forget", "codex", "--yes"]).ok();
    assert_eq!(nothing, "codex has no state in sessions.\n");
    assert!(!daemon.app().join("agents").exists());
}

#[test]
fn a_shared_login_reaches_other_workspaces_and_an_isolated_session_only_takes_it() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    install(&daemon, "claude");
    daemon.configure("[agents.claude]\nlogin = \"shared\"\n");
    daemon.boot();
    let (a, project) = (daemon.repo("a"), repository(&daemon));
    let wire = daemon.wire();
    let first = wire.attach(a.path());
    if !first.shows_namespaces() {
        return;
    }
    log_in(&first, &daemon);
    // The worker ends.
    restart(&mut daemon, Signal::SIGTERM);
    let wire = daemon.wire();
    let secret = "secret\n\n[Exit code: 0]";
    let here = wire.attach(a.path());
    assert_eq!(here.bash(READ), secret);
    let there = wire.attach(project.path());
    assert_eq!(there.bash(READ), secret);
    let facts = facts(&daemon, "claude", project.path());
    assert_eq!((&facts["login"], &facts["hasLogin"]), (&json!("shared"), &json!(true)), "{facts}");

    isolated(&daemon, &project, "one");
    let bash =
        |command: &str| daemon.quack(&["tool", "bash", "--raw", command, "--session", "one"]).ok();
    assert_eq!(bash("cat ~/.claude/.credentials.json"), "secret\n");
    bash("echo stolen > ~/.claude/.credentials.json");
    // A link of a session is neither followed nor given to others.
    let link = "cd ~/.claude && rm .credentials.json && ln -s /etc/passwd .credentials.json";
    assert_eq!(there.bash(link), "\n[Exit code: 0]");
    restart(&mut daemon, Signal::SIGTERM);
    let wire = daemon.wire();
    for path in [a.path(), project.path()] {
        assert_eq!(wire.attach(path).bash(READ), secret, "{}", path.display());
    }

    daemon.quack(&["agents", "forget", "claude", "--yes"]).ok();
    assert!(!daemon.app().join("agents/logins/claude").exists());
}

#[test]
fn an_agent_of_the_user_keeps_its_state_and_gets_copies_of_files() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    install(&daemon, "mine");
    daemon.configure("[agents.mine]\nstate = [\".mine\"]\nread = [\".mine/rules/a.md\"]\n");
    let rules = daemon.home().join(".mine/rules");
    fs::create_dir_all(&rules).unwrap();
    fs::write(rules.join("a.md"), "be brief\n").unwrap();
    fs::write(rules.join("b.md"), "hidden\n").unwrap();
    daemon.boot();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    let seen = session.bash("ls ~/.mine/rules; cat ~/.mine/rules/a.md; echo x > ~/.mine/own");
    assert_eq!(seen, "a.md\nbe brief\n\n[Exit code: 0]");
    // The copy is the session's; the user's file is not.
    assert_eq!(session.bash("rm -r ~/.mine/rules"), "\n[Exit code: 0]");
    assert_eq!(fs::read_to_string(rules.join("a.md")).unwrap(), "be brief\n");
    restart(&mut daemon, Signal::SIGTERM);
    let wire = daemon.wire();
    let seen = wire.attach(repo.path()).bash("cat ~/.mine/rules/a.md ~/.mine/own");
    assert_eq!(seen, "be brief\nx\n\n[Exit code: 0]");

    let facts = facts(&daemon, "mine", repo.path());
    assert_eq!(facts["configured"], json!(["state", "read"]), "{facts}");
    assert_eq!((&facts["state"], &facts["tested"]), (&json!([".mine"]), &Value::Null), "{facts}");
    daemon.quack(&["agents", "forget", "mine", "--yes"]).ok();
}

#[test]
fn a_login_of_the_user_is_imported_once() {
    needs!(Namespaces);
    let daemon = started();
    let repo = daemon.repo("a");
    let at = repo.path().to_str().unwrap();
    let run = |more: &[&str]| {
        daemon.quack(&[&["run", "-d", "-C", at, "--import-login"][..], more].concat())
    };
    let refused = run(&["--", "vim"]);
    assert_eq!(refused.code(), Some(2), "{refused:?}");
    let missing = run(&["--", "claude"]);
    let told = missing.stderr();
    assert!(told.contains("no login of Claude Code in ~/.claude/.credentials.json"), "{missing:?}");

    let users = daemon.home().join(".claude/.credentials.json");
    fs::create_dir_all(users.parent().unwrap()).unwrap();
    fs::write(&users, "mine\n").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    run(&["--", "claude"]).ok();
    assert_eq!(session.bash(READ), "mine\n\n[Exit code: 0]");
    log_in(&session, &daemon);
    run(&["--", "claude"]).ok();
    assert_eq!(session.bash(READ), "secret\n\n[Exit code: 0]", "it is newer");
    assert_eq!(fs::read_to_string(users).unwrap(), "mine\n");
}

#[test]
fn the_first_run_asks_about_a_key_and_always_puts_it_into_the_configuration() {
    let mut daemon = Daemon::absent();
    let program = install(&daemon, "claude");
    fs::write(program, "#!/bin/sh\necho \"key [$ANTHROPIC_API_KEY]\"\n").unwrap();
    daemon.boot();
    let repo = daemon.repo("a");
    let window = || {
        let mut command = daemon.command(&["run", "--", "claude"]);
        command.current_dir(repo.path()).env("ANTHROPIC_API_KEY", "k-1");
        Terminal::sized(command, Some((90, 25)))
    };
    for (answer, shown) in [("n", "key []"), ("y", "key [k-1]"), ("always", "key [k-1]")] {
        let window = window();
        window.see("Pass ANTHROPIC_API_KEY into the sandbox? [y/N/always]");
        window.type_line(answer);
        let seen = window.see(shown);
        assert!(!seen.contains("was changed after the daemon"), "{seen}");
        assert_eq!(window.end().1, Some(0), "{answer}");
    }
    let shown = daemon.quack(&["config", "show"]).ok();
    assert!(shown.contains("agents.claude.env = [\"ANTHROPIC_API_KEY\"]"), "{shown}");

    let window = window();
    let before = window.see("key [k-1]");
    assert!(!before.contains("Pass ANTHROPIC"), "{before}");
    assert_eq!(window.end().1, Some(0));
}
