//! Git in a session does what git does outside: the same commands in two equal trees, with the user's settings of every
//! scope, a linked worktree, a submodule and a clone with alternates.

use crate::harness::{Daemon, Session, write_file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Equal times and no translations, so that equal commands print equal texts and make equal commits.
const FIXED: &str = "export LC_ALL=C GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'";

/// Builds a tree in the current directory: the repository `app`, and beside it its worktree `wt` and its submodule's origin.
const TREE: &str = r"set -e
git init -q lib; (cd lib; echo lib >lib.txt; git add -A; git commit -qm lib)
git init -q app; cd app
printf 'a\nb\nc\n' >a.txt; printf 'x\r\ny\r\n' >dos.txt; echo '*.log' >.gitignore; mkdir sub; echo 1 >sub/one
touch -d 2026-01-01 *.txt .gitignore sub/one; git add -A; git commit -qm first
git checkout -q -b side; echo side >>a.txt; git commit -qam side; git checkout -q main
echo main >>a.txt; echo b >b.txt; git add -A; git commit -qm second
git -c protocol.file.allow=always submodule -q add ../lib lib; git commit -qm submodule
git worktree add -q ../wt side; (cd ../wt; echo staged >staged; git add staged; echo u >untracked)
git clone -q --shared . shared; echo /shared >>.git/info/exclude
echo secret >.env.local; echo x >note.ign; echo y >new.txt";

/// What is compared: text and exit code. docs/security.md lists what a session refuses on purpose: changes of git's settings
/// (also `git branch -d`, `git submodule init`), and of worktrees that it does not see.
const COMMANDS: &[&str] = &[
    "git st",
    "git status --porcelain --ignored",
    "git worktree list",
    "git worktree prune -v",
    "git log --oneline --graph --all",
    "git ls-files --others --exclude-standard",
    "git check-ignore .env.local note.ign new.txt",
    "git config --get-all user.email",
    "git config --get-all safe.directory",
    "git clean -nd",
    "git add -A 2>&1 && git status --short",
    "git commit -qm third && git log -1 --format='%an %ae %cn %s %H'",
    "echo z >>b.txt; git diff",
    "git stash -q && git stash list && git stash pop -q && git status --short",
    "git commit -qam fourth; git rev-parse HEAD",
    "git merge side 2>&1; git diff; cat a.txt",
    "git merge --abort; git status --short",
    "git rebase -q HEAD~1 2>&1; git rebase --autostash HEAD~2 2>&1; git log --oneline -3",
    "git cherry-pick side 2>&1 | head -2; git cherry-pick --abort; git status --short",
    "git revert --no-edit HEAD 2>&1 | head -2; git log -1 --format=%s",
    "git reset -q --hard HEAD~1; git log --oneline -1",
    "git tag -a v1 -m v1; git describe; git tag -n",
    "git checkout -q -b topic; git branch -vv; git switch -q main; git branch -q -D topic 2>/dev/null; git branch",
    "git clean -fdq; ls -A",
    "git submodule status",
    "(cd lib && git log --oneline && git status --short)",
    "(cd shared && git log --oneline && git fsck --no-dangling 2>&1 && git commit -q --allow-empty -m empty && git log --oneline -1)",
    "git gc -q 2>&1; git fsck --no-dangling 2>&1",
    "git -c gc.worktreePruneExpire=now gc -q --prune=now 2>&1; git worktree list",
    "git -c gc.worktreePruneExpire=now worktree prune -v; git show-ref",
    "git reflog expire --expire=now HEAD main; git reflog",
    "git -c gc.auto=1 -c gc.autoDetach=false -c gc.worktreePruneExpire=now commit -q --allow-empty -m auto 2>&1; git worktree list",
    "git pack-refs --all; git show-ref",
    "git notes add -m n; git notes show",
    "git archive HEAD | sha1sum",
    "git blame -s a.txt",
    "git grep -n main",
    "git shortlog -sn HEAD",
    "git rev-parse --git-dir --git-common-dir --show-toplevel --is-inside-work-tree",
    "git init -q fresh && git -C fresh symbolic-ref HEAD && git -C fresh status --short; rm -rf fresh",
    "git format-patch -1 --stdout HEAD | sha1sum",
    "git rm -q --cached b.txt; git status --short; git reset -q; git status --short",
    "git mv sub/one sub/two; git commit -qm moved; git show --stat --format=%s",
    "git ls-tree -r HEAD",
    "git update-index --refresh; git diff-index HEAD",
    "git bisect start -q HEAD HEAD~2 2>&1; git bisect reset 2>&1 | tail -1",
    "git cat-file -p HEAD",
    "git switch -q side 2>&1 | sed 's/ at .*//'",
];

/// The user's settings: included, conditional, of the XDG directory, and files of ignored names and attributes.
#[track_caller]
fn write_settings(home: &Path) {
    let write = |name: &str, text: &str| {
        write_file(home.join(name), text);
    };
    write(
        ".gitconfig",
        "[user]\n\tname = A B\n\temail = a@home\n[init]\n\tdefaultBranch = main\n[include]\n\tpath = more\n\
         [includeIf \"gitdir:**/app/\"]\n\tpath = at-app\n[safe]\n\tdirectory = /some/where\n",
    );
    write(
        "more",
        "[alias]\n\tst = status -s -b\n[merge]\n\tconflictStyle = diff3\n[core]\n\tautocrlf = input\n",
    );
    write("at-app", "[user]\n\temail = a@app\n");
    write(".config/git/config", "[diff]\n\tnoprefix = true\n[log]\n\tabbrevCommit = true\n");
    write(".config/git/ignore", ".env.local\n*.ign\n");
    write(".config/git/attributes", "*.txt whitespace=trailing-space\n");
}

/// A directory with the tree in it.
struct World {
    directory: PathBuf,
}

impl World {
    #[track_caller]
    fn build(daemon: &Daemon, name: &str) -> Self {
        let directory = fs::canonicalize(daemon.home().parent().unwrap()).unwrap().join(name);
        fs::create_dir_all(&directory).unwrap();
        let world = Self { directory };
        let (text, code) = world.outside(daemon, ".", TREE);
        assert_eq!(code, 0, "{text}");
        world
    }

    /// Runs a command outside of sessions. Returns its text, with `@` for the directory, and its exit code.
    fn outside(&self, daemon: &Daemon, at: &str, command: &str) -> (String, i32) {
        let mut shell = daemon.program_for_tests("bash");
        shell.args(["-c", &format!("{FIXED}; {command}")]).current_dir(self.directory.join(at));
        let ran = shell.stdin(Stdio::null()).output().expect("run bash");
        let text = [ran.stdout, ran.stderr].concat();
        (self.named(&String::from_utf8_lossy(&text)), ran.status.code().unwrap())
    }

    /// Runs a command in the session of `app`.
    fn inside(&self, session: &Session<'_>, command: &str) -> (String, i32) {
        let text = session.bash(&format!("{FIXED}; {command}"));
        let (text, code) = text.rsplit_once("\n[Exit code: ").expect("an exit code");
        let text = if text.is_empty() { String::new() } else { format!("{text}\n") };
        (self.named(&text), code.trim_end_matches(']').parse().unwrap())
    }

    fn named(&self, text: &str) -> String {
        text.replace(self.directory.to_str().unwrap(), "@")
    }
}

#[test]
fn git_in_a_session_does_what_git_does_outside() {
    let daemon = Daemon::start();
    write_settings(&daemon.home());
    let (plain, confined) = (World::build(&daemon, "one"), World::build(&daemon, "two"));
    let wire = daemon.wire();
    let session = wire.attach(&confined.directory.join("app"));
    let mut differences = String::new();
    for command in COMMANDS {
        let (expected, found) =
            (plain.outside(&daemon, "app", command), confined.inside(&session, command));
        if (expected.0.trim_end(), expected.1) != (found.0.trim_end(), found.1) {
            differences
                .push_str(&format!("{command}\n  outside {expected:?}\n  inside  {found:?}\n"));
        }
    }
    assert!(differences.is_empty(), "{differences}");
    assert!(40 <= COMMANDS.len());
    // The other worktree is as it was, and so is what the user ignores.
    let look = "git -C wt status --short && git -C wt log --oneline && git -C wt fsck --no-dangling && ls -A app wt";
    assert_eq!(plain.outside(&daemon, ".", look), confined.outside(&daemon, ".", look));
    assert!(confined.outside(&daemon, ".", look).0.contains("A  staged\n?? untracked\n"));
}

#[test]
fn names_that_the_user_ignores_everywhere_are_ignored_by_every_tool() {
    let daemon = Daemon::start();
    write_settings(&daemon.home());
    let world = World::build(&daemon, "one");
    let app = world.directory.join("app");
    fs::write(app.join("seen.txt"), "needle\n").unwrap();
    fs::write(app.join("hidden.ign"), "needle\n").unwrap();
    let wire = daemon.wire();
    for profile in ["workspace-write", "full-access"] {
        let session = wire.attach(&app);
        let set = serde_json::json!({"sessionId": session.id, "action": "set", "profile": profile});
        wire.request("quack.sandbox", set);
        for (tool, arguments) in [
            ("search", serde_json::json!({"pattern": "needle", "output": "files"})),
            ("find", serde_json::json!({})),
            (
                "replace",
                serde_json::json!({"pattern": "needle", "replacement": "x", "dry_run": true}),
            ),
        ] {
            let text = session.call(tool, arguments);
            assert!(text.contains("seen.txt"), "{profile} {tool}: {text}");
            assert!(
                !text.contains("hidden.ign") && !text.contains(".env"),
                "{profile} {tool}: {text}"
            );
        }
    }
}

#[test]
fn commits_that_the_user_would_sign_are_not_made_unsigned_without_a_word() {
    let daemon = Daemon::start();
    let world = World::build_unsigned(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(&world.directory.join("app"));
    let line = "[Sandbox: what this command has committed is not signed, although your settings have commit.gpgSign";
    let text = session.bash("git commit -q --allow-empty -m one");
    assert!(text.contains(line) && text.ends_with("[Exit code: 0]"), "{text}");
    let text = session.bash("git log --oneline; git status --short");
    assert!(!text.contains(line), "{text}");
    // Nor for a commit of the user.
    let (text, code) =
        world.outside(&daemon, "app", "git commit -q --no-gpg-sign --allow-empty -m mine");
    assert_eq!(code, 0, "{text}");
    let text = session.bash("git log --oneline");
    assert!(text.contains("mine") && !text.contains(line), "{text}");
}

#[test]
fn a_clone_with_objects_elsewhere_says_why_git_fails() {
    let daemon = Daemon::start();
    write_settings(&daemon.home());
    let world = World::build(&daemon, "one");
    let (text, code) = world.outside(&daemon, ".", "git clone -q --shared app borrowed");
    assert_eq!(code, 0, "{text}");
    let wire = daemon.wire();
    let session = wire.attach(&world.directory.join("borrowed"));
    let text = world.named(&session.bash("git log --oneline"));
    assert!(
        text.contains(
            "[Sandbox: this repository is not complete: it reads objects of @/app/.git/objects,"
        ),
        "{text}"
    );
    // The proposed command completes the clone.
    let complete = "git -C borrowed repack -q -a -d && rm borrowed/.git/objects/info/alternates";
    assert_eq!(world.outside(&daemon, ".", complete).1, 0);
    assert!(session.bash("git log --oneline").ends_with("[Exit code: 0]"));
}

impl World {
    /// A tree whose user signs commits. It was built before.
    #[track_caller]
    fn build_unsigned(daemon: &Daemon) -> Self {
        write_settings(&daemon.home());
        let world = Self::build(daemon, "one");
        let more = "[commit]\n\tgpgSign = true\n[user]\n\tsigningKey = none\n";
        let settings = daemon.home().join(".gitconfig");
        let before = fs::read_to_string(&settings).unwrap();
        fs::write(settings, before + more).unwrap();
        world
    }
}
