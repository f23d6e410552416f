//! Finds garbage. Deletes nothing. Called by the users of [`super`].

use super::handles::{age, bytes, open_dir, open_state};
use super::{
    Found, Item, Kind, Known, ORPHAN_MIN_AGE, READ_FILES, Rules, agents, caches, histories,
};
use crate::Home;
use crate::ownership::is_retired_run;
use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// Maximum number of entries to inspect in one scan.
const MAX_ENTRIES: usize = 200_000;

/// Maximum number of items to return from one scan.
const MAX_ITEMS: usize = 20_000;

/// Maximum depth for computing the size of a tree.
const MAX_DEPTH: usize = 16;

/// Minimum age of deletable files. A younger file may be in use.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Files that are replaced atomically. An interrupted save leaves their name with a suffix of [`UNFINISHED`],
/// and the quarantine appends `.corrupt-<n>`.
const REPLACED: [&str; 9] = [
    "metadata.json",
    "metadata.json.ours",
    "quackd-state.json",
    "login-environment.json",
    "interrupted.json",
    "mcp-install.json",
    "config.json",
    "remote-auth-token",
    "page-tokens.json",
];
const UNFINISHED: [&str; 2] = [".tmp", ".bak.tmp"];

/// Finds garbage. `known` is the set of live sessions; if it is `None`, files that may belong to a session
/// are kept. Blocks on the disk.
///
/// # Errors
/// The state directory cannot be read. An unreadable directory inside it counts as empty.
pub fn find_blocking(home: &Home, rules: &Rules, known: Option<&Known>) -> io::Result<Found> {
    let state = open_state(home.dir())?;
    let mut scan = GarbageScan {
        rules,
        now: SystemTime::now(),
        left: MAX_ENTRIES,
        items: Vec::new(),
        undo: Vec::new(),
    };

    scan.top(&state);
    scan.runs(&state, known);
    for name in [c"isolated", c"checkpoints"] {
        known.into_iter().for_each(|known| scan.of_no_session(&state, name, known));
    }

    if let Some((known, older)) = known.zip(rules.histories) {
        scan.histories(&state, known, older);
    }
    scan.surplus_of_undo();
    scan.items.extend(caches::find(&state, rules.caches_max_bytes, known, scan.now));
    if let Some(unused) = rules.agents {
        scan.items.extend(agents::find(&state, unused, scan.now));
    }

    let GarbageScan { mut items, left, .. } = scan;
    items.sort_by_key(|item| (item.kind, std::cmp::Reverse(item.age)));
    // At a limit, the caller scans again after it has deleted these items.
    let is_cut = left == 0 || MAX_ITEMS < items.len();
    items.truncate(MAX_ITEMS);
    Ok(Found { items, is_cut })
}

struct GarbageScan<'a> {
    rules: &'a Rules,
    now: SystemTime,
    /// Number of entries that may still be inspected.
    left: usize,
    items: Vec<Item>,
    /// Originals that are younger than the maximum age.
    undo: Vec<Item>,
}

/// Name and stat of a directory entry.
struct DirEntry {
    name: CString,
    stat: Stat,
}

impl DirEntry {
    fn text(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    fn is(&self, kind: FileType) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == kind
    }
}

impl GarbageScan<'_> {
    /// Scans the state directory itself.
    fn top(&mut self, state: &OwnedFd) {
        for entry in self.entries(state) {
            let name = entry.text();
            let age = self.age(&entry);
            if is_retired_run(state, name) {
                // Another thread may be deleting it at the same time, which does no harm.
                self.tree(Kind::Leftovers, state, &[], &entry, age);
            }

            let unfinished = REPLACED
                .iter()
                .any(|of| UNFINISHED.iter().any(|end| name.strip_suffix(end) == Some(of)));
            // The daemon may be in the middle of this save.
            if unfinished && !self.rules.is_served {
                self.file(Kind::Unfinished, &[], &entry, age);
            }

            let older = |limit: Option<Duration>| limit.is_some_and(|limit| limit <= age);
            if is_set_aside(name) && older(self.rules.quarantined) {
                self.tree(Kind::Quarantined, state, &[], &entry, age);
            }
        }
    }

    /// Scans a directory with one subdirectory for each session that has such data.
    fn of_no_session(&mut self, state: &OwnedFd, name: &CStr, known: &Known) {
        let Ok(dir) = open_dir(state, name, false) else { return };
        for session in self.entries(&dir) {
            let age = self.age(&session);
            // A younger directory may belong to a session that is being created.
            if ORPHAN_MIN_AGE <= age && !known.sessions.contains(session.text()) {
                self.tree(Kind::Runs, &dir, &[name.to_owned()], &session, age);
            }
        }
    }

    fn runs(&mut self, state: &OwnedFd, known: Option<&Known>) {
        let Ok(run) = open_dir(state, c"run", false) else { return };
        for session in self.entries(&run) {
            if !session.is(FileType::Directory) {
                continue;
            }

            let Ok(dir) = open_dir(&run, &session.name, false) else { continue };
            let at = [c"run".to_owned(), session.name.clone()];
            let id = session.text();

            match known {
                Some(known) if !known.sessions.contains(id) => {
                    let age = self.age(&session);
                    if ORPHAN_MIN_AGE <= age {
                        self.tree(Kind::Runs, &run, &at[..1], &session, age);
                    }
                }
                Some(known) if !known.busy.contains(id) => {
                    self.run(&dir, &at, !known.live.contains(id));
                }
                // The session is busy, or the live set is unknown.
                Some(_) | None => {}
            }
        }
    }

    /// Scans the run directory of an idle session.
    fn run(&mut self, dir: &OwnedFd, at: &[CString; 2], has_no_process: bool) {
        for entry in self.entries(dir) {
            let age = self.age(&entry);
            let is_old = self.rules.outputs.max(MIN_AGE) <= age;
            match entry.text() {
                "journal" => self.journal(dir, at),
                "tmp" if has_no_process => self.temporary(dir, at),
                READ_FILES | "tmp" => {}
                name if is_old && name.ends_with(".log") && entry.is(FileType::RegularFile) => {
                    self.file(Kind::Outputs, at, &entry, age);
                }
                _ if is_old && has_no_process => self.tree(Kind::Temporary, dir, at, &entry, age),
                _ => {}
            }
        }
    }

    /// Scans a journal. Each of its entries is a directory with two files.
    fn journal(&mut self, run: &OwnedFd, at: &[CString; 2]) {
        let Ok(journal) = open_dir(run, c"journal", false) else { return };
        let at = [at[0].clone(), at[1].clone(), c"journal".to_owned()];
        for entry in self.entries(&journal) {
            let Ok(dir) = open_dir(&journal, &entry.name, false) else { continue };
            let files = self.entries(&dir);
            let ages = files.iter().map(|file| self.age(file));
            // The entry is as young as its youngest part.
            let age = ages.chain([self.age(&entry)]).min().unwrap_or_default();
            let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(bytes(&file.stat)));

            let item = Item::new(Kind::Undo, &at, &entry.name, bytes, age);
            if self.rules.undo.max(MIN_AGE) <= age {
                self.items.push(item);
            } else {
                self.undo.push(item);
            }
        }
    }

    fn temporary(&mut self, run: &OwnedFd, at: &[CString; 2]) {
        let Ok(tmp) = open_dir(run, c"tmp", false) else { return };
        let at = [at[0].clone(), at[1].clone(), c"tmp".to_owned()];
        for entry in self.entries(&tmp) {
            let age = self.age(&entry);
            if ORPHAN_MIN_AGE <= age {
                self.tree(Kind::Temporary, &tmp, &at, &entry, age);
            }
        }
    }

    /// Deletes the oldest originals until the total size is below the limit.
    fn surplus_of_undo(&mut self) {
        let mut undo = std::mem::take(&mut self.undo);
        undo.sort_by_key(|item| std::cmp::Reverse(item.age));

        let mut sum = undo.iter().fold(0_u64, |sum, item| sum.saturating_add(item.bytes));
        for item in undo {
            if sum <= self.rules.undo_max_bytes {
                break;
            }
            // A younger original may be in use.
            if MIN_AGE <= item.age {
                sum = sum.saturating_sub(item.bytes);
                self.items.push(item);
            }
        }
    }

    /// Scans the app's and Pi's histories for sessions that do not exist.
    fn histories(&mut self, state: &OwnedFd, known: &Known, older: Duration) {
        let is_history =
            |entry: &DirEntry| entry.text().ends_with(".jsonl") && entry.is(FileType::RegularFile);
        if let Ok(dir) = open_dir(state, c"sessions", true) {
            for entry in self.entries(&dir).into_iter().filter(is_history) {
                let age = self.age(&entry);
                let id = entry.text().trim_end_matches(".jsonl");
                if older.max(ORPHAN_MIN_AGE) <= age && !known.sessions.contains(id) {
                    self.file(Kind::Histories, &[c"sessions".to_owned()], &entry, age);
                }
            }
        }

        let Ok(dir) = open_dir(state, c"pi-sessions", true) else { return };
        for entry in self.entries(&dir).into_iter().filter(is_history) {
            let age = self.age(&entry);
            if age < older.max(ORPHAN_MIN_AGE) || known.pi_files.contains(entry.text()) {
                continue;
            }
            // The metadata names only the current conversation of a session, not earlier ones.
            let is_orphaned = histories::workspace(&dir, &entry.name)
                .is_some_and(|workspace| !known.workspaces.contains(&workspace));
            if is_orphaned {
                self.file(Kind::Histories, &[c"pi-sessions".to_owned()], &entry, age);
            }
        }
    }

    fn file(&mut self, kind: Kind, at: &[CString], entry: &DirEntry, age: Duration) {
        self.items.push(Item::new(kind, at, &entry.name, bytes(&entry.stat), age));
    }

    fn tree(&mut self, kind: Kind, dir: &OwnedFd, at: &[CString], entry: &DirEntry, age: Duration) {
        let bytes = self.size(dir.as_fd(), entry, MAX_DEPTH);
        self.items.push(Item::new(kind, at, &entry.name, bytes, age));
    }

    /// Returns the disk usage of an entry, recursively up to `depth` levels.
    fn size(&mut self, at: rustix::fd::BorrowedFd<'_>, entry: &DirEntry, depth: usize) -> u64 {
        let own = bytes(&entry.stat);
        let deeper = depth.checked_sub(1).filter(|_| entry.is(FileType::Directory));
        let (Some(deeper), Ok(dir)) = (deeper, open_dir(at, &entry.name, false)) else {
            return own;
        };
        let children = self.entries(&dir);
        children
            .iter()
            .fold(own, |sum, child| sum.saturating_add(self.size(dir.as_fd(), child, deeper)))
    }

    fn entries(&mut self, dir: &OwnedFd) -> Vec<DirEntry> {
        let Ok(entries) = Dir::read_from(dir) else { return Vec::new() };
        let mut listed = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }

            if self.left == 0 {
                break;
            }
            self.left -= 1;
            if let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                listed.push(DirEntry { name: name.to_owned(), stat });
            }
        }
        listed
    }

    fn age(&self, entry: &DirEntry) -> Duration {
        age(&entry.stat, self.now)
    }
}

/// Returns true for the name of a quarantined file.
fn is_set_aside(name: &str) -> bool {
    let Some((original, number)) = name.rsplit_once(".corrupt-") else { return false };
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number && REPLACED.contains(&original)
}
