//! A daemon in a world of its own: state directory, home and work trees in one temporary directory.

use crate::processes::{pause, tree, wait_until_gone};
use crate::wire::{Line, Wire};
use anyhow::{Context, bail};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program that is measured.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// How long the daemon may take to answer for the first time, and to stop.
const LIFE_LIMIT: Duration = Duration::from_secs(20);

/// How long what it started may outlive it.
const REMAINS_LIMIT: Duration = Duration::from_secs(5);

/// A state directory, a home, and at most one daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    world: TempDir,
    child: Option<Child>,
}

impl Daemon {
    /// A world without a daemon.
    pub(crate) fn absent() -> anyhow::Result<Self> {
        // Short, so that the socket's path fits.
        let world = tempfile::Builder::new().prefix("q").tempdir()?;
        std::fs::create_dir(world.path().join("home"))?;
        Ok(Self { world, child: None })
    }

    /// A daemon that answers.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut daemon = Self::absent()?;
        daemon.boot()?;
        Ok(daemon)
    }

    /// Starts the daemon. Gives the time from before the start of the process to the first answered
    /// `ping`.
    pub(crate) fn boot(&mut self) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        self.child = Some(self.command(QUACK).arg("daemon").spawn()?);
        let mut wire = loop {
            match Wire::connect(&self.socket()) {
                Ok(wire) => break wire,
                Err(error) if LIFE_LIMIT < begin.elapsed() => {
                    return Err(error).context("the daemon does not accept");
                }
                Err(_not_yet) => pause(Duration::from_micros(100)),
            }
        };
        wire.send(&Line::ping())?;
        wire.reply(|reply| reply.data().map(drop))?;
        Ok(begin.elapsed())
    }

    /// Asks the daemon to stop and makes sure that nothing is left of it. Gives the time that it took to
    /// end.
    pub(crate) fn stop(&mut self) -> anyhow::Result<Duration> {
        let below = tree(self.pid()?);
        let begin = Instant::now();
        self.wire()?.request("quack.shutdown", &json!({}))?;
        let mut child = self.child.take().context("no daemon")?;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if LIFE_LIMIT < begin.elapsed() => {
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
        if !wait_until_gone(&below, REMAINS_LIMIT) {
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

    /// The state directory.
    pub(crate) fn app(&self) -> PathBuf {
        self.world.path().join("app")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.app().join("daemon.sock")
    }

    /// A directory to work in: a repository's mark, and a file of 2 KiB and one of 4 KiB.
    pub(crate) fn repo(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.world.path().join(name);
        std::fs::create_dir_all(path.join(".git"))?;
        std::fs::write(path.join("2k"), text(2048))?;
        std::fs::write(path.join("4k"), text(4096))?;
        Ok(path)
    }

    /// A program with this world's environment and nothing else of ours.
    #[expect(clippy::disallowed_methods, reason = "the bench starts programs as a shell would")]
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.world.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.world.path().join("home"));
        command.env("RUBBER_DUCK_APP_SUPPORT", self.app());
        // As from a shell: the first worker does not wait for a login shell.
        command.env("SHLVL", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Daemon {
    /// Only a daemon that was not stopped is still here: something has failed, and it is ended at once.
    /// What it started ends itself.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let below = i32::try_from(child.id()).map(tree).unwrap_or_default();
        drop(child.kill());
        drop(child.wait());
        wait_until_gone(&below, REMAINS_LIMIT);
    }
}

/// Lines of source code, `bytes` long.
fn text(bytes: usize) -> String {
    let line = "    let answer = question.iter().map(|word| word.len()).sum::<usize>();\n";
    let mut text = line.repeat(bytes / line.len() + 1);
    text.truncate(bytes);
    text
}

/// Waits until `path` exists.
pub(crate) fn wait_for_file(path: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + LIFE_LIMIT;
    while !path.exists() {
        if until < Instant::now() {
            bail!("{} did not appear", path.display());
        }
        pause(Duration::from_millis(1));
    }
    Ok(())
}
