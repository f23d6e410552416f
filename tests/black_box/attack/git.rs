//! Attacks through a workspace's git repositories, before and after the confinement exists.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Repo, Session, git_command, wait_for};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// User id without files on any system.
const SOMEBODY_ELSE: u32 = 60_998;

/// Runs the user's git outside of sessions.
fn git(daemon: &Daemon, at: &Path, args: &[&str]) -> Output {
    git_command(&daemon.home(), at, args).output().expect("run git")
}

/// Creates a repository with one commit.
#[track_caller]
fn committed(daemon: &Daemon, name: &str) -> Repo {
    let repo = daemon.repo(name);
    fs::remove_dir(repo.path().join(".git")).unwrap();
    daemon.git(repo.path(), &["init", "-q", "-b", "main"]);
    daemon.git(repo.path(), &["add", "-A"]);
    daemon.git(repo.path(), &["commit", "-q", "-m", "first"]);
    repo
}

fn fifo(path: &Path) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("make a FIFO");
}

/// Runs `true` in the workspace and returns the answer. That is another one if the supervisor has killed a start that
/// blocks on a FIFO.
#[track_caller]
fn answer_in_time(daemon: &Daemon, workspace: &Path, what: &str) -> String {
    let wire = daemon.wire();
    let session = wire.attach(workspace);
    let call = session.begin("bash", json!({"command": "true"}));
    wait_for(what, || call.is_there().then_some(()));
    call.text()
}

#[test]
fn a_fifo_in_the_place_of_what_git_reads_does_not_hold_a_start() {
    let daemon = Daemon::start();
    let outside = daemon.home().join("outside");
    fs::create_dir_all(outside.join("main/worktrees/w")).unwrap();
    let pipe = outside.join("pipe");
    fifo(&pipe);
    fifo(&outside.join("main/worktrees/w/gitdir"));
    // Targets of `.git` files.
    for (name, target) in [
        ("names", pipe.clone()),
        ("beneath", pipe.join("x")),
        ("gitdir", outside.join("main/worktrees/w")),
        ("device", PathBuf::from("/dev/ptmx")),
    ] {
        let repo = daemon.repo(name);
        fs::remove_dir(repo.path().join(".git")).unwrap();
        repo.write(".git", format!("gitdir: {}\n", target.display()));
        let text = answer_in_time(&daemon, repo.path(), name);
        assert_eq!(text, "\n[Exit code: 0]", "{name}");
    }
    // The `.git` itself, in a subdirectory that `attach` does not check.
    let repo = daemon.repo("itself");
    fs::create_dir(repo.path().join("sub")).unwrap();
    fifo(&repo.path().join("sub/.git"));
    assert_eq!(answer_in_time(&daemon, repo.path(), "itself"), "\n[Exit code: 0]");
    // A file that the repository's settings include.
    let repo = daemon.repo("included");
    fifo(&repo.path().join("shared"));
    repo.write(".git/config", "[include]\n\tpath = ../shared\n");
    assert_eq!(answer_in_time(&daemon, repo.path(), "included"), "\n[Exit code: 0]");
    // A file that the user's settings include.
    let repo = daemon.repo("user");
    let config = format!("[include]\n\tpath = {}\n[user]\n\tname = n\n", pipe.display());
    fs::write(daemon.home().join(".gitconfig"), config).unwrap();
    assert_eq!(answer_in_time(&daemon, repo.path(), "user"), "\n[Exit code: 0]");
}

/// Returns the modification time and the names of a directory. Every new file changes them.
fn state_of(directory: &Path) -> (i64, i64, Vec<PathBuf>) {
    let found = fs::symlink_metadata(directory).unwrap();
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    (found.mtime(), found.mtime_nsec(), names.collect())
}

/// Exchanges a directory and a link until `stop` is set, and returns the number of rounds. The link has the
/// name only briefly. Most lookups of one start therefore find the directory, and a late lookup finds the link.
fn swap(one: PathBuf, link: PathBuf, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let hold = |time: Duration| {
        let since = Instant::now();
        while since.elapsed() < time {
            std::hint::spin_loop();
        }
    };
    let target = fs::read_link(&link).expect("a link");
    let exchange = move || {
        if renameat_with(CWD, &one, CWD, &link, RenameFlags::EXCHANGE).is_err() {
            // The worker removed the link: the attacker creates it again.
            drop((fs::create_dir(&one), symlink(&target, &link)));
        }
    };
    std::thread::spawn(move || {
        let mut swaps = 0;
        while !stop.load(Ordering::Relaxed) {
            exchange();
            hold(Duration::from_micros(15));
            exchange();
            hold(Duration::from_micros(100));
            swaps += 1;
        }
        swaps
    })
}

/// Starts a worker `n` times in new sessions of a workspace, and returns the answers of `true`.
fn starts(daemon: &Daemon, workspace: &Path, n: usize) -> Vec<String> {
    let wire = daemon.wire();
    let start = |number: usize| {
        let params = json!({"path": workspace, "name": format!("s{number}")});
        let made = wire.request("quack.session_new", params);
        let id = made["session"]["id"].as_str().unwrap().to_owned();
        let call = json!({"sessionId": id, "tool": "bash", "arguments": "true"});
        let text = wire.request("quack.tool", call)["text"].as_str().unwrap().to_owned();
        wire.request("quack.session_delete", json!({"sessionId": id}));
        text
    };
    (0..n).map(start).collect()
}

#[test]
fn a_directory_that_is_swapped_with_a_link_while_workers_start_gets_nothing_made_in_it() {
    needs!(Race);
    let daemon = Daemon::start();
    let victim = daemon.repo("victim");
    // A directory of the user that no session may write.
    let other = daemon.home().join("other");
    fs::create_dir(&other).unwrap();
    let (before, hostile) = (state_of(&other), daemon.repo("hostile"));
    let main = hostile.path().join("main");
    fs::create_dir_all(main.join("worktrees/w")).unwrap();
    fs::create_dir_all(main.join("objects")).unwrap();
    fs::write(main.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let back = format!("{}\n", victim.path().join(".git").display());
    fs::write(main.join("worktrees/w/gitdir"), back).unwrap();
    fs::write(main.join("worktrees/w/commondir"), "../..\n").unwrap();
    symlink(&other, hostile.path().join("link")).unwrap();
    fs::remove_dir(victim.path().join(".git")).unwrap();
    victim.write(".git", format!("gitdir: {}\n", main.join("worktrees/w").display()));
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = swap(main, hostile.path().join("link"), Arc::clone(&stop));
    let texts = starts(&daemon, victim.path(), 40);
    stop.store(true, Ordering::Relaxed);
    assert!(100 < swapping.join().unwrap());
    assert_eq!(state_of(&other), before, "something was made in the user's other directory");
    for text in texts {
        let is_clear = text == "\n[Exit code: 0]" || text.contains("was replaced");
        assert!(is_clear, "{text}");
    }
}

#[test]
fn a_part_of_a_repository_that_is_swapped_with_a_link_leads_nowhere() {
    let daemon = Daemon::start();
    let victim = daemon.repo("victim");
    let other = daemon.home().join("other");
    fs::create_dir(&other).unwrap();
    let before = state_of(&other);
    victim.write("sub/.git/HEAD", "ref: refs/heads/main\n");
    fs::create_dir(victim.path().join("sub/.git/info")).unwrap();
    symlink(&other, victim.path().join("sub/link")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (info, link) = (victim.path().join("sub/.git/info"), victim.path().join("sub/link"));
    let swapping = swap(info, link, Arc::clone(&stop));
    starts(&daemon, victim.path(), 20);
    stop.store(true, Ordering::Relaxed);
    assert!(100 < swapping.join().unwrap());
    assert_eq!(state_of(&other), before, "something was made in the user's other directory");
}

#[test]
fn a_directory_of_path_that_was_swapped_with_a_link_shows_nothing() {
    let daemon = Daemon::start();
    let keys = daemon.home().join("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("id"), "secret").unwrap();
    // The directory is in the PATH of every session, and another session could replace it.
    let gates = daemon.home().with_file_name("gates");
    fs::remove_dir(&gates).unwrap();
    symlink(&keys, &gates).unwrap();
    let repo = daemon.repo("repo");
    let wire = daemon.wire();
    let read = wire.attach(repo.path()).bash(&format!(
        "cat {0}/id {1}/id",
        gates.display(),
        keys.display()
    ));
    assert!(!read.contains("secret"), "{read}");
}

/// The reply to `attach`.
fn attached(daemon: &Daemon, path: &Path) -> Value {
    daemon.wire().request("attach", json!({"path": path}))
}

#[test]
fn a_repository_of_another_user_does_not_widen_the_workspace() {
    if !rustix::process::geteuid().is_root() {
        return crate::harness::untested("only root can give files to another user");
    }
    let daemon = Daemon::start();
    let theirs = |path: &Path| chown(path, Some(SOMEBODY_ELSE), None).unwrap();
    // The other user owns the directory, the `.git`, or the repository that the `.git` names.
    let wide = daemon.repo("directory");
    theirs(wide.path());
    let git = daemon.repo("git");
    theirs(&git.path().join(".git"));
    let file = daemon.repo("file");
    fs::remove_dir(file.path().join(".git")).unwrap();
    file.write(".git", "gitdir: ../git/.git\n");
    let link = daemon.repo("link");
    fs::remove_dir(link.path().join(".git")).unwrap();
    symlink(git.path().join(".git"), link.path().join(".git")).unwrap();
    for repo in [&wide, &git, &file, &link] {
        let sub = repo.path().join("src");
        let reply = attached(&daemon, &sub);
        assert_eq!(reply["workspace"]["path"], sub.to_str().unwrap(), "{reply}");
        let note = reply["note"].as_str().unwrap_or_default();
        let owner = format!("belongs to user {SOMEBODY_ELSE}");
        assert!(note.contains(&owner) && note.contains(repo.path().to_str().unwrap()), "{reply}");
        let ran = daemon.quack(&["tool", "bash", "pwd", "-C", sub.to_str().unwrap()]);
        assert!(ran.stdout().starts_with(sub.to_str().unwrap()), "{ran:?}");
    }
    // The top directory itself is a workspace. Its `.git` is read-only and gets no placeholders.
    let before = state_of(&git.path().join(".git"));
    let text = answer_in_time(&daemon, git.path(), "their repository");
    assert_eq!(text, "\n[Exit code: 0]");
    assert_eq!(state_of(&git.path().join(".git")), before);
    let wire = daemon.wire();
    let session = wire.attach(git.path());
    let tried =
        session.bash("touch .git/hooks || mkdir .git/hooks; echo x > .git/config; ls -A .git");
    assert!(tried.contains("Read-only file system"), "{tried}");
    let own = daemon.repo("own");
    let reply = attached(&daemon, &own.path().join("src"));
    assert_eq!(reply["workspace"]["path"], own.path().to_str().unwrap());
    assert_eq!(reply.get("note"), None);
}

/// Shell function that plants links and FIFOs in the repository `$1`, some of them to the file `$2`.
const PLANT: &str = r#"plant() { cd "$1" || return
for name in COMMIT_EDITMSG MERGE_MSG SQUASH_MSG TAG_EDITMSG FETCH_HEAD ORIG_HEAD; do ln -sfn config .git/$name; done
mkdir -p .git/logs/refs/heads .git/info .git/refs
ln -sfn ../config .git/logs/HEAD
ln -sfn "$2" .git/logs/refs/stash
ln -sfn ../../../config .git/logs/refs/heads/main
ln -sfn "$2" .git/refs/stash
rm -f .git/MERGE_HEAD; mkfifo .git/MERGE_HEAD .git/info/pipe
cd - >/dev/null; }
"#;

#[test]
fn links_that_a_command_plants_in_git_lead_the_users_git_nowhere() {
    let daemon = Daemon::start();
    let repo = committed(&daemon, "repo");
    let upstream = committed(&daemon, "upstream");
    let diary = daemon.home().join("diary");
    fs::write(&diary, "dear diary\n").unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.bash("true"), "\n[Exit code: 0]");
    let config = repo.read(".git/config");
    let told = session.bash(&format!(
        "{PLANT}\nplant . '{0}' 2>/dev/null; git init -q -b main sub && cat sub/.git/config > kept && \
         plant sub '{0}'; git init -q -b main a/b/c && ln -s config a/b/c/.git/COMMIT_EDITMSG",
        diary.display()
    ));
    assert!(told.contains(" was removed, and "), "{told}");
    assert!(fs::symlink_metadata(repo.path().join("a/b/c/.git/COMMIT_EDITMSG")).is_err());
    let sub = repo.path().join("sub");
    let sub_config = fs::read(sub.join(".git/config")).unwrap();
    let up = upstream.path().to_str().unwrap();
    for at in [repo.path(), &sub] {
        fs::write(at.join("new"), "x").unwrap();
        // Some commands fail, for example a stash without a commit. Only the files matter.
        for args in [
            &["add", "new"][..],
            &["commit", "-q", "-m", "pwned"],
            &["commit", "-q", "--amend", "--allow-empty"],
            &["fetch", "-q", up, "main"],
            &["tag", "-a", "-m", "pwned", "v1"],
            &["tag", "-a", "v2"],
            &["merge", "-q", "--squash", "--allow-unrelated-histories", "FETCH_HEAD"],
            &["stash", "-q"],
        ] {
            git(&daemon, at, args);
        }
    }
    assert_eq!(repo.read(".git/config"), config);
    assert_eq!(fs::read(sub.join(".git/config")).unwrap(), sub_config);
    assert_eq!(fs::read_to_string(&diary).unwrap(), "dear diary\n");
    // The user's git works.
    let log = daemon.git(repo.path(), &["log", "--format=%s", "main"]);
    assert_eq!(log, "pwned\nfirst\n");
}

#[test]
fn a_job_that_plants_a_link_in_a_new_repository_is_told_and_undone_at_its_end() {
    let daemon = Daemon::start();
    let repo = daemon.repo("repo");
    fs::remove_dir(repo.path().join(".git")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let plant = "git init -q sub && ln -s config sub/.git/COMMIT_EDITMSG && ln -s README.md link";
    session.call("bash", json!({"command": plant, "background": true}));
    let told = session.call("job_output", json!({"job": "job-1", "wait_ms": 20_000}));
    assert!(told.contains("sub/.git/COMMIT_EDITMSG"), "{told}");
    assert!(fs::symlink_metadata(repo.path().join("sub/.git/COMMIT_EDITMSG")).is_err());
    // Links outside of git directories stay.
    assert!(fs::symlink_metadata(repo.path().join("link")).is_ok());
}

#[test]
fn what_was_linked_before_the_worker_began_stays_and_the_audit_names_it() {
    let daemon = Daemon::start();
    let repo = committed(&daemon, "repo");
    symlink("config", repo.path().join(".git/MERGE_MSG")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("echo x > new");
    assert!(fs::symlink_metadata(repo.path().join(".git/MERGE_MSG")).is_ok());
    let ran = daemon.quack(&["sandbox", "audit", "-C", repo.path().to_str().unwrap()]);
    assert_eq!(ran.code(), Some(1), "{ran:?}");
    assert!(ran.stdout().contains(".git/MERGE_MSG"), "{ran:?}");
}

#[test]
fn the_audit_finds_whatever_git_would_write_through() {
    let daemon = Daemon::start();
    let repo = committed(&daemon, "repo");
    let main = committed(&daemon, "main");
    let linked = repo.path().join("linked");
    daemon.git(main.path(), &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let at = repo.path().to_str().unwrap().to_owned();
    let audit = || daemon.quack(&["sandbox", "audit", "-C", &at]);
    let clean = audit();
    assert_eq!(clean.code(), Some(0), "{clean:?}");
    let git = repo.path().join(".git");
    fs::create_dir_all(git.join("modules/m/logs")).unwrap();
    fs::write(git.join("modules/m/HEAD"), "ref: refs/heads/main\n").unwrap();
    let link = |to: &str, at: &Path| symlink(to, at).unwrap();
    let links = [
        "COMMIT_EDITMSG",
        "SQUASH_MSG",
        "TAG_EDITMSG",
        "FETCH_HEAD",
        "MERGE_HEAD",
        "shallow",
        "packed-refs",
        "logs/x",
        "logs/refs/heads/y",
        "refs/heads/z",
        "modules/m/ORIG_HEAD",
        "modules/m/logs/HEAD",
        "objects/zz",
        "info/x",
        "new-name-of-a-later-git",
    ];
    let mut plants: Vec<PathBuf> = links.map(|name| git.join(name)).into();
    plants.push(main.path().join(".git/MERGE_MSG"));
    plants.push(main.path().join(".git/worktrees/linked/COMMIT_EDITMSG"));
    for plant in plants {
        fs::remove_file(&plant).ok();
        link("config", &plant);
        let found = audit();
        let name = plant.file_name().unwrap().to_str().unwrap();
        assert!(found.code() == Some(1) && found.stdout().contains(name), "{plant:?}: {found:?}");
        fs::remove_file(&plant).unwrap();
    }
    fifo(&git.join("logs/pipe"));
    assert_eq!(audit().code(), Some(1));
    fs::remove_file(git.join("logs/pipe")).unwrap();
    fs::create_dir_all(git.join("MERGE_MSG")).unwrap();
    assert_eq!(audit().code(), Some(1));
    fs::remove_dir(git.join("MERGE_MSG")).unwrap();
    fs::write(daemon.home().join("diary"), "x").unwrap();
    fs::hard_link(daemon.home().join("diary"), git.join("TAG_EDITMSG")).unwrap();
    assert_eq!(audit().code(), Some(1));
    fs::remove_file(git.join("TAG_EDITMSG")).unwrap();
    let clean = audit();
    assert_eq!(clean.code(), Some(0), "{clean:?}");
}

/// Tries to change what git runs and writes in the repository `at`. Fails the test if something succeeds.
#[track_caller]
fn assert_held(session: &Session<'_>, repo: &Path, at: &str) {
    // The first call creates the placeholders.
    session.bash("true");
    let before = state_of(&repo.join(at));
    let text = session.bash(&format!(
        "printf '#!/bin/sh\\n' > {at}/hooks/post-commit; echo '#' >> {at}/config; echo x > {at}/info/attributes; \
         ln -sfn config {at}/COMMIT_EDITMSG; mv {at}/hooks {at}/gone; mv {at} moved"
    ));
    for name in ["hooks/post-commit", "COMMIT_EDITMSG", "gone"] {
        assert!(fs::symlink_metadata(repo.join(at).join(name)).is_err(), "{name}: {text}");
    }
    assert_eq!(state_of(&repo.join(at)), before, "{text}");
}

/// Ends the worker with a command, and waits for the next worker.
fn end_worker(session: &Session<'_>, command: &str) {
    session.bash(&format!("{command}; kill -9 -1"));
    wait_for("another worker", || session.bash("echo ready").contains("ready").then_some(()));
}

#[test]
fn the_repository_of_a_linked_worktree_is_held_also_if_it_is_bare_and_in_the_workspace() {
    needs!(Links);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    fs::remove_dir_all(repo.path().join(".git")).unwrap();
    let seed = committed(&daemon, "seed");
    let source = seed.path().to_str().unwrap();
    git(&daemon, repo.path(), &["clone", "-q", "--bare", source, "repo.git"]);
    git(&daemon, &repo.path().join("repo.git"), &["worktree", "add", "-q", "../main"]);
    assert!(repo.path().join("main/.git").is_file());
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_held(&session, repo.path(), "repo.git");
    let reflog = "repo.git/logs/refs/heads/main";
    session.bash(&format!("rm -f {reflog}; mkdir -p repo.git/logs/refs/heads; ln -s /x {reflog}"));
    assert!(!fs::symlink_metadata(repo.path().join(reflog)).is_ok_and(|it| it.is_symlink()));
}

#[test]
fn a_repository_that_a_git_file_names_stays_held_whatever_a_command_makes_around_it() {
    needs!(Links);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    fs::remove_dir_all(repo.path().join(".git")).unwrap();
    fs::create_dir(repo.path().join("z")).unwrap();
    git(&daemon, repo.path(), &["init", "-q", "--separate-git-dir", "app.git", "z/app"]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_held(&session, repo.path(), "app.git");
    // The directory of a nearer `.git` is a repository itself.
    end_worker(&session, "mkdir -p app.git/.git");
    assert_held(&session, repo.path(), "app.git");
    // More repositories than can be mounted.
    end_worker(
        &session,
        "for i in $(seq 60); do for j in $(seq 20); do mkdir -p n$i/.git/modules/m$j; : > n$i/.git/modules/m$j/HEAD; \
         done; : > n$i/.git/HEAD; done",
    );
    assert_held(&session, repo.path(), "app.git");
}
