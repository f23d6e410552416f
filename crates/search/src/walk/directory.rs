//! Reads one directory of a walk, and decides which entries to keep and which to enter. Called by `walker`.

use super::entries::{Block, EntryRole, MAX_ENTRIES, Meta, WalkEntry, compare};
use super::filter::ScopeFilter;
use super::globs::Named;
use super::list::{EntryType, ListedName, Listing, open_directory, stat};
use super::options::WalkOptions;
use super::pending::PendingDirectory;
use super::rules::{IgnoreFilesPresent, IgnoreMatch, IgnoreRules};
use crate::outcome::{Skipped, Warning, words};
use crate::scope::Scope;
use crate::tree::{Stop, Tree};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

/// Maximum length of a path that is entered, in bytes. Bounds the memory for paths, regardless of the depth of
/// the tree.
const MAX_PATH_BYTES: usize = 64 * 1024;

/// Entries between two checks of the deadline.
const CHECK_EVERY: usize = 256;

/// Rules that decide about entries, shared by all directories.
pub(super) struct Visitor<'a> {
    pub(super) scope: &'a Scope,
    pub(super) select: &'a ScopeFilter,
    pub(super) wanted: &'a WalkOptions<'a>,
    pub(super) tree: &'a dyn Tree,
    pub(super) stop: &'a Stop,
    /// Start paths, if there are several. A walk from a directory above skips them, because they are walked
    /// separately.
    pub(super) cuts: HashSet<Vec<u8>>,
}

/// Result of reading one directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryResult {
    /// Handle of the directory, for opening its subdirectories.
    pub(super) handle: Option<File>,
    pub(super) block: Block,
    pub(super) children: Vec<Subdirectory>,
    pub(super) skipped: Skipped,
    pub(super) warnings: Vec<Warning>,
    /// The directory has more entries than the walk's limit.
    pub(super) is_cut: bool,
}

/// A subdirectory to enter, or the target of a link.
#[derive(Debug)]
pub(super) struct Subdirectory {
    /// Index in the block.
    pub(super) entry: u32,
    pub(super) rules: Option<Arc<IgnoreRules>>,
    pub(super) shown: bool,
    pub(super) is_dir: bool,
    /// Target of the link, relative to the root.
    pub(super) real: Option<Vec<u8>>,
}

/// Buffers that are reused for the next directory.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    listing: Listing,
    drafts: Vec<CollectedEntry>,
    /// Absolute path of the current entry.
    path: Vec<u8>,
}

/// A kept entry, before sorting.
#[derive(Debug)]
struct CollectedEntry {
    item: ListedName,
    is: EntryRole,
    meta: Meta,
    child: Option<Subdirectory>,
}

/// Decision about an entry.
enum EntryAction {
    Kept(Meta),
    Entered { shown: bool, also_kept: bool },
    Out,
}

impl Visitor<'_> {
    /// Reads one pending directory.
    pub(super) fn read(&self, job: &PendingDirectory, scratch: &mut Scratch) -> DirectoryResult {
        let mut found = DirectoryResult::default();
        if MAX_PATH_BYTES < job.path.len() {
            found.warnings.push(Warning::at(&job.path, "Path is too long".to_owned()));
            found.skipped.unreadable += 1;
            return found;
        }

        let name =
            || OsStr::from_bytes(job.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
        let opened = match &job.within {
            Some(within) => self.tree.open_directory_in(&within.handle, name()),
            None => open_directory(self.tree, &job.real),
        };

        let handle = match opened {
            Ok(handle) => handle,
            // The entry was removed during the walk.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return found,
            Err(error) => {
                found.unreadable(&job.path, &error);
                return found;
            }
        };

        let listed = scratch
            .listing
            .read(&handle, |n| MAX_ENTRIES < n || (n % CHECK_EVERY == 0 && self.stop.is_reached()));
        if let Err(error) = listed {
            found.unreadable(&job.path, &error);
        }

        found.is_cut = MAX_ENTRIES < scratch.listing.items.len();
        let real = Path::new(OsStr::from_bytes(&job.real));
        scratch.listing.retain(|name| !self.tree.conceals(real, name));
        self.prepare_path(job, scratch);

        let rules = job.rules.as_ref().map(|around| {
            let seen = seen(&scratch.listing);
            if seen.any() {
                let directory = scratch.path.strip_suffix(b"/").unwrap_or(&scratch.path);
                let directory = if directory.is_empty() { b"/" } else { directory };
                IgnoreRules::enter(around, &handle, Path::new(OsStr::from_bytes(directory)), seen)
            } else {
                Arc::clone(around)
            }
        });

        let around = EntryContext { job, handle: &handle, rules: rules.as_ref() };
        let Scratch { listing, drafts, path } = scratch;
        drafts.clear();
        let base = path.len();

        for (n, item) in listing.items.iter().enumerate() {
            if n % CHECK_EVERY == CHECK_EVERY - 1 && self.stop.is_reached() {
                break;
            }
            path.truncate(base);
            path.extend_from_slice(listing.name(*item));
            self.look(&around, *item, path, drafts, &mut found);
        }

        keep(listing, drafts, self.wanted.stat, &mut found);
        found.handle = Some(handle);
        found
    }

    /// Writes the absolute path of the directory, with a trailing slash, into the buffer.
    fn prepare_path(&self, job: &PendingDirectory, scratch: &mut Scratch) {
        let path = &mut scratch.path;
        path.clear();
        path.extend_from_slice(self.tree.path().as_os_str().as_bytes());
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(&job.path);
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
    }

    fn relative<'p>(&self, absolute: &'p [u8]) -> &'p [u8] {
        let rest = absolute.get(self.tree.path().as_os_str().len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    fn look(
        &self,
        around: &EntryContext<'_>,
        item: ListedName,
        absolute: &[u8],
        drafts: &mut Vec<CollectedEntry>,
        found: &mut DirectoryResult,
    ) {
        let path = self.relative(absolute);
        // Another start path begins here, and its own walk lists it.
        if !self.cuts.is_empty() && self.cuts.contains(path) {
            return;
        }

        let mut kind = item.kind;
        let mut real = None;
        if kind == EntryType::Symlink && self.scope.follow {
            match self.follow(around.job, path) {
                Ok((leads_to, target)) => {
                    kind = leads_to;
                    real = Some(target);
                }
                // A link that leads out of the root stays a link.
                Err(LinkSkipReason::Outside) => {}
                Err(LinkSkipReason::Failed(error)) => return found.unreadable(path, &error),
            }
        }

        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let entry = Named { path, name, is_dir: kind == EntryType::Directory };
        let draft = |is| CollectedEntry { item, is, meta: Meta::default(), child: None };

        match self.fate(around, entry, kind, absolute, &mut found.skipped) {
            EntryAction::Out => (),
            EntryAction::Kept(meta) => {
                let is_file = kind == EntryType::File;
                let child = real
                    .filter(|_| is_file)
                    .map(|real| Subdirectory::new(None, false, false, Some(real)));
                let is = match (kind, &child) {
                    (_, Some(_)) => EntryRole::Inside(0),
                    (EntryType::Symlink, None) => EntryRole::Symlink,
                    (EntryType::Directory, None) => EntryRole::Directory,
                    _ => EntryRole::File,
                };
                drafts.push(CollectedEntry { meta, child, ..draft(is) });
            }
            EntryAction::Entered { shown, also_kept } => {
                if also_kept {
                    let meta = self.meta(around.handle, name).unwrap_or_default();
                    drafts.push(CollectedEntry { meta, ..draft(EntryRole::Directory) });
                }
                let child = Subdirectory::new(around.rules.cloned(), shown, true, real);
                drafts.push(CollectedEntry { child: Some(child), ..draft(EntryRole::Inside(0)) });
            }
        }
    }

    fn fate(
        &self,
        around: &EntryContext<'_>,
        entry: Named<'_>,
        kind: EntryType,
        absolute: &[u8],
        skipped: &mut Skipped,
    ) -> EntryAction {
        if self.select.is_vcs(entry.name) {
            return EntryAction::Out;
        }

        let verdict = around
            .rules
            .map_or(IgnoreMatch::Nothing, |rules| rules.verdict(absolute, entry.is_dir));
        if verdict == IgnoreMatch::Ignore {
            skipped.ignored += 1;
            return EntryAction::Out;
        }

        let shown = around.job.shown;
        if verdict == IgnoreMatch::Nothing && self.select.is_left_out_as_hidden(entry.name, shown) {
            skipped.hidden += 1;
            return EntryAction::Out;
        }

        match kind {
            EntryType::Directory => self.fate_of_directory(around, entry, skipped),
            EntryType::File if self.wanted.files => self.fate_of_file(around, entry, kind, skipped),
            EntryType::Symlink if self.wanted.symlinks => {
                self.fate_of_file(around, entry, kind, skipped)
            }
            EntryType::File => EntryAction::Out,
            EntryType::Symlink | EntryType::Other => {
                skipped.not_regular += 1;
                EntryAction::Out
            }
        }
    }

    fn fate_of_directory(
        &self,
        around: &EntryContext<'_>,
        entry: Named<'_>,
        skipped: &mut Skipped,
    ) -> EntryAction {
        if !self.select.enters(entry) {
            skipped.filtered += 1;
            return EntryAction::Out;
        }

        let is_wanted = self.wanted.dirs
            && self.select.wants_directory(entry)
            && self.wanted.offer.is_none_or(|offer| offer.wants(entry));
        let also_kept = is_wanted
            && self.wanted.offer.is_none_or(|offer| {
                let meta = self.meta(around.handle, entry.name);
                offer.wants_meta(EntryType::Directory, &meta.unwrap_or_default())
            });

        if self.scope.max_depth.is_some_and(|max| max <= around.job.depth + 1) {
            if also_kept {
                let meta = self.meta(around.handle, entry.name).unwrap_or_default();
                return EntryAction::Kept(meta);
            }
            skipped.filtered += 1;
            return EntryAction::Out;
        }

        let is_named = self.scope.hidden == crate::scope::Hidden::Auto
            && entry.name.starts_with(b".")
            && self.select.is_named_hidden(entry.name);
        EntryAction::Entered { shown: around.job.shown || is_named, also_kept }
    }

    fn fate_of_file(
        &self,
        around: &EntryContext<'_>,
        entry: Named<'_>,
        kind: EntryType,
        skipped: &mut Skipped,
    ) -> EntryAction {
        let offer = self.wanted.offer;
        if !self.select.wants(entry) || offer.is_some_and(|offer| !offer.wants(entry)) {
            skipped.filtered += 1;
            return EntryAction::Out;
        }

        let needs_meta = self.wanted.stat || self.scope.max_filesize.is_some();
        if !needs_meta {
            return EntryAction::Kept(Meta::default());
        }

        // The entry was removed during the walk.
        let Some(meta) = self.meta(around.handle, entry.name) else { return EntryAction::Out };
        if self.scope.max_filesize.is_some_and(|max| max < meta.size) {
            skipped.too_large += 1;
            return EntryAction::Out;
        }
        if offer.is_some_and(|offer| !offer.wants_meta(kind, &meta)) {
            skipped.filtered += 1;
            return EntryAction::Out;
        }
        EntryAction::Kept(meta)
    }

    fn meta(&self, handle: &File, name: &[u8]) -> Option<Meta> {
        if !self.wanted.stat && self.scope.max_filesize.is_none() {
            return None;
        }
        stat(handle, name).map(meta_of)
    }

    /// Returns the target of a link, relative to the root, and its type.
    fn follow(
        &self,
        job: &PendingDirectory,
        path: &[u8],
    ) -> Result<(EntryType, Vec<u8>), LinkSkipReason> {
        let root = self.tree.path();
        let target = root.join(OsStr::from_bytes(path)).canonicalize()?;
        let Ok(relative) = target.strip_prefix(root) else { return Err(LinkSkipReason::Outside) };
        let name = relative.file_name().unwrap_or_default();
        if self.tree.conceals(relative.parent().unwrap_or(relative), name) {
            return Err(LinkSkipReason::Failed(Errno::NOENT.into()));
        }
        let metadata = target.symlink_metadata()?;
        let relative = relative.as_os_str().as_bytes().to_vec();

        if metadata.is_file() {
            return Ok((EntryType::File, relative));
        }
        if !metadata.is_dir() {
            return Ok((EntryType::Other, relative));
        }

        // The link leads to one of its parent directories within the walk. Those above the start path are walked
        // through a link like others, as by ripgrep.
        let names = job.path.as_slice();
        let slashes = memchr::memrchr_iter(b'/', names).chain([0]);
        let ends = std::iter::once(names.len()).chain(slashes).take(job.depth + 1);
        let mut around = ends.filter_map(|end| names.get(..end));
        let loops = around.any(|path| {
            root.join(OsStr::from_bytes(path)).canonicalize().is_ok_and(|real| real == target)
        });
        if loops {
            return Err(LinkSkipReason::Failed(io::Error::other(
                "Symlink leads back to a directory around it",
            )));
        }
        Ok((EntryType::Directory, relative))
    }
}

#[allow(clippy::useless_conversion, reason = "the types of these fields differ by system")]
fn meta_of(found: rustix::fs::Stat) -> Meta {
    Meta {
        size: u64::try_from(found.st_size).unwrap_or(0),
        modified: (
            i64::try_from(found.st_mtime).unwrap_or(i64::MAX),
            u32::try_from(found.st_mtime_nsec).unwrap_or(0),
        ),
        mode: u32::from(found.st_mode),
    }
}

/// Context of an entry.
struct EntryContext<'a> {
    job: &'a PendingDirectory,
    handle: &'a File,
    rules: Option<&'a Arc<IgnoreRules>>,
}

/// Reason why a link is not followed.
enum LinkSkipReason {
    Outside,
    Failed(io::Error),
}

impl From<io::Error> for LinkSkipReason {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Subdirectory {
    fn new(
        rules: Option<Arc<IgnoreRules>>,
        shown: bool,
        is_dir: bool,
        real: Option<Vec<u8>>,
    ) -> Self {
        Self { entry: 0, rules, shown, is_dir, real }
    }
}

impl DirectoryResult {
    fn unreadable(&mut self, path: &[u8], error: &io::Error) {
        self.skipped.add(&Skipped { unreadable: 1, ..Skipped::default() });
        if self.warnings.len() < crate::outcome::MAX_WARNINGS {
            self.warnings.push(Warning::at(path, words(error)));
        }
    }
}

fn seen(listing: &Listing) -> IgnoreFilesPresent {
    let mut seen = IgnoreFilesPresent::default();
    for item in &listing.items {
        match listing.name(*item) {
            b".rgignore" => seen.rgignore = true,
            b".ignore" => seen.ignore = true,
            b".gitignore" => seen.gitignore = true,
            b".git" => seen.git = true,
            b".jj" => seen.jj = true,
            _ => (),
        }
    }
    seen
}

/// Sorts and packs the kept entries.
fn keep(
    listing: &Listing,
    drafts: &mut [CollectedEntry],
    with_meta: bool,
    found: &mut DirectoryResult,
) {
    drafts.sort_unstable_by(|a, b| {
        let key = |draft: &CollectedEntry| {
            let is_inside = draft.child.as_ref().is_some_and(|child| child.is_dir);
            (draft.item, is_inside)
        };
        let ((a, a_inside), (b, b_inside)) = (key(a), key(b));
        compare((listing.name(a), a_inside), (listing.name(b), b_inside))
    });

    let mut names = Vec::with_capacity(drafts.iter().map(|draft| draft.item.len()).sum());
    let mut entries = Vec::with_capacity(drafts.len());
    let mut metas = Vec::with_capacity(if with_meta { drafts.len() } else { 0 });

    for draft in drafts {
        let name = listing.name(draft.item);
        let (Ok(start), Ok(len)) = (u32::try_from(names.len()), u16::try_from(name.len())) else {
            continue;
        };

        names.extend_from_slice(name);
        if let Some(child) = draft.child.take() {
            let entry = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            found.children.push(Subdirectory { entry, ..child });
        }

        entries.push(WalkEntry { start, len, is: draft.is });
        if with_meta {
            metas.push(draft.meta);
        }
    }

    found.block = Block { names: names.into(), entries: entries.into(), metas: metas.into() };
}
