//! What the user chose for a filter.

/// What a program may do with the user's clipboard. It never reads it.
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
    /// What a program may do with the clipboard.
    pub clipboard: ClipboardRule,
    /// Text before each title of the program, so that a title cannot be taken for that of another window.
    pub title_prefix: String,
}
