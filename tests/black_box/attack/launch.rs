//! Attacks by a command on the process that launches it: links that the user's git follows, set-id files, the
//! order in which the kernel kills when memory runs out.

#![cfg(target_os = "linux")]

use crate::harness::tier::needs;
use crate::harness::users::{Program, User, become_user, best_tier, shell};
use crate::harness::{Daemon, Session, descendants_of, untested, wait_for};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// User id that no other test uses.
const SOMEBODY: u32 = 60_998;

/// Files that git writes by name during the user's next commands.
const WRITTEN_BY_NAME: &[&str] = &[
    "COMMIT_EDITMSG",
    "MERGE_MSG",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "FETCH_HEAD",
    "ORIG_HEAD",
    "logs/x",
    "index2",
    "refs/heads/x",
    "info/x",
    "objects/x",
    "objects/info/x",
];

/// Makes a set-id file in four ways; prints the modes that were reached.
const SET_ID: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_ulonglong), ("mode", ctypes.c_ulonglong), ("resolve", ctypes.c_ulonglong)]
def openat2(name, flags):
    how = How(flags, 0o6755, 0)
    return libc.syscall(437, -100, name, ctypes.byref(how), 24)
os.umask(0)
made = []
openat2(b"a", os.O_CREAT | os.O_WRONLY)
fd = openat2(b".", os.O_TMPFILE | os.O_WRONLY)
if fd >= 0:
    libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, b"b", 0x400)
for name, flags in ((b"c", os.O_CREAT | os.O_WRONLY), (b".", os.O_TMPFILE | os.O_WRONLY)):
    try:
        fd = os.open(name, flags, 0o6755)
        if name == b".":
            libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, b"d", 0x400)
    except OSError:
        pass
print("modes", [name for name in "abcd" if os.path.exists(name) and os.stat(name).st_mode & 0o6000])
"#;

/// Runs `work` with a daemon and a session in a real repository: as root, and as an ordinary user.
fn as_each_user(work: fn(&Daemon, &Session<'_>)) {
    for user in [User::Root, User::Ordinary] {
        if let Err(why) = best_tier(user) {
            untested(&why);
            continue;
        }
        std::thread::scope(|scope| {
            let run = scope.spawn(move || {
                if user == User::Ordinary {
                    become_user(SOMEBODY);
                }
                let (program, mut daemon) = (Program::new(user), Daemon::absent());
                daemon.boot_with(&program.path.to_string_lossy(), &["daemon"]);
                let path = repository(&daemon);
                let wire = daemon.wire();
                work(&daemon, &wire.attach(&path));
            });
            run.join().expect("no failure");
        });
    }
}

fn repository(daemon: &Daemon) -> PathBuf {
    let path = daemon.home().parent().expect("a directory").join("ws");
    fs::create_dir(&path).expect("a workspace");
    git(
        &path,
        "git init -q -b main . && git config user.name a && git config user.email a@b \
         && git config gc.auto 0 && echo 1 > f && git add f && git commit -qm one \
         && git clone -q --bare . ../remote && git remote add origin ../remote",
    );
    path
}

#[track_caller]
fn git(path: &Path, script: &str) {
    shell(path, &format!("export GIT_EDITOR=true HOME={}; {script}", path.display())).expect("git");
}

fn score_of(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?;
    text.trim().parse().ok()
}

#[test]
fn no_command_makes_a_link_that_git_would_write_through() {
    needs!(OwnTier);
    as_each_user(|daemon, session| {
        let root = Path::new(&session.path);
        let canary = daemon.home().join("canary");
        fs::write(&canary, "mine").expect("a file of the user's");
        let config = fs::read(root.join(".git/config")).expect("the settings");
        for name in WRITTEN_BY_NAME {
            session.bash(&format!("ln -sfn '{}' .git/{name}", canary.display()));
            session.bash(&format!("cd .git/{} && ln -sfn config $PWD/y; ln -s /x x", parent(name)));
            session.bash(&format!(
                "ln -s '{}' l; mv l .git/{name}; ln -P l .git/{name}",
                canary.display()
            ));
        }
        session.bash(
            "mkdir d && ln -s ../../f d/l && mv d .git/e; cp -a d .git/e; tar c d | tar x -C .git",
        );
        session.bash("ln -sfn config .git/COMMIT_EDITMSG; ln -sfn ../config .git/logs/z; rm -rf .git/logs/HEAD; ln -s ../config .git/logs/HEAD");
        let found = shell(root, "find .git -type l").expect("a list");
        assert_eq!(found, "", "links in .git");
        git(
            root,
            "git commit -q --amend --allow-empty -m x && git commit -q --allow-empty -m y && git fetch -q origin \
             && git tag -a -m t t && echo 2 > f && git stash -q && git stash pop -q",
        );
        assert_eq!(fs::read(root.join(".git/config")).expect("the settings"), config);
        assert_eq!(fs::read_to_string(&canary).expect("a file"), "mine");
    });
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or(".", |(parent, _)| parent)
}

#[test]
fn a_background_job_makes_no_such_link_after_its_call_has_ended() {
    needs!(OwnTier);
    as_each_user(|_, session| {
        let command =
            "until [ -e go ]; do sleep 0.02; done; exec 2>&1; ln -s config .git/MERGE_MSG";
        session.call("bash", json!({"command": command, "background": true}));
        session.bash("touch go");
        wait_for("the end of the job", || {
            let said = session.call("job_output", json!({"job": "job-1"}));
            (!said.contains("[Job running]")).then_some(())
        });
        assert!(fs::symlink_metadata(Path::new(&session.path).join(".git/MERGE_MSG")).is_err());
    });
}

#[test]
fn links_elsewhere_are_made_as_ever() {
    needs!(OwnTier);
    as_each_user(|_, session| {
        let script = "mkdir -p a/b && cd a/b && ln -s ../c rel && ln -s /abs abs && ln -s x $PWD/here \
                      && ln -s t /tmp/l && ln -s t ~/l && readlink rel abs here /tmp/l ~/l; ln -s x rel; ln -s x no/where; \
                      ln -s '' empty; ln -s x ../../.git/../a/through; readlink ../through; \
                      /usr/bin/python3 -c 'import os; d=os.open(\"..\", os.O_RDONLY); os.symlink(\"v\", \"at\", dir_fd=d); \
                      print(os.readlink(\"../at\")); os.symlink(\"w\"*4095, \"long\"); print(len(os.readlink(\"long\")))'";
        let text = session.bash(script);
        let (out, errors) = text.split_once("ln: ").expect("errors");
        assert_eq!(
            out.split_whitespace().collect::<Vec<_>>(),
            ["../c", "/abs", "x", "t", "t", "x", "v", "4095"]
        );
        for part in ["File exists", "No such file or directory"] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    });
}

#[test]
fn a_safe_call_makes_no_link() {
    needs!(OwnTier);
    as_each_user(|_, session| {
        let command = "find f -execdir ln -s f link ;";
        session.call("bash", json!({"command": command, "safeMode": true}));
        session.wire.request(
            "quack.tool",
            json!({"sessionId": session.id, "tool": "bash", "safeMode": true, "arguments": {"command": "ln -s f link"}}),
        );
        assert!(fs::symlink_metadata(Path::new(&session.path).join("link")).is_err());
    });
}

#[test]
fn no_command_makes_a_file_that_runs_with_its_owners_rights() {
    needs!(OwnTier);
    as_each_user(|_, session| {
        fs::write(Path::new(&session.path).join("make.py"), SET_ID).expect("a script");
        let text = session.bash("/usr/bin/python3 make.py; ls");
        if !Path::new("/usr/bin/python3").exists() {
            return untested("there is no /usr/bin/python3");
        }
        assert!(text.contains("modes []"), "{text}");
        for entry in fs::read_dir(&session.path).expect("a directory") {
            let mode = entry.expect("an entry").metadata().expect("a mode").permissions().mode();
            assert_eq!(mode & 0o6000, 0);
        }
    });
}

#[test]
fn when_memory_runs_out_commands_go_before_workers_and_workers_before_the_daemon() {
    needs!(OwnTier);
    as_each_user(|daemon, session| {
        let text = session.bash(
            "echo born $(cat /proc/self/oom_score_adj); for n in 0 -1000 100; do echo $n > /proc/self/oom_score_adj; \
             echo $n > /proc/$$/oom_score_adj; for t in /proc/*/oom_score_adj /proc/*/oom_adj /proc/thread-self/oom_adj; \
             do echo $n > $t; done; done 2>/dev/null; echo now $(cat /proc/$$/oom_score_adj)",
        );
        let value = |word: &str| -> i32 {
            let (_, rest) = text.split_once(word).expect("a word");
            rest.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
        };
        let daemon_score = score_of(daemon.pid()).expect("the daemon's score");
        let worker = score_of(session.pid("pid")).expect("the worker's score");
        assert!(daemon_score < worker, "{daemon_score} {worker}");
        assert!(worker < value("born") && worker < value("now"), "{worker}: {text}");
        // This includes the monitor and process 1 of each session. A newly forked process still has
        // the daemon's score, and an exited process has no score.
        wait_for("a higher score for every process below the daemon", || {
            let below = descendants_of(daemon.pid());
            below
                .iter()
                .all(|process| score_of(process.pid).is_none_or(|n| daemon_score < n))
                .then_some(())
        });
    });
}
