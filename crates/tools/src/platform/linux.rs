//! The names of [`super`] for Linux.

use rustix::fs::Stat;

/// False: commands run in bash.
pub(crate) const USES_ZSH: bool = false;

/// Returns the device number of a file.
pub(crate) fn device(stat: &Stat) -> u64 {
    stat.st_dev
}
