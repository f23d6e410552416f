//! Isolated sessions: a private copy of the workspace at the same path, whose changes the user sees, applies, takes back or
//! throws away.

use crate::harness;
use crate::harness::tier::needs;
use crate::harness::{Daemon, Repo, Wire, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

fn git(repo: &Repo, words: &[&str]) -> String {
    // Settings of the user who runs the tests do not matter.
    harness::git(Path::new("/nonexistent"), repo.path(), words)
}

/// A committed repository with an ignored build directory and a secret that git ignores.
pub(crate) fn repository(daemon: &Daemon) -> Repo {
    let repo = daemon.repo("project");
    git(&repo, &["init", "-q", "-b", "main"]);
    git(&repo, &["config", "user.name", "a"]);
    git(&repo, &["config", "user.email", "a@b"]);
    repo.write(".gitignore", "/target\n.env\n");
    repo.write("src/lib.rs", "one\ntwo\nthree\nfour\nfive\n");
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-q", "-m", "first"]);
    repo.write("target/debug/app", "built\n");
    repo.write(".env", "KEY=1\n");
    repo
}

pub(crate) fn isolated(daemon: &Daemon, repo: &Repo, name: &str) {
    let at = repo.path().to_str().unwrap();
    daemon.quack(&["new", "--isolated", "--name", name, at]).ok();
}

fn bash(daemon: &Daemon, session: &str, command: &str) -> String {
    daemon.quack(&["tool", "bash", "--raw", command, "--session", session]).ok()
}

#[test]
fn a_session_works_in_its_copy_and_the_user_decides_what_becomes_of_it() {
    needs!(Isolated);
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    isolated(&daemon, &repo, "two");

    // The same path, the ignored files, a repository that works, and outputs with a private layer.
    let seen = bash(
        &daemon,
        "one",
        "pwd; cat .env target/debug/app; echo changed > target/debug/app; git mv src lib && git status --short; \
         sed -i s/two/TWO/ lib/lib.rs; git commit -qam moved; git log --oneline | wc -l; cat target/debug/app",
    );
    let path = repo.path().canonicalize().unwrap();
    let expected = format!("{}\nKEY=1\nbuilt\nR  src/lib.rs -> lib/lib.rs\n", path.display());
    assert!(seen.starts_with(&expected), "{seen}");
    assert!(seen.trim_end().ends_with("2\nchanged"), "{seen}");
    assert_eq!(repo.read("target/debug/app"), "built\n");
    assert_eq!(git(&repo, &["status", "--porcelain"]), "");
    assert_eq!(git(&repo, &["log", "--oneline"]).lines().count(), 1);

    // File tools see the same copy, and no other session does.
    let write = json!({"path": "from-tool.txt", "content": "tool\n"}).to_string();
    daemon.quack(&["tool", "write_file", &write, "--session", "two"]).ok();
    assert_eq!(
        bash(&daemon, "two", "cat from-tool.txt; ls lib 2>&1 || true").lines().next(),
        Some("tool")
    );
    assert!(!repo.path().join("from-tool.txt").exists());

    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(
        stat.lines().collect::<Vec<_>>(),
        ["A  lib/lib.rs", "A  lib/main.rs", "D  src/lib.rs", "D  src/main.rs"]
    );
    let applied = daemon.quack(&["apply", "--session", "one"]).ok();
    assert!(
        applied.contains("Applied 4 files. To take this back: quack apply --undo --session "),
        "{applied}"
    );
    assert_eq!(repo.read("lib/lib.rs"), "one\nTWO\nthree\nfour\nfive\n");
    assert!(!repo.path().join("src").exists());

    // The other session still has the files as they were copied; its own change is added.
    daemon.quack(&["apply", "--session", "two"]).ok();
    assert_eq!(repo.read("from-tool.txt"), "tool\n");
    let undone = daemon.quack(&["apply", "--undo", "--session", "one"]).ok();
    assert!(undone.contains("Took back 4 files."), "{undone}");
    assert!(undone.contains("D  lib/lib.rs\n") && undone.contains("A  src/lib.rs\n"), "{undone}");
    assert_eq!(repo.read("src/lib.rs"), "one\ntwo\nthree\nfour\nfive\n");
    assert_eq!(repo.read("from-tool.txt"), "tool\n");
}

#[test]
fn both_sides_are_merged_and_a_conflict_writes_nothing() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    bash(&daemon, "one", "sed -i s/two/TWO/ src/lib.rs; echo made > made.txt; echo evil > .envrc");
    repo.write("src/lib.rs", "one\ntwo\nthree\nfour\nFIVE\n");
    let patch = daemon.quack(&["diff", "--session", "one"]).ok();
    assert!(patch.contains("+++ b/src/lib.rs\n") && patch.contains("-two\n+TWO\n"), "{patch}");
    let applied = daemon.quack(&["apply", "--session", "one"]).ok();
    assert!(
        applied.contains("A  .envrc  left out: is run when a shell or a tool starts"),
        "{applied}"
    );
    assert!(applied.contains("M  src/lib.rs  merged with changes of the workspace"), "{applied}");
    assert_eq!(repo.read("src/lib.rs"), "one\nTWO\nthree\nfour\nFIVE\n");
    assert!(!repo.path().join(".envrc").exists());

    bash(&daemon, "one", "sed -i s/TWO/session/ src/lib.rs; echo 2 > made.txt");
    repo.write("src/lib.rs", "one\nuser\nthree\nfour\nFIVE\n");
    let refused = daemon.quack(&["apply", "--session", "one"]);
    assert_eq!(refused.code(), Some(1));
    let text = refused.stdout();
    assert!(
        text.contains("M  src/lib.rs  conflict: changed on both sides, in the same lines"),
        "{text}"
    );
    assert!(text.contains("Nothing was written: 1 conflict."), "{text}");
    assert_eq!(repo.read("made.txt"), "made\n");
    let marked = daemon.quack(&["apply", "--session", "one", "--merge", "markers"]);
    assert_eq!(marked.code(), Some(0), "{}", marked.stdout());
    assert!(repo.read("src/lib.rs").contains("<<<<<<<"));
    assert_eq!(repo.read("made.txt"), "2\n");

    // With a digest only what was seen is written.
    bash(&daemon, "one", "echo 3 > made.txt");
    let seen = daemon.quack(&["diff", "--session", "one", "--json"]).json();
    bash(&daemon, "one", "echo 4 > made.txt");
    let digest = seen["digest"].as_str().unwrap();
    let late = daemon.quack(&["apply", "--session", "one", "--expect", digest]);
    assert_eq!(late.code(), Some(1));
    assert!(late.stderr().contains("changed since the comparison"), "{}", late.stderr());
}

#[test]
fn a_copy_outlives_worker_and_daemon_and_is_not_deleted_without_a_word() {
    needs!(Isolated);
    let mut daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    bash(&daemon, "one", "echo mine > mine.txt; echo layer > target/debug/new");
    let state = daemon.quack(&["state", "one", "--json"]).json();
    let worker = i32::try_from(state["worker"]["pid"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    wait_for("the daemon to see the death", || {
        let state = daemon.quack(&["state", "one", "--json"]).json();
        (state["worker"]["pid"].as_i64() != Some(worker.into())).then_some(())
    });
    assert_eq!(bash(&daemon, "one", "cat mine.txt target/debug/new"), "mine\nlayer\n");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    assert_eq!(bash(&daemon, "one", "cat mine.txt target/debug/new"), "mine\nlayer\n");

    let refused = daemon.quack(&["delete", "one", "--yes"]);
    assert_eq!(refused.code(), Some(1));
    assert!(refused.stderr().contains("1 unapplied change"), "{}", refused.stderr());
    let discarded = daemon.quack(&["discard", "one", "--yes"]).ok();
    assert!(discarded.contains("has a new copy of"), "{discarded}");
    assert_eq!(
        bash(&daemon, "one", "ls mine.txt target/debug/new 2>&1 | wc -l; ls"),
        "2\nREADME.md\nsrc\ntarget\n"
    );
    let directory = daemon.app().join("isolated");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    daemon.quack(&["delete", "one", "--yes"]).ok();
    wait_for("the copy to be deleted", || {
        (fs::read_dir(&directory).unwrap().count() == 0).then_some(())
    });
    assert_eq!(repo.read("target/debug/app"), "built\n");
}

#[test]
fn changes_of_a_program_on_a_terminal_are_applied_while_it_runs_and_discarded_after_it() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    let at = repo.path().to_str().unwrap();
    let program = ["bash", "-c", "echo made >part && mv part new.txt; exec cat"];
    let options = ["run", "-d", "--isolated", "--name", "one", "-C", at, "--"];
    daemon.quack(&[&options[..], &program].concat()).ok();
    wait_for("the change", || {
        daemon.quack(&["diff", "--session", "one"]).ok().contains("new.txt").then_some(())
    });
    daemon.quack(&["apply", "--session", "one"]).ok();
    assert_eq!(repo.read("new.txt"), "made\n");

    // The program would work in the replaced directory.
    let refused = daemon.quack(&["discard", "one", "--yes"]);
    assert_eq!(refused.code(), Some(4), "{refused:?}");
    let text = refused.stderr();
    assert!(text.contains("1 background job is running; wait or end that"), "{text}");
    assert!(text.contains("quack jobs kill"), "{text}");
    daemon.quack(&["jobs", "kill", "term-1", "--session", "one"]).ok();
    wait_for("the end to be reported", || {
        (daemon.quack(&["discard", "one", "--yes"]).code() == Some(0)).then_some(())
    });
}

#[test]
fn what_an_isolated_session_may_not_do_is_refused() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    let at = repo.path().to_str().unwrap();
    // A session that is not isolated has nothing to apply.
    daemon.quack(&["new", "--name", "plain", at]).ok();
    let plain = daemon.quack(&["diff", "--session", "plain"]);
    assert_eq!(plain.code(), Some(1));
    assert!(plain.stderr().contains("is not isolated"), "{}", plain.stderr());

    isolated(&daemon, &repo, "one");
    // The workspace itself, the state of the daemon and the objects of the repository cannot be changed.
    let objects = "cd /run/quack/objects && touch x 2>&1; rm -rf /run/quack/objects/* 2>&1; true";
    bash(&daemon, "one", objects);
    assert_eq!(git(&repo, &["fsck"]), "");
    let state = daemon.app().join("isolated");
    let seen = bash(&daemon, "one", &format!("ls {} 2>&1 || true", state.display()));
    assert!(!seen.contains("tree"), "{seen}");
    // Hooks in its repository, and a repository in place of a link, are nothing to apply.
    bash(
        &daemon,
        "one",
        "mkdir -p sub && git init -q sub && echo evil > sub/.git/hooks/x; echo ok > sub/file",
    );
    symlink("/etc", repo.path().join("outside")).unwrap();
    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat, "A  sub/file\n");
    let wrong = daemon.quack(&["diff", "--session", "one", "../other"]);
    assert!(wrong.stderr().contains("paths must be in the workspace"), "{}", wrong.stderr());

    let fork = daemon.quack(&["fork", "--session", "one"]);
    assert!(fork.stderr().contains("cannot be forked"), "{}", fork.stderr());

    // Full access has no private view, and Pi is not confined.
    daemon.quack(&["sandbox", "set", "full-access", "--session", "one"]).ok();
    let refused = daemon.quack(&["tool", "bash", "true", "--session", "one"]);
    assert!(refused.code() != Some(0), "{}", refused.stdout());
    assert!(
        format!("{}{}", refused.stdout(), refused.stderr())
            .contains("full-access cannot be isolated")
    );
}

#[test]
fn an_apply_that_is_killed_leaves_all_or_nothing() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    bash(
        &daemon,
        "one",
        "for n in $(seq 200); do echo new > file-$n; done; echo changed > src/lib.rs",
    );
    let mut n_cut = 0;
    for _ in 0..6 {
        let mut apply = daemon.command(&["apply", "--session", "one", "--json"]);
        let mut apply = apply.spawn().unwrap();
        // Some files are written at this moment, or all were.
        wait_for("an apply to begin", || {
            let begun = repo.path().join("file-1").exists() || apply.try_wait().unwrap().is_some();
            begun.then_some(())
        });
        for process in daemon.descendants() {
            if process.name == "quack-isolate" {
                n_cut += usize::from(kill(Pid::from_raw(process.pid), Signal::SIGKILL).is_ok());
            }
        }
        apply.wait().unwrap();
        // The next command takes back what an interrupted one wrote.
        let report = daemon.quack(&["diff", "--session", "one", "--json"]).json();
        let (n_left, n_there) = (
            report["files"].as_array().unwrap().len(),
            (1..=200).filter(|n| repo.path().join(format!("file-{n}")).exists()).count(),
        );
        assert!(
            (n_left, n_there) == (201, 0) || (n_left, n_there) == (0, 200),
            "{n_left} {n_there}"
        );
        let staged = fs::read_dir(repo.path()).unwrap().flatten();
        let staged = staged.filter(|it| it.file_name().to_string_lossy().starts_with(".quackd-"));
        assert_eq!(staged.count(), 0);
        if n_there == 200 {
            daemon.quack(&["apply", "--undo", "--session", "one"]).ok();
        }
    }
    // Changes of an interrupted command are also taken back before its record goes with the copy.
    let mut apply = daemon.command(&["apply", "--session", "one", "--json"]).spawn().unwrap();
    wait_for("an apply to begin", || {
        let begun = repo.path().join("file-1").exists() || apply.try_wait().unwrap().is_some();
        begun.then_some(())
    });
    for process in daemon.descendants() {
        if process.name == "quack-isolate" {
            n_cut += usize::from(kill(Pid::from_raw(process.pid), Signal::SIGKILL).is_ok());
        }
    }
    apply.wait().unwrap();
    daemon.quack(&["delete", "one", "--force"]).ok();
    let n_there = (1..=200).filter(|n| repo.path().join(format!("file-{n}")).exists()).count();
    assert!(n_there == 0 || n_there == 200, "{n_there}");
    assert!(n_cut <= 14);
}

#[test]
fn each_agent_gets_its_own_copy() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    let claim = |name: &str, isolated: bool| {
        let wire = daemon.wire();
        wire.request("quack.hello", json!({"name": name}));
        let params = json!({"path": repo.path(), "isolated": isolated});
        let id = wire.request("quack.claim", params)["session"]["id"].as_str().unwrap().to_owned();
        (wire, id)
    };
    let (one, first) = claim("agent", true);
    let (two, second) = claim("agent", true);
    let (three, third) = claim("agent", false);
    assert_eq!([&first, &second, &third].iter().collect::<BTreeSet<_>>().len(), 3);
    for (wire, id) in [(&one, &first), (&two, &second), (&three, &third)] {
        let arguments = json!({"path": "who.txt", "content": id});
        wire.request(
            "quack.tool",
            json!({"sessionId": id, "tool": "write_file", "arguments": arguments}),
        );
    }
    // The agent without a copy wrote the workspace; the others have their own files.
    assert_eq!(repo.read("who.txt"), third);
    for id in [&first, &second] {
        assert_eq!(bash(&daemon, id, "cat who.txt"), *id);
    }
    // The next agent that wants a copy gets a free one, with its changes.
    let gone = |wire: Wire, n_left: u64| {
        drop(wire);
        wait_for("the daemon to forget the client", || {
            let clients = daemon.wire().request("quack.ps", json!({}));
            (clients["namedClients"] == n_left).then_some(())
        });
    };
    gone(one, 2);
    let (again, next) = claim("agent", true);
    assert_eq!(next, first);
    assert_eq!(bash(&daemon, &next, "cat who.txt"), first);
    let state = daemon.quack(&["state", &next]).ok();
    assert!(state.contains("a private copy of the workspace"), "{state}");

    // A free one without changes gets the workspace as it is now.
    repo.write("who.txt", &first);
    daemon.quack(&["apply", "--session", &next]).ok();
    repo.write("later.txt", "later");
    gone(again, 2);
    let (_third, next) = claim("agent", true);
    assert_eq!(next, first);
    assert_eq!(bash(&daemon, &next, "cat later.txt"), "later");
}

#[test]
fn the_session_gets_new_files_and_commits_of_the_workspace() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    bash(&daemon, "one", "echo mine > mine.txt; sed -i s/two/TWO/ src/lib.rs");
    repo.write("src/lib.rs", "one\ntwo\nthree\nfour\nFIVE\n");
    repo.write("later.txt", "later\n");
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-q", "-m", "second"]);

    let dry = daemon.quack(&["refresh", "--session", "one", "--dry-run"]).ok();
    assert!(
        dry.contains("A  later.txt\nM  src/lib.rs  merged with changes of the session"),
        "{dry}"
    );
    assert_eq!(bash(&daemon, "one", "ls later.txt 2>&1 | wc -c").len(), "49\n".len());
    let refreshed = daemon.quack(&["refresh", "--session", "one", "--json"]).json();
    assert_eq!(
        (&refreshed["written"], &refreshed["files"][0]["path"]),
        (&json!(true), &json!("later.txt"))
    );
    assert!(refreshed["notes"].to_string().contains("has the new commits"), "{refreshed}");
    let seen = bash(
        &daemon,
        "one",
        "cat later.txt src/lib.rs; git log -1 --format=%s; git status --short",
    );
    assert_eq!(seen, "later\none\nTWO\nthree\nfour\nFIVE\nsecond\n M src/lib.rs\n?? mine.txt\n");
    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat, "A  mine.txt\nM  src/lib.rs\n");
    let again = daemon.quack(&["refresh", "--session", "one"]).ok();
    assert_eq!(again, "project/one has everything that changed in the workspace.\n");

    // Also a session without a worker gets new commits.
    isolated(&daemon, &repo, "idle");
    git(&repo, &["commit", "-q", "--allow-empty", "-m", "third"]);
    let refreshed = daemon.quack(&["refresh", "--session", "idle"]).ok();
    assert_eq!(refreshed, "Brought the commits of the workspace into project/idle.\n");
    assert_eq!(bash(&daemon, "idle", "git log -1 --format=%s"), "third\n");

    // A conflict writes nothing.
    repo.write("mine.txt", "of the user\n");
    repo.write("other.txt", "other\n");
    let refused = daemon.quack(&["refresh", "--session", "one"]);
    assert_eq!(refused.code(), Some(1));
    assert!(refused.stdout().contains("Nothing was written: 1 conflict."), "{}", refused.stdout());
    let ours = daemon.quack(&["refresh", "--session", "one", "--merge", "ours"]).ok();
    assert!(ours.ends_with("Brought 2 files of the workspace into project/one.\n"), "{ours}");
    assert_eq!(bash(&daemon, "one", "cat mine.txt other.txt"), "of the user\nother\n");

    // Running work needs a word of the user.
    daemon.quack(&["tool", "bash", "--detach", "sleep 600", "--session", "one"]).ok();
    repo.write("last.txt", "last\n");
    let busy = daemon.quack(&["refresh", "--session", "one"]);
    assert_eq!(busy.code(), Some(4), "{}", busy.stderr());
    daemon.quack(&["refresh", "--session", "one", "--force"]).ok();
    assert_eq!(bash(&daemon, "one", "cat last.txt"), "last\n");
}

#[test]
fn the_workspace_gets_the_commits_of_the_session_and_runs_nothing_of_it() {
    let daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    let none = daemon.quack(&["apply", "--commits", "--session", "one"]).ok();
    assert_eq!(none, "project/one made no commits that the workspace lacks.\n");

    // The repository of the session is full of traps: none of them may run outside.
    let trap = repo.path().join("TRAP");
    let trap = trap.display();
    bash(
        &daemon,
        "one",
        "echo made > made.txt; git add made.txt; git commit -q -m 'a subject'; echo 2 > made.txt; git commit -qam 'second subject'",
    );
    let config = format!(
        "[core]\n\tfsmonitor = touch {trap}\n\thooksPath = hooks\n\tpager = touch {trap}\n\tsshCommand = touch {trap}\n\
         [uploadpack]\n\tpackObjectsHook = touch {trap}\n[log]\n\tshowSignature = true\n[gpg]\n\tprogram = touch {trap}\n"
    );
    let copy = fs::read_dir(daemon.app().join("isolated")).unwrap().next().unwrap().unwrap();
    let inside = copy.path().join("tree/.git");
    let own = fs::read_to_string(inside.join("config")).unwrap();
    fs::write(inside.join("config"), format!("{own}{config}")).unwrap();
    git(&repo, &["config", "core.hooksPath", "traps"]);
    let hook = format!("#!/bin/sh\ntouch {trap}\n");
    for hooks in [inside.join("hooks"), repo.path().join("traps")] {
        fs::create_dir_all(&hooks).unwrap();
        for name in ["reference-transaction", "post-checkout", "pre-auto-gc"] {
            fs::write(hooks.join(name), &hook).unwrap();
            fs::set_permissions(hooks.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    let listed = daemon.quack(&["diff", "--commits", "--session", "one"]).ok();
    let subjects: Vec<_> = listed.lines().filter_map(|line| line.split_once("  ")).collect();
    assert_eq!(
        subjects.iter().map(|(_, it)| *it).collect::<Vec<_>>(),
        ["second subject", "a subject"]
    );
    let applied = daemon.quack(&["apply", "--commits", "--session", "one"]).ok();
    assert!(applied.ends_with("To take them over: git merge quack/project/one\n"), "{applied}");
    assert!(!repo.path().join("TRAP").exists());
    git(&repo, &["config", "--unset", "core.hooksPath"]);
    fs::remove_dir_all(repo.path().join("traps")).unwrap();

    // Nothing of the user's changed but the reference.
    assert_eq!(git(&repo, &["status", "--porcelain"]), "");
    assert_eq!(git(&repo, &["log", "--oneline"]).lines().count(), 1);
    assert_eq!(
        git(&repo, &["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main\nrefs/quack/project/one\n"
    );
    git(&repo, &["merge", "-q", "quack/project/one"]);
    assert_eq!(repo.read("made.txt"), "2\n");
    assert_eq!(git(&repo, &["fsck", "--strict"]), "");

    // Rewritten commits replace the earlier ones.
    bash(
        &daemon,
        "one",
        "git config --unset-all core.fsmonitor; git commit -q --amend -m rewritten",
    );
    daemon.quack(&["apply", "--commits", "--session", "one"]).ok();
    assert_eq!(git(&repo, &["log", "-1", "--format=%s", "quack/project/one"]), "rewritten\n");

    // Forged objects are refused.
    let forged = "git hash-object -t tree -w --stdin --literally < /dev/null; \
                  t=$(printf '100644 .git\\0aaaaaaaaaaaaaaaaaaaa' | git hash-object -t tree -w --stdin --literally); \
                  git update-ref HEAD $(git commit-tree $t -m forged)";
    bash(&daemon, "one", forged);
    let refused = daemon.quack(&["apply", "--commits", "--session", "one"]);
    assert_eq!(refused.code(), Some(1), "{}", refused.stdout());
    assert!(refused.stderr().contains("Git failed: "), "{}", refused.stderr());
    assert_eq!(git(&repo, &["log", "-1", "--format=%s", "quack/project/one"]), "rewritten\n");
}

#[test]
fn the_next_daemon_takes_back_an_apply_that_did_not_end() {
    let mut daemon = Daemon::start();
    let repo = repository(&daemon);
    isolated(&daemon, &repo, "one");
    bash(&daemon, "one", "echo made > made.txt; rm src/lib.rs");
    daemon.quack(&["apply", "--session", "one"]).ok();
    assert!(repo.path().join("made.txt").exists());
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    // The state after the last write and before its end.
    let copy = fs::read_dir(daemon.app().join("isolated")).unwrap().next().unwrap().unwrap().path();
    #[expect(clippy::disallowed_methods, reason = "makes the state of an interrupted command")]
    fs::rename(copy.join("applied"), copy.join("applied.new")).unwrap();
    daemon.boot();
    wait_for("the daemon to take it back", || {
        (!repo.path().join("made.txt").exists() && repo.path().join("src/lib.rs").exists())
            .then_some(())
    });
    wait_for("the end of the work", || (!copy.join("applied.new").exists()).then_some(()));
    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat, "A  made.txt\nD  src/lib.rs\n");
}
