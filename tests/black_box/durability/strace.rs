//! Faults of system calls, injected by strace into one thread, usually the one that saves.

use super::FILES;
use crate::harness::{Daemon, KillOnDrop, program, wait_for};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;

/// An strace of one thread: the daemon's thread `store`, limited to the state files and their directory, or another.
///
/// Only that thread: if strace follows a child that is just starting, it can block forever.
pub(super) struct Strace {
    child: KillOnDrop,
    log: PathBuf,
}

impl Strace {
    /// Attaches. `calls` lists the traced system calls and `faults` the faults, in the syntax of
    /// strace's option `-e inject=`: `rename,renameat2:error=EIO:when=2`.
    ///
    /// The error gives the reason why this machine does not allow it.
    #[track_caller]
    pub(super) fn attach(daemon: &Daemon, calls: &str, faults: &str) -> Result<Self, String> {
        let app = daemon.app();
        let mut paths = vec![app.clone()];
        // strace compares paths literally, so list every name that a save uses.
        for name in FILES {
            for suffix in ["", ".tmp", ".bak", ".bak.tmp", ".theirs"] {
                paths.push(app.join(format!("{name}{suffix}")));
            }
        }
        Self::attach_to(daemon, thread(daemon.pid(), "store"), &paths, calls, faults)
    }

    /// Like [`Strace::attach`], for any thread. Without paths, all calls are traced.
    #[track_caller]
    pub(super) fn attach_to(
        daemon: &Daemon,
        thread: i32,
        paths: &[PathBuf],
        calls: &str,
        faults: &str,
    ) -> Result<Self, String> {
        let log = daemon.home().join("strace.log");
        let mut command = program("strace");
        command.arg("-o").arg(&log);
        for path in paths {
            command.arg("-P").arg(path);
        }
        command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={faults}")]);
        command.args(["-p", &thread.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start strace: {error}"))?;
        let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("read the output of strace");
        if line.contains(" attached") {
            return Ok(Self { child: child.into(), log });
        }
        said.read_to_string(&mut line).expect("read the output of strace");
        child.wait().expect("wait for strace");
        Err(line)
    }

    /// The trace so far. An unfinished call may be missing.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Detaches and returns the complete trace.
    #[track_caller]
    pub(super) fn detach(mut self) -> String {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT)
            .expect("end strace");
        wait_for("strace to end", || self.child.try_wait().expect("wait for strace"));
        self.log()
    }
}

/// Id of the thread of a process with this name.
#[track_caller]
pub(super) fn thread(pid: i32, name: &str) -> i32 {
    let (tasks, line) = (format!("/proc/{pid}/task"), format!("{name}\n"));
    let mut found = std::fs::read_dir(tasks).expect("threads").filter_map(|task| {
        let task = task.expect("a thread").path();
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        (comm == line).then(|| task.file_name()?.to_str()?.parse().ok())?
    });
    found.next().expect("a thread with this name")
}
