//! Which conversation belongs to whom. Called by `find`.

use rustix::fs::{Mode, OFlags, openat};
use std::ffi::CStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsFd;

/// Longest first line of a history of Pi's that is read, in bytes.
const MAX_HEADER_BYTES: u64 = 16 * 1024;

/// In which directory Pi was when it began this history: the first line says so. `None` if it does not; then
/// nobody can say whose it is.
pub(super) fn workspace(at: impl AsFd, name: &CStr) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(at, name, flags, Mode::empty()).ok()?);
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_HEADER_BYTES)).read_until(b'\n', &mut line).ok()?;
    let header: serde_json::Value = serde_json::from_slice(&line).ok()?;
    Some(header.get("cwd")?.as_str()?.to_owned())
}
