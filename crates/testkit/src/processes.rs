//! Processes as reported by Linux. A process and a later process with the same id differ in
//! their start time. Other systems have no `/proc`: there a single process is not found, and a list fails the test.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

/// A process id and its start time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Process id of the parent.
    pub parent: i32,
    /// State as a letter of the kernel: `T` is stopped, `Z` a zombie.
    pub state: char,
    /// Start time in clock ticks after the start of the system.
    pub started: u64,
    /// Name of the program, at most 15 bytes.
    pub name: String,
}

impl Process {
    /// Returns the process with this id, also a zombie. `None` if there is none.
    pub fn find(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain any character.
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        Some(Self {
            pid,
            name,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Ids of all processes.
#[track_caller]
pub fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("read /proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns true if exactly this process still runs. A zombie does not count.
pub fn is_alive(process: &Process) -> bool {
    Process::find(process.pid).is_some_and(|now| now.started == process.started && now.state != 'Z')
}

/// Returns true if a process with this id runs. A zombie does not count: its parent may reap it late.
pub fn runs(pid: u32) -> bool {
    let process = i32::try_from(pid).ok().and_then(Process::find);
    process.is_some_and(|process| !['Z', 'X'].contains(&process.state))
}

/// Fails the test if a process with one of these ids is left, also as a zombie, or if there are no ids.
#[track_caller]
pub fn assert_gone<P: Display>(pids: &[P]) {
    assert!(!pids.is_empty(), "no process");
    let paths = pids.iter().map(|pid| format!("/proc/{pid}"));
    let left: Vec<String> = paths.filter(|path| Path::new(path).exists()).collect();
    assert!(left.is_empty(), "left: {left:?}");
}

/// All descendants of a process.
#[track_caller]
pub fn descendants_of(pid: i32) -> BTreeSet<Process> {
    let all: Vec<Process> = pids().into_iter().filter_map(Process::find).collect();
    let mut found = BTreeSet::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            if found.insert(child.clone()) {
                parents.push(child.pid);
            }
        }
    }
    found
}

/// Returns a number of KiB from a file of a process: `field` in `/proc/PID/FILE`, such as `VmRSS:` in `status`. `None`
/// if the caller may not read it.
pub fn kib(pid: i32, file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim_matches([' ', '\t', 'k', 'B']).parse().ok()
}
