//! The walk itself: directories that are still to read, and the threads that read them.

use super::MAX_ENTRIES;
use super::directory::{Child, Found, Scratch, Visitor};
use super::globs::Named;
use super::list::Kind;
use super::order::{Block, Dir, Entry, Is, Meta, NONE, Top, Walked, dir_path, real_path};
use super::rules::Rules;
use super::select::Select;
use super::start::{self, Start, StartKind};
use crate::error::SearchError;
use crate::note::Note;
use crate::outcome::{MAX_WARNINGS, Skipped, Warning};
use crate::scope::{GlobRule, Hidden, Ignore, Scope};
use crate::share::{Shared, n_threads};
use crate::tree::{Stop, Tree};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope as Threads};

/// A tree that has so many directories to read, of which so many are known, is worth more threads.
const MANY_DIRS: usize = 32;
const MANY_WAITING: usize = 4;

/// Directories that are held open for those in them, so that these need not be looked up from the root.
const MAX_HELD: usize = 128;

/// Which entries a walk keeps.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) files: bool,
    pub(crate) dirs: bool,
    pub(crate) symlinks: bool,
    /// Keep size, time and mode too.
    pub(crate) stat: bool,
    /// Case does not count in the include globs.
    pub(crate) ignore_case: bool,
    /// Globs that may name hidden files, beside those of the scope.
    pub(crate) names: &'a [String],
    /// What else decides.
    pub(crate) offer: Option<&'a dyn Offer>,
}

/// Decides on entries that the scope leaves, from several threads.
pub(crate) trait Offer: Sync {
    /// Whether a name is wanted.
    fn wants(&self, entry: Named<'_>) -> bool;
    /// Whether what is known of it is wanted.
    fn wants_meta(&self, kind: Kind, meta: &Meta) -> bool;
}

/// Lists the entries of a scope in byte order of their paths.
pub(crate) fn walk(
    scope: &Scope,
    wanted: &Wanted<'_>,
    tree: &dyn Tree,
    stop: &Stop,
) -> Result<Walked, SearchError> {
    let exists = |path: &Path| std::fs::symlink_metadata(tree.path().join(path)).is_ok();
    let select = Select::new(scope, wanted, tree.path(), &exists)?;
    let walked = walk_once(scope, &select, wanted, tree, stop)?;
    if walked.len() != 0 || stop.is_reached() {
        return Ok(walked);
    }
    let is_root = scope.starts.iter().all(|start| start.as_os_str().is_empty());
    if walked.skipped.filtered == 0
        && walked.skipped.ignored != 0
        && !is_root
        && scope.ignore != Ignore::None
    {
        // Who names a directory wants it looked at, also if rules above leave out all that is in it.
        let plain = Scope { ignore: Ignore::None, ..scope.clone() };
        let mut all = walk_once(&plain, &select, wanted, tree, stop)?;
        all.notes.extend(scope.starts.iter().map(|start| ignored_start(start)));
        return Ok(all);
    }
    if walked.skipped.filtered != 0 && scope.globs == GlobRule::Names {
        let anchored = select.anchored();
        let deeper = |glob: &String| {
            let bare = glob.trim_start_matches("./").trim_end_matches('/');
            let retried = anchored.iter().any(|one| one == bare);
            if retried { format!("**/{}", glob.trim_start_matches("./")) } else { glob.clone() }
        };
        let include: Vec<_> = scope.include.iter().map(deeper).collect();
        if include != scope.include {
            let retried = Scope { include: include.clone(), ..scope.clone() };
            let select = Select::new(&retried, wanted, tree.path(), &exists)?;
            let mut again = walk_once(&retried, &select, wanted, tree, stop)?;
            if again.len() != 0 {
                let changed = include.into_iter().filter(|glob| !scope.include.contains(glob));
                again.notes.extend(changed.map(|glob| Note::GlobRetried { glob }));
                return Ok(again);
            }
        }
    }
    Ok(walked)
}

fn ignored_start(start: &Path) -> Note {
    Note::IgnoredRootSearched { start: start.to_string_lossy().into_owned() }
}

fn walk_once(
    scope: &Scope,
    select: &Select,
    wanted: &Wanted<'_>,
    tree: &dyn Tree,
    stop: &Stop,
) -> Result<Walked, SearchError> {
    let above = Rules::above(tree.path(), scope.ignore);
    let mut asked: Vec<&PathBuf> = scope.starts.iter().collect();
    asked.sort_unstable();
    asked.dedup();
    let root = PathBuf::new();
    if asked.is_empty() {
        asked.push(&root);
    }
    let starts: Result<Vec<_>, _> =
        asked.iter().map(|path| start::look(path, above.as_ref(), tree)).collect();
    let cuts = match asked.as_slice() {
        [_] => HashSet::new(),
        several => several.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
    };
    let mut state = State::default();
    let mut tops = Vec::new();
    for start in starts? {
        state.begin(start, scope, &mut tops);
    }
    let visitor = Visitor { scope, select, wanted, tree, stop, cuts };
    let crew = Crew { visitor, shared: Shared::new(state) };
    std::thread::scope(|threads| crew.work(Some(threads)));
    let state = crew.shared.into_inner();
    let mut walked = Walked {
        dirs: state.dirs,
        skipped: state.skipped,
        warnings: state.warnings,
        too_many_files: state.too_many,
        notes: state.notes,
        ..Walked::default()
    };
    walked.arrange(tops);
    Ok(walked)
}

/// A directory that is to be read.
#[derive(Debug)]
pub(super) struct Job {
    dir: u32,
    pub(super) rules: Option<Arc<Rules>>,
    /// Levels below its start.
    pub(super) depth: usize,
    /// Hidden names are shown, because one around was asked for.
    pub(super) shown: bool,
    /// The open directory in which it is, if few are held open.
    pub(super) within: Option<Arc<Held>>,
    /// Where it is, in names and really.
    pub(super) path: Vec<u8>,
    pub(super) real: Vec<u8>,
}

/// A directory that is held open for those in it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) handle: File,
    n_held: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.n_held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the threads share.
#[derive(Debug, Default)]
struct State {
    n_held: Arc<AtomicUsize>,
    dirs: Vec<Dir>,
    /// The next one last.
    jobs: Vec<Job>,
    n_busy: usize,
    n_kept: usize,
    skipped: Skipped,
    warnings: Vec<Warning>,
    notes: Vec<Note>,
    too_many: bool,
    has_help: bool,
}

impl State {
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
            self.jobs.push(Job {
                dir,
                rules: start.rules,
                depth: 0,
                shown: start.is_hidden && scope.hidden == Hidden::Auto,
                within: None,
                path: Vec::new(),
                real: Vec::new(),
            });
        }
        let top = Some(Box::new(Top { path, real: None }));
        self.dirs.push(Dir { parent: NONE, entry: 0, top, block });
    }

    fn warn(&mut self, path: &[u8], error: &io::Error) {
        self.skipped.unreadable += 1;
        self.warnings.push(warning(path, words(error)));
        self.trim_warnings();
    }

    /// The first in the order of paths, whichever thread was quicker.
    fn trim_warnings(&mut self) {
        self.warnings.sort_by(|a, b| a.path.cmp(&b.path));
        self.warnings.truncate(MAX_WARNINGS);
    }

    /// Keeps what was found in a directory.
    fn finish(&mut self, job: &Job, mut found: Found) {
        add(&mut self.skipped, &found.skipped);
        self.too_many |= found.is_cut;
        self.warnings.extend(found.warnings);
        self.trim_warnings();
        self.n_kept += found.block.entries.len();
        let within =
            found.handle.take().filter(|_| !found.children.is_empty()).and_then(|handle| {
                let is_free = self.n_held.load(Ordering::Relaxed) < MAX_HELD;
                is_free.then(|| {
                    self.n_held.fetch_add(1, Ordering::Relaxed);
                    Arc::new(Held { handle, n_held: Arc::clone(&self.n_held) })
                })
            });
        let mut block = found.block;
        let mut jobs = Vec::with_capacity(found.children.len());
        for child in found.children {
            if MAX_ENTRIES <= self.n_kept + self.jobs.len() {
                self.too_many = true;
                break;
            }
            self.adopt(job, child, within.as_ref(), &mut block, &mut jobs);
        }
        if let Some(dir) = self.dirs.get_mut(job.dir as usize) {
            dir.block = block;
        }
        self.jobs.extend(jobs.into_iter().rev());
        if MAX_ENTRIES <= self.n_kept {
            self.too_many = true;
            self.jobs.clear();
        }
    }

    fn adopt(
        &mut self,
        job: &Job,
        child: Child,
        within: Option<&Arc<Held>>,
        block: &mut Block,
        jobs: &mut Vec<Job>,
    ) {
        let dir = u32::try_from(self.dirs.len()).unwrap_or(NONE);
        let Some(entry) = block.entries.get_mut(child.entry as usize) else { return };
        entry.is = Is::Inside(dir);
        // What a link leads to is not in there.
        let within = within.filter(|_| child.real.is_none()).cloned();
        let top = child.real.map(|real| Box::new(Top { path: Vec::new(), real: Some(real) }));
        let is_dir = child.is_dir;
        self.dirs.push(Dir {
            parent: job.dir,
            entry: child.entry,
            top,
            block: if is_dir { Block::default() } else { lone_file() },
        });
        if is_dir {
            jobs.push(Job {
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

    fn next(&mut self) -> Option<Option<Job>> {
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

/// A file that has a place of its own: a start, or what a link that is followed leads to.
fn lone_file() -> Block {
    let entry = Entry { start: 0, len: 0, is: Is::File };
    Block { names: Box::default(), entries: Box::new([entry]), metas: Box::default() }
}

pub(super) fn warning(path: &[u8], reason: String) -> Warning {
    let path = if path.is_empty() { b"." } else { path };
    Warning { path: PathBuf::from(OsStr::from_bytes(path)), reason }
}

/// What the system says, without the number that the standard library adds.
pub(crate) fn words(error: &io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error").unwrap_or(text.len()));
    text
}

/// Adds up what was left out.
pub(crate) fn add(sum: &mut Skipped, more: &Skipped) {
    sum.ignored += more.ignored;
    sum.hidden += more.hidden;
    sum.binary += more.binary;
    sum.too_large += more.too_large;
    sum.too_long += more.too_long;
    sum.unreadable += more.unreadable;
    sum.not_regular += more.not_regular;
    sum.filtered += more.filtered;
}

struct Crew<'a> {
    visitor: Visitor<'a>,
    shared: Shared<State>,
}

impl Crew<'_> {
    /// Reads directories until there are none. The first thread gets help for a large tree.
    fn work<'s>(&'s self, threads: Option<&'s Threads<'s, '_>>) {
        let mut scratch = Scratch::default();
        while let Some(job) = self.shared.wait_for(State::next) {
            let found = if self.visitor.stop.is_reached() {
                Found::default()
            } else {
                self.visitor.read(&job, &mut scratch)
            };
            let (is_end_or_more, help) = self.shared.with(|state| {
                state.finish(&job, found);
                state.n_busy -= 1;
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
                    // Without help it only takes longer.
                    let _no_thread = Builder::new().spawn_scoped(threads, || self.work(None));
                }
            }
        }
    }
}
