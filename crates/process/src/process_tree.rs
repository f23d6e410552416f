//! Parent and child relations of processes, read from `/proc`. Used by the sweep and by [`crate::run`]. Linux only:
//! elsewhere all functions fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of a list of children in bytes, about 150,000 processes.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

/// Maximum size of an environment in bytes. The kernel allows 6 MiB of arguments and environment.
const MAX_ENVIRONMENT_BYTES: u64 = 8 * 1024 * 1024;

/// The flag of a thread that is ending, in `/proc/PID/stat` (include/linux/sched.h).
const PF_EXITING: u32 = 4;

/// A process and its parent when it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TreeProcess {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
}

/// Used fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// True for a zombie or an exiting process, of which no thread will run again. A process whose first thread has
    /// exited looks like a zombie while its other threads run.
    pub(crate) has_ended: bool,
}

/// Source of parent and child relations.
#[derive(Debug)]
pub(crate) enum ProcessTree {
    /// The kernel's lists, `/proc/PID/task/TID/children`. The cost grows with the number of descendants.
    Lists,
    /// Children of every process of the machine, for kernels without these lists.
    Table(BTreeMap<u32, Vec<u32>>),
}

impl ProcessTree {
    /// Prepares to read. Call it again for each check, because a table is a snapshot.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub(crate) fn now() -> io::Result<Self> {
        if Path::new("/proc/thread-self/children").exists() {
            return Ok(Self::Lists);
        }
        Self::scan()
    }

    fn scan() -> io::Result<Self> {
        let mut table: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for entry in Path::new("/proc").read_dir()? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if let Ok(stat) = stat(pid) {
                table.entry(stat.parent).or_default().push(pid);
            }
        }

        if table.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self::Table(table))
    }

    /// Returns the children of the main thread: those that it started, and all adopted orphans, because the kernel
    /// gives orphans to the first thread of a sub-reaper. Children of other threads are left to those threads, but a
    /// table cannot tell them apart.
    ///
    /// # Errors
    /// `/proc` shows another process namespace, or no descriptor is left.
    pub(crate) fn adopted(&self) -> io::Result<Vec<u32>> {
        let this = std::process::id();
        match self {
            Self::Lists => read_list(format!("/proc/self/task/{this}/children")),
            Self::Table(table) => Ok(table.get(&this).cloned().unwrap_or_default()),
        }
    }

    /// Returns `roots` and all their descendants, parents before children.
    pub(crate) fn descendants(&self, roots: &[u32]) -> Vec<TreeProcess> {
        self.descendants_up_to(roots, usize::MAX)
    }

    /// Like [`ProcessTree::descendants`], but stops searching once `limit` processes are found.
    pub(crate) fn descendants_up_to(&self, roots: &[u32], limit: usize) -> Vec<TreeProcess> {
        let this = std::process::id();
        let mut tree: Vec<TreeProcess> =
            roots.iter().map(|&pid| TreeProcess { pid, parent: this }).collect();

        // A number may be reused during the search, which could close a cycle.
        let mut seen: BTreeSet<u32> = roots.iter().copied().chain([this]).collect();
        let mut next = 0;
        while let Some(&TreeProcess { pid: parent, .. }) = tree.get(next)
            && tree.len() < limit
        {
            next += 1;
            for pid in self.children(parent) {
                if seen.insert(pid) {
                    tree.push(TreeProcess { pid, parent });
                }
            }
        }
        tree
    }

    /// Returns the children of all threads of `pid`. Empty if `pid` is gone.
    fn children(&self, pid: u32) -> Vec<u32> {
        match self {
            Self::Table(table) => table.get(&pid).cloned().unwrap_or_default(),
            Self::Lists => {
                let Ok(threads) = Path::new(&format!("/proc/{pid}/task")).read_dir() else {
                    return Vec::new();
                };
                let lists = threads.flatten().map(|thread| thread.path().join("children"));
                lists.filter_map(|list| read_list(list).ok()).flatten().collect()
            }
        }
    }
}

fn read_list(path: impl AsRef<Path>) -> io::Result<Vec<u32>> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LIST_BYTES).read_to_string(&mut text)?;
    // Each number is followed by a space. A number without one was cut off.
    let whole = text.rfind(' ').and_then(|end| text.get(..end)).unwrap_or_default();
    Ok(whole.split(' ').filter_map(|pid| pid.parse().ok()).collect())
}

/// Reads the parent and group of a process, and whether it has exited.
///
/// # Errors
/// The process is gone.
pub(crate) fn stat(pid: u32) -> io::Result<Stat> {
    let mut line = [0; 512];
    let read = File::open(format!("/proc/{pid}/stat"))?.read(&mut line)?;
    line.get(..read).and_then(parse_stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the start time in kernel ticks since boot. Together with the process id it identifies one process until
/// the next boot.
///
/// # Errors
/// The process is gone.
pub(crate) fn start_time(pid: u32) -> io::Result<u64> {
    let mut line = [0; 512];
    let read = File::open(format!("/proc/{pid}/stat"))?.read(&mut line)?;
    let line = String::from_utf8_lossy(line.get(..read).unwrap_or_default()).into_owned();
    let field = line.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    field.and_then(|field| field.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // `PID (NAME) STATE PARENT GROUP …`: the name may contain any character, also parentheses and spaces.
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 2;
    let fields: Vec<&[u8]> = line.get(after_name..)?.split(|byte| *byte == b' ').collect();

    let number = |index: usize| -> Option<u32> {
        std::str::from_utf8(fields.get(index)?).ok()?.parse().ok()
    };
    let (state, flags, n_threads) = (*fields.first()?, number(6)?, number(17)?);
    let is_ending = matches!(state, b"Z" | b"X") || flags & PF_EXITING != 0;
    Some(Stat { parent: number(1)?, group: number(2)?, has_ended: is_ending && n_threads <= 1 })
}

/// Returns true if the initial environment of `pid` contains the entry `NAME=VALUE`. False if it may not be read.
pub(crate) fn has_variable(pid: u32, entry: &[u8]) -> bool {
    let mut environment = Vec::new();
    File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut environment))
        .is_ok_and(|_| environment.split(|byte| *byte == 0).any(|one| one == entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn a_process_name_with_parentheses_and_spaces_does_not_mislead() {
        let rest = b"7 40 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99";
        let of = |name: &[u8]| parse_stat(&[b"42 (", name, rest.as_slice()].concat());
        let stat = Stat { parent: 7, group: 40, has_ended: false };
        assert_eq!(of(b"a) Z 1 (b c)) S "), Some(stat));
        assert_eq!(of(b"x) Z "), Some(Stat { has_ended: true, ..stat }));
        assert_eq!(parse_stat(b"42 (x"), None);
        assert_eq!(parse_stat(b"42 (x) S 7"), None);
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let of = |state: &str, flags: u32, n_threads: u32| {
            let line =
                format!("42 (x) {state} 7 40 3 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 {n_threads} 0");
            parse_stat(line.as_bytes()).unwrap().has_ended
        };
        assert!(!of("S", 4_194_304, 1));
        assert!(of("R", 4_194_304 | PF_EXITING, 1));
        assert!(of("Z", 4_194_304 | PF_EXITING, 1));
        assert!(!of("Z", 4_194_304 | PF_EXITING, 2));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child to look at")]
    fn lists_and_table_agree_on_a_family() {
        if !HAS_PROC {
            return;
        }
        let mut shell = std::process::Command::new("bash")
            .args(["-c", "sleep 60 & sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The line says that both children exist.
        shell.stdout.take().unwrap().read_exact(&mut [0]).unwrap();

        let sorted = |lineage: ProcessTree| {
            let mut members = lineage.descendants(&[shell.id()]);
            members.sort_unstable();
            members
        };
        let by_lists = sorted(ProcessTree::Lists);
        let by_table = sorted(ProcessTree::scan().unwrap());

        for member in &by_lists {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(member.pid).unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(by_lists.len(), 3);
        assert_eq!(by_lists, by_table);
    }

    #[test]
    fn a_variable_is_matched_as_a_whole_entry() {
        if !HAS_PROC {
            return;
        }
        let entry =
            std::env::vars_os().next().map(|(name, value)| [name, value].join("=".as_ref()));
        let entry = entry.unwrap().into_encoded_bytes();
        let this = std::process::id();
        assert!(has_variable(this, &entry));
        assert!(!has_variable(this, entry.split_last().unwrap().1));
        assert!(!has_variable(u32::MAX, &entry));
    }
}
