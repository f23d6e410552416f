//! The worker's reports about its workspace and itself: `quack sandbox audit` and `explain`, and
//! the line after a command that changed files which other programs run.

use crate::caches::kill_worker;
use crate::harness::Daemon;
use crate::harness::tier::needs;
use serde_json::{Value, json};
use std::path::Path;

/// Runs `quack sandbox ARGS` for a repository. Returns the exit code and the output.
#[track_caller]
fn sandbox(daemon: &Daemon, repo: &Path, args: &[&str]) -> (Option<i32>, String) {
    let at = repo.to_string_lossy().into_owned();
    let args = [&["sandbox"], args, &["-C", &at]].concat();
    let ran = daemon.quack(&args);
    (ran.code(), ran.stdout())
}

#[track_caller]
fn report(daemon: &Daemon, repo: &Path, args: &[&str]) -> Value {
    let (_, text) = sandbox(daemon, repo, &[args, &["--json"]].concat());
    let said: Value = serde_json::from_str(&text).expect("a document");
    said["report"].clone()
}

#[test]
fn a_repository_that_was_poisoned_in_one_command_is_found_by_key_and_file() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let (code, text) = sandbox(&daemon, repo.path(), &["audit"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("No change was found since the worker began. Checked: the "),
        "{text}"
    );
    assert!(text.contains("\nNot checked: files that you run yourself"), "{text}");
    let poison = "git init -q src/new && git -C src/new config core.fsmonitor ./evil";
    let done = session.bash(poison);
    assert!(
        done.starts_with("\n[Sandbox: src/new/.git/config (core.fsmonitor) kept as "),
        "{done}"
    );
    let (code, text) = sandbox(&daemon, repo.path(), &["audit"]);
    assert_eq!(code, Some(0), "{text}");
    // As if the command had killed its worker before it ended.
    let aside = repo.path().join("src/new/.git/config.set-aside");
    rustix::fs::rename(aside, repo.path().join("src/new/.git/config")).unwrap();
    let (code, text) = sandbox(&daemon, repo.path(), &["audit"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        text,
        "1 thing to look at before this workspace is trusted:\nsrc/new/.git is new\n  \
         src/new/.git/config  core.fsmonitor = ./evil\n"
    );
    let report = report(&daemon, repo.path(), &["audit"]);
    assert_eq!((&report["found"], &report["complete"]), (&json!(1), &json!(true)));
    let expected = json!([{
        "path": "src/new/.git", "kind": "git", "state": "new",
        "commands": [{"file": "src/new/.git/config", "key": "core.fsmonitor", "value": "./evil"}],
    }]);
    assert_eq!(report["repositories"], expected);
}

#[test]
fn four_plain_names_that_git_takes_for_a_repository_are_found() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("mkdir -p src/x/objects src/x/refs && echo 'ref: refs/heads/m' > src/x/HEAD");
    repo.write("src/x/config", "[core]\n\tsshCommand = evil\n");
    let report = report(&daemon, repo.path(), &["audit"]);
    let one = &report["repositories"][0];
    assert_eq!((&one["path"], &one["kind"]), (&json!("src/x"), &json!("bare")));
    assert_eq!(one["commands"][0]["key"], "core.sshCommand");
}

#[test]
fn a_command_that_writes_what_later_programs_obey_is_told_once_at_its_end() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write(".vscode/settings.json", "{}");
    // Without namespaces, a worker cannot create names next to a repository.
    std::fs::remove_dir(repo.path().join(".git")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let params =
        json!({"sessionId": session.id, "tool": "bash", "arguments": "echo x > .envrc; false"});
    let answer = wire.request("quack.tool", params.clone());
    let line = "\n[Sandbox: .envrc was made; programs of yours may run what stands there. quack sandbox \
                audit --session a shows it]\n[Exit code: 1]";
    assert_eq!(answer["text"], line);
    assert_eq!(answer["audit"], json!([".envrc was made"]));
    let answer = wire.request(
        "quack.tool",
        json!({"sessionId": session.id, "tool": "bash", "arguments": "true"}),
    );
    assert_eq!((&answer["text"], &answer["audit"]), (&json!("\n[Exit code: 0]"), &Value::Null));
    // The report of a job comes at its end.
    session.call("bash", json!({"command": "echo y > .vscode/tasks.json", "background": true}));
    let told = session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
    assert!(told.contains("[Sandbox: .vscode/tasks.json was made; "), "{told}");
    let report = report(&daemon, repo.path(), &["audit"]);
    let files = report["files"].as_array().unwrap();
    let paths: Vec<_> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [".envrc", ".vscode/tasks.json"]);
}

#[test]
fn changes_of_a_killed_worker_and_of_other_writable_directories_are_found_by_their_times() {
    let daemon = Daemon::start();
    let (repo, other) = (daemon.repo("a"), daemon.repo("other"));
    for repo in [&repo, &other] {
        std::fs::remove_dir(repo.path().join(".git")).unwrap();
    }
    let root = other.path().to_str().unwrap();
    let (code, text) = sandbox(&daemon, repo.path(), &["set", "--writable", root]);
    assert_eq!(code, Some(0), "{text}");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let changes = |args: &[&str]| {
        let report = report(&daemon, repo.path(), &[&["audit"], args].concat());
        let change = |file: &Value| {
            let text = |key: &str| file[key].as_str().unwrap().to_owned();
            format!("{} {}", text("path"), text("change"))
        };
        report["files"].as_array().unwrap().iter().map(change).collect::<Vec<_>>()
    };

    assert_eq!(changes(&[]), [""; 0]);
    let ran = session.bash(&format!("echo x > .envrc && echo y > {root}/.envrc"));
    assert!(ran.ends_with("[Exit code: 0]"), "{ran}");
    let beside = format!("{root}/.envrc changed");
    assert_eq!(changes(&[]), [".envrc made", &beside]);

    kill_worker(&session);
    session.bash("true");
    for since in [&[][..], &["--since", "2100-01-01T00:00:00Z"]] {
        let changes = changes(since);
        assert!(changes.iter().all(|change| *change == beside), "{changes:?}");
    }
    assert_eq!(changes(&["--since", "1h"]), [".envrc changed", &beside]);
    let (code, text) = sandbox(&daemon, repo.path(), &["audit", "--since", "1h"]);
    assert_eq!(code, Some(1));
    assert!(text.contains(".envrc was changed: it "), "{text}");
    let (code, _) = sandbox(&daemon, repo.path(), &["audit", "--since", "yesterday"]);
    assert_eq!(code, Some(2));
}

#[test]
fn what_only_the_supervisor_asks_is_no_tool_of_a_client() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    for tool in ["quack_audit", "quack_explain"] {
        let unknown = format!("Error: Unknown tool '{tool}'");
        assert_eq!(session.call(tool, json!({})), unknown);
        let params = json!({"sessionId": session.id, "tool": tool});
        assert_eq!(wire.request("quack.tool", params)["text"], unknown);
    }
}

#[test]
fn a_session_is_explained_as_a_whole_and_by_path() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let (code, text) = sandbox(&daemon, repo.path(), &["explain"]);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("workspace-write, network off, "), "{text}");
    assert!(text.contains("\nnetwork: off") && text.contains("--network on"), "{text}");
    let at = |path: &str| repo.path().join(path).to_string_lossy().into_owned();
    for (path, access) in [
        (at("src/new.rs"), "read_write"),
        (at(".git/config"), "read_only"),
        (at(".git/index"), "read_write"),
        (at(".envrc"), "protected"),
        ("/usr/bin/env".to_owned(), "read_only"),
    ] {
        let report = report(&daemon, repo.path(), &["explain", &path]);
        assert_eq!(report["path"]["access"], access, "{path}: {report}");
    }
    let key = daemon.home().join(".ssh/id_ed25519");
    std::fs::create_dir(daemon.home().join(".ssh")).unwrap();
    std::fs::write(&key, "secret").unwrap();
    let report = report(&daemon, repo.path(), &["explain", &key.to_string_lossy()]);
    let access = report["path"]["access"].as_str().unwrap();
    assert!(["not_shown", "not_readable"].contains(&access), "{report}");
}

#[test]
fn a_policy_is_explained_as_it_is_in_force() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    daemon.quack(&["sandbox", "set", "read-only", "-C", &repo.path().to_string_lossy()]).ok();
    let file = repo.path().join("README.md").to_string_lossy().into_owned();
    let report = report(&daemon, repo.path(), &["explain", &file]);
    assert_eq!(
        (&report["profile"], &report["path"]["access"]),
        (&json!("read-only"), &json!("read_only"))
    );
    let wire = daemon.wire();
    let long = json!({"path": repo.path(), "action": "explain", "target": "x".repeat(5000)});
    assert_eq!(wire.refused("quack.sandbox", long), "Path is too long");
}

#[test]
fn a_worker_that_cannot_start_gives_no_report_and_the_verb_fails() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let session = wire.attach(repo.path());
    std::fs::remove_dir_all(repo.path()).unwrap();
    let said = wire.request("quack.sandbox", json!({"sessionId": session.id, "action": "audit"}));
    assert_eq!(said["report"], Value::Null);
    assert!(said["text"].as_str().unwrap().starts_with("Error: "), "{said}");
    let ran = daemon.quack(&["sandbox", "audit", "--session", &session.id]);
    assert_eq!((ran.code(), ran.stdout()), (Some(1), String::new()));
    assert!(!ran.stderr().is_empty());
}

#[test]
fn a_daemon_with_a_configured_root_that_would_open_everything_does_not_start() {
    let world = Daemon::absent();
    std::fs::create_dir(world.app()).unwrap();
    let file = world.app().join("quackd.toml");
    let home = world.home();
    std::fs::write(&file, format!("[sandbox]\nwritable = [{home:?}]\n")).unwrap();
    let ran = world.quack(&["daemon"]);
    assert_ne!(ran.code(), Some(0));
    let expected = format!(
        "{}:2: `sandbox.writable` is refused: writable path {home:?} is the home directory or above it; \
         name a directory beneath it",
        file.display()
    );
    assert!(ran.stderr().contains(&expected), "{}", ran.stderr());
}

#[test]
fn a_workspace_in_shared_memory_is_one_like_others() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let workspace = std::fs::canonicalize(directory.path()).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(&workspace);
    let text = session.bash("pwd; echo made > f; ls -A /dev/shm | wc -l");
    assert_eq!(text, format!("{}\n1\n\n[Exit code: 0]", workspace.display()));
    assert_eq!(std::fs::read_to_string(workspace.join("f")).unwrap(), "made\n");
}

#[test]
fn a_path_that_is_hidden_or_writable_stays_so_when_another_is_added() {
    let daemon = Daemon::start();
    let repo = daemon.repo("lists");
    let data = daemon.repo("data");
    for name in [".env", "b.key"] {
        repo.write(name, "SECRET");
    }
    let at = |name: &str| repo.path().join(name).to_string_lossy().into_owned();
    let set = |args: &[&str]| {
        let (code, shown) = sandbox(&daemon, repo.path(), &[&["set", "--json"], args].concat());
        assert_eq!(code, Some(0), "{shown}");
        let shown: Value = serde_json::from_str(&shown).unwrap();
        (shown["policy"]["hidden"].clone(), shown["policy"]["writableRoots"].clone())
    };
    let (env, key) = (at(".env"), at("b.key"));
    let root = data.path().to_str().unwrap();
    assert_eq!(set(&["--hide", &env]).0, json!([env]));
    assert_eq!(set(&["--hide", &key, "--writable", root]), (json!([env, key]), json!([root])));
    assert_eq!(set(&["--hide", &key]), (json!([env, key]), json!([root])), "nothing twice");
    // A change of anything else keeps them, and a list of the workspace counts for its sessions.
    assert_eq!(set(&["--network", "on"]), (json!([env, key]), json!([root])));
    assert_eq!(set(&["--unhide", &env]).0, json!([key]));
    let (hidden, roots) = set(&["--not-writable", root]);
    assert_eq!((hidden, roots), (json!([key]), json!([])));
    assert_eq!(set(&["--reset", "--hide", &env]).0, json!([env]));
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let text = session.bash("cat .env; echo; cat b.key");
    assert!(text.contains("SECRET") && !text.starts_with("SECRET"), "{text}");
}
