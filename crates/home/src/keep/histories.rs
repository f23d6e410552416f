//! Finds the workspace of one of Pi's conversations. Called by `find`.

use rustix::fs::{Mode, OFlags, openat};
use std::ffi::CStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd;

/// Maximum length of the first line of a history file, in bytes.
const MAX_HEADER_BYTES: u64 = 16 * 1024;

/// Returns Pi's working directory at the start of this history, from the first line. `None` if the line does
/// not contain it; then the workspace is unknown.
pub(super) fn workspace(at: impl AsFd, name: &CStr) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(at, name, flags, Mode::empty()).ok()?);
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_HEADER_BYTES)).read_until(b'\n', &mut line).ok()?;
    let header: serde_json::Value = serde_json::from_slice(&line).ok()?;
    Some(header.get("cwd")?.as_str()?.to_owned())
}
