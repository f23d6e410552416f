//! Which files are searched, and in which order.

use crate::include::Include;
use crate::request::{Request, SearchError, Stop};
use ignore::{DirEntry, WalkBuilder};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Files that one search looks at. A path takes about 100 bytes, so this bounds a search's memory
/// to some 100 MB.
pub(crate) const MAX_FILES: usize = 1_000_000;

/// What a walk has found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Regular files relative to the root, sorted.
    pub(crate) files: Vec<PathBuf>,
    /// Directories and entries that could not be read.
    pub(crate) unreadable: usize,
    /// There are more files than [`MAX_FILES`]; which ones are missing is left to the file system.
    pub(crate) too_many_files: bool,
}

/// Lists the regular files of a request relative to the root, in the one order that results have.
pub(crate) fn files(
    request: &Request,
    root: &Path,
    include: Option<&Include>,
    stop: &Stop<'_>,
) -> Result<Walked, SearchError> {
    let start = root.join(&request.start);
    let excluded = request.exclude_dirs.clone();
    let walk = WalkBuilder::new(start)
        .standard_filters(false)
        .ignore(request.respect_ignore_files)
        .git_ignore(request.respect_ignore_files)
        .git_exclude(request.respect_ignore_files)
        .parents(request.respect_ignore_files)
        .filter_entry(move |entry| !is_excluded(entry, &excluded))
        .build();
    let mut walked = Walked::default();
    for entry in walk {
        if stop.is_reached() {
            break;
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if is_missing(&error) && error.depth() == Some(0) => {
                return Err(SearchError::StartNotFound);
            }
            // It was removed while we walked.
            Err(error) if is_missing(&error) => continue,
            Err(_) => {
                walked.unreadable += 1;
                continue;
            }
        };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(relative) = entry.path().strip_prefix(root) else { continue };
        if include.is_some_and(|include| !include.is_match(relative)) {
            continue;
        }
        if walked.files.len() == MAX_FILES {
            walked.too_many_files = true;
            break;
        }
        walked.files.push(relative.to_path_buf());
    }
    sort(&mut walked.files);
    Ok(walked)
}

/// Byte order of the whole path: `a-b` comes before `a/b`, wherever the walk met them.
fn sort(files: &mut [PathBuf]) {
    files.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
}

/// The start itself is never excluded: who names a directory wants it searched.
fn is_excluded(entry: &DirEntry, excluded: &[String]) -> bool {
    entry.depth() != 0
        && entry.file_type().is_some_and(|kind| kind.is_dir())
        && excluded.iter().any(|name| entry.file_name() == OsStr::new(name))
}

fn is_missing(error: &ignore::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
