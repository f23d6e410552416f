//! The daemon's directory of control groups, and the directories of its sessions: made and removed by the
//! supervisor, ended by monitors too.

use super::directory::Directory;
use super::discover::{self, Place};
use super::{Kind, MYSELF};
use crate::Limits;
use crate::lineage::start_time;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Processes and threads of all commands of all sessions, unless somebody says otherwise.
pub const DEFAULT_TOTAL_PROCESSES: u32 = 4096;

/// Begins the name of every daemon's directory; its process id and start time follow.
const PREFIX: &str = "quackd-";

/// Where the daemon is itself, all sessions are beneath this (version 2).
const SESSIONS: &str = "sessions";

/// Directories of one process: tests make several.
const MAX_BASES: u32 = 64;

/// Longest name of a session's directory, without its number.
const MAX_NAME: usize = 64;

/// Time for ending what a daemon has left.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Which are tried, in this order.
const KINDS: [Kind; 3] = [Kind::Unified, Kind::Pids, Kind::Freezer];

/// The control groups of a daemon. Dropping it ends everything in them and removes them: about 20 ms, at most
/// some two seconds.
#[derive(Debug)]
pub struct CgroupBase {
    kind: Kind,
    /// Where this process was before.
    own: Place,
    own_directory: Directory,
    name: String,
    /// Locked as long as it is in use.
    base: Directory,
    /// Where a thread is that starts commands, when it starts none.
    home: Place,
    sessions: Directory,
    sessions_path: PathBuf,
    total: Option<u32>,
    /// This process was moved into `base`.
    is_moved: bool,
    n_sessions: AtomicU64,
}

impl CgroupBase {
    /// Makes the directory, in which all commands of all sessions may have `total` processes and threads if
    /// they can be counted, and ends and removes those of daemons that are gone.
    ///
    /// Of the kinds of control groups the one is taken that can count processes, before others. With version
    /// 2 this process moves, once, into its new directory, which takes some 10 ms; call it before workers are
    /// started, for they must be there too.
    ///
    /// # Errors
    /// None can be had: what each kind lacks.
    pub fn open_blocking(total: u32) -> io::Result<Self> {
        let mut reasons = Vec::new();
        for must_count in [true, false] {
            for kind in KINDS {
                if must_count && !can_count(kind) {
                    continue;
                }
                match Self::open_as_blocking(kind, total) {
                    Ok(base) => return Ok(base),
                    Err(error) => reasons.push(format!("{kind:?}: {error}")),
                }
            }
        }
        reasons.sort();
        reasons.dedup();
        Err(io::Error::new(io::ErrorKind::Unsupported, reasons.join("; ")))
    }

    /// As [`CgroupBase::open_blocking`], with one kind only.
    ///
    /// # Errors
    /// It cannot be had: the hierarchy is not mounted, not ours to write in, or of another version.
    pub fn open_as_blocking(kind: Kind, total: u32) -> io::Result<Self> {
        let own = discover::own(kind)?;
        let own_directory = Directory::open(kind, &own.directory, own.cgroup.clone())?;
        if kind == Kind::Unified {
            // The root has no such file. In what is threaded already a directory of our own is impossible.
            let own_type =
                own_directory.read("cgroup.type").unwrap_or_else(|_| "domain".to_owned());
            if own_type.trim_end() != "domain" {
                return Err(io::Error::other(format!(
                    "this process is in a {}",
                    own_type.trim_end()
                )));
            }
        }
        end_leftovers_blocking(&own_directory);
        let name = make_base(&own_directory)?;
        let prepared = Self::prepare(kind, total, &own, &own_directory, &name);
        let Prepared { base, sessions, home, total } =
            prepared.inspect_err(|_| drop(own_directory.remove(&name)))?;
        let is_moved = kind == Kind::Unified;
        let path = own.directory.join(&name);
        let sessions_path = if is_moved { path.join(SESSIONS) } else { path };
        let n_sessions = AtomicU64::new(0);
        Ok(Self {
            kind,
            own,
            own_directory,
            name,
            base,
            home,
            sessions,
            sessions_path,
            total,
            is_moved,
            n_sessions,
        })
    }

    fn prepare(
        kind: Kind,
        total: u32,
        own: &Place,
        own_directory: &Directory,
        name: &str,
    ) -> io::Result<Prepared> {
        let base = own_directory.child(name)?;
        rustix::fs::flock(&base, FlockOperation::NonBlockingLockExclusive)?;
        if kind != Kind::Unified {
            let counted = (kind == Kind::Pids).then(|| limit(&base, total)).transpose()?;
            let sessions = own_directory.child(name)?;
            return Ok(Prepared { base, sessions, home: own.clone(), total: counted });
        }
        let sessions = base.make_threaded(SESSIONS)?;
        if let Err(error) = base.write("cgroup.procs", MYSELF) {
            drop(base.remove(SESSIONS));
            return Err(error);
        }
        // Without the controller processes are not counted here. To hand it down closes our own group for
        // others, so it must be given to us; and no processes of others may be in it.
        let hand_down = |directory: &Directory| directory.write("cgroup.subtree_control", "+pids");
        let is_there =
            has_pids(&base) || is_delegated(own_directory) && hand_down(own_directory).is_ok();
        let is_handed_down = is_there && hand_down(&base).is_ok();
        let counted = is_handed_down.then(|| limit(&sessions, total).ok()).flatten();
        let home = Place { cgroup: base.cgroup().to_owned(), directory: own.directory.join(name) };
        Ok(Prepared { base, sessions, home, total: counted })
    }

    /// Makes the directory of a session whose worker is about to be started. Of `limits` the number of
    /// processes is used. `name` is for people: letters, digits, `-` and `_`, at most 64 of them.
    ///
    /// # Errors
    /// Another name, or the kernel refuses.
    pub fn session_blocking(&self, name: &str, limits: &Limits) -> io::Result<SessionPaths> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || MAX_NAME < name.len() || !name.bytes().all(is_plain) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let number = self.n_sessions.fetch_add(1, Ordering::SeqCst);
        let name = format!("{name}.{number}");
        let session = self.sessions.make_threaded(&name)?;
        let processes = match self.prepare_session(&session, limits.processes) {
            Ok(processes) => processes,
            Err(error) => {
                drop(self.sessions.remove(&name));
                return Err(error);
            }
        };
        Ok(SessionPaths {
            kind: self.kind,
            directory: self.sessions_path.join(&name),
            cgroup: session.cgroup().to_owned(),
            home: self.home.directory.clone(),
            home_cgroup: self.home.cgroup.clone(),
            processes,
        })
    }

    fn prepare_session(&self, session: &Directory, processes: u32) -> io::Result<Option<u32>> {
        if self.total.is_none() {
            return Ok(None);
        }
        if self.kind == Kind::Unified && !has_pids(session) {
            self.sessions.write("cgroup.subtree_control", "+pids")?;
        }
        Ok(Some(limit(session, processes)?))
    }

    /// Which kind it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many processes and threads all commands may have together; `None` if they are not counted.
    #[must_use]
    pub fn total(&self) -> Option<u32> {
        self.total
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.own.directory.join(&self.name)
    }
}

impl Drop for CgroupBase {
    fn drop(&mut self) {
        // What cannot be removed is left to the next daemon.
        drop(self.sessions.end_blocking(Instant::now() + END_LIMIT));
        if self.is_moved {
            drop(self.base.remove(SESSIONS));
            // A group that hands a controller down holds no processes of its own.
            drop(self.base.write("cgroup.subtree_control", "-pids"));
            let others = self.own_directory.names().unwrap_or_default();
            if !others.iter().any(|other| other.starts_with(PREFIX) && *other != self.name) {
                drop(self.own_directory.write("cgroup.subtree_control", "-pids"));
            }
            drop(self.own_directory.write("cgroup.procs", MYSELF));
        }
        drop(self.own_directory.remove(&self.name));
    }
}

struct Prepared {
    base: Directory,
    sessions: Directory,
    home: Place,
    total: Option<u32>,
}

/// The control group of one session as plain data: for its worker, and for all who end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPaths {
    /// Which kind it is.
    pub kind: Kind,
    /// Its directory, outside of any mount namespace of the worker.
    pub directory: PathBuf,
    /// Its name, as `/proc/PID/cgroup` has it.
    pub cgroup: String,
    /// The directory of the group in which the worker lives.
    pub home: PathBuf,
    /// The name of the group in which the worker lives.
    pub home_cgroup: String,
    /// Most processes and threads that it may have; `None` if they are not counted.
    pub processes: Option<u32>,
}

/// How a session's control group was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionEnd {
    /// Processes that were still alive and were killed.
    pub killed: u32,
    /// Threads that were there to the end of the limit: they hang in the kernel, or may not be killed.
    pub survivors: u32,
    /// Whether the directory is gone, and with it, certainly, everything that was in it.
    pub removed: bool,
}

impl SessionPaths {
    /// Kills all that is in the session's group, and removes it. Returns after `limit` at the latest, plus
    /// one look. May be called again, and by several at a time. The worker and its monitor are not in it.
    ///
    /// # Errors
    /// The directory may not be opened or read. One that is gone is no error.
    pub fn end_blocking(&self, limit: Duration) -> io::Result<SessionEnd> {
        let end = SessionEnd { killed: 0, survivors: 0, removed: true };
        let session = match Directory::open(self.kind, &self.directory, self.cgroup.clone()) {
            Ok(session) => session,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(end),
            Err(error) => return Err(error),
        };
        let ended = match session.end_blocking(Instant::now() + limit) {
            Ok(ended) => ended,
            // Somebody else was faster.
            Err(_) if !self.directory.exists() => return Ok(end),
            Err(error) => return Err(error),
        };
        drop(std::fs::remove_dir(&self.directory));
        let removed = !self.directory.exists();
        Ok(SessionEnd { killed: ended.killed, survivors: ended.left, removed })
    }
}

fn limit(directory: &Directory, processes: u32) -> io::Result<u32> {
    directory.write("pids.max", &processes.to_string())?;
    Ok(processes)
}

fn has_pids(directory: &Directory) -> bool {
    let controllers = directory.read("cgroup.controllers").unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "pids")
}

/// Whether a service manager says that what is beneath is ours, or we are at the top of all that we can see:
/// alone in a container, or on a machine without one.
fn is_delegated(own: &Directory) -> bool {
    let says_so = |name: &str| {
        let mut value = [0; 8];
        let length = rustix::fs::fgetxattr(own, name, &mut value);
        length.is_ok_and(|length| value.get(..length) == Some(b"1".as_slice()))
    };
    own.cgroup() == "/" || says_so("user.delegate") || says_so("trusted.delegate")
}

fn can_count(kind: Kind) -> bool {
    match kind {
        Kind::Pids => true,
        Kind::Freezer => false,
        Kind::Unified => discover::own(kind)
            .and_then(|own| Directory::open(kind, &own.directory, own.cgroup))
            .is_ok_and(|own| has_pids(&own)),
    }
}

/// Makes a directory that nobody else uses.
fn make_base(own: &Directory) -> io::Result<String> {
    let pid = std::process::id();
    let start = start_time(pid)?;
    let mut outcome = Err(io::ErrorKind::AlreadyExists.into());
    for number in 0..MAX_BASES {
        let name = format!("{PREFIX}{pid}-{start}-{number}");
        outcome = own.make(&name).map(|_| name);
        if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            break;
        }
    }
    outcome
}

/// Ends and removes the directories of daemons that are gone.
fn end_leftovers_blocking(own: &Directory) {
    for name in own.names().unwrap_or_default() {
        if !is_of_the_dead(&name) {
            continue;
        }
        let Ok(leftover) = own.child(&name) else { continue };
        // Of a daemon in another process namespace the number says nothing, but its lock holds.
        let lock = FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(leftover.as_fd(), lock).is_ok() {
            drop(leftover.end_blocking(Instant::now() + END_LIMIT));
            drop(own.remove(&name));
        }
    }
}

/// Whether the name is a daemon's that does not live any more.
fn is_of_the_dead(name: &str) -> bool {
    let mut numbers = name.strip_prefix(PREFIX).unwrap_or_default().split('-');
    let pid = numbers.next().and_then(|pid| pid.parse().ok());
    let start = numbers.next().and_then(|start| start.parse::<u64>().ok());
    pid.zip(start).is_some_and(|(pid, start)| start_time(pid).ok() != Some(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn only_names_of_dead_daemons_are_leftovers() {
        let pid = std::process::id();
        let start = start_time(pid).unwrap();
        assert!(!is_of_the_dead(&format!("quackd-{pid}-{start}-0")));
        assert!(is_of_the_dead(&format!("quackd-{pid}-{}-0", start + 1)));
        assert!(is_of_the_dead("quackd-4194304000-1-0"));
        for other in ["", "quackd-", "quackd-1", "quackd-x-1", "quackd-1-x", "duckd-9999999-1"] {
            assert!(!is_of_the_dead(other), "{other}");
        }
    }
}
