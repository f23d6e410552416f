//! Protected, hidden and resolved names are checked again later. Neither programs that change the
//! same files outside the session nor a restart of the worker removes the protection.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn end_worker(session: &Session<'_>) {
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).expect("kill the worker");
    wait_for("its end", || (session.worker()["state"] != "ready").then_some(()));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "as another program does it")]
fn a_protected_name_that_is_replaced_outside_is_protected_again_before_anything_runs() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let git = repo.path().join(".git");
    fs::write(git.join("config"), "[core]\n").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    assert!(session.bash("echo x >> .git/config").contains("Read-only file system"));
    // Like git itself.
    fs::write(git.join("config.lock"), "[core]\n[remote]\n").unwrap();
    fs::rename(git.join("config.lock"), git.join("config")).unwrap();
    let once = session.bash("echo x >> .git/config; echo once >> log");
    assert!(once.contains("Read-only file system"), "{once}");
    assert_eq!(repo.read("log"), "once\n");
    assert_eq!(fs::read_to_string(git.join("config")).unwrap(), "[core]\n[remote]\n");
    assert_eq!(session.worker()["restarts"], 0);
}

/// The mount of a name moves with what is renamed. No event of the kernel reports that the name has none then.
#[test]
#[expect(clippy::disallowed_methods, reason = "as the user does it")]
fn a_protected_or_hidden_name_that_is_moved_away_and_made_again_outside_is_protected_again() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let git = repo.path().join(".git");
    fs::create_dir_all(git.join("hooks")).unwrap();
    fs::write(git.join("config"), "[core]\n").unwrap();
    repo.write("secret", "in the clear\n");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let hidden = json!([repo.path().join("secret")]);
    wire.request("quack.sandbox", json!({"action": "set", "hidden": hidden}));
    if !session.has_namespaces() {
        return;
    }
    let attempt = "echo x >> .git/config; echo x > .git/hooks/pre-commit; cat secret; echo end";
    for (n, name) in [".git/config", ".git/hooks", ".git", "secret"].into_iter().enumerate() {
        session.bash("true");
        let (path, away) = (repo.path().join(name), repo.path().join(format!("away-{n}")));
        fs::rename(&path, &away).unwrap();
        let copied = daemon.program_for_tests("cp").arg("-a").args([&away, &path]).status();
        assert!(copied.unwrap().success());
        let text = session.bash(attempt);
        assert!(text.contains("end") && !text.contains("in the clear"), "{name}: {text}");
        assert_eq!(text.matches("Read-only file system").count(), 2, "{name}: {text}");
        assert_eq!(fs::read_to_string(git.join("config")).unwrap(), "[core]\n", "{name}");
        assert!(!git.join("hooks/pre-commit").exists(), "{name}");
    }
    assert_eq!(session.worker()["restarts"], 0);
}

#[test]
fn what_is_hidden_stays_hidden_when_its_directory_would_be_moved() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    fs::create_dir_all(repo.path().join("s/deep")).unwrap();
    fs::write(repo.path().join("s/deep/env"), "TOPSECRET").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let hidden = [repo.path().join("s/deep/env")];
    wire.request(
        "quack.sandbox",
        json!({"action": "set", "sessionId": session.id, "hidden": hidden}),
    );
    if !session.has_namespaces() {
        return;
    }
    for directory in ["s", "s/deep"] {
        let moved = session.bash(&format!("mv {directory} elsewhere"));
        assert!(moved.contains("busy"), "{moved}");
    }
    end_worker(&session);
    assert!(!session.bash("cat s/deep/env; find . -name env -exec cat {} +").contains("TOPSECRET"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "as another program does it")]
fn a_link_on_the_way_to_a_workspace_leads_no_worker_elsewhere() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let outer = daemon.repo("outer");
    let inner = outer.path().join("x/inner");
    fs::create_dir_all(inner.join(".git")).unwrap();
    fs::create_dir_all(daemon.home().join("inner")).unwrap();
    fs::write(daemon.home().join("inner/key"), "CANARY").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(&inner);
    if !session.has_namespaces() {
        return;
    }
    end_worker(&session);
    fs::rename(outer.path().join("x"), outer.path().join("x.real")).unwrap();
    std::os::unix::fs::symlink(daemon.home(), outer.path().join("x")).unwrap();
    for _ in 0..2 {
        let text = session.bash("cat key; echo written > new");
        assert!(text.starts_with("Error: ") && !text.contains("CANARY"), "{text}");
    }
    assert!(!daemon.home().join("inner/new").exists());
}

#[test]
fn no_file_gets_the_rights_of_its_owner() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let text =
        session.bash("cp /usr/bin/id sid; chmod 6755 sid; chmod u+s sid; chmod 755 sid && echo ok");
    assert!(text.contains("Operation not permitted") && text.contains("ok"), "{text}");
    let mode = fs::metadata(repo.path().join("sid")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn a_call_in_safe_mode_writes_nothing_also_beneath_the_temporary_directory() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("evil.sh", "echo x > new; echo x >> README.md; mkdir d; chmod 777 README.md; touch -d 2001-01-01 README.md\n");
    repo.write("package.json", "{\"scripts\":{\"test\":\"bash ./evil.sh\"}}\n");
    repo.write("Makefile", "test:\n\tbash ./evil.sh\n");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let before = fs::metadata(repo.path().join("README.md")).unwrap();
    for command in ["npm test", "make test", "find . -maxdepth 0 -exec sh evil.sh +"] {
        let params = json!({
            "sessionId": session.id, "tool": "bash", "arguments": {"command": command}, "safeMode": true,
        });
        wire.request("quack.tool", params);
    }
    let after = fs::metadata(repo.path().join("README.md")).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
    assert!(!repo.path().join("new").exists() && !repo.path().join("d").exists());
    assert_eq!(fs::read_to_string(repo.path().join("README.md")).unwrap(), "# A repository\n");
}

#[test]
fn a_hidden_path_that_does_not_exist_yet_is_hidden_once_it_appears() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let set = |path: &str| {
        let mut command = daemon.command(&["sandbox", "set", "--hide", path]);
        command.args(["--session", &session.id]).current_dir(repo.path()).output().unwrap()
    };
    let refused = set("missing/.env");
    assert_eq!(refused.status.code(), Some(2), "its directory has to exist: {refused:?}");
    let done = set(".env");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(
        session.bash("ls -A"),
        "README.md\nsrc\n\n[Exit code: 0]".replace("README", ".git\nREADME")
    );
    repo.write(".env", "TOPSECRET");
    for _ in 0..2 {
        let text = session.bash("cat .env; grep -r SECRET . ; true");
        assert!(!text.contains("TOPSECRET"), "{text}");
        let read = session.call("read_file", json!({"path": ".env"}));
        let found = session.call("search", json!({"pattern": "SECRET", "hidden": true}));
        assert!(!read.contains("TOPSECRET") && !found.contains("TOPSECRET"), "{read} {found}");
    }
    assert_eq!(repo.read(".env"), "TOPSECRET");
    assert_eq!(session.worker()["restarts"], 0, "the worker was replaced, and did not crash");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "as another program does it")]
fn a_background_job_blocks_no_call_after_the_user_has_changed_gits_configuration() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let git = |script: &str| {
        let mut shell = daemon.program_for_tests("/bin/sh");
        let done = shell.args(["-ec", script]).current_dir(repo.path()).output().unwrap();
        assert!(done.status.success(), "{script}: {done:?}");
    };
    fs::remove_dir_all(repo.path().join(".git")).ok();
    git(
        "git init -q . && git config user.name a && git config user.email a@b.c && git add . && git commit -qm one && \
         git init -q --bare ../remote.git && git remote add origin ../remote.git && printf 'cat' > filter.sh && \
         git config filter.f.clean ./filter.sh",
    );
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    session.call("bash", json!({"command": "sleep 1000", "background": true}));
    let shown = wire.request("quack.sandbox", json!({"action": "show", "sessionId": session.id}));
    if shown["inForce"]["git"] == "top" {
        for script in [
            "git config a.b c",
            "git push -qu origin HEAD",
            "git branch -m other && git config --unset a.b",
            "git config --add remote.origin.fetch +refs/x:refs/x && git config --global a.b c",
            "git worktree add -q ../beside && git worktree remove ../beside",
        ] {
            git(script);
            let text = session.bash("echo runs; echo x >> .git/config");
            assert!(
                text.contains("runs\n") && text.contains("Read-only file system"),
                "{script}: {text}"
            );
        }
        assert_eq!(session.worker()["pending"], json!(null));
    }
    // A file that git runs is held by a mount, which its replacement removes.
    fs::write(repo.path().join("new"), "tac").unwrap();
    fs::rename(repo.path().join("new"), repo.path().join("filter.sh")).unwrap();
    let refused = session.bash("echo x > filter.sh");
    let way =
        "try again when no background job runs: job_kill, or quack jobs kill job-1 --session a";
    assert!(refused.contains(way), "{refused}");
    assert_eq!(session.worker()["pending"]["remedy"], "quack jobs kill job-1 --session a");
    for (tool, arguments) in
        [("read_file", json!({"path": "filter.sh"})), ("search", json!({"pattern": "tac"}))]
    {
        let text = session.call(tool, arguments);
        assert!(text.contains("tac"), "what only reads goes on: {text}");
    }
    for (tool, arguments) in [
        ("write_file", json!({"path": "new", "content": "x"})),
        ("edit_file", json!({"path": "filter.sh", "old_text": "tac", "new_text": "x"})),
    ] {
        let text = session.call(tool, arguments);
        assert!(text.contains(way), "{text}");
    }
    session.call("job_kill", json!({"job": "job-1"}));
    let text = session.bash("echo runs; echo x > filter.sh");
    assert!(text.contains("runs\n") && text.contains("Read-only file system"), "{text}");
    assert_eq!(repo.read("filter.sh"), "tac");
}
