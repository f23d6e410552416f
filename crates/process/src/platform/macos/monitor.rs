//! Systems without a monitor.

use crate::SessionPaths;
use std::io;
use std::time::Duration;

/// Does nothing on this system: the kernel has no such request.
///
/// # Errors
/// None.
pub fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// Does nothing on this system, which has no monitor.
///
/// # Errors
/// None.
pub fn split_off_monitor() -> io::Result<()> {
    Ok(())
}

/// Does nothing on this system, which has no monitor.
///
/// # Errors
/// None.
pub fn split_off_monitor_of(_: Option<&SessionPaths>) -> io::Result<()> {
    Ok(())
}

/// Does nothing on this system, which has no monitor.
///
/// # Errors
/// None.
pub fn split_off_patient_monitor(_: Duration) -> io::Result<()> {
    Ok(())
}

/// Does nothing on this system, which has no monitor.
///
/// # Errors
/// None.
pub fn split_off_forwarding_monitor(_: Duration) -> io::Result<()> {
    Ok(())
}
