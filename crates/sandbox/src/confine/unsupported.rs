//! The confinement of the supervisor's helpers on systems other than Linux: there is none. They do not start other
//! programs, so `sandbox-exec` cannot confine them as it confines commands.

use std::io;

/// Returns the missing layer.
///
/// # Errors
/// Never, unlike on Linux.
pub fn enter_proxy() -> io::Result<Vec<String>> {
    Ok(vec!["this system has no confinement for the network proxy".to_owned()])
}

/// Returns the missing layer.
///
/// # Errors
/// Never, unlike on Linux.
pub fn enter_agent() -> io::Result<Vec<String>> {
    Ok(vec!["this system has no confinement for the agent".to_owned()])
}
