//! Tier M, the confinement of macOS, on Linux: a program of the tests stands for `sandbox-exec`, and enforces the meaning
//! of the profile that quackd gives it. docs/security.md lists the limits of these tests.

use crate::harness::stand_in::{REFUSAL, VARIABLE, sandbox_exec};
use crate::harness::{Daemon, Repo, Session, wait_for, write_program};
use crate::kill_matrix::marked;
use crate::network_hosts::Server;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Text that an escape prints.
const ESCAPED: &str = "ESCAPED";

/// A daemon whose workers are in tier M, with `configuration` below `[sandbox]`.
#[track_caller]
fn daemon(program: &Path, configuration: &str) -> (Daemon, Repo) {
    let mut daemon = Daemon::absent();
    let repo = daemon.repo("a");
    for script in [
        "git init -q -b main . && git add -A && git -c user.name=a -c user.email=a@b commit -q -m one",
        "mkdir -p .git/hooks \"$HOME/.ssh\" && echo .env >> .git/info/exclude && echo PRIVATE > .env && echo PRIVATE > \"$HOME/.ssh/id_ed25519\" \
         && echo PRIVATE > \"$HOME/notes\" && printf '[user]\\nname = a\\nemail = a@b\\n' > \"$HOME/.gitconfig\" \
         && mkdir -p \"$HOME/.config/git\" && echo x > \"$HOME/.config/git/ignore\" && echo x > \"$HOME/.config/git/attributes\"",
    ] {
        let mut shell = daemon.program_for_tests("/bin/sh");
        assert!(shell.args(["-ec", script]).current_dir(repo.path()).status().unwrap().success());
    }
    let hidden = repo.path().join(".env");
    let text = format!("[sandbox]\nhidden = [\"{}\"]\n{configuration}\n", hidden.display());
    daemon.configure(text);
    boot(&mut daemon, program);
    (daemon, repo)
}

/// Starts the daemon of tier M.
#[track_caller]
fn boot(daemon: &mut Daemon, program: &Path) {
    let variable = format!("{VARIABLE}={}", program.display());
    daemon.boot_in(&["QUACKD_SANDBOX_TIER=M", &variable]);
}

/// Tier of the session's worker.
#[track_caller]
fn tier(session: &Session<'_>) -> Value {
    session.bash("true");
    session.worker()["tier"].clone()
}

#[test]
fn ordinary_work_succeeds() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(tier(&session), "M");
    let read = session.call("read_file", json!({"path": "src/main.rs"}));
    assert!(read.contains("needle"), "{read}");
    let found = session.call("grep_search", json!({"query": "needle"}));
    assert!(found.contains("src/main.rs"), "{found}");
    assert_eq!(session.bash("echo x > new && cat new && rm new"), "x\n\n[Exit code: 0]");
    let commit = "echo y >> README.md && git status --short && git add -A \
                  && git commit -q -m two && git log --oneline | wc -l";
    assert_eq!(session.bash(commit), " M README.md\n2\n\n[Exit code: 0]");
    assert_eq!(
        session.bash("git gc -q 2> gc; git fsck && wc -l < .git/packed-refs && rm gc"),
        "2\n\n[Exit code: 0]"
    );
    assert_eq!(session.bash("echo t > \"$TMPDIR/t\" && cat \"$TMPDIR/t\""), "t\n\n[Exit code: 0]");
    assert_eq!(session.bash("sleep 60 & kill $! && wait $!; echo $?"), "143\n\n[Exit code: 0]");
}

#[test]
fn a_file_is_edited_and_a_job_runs_and_is_ended() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.call("write_file", json!({"path": "b.txt", "content": "one\n"}));
    assert_eq!(repo.read("b.txt"), "one\n");
    let run = daemon.quack(&[
        "tool",
        "bash",
        "--detach",
        "echo began > mark; sleep 600",
        "-C",
        &text(&repo),
    ]);
    run.ok();
    wait_for("the job", || (repo.read("mark") == "began\n").then_some(()));
    daemon.quack(&["jobs", "kill", "job-1", "-C", &text(&repo)]).ok();
}

fn text(repo: &Repo) -> String {
    repo.path().display().to_string()
}

/// An attempt to do what the profile forbids.
struct Escape {
    name: &'static str,
    /// Prints [`ESCAPED`] if it succeeds. `{HOME}`, `{STATE}`, `{PORT}` and `{PID}` are replaced.
    command: &'static str,
    /// Commands of `sed` that change the profile so that the attempt succeeds.
    mutation: &'static str,
}

const ESCAPES: [Escape; 11] = [
    Escape {
        name: "a file of the home",
        command: "cat '{HOME}/notes' && echo ESC''APED",
        mutation: "s|^(deny default)|&\\n(allow file-read* (subpath \"/tmp\"))|",
    },
    Escape {
        name: "a key of ssh",
        command: "cat '{HOME}/.ssh/id_ed25519' && echo ESC''APED",
        mutation: "s|^(deny default)|&\\n(allow file-read* (subpath \"/tmp\"))|;/\"SECRET_/d",
    },
    Escape {
        name: "a file of the daemon",
        command: "cat '{STATE}/quackd.toml' && echo ESC''APED",
        mutation: "s|^(deny default)|&\\n(allow file-read* (subpath \"/tmp\"))|;/\"STATE_/d",
    },
    Escape {
        name: "a new file in the home",
        command: "echo x > '{HOME}/new' && echo ESC''APED",
        mutation: "s|^(deny default)|&\\n(allow file-read* file-write* (subpath \"/tmp\"))|;/\"SECRET_/d",
    },
    Escape {
        name: "the mode of a file of the home",
        command: "chmod 600 '{HOME}/notes' && echo ESC''APED",
        mutation: "s|^(deny default)|&\\n(allow file-read* file-write* (subpath \"/tmp\"))|;/\"SECRET_/d",
    },
    Escape {
        name: "a setting of git",
        command: "echo '#' >> .git/config && echo x > .git/hooks/post-checkout && echo ESC''APED",
        mutation: "/\"GIT_/d",
    },
    Escape {
        name: "the name of a repository",
        command: "mv .git other && mv other .git && echo ESC''APED",
        mutation: "/\"PIN_/d",
    },
    Escape {
        name: "a link in the place of the directory for temporary files",
        command: "mv \"$TMPDIR\" \"$TMPDIR.old\" && mv \"$TMPDIR.old\" \"$TMPDIR\" && echo ESC''APED",
        mutation: "/\"PIN_/d",
    },
    Escape {
        name: "a hidden file",
        command: "grep PRIVATE .env && echo ESC''APED",
        mutation: "/\"HIDDEN_/d",
    },
    Escape {
        name: "a server",
        command: "exec 3<>/dev/tcp/127.0.0.1/{PORT} && echo hello >&3 && head -1 <&3 && echo ESC''APED",
        mutation: "$ a (allow network*) (allow system-socket)",
    },
    Escape {
        name: "another process",
        command: "kill -CONT {PID} && echo ESC''APED",
        mutation: "s/^(allow signal .*/(allow signal)/",
    },
];

impl Escape {
    fn is_possible(&self, daemon: &Daemon, session: &Session<'_>, server: &Server) -> bool {
        let command = self.command.replace("{HOME}", &daemon.home().display().to_string());
        let command = command.replace("{STATE}", &daemon.app().display().to_string());
        let command = command.replace("{PORT}", &server.port.to_string());
        let command = command.replace("{PID}", &std::process::id().to_string());
        let text = session.bash(&command);
        assert!(!text.contains(REFUSAL), "{}: {text}", self.name);
        text.contains(ESCAPED)
    }
}

#[test]
fn nothing_escapes() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    let (wire, server) = (daemon.wire(), Server::start());
    let session = wire.attach(repo.path());
    let possible = ESCAPES.iter().filter(|one| one.is_possible(&daemon, &session, &server));
    let possible: Vec<_> = possible.map(|escape| escape.name).collect();
    assert!(possible.is_empty(), "{possible:?}");
    assert_eq!(tier(&session), "M");
    let secret = session.bash("env | grep -c -e secret-of-the-daemon -e QUACKD_TEST");
    assert_eq!(secret, "0\n\n[Exit code: 1]");
}

/// Writes a stand-in that changes the profile by the commands of `sed` in a file before it is enforced.
fn mutating(directory: &Path) -> (PathBuf, PathBuf) {
    let (program, mutation) = (directory.join("mutating"), directory.join("mutation"));
    let text = format!(
        "#!/bin/bash\nprofile=$(sed -f '{}' <<<\"$2\")\nshift 2\nexec '{}' -p \"$profile\" \"$@\"\n",
        mutation.display(),
        sandbox_exec().display()
    );
    write_program(&program, text);
    (program, mutation)
}

#[test]
fn each_escape_succeeds_without_the_rule_that_prevents_it() {
    let directory = tempfile::tempdir().unwrap();
    let (program, mutation) = mutating(directory.path());
    std::fs::write(&mutation, "").unwrap();
    let (daemon, repo) = daemon(&program, "");
    let (wire, server) = (daemon.wire(), Server::start());
    let session = wire.attach(repo.path());
    let mut impossible = Vec::new();
    for escape in &ESCAPES {
        std::fs::write(&mutation, "").unwrap();
        assert!(!escape.is_possible(&daemon, &session, &server), "{}", escape.name);
        std::fs::write(&mutation, escape.mutation).unwrap();
        if !escape.is_possible(&daemon, &session, &server) {
            impossible.push(escape.name);
        }
    }
    assert!(impossible.is_empty(), "{impossible:?}");
}

#[test]
fn the_next_daemon_ends_the_commands_of_a_daemon_and_a_worker_that_were_killed_together() {
    let (mut daemon, repo) = daemon(sandbox_exec(), "");
    let mark = format!("quackd-mark-{}-together", std::process::id());
    let other = format!("quackd-mark-{}-other", std::process::id());
    // A process of another daemon's command.
    let mut shell = daemon.program_for_tests("/bin/bash");
    shell.args(["-c", &format!("exec -a {other} sleep 1000")]);
    let mut foreign = shell.env("QUACKD_COMMAND", "1:2.3.4.5.").spawn().unwrap();

    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = format!("setsid bash -c 'exec -a {mark} sleep 1000' & sleep 1000");
    let call = session.begin("bash", json!({"command": script}));
    wait_for("the command", || (marked(&mark) == 1 && marked(&other) == 1).then_some(()));
    let worker = Pid::from_raw(session.pid("pid"));
    // It must not end its commands when it sees that the daemon is gone.
    kill(worker, Signal::SIGSTOP).unwrap();
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    // It can have died with the daemon.
    kill(worker, Signal::SIGKILL).ok();
    drop(call);
    assert_eq!(marked(&mark), 1, "nothing has ended it yet");

    boot(&mut daemon, sandbox_exec());
    wait_for("the end of the command", || (marked(&mark) == 0).then_some(()));
    daemon.wait_for_log("killed commands that a killed daemon left");
    assert_eq!(marked(&other), 1);
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}

#[test]
fn a_link_that_a_command_leaves_is_not_followed_by_the_next_worker() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let notes = daemon.home().join("notes");
    session.bash(&format!("ln -sf '{}' \"$TMPDIR/gitconfig\"", notes.display()));
    let first = session.pid("pid");
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    wait_for("another worker", || {
        session.wire.reply(
            "voice_tool_call",
            json!({"callId": "c", "toolName": "bash",
            "arguments": json!({"command": "true"}).to_string(), "sessionId": session.id}),
        );
        (session.worker()["pid"].as_i64() != Some(first.into())).then_some(())
    });
    assert_eq!(std::fs::read_to_string(notes).unwrap(), "PRIVATE\n");
}

#[test]
fn a_rule_that_the_stand_in_does_not_know_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (program, mutation) = mutating(directory.path());
    for (rule, part) in [
        ("(allow file-map-executable)", "unknown operation"),
        ("(allow file-read* (vnode-type DIRECTORY))", "unknown filter"),
        ("(allow network-outbound (remote tcp4 \"*:80\"))", "unknown filter"),
        ("(deny file-read-metadata)", "cannot be forbidden"),
    ] {
        std::fs::write(&mutation, format!("$ a {rule}")).unwrap();
        let (daemon, repo) = daemon(&program, "");
        let wire = daemon.wire();
        let text = wire.attach(repo.path()).bash("echo ran");
        assert!(text.contains(part) && !text.contains("ran\n"), "{rule}: {text}");
    }
}

#[test]
fn the_network_by_host_reaches_allowed_hosts_through_the_proxy_only() {
    let (server, other) = (Server::start(), Server::start());
    let rules = format!("network = \"hosts\"\nhosts = [\"machine:{}\"]", server.port);
    let (daemon, repo) = daemon(sandbox_exec(), &rules);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let by_proxy = |port: u16| {
        let host = crate::network_hosts::MACHINE;
        session.bash(&format!(
            "exec 3<>/dev/tcp/127.0.0.1/\"${{HTTP_PROXY##*:}}\"; printf 'CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n' >&3; \
             read -r status <&3; read -r empty <&3; echo \"$status\"; echo hello >&3; head -1 <&3"
        ))
    };
    let text = by_proxy(server.port);
    assert!(text.contains("200 Connection established\r\nserved\n"), "{text}");
    let text = by_proxy(other.port);
    assert!(!text.contains("served\n"), "{text}");
    let direct =
        session.bash(&format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo reached", server.port));
    assert!(!direct.contains("reached\n"), "{direct}");
    assert_eq!(session.bash("exit 7"), "\n[Exit code: 7]");
    assert_eq!(tier(&session), "M");
}

#[test]
fn an_isolated_session_works_in_a_copy_at_another_path() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    repo.write("target/built", "x");
    repo.write(".gitignore", "/target\n");
    let base = text(&repo);
    daemon.quack(&["new", "--isolated", "--name", "one", &base]).ok();
    let bash = |command: &str| {
        daemon.quack(&["tool", "bash", "--raw", command, "--session", "one"]).stdout()
    };
    let at = bash("pwd");
    assert!(at.contains("/isolated/") && at.ends_with("/tree\n"), "{at}");
    let tree = PathBuf::from(at.trim_end());

    // Git has the user's commits, and its own are not the user's.
    let commit = "git log --oneline | wc -l; echo mine >> README.md; git commit -qam two; git status --short; \
                  git log --oneline | wc -l";
    assert_eq!(bash(commit), "1\n?? .gitignore\n2\n");
    let mut shell = daemon.program_for_tests("git");
    let log = shell.args(["log", "--oneline"]).current_dir(repo.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&log.stdout).lines().count(), 1);

    // A path of the user's file names that of the copy.
    let write = json!({"path": format!("{base}/new.txt"), "content": "tool\n"}).to_string();
    daemon.quack(&["tool", "write_file", &write, "--session", "one"]).ok();
    assert_eq!(bash("cat new.txt"), "tool\n");
    assert!(!repo.path().join("new.txt").exists());

    // Commands reach neither the workspace, nor the rest of the copy's directory.
    for command in [
        format!("cat '{base}/README.md' && echo ESC''APED"),
        format!("echo x > '{base}/evil' && echo ESC''APED"),
        format!("echo x > '{base}/.git/objects/evil' && echo ESC''APED"),
        "cat ../manifest && echo ESC''APED".to_owned(),
        "echo x > ../evil && echo ESC''APED".to_owned(),
        "echo / > .git/objects/info/alternates && echo ESC''APED".to_owned(),
    ] {
        let text = bash(&command);
        assert!(!text.contains(ESCAPED), "{command}: {text}");
    }
    let shown = daemon.quack(&["sandbox", "show", "--session", "one"]).ok();
    assert!(shown.contains("ignored directories are not in the copy: target"), "{shown}");

    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat, "M  README.md\nA  new.txt\n");
    daemon.quack(&["apply", "--session", "one"]).ok();
    assert_eq!(repo.read("new.txt"), "tool\n");
    let commits = daemon.quack(&["apply", "--session", "one", "--commits"]).ok();
    assert!(commits.contains("git merge quack/a/one"), "{commits}");
    daemon.quack(&["apply", "--undo", "--session", "one"]).ok();
    assert!(!repo.path().join("new.txt").exists());
    repo.write("later.txt", "later\n");
    daemon.quack(&["refresh", "--session", "one"]).ok();
    assert_eq!(bash("cat later.txt; git log --oneline | wc -l"), "later\n2\n");

    // A copy that is gone is an error, and `discard` makes another one.
    daemon.quack(&["restart", "one"]).stdout();
    std::fs::remove_dir_all(&tree).unwrap();
    let text = daemon.quack(&["tool", "bash", "true", "--session", "one"]).stdout();
    assert!(text.contains("no complete copy of the workspace"), "{text}");
    daemon.quack(&["discard", "one", "--yes"]).ok();
    assert_eq!(bash("cat later.txt"), "later\n");
}

/// Checks that the tools of a session do not see `secret` and `.env` in `root`, where `link` leads to `secret`. `seen.txt`
/// also has the text.
#[track_caller]
fn check_hidden(root: &Path, call: &dyn Fn(&str, Value) -> String) {
    for path in ["secret/key", "./src/../secret/key", "link/key", "secret", ".env"] {
        let text = call("read_file", json!({"path": path}));
        assert!(text.contains("File not found"), "{path}: {text}");
    }
    for (tool, arguments) in [
        ("search", json!({"pattern": "TOPSECRET", "hidden": true, "ignore": "none"})),
        ("search", json!({"pattern": "TOPSECRET", "follow": true})),
        ("grep_search", json!({"query": "TOPSECRET"})),
        ("find", json!({"pattern": "**/*", "hidden": true, "ignore": "none"})),
        ("find_files", json!({"pattern": ".*", "include_hidden": true})),
        ("find_files", json!({"pattern": "*"})),
    ] {
        let text = call(tool, arguments.clone());
        assert!(tool == "find_files" || text.contains("seen.txt"), "{tool} {arguments}: {text}");
        assert!(!text.contains("key") && !text.contains(".env"), "{tool}: {text}");
    }
    let text = call("search", json!({"pattern": "x", "path": "secret"}));
    assert!(text.contains("Search path not found: 'secret'"), "{text}");
    for path in ["secret/new", "link/new", ".env"] {
        let text = call("write_file", json!({"path": path, "content": "x"}));
        assert!(text.contains("does not exist") || text.contains("ENOENT"), "{path}: {text}");
    }
    let edit = json!({"path": "secret/key", "old_text": "TOPSECRET", "new_text": "x"});
    let text = call("edit_file", edit);
    assert!(text.contains("does not exist") || text.contains("ENOENT"), "{text}");
    call("replace", json!({"pattern": "TOPSECRET", "replacement": "PUBLIC", "hidden": true}));
    let content = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(content("seen.txt"), "PUBLIC\n");
    assert_eq!(content("secret/key"), "TOPSECRET\n");
    assert!(!root.join("secret/new").exists());
}

#[test]
fn file_tools_and_searches_do_not_see_hidden_paths() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    repo.write("secret/key", "TOPSECRET\n");
    repo.write("seen.txt", "TOPSECRET\n");
    std::os::unix::fs::symlink("secret", repo.path().join("link")).unwrap();
    let base = text(&repo);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    daemon.quack(&["new", "--isolated", "--name", "one", &base]).ok();
    let secret = format!("{base}/secret");
    for name in ["one", session.id.as_str()] {
        daemon.quack(&["sandbox", "set", "--hide", &secret, "--session", name]).ok();
    }

    let at = daemon.quack(&["tool", "bash", "--raw", "pwd", "--session", "one"]).stdout();
    let tree = PathBuf::from(at.trim_end());
    assert_eq!(std::fs::read_to_string(tree.join("secret/key")).unwrap(), "TOPSECRET\n");
    let call = |tool: &str, arguments: Value| {
        let run = daemon.quack(&["tool", tool, &arguments.to_string(), "--session", "one"]);
        format!("{}{}", run.stdout(), run.stderr())
    };
    check_hidden(&tree, &call);
    assert_eq!(repo.read("seen.txt"), "TOPSECRET\n");

    assert_eq!(tier(&session), "M");
    check_hidden(repo.path(), &|tool, arguments| session.call(tool, arguments));
    let read = json!({"sessionId": session.id, "tool": "read_file", "arguments": "secret/key"});
    let hint = wire.request("quack.tool", read)["hint"].to_string();
    let line = format!(
        "secret is hidden in this session (cannot be opened). To show it: quack sandbox set --unhide {secret} "
    );
    assert!(hint.contains(&line), "{hint}");
    let key = format!("{secret}/key");
    let explained = daemon.quack(&["sandbox", "explain", &key, "--session", &session.id]).ok();
    assert!(explained.contains("the policy hides"), "{explained}");
}

#[test]
fn texts_of_an_isolated_session_do_not_propose_to_write_the_workspace_of_the_user() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    let base = text(&repo);
    daemon.quack(&["new", "--isolated", "--name", "one", &base]).ok();
    let run = |words: &[&str]| {
        let run = daemon.quack(&[words, &["--session", "one"]].concat());
        format!("{}{}", run.stdout(), run.stderr())
    };
    let explained = run(&["sandbox", "explain", &format!("{base}/README.md")]);
    assert!(explained.contains("the session works in a copy of the workspace"), "{explained}");
    let denied = run(&["tool", "bash", "--raw", &format!("echo x > '{base}/new'")]);
    assert!(!denied.contains("--writable"), "{denied}");
    assert!(!repo.path().join("new").exists());
}

#[test]
fn it_is_shown_as_partly_confined() {
    let (daemon, repo) = daemon(sandbox_exec(), "");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(tier(&session), "M");
    let shown = daemon.quack(&["sandbox", "show", "-C", &text(&repo)]).ok();
    assert!(shown.contains("partly confined, workspace-write, network off"), "{shown}");
    let listed = daemon.quack(&["ps"]).ok();
    assert!(listed.contains("partly confined"), "{listed}");
    let doctor = daemon.quack(&["doctor"]).stdout();
    assert!(doctor.contains("sandbox      1 partly confined"), "{doctor}");
}

#[test]
fn it_is_refused_without_a_stand_in_and_never_chosen_by_itself() {
    let mut without = Daemon::absent();
    let repo = without.repo("a");
    without.boot_in(&["-u", VARIABLE, "QUACKD_SANDBOX_TIER=M"]);
    let text = without.wire().attach(repo.path()).bash("true");
    assert!(text.contains("tier M was asked for, but this is not macOS"), "{text}");
    drop(without);

    let (missing, repo) = daemon(Path::new("/nowhere/sandbox-exec"), "");
    let text = missing.wire().attach(repo.path()).bash("true");
    assert!(text.contains("tier M was asked for, but there is no /nowhere/sandbox-exec"), "{text}");
    drop(missing);

    let mut unasked = Daemon::absent();
    let repo = unasked.repo("a");
    let variable = format!("{VARIABLE}={}", sandbox_exec().display());
    unasked.boot_in(&["-u", "QUACKD_SANDBOX_TIER", &variable]);
    let wire = unasked.wire();
    assert_ne!(tier(&wire.attach(repo.path())), "M");
}
