//! Reading one directory of a walk: which of its entries are kept, and which are entered. Called by `visit`.

use super::MAX_ENTRIES;
use super::globs::Named;
use super::list::{Item, Kind, Listing, open_directory, stat};
use super::order::{Block, Entry, Is, Meta, compare};
use super::rules::{Rules, Seen, Verdict};
use super::select::Select;
use super::visit::{Job, Wanted, add, warning, words};
use crate::outcome::{Skipped, Warning};
use crate::scope::Scope;
use crate::tree::{Stop, Tree};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

/// Longest path that is entered, in bytes. It bounds what paths take, however deep a tree is.
const MAX_PATH_BYTES: usize = 64 * 1024;

/// Entries between two looks at the clock.
const CHECK_EVERY: usize = 256;

/// What decides on entries; the same for all directories.
pub(super) struct Visitor<'a> {
    pub(super) scope: &'a Scope,
    pub(super) select: &'a Select,
    pub(super) wanted: &'a Wanted<'a>,
    pub(super) tree: &'a dyn Tree,
    pub(super) stop: &'a Stop,
    /// Starts, if there are several: who walks above them leaves them to themselves.
    pub(super) cuts: HashSet<Vec<u8>>,
}

/// What a directory gave.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The directory itself, for those in it.
    pub(super) handle: Option<File>,
    pub(super) block: Block,
    pub(super) children: Vec<Child>,
    pub(super) skipped: Skipped,
    pub(super) warnings: Vec<Warning>,
    /// It has more entries than are looked at.
    pub(super) is_cut: bool,
}

/// What is entered, or the file that a link leads to.
#[derive(Debug)]
pub(super) struct Child {
    /// Its place in the block.
    pub(super) entry: u32,
    pub(super) rules: Option<Arc<Rules>>,
    pub(super) shown: bool,
    pub(super) is_dir: bool,
    /// Where a link leads, relative to the root.
    pub(super) real: Option<Vec<u8>>,
}

/// Memory that is used again for the next directory.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    listing: Listing,
    drafts: Vec<Draft>,
    /// The absolute path of the entry that is looked at.
    path: Vec<u8>,
}

/// An entry that is kept, before it has its place.
#[derive(Debug)]
struct Draft {
    item: Item,
    is: Is,
    meta: Meta,
    child: Option<Child>,
}

/// What becomes of an entry.
enum Fate {
    Kept(Meta),
    Entered { shown: bool, also_kept: bool },
    Out,
}

impl Visitor<'_> {
    /// Reads the directory of a job.
    pub(super) fn read(&self, job: &Job, scratch: &mut Scratch) -> Found {
        let mut found = Found::default();
        if MAX_PATH_BYTES < job.path.len() {
            found.warnings.push(warning(&job.path, "Path is too long".to_owned()));
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
            // It was removed while we walked.
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
        self.prepare_path(job, scratch);
        let rules = job.rules.as_ref().map(|around| {
            let seen = seen(&scratch.listing);
            if seen.any() {
                let directory = scratch.path.strip_suffix(b"/").unwrap_or(&scratch.path);
                let directory = if directory.is_empty() { b"/" } else { directory };
                Rules::enter(around, &handle, Path::new(OsStr::from_bytes(directory)), seen)
            } else {
                Arc::clone(around)
            }
        });
        let around = Around { job, handle: &handle, rules: rules.as_ref() };
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

    /// The absolute path of the directory with a slash.
    fn prepare_path(&self, job: &Job, scratch: &mut Scratch) {
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
        around: &Around<'_>,
        item: Item,
        absolute: &[u8],
        drafts: &mut Vec<Draft>,
        found: &mut Found,
    ) {
        let path = self.relative(absolute);
        if !self.cuts.is_empty() && self.cuts.contains(path) {
            return;
        }
        let mut kind = item.kind;
        let mut real = None;
        if kind == Kind::Symlink && self.scope.follow {
            match self.follow(around.job, path) {
                Ok((leads_to, target)) => {
                    kind = leads_to;
                    real = Some(target);
                }
                Err(Lost::Outside) => {}
                Err(Lost::Failed(error)) => return found.unreadable(path, &error),
            }
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let entry = Named { path, name, is_dir: kind == Kind::Directory };
        let draft = |is| Draft { item, is, meta: Meta::default(), child: None };
        match self.fate(around, entry, kind, absolute, &mut found.skipped) {
            Fate::Out => (),
            Fate::Kept(meta) => {
                let is_file = kind == Kind::File;
                let child =
                    real.filter(|_| is_file).map(|real| Child::new(None, false, false, Some(real)));
                let is = match (kind, &child) {
                    (_, Some(_)) => Is::Inside(0),
                    (Kind::Symlink, None) => Is::Symlink,
                    (Kind::Directory, None) => Is::Directory,
                    _ => Is::File,
                };
                drafts.push(Draft { meta, child, ..draft(is) });
            }
            Fate::Entered { shown, also_kept } => {
                if also_kept {
                    let meta = self.meta(around.handle, name).unwrap_or_default();
                    drafts.push(Draft { meta, ..draft(Is::Directory) });
                }
                let child = Child::new(around.rules.cloned(), shown, true, real);
                drafts.push(Draft { child: Some(child), ..draft(Is::Inside(0)) });
            }
        }
    }

    fn fate(
        &self,
        around: &Around<'_>,
        entry: Named<'_>,
        kind: Kind,
        absolute: &[u8],
        skipped: &mut Skipped,
    ) -> Fate {
        if self.select.is_vcs(entry.name) {
            return Fate::Out;
        }
        let verdict =
            around.rules.map_or(Verdict::Nothing, |rules| rules.verdict(absolute, entry.is_dir));
        if verdict == Verdict::Ignore {
            skipped.ignored += 1;
            return Fate::Out;
        }
        let shown = around.job.shown;
        if verdict == Verdict::Nothing && self.select.is_left_out_as_hidden(entry.name, shown) {
            skipped.hidden += 1;
            return Fate::Out;
        }
        match kind {
            Kind::Directory => self.fate_of_directory(around, entry, skipped),
            Kind::File if self.wanted.files => self.fate_of_file(around, entry, kind, skipped),
            Kind::Symlink if self.wanted.symlinks => {
                self.fate_of_file(around, entry, kind, skipped)
            }
            Kind::File => Fate::Out,
            Kind::Symlink | Kind::Other => {
                skipped.not_regular += 1;
                Fate::Out
            }
        }
    }

    fn fate_of_directory(
        &self,
        around: &Around<'_>,
        entry: Named<'_>,
        skipped: &mut Skipped,
    ) -> Fate {
        if !self.select.enters(entry) {
            skipped.filtered += 1;
            return Fate::Out;
        }
        let is_wanted = self.wanted.dirs
            && self.select.wants_directory(entry)
            && self.wanted.offer.is_none_or(|offer| offer.wants(entry));
        let also_kept = is_wanted
            && self.wanted.offer.is_none_or(|offer| {
                let meta = self.meta(around.handle, entry.name);
                offer.wants_meta(Kind::Directory, &meta.unwrap_or_default())
            });
        if self.scope.max_depth.is_some_and(|max| max <= around.job.depth + 1) {
            if also_kept {
                let meta = self.meta(around.handle, entry.name).unwrap_or_default();
                return Fate::Kept(meta);
            }
            skipped.filtered += 1;
            return Fate::Out;
        }
        let is_asked_for = self.scope.hidden == crate::scope::Hidden::Auto
            && entry.name.starts_with(b".")
            && self.select.is_named_hidden(entry.name);
        Fate::Entered { shown: around.job.shown || is_asked_for, also_kept }
    }

    fn fate_of_file(
        &self,
        around: &Around<'_>,
        entry: Named<'_>,
        kind: Kind,
        skipped: &mut Skipped,
    ) -> Fate {
        let offer = self.wanted.offer;
        if !self.select.wants(entry) || offer.is_some_and(|offer| !offer.wants(entry)) {
            skipped.filtered += 1;
            return Fate::Out;
        }
        let needs_meta = self.wanted.stat || self.scope.max_filesize.is_some();
        if !needs_meta {
            return Fate::Kept(Meta::default());
        }
        // It was removed while we walked.
        let Some(meta) = self.meta(around.handle, entry.name) else { return Fate::Out };
        if self.scope.max_filesize.is_some_and(|max| max < meta.size) {
            skipped.too_large += 1;
            return Fate::Out;
        }
        if offer.is_some_and(|offer| !offer.wants_meta(kind, &meta)) {
            skipped.filtered += 1;
            return Fate::Out;
        }
        Fate::Kept(meta)
    }

    fn meta(&self, handle: &File, name: &[u8]) -> Option<Meta> {
        if !self.wanted.stat && self.scope.max_filesize.is_none() {
            return None;
        }
        stat(handle, name).map(meta_of)
    }

    /// Where a link leads, relative to the root, and what is there.
    fn follow(&self, job: &Job, path: &[u8]) -> Result<(Kind, Vec<u8>), Lost> {
        let root = self.tree.path();
        let target = root.join(OsStr::from_bytes(path)).canonicalize()?;
        let Ok(relative) = target.strip_prefix(root) else { return Err(Lost::Outside) };
        let metadata = target.symlink_metadata()?;
        let relative = relative.as_os_str().as_bytes().to_vec();
        if metadata.is_file() {
            return Ok((Kind::File, relative));
        }
        if !metadata.is_dir() {
            return Ok((Kind::Other, relative));
        }
        // A directory around the link, in the names that led here.
        let names = job.path.as_slice();
        let slashes = names.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut around = slashes.chain([0, names.len()]).filter_map(|end| names.get(..end));
        let loops = around.any(|path| {
            root.join(OsStr::from_bytes(path)).canonicalize().is_ok_and(|real| real == target)
        });
        if loops {
            return Err(Lost::Failed(io::Error::other(
                "Symlink leads back to a directory around it",
            )));
        }
        Ok((Kind::Directory, relative))
    }
}

#[cfg_attr(
    target_os = "linux",
    expect(clippy::useless_conversion, reason = "other systems have other widths")
)]
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

/// What is around an entry.
struct Around<'a> {
    job: &'a Job,
    handle: &'a File,
    rules: Option<&'a Arc<Rules>>,
}

/// Why a link is not followed.
enum Lost {
    Outside,
    Failed(io::Error),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Child {
    fn new(rules: Option<Arc<Rules>>, shown: bool, is_dir: bool, real: Option<Vec<u8>>) -> Self {
        Self { entry: 0, rules, shown, is_dir, real }
    }
}

impl Found {
    fn unreadable(&mut self, path: &[u8], error: &io::Error) {
        add(&mut self.skipped, &Skipped { unreadable: 1, ..Skipped::default() });
        if self.warnings.len() < crate::outcome::MAX_WARNINGS {
            self.warnings.push(warning(path, words(error)));
        }
    }
}

fn seen(listing: &Listing) -> Seen {
    let mut seen = Seen::default();
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

/// Sorts what is kept and packs it.
fn keep(listing: &Listing, drafts: &mut [Draft], with_meta: bool, found: &mut Found) {
    drafts.sort_unstable_by(|a, b| {
        let key = |draft: &Draft| {
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
            found.children.push(Child { entry, ..child });
        }
        entries.push(Entry { start, len, is: draft.is });
        if with_meta {
            metas.push(draft.meta);
        }
    }
    found.block = Block { names: names.into(), entries: entries.into(), metas: metas.into() };
}
