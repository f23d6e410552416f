//! Files that a command writes where they will be lost: the answer names them, or the write fails.

use crate::harness::tier::needs;
use crate::harness::{Daemon, copy_program};
use serde_json::json;
use std::path::PathBuf;

const LOST: &str = " will be lost: this home exists only as long as the worker";

/// A repository in the home, where most people have theirs.
fn repository(daemon: &Daemon) -> PathBuf {
    let path = daemon.home().join("code");
    let script = "git init -q . && echo a > a && git add a && git -c user.name=a -c user.email=a@b.c commit -qm i";
    std::fs::create_dir_all(&path).unwrap();
    let made = daemon.program_for_tests("/bin/sh").args(["-c", script]).current_dir(&path).status();
    assert!(made.unwrap().success());
    path
}

#[test]
fn no_write_next_to_the_workspace_or_in_the_home_vanishes_without_a_word() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    // With a credential helper in the settings of the system, quackd would write a `.gitconfig`.
    daemon.configure("[credentials]\ngit = false\n");
    daemon.boot();
    let path = repository(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(&path);
    if !session.shows_namespaces() {
        return;
    }
    for (command, named) in [
        (
            "git worktree add -q ../feature -b feature && echo work > ../feature/new.txt",
            "~/feature",
        ),
        ("echo more > ../feature/deep.txt", "~/feature"),
        ("cd ~ && git clone -q code clone1", "~/clone1"),
        ("mkdir -p ~/bin; echo hi > ~/bin/tool", "~/bin"),
        ("echo hi > ~/note", "~/note"),
        ("echo moved > gone; mv gone ~/", "~/gone"),
        ("cp -r . ~/copy; cd ~/copy; echo x > y", "~/copy"),
        ("echo x > ~/.toolrc", "~/.toolrc"),
        ("git config --global user.name x", "~/.gitconfig"),
        ("mkdir -p ~/.config/tool && echo x > ~/.config/tool/settings", "~/.config/tool"),
        ("mkdir -p ~/.local/bin && echo x > ~/.local/bin/tool", "~/.local/bin/tool"),
        ("mkdir ~/.ssh; echo x > ~/.ssh/config", "~/.ssh"),
    ] {
        let text = session.bash(command);
        assert!(text.ends_with("[Exit code: 0]"), "{command}: {text}");
        let line = text
            .lines()
            .find(|line| line.contains(LOST))
            .unwrap_or_else(|| panic!("{command}: {text}"));
        assert!(line.starts_with(&format!("[Sandbox: {named}{LOST}")), "{command}: {line}");
        assert!(line.ends_with("quack sandbox set --writable DIR --session code]"), "{line}");
    }
    // The user has none of them, and what stays is not mentioned.
    assert!(!daemon.home().join("feature").exists() && !daemon.home().join("note").exists());
    for command in [
        "true",
        "echo stays > kept.txt",
        "mkdir -p ~/.cache/tool ~/.config ~/.npm/_logs && echo x > ~/.cache/tool/y && echo x > ~/.python_history",
        "mktemp -d > /dev/null; echo x > /tmp/gone; rm /tmp/gone",
    ] {
        let text = session.bash(command);
        assert!(!text.contains("will be lost"), "{command}: {text}");
    }
}

#[test]
fn a_result_in_a_private_directory_for_temporary_files_is_named_once() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let path = repository(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(&path);
    if !session.shows_namespaces() {
        return;
    }
    for (command, named) in [
        ("cp a /tmp/result.pdf", "/tmp/result.pdf"),
        ("git clone -q . /tmp/clone", "/tmp/clone"),
        ("cp a* /var/tmp/", "/var/tmp/a"),
        ("cd /dev/shm && echo x > note", "/dev/shm/note"),
        ("f=/tmp/rep; echo x > ${f}ort.md; echo written to ${f}ort.md", "/tmp/report.md"),
    ] {
        let text = session.bash(command);
        let line = text.lines().find(|line| line.contains(" will be lost: only this session"));
        let line = line.unwrap_or_else(|| panic!("{command}: {text}"));
        let keep = format!("quack tool bash 'cp -rnv {named} .' --session code]");
        assert!(
            line.starts_with(&format!("[Sandbox: {named} ")) && line.ends_with(&keep),
            "{line}"
        );
        let text = session.bash(command);
        assert!(!text.contains("will be lost"), "{command}: {text}");
    }
    // The command of the hint works in every directory.
    let mut keep = daemon.command(&["tool", "bash", "cp -rnv /tmp/clone .", "--session", "code"]);
    assert!(keep.current_dir("/").output().unwrap().status.success());
    assert!(path.join("clone/a").exists());

    session.call("bash", json!({"command": "echo x > /tmp/of-a-job", "background": true}));
    let text = session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
    assert!(text.contains("/tmp/of-a-job will be lost"), "{text}");
}

#[test]
fn a_failure_about_what_the_session_does_not_see_says_so() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    // With an ssh agent in the session, keys are not the likely reason.
    daemon.configure("[credentials]\nssh = false\n");
    daemon.boot();
    let path = repository(&daemon);
    std::fs::create_dir_all(daemon.home().join("src/other")).unwrap();
    std::fs::create_dir_all(daemon.home().join(".ssh")).unwrap();
    std::fs::write(daemon.home().join(".ssh/id_rsa"), "key").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(&path);
    if !session.shows_namespaces() {
        return;
    }
    let other = daemon.home().join("src/other");
    let text = session.bash(&format!("cat {}/notes", other.display()));
    let way = format!("quack sandbox set --writable {} --session code]", other.display());
    assert!(text.contains("is not in the session, if it exists") && text.contains(&way), "{text}");
    let text = session.bash("cat ~/.ssh/id_rsa");
    assert!(text.contains("your ssh keys and your ssh agent are not in the session"), "{text}");
    assert!(!text.contains("--writable"), "{text}");
    let text = session.bash("echo 'connect ECONNREFUSED 127.0.0.1:5999' >&2; false");
    assert!(text.contains("`quack sandbox explain localhost:5999 --session code`"), "{text}");
    for command in ["cat none", "ls /etc/none/x", "cat /usr/none/x", "false"] {
        let text = session.bash(command);
        assert!(!text.contains("[Sandbox: "), "{command}: {text}");
    }
}

#[test]
fn a_write_next_to_a_workspace_deep_in_the_home_fails_or_is_named() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let path = daemon.home().join("src/work/app");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(daemon.home().join("src/work/own"), "of the user").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(&path);
    if !session.shows_namespaces() {
        return;
    }
    for command in
        ["mkdir ../feature && echo x > ../feature/y", "echo x > ../own", "echo x > ~/src/note"]
    {
        let text = session.bash(command);
        let is_told = text.contains(LOST) || text.contains("Read-only file system\n\n[Sandbox: ");
        assert!(is_told, "{command}: {text}");
    }
    let text = session.bash("echo x > y; mkdir -p deep/z; echo x > deep/z/a");
    assert!(!text.contains("will be lost"), "{text}");
    let own = std::fs::read_to_string(daemon.home().join("src/work/own")).unwrap();
    assert_eq!(own, "of the user");
}

#[test]
fn a_job_and_an_exact_output_say_it_too() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let path = repository(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(&path);
    if !session.shows_namespaces() {
        return;
    }
    session.call("bash", json!({"command": "echo x > ~/of-a-job", "background": true}));
    let text = session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
    assert!(text.contains(&format!("~/of-a-job{LOST}")), "{text}");

    let mut raw = daemon.command(&["tool", "bash", "--raw", "echo hi; echo x > ~/exact"]);
    let ran = raw.current_dir(&path).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(out == "hi\n" && err.contains("~/exact will be lost"), "{out}{err}");
}

#[test]
fn quack_inside_a_session_starts_no_second_daemon() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let path = repository(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(&path);
    if !session.shows_namespaces() {
        return;
    }
    // Commands see the directories of PATH, which has this one.
    let gates = daemon.home().parent().unwrap().join("gates");
    std::fs::create_dir_all(&gates).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_quack"));
    if std::fs::hard_link(program, gates.join("quack")).is_err() {
        // Another disk.
        copy_program(program, &gates.join("quack"), b"");
    }
    for verb in ["tool bash ls", "ps", "say hi", "demo"] {
        let text = session.bash(&format!("{}/quack {verb}", gates.display()));
        assert!(text.ends_with("[Exit code: 3]"), "{verb}: {text}");
        let is_starter = verb != "ps";
        assert_eq!(text.contains("runs inside a session of quackd"), is_starter, "{verb}: {text}");
    }
}

#[test]
fn a_command_that_names_a_hidden_file_is_told_once_with_the_command_that_shows_it() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("shop");
    for name in [".env", "src/.env", "secrets/key", "server.pem", ".env.example"] {
        repo.write(name, "SECRET=1\n");
    }
    let sandbox = |dir: &std::path::Path, args: &[&str]| {
        let mut set = daemon.command(&[&["sandbox", "set"], args].concat());
        set.current_dir(dir).output().expect("run quack")
    };
    let hide = ["--hide", ".env", "--hide", "secrets", "--hide", "server.pem"];
    let hidden = sandbox(repo.path(), &hide);
    assert!(hidden.status.success(), "{hidden:?}");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    let env = repo.path().join(".env");
    let way = format!("To show it: quack sandbox set --unhide {} --session shop]", env.display());
    let line = format!("[Sandbox: .env is hidden in this session (reads as empty). {way}");
    for command in [
        "cat .env",
        "cat < ./.env; cat .env",
        "cd src && cat ../.env",
        &format!("cat {}", env.display()),
        "set -a; . ./.env; echo \"[$SECRET]\"",
        "python3 -c \"print(open('.env').read())\"",
        "test -s .env || exit 3",
        "cat .env none",
        "echo SECRET=2 >> .env",
        "rm .env",
    ] {
        let text = session.bash(command);
        let told: Vec<_> = text.lines().filter(|it| it.contains("[Sandbox: ")).collect();
        assert_eq!(told, [line.as_str()], "{command}: {text}");
    }
    for command in ["ls secrets", "cat secrets/key"] {
        let text = session.bash(command);
        assert!(
            text.contains("[Sandbox: secrets is hidden in this session (looks empty)."),
            "{text}"
        );
    }
    // No text proposes to show a private key.
    let text = session.bash("cat server.pem");
    assert!(text.contains("server.pem is hidden") && !text.contains("--unhide"), "{text}");
    assert!(text.contains("quack sandbox explain "), "{text}");
    for command in
        ["ls -a", "cat src/.env .env.example", "echo .env", "git commit -m 'no .env'", "false"]
    {
        let text = session.bash(command);
        assert!(!text.contains("is hidden in this session"), "{command}: {text}");
    }
    session.call("bash", json!({"command": "cat .env", "background": true}));
    let text = session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
    assert_eq!(text.matches(&line).count(), 1, "{text}");
    for (path, text) in [(".env", ""), ("secrets/key", "Error: File not found at 'secrets/key'")] {
        let call = json!({"sessionId": session.id, "tool": "read_file", "arguments": path});
        let read = wire.request("quack.tool", call);
        assert_eq!((&read["text"], &read["hintAdds"]), (&json!(text), &json!(true)), "{read}");
        assert!(read["hint"].as_str().unwrap().contains(" is hidden in this session"), "{read}");
    }
    // The command of the hint works in every directory.
    let unhide = ["--unhide", env.to_str().unwrap(), "--session", "shop"];
    assert!(sandbox(std::path::Path::new("/"), &unhide).status.success());
    assert_eq!(session.bash("cat .env"), "SECRET=1\n\n[Exit code: 0]");
    // A path that another list hides stays hidden, and the error names the list.
    assert!(sandbox(repo.path(), &["--workspace", "--hide", ".env"]).status.success());
    let refused = sandbox(repo.path(), &["--unhide", ".env"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("add --workspace"), "{why}");
    assert!(sandbox(repo.path(), &["--workspace", "--unhide", ".env"]).status.success());
}
