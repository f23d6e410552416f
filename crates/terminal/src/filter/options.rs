//! Options of a filter that the user chooses.

/// Access of a program to the user's clipboard. No program can read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClipboardRule {
    /// Nothing.
    #[default]
    Off,
    /// Replace its text, by at most 64 KiB without control characters except tabs and newlines.
    Write,
}

/// Options of a [`super::Filter`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterOptions {
    /// Access to the clipboard.
    pub clipboard: ClipboardRule,
    /// Text before each title of the program, so that a title cannot be taken for that of another window.
    pub title_prefix: String,
}
