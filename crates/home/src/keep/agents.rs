//! State of coding agents that ran inside of sessions: finds unused state, measures and deletes it. Called by `find`,
//! `removal` and `quack agents`.
//!
//! Commands of sessions write the content, so it is hostile. Links are never followed, and the number of inspected
//! entries is bounded. The monitor of a worker holds a shared lock on the directory of the workspace while the worker
//! uses it.

use super::handles::{age_of_foreign, bytes, open_dir, open_state};
use super::trees::remove_entry;
use super::{Item, Kind};
use crate::Home;
use crate::ownership::is_marked;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, RenameFlags, flock, renameat_with, statat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum number of workspaces, and of agents of each, in one scan.
const MAX_WORKSPACES: usize = 10_000;
const MAX_AGENTS: usize = 100;

/// Maximum number of entries of a workspace to inspect in one scan.
const MAX_ENTRIES: usize = 1_000_000;

/// Maximum number of entries to inspect while a worker waits.
const MAX_ENTRIES_AT_START: usize = 50_000;

/// Maximum depth of the state of an agent. Each level has two open descriptors.
const MAX_DEPTH: usize = 64;

/// Prefix of directories that are being deleted. No agent has such a name.
const RETIRED: &str = ".gone-";

/// State of one agent in one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentUsage {
    /// Number of files, without directories. A worker creates empty directories.
    pub files: u64,
    /// Disk usage of the files in bytes, without directories.
    pub bytes: u64,
    /// Time since the last change of a file or directory in it.
    pub unused: Duration,
    /// False if both are bounds only: some entries cannot be read, are too deep or too many.
    pub is_complete: bool,
}

/// Result of [`forget_agent_blocking`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Number of workspaces and isolated sessions whose state was deleted.
    pub places: usize,
    /// Disk usage of the deleted files, in bytes.
    pub bytes: u64,
    /// Number of those of `places` that a worker uses. Their directories are empty, and the worker can still write to
    /// them.
    pub in_use: usize,
}

/// Measures the state of an agent in the workspace, or in an isolated session, as
/// [`Home::workspace_agents_dir`]. `None` if there is none. Blocks on the disk.
#[must_use]
pub fn agent_usage_blocking(
    home: &Home,
    workspace: &str,
    isolated: Option<&str>,
    agent: &str,
) -> Option<AgentUsage> {
    let own = open_state(&home.workspace_agents_dir(workspace, isolated)).ok()?;
    let agent = CString::new(agent).ok()?;
    let mut left = MAX_ENTRIES;
    measure(own.as_fd(), &agent, &mut left, SystemTime::now())
}

/// Returns the disk usage of the state of all agents in the directory `own` of a workspace, in bytes. Counts at most
/// 50,000 entries, because a worker waits for it. Blocks on the disk.
#[must_use]
pub fn agents_bytes_blocking(own: &Path) -> u64 {
    let name = own.file_name().and_then(|name| CString::new(name.as_encoded_bytes()).ok());
    let above = own.parent().and_then(|above| open_state(above).ok());
    let Some((above, name)) = above.zip(name) else { return 0 };
    let mut left = MAX_ENTRIES_AT_START;
    measure(above.as_fd(), &name, &mut left, SystemTime::now()).map_or(0, |usage| usage.bytes)
}

/// Deletes the state of an agent in all workspaces and isolated sessions, with its shared login, or only in the workspace
/// at this path. Keeps empty directories for a worker that uses them. Blocks on the disk.
///
/// # Errors
/// The first error of an entry that could not be deleted. The rest is deleted.
pub fn forget_agent_blocking(
    home: &Home,
    agent: &str,
    workspace: Option<&str>,
) -> io::Result<Forgotten> {
    let mut forgotten = Forgotten::default();
    let agents = match open_state(&home.agents_dir()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(forgotten),
        agents => agents?,
    };
    if !is_marked(&agents) {
        return Ok(forgotten);
    }

    let agent = CString::new(agent)?;
    let only = workspace.map(|path| home.workspace_agents_dir(path, None));
    let only = only.as_deref().and_then(Path::file_name);
    let mut failed = None;
    for place in names(&agents, MAX_WORKSPACES, is_place) {
        if only.is_some_and(|only| only.as_encoded_bytes() != place.to_bytes()) {
            continue;
        }
        let Ok(own) = open_dir(&agents, &place, false) else { continue };
        let mut left = MAX_ENTRIES;
        let Some(usage) = measure(own.as_fd(), &agent, &mut left, SystemTime::now()) else {
            continue;
        };

        let removed = match remove(&own, &agent) {
            Err(Errno::WOULDBLOCK) => {
                forgotten.in_use += 1;
                empty(&own, &agent)
            }
            removed => removed,
        };
        match removed {
            Ok(()) => {
                forgotten.places += usize::from(is_workspace(place.to_bytes()));
                forgotten.bytes = forgotten.bytes.saturating_add(usage.bytes);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(forgotten), |error| Err(error.into()))
}

/// Returns the state that was not used for `max_age`, with leftovers of interrupted deletions. State in use by a worker
/// is kept.
pub(super) fn find(state: &OwnedFd, max_age: Duration, now: SystemTime) -> Vec<Item> {
    let Ok(agents) = open_dir(state, c"agents", false) else { return Vec::new() };
    if !is_marked(&agents) {
        return Vec::new();
    }

    let mut items = Vec::new();
    for place in names(&agents, MAX_WORKSPACES, is_place) {
        let Ok(own) = open_dir(&agents, &place, false) else { continue };
        let at = [c"agents".to_owned(), place];
        // A workspace with too many entries must not keep the state of the others.
        let mut left = MAX_ENTRIES;
        for agent in names(&own, MAX_AGENTS, |_| true) {
            let is_retired = agent.to_bytes().starts_with(RETIRED.as_bytes());
            let Some(usage) = measure(own.as_fd(), &agent, &mut left, now) else { continue };
            // State that cannot be read completely may have been used.
            let is_due = usage.is_complete && max_age <= usage.unused && is_free(&own);
            if is_retired || is_due {
                items.push(Item::new(Kind::Agents, &at, &agent, usage.bytes, usage.unused));
            }
        }
    }
    items
}

/// Deletes the state of an agent in the directory `own` of a workspace. A missing one counts as deleted.
///
/// # Errors
/// `WOULDBLOCK` if a worker uses it, or the first error of an entry that could not be deleted. The next garbage
/// collection deletes the rest.
pub(super) fn remove(own: &OwnedFd, agent: &CStr) -> Result<(), Errno> {
    if agent.to_bytes().starts_with(RETIRED.as_bytes()) {
        return remove_entry(own.as_fd(), agent);
    }

    lock(own)?;
    let random = RandomState::new().hash_one(agent.to_bytes());
    let retired = CString::new(format!("{RETIRED}{random:016x}")).map_err(|_nul| Errno::INVAL)?;
    // Renamed under the lock, so that no worker starts with a directory that is being deleted.
    let renamed = renameat_with(own, agent, own, &retired, RenameFlags::NOREPLACE);
    flock(own, FlockOperation::Unlock)?;
    match renamed {
        Err(Errno::NOENT) => Ok(()),
        renamed => {
            renamed?;
            remove_entry(own.as_fd(), &retired)
        }
    }
}

/// Deletes everything in the directories of an agent, and keeps them, because a running worker has them mounted.
fn empty(own: &OwnedFd, agent: &CStr) -> Result<(), Errno> {
    let agent = open_dir(own, agent, false)?;
    let mut failed = None;
    for directory in names(&agent, MAX_AGENTS, |_| true) {
        let Ok(directory) = open_dir(&agent, &directory, false) else { continue };
        for name in names(&directory, MAX_ENTRIES, |_| true) {
            let removed = remove_entry(directory.as_fd(), &name);
            failed = failed.or_else(|| removed.err());
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Locks the directory of a workspace. Fails if a worker uses it. Unlock it soon: a worker that starts before
/// that keeps no state.
fn lock(own: &OwnedFd) -> Result<(), Errno> {
    flock(own, FlockOperation::NonBlockingLockExclusive)
}

fn is_free(own: &OwnedFd) -> bool {
    lock(own).is_ok() && flock(own, FlockOperation::Unlock).is_ok()
}

fn is_workspace(name: &[u8]) -> bool {
    name.len() == 16 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether this is the name of a directory with state of agents.
fn is_place(name: &[u8]) -> bool {
    is_workspace(name) || name == Home::SHARED_LOGINS.as_bytes()
}

/// Returns at most `max` names in a directory.
fn names(dir: &OwnedFd, max: usize, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<CString> {
    let Ok(entries) = Dir::read_from(dir) else { return Vec::new() };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_owned());
    let is_named = |name: &CString| {
        let name = name.to_bytes();
        !matches!(name, b"." | b"..") && is_wanted(name)
    };
    names.filter(is_named).take(max).collect()
}

/// Measures the directory `name`, inspecting at most `left` entries. `None` if it is not a directory.
fn measure(
    at: BorrowedFd<'_>,
    name: &CStr,
    left: &mut usize,
    now: SystemTime,
) -> Option<AgentUsage> {
    let stat = statat(at, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return None;
    }
    let usage =
        AgentUsage { files: 0, bytes: 0, unused: age_of_foreign(&stat, now), is_complete: true };
    let mut scan = Scan { usage, left, now };
    scan.add(at, name, 0);
    Some(scan.usage)
}

struct Scan<'a> {
    usage: AgentUsage,
    /// Number of entries that may still be inspected.
    left: &'a mut usize,
    now: SystemTime,
}

impl Scan<'_> {
    /// Adds the content of the directory `name` at `depth`.
    fn add(&mut self, at: BorrowedFd<'_>, name: &CStr, depth: usize) {
        let dir = match open_dir(at, name, false) {
            Ok(dir) if depth < MAX_DEPTH => dir,
            // Another process deleted or replaced it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return,
            Ok(_) | Err(_) => return self.usage.is_complete = false,
        };
        let Ok(entries) = Dir::read_from(&dir) else { return self.usage.is_complete = false };

        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }

            let Some(left) = self.left.checked_sub(1) else {
                return self.usage.is_complete = false;
            };
            *self.left = left;
            let Ok(stat) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.usage.unused = self.usage.unused.min(age_of_foreign(&stat, self.now));
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                self.add(dir.as_fd(), name, depth + 1);
            } else {
                self.usage.files += 1;
                self.usage.bytes = self.usage.bytes.saturating_add(bytes(&stat));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep::{Rules, find_blocking, remove_blocking};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    const DAY: u64 = 24 * 60 * 60;

    fn home(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        home
    }

    fn rules(agents: Option<Duration>) -> Rules {
        let day = Duration::from_secs(DAY);
        let (quarantined, histories) = (None, None);
        Rules {
            is_served: true,
            outputs: day,
            undo: day,
            undo_max_bytes: u64::MAX,
            caches_max_bytes: u64::MAX,
            quarantined,
            histories,
            agents,
        }
    }

    /// Creates the state of an agent with one file, and sets all times to `days` ago.
    fn used(home: &Home, workspace: &str, agent: &str, days: u64) -> PathBuf {
        let names = [format!("{agent}/.state")];
        let own = home.prepare_agents_blocking(workspace, None, &names).unwrap();
        let state = own.join(agent).join(".state");
        fs::create_dir_all(state.join("deep")).unwrap();
        fs::write(state.join("deep/file"), vec![b'x'; 64 * 1024]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(days * DAY);
        for path in ["deep/file", "deep", "", ".."].map(|path| state.join(path)) {
            fs::File::open(path).unwrap().set_modified(then).unwrap();
        }
        own.join(agent)
    }

    fn collect(home: &Home, agents: Option<Duration>) {
        let found = find_blocking(home, &rules(agents), None).unwrap();
        let tally = remove_blocking(home, &found.items);
        assert_eq!((tally.failed, tally.why), (0, None));
    }

    #[test]
    fn only_state_that_nobody_used_goes_and_a_deep_file_counts_as_use() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let old = used(&home, "/a", "claude", 100);
        let young = used(&home, "/a", "codex", 10);
        let touched = used(&home, "/b", "claude", 100);
        let file = fs::File::open(touched.join(".state/deep/file")).unwrap();
        file.set_modified(SystemTime::now()).unwrap();

        collect(&home, None);
        assert!(old.exists(), "only if it is asked for");
        collect(&home, Some(Duration::from_secs(90 * DAY)));
        assert!(!old.exists() && young.exists() && touched.exists());
        assert!(home.owns_agents_blocking());
    }

    #[test]
    fn state_in_use_is_kept_by_the_collection_and_emptied_if_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let [here, there] = ["/a", "/b"].map(|workspace| used(&home, workspace, "claude", 100));
        let worker = fs::File::open(here.parent().unwrap()).unwrap();
        flock(&worker, FlockOperation::NonBlockingLockShared).unwrap();

        collect(&home, Some(Duration::from_secs(90 * DAY)));
        assert!(here.exists() && !there.exists());

        used(&home, "/b", "claude", 1);
        let forgotten = forget_agent_blocking(&home, "claude", Some("/a")).unwrap();
        assert_eq!((forgotten.places, forgotten.in_use), (1, 1));
        assert!(64 * 1024 <= forgotten.bytes, "{forgotten:?}");
        assert_eq!(fs::read_dir(here.join(".state")).unwrap().count(), 0);
        assert!(there.join(".state/deep/file").exists());
        drop(worker);

        let forgotten = forget_agent_blocking(&home, "claude", None).unwrap();
        assert_eq!((forgotten.places, forgotten.in_use), (2, 0));
        assert!(!here.exists() && !there.exists());
        let forgotten = forget_agent_blocking(&home, "claude", None).unwrap();
        assert_eq!(forgotten, Forgotten::default());
    }

    #[test]
    fn a_time_in_the_future_does_not_keep_state() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let state = used(&home, "/a", "claude", 100);
        let days = |n| Duration::from_secs(n * DAY);
        let file = fs::File::open(state.join(".state/deep/file")).unwrap();
        file.set_modified(SystemTime::now() + days(10_000)).unwrap();

        let n_found = |n| {
            let state = open_state(home.dir()).unwrap();
            find(&state, days(90), SystemTime::now() + days(n)).len()
        };
        assert_eq!([n_found(1), n_found(91)], [0, 1]);
    }

    #[test]
    fn links_in_hostile_state_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), vec![b'x'; 1024 * 1024]).unwrap();
        let state = used(&home, "/a", "claude", 1);
        symlink(&outside, state.join(".state/link")).unwrap();
        symlink(&outside, home.workspace_agents_dir("/a", None).join("codex")).unwrap();

        let usage = agent_usage_blocking(&home, "/a", None, "claude").unwrap();
        assert!(usage.bytes < 512 * 1024 && usage.is_complete, "{usage:?}");
        // The file and the link. An empty file counts too.
        assert_eq!(usage.files, 2);
        fs::write(state.join(".state/empty"), "").unwrap();
        let usage = agent_usage_blocking(&home, "/a", None, "claude").unwrap();
        assert_eq!(usage.files, 3);
        assert_eq!(agent_usage_blocking(&home, "/a", None, "codex"), None);
        assert_eq!(agent_usage_blocking(&home, "/a", Some("s"), "claude"), None);
        forget_agent_blocking(&home, "claude", None).unwrap();
        assert!(outside.join("file").exists() && !state.exists());
    }
}
