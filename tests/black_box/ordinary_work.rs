//! Ordinary work in the default profile: building, testing, committing and serving. If confinement
//! broke ordinary work, users would switch it off.
//!
//! Runs as the user of the tests. If that is root, also runs as an ordinary user. A user who cannot
//! read the tools of the other user skips them with a note.

#![cfg(target_os = "linux")]

use crate::harness::tier::needs;
use crate::harness::users::{Program, User, become_user, best_tier, shell};
use crate::harness::{Daemon, Session, wait_for, write_file};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// User id that no other test uses.
const SOMEBODY: u32 = 60_997;

/// The packages that this program was built with. Some of them are in the cargo cache of the user
/// who built it.
const LOCK: &str = include_str!("../../Cargo.lock");

/// The package without dependencies that is taken from that cache.
const CACHED: &str = "itoa";

/// One piece of work: name, required programs, command, and last line of its output.
type Work = (&'static str, &'static [&'static str], &'static str, &'static str);

const WORK: &[Work] = &[
    (
        "git: look, add, commit, branch, merge",
        &["git"],
        "echo more >> notes.txt && git status --short && git diff --stat && git add -A && git commit -qm two \
         && git branch side && git switch -q side && echo s > side.txt && git add side.txt \
         && git commit -qm three && git switch -q main && git merge -q --no-edit side && git tag v1 \
         && git log --oneline | wc -l",
        "3",
    ),
    (
        "git: stash, rebase, collect",
        &["git"],
        "echo x >> notes.txt && git stash -q && git stash pop -q && git checkout -q notes.txt \
         && git switch -qc topic HEAD~1 && echo t > topic.txt && git add . && git commit -qm t \
         && git rebase -q main && git switch -q main && git merge -q topic && git gc -q && git fsck \
         && git status --short | wc -l",
        "0",
    ),
    (
        "git: another worktree",
        &["git"],
        "git worktree add -q -b other wt && (cd wt && echo w > w.txt && git add w.txt && git commit -qm w) \
         && git worktree list | wc -l && git worktree remove wt && git log -1 --format=%s other",
        "w",
    ),
    ("gcc", &["gcc"], "gcc -O1 -o hello hello.c && ./hello", "hello from C"),
    ("make", &["make", "gcc"], "make -s -j2 && ./built", "hello from C"),
    ("python", &["python3"], "python3 -m unittest -q test_sums 2>&1 | tail -1", "OK"),
    ("npm", &["npm", "node"], "npm test --silent", "tests passed"),
    (
        "a server and its client",
        &["python3"],
        "python3 -m http.server --bind 127.0.0.1 8123 >log 2>&1 & server=$!\n\
         until python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8123/notes.txt\")\
         .read().decode().splitlines()[0])' 2>>errors; do sleep 0.05; done; kill $server; wait $server; rm log errors",
        "notes",
    ),
    (
        "a socket with a name",
        &["python3"],
        "python3 -c 'import socket,os\ns=socket.socket(socket.AF_UNIX);s.bind(\"s.sock\");s.listen()\n\
         c=socket.socket(socket.AF_UNIX);c.connect(\"s.sock\");s.accept();os.remove(\"s.sock\");print(\"met\")'",
        "met",
    ),
    (
        "pipelines",
        &[],
        "f=$(mktemp) && paste -sd+ <(seq 4) | tee >(cat > $f) && diff <(sort notes.txt) <(sort notes.txt) \
         && sort -R notes.txt | sort | uniq | wc -l && (flock 9; echo locked) 9>$f",
        "locked",
    ),
    (
        "archives",
        &["tar"],
        "tar --owner=1234 --group=1234 -czf a.tgz notes.txt && tar xzf a.tgz && tar tzf a.tgz && rm a.tgz",
        "notes.txt",
    ),
    (
        "processes",
        &["ps"],
        "sleep 100 & ps -o args | grep -c '^[s]leep 100'; kill $!; wait; nproc | grep -c '[1-9]'",
        "1",
    ),
    (
        "cargo build",
        &["cargo"],
        "cd crate && cargo build -q --offline && ./target/debug/small",
        "12 from a path",
    ),
    (
        "cargo test",
        &["cargo"],
        "cd crate && cargo test -q --offline 2>&1 | grep -o '1 passed' | head -1",
        "1 passed",
    ),
];

/// Files of the repository.
const FILES: &[(&str, &str)] = &[
    ("notes.txt", "notes\n"),
    (".gitignore", "crate/target\nhello\nbuilt\n__pycache__\n"),
    ("hello.c", "#include <stdio.h>\nint main(void) { puts(\"hello from C\"); return 0; }\n"),
    (
        "Makefile",
        "built: hello.o\n\tgcc -o $@ $<\nhello.o: hello.c\n\tgcc -c -o /tmp/$@ $< && cp /tmp/$@ .\n",
    ),
    (
        "test_sums.py",
        "import tempfile, unittest, multiprocessing\n\
         class Sums(unittest.TestCase):\n    \
         def test_sum(self):\n        \
         with tempfile.TemporaryFile() as f: f.write(b'x')\n        \
         with multiprocessing.Pool(2) as pool: self.assertEqual(pool.map(abs, [-1, 2]), [1, 2])\n",
    ),
    (
        "package.json",
        "{\"name\": \"small\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node test.js\"}}\n",
    ),
    (
        "test.js",
        "const { execFileSync } = require('child_process');\n\
         const { Worker } = require('worker_threads');\n\
         if (execFileSync('echo', ['x']).toString() !== 'x\\n') throw new Error('no child');\n\
         new Worker('process.exit(0)', { eval: true }).on('exit', () => console.log('tests passed'));\n",
    ),
    (
        "crate/src/main.rs",
        "fn main() {\n    println!(\"{} from a {}\", near::twelve(), kind::KIND);\n}\n\
      #[test]\nfn adds() {\n    assert_eq!(near::twelve(), \"12\");\n}\n",
    ),
    (
        "crate/near/Cargo.toml",
        "[package]\nname = \"near\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
    ),
    (
        "crate/vendor/kind/Cargo.toml",
        "[package]\nname = \"kind\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
    ),
    ("crate/vendor/kind/src/lib.rs", "pub const KIND: &str = \"path\";\n"),
];

/// Writes the repository. Its crate depends on a neighbor crate, a crate in `vendor`, and a crate
/// of cargo's cache if available.
fn write_repository(path: &Path, cargo_home: Option<&Path>) {
    for (name, content) in FILES {
        write_file(path.join(name), content);
    }
    let version = LOCK.split("\n\n").find_map(|package| {
        let rest = package.split_once(&format!("name = \"{CACHED}\"\nversion = \""))?.1;
        Some(rest.split_once('"')?.0)
    });
    let cached = version.filter(|version| cargo_home.is_some_and(|home| has_cached(home, version)));
    let (near, lib) = match cached {
        Some(version) => (
            format!("[dependencies]\n{CACHED} = \"={version}\"\n"),
            "itoa::Buffer::new().format(12).to_owned()",
        ),
        None => (String::new(), "12.to_string()"),
    };
    let manifest = path.join("crate/near/Cargo.toml");
    let head = fs::read_to_string(&manifest).expect("a manifest");
    write_file(manifest, format!("{head}{near}"));
    write_file(
        path.join("crate/near/src/lib.rs"),
        format!("pub fn twelve() -> String {{\n    {lib}\n}}\n"),
    );
    write_file(
        path.join("crate/Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\n\
         near = { path = \"near\" }\nkind = { path = \"vendor/kind\" }\n[workspace]\n",
    );
    let script = "git init -q -b main . && git config user.name a && git config user.email a@b && git add -A \
                  && git -c maintenance.auto=false commit -qm one";
    shell(path, script).expect("a repository");
}

fn has_cached(cargo_home: &Path, version: &str) -> bool {
    let registries = fs::read_dir(cargo_home.join("registry/cache"));
    let mut registries = registries.into_iter().flatten().filter_map(Result::ok);
    registries.any(|it| it.path().join(format!("{CACHED}-{version}.crate")).exists())
}

/// A user's machine: a home, a directory in it and a directory elsewhere, both with a repository.
struct Place {
    daemon: Daemon,
    home: PathBuf,
    /// Temporary directory in the home, which itself outlives the test.
    beneath_home: TempDir,
    _program: Program,
}

impl Place {
    fn new(user: User) -> Self {
        let mut daemon = Daemon::absent();
        let theirs = PathBuf::from(std::env::var("HOME").expect("a home"));
        let owner = fs::metadata(&theirs).map(|it| it.uid());
        let is_ours = owner.is_ok_and(|id| id == rustix::process::geteuid().as_raw());
        let home = if is_ours { theirs } else { daemon.home() };
        let beneath_home =
            tempfile::Builder::new().prefix("quackd-test").tempdir_in(&home).expect("a directory");
        let program = Program::new(user);
        let line = [
            format!("HOME={}", home.display()),
            program.path.display().to_string(),
            "daemon".to_owned(),
        ];
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        daemon.boot_with("env", &line);
        Self { daemon, home, beneath_home, _program: program }
    }

    fn elsewhere(&self) -> PathBuf {
        let path = self.daemon.home().parent().expect("a directory").join("ws");
        fs::create_dir(&path).expect("a directory");
        path
    }
}

/// Does all the work in one repository. Returns the failures.
fn work(place: &Place, path: &Path) -> Vec<String> {
    write_repository(path, Some(&place.home.join(".cargo")));
    let wire = place.daemon.wire();
    let session = wire.attach(path);
    let mut wrong = Vec::new();
    for (name, programs, command, last) in WORK {
        if let Some(program) = programs.iter().find(|program| !has(&session, program)) {
            tell(&format!(
                "skipped: {name} in {}: {program} cannot be run by this user",
                path.display()
            ));
            continue;
        }
        let text = bash(&session, command);
        let output = text.strip_suffix("\n\n[Exit code: 0]").unwrap_or_default();
        if output.lines().last() != Some(last) {
            wrong.push(format!("{name} in {}: {text}", path.display()));
        }
    }
    wrong.extend(background(&session));
    assert_eq!(session.worker()["policy"], "workspace-write");
    wrong
}

fn bash(session: &Session<'_>, command: &str) -> String {
    let params = json!({"tool": "bash", "sessionId": session.id, "timeoutMs": 120_000,
                        "arguments": {"command": command}});
    let data = session.wire.request("quack.tool", params);
    data["text"].as_str().expect("a text").to_owned()
}

/// Returns true if a program works without confinement. A shim for another user's toolchain does
/// not.
fn has(session: &Session<'_>, program: &str) -> bool {
    let directory = Path::new(&session.path);
    let path = std::env::var("PATH").expect("a path");
    let home = std::env::var("HOME").expect("a home");
    shell(directory, &format!("PATH={path} HOME={home} {program} --version")).is_ok()
}

/// Checks that a job continues next to other calls, and that its output can be read.
fn background(session: &Session<'_>) -> Option<String> {
    let arguments = json!({"command": "echo begun; until [ -e go ]; do sleep 0.02; done; echo ended", "background": true});
    let text = session.call("bash", arguments);
    let job = text
        .split_once("background job ")
        .map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned());
    let Some(job) = job else { return Some(text) };
    bash(session, "touch go");
    wait_for("a job to end", || {
        session.call("job_output", json!({"job": job})).contains("ended").then_some(())
    });
    None
}

#[expect(clippy::print_stderr, reason = "whoever reads the result has to know")]
fn tell(text: &str) {
    eprintln!("{text}");
}

/// Runs `work` in a thread with the rights of this user.
fn as_user(user: User, work: fn(&Place)) {
    if let Err(why) = best_tier(user) {
        return tell(&format!("skipped: {why}"));
    }
    let in_thread = move || {
        if user == User::Ordinary {
            become_user(SOMEBODY);
        }
        work(&Place::new(user));
    };
    std::thread::scope(|scope| scope.spawn(in_thread).join().expect("work"));
}

fn all_work(place: &Place) {
    let wrong =
        [place.elsewhere(), place.beneath_home.path().to_owned()].map(|path| work(place, &path));
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n---\n"));
}

#[test]
fn ordinary_work_succeeds_in_the_default_profile_as_root() {
    needs!(OwnTier);
    as_user(User::Root, all_work);
}

#[test]
fn ordinary_work_succeeds_in_the_default_profile_as_an_ordinary_user() {
    needs!(OwnTier);
    as_user(User::Ordinary, all_work);
}

#[test]
fn a_home_and_the_root_are_no_workspaces_and_the_refusal_says_how_to_go_on() {
    needs!(OwnTier);
    as_user(User::Ordinary, |place| {
        let wire = place.daemon.wire();
        for (workspace, reason) in [
            (place.home.as_path(), "is the home directory, which holds keys"),
            (Path::new("/"), "is the root of the file system"),
        ] {
            let text = wire.refused("attach", json!({"path": workspace}));
            let start =
                format!("Not a workspace: {} {reason}; name a directory", workspace.display());
            assert!(text.starts_with(&start), "{text}");
        }
    });
}
