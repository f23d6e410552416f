//! Processes as reported by the kernel. A process and a later process with the same id differ in
//! their start time.

use std::collections::BTreeSet;

/// A process id and its start time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) state: char,
    pub(crate) started: u64,
    pub(crate) name: String,
}

impl Process {
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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

fn all() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").expect("read /proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::find)
        .collect()
}

/// Returns true if exactly this process still runs. A zombie does not count.
pub(crate) fn is_alive(process: &Process) -> bool {
    Process::find(process.pid).is_some_and(|now| now.started == process.started && now.state != 'Z')
}

/// All descendants of a process.
pub(crate) fn descendants_of(pid: i32) -> BTreeSet<Process> {
    let all = all();
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
