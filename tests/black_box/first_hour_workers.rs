//! The first hour with workers: replacement of a session's worker, policy changes while jobs run,
//! and the commands' view of the system.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Repo, wait_for, write_file, write_program};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Replaces a directory by a new directory with one file.
fn make_again(path: &Path, name: &str, content: &str) {
    fs::remove_dir_all(path).unwrap();
    fs::create_dir(path).unwrap();
    fs::write(path.join(name), content).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "as git and editors do it")]
fn replace(path: &Path, content: &str) {
    let other = path.with_extension("lock");
    fs::write(&other, content).unwrap();
    fs::rename(other, path).unwrap();
}

fn sessions(daemon: &Daemon) -> Vec<Value> {
    daemon.wire().request("sessions", json!({"all": true}))["sessions"].as_array().unwrap().clone()
}

#[test]
fn ten_demos_in_a_row_leave_the_session_in_service_and_nothing_behind() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let job = session.call("bash", json!({"command": "sleep 600", "background": true}));
    assert!(job.contains("job-1"), "{job}");
    let before = (session.worker()["pid"].clone(), sessions(&daemon));
    for n in 1..=10 {
        let run = daemon.quack(&["demo", repo.path().to_str().unwrap()]);
        assert_eq!(run.code(), Some(0), "demo {n}: {run:?}");
        assert!(run.stdout().contains("Worker died during bash (signal 9)"), "demo {n}: {run:?}");
    }
    assert_eq!(session.worker()["pid"], before.0);
    assert_eq!(session.worker()["restarts"], 0);
    let names = |all: &[Value]| all.iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&sessions(&daemon)), names(&before.1));
    assert!(session.call("jobs", json!({})).contains("job-1"), "the job still runs");
}

#[test]
fn a_call_runs_in_a_workspace_that_was_deleted_and_made_again() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let calls = [
        ("bash", json!({"command": "cat new; echo once >> log"}), "1\n"),
        ("read_file", json!({"path": "new"}), "2\n"),
        ("write_file", json!({"path": "made", "content": "x"}), "made"),
        ("grep_search", json!({"pattern": "4"}), "new:1:4"),
    ];
    for (n, (tool, arguments, expected)) in calls.into_iter().enumerate() {
        session.bash("true");
        make_again(repo.path(), "new", &format!("{}\n", n + 1));
        let text = session.call(tool, arguments);
        assert!(text.contains(expected) && !text.starts_with("Error"), "{tool}: {text}");
        if tool == "bash" {
            assert_eq!(repo.read("log"), "once\n");
        }
    }
    assert_eq!(session.worker()["restarts"], 0);
    fs::remove_dir_all(repo.path()).unwrap();
    let gone = session.bash("echo x");
    assert_eq!(gone, format!("Error: Workspace not accessible: '{}'", repo.path().display()));
}

#[test]
fn calls_side_by_side_run_once_each_after_a_protected_name_was_replaced() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let hidden = hide_a_file(&repo);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    wire.request("quack.sandbox", json!({"action": "set", "hidden": [hidden]}));
    if !session.has_namespaces() {
        return;
    }
    for round in 1..=3 {
        replace(&hidden, &format!("# {round}\n"));
        let many: Vec<_> = (0..8)
            .map(|n| session.begin("bash", json!({"command": format!("echo {round}.{n} >> log")})))
            .collect();
        for pending in many {
            assert_eq!(pending.text(), "\n[Exit code: 0]");
        }
    }
    let mut lines: Vec<_> = repo.read("log").lines().map(str::to_owned).collect();
    lines.sort();
    let expected: Vec<_> =
        (1..=3).flat_map(|round| (0..8).map(move |n| format!("{round}.{n}"))).collect();
    assert_eq!(lines, expected);
    assert_eq!(session.worker()["restarts"], 0);
}

/// Creates a file to hide. Its mount goes when a program outside replaces it.
fn hide_a_file(repo: &Repo) -> std::path::PathBuf {
    repo.write("secret", "x\n");
    repo.path().join("secret")
}

#[test]
fn a_background_job_that_keeps_a_replaced_name_bare_is_named_and_can_be_ended() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let hidden = hide_a_file(&repo);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    wire.request("quack.sandbox", json!({"action": "set", "hidden": [hidden]}));
    if !session.has_namespaces() {
        return;
    }
    session.call("bash", json!({"command": "sleep 600", "background": true}));
    replace(&hidden, "# new\n");
    for _ in 0..2 {
        let refused = session.bash("echo x >> log");
        assert!(refused.contains("not run, try again when no background job runs"), "{refused}");
    }
    assert!(session.call("jobs", json!({})).contains("job-1"));
    session.call("job_kill", json!({"id": "job-1"}));
    assert_eq!(session.bash("echo x >> log"), "\n[Exit code: 0]");
    assert_eq!(repo.read("log"), "x\n");
}

/// Runs `quack sandbox ARGS` for a repository.
#[track_caller]
fn sandbox(daemon: &Daemon, repo: &Repo, args: &[&str]) -> String {
    let at = repo.path().to_string_lossy().into_owned();
    daemon.quack(&[&["sandbox"], args, &["-C", &at]].concat()).ok()
}

#[test]
fn a_policy_that_changes_while_a_job_runs_leaves_jobs_and_reading_in_service() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    sandbox(&daemon, &repo, &["set", "--network", "on"]);
    let started =
        session.call("bash", json!({"command": "echo hi; sleep 600", "background": true}));
    assert!(started.contains("job-1"), "{started}");
    let set = sandbox(&daemon, &repo, &["set", "--network", "off"]);
    assert!(set.contains("the new permissions are in force after 1 background job"), "{set}");
    assert!(set.contains("job-1") && set.contains("sleep 600"), "{set}");
    assert!(set.contains("quack sandbox set --end-jobs"), "{set}");
    assert_eq!(session.call("read_file", json!({"path": "README.md"})), "# A repository\n");
    assert!(session.call("grep_search", json!({"pattern": "needle"})).contains("src/main.rs:2:"));
    assert!(session.call("jobs", json!({})).contains("job-1"));
    assert!(session.call("job_output", json!({"id": "job-1"})).contains("hi"));
    for (tool, arguments) in [
        ("bash", json!({"command": "echo x > wrote"})),
        ("write_file", json!({"path": "wrote", "content": "x"})),
        ("replace", json!({"pattern": "needle", "replacement": "x"})),
    ] {
        let refused = session.call(tool, arguments);
        assert!(refused.contains("policy was changed, and job-1 still runs"), "{tool}: {refused}");
    }
    assert!(!repo.path().join("wrote").exists());
    session.call("job_kill", json!({"id": "job-1"}));
    assert_eq!(session.bash("echo x > wrote"), "\n[Exit code: 0]");
    let shown = sandbox(&daemon, &repo, &["show", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["outdated"], &shown["inForce"]["network"]), (&json!(false), &json!(false)));
}

#[test]
fn a_policy_that_hides_a_file_is_kept_by_reading_tools_while_a_job_runs() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("env", "TOPSECRET");
    repo.write("out/data", "other");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    session.call("bash", json!({"command": "sleep 600", "background": true}));
    sandbox(&daemon, &repo, &["set", "--hide", repo.path().join("env").to_str().unwrap()]);
    for (tool, arguments) in [
        ("read_file", json!({"path": "env"})),
        ("grep_search", json!({"pattern": "TOP"})),
        ("ripgrep_search", json!({"pattern": "TOP"})),
        ("bash", json!({"command": "cat env"})),
    ] {
        let refused = session.call(tool, arguments);
        assert!(refused.contains("policy was changed, and job-1 still runs"), "{tool}: {refused}");
        assert!(!refused.contains("SECRET"));
    }
    assert!(session.call("jobs", json!({})).contains("job-1"));
    let ended = sandbox(&daemon, &repo, &["set", "--end-jobs"]);
    assert!(!ended.contains("waits for"), "{ended}");
    assert!(!session.bash("cat env").contains("TOPSECRET"));
    assert!(!session.call("jobs", json!({})).contains("job-1"));
    assert_eq!(session.worker()["restarts"], 0);
}

#[test]
fn a_worker_of_full_access_reads_nothing_after_the_session_was_confined() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    sandbox(&daemon, &repo, &["set", "full-access"]);
    session.call("bash", json!({"command": "sleep 600", "background": true}));
    sandbox(&daemon, &repo, &["set", "read-only"]);
    for (tool, arguments) in
        [("read_file", json!({"path": "README.md"})), ("bash", json!({"command": "id"}))]
    {
        let refused = session.call(tool, arguments);
        assert!(refused.contains("policy was changed, and job-1 still runs"), "{tool}: {refused}");
    }
    sandbox(&daemon, &repo, &["set", "read-only", "--force"]);
    assert!(session.bash("echo x > wrote").contains("Read-only file system"));
}

#[test]
fn full_access_shows_the_network_that_it_has() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    for change in [&["set", "full-access"][..], &["set", "--network", "off"]] {
        let set = sandbox(&daemon, &repo, change);
        assert!(set.contains("network        on  full-access"), "{set}");
        session.bash("true");
        let shown = sandbox(&daemon, &repo, &["show"]);
        assert!(shown.contains("full-access, network on") && !shown.contains("off"), "{shown}");
        let json: Value =
            serde_json::from_str(&sandbox(&daemon, &repo, &["show", "--json"])).unwrap();
        assert_eq!(json["policy"]["network"], true);
        assert_eq!(json["inForce"]["network"], true);
        let explained = sandbox(&daemon, &repo, &["explain"]);
        assert!(explained.contains("full-access, network on"), "{explained}");
        let state = wire.request("get_state", json!({"sessionId": session.id}));
        assert_eq!(state["worker"]["network"], true, "{state}");
        assert!(daemon.quack(&["ps"]).ok().contains("full-access  network on"));
    }
    sandbox(&daemon, &repo, &["set", "workspace-write"]);
    session.bash("true");
    let shown = sandbox(&daemon, &repo, &["show"]);
    assert!(shown.contains("workspace-write, network off") || !session.has_namespaces(), "{shown}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one world for all toolchains")]
fn toolchains_outside_the_home_are_seen_like_those_in_it() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    let home = daemon.home();
    let world = home.parent().unwrap();
    let tools = world.join("tools");
    let program = |path: &str| {
        let path = tools.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, "#!/bin/sh\necho works\n");
    };
    for path in
        ["cargo/bin/tool", "rustup/toolchains/x/bin/rustc", "go/bin/tool", "jdk-21/bin/java"]
    {
        program(path);
    }
    for (path, content) in [
        ("cargo/credentials.toml", "TOPSECRET"),
        ("cargo/registry/index", "cached"),
        ("rustup/credentials", "TOPSECRET"),
        ("npm/_cacache/index", "cached"),
        ("npm/_logs/log", "TOPSECRET"),
        ("go/pkg/mod/m", "cached"),
        ("go/src/other/key", "TOPSECRET"),
    ] {
        write_file(tools.join(path), content);
    }
    let repo = daemon.repo("a");
    repo.write("jdk/key", "x");
    std::os::unix::fs::symlink(repo.path().join("jdk"), tools.join("link")).unwrap();
    let at = |name: &str| tools.join(name).display().to_string();
    let variables = [
        ("CARGO_HOME", at("cargo")),
        ("RUSTUP_HOME", at("rustup")),
        ("GOPATH", format!("{}:/", at("go"))),
        ("npm_config_cache", at("npm")),
        ("JAVA_HOME", at("jdk-21")),
        ("DENO_INSTALL", home.display().to_string()),
        ("VOLTA_HOME", at("link")),
        ("PYENV_ROOT", "/".to_owned()),
        ("RBENV_ROOT", "relative".to_owned()),
    ];
    let mut args: Vec<_> =
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    args.extend([env!("CARGO_BIN_EXE_quack").to_owned(), "daemon".to_owned()]);
    daemon.boot_with("/usr/bin/env", &args.iter().map(String::as_str).collect::<Vec<_>>());
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let said = session.bash(
        "$CARGO_HOME/bin/tool; $RUSTUP_HOME/toolchains/x/bin/rustc; ${GOPATH%%:*}/bin/tool; \
         $JAVA_HOME/bin/java",
    );
    assert_eq!(said, "works\nworks\nworks\nworks\n\n[Exit code: 0]");
    // Like cargo: a lock at the top, and more locks in its cache.
    let said = session.bash(
        "echo > $CARGO_HOME/.package-cache && echo new > $CARGO_HOME/registry/new && \
         cat $CARGO_HOME/registry/index ${GOPATH%%:*}/pkg/mod/m $npm_config_cache/_cacache/index && \
         echo > $npm_config_cache/_cacache/new && echo > ${GOPATH%%:*}/pkg/mod/new && echo done",
    );
    assert_eq!(said, "cachedcachedcacheddone\n\n[Exit code: 0]");
    for made in ["cargo/.package-cache", "cargo/registry/new", "npm/_cacache/new"] {
        assert!(!tools.join(made).exists(), "{made}");
    }
    for path in ["cargo/bin/tool", "rustup/x", "jdk-21/x"] {
        let refused = session.bash(&format!("echo x >> {}", at(path)));
        assert!(refused.contains("Read-only file system"), "{refused}");
    }
    let secrets =
        session.bash(&format!("grep -rs TOPSECRET {} {}", tools.display(), home.display()));
    assert_eq!(secrets, "\n[Exit code: 1]");
    let link = session.bash("ls -A $VOLTA_HOME/ 2>&1; echo $VOLTA_HOME");
    assert!(link.contains("No such file") && link.contains("tools/link"), "{link}");
}

#[test]
fn a_write_next_to_the_workspace_fails_and_caches_of_the_home_can_be_written() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("code/a");
    let beside = repo.path().parent().unwrap().to_path_buf();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    for command in ["echo x > ../n", "mkdir ../wt", "mkdir ../../wt", "echo x > ../../n"] {
        let refused = session.bash(command);
        assert!(refused.contains("Read-only file system"), "{command}: {refused}");
        assert!(refused.contains("[Sandbox: "), "{command}: {refused}");
        assert!(refused.contains("quack sandbox set --writable"), "{command}: {refused}");
    }
    assert!(!beside.join("n").exists() && !beside.join("wt").exists());
    let worked = session.bash(
        "git init -q src/r && cd src/r && git -c user.name=n -c user.email=m commit -q --allow-empty -m one && \
         git worktree add ../../../wt 2>&1",
    );
    assert!(worked.contains("Read-only file system"), "{worked}");
    let private = session.bash(
        "echo x > ~/n && mkdir -p ~/.cache/tool/deep ~/new && echo x > ~/.cache/tool/deep/n && \
         echo x > /tmp/n && mktemp > /dev/null && echo x > /var/tmp/n && echo done",
    );
    assert!(private.starts_with("done\n\n[Sandbox: "), "{private}");
    assert!(private.contains("~/n") && private.contains("~/new"), "{private}");
    assert!(private.contains(" will be lost: ") && !private.contains(".cache"), "{private}");
    let explained = sandbox(&daemon, &repo, &["explain", beside.join("n").to_str().unwrap()]);
    assert!(
        explained.contains("not shown") || explained.contains("nothing of the machine"),
        "{explained}"
    );
    wire.request(
        "quack.sandbox",
        json!({"action": "set", "sessionId": session.id, "writableRoots": [beside]}),
    );
    assert_eq!(session.bash("echo x > ../n"), "\n[Exit code: 0]");
    assert!(beside.join("n").exists());
}

#[test]
fn a_workspace_in_the_home_closes_its_way_and_not_the_directories_of_programs() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    for (name, is_closed) in
        [("home/code/a", true), ("home/.config/app", false), ("home/go/src/a", false)]
    {
        let repo = daemon.repo(name);
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        if !session.has_namespaces() {
            return;
        }
        let said = session.bash("echo x > ../n; echo x > ~/n && echo home");
        assert_eq!(said.contains("Read-only file system"), is_closed, "{name}: {said}");
        assert!(said.contains("home\n"), "{name}: {said}");
    }
}

#[test]
fn links_on_the_way_to_the_home_and_the_state_directory_are_followed() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    let world = daemon.home().parent().unwrap().to_owned();
    let (home, disk) = (daemon.home(), world.join("disk"));
    fs::create_dir_all(disk.join("homes/me/bin")).unwrap();
    fs::create_dir(disk.join("state")).unwrap();
    fs::remove_dir(&home).unwrap();
    std::os::unix::fs::symlink(disk.join("homes/me"), &home).unwrap();
    std::os::unix::fs::symlink("disk/state", daemon.app()).unwrap();
    let tool = disk.join("homes/me/bin/of-mine");
    write_program(&tool, "#!/bin/sh\necho mine\n");
    daemon.boot();
    let repo = daemon.repo("linked");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let real = disk.canonicalize().unwrap().join("homes/me");
    assert_eq!(
        session.bash("echo ~; cd ~ && pwd -P").lines().take(2).collect::<Vec<_>>(),
        [real.to_str().unwrap(), real.to_str().unwrap(),]
    );
    // The other path of the home leads there too, and both are private.
    let (given, file) = (home.display(), home.join("kept"));
    let text = session.bash(&format!("echo x > {given}/kept && cat ~/kept"));
    assert_eq!(text.lines().next(), Some("x"), "{text}");
    assert!(!file.exists());
    // Long outputs are in the run directory, and the record finds them there.
    let long = session.bash("seq 1 60000");
    assert!(long.contains("full output"), "{}", &long[long.len() - 300..]);
    let call: Value = wait_for("the call in the journal", || {
        let calls = daemon.quack(&["log", "--session", &session.id, "--json"]).ok();
        let last = calls.lines().last().filter(|line| line.contains("seq 1 60000"))?;
        Some(serde_json::from_str(last).unwrap())
    });
    let shown = daemon.quack(&["log", "show", call["id"].as_str().unwrap()]).ok();
    assert!(shown.contains("\n30000\n"), "the whole output is shown");
}

#[test]
fn a_workspace_that_was_moved_aside_is_not_written_any_more() {
    let daemon = Daemon::start();
    let repo = daemon.repo("swapped");
    repo.write("a", "old");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.call("read_file", json!("a")), "old");
    let aside = repo.path().with_extension("aside");
    #[expect(clippy::disallowed_methods, reason = "as a person does it")]
    fs::rename(repo.path(), &aside).unwrap();
    fs::create_dir(repo.path()).unwrap();
    repo.write("a", "new");
    // The daemon looks at the path once in a second.
    wait_for("the new directory", || {
        (session.call("read_file", json!("a")) == "new").then_some(())
    });
    session.call("write_file", json!({"path": "b", "content": "x"}));
    assert!(repo.path().join("b").exists() && !aside.join("b").exists());

    // Without another directory, nothing is read from the one that was moved.
    #[expect(clippy::disallowed_methods, reason = "as a person does it")]
    fs::rename(repo.path(), repo.path().with_extension("second")).unwrap();
    wait_for("the missing directory", || {
        session.call("read_file", json!("a")).starts_with("Error: ").then_some(())
    });
    fs::create_dir(repo.path()).unwrap();
}
