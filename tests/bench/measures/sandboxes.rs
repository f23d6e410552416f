//! A command in a sandbox, from request to result: in a warm session of quackd, directly, and in other sandboxes.
//!
//! All programs run in turn. The policies are similar: the system read-only, the work tree writable, no network.

use super::compare::{Installed, Lane, charted, output_of};
use super::{Effort, tell_failed, tell_not_installed};
use crate::daemon::Daemon;
use crate::report::Row;
use crate::wire::Line;
use anyhow::Context;
use serde_json::json;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Text of each complete line of the file of 2 KiB, and their number.
const LINE: &str = "answer = question";
const N_LINES: usize = 29;

/// Life of the container of `podman exec` and of an idle shell in tmux, in seconds. They also end if this program is killed.
const KEPT: &str = "900";

/// A measured command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    True,
    Read,
}

impl Task {
    fn label(self) -> &'static str {
        match self {
            Self::True => "sandbox, bash -c true",
            Self::Read => "sandbox, cat of a 2 KiB file",
        }
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Self::True => &["bash", "-c", "true"],
            Self::Read => &["cat", "2k"],
        }
    }

    /// Command line for a sandbox that starts its own bash.
    fn line(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Read => "cat 2k",
        }
    }

    fn check(self, output: &str) -> anyhow::Result<()> {
        let n = output.matches(LINE).count();
        let expected = if self == Self::Read { N_LINES } else { 0 };
        anyhow::ensure!(n == expected, "printed {n} of {expected} lines");
        Ok(())
    }
}

/// A way to run a task: the arguments before or around it.
struct Side<'a> {
    name: &'static str,
    version: String,
    command: Box<dyn Fn(Task) -> Command + 'a>,
}

impl Side<'_> {
    fn run(&self, task: Task, stderr: Stdio) -> anyhow::Result<()> {
        let mut command = (self.command)(task);
        command.stderr(stderr);
        task.check(&output_of(command)?)
    }

    /// Returns true if both tasks work. Reports an error; the program's own errors are on stderr.
    fn works(&self) -> bool {
        let mut tasks = [Task::True, Task::Read].into_iter();
        let tried = tasks.try_for_each(|task| self.run(task, Stdio::inherit()));
        tried.inspect_err(|error| tell_failed(self.name, error)).is_ok()
    }
}

/// Commands that remove what the sandboxes keep running.
struct Cleanup(Vec<Command>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for command in self.0.drain(..) {
            // A failure leaves processes that end after `KEPT` seconds.
            drop(output_of(command));
        }
    }
}

/// The work tree, and the environment of the commands.
struct Site<'a> {
    daemon: &'a Daemon,
    repo: PathBuf,
}

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let rows = measure_with(effort, &daemon)?;
    daemon.stop()?;
    Ok(rows)
}

fn measure_with(effort: Effort, daemon: &Daemon) -> anyhow::Result<Vec<Row>> {
    let site = Site { daemon, repo: daemon.repo("a")? };
    let wire = RefCell::new(daemon.wire()?);
    let session = wire.borrow_mut().attach(&site.repo)?;
    let mut cleanup = Cleanup(Vec::new());
    let sides = site.sides(&mut cleanup)?;
    let mut rows = Vec::new();
    for task in [Task::True, Task::Read] {
        let ours = |name, line: Line| {
            let wire = &wire;
            Lane::new(name, move || wire.borrow_mut().call(&line)).ours()
        };
        let mut lanes = vec![ours("quackd bash", Line::bash(&session, task.line()))];
        if task == Task::Read {
            lanes.push(ours("quackd read_file", Line::read_file(&session, "2k")));
        }
        lanes.extend(sides.iter().map(|side| {
            Lane::new(side.name, move || side.run(task, Stdio::null())).of_version(&side.version)
        }));
        rows.extend(charted(effort.rounds(50), task.label(), lanes)?);
    }
    Ok(rows)
}

impl<'a> Site<'a> {
    /// Returns the installed sandboxes that work here.
    fn sides(&'a self, cleanup: &mut Cleanup) -> anyhow::Result<Vec<Side<'a>>> {
        let mut sides = Vec::new();
        sides.extend(self.bwrap());
        sides.extend(self.srt()?);
        sides.extend(self.podman(cleanup)?);
        sides.extend(self.runsc());
        sides.extend(self.tmux(cleanup)?);
        sides.retain(Side::works);
        sides.insert(0, self.direct()?);
        Ok(sides)
    }

    /// Prepares a command of a program in the work tree.
    fn command(&self, program: &Installed) -> Command {
        let mut command = self.daemon.command(&program.path);
        command.current_dir(&self.repo);
        command
    }

    /// A sandbox that gets `words` and then the words of the task.
    fn before(&'a self, name: &'static str, program: &Installed, words: Vec<OsString>) -> Side<'a> {
        let program = program.clone();
        let version = program.version.clone();
        let command = move |task: Task| {
            let mut command = self.command(&program);
            command.args(&words).args(task.words());
            command
        };
        Side { name, version, command: Box::new(command) }
    }

    fn direct(&'a self) -> anyhow::Result<Side<'a>> {
        let bash = Installed::find(None, &["bash"], "--version");
        let version = format!("bash {}", bash.context("no bash")?.version);
        let command = |task: Task| {
            let mut words = task.words().iter();
            let mut command = self.daemon.command(words.next().unwrap_or(&"true"));
            command.args(words).current_dir(&self.repo);
            command
        };
        Ok(Side { name: "started directly", version, command: Box::new(command) })
    }

    fn bwrap(&'a self) -> Option<Side<'a>> {
        let bwrap = found("bwrap", "QUACKD_BENCH_BWRAP", "apt install bubblewrap")?;
        let mut words = list(&["--unshare-all", "--die-with-parent", "--new-session"]);
        words.extend(list(&["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]));
        let repo = self.repo.as_os_str();
        words
            .extend(["--bind".as_ref(), repo, repo, "--chdir".as_ref(), repo].map(OsStr::to_owned));
        Some(self.before("bwrap", &bwrap, words))
    }

    fn srt(&'a self) -> anyhow::Result<Option<Side<'a>>> {
        let how = "npm install @anthropic-ai/sandbox-runtime; apt install bubblewrap socat ripgrep";
        let Some(srt) = found("srt", "QUACKD_BENCH_SRT", how) else { return Ok(None) };
        let settings = self.daemon.directory("srt")?.join("settings.json");
        let files = json!({"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": []});
        let network = json!({"allowedDomains": [], "deniedDomains": []});
        let text = json!({"filesystem": files, "network": network}).to_string();
        std::fs::write(&settings, text)?;
        let version = srt.version.clone();
        let command = move |task: Task| {
            let mut command = self.command(&srt);
            command.arg("--settings").arg(&settings).args(["-c", task.line()]);
            command
        };
        Ok(Some(Side { name: "sandbox-runtime", version, command: Box::new(command) }))
    }

    /// A container for each command, and a command in a running container. Without images: the files are the system's.
    fn podman(&'a self, cleanup: &mut Cleanup) -> anyhow::Result<Vec<Side<'a>>> {
        let Some(podman) = found("podman", "QUACKD_BENCH_PODMAN", "apt install podman") else {
            return Ok(Vec::new());
        };
        let at = self.daemon.directory("podman")?;
        let tree = at.join("tree");
        let mounts = system_tree(&tree)?;
        let mut global = list(&["--storage-driver=vfs"]);
        for (name, directory) in [("--root=", "root"), ("--runroot=", "run"), ("--tmpdir=", "tmp")]
        {
            global.push(joined(&[name.as_ref(), at.join(directory).as_os_str()]));
        }
        let mut options = list(&["--network=none", "--log-driver=none", "--workdir=/work"]);
        // The default limits need more rights than a container in a container has.
        options.extend(list(&["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]));
        options.extend(mounts);
        options.push(joined(&["--volume=".as_ref(), self.repo.as_os_str(), ":/work".as_ref()]));
        options.extend(["--rootfs".into(), tree.into()]);

        let with = |words: &[&str], more: &[OsString], last: &[&str]| {
            [global.clone(), list(words), more.to_vec(), list(last)].concat()
        };
        let run = self.before("podman run", &podman, with(&["run", "--rm"], &options, &[]));
        let mut start = self.command(&podman);
        start.args(with(&["run", "--detach", "--name=bench"], &options, &["sleep", KEPT]));
        let mut remove = self.command(&podman);
        remove.args(with(&["rm", "--force", "--time=0", "bench"], &[], &[]));
        cleanup.0.push(remove);
        start.stderr(Stdio::inherit());
        if let Err(error) = output_of(start) {
            tell_failed("podman", &error);
            return Ok(Vec::new());
        }
        let exec = with(&["exec", "--workdir=/work", "bench"], &[], &[]);
        Ok(vec![run, self.before("podman exec", &podman, exec)])
    }

    fn runsc(&'a self) -> Option<Side<'a>> {
        let runsc = found("runsc", "QUACKD_BENCH_RUNSC", "apt install runsc, or gvisor.dev")?;
        let words = list(&["--rootless", "--network=none", "do"]);
        Some(self.before("runsc do", &runsc, words))
    }

    /// A shell in a running tmux server: keys are sent, the shell signals the end, and the screen is read. No sandbox.
    fn tmux(&'a self, cleanup: &mut Cleanup) -> anyhow::Result<Option<Side<'a>>> {
        let Some(tmux) = Installed::find(Some("QUACKD_BENCH_TMUX"), &["tmux"], "-V") else {
            tell_not_installed("tmux", "apt install tmux");
            return Ok(None);
        };
        let socket = self.daemon.directory("tmux")?.join("s");
        let version = tmux.version.clone();
        let client = move |words: &[&str]| {
            let mut command = self.command(&tmux);
            command.arg("-S").arg(&socket).args(["-f", "/dev/null"]).args(words);
            command
        };
        cleanup.0.push(client(&["kill-server"]));
        let shell = format!("TMOUT={KEPT} exec bash --noprofile --norc");
        let size = ["-d", "-s", "bench", "-x", "200", "-y", "50"];
        let mut start = client(&[&["new-session"], &size[..], &[shell.as_str()]].concat());
        start.stderr(Stdio::inherit());
        if let Err(error) = output_of(start) {
            tell_failed("tmux", &error);
            return Ok(None);
        }
        let command = move |task: Task| {
            let keys = format!("clear; {} && tmux wait-for -S done", task.words().join(" "));
            let send = ["send-keys", "-t", "bench", &keys, "Enter", ";", "wait-for", "done", ";"];
            client(&[&send[..], &["capture-pane", "-p", "-t", "bench"]].concat())
        };
        Ok(Some(Side { name: "tmux", version, command: Box::new(command) }))
    }
}

/// Finds a program with `--version`. Reports a missing one.
fn found(name: &str, variable: &str, how: &str) -> Option<Installed> {
    let program = Installed::find(Some(variable), &[name], "--version");
    if program.is_none() {
        tell_not_installed(name, how);
    }
    program
}

fn list(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn joined(parts: &[&OsStr]) -> OsString {
    parts.iter().copied().collect()
}

/// Creates the root directory of containers. Returns the options that mount the system's programs in it.
fn system_tree(tree: &Path) -> anyhow::Result<Vec<OsString>> {
    for name in ["etc", "tmp", "proc", "dev", "sys", "run", "work"] {
        std::fs::create_dir_all(tree.join(name))?;
    }
    let mut mounts = Vec::new();
    for name in ["usr", "bin", "sbin", "lib", "lib64"] {
        let system = Path::new("/").join(name);
        match std::fs::read_link(&system) {
            Ok(target) => std::os::unix::fs::symlink(target, tree.join(name))?,
            Err(_not_a_link) if system.is_dir() => {
                std::fs::create_dir_all(tree.join(name))?;
                mounts.push(format!("--volume=/{name}:/{name}:ro").into());
            }
            Err(_missing) => {}
        }
    }
    Ok(mounts)
}
