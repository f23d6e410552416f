//! The first hour with git: settings of a repository stay protected, and usual work with branches
//! succeeds.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Repo, Session, wait_for};
use serde_json::json;
use std::fs;

/// Part of the line that explains a refused change of git's settings.
const REFUSED: &str = "Settings of git can run programs later, outside of the sandbox; to change them, run git yourself in a terminal]";

/// Creates a repository with the branches `main`, `f` and `g` of a remote that commands can reach, `origin`.
#[track_caller]
fn cloned(daemon: &Daemon, name: &str) -> Repo {
    let repo = daemon.repo(name);
    fs::write(daemon.home().join(".gitconfig"), "[user]\n\tname = a\n\temail = a@b\n").unwrap();
    fs::remove_dir(repo.path().join(".git")).unwrap();
    repo.write(".gitignore", "/origin.git\n");
    daemon.git(repo.path(), &["init", "-q", "-b", "main"]);
    daemon.git(repo.path(), &["add", "-A"]);
    daemon.git(repo.path(), &["commit", "-q", "-m", "first"]);
    daemon.git(repo.path(), &["clone", "-q", "--bare", ".", "origin.git"]);
    for branch in ["f", "g", "h"] {
        daemon.git(repo.path(), &["push", "-q", "./origin.git", &format!("main:{branch}")]);
    }
    daemon.git(repo.path(), &["remote", "add", "origin", "./origin.git"]);
    daemon.git(repo.path(), &["fetch", "-q", "origin"]);
    repo
}

/// Runs a command that must end with exit code 0.
#[track_caller]
fn ok(session: &Session<'_>, command: &str) -> String {
    let text = session.bash(command);
    assert!(text.ends_with("[Exit code: 0]"), "{command}: {text}");
    text
}

#[test]
fn every_refused_change_of_git_settings_is_explained_and_listed() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = cloned(&daemon, "a b");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let settings = repo.path().join(".git/config");
    let before = fs::read_to_string(&settings).unwrap();
    let commands = [
        "git config x.y z",
        "git config --unset core.bare",
        "git remote add x ../y",
        "git remote set-url origin z",
        "git sparse-checkout set a",
        "git checkout -b n1 origin/f",
        "git checkout -b n2 origin/f; echo later >&2",
        "git branch -u origin/main",
        "git push -u origin main:pushed 2>&1",
        "git config x.y z; true",
    ];
    for (n, command) in commands.into_iter().enumerate() {
        let text = session.bash(command);
        let line = "[Sandbox: writing .git/config was probably denied";
        assert!(text.contains(line) && text.contains(REFUSED), "{command}: {text}");
        let denials = json!({"action": "denials", "sessionId": session.id});
        let listed = wire.request("quack.sandbox", denials);
        let last = listed["denials"].as_array().unwrap().last().unwrap();
        assert_eq!(listed["total"], n + 1, "{command}: {listed}");
        assert_eq!(last["kind"], "protected", "{command}: {listed}");
        assert_eq!(last["target"], ".git/config", "{command}: {listed}");
    }
    let at = repo.path().to_string_lossy().into_owned();
    let shown = daemon.quack(&["sandbox", "denials", "-C", &at]).ok();
    assert!(shown.contains(".git/config"), "{shown}");
    assert_eq!(fs::read_to_string(&settings).unwrap(), before);
    // There is no explanation without a refusal.
    let said = "printf 'error: could not write config file other/x: Device or resource busy\\n'";
    for command in ["git status", "git log --oneline", "git stash list", said] {
        assert!(!ok(&session, command).contains("[Sandbox"), "{command}");
    }
}

#[test]
fn upstreams_of_branches_work_in_the_session_and_the_settings_stay_as_they_are() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = cloned(&daemon, "a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let before = repo.read(".git/config");
    let kept = |branch: &str, upstream: &str| {
        format!(
            "[Sandbox: this session tracks '{upstream}' in '{branch}', so that its git status, pull and push work. \
             To track it outside too: git branch --set-upstream-to={upstream} {branch}]"
        )
    };
    for (command, branch, upstream) in [
        ("git switch f", "f", "origin/f"),
        ("git checkout g", "g", "origin/g"),
        ("git checkout --track origin/h", "h", "origin/h"),
        ("git checkout -b n origin/f", "n", "origin/f"),
        (
            "git switch -c m && git commit -q --allow-empty -m x && git push -u origin m",
            "m",
            "origin/m",
        ),
        ("git checkout main && git branch -u origin/main", "main", "origin/main"),
        ("git checkout -b local && git branch --set-upstream-to=main", "local", "main"),
    ] {
        let text = ok(&session, command);
        assert!(text.contains(&kept(branch, upstream)), "{command}: {text}");
        let status = ok(&session, "git status -sb");
        assert!(status.starts_with(&format!("## {branch}...{upstream}\n")), "{command}: {status}");
        let status = ok(&session, "git status");
        let expected = format!("Your branch is up to date with '{upstream}'.");
        assert!(status.contains(&expected), "{command}: {status}");
        assert!(ok(&session, "git pull").contains("Already up to date."));
    }
    // The upstream branch can be changed. A branch with the same name as its upstream is pushed
    // without arguments.
    ok(&session, "git checkout -q m && git commit -q --allow-empty -m y && git push");
    assert_eq!(ok(&session, "git rev-parse m")[..40], ok(&session, "git rev-parse origin/m")[..40]);
    ok(&session, "git branch -u origin/g");
    assert!(ok(&session, "git status -sb").starts_with("## m...origin/g [ahead 2]\n"));
    // The next worker of the session has the settings too, and no other repository has them.
    let worker = rustix::process::Pid::from_raw(session.pid("pid")).unwrap();
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
    wait_for("another worker", || (session.bash("true") == "\n[Exit code: 0]").then_some(()));
    assert!(ok(&session, "git checkout -q f && git status -sb").starts_with("## f...origin/f\n"));
    ok(&session, "git clone -q origin.git other && cd other && git checkout -q --no-track -b n");
    assert!(ok(&session, "cd other && git status -sb").starts_with("## n\n"));
    ok(&session, "cd other && git checkout -q -b k origin/f && git config user.x y");
    assert!(ok(&session, "cd other && git status -sb").starts_with("## k...origin/f\n"));
    assert_eq!(repo.read(".git/config"), before);
}

#[test]
fn an_upstream_of_the_session_gives_way_to_one_that_the_user_sets() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = cloned(&daemon, "a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    ok(&session, "git checkout f");
    daemon.git(repo.path(), &["branch", "--set-upstream-to=origin/f", "f"]);
    assert_eq!(
        ok(&session, "git config --get-all branch.f.merge"),
        "refs/heads/f\n\n[Exit code: 0]"
    );
    ok(&session, "git commit -q --allow-empty -m x && git push");
    // A branch keeps its existing upstream.
    let text = ok(&session, "git branch -u origin/g");
    assert!(text.contains(REFUSED) && !text.contains("this session tracks"), "{text}");
    assert!(ok(&session, "git status -sb").starts_with("## f...origin/f\n"));
}

#[test]
fn upstreams_work_in_a_linked_worktree() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = cloned(&daemon, "a");
    // Commands in the worktree reach a remote inside it.
    let worktree = daemon.home().join("src/linked");
    let at = worktree.to_str().unwrap();
    daemon.git(repo.path(), &["worktree", "add", "-q", "-b", "w", at]);
    daemon.git(&worktree, &["clone", "-q", "--bare", repo.path().to_str().unwrap(), "near.git"]);
    daemon.git(repo.path(), &["remote", "set-url", "origin", &format!("{at}/near.git")]);
    let before = repo.read(".git/config");
    let wire = daemon.wire();
    let session = wire.attach(&worktree);
    if !session.has_namespaces() {
        return;
    }
    let text = ok(&session, "git push -u origin w");
    assert!(text.contains("this session tracks 'origin/w' in 'w'"), "{text}");
    assert!(ok(&session, "git status -sb").starts_with("## w...origin/w\n"));
    ok(&session, "git commit -q --allow-empty -m x && git push && git pull");
    assert_eq!(repo.read(".git/config"), before);
}

#[test]
fn no_command_makes_git_outside_of_the_session_obey_an_upstream_that_it_invents() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = cloned(&daemon, "a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.has_namespaces() {
        return;
    }
    let before = repo.read(".git/config");
    for upstream in
        ["ext::sh -c x/y", "ext::sh/y", "--upload-pack=x/y", "../x", "a\"]/x", "nowhere/y"]
    {
        let say = format!("branch 'main' set up to track '{upstream}'.");
        let command = format!("git config x.y z; printf '%s\\n' '{}'", say.replace('\'', "'\\''"));
        ok(&session, &command);
        let remote = session.bash("git config branch.main.remote");
        assert!(remote.starts_with("\n[Exit") || remote.starts_with(".\n"), "{upstream}: {remote}");
    }
    assert_eq!(repo.read(".git/config"), before);
}
