//! read_file: returns the content of one regular file in the workspace, or some of its lines.

use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::denials::hidden_line_blocking;
use crate::line_range::{LineRange, RangeError};
use crate::os_denial::{AccessMode, denial_blocking};
use crate::read_tracker::ReadTracker;
use crate::system_errors::{hint, system_words};
use crate::{Output, Toolbox};
use quackd_protocol::denial::Denial;
use quackd_protocol::limits::MAX_FILE_BYTES;
use quackd_protocol::tools::{BadParameter, ReadFileArguments};
use quackd_sandbox::{CachedFile, OpenFile, PathError, Root};
use rustix::io::Errno;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Size of one read in bytes, if only some lines are requested.
const BUFFER: usize = 256 * 1024;

/// Maximum size of a file that is read on the thread of all calls.
const SMALL_FILE_BYTES: usize = 64 * 1024;

pub(crate) async fn read_file(
    toolbox: &Toolbox,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let mut request = ReadFileArguments::of(arguments.object());
    let path = arguments.directory().path_of(request.path.take());
    let range = LineRange::new(request);

    if let (Some(path), Ok(range)) = (&path, &range)
        && let Some(text) = read_again(toolbox, path, *range, bounds)
    {
        return Output::success(text);
    }

    let run_dir = toolbox.run_dir.clone();
    let (seen, until) = (Arc::clone(&toolbox.state.seen), bounds.deadline);
    let confinement = Arc::clone(&toolbox.confinement);

    let read = toolbox.in_root("read_file", bounds, move |root| {
        let Some(path) = path else { return (Err(ReadError::NoPath), None) };
        let read = match range {
            Ok(Some(range)) => read_lines_blocking(&root, &run_dir, &seen, &path, range, until),
            Ok(None) => read_blocking(&root, &run_dir, &seen, &path),
            Err(error) => Err(ReadError::Parameter(error)),
        };

        // A hidden file looks empty or does not exist, so the answer explains it.
        let has_content = read.as_ref().is_ok_and(|text| !text.is_empty());
        let hidden = (!has_content)
            .then(|| hidden_line_blocking(&confinement, root.path(), &path))
            .flatten();
        (read, hidden)
    });

    match read.await {
        Ok((Ok(text), hidden)) => Output::success(text).with_advice(hidden),
        Ok((Err(error), Some(hidden))) => {
            toolbox.confinement.failure(&error, error.denial()).with_advice(Some(hidden))
        }
        Ok((Err(error), None)) => {
            toolbox.confinement.failure(&error, error.denial()).with_hint(error.hint())
        }
        Err(answer) => answer,
    }
}

/// Reads a small file that this session has read before, without another thread. Waits for no disk: returns `None` if
/// that is not possible, and for every error.
fn read_again(
    toolbox: &Toolbox,
    path: &str,
    range: Option<LineRange>,
    bounds: &CallLimits,
) -> Option<String> {
    toolbox.in_known_root(bounds, |root| {
        let CachedFile { content, name, version } = root.read_cached(path, SMALL_FILE_BYTES)?;
        if !toolbox.state.seen.is_known(&name, version) {
            return None;
        }

        let text = match range {
            Some(range) => range.read(content.as_slice(), bounds.deadline).ok(),
            None => Some(text(content)),
        };
        // An empty file may be a hidden one.
        text.filter(|text| !text.is_empty())
    })
}

fn text(content: Vec<u8>) -> String {
    String::from_utf8(content)
        .unwrap_or_else(|invalid| String::from_utf8_lossy(invalid.as_bytes()).into_owned())
}

/// Error answer of the tool.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("Missing required parameter 'path'")]
    NoPath,
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("File not found at '{0}'")]
    NotFound(String),
    #[error("File exceeds 1MB limit ({0} bytes)")]
    TooLarge(u64),
    #[error("Failed to read file: Error: EISDIR: illegal operation on a directory, read")]
    IsDirectory(String),
    #[error(transparent)]
    Parameter(BadParameter),
    #[error(transparent)]
    Range(RangeError),
    #[error("Failed to read file: {reason}")]
    Failed { reason: String, denial: Option<Denial>, hint: Option<String> },
}

impl ReadError {
    fn denial(&self) -> Option<Denial> {
        match self {
            Self::Failed { denial, .. } => denial.clone(),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::IsDirectory(path) => hint(&Errno::ISDIR.into(), path),
            Self::Failed { hint, .. } => hint.clone(),
            _ => None,
        }
    }
}

fn read_blocking(
    root: &Root,
    run_dir: &Path,
    seen: &ReadTracker,
    path: &str,
) -> Result<String, ReadError> {
    let OpenFile { mut file, len, version, .. } =
        open(root, run_dir, path).map_err(|error| name(error, root, path))?;

    if MAX_FILE_BYTES < len {
        return Err(ReadError::TooLarge(len));
    }

    // With room to see the end of the file in the second read.
    let mut content = Vec::with_capacity(usize::try_from(len).unwrap_or(0) + 1);
    // One byte more than allowed, to detect a file that has grown since it was opened.
    let read = file.by_ref().take(MAX_FILE_BYTES + 1).read_to_end(&mut content);
    read.map_err(|error| failed(&error, path))?;
    if MAX_FILE_BYTES < content.len().try_into().unwrap_or(u64::MAX) {
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        return Err(ReadError::TooLarge(len.max(MAX_FILE_BYTES + 1)));
    }

    // Only now: a refused call has not seen the content. Files outside the workspace cannot be written.
    if let Ok(name) = root.real_name(path) {
        seen.remember_blocking(name, version);
    }

    Ok(text(content))
}

/// Reads some lines of a file of any size.
fn read_lines_blocking(
    root: &Root,
    run_dir: &Path,
    seen: &ReadTracker,
    path: &str,
    range: LineRange,
    until: Instant,
) -> Result<String, ReadError> {
    let OpenFile { file, version, .. } =
        open(root, run_dir, path).map_err(|error| name(error, root, path))?;

    let file = BufReader::with_capacity(BUFFER, file);
    let text = range.read(file, until).map_err(|error| match error {
        RangeError::Io(error) => failed(&error, path),
        error => ReadError::Range(error),
    })?;

    if let Ok(name) = root.real_name(path) {
        seen.remember_blocking(name, version);
    }
    Ok(text)
}

fn failed(error: &io::Error, path: &str) -> ReadError {
    let reason = format!("Error: {}", system_words(error, "read"));
    ReadError::Failed { reason, denial: None, hint: hint(error, path) }
}

/// Opens a file in the workspace, or by its absolute path in the run directory, which may contain the full text
/// of a long output.
fn open(root: &Root, run_dir: &Path, path: &str) -> Result<OpenFile, PathError> {
    match root.open_file(path) {
        Err(PathError::Escapes) if path.starts_with('/') => {
            Root::open(run_dir).map_err(|_| PathError::Escapes)?.open_file(path)
        }
        opened => opened,
    }
}

fn name(error: PathError, root: &Root, path: &str) -> ReadError {
    match error {
        PathError::Escapes => ReadError::Escapes,
        PathError::NotFound => ReadError::NotFound(path.to_owned()),
        PathError::IsDirectory => ReadError::IsDirectory(path.to_owned()),
        PathError::Io(error) => {
            let absolute: PathBuf = root.path().join(path);
            let call = format!("open '{}'", absolute.display());
            let name = root.real_name(path).unwrap_or_else(|_| PathBuf::from(path));
            let denial = denial_blocking(&error, root.path(), &name, AccessMode::Read);

            let reason = format!("Error: {}", system_words(&error, &call));
            ReadError::Failed { reason, denial, hint: hint(&error, path) }
        }
        other => ReadError::Failed { reason: other.to_string(), denial: None, hint: None },
    }
}
