//! A daemon in a separate world.

use super::{Process, Wire, descendants_of, git, is_alive, tier, wait_for, write_file};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The program under test.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// A state directory, a home, and at most one daemon that the harness started.
pub(crate) struct Daemon {
    world: TempDir,
    child: Option<Child>,
}

impl Daemon {
    /// A world without a daemon.
    pub(crate) fn absent() -> Self {
        // Short, so that the socket's path fits.
        let world = tempfile::Builder::new().prefix("q").tempdir_in("/tmp").expect("a directory");
        std::fs::create_dir(world.path().join("home")).expect("a home");
        std::fs::create_dir(world.path().join("gates")).expect("a directory for gates");
        Self { world, child: None }
    }

    /// A running daemon with a configuration.
    #[track_caller]
    pub(crate) fn start_with(config: impl AsRef<[u8]>) -> Self {
        let mut daemon = Self::absent();
        daemon.configure(config);
        daemon.boot();
        daemon
    }

    /// Writes the configuration in the state directory.
    #[track_caller]
    pub(crate) fn configure(&self, config: impl AsRef<[u8]>) {
        write_file(self.app().join("quackd.toml"), config);
    }

    /// A running daemon.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let mut daemon = Self::absent();
        daemon.boot();
        daemon
    }

    /// Starts the daemon and waits until it answers.
    #[track_caller]
    pub(crate) fn boot(&mut self) {
        self.boot_with(QUACK, &["daemon"]);
    }

    /// Starts the daemon through `env` with these arguments, such as `NAME=VALUE`. The process of `env` becomes the daemon.
    #[track_caller]
    pub(crate) fn boot_in(&mut self, args: &[&str]) {
        self.boot_with("/usr/bin/env", &[args, &[QUACK, "daemon"]].concat());
    }

    /// Starts the daemon like launchd, without the variables of a shell.
    #[track_caller]
    pub(crate) fn boot_bare(&mut self) {
        let home = format!("HOME={}", self.home().display());
        let app = format!("RUBBER_DUCK_APP_SUPPORT={}", self.app().display());
        self.boot_in(&["-i", "PATH=/usr/bin:/bin", &home, &app]);
    }

    /// Starts a program that becomes the daemon.
    #[track_caller]
    pub(crate) fn boot_with(&mut self, program: &str, args: &[&str]) {
        let variables = tier::variables();
        let variables: Vec<_> =
            variables.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut args = args.to_vec();
        // `env -i` clears what the harness sets.
        if args.first() == Some(&"-i") {
            args.splice(1..1, variables.iter().map(String::as_str));
        }
        let child = self.program(program, &args).stdin(Stdio::null()).spawn();
        self.child = Some(child.expect("start the daemon"));
        let (socket, pid) = (self.socket(), format!("\"pid\":{}", self.pid()));
        // A connection alone proves nothing. A killed daemon may have been starting a child, which
        // holds the listening socket until its exec.
        wait_for("the daemon to answer", || {
            let mut stream = UnixStream::connect(&socket).ok()?;
            stream.write_all(b"{\"id\":\"p\",\"method\":\"ping\"}\n").ok()?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).ok()?;
            line.contains(&pid).then_some(())
        });
    }

    pub(crate) fn app(&self) -> PathBuf {
        self.world.path().join("app")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.app().join("daemon.sock")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.world.path().join("home")
    }

    #[track_caller]
    pub(crate) fn wire(&self) -> Wire {
        Wire::connect(&self.socket())
    }

    /// Process id of the daemon.
    #[track_caller]
    pub(crate) fn pid(&self) -> i32 {
        let child = self.child.as_ref().expect("a daemon");
        i32::try_from(child.id()).expect("a pid")
    }

    /// The program under test with the environment of this world and no other variables of the test
    /// process.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.program(QUACK, args)
    }

    /// Another program with this world's environment.
    pub(crate) fn program_for_tests(&self, program: &str) -> Command {
        self.program(program, &[])
    }

    fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = quackd_testkit::program(program);
        command.args(args).current_dir(self.world.path()).env_clear();
        // Confined commands see the directories of PATH, which is how they see gates.
        let path = std::env::var("PATH").unwrap_or_default();
        let gates = self.world.path().join("gates");
        command.env("PATH", format!("{path}:{}", gates.display()));
        command.env("HOME", self.home()).env("RUBBER_DUCK_APP_SUPPORT", self.app());
        command.env("EXA_API_KEY", "secret-of-the-daemon").env("TERM", "xterm-256color");
        // Like from a shell: the first worker does not wait for a login shell.
        command.env("TMPDIR", "/tmp").env("SHLVL", "1");
        command.envs(tier::variables());
        command
    }

    /// Runs the program to its end.
    #[track_caller]
    pub(crate) fn quack(&self, args: &[&str]) -> Cli {
        Cli::run(self.command(args))
    }

    /// Creates a directory with a few files, like a git repository.
    #[track_caller]
    pub(crate) fn repo(&self, name: &str) -> Repo {
        let path = self.world.path().join(name);
        let repo = Repo(std::fs::canonicalize(self.world.path()).expect("a path").join(name));
        std::fs::create_dir_all(path.join(".git")).expect("a repository");
        repo.write("src/main.rs", "fn main() {\n    println!(\"needle\");\n}\n");
        repo.write("README.md", "# A repository\n");
        repo
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::SIGSTOP {
            // Made, and then written, after the first client can connect. Tests that name a stopped daemon read it.
            wait_for("the pid file", || {
                let pid = std::fs::read_to_string(self.app().join("duck-daemon.pid")).ok()?;
                (pid.trim() == self.pid().to_string()).then_some(())
            });
        }
        kill(Pid::from_raw(self.pid()), signal).expect("signal the daemon");
        // A running thread stops a moment later.
        if signal == Signal::SIGSTOP {
            wait_for("the daemon to stop", || {
                Process::find(self.pid()).filter(|daemon| daemon.state == 'T').map(drop)
            });
        }
    }

    /// Runs the user's git, which is not a child of the daemon and must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn git(&self, at: &Path, args: &[&str]) -> String {
        git(&self.home(), at, args)
    }

    /// Creates the file that a command of [`Daemon::gated`] waits for.
    #[track_caller]
    pub(crate) fn open_gate(&self, name: &str) {
        std::fs::write(self.gate(name), "").expect("open a gate");
    }

    /// Returns a command that waits for [`Daemon::open_gate`], then runs `then`.
    pub(crate) fn gated(&self, name: &str, then: &str) -> String {
        format!("until [ -e '{}' ]; do sleep 0.02; done; {then}", self.gate(name).display())
    }

    fn gate(&self, name: &str) -> PathBuf {
        self.world.path().join("gates").join(name)
    }

    /// Waits until the daemon has exited. Returns its exit code, `None` for a signal.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("a daemon");
        wait_for("the daemon to end", || child.try_wait().expect("wait")).code()
    }

    /// All descendants of the daemon.
    pub(crate) fn descendants(&self) -> std::collections::BTreeSet<Process> {
        descendants_of(self.pid())
    }

    /// Waits until the log contains `part`. A thread of the daemon writes the log, so a reply may come before the line
    /// about it.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, part: &str) {
        wait_for(&format!("{part:?} in the log"), || self.log().contains(part).then_some(()));
    }

    /// Content of the log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.app().join("duck-daemon.log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    /// A test must leave nothing behind, whether it passed or failed.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            // A subcommand may have started a daemon that its failed test did not stop.
            if self.socket().exists() {
                drop(self.command(&["stop"]).output());
            }
            return;
        };
        let pid = i32::try_from(child.id()).expect("a pid");
        let below = descendants_of(pid);
        drop(child.kill());
        drop(child.wait());
        if std::thread::panicking() {
            eprint_log(&self.log());
            return;
        }
        wait_for("everything below the daemon to end", || {
            let left: Vec<_> = below.iter().filter(|process| is_alive(process)).collect();
            left.is_empty().then_some(())
        });
    }
}

#[expect(clippy::print_stderr, reason = "a failed test shows its daemon's log")]
fn eprint_log(log: &str) {
    eprintln!("--- the daemon's log ---\n{log}");
}

/// A directory to attach to.
pub(crate) struct Repo(pub(crate) PathBuf);

impl Repo {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    #[track_caller]
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write_file(self.0.join(name), content);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

/// Output and exit status of a run of the program.
#[must_use = "check the exit code or the output"]
#[derive(Debug)]
pub(crate) struct Cli(Output);

impl Cli {
    /// Runs a command to its end, without input.
    #[track_caller]
    pub(crate) fn run(mut command: Command) -> Self {
        Self(command.stdin(Stdio::null()).output().expect("run quack"))
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// The one JSON document that `--json` prints.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.0.stdout)
            .unwrap_or_else(|error| panic!("not one JSON document ({error}): {self:?}"))
    }

    /// Standard output of a run that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self) -> String {
        assert_eq!(self.code(), Some(0), "{self:?}");
        self.stdout()
    }
}
