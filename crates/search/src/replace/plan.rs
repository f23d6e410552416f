//! Plans a replacement: reads every file of the scope and edits it in memory, one after the other.

use super::diff;
use super::editor::{EditError, EditWithDiff, Editor};
use super::error::{ReplaceError, SkipReason};
use super::outcome::{Digest, FileEncoding, FilePlan, ReplacePlan, SkippedFile};
use super::request::{DiffMode, Replace};
use super::{MAX_FILE_BYTES, MAX_FILES, MAX_REPLACEMENTS, MAX_SKIPPED_LISTED};
use crate::SearchError;
use crate::basic;
use crate::note::Note;
use crate::outcome::Skipped;
use crate::request::Dialect;
use crate::scope::Sort;
use crate::tree::Tree;
use crate::walk;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Plans a replacement. Nothing is written.
///
/// A plan that the deadline cut is returned with `timed_out` set, and must not be applied.
///
/// # Errors
/// [`ReplaceError`] for an invalid request, and if the plan would exceed the limits of the request.
pub fn plan(request: &Replace, tree: &dyn Tree) -> Result<ReplacePlan, ReplaceError> {
    let began = Instant::now();
    let attempts = attempts(request)?;

    let mut request = request.clone();
    request.scope.follow = false;
    request.scope.sort = Sort::Path;
    let walked = walk::files(&request.scope, tree, &request.stop)?;
    let paths = walked.paths().collect::<Vec<_>>();
    if request.line_range.is_some() && paths.len() != 1 {
        return Err(ReplaceError::LineRangeNeedsOneFile { found: paths.len() });
    }

    let walk_was_cut = request.stop.is_reached();
    let requested = request.pattern.dialect;
    let mut notes = Vec::new();
    let mut planning = Planning::new(&request, walked.skipped);
    let (mut dialect_used, mut multiline_used) = (None, false);

    for (dialect, editor) in attempts {
        planning = planning.anew();
        planning.read_all(&editor, tree, &paths)?;
        let has_changes = !planning.files.is_empty();
        // Without any change, the first interpretation counts.
        if has_changes || dialect_used.is_none() {
            dialect_used = Some(dialect);
            multiline_used = editor.is_multiline();
        }
        if editor.is_multiline_by_itself() {
            notes.push(Note::MultilineBecauseOfNewline);
        }
        if has_changes && dialect != requested {
            notes.push(Note::RetriedAsBasic);
        }
        // Another interpretation is tried only if this one changes nothing.
        if has_changes || planning.timed_out {
            break;
        }
    }

    let dialect_used = dialect_used.unwrap_or(requested);
    notes.dedup();
    if request.stop.is_cancelled() {
        return Err(SearchError::Cancelled.into());
    }

    let Planning { files, mut skipped, binary, skipped_count, .. } = planning;
    let Planning { counts, diffs_cut, files_searched, timed_out, .. } = planning;

    // Applying the plan must read the pattern in the same way.
    request.pattern.dialect = dialect_used;
    // Binary files come last, and only if the list has room for them.
    let room = MAX_SKIPPED_LISTED.saturating_sub(skipped.len());
    skipped.extend(binary.into_iter().take(room));
    Ok(ReplacePlan {
        lines_changed: files.iter().map(|file| file.lines_changed).sum(),
        replacements: files.iter().map(|file| file.replacements).sum(),
        timed_out: timed_out || walk_was_cut,
        too_many_files: walked.too_many_files,
        warnings: walked.warnings,
        files_searched,
        elapsed: began.elapsed(),
        request,
        files,
        skipped,
        skipped_count,
        counts,
        diffs_cut,
        dialect_used,
        multiline_used,
        notes,
    })
}

/// Returns the interpretations of the pattern. The caller tries them in order until one changes something.
fn attempts(request: &Replace) -> Result<Vec<(Dialect, Editor)>, ReplaceError> {
    let pattern = &request.pattern;
    let requested = Editor::reading(request, pattern.dialect);
    let looks_basic = pattern.patterns.iter().any(|text| basic::has_idioms(text));
    let is_retried = pattern.retry_as_basic && !pattern.literal && pattern.dialect == Dialect::Rust;

    if !is_retried || !looks_basic {
        return Ok(vec![(pattern.dialect, requested?)]);
    }
    match (requested, Editor::reading(request, Dialect::Basic)) {
        (Ok(rust), Ok(basic)) => Ok(vec![(Dialect::Rust, rust), (Dialect::Basic, basic)]),
        (Err(_), Ok(basic)) => Ok(vec![(Dialect::Basic, basic)]),
        (rust, Err(_)) => Ok(vec![(Dialect::Rust, rust?)]),
    }
}

/// State of planning.
struct Planning<'a> {
    request: &'a Replace,
    /// Counts of the walk.
    before: Skipped,
    files: Vec<FilePlan>,
    n_replacements: u64,
    skipped: Vec<SkippedFile>,
    /// Skipped binary files. Some trees have many, and they matter least.
    binary: Vec<SkippedFile>,
    skipped_count: u64,
    counts: Skipped,
    files_searched: u64,
    timed_out: bool,
    diff_bytes: usize,
    diffs_cut: bool,
}

/// An open file and its metadata.
struct Opened {
    file_id: (u64, u64),
    n_names: u64,
}

impl<'a> Planning<'a> {
    fn new(request: &'a Replace, counts: Skipped) -> Self {
        Self {
            request,
            before: counts,
            files: Vec::new(),
            n_replacements: 0,
            skipped: Vec::new(),
            binary: Vec::new(),
            skipped_count: 0,
            counts,
            files_searched: 0,
            timed_out: false,
            diff_bytes: 0,
            diffs_cut: false,
        }
    }

    /// Resets the state for another interpretation of the pattern.
    fn anew(self) -> Self {
        Self::new(self.request, self.before)
    }

    fn read_all(
        &mut self,
        editor: &Editor,
        tree: &dyn Tree,
        paths: &[PathBuf],
    ) -> Result<(), ReplaceError> {
        let stop = &self.request.stop;
        let mut buffer = Vec::new();
        for path in paths {
            if stop.is_reached() {
                self.timed_out = true;
                break;
            }
            let opened = match read(tree, path, &mut buffer) {
                Ok(opened) => opened,
                // The file was removed after the walk.
                Err(ReadFailure::Gone) => continue,
                Err(ReadFailure::Skip(reason)) => {
                    self.skip(path, reason);
                    continue;
                }
            };

            self.files_searched += 1;
            match editor.change(&buffer, Some(stop)) {
                Ok(None) => {}
                Ok(Some(change)) => self.add(path, &opened, &buffer, change)?,
                Err(EditError::Skip(reason)) => self.skip(path, reason),
                Err(EditError::TooMany) => return Err(self.too_many_replacements()),
                Err(EditError::Stopped) => {
                    self.timed_out = true;
                    break;
                }
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        path: &Path,
        opened: &Opened,
        old: &[u8],
        change: EditWithDiff,
    ) -> Result<(), ReplaceError> {
        let max_files = self.request.max_files.min(MAX_FILES);
        if max_files <= self.files.len() {
            return Err(ReplaceError::TooManyFiles { max: max_files });
        }

        self.n_replacements += change.edited.replacements;
        if self.request.max_replacements.min(MAX_REPLACEMENTS) < self.n_replacements {
            return Err(self.too_many_replacements());
        }

        let (diff, is_exact_diff) = self.diff(path, old, &change);
        let edited = change.edited;
        self.files.push(FilePlan {
            path: path.to_path_buf(),
            lines_changed: edited.lines,
            replacements: edited.replacements,
            eol: edited.eol,
            encoding: edited.encoding,
            before: Digest::of(old),
            after: Digest::of(&edited.new),
            len_before: old.len() as u64,
            len_after: edited.new.len() as u64,
            file_id: opened.file_id,
            n_names: opened.n_names,
            diff,
            is_exact_diff,
        });
        Ok(())
    }

    /// Returns the diff, and whether it shows the exact change.
    fn diff(&mut self, path: &Path, old: &[u8], change: &EditWithDiff) -> (Option<String>, bool) {
        if self.request.diff != DiffMode::Unified {
            return (None, true);
        }

        let room = self.request.max_diff_bytes.saturating_sub(self.diff_bytes);
        let (edits, raw_new) = (&change.edits, &change.edited.new);
        let (diff, is_decoded) = match (&change.old_text, &change.new_text) {
            // For a program that applies the diff, the byte order mark is a part of the first line.
            (Some(text), _) if change.edited.encoding == FileEncoding::Utf8WithMark => {
                let edits = diff::behind_mark(edits, old.len().saturating_sub(text.len()));
                (diff::unified(path, old, raw_new, &edits, room), false)
            }
            (Some(old), Some(new)) => (diff::unified(path, old, new, edits, room), true),
            _ => (diff::unified(path, old, raw_new, edits, room), false),
        };

        self.diff_bytes += diff.text.len();
        self.diffs_cut |= diff.is_cut;
        let is_exact = diff.is_exact && !is_decoded;
        ((!diff.text.is_empty()).then_some(diff.text), is_exact)
    }

    fn skip(&mut self, path: &Path, reason: SkipReason) {
        self.skipped_count += 1;
        let list = match reason {
            SkipReason::Binary => {
                self.counts.binary += 1;
                &mut self.binary
            }
            SkipReason::TooLarge { .. } | SkipReason::WouldBeTooLarge => {
                self.counts.too_large += 1;
                &mut self.skipped
            }
            _ => {
                self.counts.unreadable += 1;
                &mut self.skipped
            }
        };
        if list.len() < MAX_SKIPPED_LISTED {
            list.push(SkippedFile { path: path.to_path_buf(), reason });
        }
    }

    fn too_many_replacements(&self) -> ReplaceError {
        ReplaceError::TooManyReplacements {
            max: self.request.max_replacements.min(MAX_REPLACEMENTS),
        }
    }
}

/// Reason why a file was not read.
enum ReadFailure {
    Gone,
    Skip(SkipReason),
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            _ => Self::Skip(SkipReason::Unreadable { reason: error.to_string() }),
        }
    }
}

/// Replaces the content of `buffer` with the file's content.
fn read(tree: &dyn Tree, path: &Path, buffer: &mut Vec<u8>) -> Result<Opened, ReadFailure> {
    let file: File = tree.open_file(path)?;
    let metadata = file.metadata()?;
    if MAX_FILE_BYTES < metadata.len() {
        return Err(ReadFailure::Skip(SkipReason::TooLarge { len: metadata.len() }));
    }

    buffer.clear();
    // Read one byte more than the limit, to detect a file that grows during the read.
    file.take(MAX_FILE_BYTES + 1).read_to_end(buffer)?;
    Ok(Opened { file_id: (metadata.dev(), metadata.ino()), n_names: metadata.nlink() })
}
