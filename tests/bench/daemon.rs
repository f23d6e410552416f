//! A daemon with its own state directory, home and work trees in one temporary directory.

use crate::processes::{pause, tree, wait_until_gone};
use crate::wire::{Line, Wire};
use anyhow::{Context, bail};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The measured program.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// Timeout of the first reply and of the shutdown.
const START_STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of child processes after the daemon's exit.
const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A state directory, a home, and at most one daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    world: TempDir,
    child: Option<Child>,
}

impl Daemon {
    /// Creates the directories without a daemon.
    pub(crate) fn absent() -> anyhow::Result<Self> {
        // A short prefix, so that the socket's path fits.
        let world = tempfile::Builder::new().prefix("q").tempdir()?;
        std::fs::create_dir(world.path().join("home"))?;
        Ok(Self { world, child: None })
    }

    /// Starts a daemon that replies.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut daemon = Self::absent()?;
        daemon.boot()?;
        Ok(daemon)
    }

    /// Starts another daemon of the protocol with a shell command.
    pub(crate) fn start_other(command: &OsStr) -> anyhow::Result<Self> {
        let mut daemon = Self::absent()?;
        let mut shell = daemon.command("/bin/sh");
        // `exec`, so that the child is the daemon.
        let mut script = OsString::from("exec ");
        script.push(command);
        shell.arg("-c").arg(script);
        daemon.boot_as(shell).with_context(|| format!("cannot start {}", command.display()))?;
        Ok(daemon)
    }

    /// Starts the daemon. Returns the time from the process start to the first reply to `ping`.
    pub(crate) fn boot(&mut self) -> anyhow::Result<Duration> {
        let mut command = self.command(QUACK);
        command.arg("daemon");
        self.boot_as(command)
    }

    fn boot_as(&mut self, mut command: Command) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.child = Some(command.spawn()?);
        let mut wire = loop {
            match Wire::connect(&self.socket()) {
                Ok(wire) => break wire,
                Err(error) if START_STOP_TIMEOUT < begin.elapsed() => {
                    return Err(error).context("the daemon does not accept");
                }
                Err(_not_yet) => pause(Duration::from_micros(100)),
            }
        };
        wire.send(&Line::ping())?;
        wire.reply(|reply| reply.data().map(drop))?;
        Ok(begin.elapsed())
    }

    /// Stops the daemon and checks that no process is left. Returns the time of the shutdown.
    pub(crate) fn stop(&mut self) -> anyhow::Result<Duration> {
        let below = tree(self.pid()?);
        let begin = Instant::now();
        self.wire()?.request("quack.shutdown", &json!({}))?;
        let mut child = self.child.take().context("no daemon")?;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if START_STOP_TIMEOUT < begin.elapsed() => {
                    self.child = Some(child);
                    bail!("the daemon does not stop");
                }
                None => pause(Duration::from_micros(100)),
            }
        };
        let took = begin.elapsed();
        if !status.success() {
            bail!("the daemon ended with {status}");
        }
        if !wait_until_gone(&below, CHILD_EXIT_TIMEOUT) {
            bail!("processes are left of the daemon");
        }
        Ok(took)
    }

    pub(crate) fn pid(&self) -> anyhow::Result<i32> {
        let child = self.child.as_ref().context("no daemon")?;
        Ok(i32::try_from(child.id())?)
    }

    pub(crate) fn wire(&self) -> anyhow::Result<Wire> {
        Wire::connect(&self.socket())
    }

    /// Returns the state directory.
    pub(crate) fn app(&self) -> PathBuf {
        self.world.path().join("app")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.app().join("daemon.sock")
    }

    /// Creates a work tree: a repository's marker, a file of 2 KiB and one of 4 KiB.
    pub(crate) fn repo(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.world.path().join(name);
        std::fs::create_dir_all(path.join(".git"))?;
        std::fs::write(path.join("2k"), text(2048))?;
        std::fs::write(path.join("4k"), text(4096))?;
        Ok(path)
    }

    /// Creates an empty directory for another program.
    pub(crate) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.world.path().join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Prepares the measured program, to be run as a subcommand.
    pub(crate) fn quack(&self) -> Command {
        self.command(QUACK)
    }

    /// Prepares a command with this environment and no other variables.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = quackd_testkit::program(program);
        command.current_dir(self.world.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.world.path().join("home"));
        command.env("RUBBER_DUCK_APP_SUPPORT", self.app());
        // As from a shell, so that the first worker does not wait for a login shell.
        command.env("SHLVL", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Daemon {
    /// Kills a daemon that was not stopped, which happens only after a failure. Its workers stop themselves.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let below = i32::try_from(child.id()).map(tree).unwrap_or_default();
        drop(child.kill());
        drop(child.wait());
        wait_until_gone(&below, CHILD_EXIT_TIMEOUT);
    }
}

/// Returns lines of source code, `bytes` long.
fn text(bytes: usize) -> String {
    let line = "    let answer = question.iter().map(|word| word.len()).sum::<usize>();\n";
    let mut text = line.repeat(bytes / line.len() + 1);
    text.truncate(bytes);
    text
}

/// Waits until `path` exists.
pub(crate) fn wait_for_file(path: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + START_STOP_TIMEOUT;
    while !path.exists() {
        if until < Instant::now() {
            bail!("{} did not appear", path.display());
        }
        pause(Duration::from_millis(1));
    }
    Ok(())
}
