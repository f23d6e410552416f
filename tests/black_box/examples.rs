//! The clients in `examples/`, run as their READMEs describe, against a real daemon and the fake
//! Pi.

use crate::harness::{Daemon, Running, program, skipped};
use crate::schema::{strict, succeeds, tsc};
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const FAKE_PI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_pi.py");

/// Command of an example client.
struct Example {
    program: &'static str,
    args: Vec<String>,
    /// Directory with compiled files, kept until the test ends.
    _made: Option<TempDir>,
}

fn python() -> Option<Example> {
    let is_there = succeeds("python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]);
    if !is_there {
        skipped("no python3 of 3.9 or newer");
        return None;
    }
    let path = format!("{EXAMPLES}/python/quack_client.py");
    Some(Example { program: "python3", args: vec![path], _made: None })
}

/// Node with the original file if this Node strips types itself, otherwise with the compiler's
/// output.
fn typescript() -> Option<Example> {
    let source = format!("{EXAMPLES}/typescript/quack-client.ts");
    if succeeds("node", &["--experimental-strip-types", "-e", "0"]) {
        let flags = ["--experimental-strip-types", "--no-warnings"].map(str::to_owned);
        let args = flags.into_iter().chain([source]).collect();
        return Some(Example { program: "node", args, _made: None });
    }
    let (true, Some(tsc)) = (succeeds("node", &["--version"]), tsc()) else {
        skipped("no node that takes types out itself, and no node with a TypeScript compiler");
        return None;
    };
    let made = tempfile::tempdir().unwrap();
    for name in ["quack-client.ts", "package.json"] {
        std::fs::copy(format!("{EXAMPLES}/typescript/{name}"), made.path().join(name)).unwrap();
    }
    // The compiler reports missing types, but still writes JavaScript.
    succeeds(
        &tsc,
        &[
            "--target",
            "es2022",
            "--module",
            "nodenext",
            "--outDir",
            &text(made.path()),
            &text(&made.path().join("quack-client.ts")),
        ],
    );
    let path = text(&made.path().join("quack-client.js"));
    Some(Example { program: "node", args: vec![path], _made: Some(made) })
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl Example {
    fn command(&self, daemon: &Daemon, args: &[&str]) -> Command {
        let like = daemon.command(&[]);
        let mut command = program(self.program);
        command.args(&self.args).args(args).env_clear().stdin(Stdio::null());
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    #[track_caller]
    fn run(&self, daemon: &Daemon, args: &[&str]) -> Ran {
        Ran(self.command(daemon, args).output().unwrap())
    }
}

struct Ran(Output);

impl Ran {
    fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    fn stdout(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    fn stderr(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    #[track_caller]
    fn ended(&self, code: i32) -> String {
        assert_eq!(self.code(), Some(code), "{}{}", self.stdout(), self.stderr());
        self.stdout()
    }
}

#[test]
fn the_python_client_runs_tools_and_follows() {
    python().iter().for_each(tools_and_following);
}

#[test]
fn the_typescript_client_runs_tools_and_follows() {
    typescript().iter().for_each(tools_and_following);
}

#[test]
fn the_python_client_talks_to_pi() {
    python().iter().for_each(talking_to_pi);
}

#[test]
fn the_typescript_client_talks_to_pi() {
    typescript().iter().for_each(talking_to_pi);
}

#[test]
fn the_python_client_says_what_is_wrong() {
    python().iter().for_each(what_is_wrong);
}

#[test]
fn the_typescript_client_says_what_is_wrong() {
    typescript().iter().for_each(what_is_wrong);
}

#[test]
fn the_typescript_client_is_typed() {
    let Some(tsc) = tsc() else {
        skipped("no TypeScript compiler (tsc in PATH, or QUACKD_TSC)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["quack-client.ts", "package.json"] {
        std::fs::copy(format!("{EXAMPLES}/typescript/{name}"), dir.path().join(name)).unwrap();
    }
    let declarations = Daemon::absent().quack(&["schema", "--typescript"]).ok();
    std::fs::write(dir.path().join("quackd.d.ts"), declarations).unwrap();
    // Node's own types may not be installed. Only the protocol types are checked.
    let modules = ["crypto", "fs", "net", "path", "process", "readline", "util"];
    let modules = modules.map(|name| format!("declare module \"node:{name}\";\n")).concat();
    std::fs::write(dir.path().join("node.d.ts"), modules + "declare const Buffer: any;\n").unwrap();
    assert_eq!(strict(&tsc, dir.path(), &["node.d.ts", "quack-client.ts"]), Ok(()));
}

fn tools_and_following(example: &Example) {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("repo");
    let dir = text(repo.path());
    let tool = |args: &[&str]| example.run(&daemon, &[&["--dir", &dir, "tool"], args].concat());
    assert_eq!(tool(&["bash", "echo hé"]).ended(0), "hé\n\n[Exit code: 0]\n");
    let read = tool(&["read_file", "{\"path\":\"README.md\"}"]);
    assert_eq!(read.ended(0), "# A repository\n\n");
    assert_eq!(tool(&["bash", "exit 3"]).ended(1), "\n[Exit code: 3]\n");

    let following = Running::start(example.command(&daemon, &["--dir", &dir, "follow"]));
    assert_eq!(following.line(), format!("[follow] duck-1 {dir}"));
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    assert!(following.line().starts_with("[tool] bash {"));
    assert_eq!(following.line(), "[tool] bash done");
    following.signal(Signal::SIGINT);
    let (status, _) = following.status();
    // A shell shows 130 for both.
    assert!(status.code() == Some(130) || status.signal() == Some(2), "{status}");

    let following = Running::start(example.command(&daemon, &["--dir", &dir, "follow"]));
    following.line();
    wire.reply("quack.session_delete", json!({"sessionId": session.id}));
    assert_eq!(following.line(), "[session] deleted");
    wire.reply("quack.shutdown", json!({}));
    assert_eq!(following.wait(), (Some(0), String::new()));
    daemon.wait();
}

fn talking_to_pi(example: &Example) {
    let mut daemon = Daemon::absent();
    let (binary, pi_dir) = (
        format!("RUBBER_DUCK_PI_BINARY={FAKE_PI}"),
        format!("FAKE_PI_DIR={}", text(&daemon.home())),
    );
    daemon.boot_in(&["OPENAI_API_KEY=x", &binary, &pi_dir]);
    let repo = daemon.repo("repo");
    let dir = text(repo.path());
    let say = |words: &str, typed: &str| {
        let input: PathBuf = daemon.home().join("typed");
        std::fs::write(&input, typed).unwrap();
        let mut command = example.command(&daemon, &["--dir", &dir, "say", words]);
        Ran(command.stdin(File::open(input).unwrap()).output().unwrap())
    };
    let head = format!("[follow] duck-1 {dir}\n");
    assert_eq!(say("good day", "").ended(0), format!("{head}You said: good day\n"));
    let confirmed = say("confirm", "y\n").ended(0);
    assert!(confirmed.contains("[question] Sure? Really? [y/n]\n"), "{confirmed}");
    assert!(confirmed.contains("[question] closed: answered\n"), "{confirmed}");
    assert_ne!(say("confirm", "n\n").ended(0), confirmed);
    let chosen = say("select", "2\n").ended(0);
    assert!(chosen.contains("[question] Which?\n  1: a\n  2: b\n"), "{chosen}");
    assert!(say("select", "").ended(0).contains("closed: answered"));
    let refused = say("refuse", "");
    assert_eq!(refused.ended(1), head);
    assert_eq!(refused.stderr(), "error: No model selected\n");
    let died = say("die", "").ended(1);
    assert!(died.contains("half an ans") && died.contains("[error] "), "{died}");
}

fn what_is_wrong(example: &Example) {
    let mut daemon = Daemon::absent();
    let alone = example.run(&daemon, &["follow"]);
    assert_eq!(alone.ended(3), "");
    let expected = format!("error: no daemon listens on {} (", daemon.socket().display());
    assert!(alone.stderr().starts_with(&expected), "{}", alone.stderr());
    assert_eq!(alone.stderr().lines().count(), 1);
    // A state directory whose path is too long for a socket, and the socket name that
    // docs/protocol.md defines for it.
    let mut command = example.command(&daemon, &["follow"]);
    let far = command.env("RUBBER_DUCK_APP_SUPPORT", format!("/{}", "a".repeat(200)));
    let far = String::from_utf8(far.output().unwrap().stderr).unwrap();
    let socket = daemon.home().join(".quackd/duck-f7b36aaa140c.sock");
    assert!(far.contains(&format!("no daemon listens on {} (", socket.display())), "{far}");
    the_directory_is_found(example, &daemon);
    assert_eq!(example.run(&daemon, &["dance"]).code(), Some(2));

    daemon.boot();
    let refused = example.run(&daemon, &["--session", "nobody", "tool", "bash", "true"]);
    assert_eq!(refused.ended(1), "");
    assert_eq!(refused.stderr(), "error: Session not found: nobody\n");
}

/// Without an environment variable, the client uses the same directory as `quack`. The choice
/// depends on the existing files.
#[cfg(target_os = "linux")]
fn the_directory_is_found(example: &Example, daemon: &Daemon) {
    let (ours, shared) = (".local/state/quackd", "Library/Application Support/RubberDuck");
    for (made, found) in [(None, ours), (Some(shared), shared), (Some(ours), shared), (None, ours)]
    {
        match made {
            Some(dir) => std::fs::create_dir_all(daemon.home().join(dir)).unwrap(),
            // Last round: a lock file exists.
            None if daemon.home().join(ours).exists() => {
                std::fs::write(daemon.home().join(ours).join("quackd.lock"), "").unwrap();
            }
            None => {}
        }
        let mut command = example.command(daemon, &["follow"]);
        let said = command.env_remove("RUBBER_DUCK_APP_SUPPORT").output().unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        let socket = daemon.home().join(found).join("daemon.sock");
        assert!(said.contains(&format!("listens on {} (", socket.display())), "{found}: {said}");
    }
}

#[cfg(not(target_os = "linux"))]
fn the_directory_is_found(_example: &Example, _daemon: &Daemon) {}
