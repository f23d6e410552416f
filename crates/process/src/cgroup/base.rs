//! The daemon's directory of control groups and the directories of its sessions. The supervisor creates and removes
//! them. Monitors also kill the processes in them.

use super::controllers::{
    COMMANDS, DAEMON, MemoryShares, SESSIONS, SUBTREE, has, is_delegated, limit_memory,
    share_memory,
};
use super::directory::Directory;
use super::discover::{self, CgroupLocation};
use super::{CgroupKind, MYSELF, SessionPaths};
use crate::Limits;
use crate::process_tree::{start_time, stat};
use rustix::fs::FlockOperation;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Default limit of processes and threads of all commands of all sessions.
pub const DEFAULT_TOTAL_PROCESSES: u32 = 4096;

/// Prefix of the name of a daemon's directory. The daemon's process id and start time follow.
const PREFIX: &str = "quackd-";

/// Processes and threads that workers and their monitors may have in addition to those of commands, where one limit
/// counts both (version 2 with a memory limit). A worker has about 15.
const WORKERS_ROOM: u32 = 8192;

/// Maximum number of directories of one process. Tests create several.
const MAX_BASES: u32 = 64;

/// Maximum length of a session's directory name, without its number.
const MAX_NAME: usize = 64;

/// Time limit for killing the processes that a daemon left behind.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Kinds in the order in which they are tried.
const KINDS: [CgroupKind; 3] = [CgroupKind::Unified, CgroupKind::Pids, CgroupKind::Freezer];

/// Limit of the kernel for the memory of sessions.
#[derive(Debug)]
enum MemoryShape {
    /// The kernel limits none.
    None,
    /// The group of each session, with its worker (version 2).
    Domains {
        /// True if this process enabled the controller in its own group.
        is_enabled_here: bool,
    },
    /// A second directory of each session, in the hierarchy of this controller (version 1).
    Beside(Box<CgroupBase>),
}

/// Control groups of a daemon. Dropping it kills all processes in them and removes them. This takes about 20 ms, and
/// at most about 2 s.
#[derive(Debug)]
pub struct CgroupBase {
    kind: CgroupKind,
    /// Group of this process before the move.
    own: CgroupLocation,
    own_directory: Directory,
    name: String,
    /// Locked while the daemon uses it.
    base: Directory,
    /// Group of a thread that starts commands, while it starts none.
    home: CgroupLocation,
    sessions: Directory,
    sessions_path: PathBuf,
    total: Option<u32>,
    /// True if this process was moved into `base`.
    is_moved: bool,
    shape: MemoryShape,
    n_sessions: AtomicU64,
}

impl CgroupBase {
    /// Creates the directory, and kills and removes the groups of dead daemons. All commands of all sessions together
    /// may have `total` processes and threads, if the kernel can count them.
    ///
    /// Prefers a kind of control groups that can count processes. With version 2 this process moves once into its new
    /// directory, which takes about 10 ms. Call it before workers start, because they must be in it too.
    ///
    /// # Errors
    /// No kind is available. The text lists what each kind lacks.
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

    /// Like [`CgroupBase::open_blocking`], with one kind only.
    ///
    /// # Errors
    /// The hierarchy is not mounted, is not writable, or has another version.
    pub fn open_as_blocking(kind: CgroupKind, total_of_commands: u32) -> io::Result<Self> {
        let own = discover::own(kind)?;
        let own_directory = Directory::open(kind, &own.directory, own.cgroup.clone())?;
        if kind == CgroupKind::Unified {
            // The root has no such file. A threaded group cannot contain a domain group for the daemon.
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
        let prepared = Self::prepare(kind, total_of_commands, &own, &own_directory, &name);
        let CgroupSetup { base, sessions, home, total, shape } = prepared.inspect_err(|_| {
            // The caller gets the first error. The next daemon removes a directory that stays.
            own_directory.remove(&name).ok();
        })?;

        let is_moved = kind == CgroupKind::Unified;
        let path = own.directory.join(&name);
        let sessions_path = if is_moved { path.join(SESSIONS) } else { path };
        let n_sessions = AtomicU64::new(0);
        let memory = matches!(kind, CgroupKind::Pids | CgroupKind::Freezer)
            .then(|| Self::open_as_blocking(CgroupKind::Memory, total_of_commands).ok());
        let shape = memory.flatten().map_or(shape, |memory| MemoryShape::Beside(Box::new(memory)));
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
            shape,
            n_sessions,
        })
    }

    fn prepare(
        kind: CgroupKind,
        total: u32,
        own: &CgroupLocation,
        own_directory: &Directory,
        name: &str,
    ) -> io::Result<CgroupSetup> {
        let base = own_directory.child(name)?;
        // Held as long as this daemon lives: the next daemon then leaves its processes alone.
        rustix::fs::flock(&base, FlockOperation::NonBlockingLockExclusive)?;
        if kind != CgroupKind::Unified {
            let counted = (kind == CgroupKind::Pids).then(|| limit(&base, total)).transpose()?;
            let sessions = own_directory.child(name)?;
            let (home, shape) = (own.clone(), MemoryShape::None);
            return Ok(CgroupSetup { base, sessions, home, total: counted, shape });
        }

        let mut home = CgroupLocation {
            cgroup: base.cgroup().to_owned(),
            directory: own.directory.join(name),
        };
        let (sessions, room, shape) = match share_memory(own_directory, &base) {
            Ok(MemoryShares { sessions, is_enabled_here }) => {
                home.cgroup = format!("{}/{DAEMON}", home.cgroup);
                home.directory.push(DAEMON);
                (sessions, WORKERS_ROOM, MemoryShape::Domains { is_enabled_here })
            }
            Err(_) => (move_beside_threads(&base)?, 0, MemoryShape::None),
        };

        // Without the controller, processes are not counted. Enabling it for children closes our own group for other
        // processes, so the group must be delegated to us and must contain no foreign processes.
        let hand_down = |directory: &Directory| directory.write(SUBTREE, "+pids");
        let is_there =
            has(&base, "pids") || is_delegated(own_directory) && hand_down(own_directory).is_ok();
        let is_handed_down = is_there && hand_down(&base).is_ok();
        let is_limited = is_handed_down && limit(&sessions, total.saturating_add(room)).is_ok();
        Ok(CgroupSetup { base, sessions, home, total: is_limited.then_some(total), shape })
    }

    /// Creates the directory of a session whose worker is about to start. Uses only the number of processes and the
    /// memory of `limits`. `name` is for display only: letters, digits, `-` and `_`, at most 64 characters.
    ///
    /// # Errors
    /// The name has another form, or the kernel refuses.
    pub fn session_blocking(&self, name: &str, limits: &Limits) -> io::Result<SessionPaths> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || MAX_NAME < name.len() || !name.bytes().all(is_plain) {
            return Err(io::ErrorKind::InvalidInput.into());
        }

        // The number makes the name unique among the directories of this daemon.
        let number = self.n_sessions.fetch_add(1, Ordering::SeqCst);
        let directory_name = format!("{name}.{number}");
        let session = match self.shape {
            MemoryShape::Domains { .. } => self.sessions.make(&directory_name)?,
            MemoryShape::None | MemoryShape::Beside(_) => {
                self.sessions.make_threaded(&directory_name)?
            }
        };

        let path = self.sessions_path.join(&directory_name);
        self.prepare_session(&session, path, name, limits).inspect_err(|_| {
            // The caller gets the first error.
            session.remove(COMMANDS).ok();
            self.sessions.remove(&directory_name).ok();
        })
    }

    fn prepare_session(
        &self,
        session: &Directory,
        directory: PathBuf,
        name: &str,
        limits: &Limits,
    ) -> io::Result<SessionPaths> {
        let is_domain = matches!(self.shape, MemoryShape::Domains { .. });
        let bytes = limits.group_memory();
        if let Some(bytes) = bytes.filter(|_| is_domain || self.kind == CgroupKind::Memory) {
            limit_memory(session, bytes)?;
        }
        if self.kind == CgroupKind::Unified && self.total.is_some() && !has(session, "pids") {
            self.sessions.write(SUBTREE, "+pids")?;
        }
        let count = |directory: &Directory| {
            self.total.map(|_| limit(directory, limits.processes)).transpose()
        };
        let mut paths = SessionPaths {
            kind: self.kind,
            directory,
            cgroup: session.cgroup().to_owned(),
            home: self.home.directory.clone(),
            home_cgroup: self.home.cgroup.clone(),
            processes: None,
            memory: None,
            no_memory_limit: None,
        };

        match &self.shape {
            MemoryShape::None => paths.processes = count(session)?,
            MemoryShape::Beside(memory) => {
                paths.processes = count(session)?;
                // Without the second directory the worker still samples the memory.
                match bytes.map(|_| memory.session_blocking(name, limits)).transpose() {
                    Ok(made) => paths.memory = made.map(Box::new),
                    Err(error) => paths.no_memory_limit = Some(error.to_string()),
                }
            }
            MemoryShape::Domains { .. } => {
                let commands = session.make_threaded(COMMANDS)?;
                if self.total.is_some() {
                    session.write(SUBTREE, "+pids")?;
                }
                let above = paths;
                paths = SessionPaths {
                    kind: self.kind,
                    directory: above.directory.join(COMMANDS),
                    cgroup: commands.cgroup().to_owned(),
                    home: above.directory.clone(),
                    home_cgroup: above.cgroup.clone(),
                    processes: count(&commands)?,
                    memory: Some(Box::new(above)),
                    no_memory_limit: None,
                };
            }
        }
        Ok(paths)
    }

    /// Returns the kind of the hierarchy.
    #[must_use]
    pub fn kind(&self) -> CgroupKind {
        self.kind
    }

    /// Returns the maximum number of processes and threads of all commands together. `None` if they
    /// are not counted.
    #[must_use]
    pub fn total(&self) -> Option<u32> {
        self.total
    }

    /// Returns true if the kernel limits the memory of sessions.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        !matches!(self.shape, MemoryShape::None)
    }

    /// Returns the path of the daemon's directory.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.own.directory.join(&self.name)
    }
}

impl Drop for CgroupBase {
    fn drop(&mut self) {
        // Each of these steps may fail. The next daemon removes what stays.
        if matches!(self.shape, MemoryShape::Domains { .. }) {
            // A process that opened the group of a session is in it. Only tests do that in this process.
            self.base.child(DAEMON).and_then(|home| home.write("cgroup.procs", MYSELF)).ok();
        }
        self.sessions.end_blocking(Instant::now() + END_LIMIT).ok();

        if self.is_moved {
            self.base.remove(SESSIONS).ok();

            // A group with enabled controllers cannot contain processes, so disable them before this process moves
            // back.
            self.base.write(SUBTREE, "-pids").ok();
            self.base.write(SUBTREE, "-memory").ok();

            // Another daemon in the same group still counts its processes.
            let others = self.own_directory.names().unwrap_or_default();
            let is_daemon = |other: &String| {
                other.starts_with(PREFIX) && *other != self.name && !is_of_the_dead(other)
            };
            if !others.iter().any(is_daemon) {
                self.own_directory.write(SUBTREE, "-pids").ok();
                if matches!(self.shape, MemoryShape::Domains { is_enabled_here: true }) {
                    self.own_directory.write(SUBTREE, "-memory").ok();
                }
            }
            // The kernel does not remove a group with processes.
            self.own_directory.write("cgroup.procs", MYSELF).ok();
            self.base.remove(DAEMON).ok();
        }
        self.own_directory.remove(&self.name).ok();
    }
}

struct CgroupSetup {
    base: Directory,
    sessions: Directory,
    home: CgroupLocation,
    total: Option<u32>,
    shape: MemoryShape,
}

/// Creates a tree of threaded directories for the sessions, and moves this process into `base`, above it (version 2).
fn move_beside_threads(base: &Directory) -> io::Result<Directory> {
    let sessions = base.make_threaded(SESSIONS)?;
    base.write("cgroup.procs", MYSELF).inspect_err(|_| {
        // The caller gets the first error. The next daemon removes a directory that stays.
        base.remove(SESSIONS).ok();
    })?;
    Ok(sessions)
}

fn limit(directory: &Directory, processes: u32) -> io::Result<u32> {
    directory.write("pids.max", &processes.to_string())?;
    Ok(processes)
}

fn can_count(kind: CgroupKind) -> bool {
    match kind {
        CgroupKind::Pids => true,
        CgroupKind::Freezer | CgroupKind::Memory => false,
        CgroupKind::Unified => discover::own(kind)
            .and_then(|own| Directory::open(kind, &own.directory, own.cgroup))
            .is_ok_and(|own| has(&own, "pids")),
    }
}

/// Creates a directory with an unused name.
fn make_base(own: &Directory) -> io::Result<String> {
    let pid = std::process::id();

    let start = start_time(pid)?;
    let mut outcome = Err(io::ErrorKind::AlreadyExists.into());
    for number in 0..MAX_BASES {
        let name = format!("{PREFIX}{pid}-{start}-{number}");
        outcome = own.make(&name).map(|_| name);
        if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            // Another error would happen with every name.
            break;
        }
    }
    outcome
}

/// Kills the processes of dead daemons and removes their directories.
fn end_leftovers_blocking(own: &Directory) {
    for name in own.names().unwrap_or_default() {
        if !is_of_the_dead(&name) {
            continue;
        }
        let Ok(leftover) = own.child(&name) else { continue };
        // The number has no meaning for a daemon in another process namespace, but that daemon holds the lock.
        let lock = FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(leftover.as_fd(), lock).is_ok() {
            // A later daemon tries a directory that stays again.
            leftover.end_blocking(Instant::now() + END_LIMIT).ok();
            own.remove(&name).ok();
        }
    }
}

/// Returns true for the name of a daemon that no longer runs.
fn is_of_the_dead(name: &str) -> bool {
    let mut numbers = name.strip_prefix(PREFIX).unwrap_or_default().split('-');
    let pid = numbers.next().and_then(|pid| pid.parse().ok());
    let start = numbers.next().and_then(|start| start.parse::<u64>().ok());
    // A process id can be used again, so the start time must match too. A killed daemon keeps its number until its
    // parent reaps it.
    pid.zip(start).is_some_and(|(pid, start)| {
        start_time(pid).ok() != Some(start) || stat(pid).is_ok_and(|stat| stat.has_ended)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn only_names_of_dead_daemons_are_leftovers() {
        // The names contain the start time of a process.
        if !HAS_PROC {
            return;
        }
        let pid = std::process::id();
        let start = start_time(pid).unwrap();
        assert!(!is_of_the_dead(&format!("quackd-{pid}-{start}-0")));
        assert!(is_of_the_dead(&format!("quackd-{pid}-{}-0", start + 1)));
        assert!(is_of_the_dead("quackd-4194304000-1-0"));
        for other in ["", "quackd-", "quackd-1", "quackd-x-1", "quackd-1-x", "duckd-9999999-1"] {
            assert!(!is_of_the_dead(other), "{other}");
        }

        let mut unreaped = quackd_testkit::program("true").spawn().unwrap();
        let pid = unreaped.id();
        let name = format!("quackd-{pid}-{}-0", start_time(pid).unwrap());
        quackd_testkit::wait_until("its end", || is_of_the_dead(&name));
        unreaped.wait().unwrap();
    }
}
