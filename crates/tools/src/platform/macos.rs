//! The names of [`super`] for macOS.

use rustix::fs::Stat;

/// True: commands run in zsh, if it exists.
pub(crate) const USES_ZSH: bool = true;

/// Returns the device number of a file, which is signed here.
pub(crate) fn device(stat: &Stat) -> u64 {
    i64::from(stat.st_dev).cast_unsigned()
}
