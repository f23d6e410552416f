//! Confinement of quackd's own processes on macOS: only the process that works on copies has one. Commands and MCP servers
//! are started by `sandbox-exec`, with the same kind of profile. Never run on a Mac.

use crate::seatbelt::Seatbelt;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Mounts of the host's files. A session makes none here.
#[derive(Debug)]
pub struct MountSources;

impl MountSources {
    /// Returns false.
    #[must_use]
    pub fn have_changed_blocking(&self) -> bool {
        false
    }
}

/// Returns `None`: no name is pinned here.
#[must_use]
pub fn first_unpinned_blocking(_pins: &[PathBuf]) -> Option<&Path> {
    None
}

/// Returns false: the login shell is not confined here.
#[must_use]
pub fn can_confine_login_shell() -> bool {
    false
}

/// Returns false: no directory is hidden here.
///
/// # Errors
/// Never, unlike on Linux.
pub fn hide_directories(_hidden: &[PathBuf]) -> io::Result<bool> {
    Ok(false)
}

/// Returns `Some(false)`: a session makes no mounts here.
///
/// # Errors
/// Never, unlike on Linux.
pub fn is_mount_point(_directory: impl AsFd, _name: &Path) -> io::Result<Option<bool>> {
    Ok(Some(false))
}

/// Returns the missing layer.
///
/// # Errors
/// Never, unlike on Linux.
pub fn enter_proxy() -> io::Result<Vec<String>> {
    Ok(vec!["this system has no confinement for the network proxy".to_owned()])
}

/// Confines this process: it can read the system's programs and `readable`, and change `writable`.
///
/// # Errors
/// A path contains a NUL byte, or the system refuses the profile. The process must then exit.
pub fn enter_isolate(readable: &[PathBuf], writable: &[PathBuf]) -> io::Result<()> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let [readable, writable] =
        [readable, writable].map(|paths| paths.iter().map(real).collect::<Vec<_>>());
    apply(&Seatbelt::of_files(&readable, &writable))
}

#[expect(unsafe_code, reason = "the calls of libsandbox have no safe form")]
unsafe extern "C" {
    /// Of `libSystem`, as `sandbox-exec` itself calls it.
    fn sandbox_init_with_parameters(
        profile: *const c_char,
        flags: u64,
        parameters: *const *const c_char,
        error: *mut *mut c_char,
    ) -> c_int;

    fn sandbox_free_error(error: *mut c_char);
}

/// Applies a profile to this process, and to all that it starts.
#[expect(unsafe_code, reason = "the calls of libsandbox have no safe form")]
fn apply(profile: &Seatbelt) -> io::Result<()> {
    let text = CString::new(profile.text.as_bytes())?;
    let mut parameters = Vec::new();
    for (name, value) in &profile.parameters {
        parameters.push(CString::new(name.as_bytes())?);
        parameters.push(CString::new(value.as_os_str().as_bytes())?);
    }

    let mut pointers: Vec<_> = parameters.iter().map(|text| text.as_ptr()).collect();
    pointers.push(std::ptr::null());

    let mut error = std::ptr::null_mut();
    // SAFETY: all strings end with NUL and outlive the call, the list of names and values ends with a null pointer, and
    // `error` is a valid place for one pointer.
    let result =
        unsafe { sandbox_init_with_parameters(text.as_ptr(), 0, pointers.as_ptr(), &mut error) };
    if result == 0 {
        return Ok(());
    }
    if error.is_null() {
        return Err(io::Error::other("the system refuses the profile"));
    }
    // SAFETY: the call has set `error` to a string that ends with NUL.
    let why = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: the string is the one that the call allocated, and it is not used again.
    unsafe { sandbox_free_error(error) };
    Err(io::Error::other(format!("the system refuses the profile: {why}")))
}

/// Returns the missing layer.
///
/// # Errors
/// Never, unlike on Linux.
pub fn enter_agent() -> io::Result<Vec<String>> {
    Ok(vec!["this system has no confinement for the agent".to_owned()])
}
