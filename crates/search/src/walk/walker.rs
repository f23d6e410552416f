//! Walks a tree: the queue of pending directories, and the threads that read them.

use super::directory::{DirectoryResult, Scratch, Subdirectory, Visitor};
use super::entries::{
    Block, Dir, EntryRole, MAX_ENTRIES, NONE, StartPath, WalkEntry, WalkResult, dir_path, real_path,
};
use super::filter::ScopeFilter;
use super::options::WalkOptions;
use super::pending::{DirHandle, PendingDirectory};
use super::rules::IgnoreRules;
use super::start::{self, Start, StartKind};
use crate::condvar::{Monitored, n_threads};
use crate::error::SearchError;
use crate::note::Note;
use crate::outcome::{MAX_WARNINGS, Skipped, Warning, words};
use crate::scope::{GlobRule, Hidden, Ignore, Scope};
use crate::tree::{Stop, Tree};
use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope as Threads};

/// Number of directories known, and number pending, from which a walk starts more threads.
const MANY_DIRS: usize = 32;
const MANY_WAITING: usize = 4;

/// Maximum number of directories that stay open for their children, which then need no lookup from the root.
const MAX_HELD: usize = 128;

/// Walks a scope and returns its entries in byte order of their paths.
pub(crate) fn walk(
    scope: &Scope,
    options: &WalkOptions<'_>,
    tree: &dyn Tree,
    stop: &Stop,
) -> Result<WalkResult, SearchError> {
    let exists = |path: &Path| exists_in(tree, path);
    let select = ScopeFilter::new(scope, options, tree.path(), &exists)?;

    let walked = walk_once(scope, &select, options, tree, stop)?;
    if walked.len() != 0 || stop.is_reached() {
        return Ok(walked);
    }

    let is_root = scope.starts.iter().all(|start| start.as_os_str().is_empty());
    if walked.skipped.filtered == 0
        && walked.skipped.ignored != 0
        && !is_root
        && scope.ignore != Ignore::None
    {
        // A directory that the request names is searched, even if rules above it exclude all its contents.
        let plain = Scope { ignore: Ignore::None, ..scope.clone() };
        let mut all = walk_once(&plain, &select, options, tree, stop)?;
        all.notes.extend(scope.starts.iter().map(|start| ignored_start(start)));
        return Ok(all);
    }

    if walked.skipped.filtered != 0 && scope.globs == GlobRule::Names {
        let anchored = select.anchored();
        let deeper = |glob: &String| {
            let bare = glob.trim_start_matches("./").trim_end_matches('/');
            let retried = anchored.iter().any(|other| other == bare);
            if retried { format!("**/{}", glob.trim_start_matches("./")) } else { glob.clone() }
        };

        let include: Vec<_> = scope.include.iter().map(deeper).collect();
        if include != scope.include {
            let retried = Scope { include: include.clone(), ..scope.clone() };
            let select = ScopeFilter::new(&retried, options, tree.path(), &exists)?;
            let mut again = walk_once(&retried, &select, options, tree, stop)?;
            if again.len() != 0 {
                let changed = include.into_iter().filter(|glob| !scope.include.contains(glob));
                again.notes.extend(changed.map(|glob| Note::GlobRetried { glob }));
                return Ok(again);
            }
        }
    }
    Ok(walked)
}

/// Whether a path relative to the root exists.
pub(crate) fn exists_in(tree: &dyn Tree, path: &Path) -> bool {
    let (directory, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    !tree.conceals(directory, name) && std::fs::symlink_metadata(tree.path().join(path)).is_ok()
}

fn ignored_start(start: &Path) -> Note {
    Note::IgnoredRootSearched { start: start.to_string_lossy().into_owned() }
}

fn walk_once(
    scope: &Scope,
    select: &ScopeFilter,
    wanted: &WalkOptions<'_>,
    tree: &dyn Tree,
    stop: &Stop,
) -> Result<WalkResult, SearchError> {
    let above = IgnoreRules::above(tree.path(), scope.ignore);

    let mut paths: Vec<&PathBuf> = scope.starts.iter().collect();
    paths.sort_unstable();
    paths.dedup();
    let root = PathBuf::new();
    if paths.is_empty() {
        paths.push(&root);
    }

    let starts: Result<Vec<_>, _> =
        paths.iter().map(|path| start::look(path, above.as_ref(), tree)).collect();
    let cuts = match paths.as_slice() {
        [_] => HashSet::new(),
        several => several.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
    };

    let mut state = WalkQueue::default();
    let mut tops = Vec::new();
    for start in starts? {
        state.begin(start, scope, &mut tops);
    }

    let visitor = Visitor { scope, select, wanted, tree, stop, cuts };
    let crew = WalkThreads { visitor, shared: Monitored::new(state) };
    std::thread::scope(|threads| crew.work(Some(threads)));
    let state = crew.shared.into_inner();

    let mut walked = WalkResult {
        dirs: state.dirs,
        skipped: state.skipped,
        warnings: state.warnings,
        too_many_files: state.too_many,
        notes: state.notes,
        ..WalkResult::default()
    };

    walked.arrange(tops);
    Ok(walked)
}

/// State shared by the threads.
#[derive(Debug, Default)]
struct WalkQueue {
    n_held: Arc<AtomicUsize>,
    dirs: Vec<Dir>,
    /// Pending directories. The next one is last.
    jobs: Vec<PendingDirectory>,
    n_busy: usize,
    n_kept: usize,
    skipped: Skipped,
    warnings: Vec<Warning>,
    notes: Vec<Note>,
    too_many: bool,
    has_help: bool,
}

impl WalkQueue {
    fn begin(&mut self, start: Start, scope: &Scope, tops: &mut Vec<u32>) {
        let path = start.path.as_os_str().as_bytes().to_vec();
        if start.is_ignored {
            self.notes.push(ignored_start(&start.path));
        }

        let block = match start.is {
            StartKind::Unreadable(error) => {
                self.warn(&path, &error);
                return;
            }
            StartKind::File => lone_file(),
            StartKind::Directory => Block::default(),
        };

        let dir = u32::try_from(self.dirs.len()).unwrap_or(NONE);
        tops.push(dir);
        if block.entries.is_empty() {
            self.jobs.push(PendingDirectory {
                dir,
                rules: start.rules,
                depth: 0,
                shown: start.is_hidden && scope.hidden == Hidden::Auto,
                within: None,
                // Set by `next`, so that waiting directories take no memory for paths.
                path: Vec::new(),
                real: Vec::new(),
            });
        }

        let top = Some(Box::new(StartPath { path, real: None }));
        self.dirs.push(Dir { parent: NONE, entry: 0, top, block });
    }

    fn warn(&mut self, path: &[u8], error: &io::Error) {
        self.skipped.unreadable += 1;
        self.warnings.push(Warning::at(path, words(error)));
        self.trim_warnings();
    }

    /// Keeps the first warnings in path order, regardless of the order in which threads reported them.
    fn trim_warnings(&mut self) {
        self.warnings.sort_by(|a, b| a.path.cmp(&b.path));
        self.warnings.truncate(MAX_WARNINGS);
    }

    /// Records the result of a directory.
    fn finish(&mut self, job: &PendingDirectory, mut result: DirectoryResult) {
        self.skipped.add(&result.skipped);
        self.too_many |= result.is_cut;
        self.warnings.extend(result.warnings);
        self.trim_warnings();
        self.n_kept += result.block.entries.len();

        let within =
            result.handle.take().filter(|_| !result.children.is_empty()).and_then(|handle| {
                // The number of files that a process may open is limited.
                let is_free = self.n_held.load(Ordering::Relaxed) < MAX_HELD;
                is_free.then(|| Arc::new(DirHandle::new(handle, &self.n_held)))
            });

        let mut block = result.block;
        let mut jobs = Vec::with_capacity(result.children.len());
        for child in result.children {
            if MAX_ENTRIES <= self.n_kept + self.jobs.len() {
                self.too_many = true;
                break;
            }
            self.adopt(job, child, within.as_ref(), &mut block, &mut jobs);
        }

        if let Some(dir) = self.dirs.get_mut(job.dir as usize) {
            dir.block = block;
        }
        // The last job is taken first, so the children go on in reverse order.
        self.jobs.extend(jobs.into_iter().rev());
        if MAX_ENTRIES <= self.n_kept {
            self.too_many = true;
            self.jobs.clear();
        }
    }

    fn adopt(
        &mut self,
        job: &PendingDirectory,
        child: Subdirectory,
        within: Option<&Arc<DirHandle>>,
        block: &mut Block,
        jobs: &mut Vec<PendingDirectory>,
    ) {
        let dir = u32::try_from(self.dirs.len()).unwrap_or(NONE);
        let Some(entry) = block.entries.get_mut(child.entry as usize) else { return };
        entry.is = EntryRole::Inside(dir);

        // The target of a link is not inside this directory.
        let within = within.filter(|_| child.real.is_none()).cloned();
        let top = child.real.map(|real| Box::new(StartPath { path: Vec::new(), real: Some(real) }));
        let is_dir = child.is_dir;

        self.dirs.push(Dir {
            parent: job.dir,
            entry: child.entry,
            top,
            block: if is_dir { Block::default() } else { lone_file() },
        });

        if is_dir {
            jobs.push(PendingDirectory {
                dir,
                rules: child.rules,
                depth: job.depth + 1,
                shown: child.shown,
                within,
                path: Vec::new(),
                real: Vec::new(),
            });
        }
    }

    fn next(&mut self) -> Option<Option<PendingDirectory>> {
        match self.jobs.pop() {
            Some(mut job) => {
                self.n_busy += 1;
                job.path = dir_path(&self.dirs, job.dir);
                job.real = real_path(&self.dirs, job.dir);
                Some(Some(job))
            }
            None if self.n_busy == 0 => Some(None),
            None => None,
        }
    }
}

/// Creates a separate block for a file: a start path, or the target of a followed link.
fn lone_file() -> Block {
    let entry = WalkEntry { start: 0, len: 0, is: EntryRole::File };
    Block { names: Box::default(), entries: Box::new([entry]), metas: Box::default() }
}

struct WalkThreads<'a> {
    visitor: Visitor<'a>,
    shared: Monitored<WalkQueue>,
}

impl WalkThreads<'_> {
    /// Reads directories until none are pending. The first thread starts more threads for a large tree.
    fn work<'s>(&'s self, threads: Option<&'s Threads<'s, '_>>) {
        let mut scratch = Scratch::default();
        while let Some(job) = self.shared.wait_for(WalkQueue::next) {
            let result = if self.visitor.stop.is_reached() {
                DirectoryResult::default()
            } else {
                self.visitor.read(&job, &mut scratch)
            };

            let (is_end_or_more, help) = self.shared.with(|state| {
                state.finish(&job, result);
                state.n_busy -= 1;
                // For a small tree, more threads cost more than they gain.
                let is_large = MANY_WAITING <= state.jobs.len() && MANY_DIRS <= state.dirs.len();
                let help = is_large && !state.has_help && threads.is_some();
                state.has_help |= help;
                (state.has_help, help)
            });

            if is_end_or_more {
                self.shared.tell();
            }
            if let Some(threads) = threads.filter(|_| help) {
                for _ in 1..n_threads() {
                    // If no thread can be started, the walk only takes longer.
                    Builder::new().spawn_scoped(threads, || self.work(None)).ok();
                }
            }
        }
    }
}
