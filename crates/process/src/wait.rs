//! Reaps one direct child and reads its resource usage. Used by [`crate::handle`].

use crate::Exit;
use crate::platform::RSS_UNITS_PER_KB;
use nix::libc;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Resources used by a process and the descendants that it had waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in kernel mode.
    pub system: Duration,
    /// Largest resident set of one of these processes, in KiB.
    pub max_rss_kb: u64,
}

/// Reaps the child `pid` if it has exited; `None` while it runs. Never waits.
///
/// `pid` must be a child that only this function reaps: until then the kernel cannot reuse its number.
///
/// # Errors
/// `ECHILD` if the child was reaped elsewhere.
#[expect(unsafe_code, reason = "no safe wrapper gives the resources that a child used")]
pub(crate) fn reap(pid: i32) -> io::Result<Option<(Exit, Usage)>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live values of the types that wait4 fills in.
    let reaped = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };

    match reaped {
        0 => Ok(None),
        // wait4 with WNOHANG does not wait, so it is never interrupted.
        ..0 => Err(io::Error::last_os_error()),
        _ => {
            // SAFETY: a C struct of numbers, zeroed before and filled in by the call above.
            let usage = unsafe { usage.assume_init() };
            Ok(Some((Exit::of_status(status), Usage::of(&usage))))
        }
    }
}

impl Usage {
    fn of(usage: &libc::rusage) -> Self {
        let max_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0) / RSS_UNITS_PER_KB;
        Self { user: time(usage.ru_utime), system: time(usage.ru_stime), max_rss_kb: max_rss }
    }
}

fn time(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u32::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_elses_child_is_an_error() {
        let error = reap(i32::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD));
    }
}
