//! Private copies that are sent to another machine and come back as differences and commits. The engine is a row whose
//! client is a shell on this machine with another home, so everything but the machine is real.

use crate::harness::{Cli, Daemon, Repo, write_program};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// The program under test, which is also that of the far side.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// A daemon with the engine `near`, whose machine has the home `far`. The client is a program that tests replace.
struct World {
    daemon: Daemon,
    client: PathBuf,
    far: PathBuf,
}

impl World {
    fn start() -> Self {
        let mut daemon = Daemon::absent();
        let (client, far) = (daemon.home().join("client"), daemon.home().join("far"));
        fs::create_dir_all(&far).expect("create a home");
        let start = json!([client, "{command}"]);
        daemon.configure(format!(
            "[engines.near]\nstart = {start}\nprogram = {QUACK:?}\ntarget = \"optional\"\nkeeps_files = true\n\n\
             [engines.box]\nlike = \"podman\"\n"
        ));
        daemon.boot();
        let world = Self { daemon, client, far };
        world.connect("\"$@\"");
        world
    }

    /// Lets the client run this script.
    fn connect(&self, script: &str) {
        let far = self.far.display();
        let text = format!(
            "#!/bin/bash\nexport HOME='{far}'\nunset XDG_DATA_HOME XDG_STATE_HOME XDG_CACHE_HOME\n{script}\nexit $?\n"
        );
        fs::remove_file(&self.client).ok();
        write_program(&self.client, text);
    }

    fn repository(&self) -> Repo {
        let repo = self.daemon.repo("project");
        let git = |words: &[&str]| self.daemon.git(repo.path(), words);
        git(&["init", "-q", "-b", "main"]);
        git(&["config", "user.name", "a"]);
        git(&["config", "user.email", "a@b"]);
        repo.write(".gitignore", "/target\n.env\n");
        repo.write("src/lib.rs", "one\ntwo\nthree\nfour\nfive\n");
        repo.write("crlf.txt", "a\r\nb\r\n");
        repo.write("run.sh", "#!/bin/sh\n");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(repo.path().join("run.sh"), executable).expect("set a mode");
        symlink("src/lib.rs", repo.path().join("link")).expect("create a link");
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "first"]);
        // Not converted on the way, whatever git would do.
        repo.write(".gitattributes", "* text=auto eol=lf\n");
        repo.write("staged.txt", "staged\n");
        git(&["add", "staged.txt"]);
        repo.write("staged.txt", "staged and changed\n");
        repo.write("un tracked\"\n.txt", "untracked\n");
        repo.write(".env", "KEY=1\n");
        repo.write("target/app", "built\n");
        repo
    }

    fn send(&self, repo: &Repo, name: &str) -> Cli {
        let at = repo.path().to_str().expect("a path");
        self.daemon.quack(&["new", "--on", "near:build1", "--send", "--name", name, at])
    }

    /// Runs a command in the session.
    fn bash(&self, session: &str, command: &str) -> String {
        self.daemon.quack(&["tool", "bash", "--raw", command, "--session", session]).ok()
    }

    /// Runs quack for the session.
    fn of(&self, session: &str, words: &[&str]) -> Cli {
        self.daemon.quack(&[words, &["--session", session]].concat())
    }

    /// Directories of sent copies there.
    fn copies(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.far.join(".local/share/quackd-sent")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    #[track_caller]
    fn tree(&self) -> PathBuf {
        let copies = self.copies();
        assert_eq!(copies.len(), 1, "{copies:?}");
        copies[0].join("tree")
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

#[test]
fn a_copy_goes_there_byte_for_byte_and_its_changes_come_back() {
    let world = World::start();
    let repo = world.repository();
    let at = repo.path().to_str().unwrap();
    let words = ["new", "--on", "near:build1", "--send", "--name", "one", "--json", at];
    let told = world.daemon.quack(&words).json()["note"].to_string();
    assert!(told.contains("sent to build1") && told.contains("not sent: target"), "{told}");

    let tree = world.tree();
    for name in ["src/lib.rs", "crlf.txt", "run.sh", "staged.txt", "un tracked\"\n.txt", ".env"] {
        assert_eq!(read(tree.join(name)), repo.read(name), "{name}");
    }
    assert!(fs::metadata(tree.join("run.sh")).unwrap().permissions().mode() & 0o100 != 0);
    assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("src/lib.rs"));
    assert!(!tree.join("target").exists());
    let status = ["status", "--porcelain", "-z", "--branch"];
    assert_eq!(world.daemon.git(&tree, &status), world.daemon.git(repo.path(), &status));

    let seen = world.bash(
        "one",
        "pwd; sed -i s/two/TWO/ src/lib.rs; echo new > new.txt; rm crlf.txt; chmod -x run.sh",
    );
    assert_eq!(seen.lines().next().unwrap(), tree.canonicalize().unwrap().display().to_string());
    let compared = world.of("one", &["diff", "--json"]).json();
    let files: Vec<_> =
        compared["files"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
    assert_eq!(files, ["crlf.txt", "new.txt", "run.sh", "src/lib.rs"]);
    assert_eq!(compared["place"], format!("build1:{}", tree.display()));

    world.of("one", &["apply"]).ok();
    assert_eq!(
        (repo.read("new.txt"), repo.read("src/lib.rs")),
        ("new\n".into(), "one\nTWO\nthree\nfour\nfive\n".into())
    );
    assert!(!repo.path().join("crlf.txt").exists());
    world.of("one", &["apply", "--undo"]).ok();
    assert_eq!(repo.read("crlf.txt"), "a\r\nb\r\n");

    let listed = world.daemon.quack(&["sessions"]).ok();
    assert!(listed.contains("sent to build1"), "{listed}");
    assert!(world.daemon.quack(&["ps"]).ok().contains("build1"));
    world.daemon.quack(&["delete", "one", "--force"]).ok();
    assert_eq!(world.copies(), Vec::<PathBuf>::new());
}

#[test]
fn commits_come_back_and_conflicts_are_told() {
    let world = World::start();
    let repo = world.repository();
    world.send(&repo, "one").ok();
    world.bash(
        "one",
        "git switch -qc work; sed -i s/two/theirs/ src/lib.rs; git commit -qam 'a commit'",
    );
    let listed = world.of("one", &["diff", "--commits"]).ok();
    assert!(listed.contains("a commit"), "{listed}");
    let applied = world.of("one", &["apply", "--commits"]).ok();
    assert!(applied.contains("refs/quack") || applied.contains("quack/"), "{applied}");
    let all = world.daemon.git(repo.path(), &["log", "--all", "--format=%s"]);
    assert!(all.contains("a commit"), "{all}");

    repo.write("src/lib.rs", "one\nours\nthree\nfour\nfive\n");
    let refused = world.of("one", &["apply"]);
    assert_ne!(refused.code(), Some(0), "{refused:?}");
    assert_eq!(repo.read("src/lib.rs"), "one\nours\nthree\nfour\nfive\n");
    world.of("one", &["apply", "--merge", "theirs"]).ok();
    assert!(repo.read("src/lib.rs").contains("theirs"));
}

#[test]
fn a_refresh_and_a_discard_change_the_copy_there() {
    let world = World::start();
    let repo = world.repository();
    world.send(&repo, "one").ok();
    world.bash(
        "one",
        "echo agent > agent.txt; mkdir target; echo far > target/app; git add agent.txt",
    );
    repo.write("src/lib.rs", "one\ntwo\nthree\nfour\nuser\n");
    repo.write("user.txt", "user\n");
    world.of("one", &["refresh"]).ok();
    let seen = world.bash(
        "one",
        "cat agent.txt user.txt target/app; tail -1 src/lib.rs; git diff --cached --name-only",
    );
    assert_eq!(seen, "agent\nuser\nfar\nuser\nagent.txt\nstaged.txt\n");

    world.daemon.quack(&["discard", "one", "--yes"]).ok();
    assert_eq!(
        world.bash("one", "ls; cat user.txt"),
        "README.md\ncrlf.txt\nlink\nrun.sh\nsrc\nstaged.txt\nun tracked\"\n.txt\nuser.txt\nuser\n"
    );
    assert!(world.of("one", &["diff"]).ok().is_empty());
}

#[test]
fn a_workspace_without_a_repository_is_sent_too() {
    let world = World::start();
    let repo = world.daemon.repo("plain");
    fs::remove_dir_all(repo.path().join(".git")).ok();
    repo.write("a.txt", "a\n");
    world.send(&repo, "one").ok();
    world.bash("one", "echo b > a.txt; git init -q .");
    world.of("one", &["apply"]).ok();
    assert_eq!(repo.read("a.txt"), "b\n");
    assert!(!repo.path().join(".git").exists());
}

#[test]
fn a_hostile_copy_runs_nothing_here_and_changes_nothing_but_the_copy() {
    let world = World::start();
    let repo = world.repository();
    world.send(&repo, "one").ok();
    world.bash("one", "true");
    let (tree, mark) = (world.tree(), world.daemon.home().join("mark"));
    let run = format!("touch '{}'", mark.display());
    let write = |name: &str, text: &str| {
        let at = tree.join(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    };
    write(".gitattributes", "* filter=evil diff=evil\n");
    let config = read(tree.join(".git/config"));
    let evil = format!(
        "[core]\n\tfsmonitor = {run}\n\thooksPath = hooks\n\tsshCommand = {run}\n[filter \"evil\"]\n\tclean = {run}; cat\n\
         \tsmudge = {run}; cat\n\trequired = true\n[diff \"evil\"]\n\ttextconv = {run}\n[uploadpack]\n\tpackObjectsHook = {run}\n\
         [alias]\n\tpack-objects = !{run}\n"
    );
    write(".git/config", &format!("{config}{evil}"));
    fs::create_dir_all(tree.join(".git/hooks")).unwrap();
    for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"] {
        write_program(&tree.join(".git").join("hooks").join(hook), format!("#!/bin/sh\n{run}\n"));
    }
    write(".GIT/config", &evil);
    write("git~1/config", &evil);
    write("nested/.git/config", &evil);
    write("nested/file", "nested\n");
    symlink(world.daemon.home(), tree.join("out")).unwrap();
    symlink("/etc/passwd", tree.join("src/passwd")).unwrap();

    let compared = world.of("one", &["diff", "--json"]).json();
    let files: Vec<_> = compared["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(files, [".gitattributes", "nested/file", "out", "src/passwd"]);
    world.of("one", &["apply", "nested/file"]).ok();
    assert_eq!(repo.read("nested/file"), "nested\n");
    world.of("one", &["diff", "--commits"]).ok();
    world.of("one", &["refresh"]).ok();
    assert!(!mark.exists(), "a program of the copy ran");
    let copy = world.daemon.app().join("isolated");
    for entry in fs::read_dir(copy).unwrap() {
        let here = entry.unwrap().path().join("tree");
        assert!(!here.join(".GIT").exists() && !here.join("git~1").exists());
        assert!(!read(here.join(".git/config")).contains("evil"));
    }
}

/// A client that fails after that many bytes of the far side's output.
fn cut(bytes: usize) -> String {
    format!("\"$@\" > >(dd bs=1 count={bytes} status=none; kill -9 $$)")
}

#[test]
fn a_lost_link_at_any_step_changes_nothing() {
    let world = World::start();
    let repo = world.repository();
    let lost = ["exit 255", "echo no route >&2; exit 255", "echo 'quackd: error no duck'; exit 1"]
        .map(str::to_owned);
    let lost: Vec<_> = lost.into_iter().chain([1, 100].map(cut)).collect();
    for script in &lost {
        world.connect(script);
        let refused = world.send(&repo, "one");
        assert_ne!(refused.code(), Some(0), "{script}: {refused:?}");
        assert!(refused.stderr().contains("build1"), "{script}: {}", refused.stderr());
    }
    let left = fs::read_dir(world.daemon.app().join("isolated")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no copy is left here");
    assert!(!world.daemon.quack(&["sessions"]).ok().contains("one"));

    world.connect("\"$@\"");
    world.send(&repo, "one").ok();
    world.bash("one", "echo agent > agent.txt");
    let before = world.of("one", &["diff"]).ok();
    world.bash("one", "echo later >> agent.txt");
    world.of("one", &["diff"]).ok();
    for script in lost.iter().chain([&cut(600)]) {
        world.connect(script);
        for words in [&["diff"][..], &["apply"], &["refresh"]] {
            let refused = world.of("one", words);
            assert_ne!(refused.code(), Some(0), "{script} {words:?}: {refused:?}");
            let text = refused.stderr();
            assert!(
                text.contains("build1") && text.contains("nothing was changed"),
                "{script}: {text}"
            );
        }
        assert!(!repo.path().join("agent.txt").exists());
        assert_ne!(world.daemon.quack(&["delete", "one", "--yes"]).code(), Some(0));
    }
    world.connect("\"$@\"");
    let after = world.of("one", &["diff"]).ok();
    assert!(after.contains("agent") && after.contains("later") && before != after, "{after}");
    assert_eq!(world.bash("one", "cat agent.txt"), "agent\nlater\n");

    world.connect("exit 255");
    let deleted = world.daemon.quack(&["delete", "one", "--force"]);
    deleted.ok();
    assert!(deleted.stderr().contains("were left"), "{deleted:?}");
}

#[test]
fn a_refreshed_copy_that_did_not_arrive_is_sent_by_the_next_refresh() {
    let world = World::start();
    let repo = world.repository();
    world.send(&repo, "one").ok();
    world.bash("one", "echo agent > agent.txt");
    repo.write("user.txt", "user\n");
    // The second start of the client fails: the copy comes here, and does not go back.
    let count = world.daemon.home().join("count");
    let count = count.display();
    world
        .connect(&format!("echo x >> '{count}'; [ $(wc -l < '{count}') = 1 ] || exit 255; \"$@\""));
    let refused = world.of("one", &["refresh"]);
    assert_ne!(refused.code(), Some(0), "{refused:?}");
    assert!(refused.stderr().contains("quack refresh sends it"), "{refused:?}");
    world.connect("\"$@\"");
    let call = world.of("one", &["tool", "bash", "--raw", "cat user.txt"]);
    assert!(call.stderr().contains("The copy on build1 is older"), "{call:?}");
    let compared = world.of("one", &["diff", "--stat"]).ok();
    assert!(compared.contains("agent.txt") && !compared.contains("user.txt"), "{compared}");
    world.of("one", &["refresh"]).ok();
    assert_eq!(world.bash("one", "cat agent.txt user.txt"), "agent\nuser\n");
}

#[test]
fn what_a_sent_session_cannot_do_is_refused_with_the_reason() {
    let world = World::start();
    let repo = world.repository();
    let at = repo.path().to_str().unwrap();
    for (on, part) in [("box:debian", "keeps_files"), ("nosuch:x", "nosuch"), ("near:-x", "target")]
    {
        let refused = world.daemon.quack(&["new", "--on", on, "--send", at]);
        assert_ne!(refused.code(), Some(0), "{on}");
        assert!(refused.stderr().contains(part), "{on}: {}", refused.stderr());
    }
    world.send(&repo, "one").ok();
    for words in [&["checkpoints"][..], &["restore", "0"]] {
        assert_ne!(world.of("one", words).code(), Some(0), "{words:?}");
    }
    assert_ne!(world.daemon.quack(&["fork", "one"]).code(), Some(0));
    let wire = world.daemon.wire();
    for change in [
        json!({"action": "allow", "rules": ["a.example"]}),
        json!({"action": "set", "writableRoots": ["/srv"]}),
    ] {
        let mut params = change.as_object().unwrap().clone();
        params.insert("sessionId".to_owned(), json!("one"));
        assert!(!wire.refused("quack.sandbox", json!(params)).is_empty());
    }
    assert!(world.daemon.quack(&["engines"]).ok().contains("keeps files"));
}
