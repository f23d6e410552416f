//! Finding files by name: a walk in the order of the result, so that it can stop when that is full.

use crate::Open;
use crate::glob::{Glob, GlobError, folded};
use crate::request::Stop;
use crate::walk::MAX_FILES;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Unreadable paths that are named; the others are counted.
const MAX_WARNINGS: usize = 5;

/// What to find.
#[derive(Debug, Clone)]
pub struct FindRequest {
    /// In the syntax of minimatch without regard to case. It is compared with the base name, with the
    /// path relative to the root and to the start, and with these two behind a slash: any match counts.
    pub pattern: String,
    /// Directory to begin in, relative to the root and free of symlinks; empty for the root.
    pub start: PathBuf,
    /// Also what has a name that begins with a dot.
    pub include_hidden: bool,
    /// Directories also, besides files and symlinks.
    pub include_directories: bool,
    /// Names below the start that are left out, with all that is beneath them.
    pub exclude_names: Vec<String>,
    /// Paths kept.
    pub max_paths: usize,
    /// When to stop with what was found so far.
    pub deadline: Instant,
    /// Set by the caller to stop without a result.
    pub cancelled: Arc<AtomicBool>,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Relative to the root, in the byte order of the whole path.
    pub paths: Vec<PathBuf>,
    /// At least one more path exists.
    pub truncated: bool,
    /// The deadline passed: paths may be missing at the end.
    pub timed_out: bool,
    /// There are more entries than one search looks at, a million: paths may be missing.
    pub too_many_files: bool,
    /// Directories and entries that could not be read, before the result was full.
    pub unreadable: usize,
    /// The first five of them.
    pub warnings: Vec<Warning>,
}

/// Something that could not be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Warning {
    /// Relative to the root.
    pub path: PathBuf,
    /// In the system's words.
    pub reason: String,
}

/// Why nothing was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The pattern is refused.
    #[error(transparent)]
    BadPattern(#[from] GlobError),
    /// The start does not exist.
    #[error("no such file or directory")]
    StartNotFound,
    /// The caller wants no result any more.
    #[error("the search was cancelled")]
    Cancelled,
}

/// Finds regular files and symlinks, and directories if asked, beneath the start.
///
/// `open_directory` opens a directory relative to the root for reading, and must not follow a symlink
/// out of it. Symlinks are entries like files here: they are never followed, wherever they lead. The
/// same tree and request give the same result, unless the deadline cuts it.
///
/// # Errors
/// [`FindError`]. A directory that cannot be read is a warning instead.
pub fn find(request: &FindRequest, open_directory: Open<'_>) -> Result<Found, FindError> {
    let glob = Glob::new(&request.pattern, request.include_hidden)?;
    let stop = Stop::until(request.deadline, &request.cancelled);
    let n_left = MAX_FILES;
    let mut walk = Walk {
        request,
        glob,
        open_directory,
        pending: Vec::new(),
        n_left,
        found: Found::default(),
    };
    walk.run(&stop)?;
    if stop.is_cancelled() {
        return Err(FindError::Cancelled);
    }
    Ok(walk.found)
}

struct Walk<'a> {
    request: &'a FindRequest,
    glob: Glob,
    open_directory: Open<'a>,
    // INVARIANT: what is still to do, the next one last. Paths of the result come in byte order,
    // because the entries of a directory are sorted with a slash at the end of what is entered.
    pending: Vec<Todo>,
    /// Entries that may still be looked at.
    n_left: usize,
    found: Found,
}

/// What is done with an entry when its turn in the order comes.
enum Todo {
    Report(PathBuf),
    Enter(PathBuf),
}

impl Walk<'_> {
    fn run(&mut self, stop: &Stop<'_>) -> Result<(), FindError> {
        self.enter(&self.request.start.clone(), stop).map_err(|_| FindError::StartNotFound)?;
        while let Some(next) = self.pending.pop() {
            match next {
                Todo::Report(_) if self.found.paths.len() == self.request.max_paths => {
                    self.found.truncated = true;
                    break;
                }
                Todo::Report(path) => self.found.paths.push(path),
                Todo::Enter(_) if stop.is_reached() => {
                    self.found.timed_out = true;
                    break;
                }
                Todo::Enter(path) => {
                    // It was removed while we walked.
                    let _gone = self.enter(&path, stop);
                }
            }
        }
        Ok(())
    }

    /// Looks at the entries of a directory; an error if there is none.
    fn enter(&mut self, directory: &Path, stop: &Stop<'_>) -> Result<(), NotFound> {
        let opened = (self.open_directory)(directory);
        let (listing, error) = match opened.and_then(|opened| self.list(opened, stop)) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotFound),
            Err(error) => (Vec::new(), Some(error)),
        };
        if let Some(error) = error {
            self.warn(directory, &error);
        }
        let mut spellings = (!self.glob.is_by_name()).then(|| self.spellings(directory));
        let mut todo = Vec::new();
        for Entry { name, kind } in listing {
            let is_wanted = match kind {
                FileType::RegularFile | FileType::Symlink => true,
                FileType::Directory => self.request.include_directories,
                _ => false,
            };
            if is_wanted && self.matches(&name, spellings.as_mut()) {
                let path = directory.join(OsStr::from_bytes(&name));
                todo.push((name.clone(), Todo::Report(path)));
            }
            if kind == FileType::Directory {
                let path = directory.join(OsStr::from_bytes(&name));
                todo.push(([name.as_slice(), b"/"].concat(), Todo::Enter(path)));
            }
        }
        todo.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        self.pending.extend(todo.into_iter().map(|(_, todo)| todo));
        Ok(())
    }

    /// Reads a directory; also gives what was read before an error.
    fn list(
        &mut self,
        directory: File,
        stop: &Stop<'_>,
    ) -> io::Result<(Vec<Entry>, Option<io::Error>)> {
        let mut entries = Vec::new();
        let mut reader = Dir::new(directory)?;
        while let Some(entry) = reader.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Ok((entries, Some(error.into()))),
            };
            let name = entry.file_name().to_bytes();
            if self.is_left_out(name) {
                continue;
            }
            if self.n_left == 0 || stop.is_reached() {
                self.found.too_many_files |= self.n_left == 0;
                self.found.timed_out |= self.n_left != 0;
                break;
            }
            self.n_left -= 1;
            let kind = match entry.file_type() {
                // Some file systems do not say it in the listing.
                FileType::Unknown => {
                    let found = statat(reader.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                    found.map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode))
                }
                kind => kind,
            };
            entries.push(Entry { name: name.to_vec(), kind });
        }
        Ok((entries, None))
    }

    fn is_left_out(&self, name: &[u8]) -> bool {
        matches!(name, b"." | b"..")
            || (name.starts_with(b".") && !self.request.include_hidden)
            || self.request.exclude_names.iter().any(|excluded| excluded.as_bytes() == name)
    }

    /// The directory as paths of its entries begin, behind a slash: from the root, and from the start.
    fn spellings(&self, directory: &Path) -> [Vec<Vec<char>>; 2] {
        let below = directory.strip_prefix(&self.request.start).unwrap_or(directory);
        [directory, below].map(|path| {
            let names = path.iter().map(|name| folded(&name.to_string_lossy()));
            [Vec::new()].into_iter().chain(names).collect()
        })
    }

    fn matches(&self, name: &[u8], spellings: Option<&mut [Vec<Vec<char>>; 2]>) -> bool {
        let name = folded(&String::from_utf8_lossy(name));
        if self.glob.is_match(std::slice::from_ref(&name)) {
            return true;
        }
        let Some(spellings) = spellings else { return false };
        spellings.iter_mut().any(|path| {
            path.push(name.clone());
            let without_slash = path.get(1..).unwrap_or_default();
            let found = self.glob.is_match(path) || self.glob.is_match(without_slash);
            path.pop();
            found
        })
    }

    fn warn(&mut self, path: &Path, error: &io::Error) {
        self.found.unreadable += 1;
        if self.found.warnings.len() < MAX_WARNINGS {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            self.found.warnings.push(Warning { path: path.to_path_buf(), reason: words(error) });
        }
    }
}

struct Entry {
    name: Vec<u8>,
    kind: FileType,
}

/// A directory that is not there.
struct NotFound;

/// What the system says, without the number that the standard library adds.
fn words(error: &io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error").unwrap_or(text.len()));
    text
}

#[cfg(test)]
mod tests;
