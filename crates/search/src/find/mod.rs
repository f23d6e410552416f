//! Finds files, directories and symlinks by name: walks with a name filter, sorts, and returns one page.

mod fuzzy;
mod names;
mod request;

pub use request::{EntryKind, Find, FindOutcome, FindSort, FoundEntry, Kinds, NameRule};

use crate::cursor::Cursor;
use crate::error::SearchError;
use crate::outcome::Total;
use crate::request::MAX_ROWS;
use crate::tree::Tree;
use crate::walk::{self, EntryFilter, EntryIndex, EntryType, Meta, WalkOptions, WalkResult};
use names::NameMatcher;
use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Receives entries in order. Returns false to stop.
pub type EntrySink<'a> = dyn FnMut(FoundEntry) -> bool + Send + 'a;

/// Finds the entries of a request. With a sink, they go there instead of into the outcome.
pub(crate) fn run(
    request: &Find,
    tree: &dyn Tree,
    sink: Option<&mut EntrySink<'_>>,
) -> Result<FindOutcome, SearchError> {
    let began = Instant::now();
    let hash = hash_of_find(request, tree.path());
    let cursor = request.cursor.as_deref().map(|text| Cursor::read(text, hash)).transpose()?;

    let mut scope = request.scope.clone();
    let names = NameMatcher::new(request, &mut scope, tree)?;
    let by_meta = ByMeta::of(request);
    let choice = FindFilter { names: &names, by_meta: &by_meta };

    let sorts_by_meta = matches!(request.sort_by, FindSort::Modified | FindSort::Size);
    let options = WalkOptions {
        files: request.kinds.files,
        dirs: request.kinds.dirs && !by_meta.only_files,
        symlinks: request.kinds.symlinks && !by_meta.only_files,
        stat: request.long || sorts_by_meta || by_meta.is_needed(),
        ignore_case: names::ignores_case(request),
        names: match &request.name {
            NameRule::Globs(globs) => globs,
            _ => &[],
        },
        offer: Some(&choice),
    };

    let mut walked = walk::walk(&scope, &options, tree, &request.stop)?;
    if request.stop.is_cancelled() {
        return Err(SearchError::Cancelled);
    }

    let scores = order(request, &names, &mut walked);
    let mut outcome = page(request, &walked, cursor, hash, &scores, sink);
    outcome.timed_out = request.stop.is_reached();
    outcome.total.is_exact = !outcome.timed_out && !walked.too_many_files;
    outcome.elapsed = began.elapsed();

    // The request may have been cancelled while the page was made.
    if request.stop.is_cancelled() {
        return Err(SearchError::Cancelled);
    }
    Ok(outcome)
}

/// Hash of the fields that decide which entries are found, and in which order. A cursor belongs to one hash.
fn hash_of_find(request: &Find, root: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    (&request.name, request.case, request.kinds, &request.scope).hash(&mut hasher);
    (request.min_size, request.max_size).hash(&mut hasher);
    (request.modified_after, request.modified_before, request.sort_by).hash(&mut hasher);
    hasher.finish()
}

/// Sorts the entries as requested. Returns their scores in that order, or nothing without a fuzzy name.
fn order(request: &Find, names: &NameMatcher, walked: &mut WalkResult) -> Vec<u32> {
    let scores = names.scores(walked, &request.stop);
    match request.sort_by {
        FindSort::Path => scores,
        FindSort::Modified => {
            let order = sorted(walked, |n| Reverse(walked.meta_at(n).modified));
            arrange(walked, &order, &scores)
        }
        FindSort::Size => {
            let order = sorted(walked, |n| Reverse(walked.meta_at(n).size));
            arrange(walked, &order, &scores)
        }
        FindSort::Score => {
            let order = sorted(walked, |n| Reverse(scores.get(n).copied().unwrap_or(0)));
            arrange(walked, &order, &scores)
        }
    }
}

/// Returns the entry numbers sorted by a key. Entries with equal keys stay in path order.
fn sorted<K: Ord>(walked: &WalkResult, key: impl Fn(usize) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..walked.len()).collect();
    order.sort_by_cached_key(|n| key(*n));
    order
}

fn arrange(walked: &mut WalkResult, order: &[usize], scores: &[u32]) -> Vec<u32> {
    walked.permute(order);
    order.iter().filter_map(|n| scores.get(*n).copied()).collect()
}

fn page(
    request: &Find,
    walked: &WalkResult,
    cursor: Option<Cursor>,
    hash: u64,
    scores: &[u32],
    mut sink: Option<&mut EntrySink<'_>>,
) -> FindOutcome {
    // Rows for a sink are not kept, so their number needs no limit.
    let max_rows = if sink.is_some() { usize::MAX } else { MAX_ROWS };
    let limit = if request.limit == 0 { max_rows } else { request.limit.min(max_rows) };
    let offset = cursor.as_ref().map_or(request.offset, |cursor| cursor.offset);
    let mut first = usize::try_from(offset).unwrap_or(usize::MAX);

    if let Some(cursor) = cursor.filter(|_| request.sort_by == FindSort::Path) {
        // Entries that appeared or vanished before the cursor do not matter.
        let end = cursor.path.as_os_str().as_bytes();
        let path = |place: &EntryIndex| walked.path(*place).into_os_string();
        first = walked.places().partition_point(|place| path(place).as_bytes() <= end);
    }

    let total = walked.len();
    let places = walked.places().get(first..).unwrap_or_default();
    let (mut entries, mut shown) = (Vec::new(), 0);
    for (n, place) in places.iter().take(limit).enumerate() {
        let entry = entry(request, walked, *place, scores.get(first + n).copied());
        shown += 1;
        match &mut sink {
            None => entries.push(entry),
            Some(sink) => {
                if !sink(entry) {
                    break;
                }
            }
        }
    }

    let truncated = limit < places.len();
    let mut outcome = FindOutcome {
        shown,
        total: Total { count: total as u64, is_exact: true },
        truncated,
        skipped: walked.skipped,
        warnings: walked.warnings.clone(),
        unreadable: walked.skipped.unreadable,
        too_many_files: walked.too_many_files,
        notes: walked.notes.clone(),
        ..FindOutcome::default()
    };

    if truncated {
        outcome.next_offset = Some(offset + shown);
        outcome.cursor = entries.last().map(|last| {
            let path = last.path.clone();
            Cursor { offset: offset + shown, line: 0, nth: 0, is_basic: false, path }.write(hash)
        });
    }

    if places.is_empty() && total != 0 {
        outcome.notes.push(crate::Note::OffsetPastEnd { total: total as u64 });
    }

    outcome.entries = entries;
    outcome
}

fn entry(request: &Find, walked: &WalkResult, place: EntryIndex, score: Option<u32>) -> FoundEntry {
    let kind = match walked.kind(place) {
        EntryType::Directory => EntryKind::Directory,
        EntryType::Symlink => EntryKind::Symlink,
        EntryType::File | EntryType::Other => EntryKind::File,
    };

    let meta = walked.meta(place);
    FoundEntry {
        path: walked.path(place),
        kind,
        size: meta.filter(|_| kind == EntryKind::File).map(|meta| meta.size),
        modified: meta
            .map(|Meta { modified: (seconds, nanoseconds), .. }| time(seconds, nanoseconds)),
        mode: meta.filter(|_| request.long).map(|meta| meta.mode & 0o7777),
        score,
    }
}

fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let rounded = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    // Nanoseconds count forward, also before 1970.
    rounded
        .and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Conditions on size and modification time.
struct ByMeta {
    only_files: bool,
    min_size: Option<u64>,
    max_size: Option<u64>,
    after: Option<SystemTime>,
    before: Option<SystemTime>,
}

impl ByMeta {
    fn of(request: &Find) -> Self {
        Self {
            only_files: request.min_size.is_some() || request.max_size.is_some(),
            min_size: request.min_size,
            max_size: request.max_size,
            after: request.modified_after,
            before: request.modified_before,
        }
    }

    fn is_needed(&self) -> bool {
        self.only_files || self.after.is_some() || self.before.is_some()
    }
}

/// Filters the entries that the scope accepts.
struct FindFilter<'a> {
    names: &'a NameMatcher,
    by_meta: &'a ByMeta,
}

impl EntryFilter for FindFilter<'_> {
    fn wants(&self, entry: walk::Named<'_>) -> bool {
        self.names.is_match(entry)
    }

    fn wants_meta(&self, _: EntryType, meta: &Meta) -> bool {
        let by = self.by_meta;
        let (seconds, nanoseconds) = meta.modified;
        let modified = time(seconds, nanoseconds);
        by.min_size.is_none_or(|min| min <= meta.size)
            && by.max_size.is_none_or(|max| meta.size <= max)
            && by.after.is_none_or(|after| after <= modified)
            && by.before.is_none_or(|before| modified < before)
    }
}
