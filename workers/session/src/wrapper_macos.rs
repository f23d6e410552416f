//! Words in front of a command that make it start through another program, as `wrapper` on Linux.

use std::ffi::OsString;

/// Words in front of a command that must not write.
#[derive(Debug)]
pub(crate) struct ReadOnlyWrapper(pub(crate) Vec<OsString>);

impl ReadOnlyWrapper {
    pub(crate) fn words(&self) -> Vec<OsString> {
        self.0.clone()
    }
}
