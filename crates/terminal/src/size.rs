//! The size of a terminal. Callers: everything that has a terminal.

/// Size of a terminal, in cells. Always within its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns: 1 to [`TerminalSize::MAX_COLS`].
    pub cols: u16,
    /// Rows: 1 to [`TerminalSize::MAX_ROWS`].
    pub rows: u16,
}

impl TerminalSize {
    /// Maximum number of columns.
    pub const MAX_COLS: u16 = 1000;
    /// Maximum number of rows.
    pub const MAX_ROWS: u16 = 500;
    /// Size of a terminal whose client reports none.
    pub const DEFAULT: Self = Self { cols: 80, rows: 24 };

    /// Returns the size, with both numbers clamped to 1 and their maximum.
    #[must_use]
    pub fn new(cols: u16, rows: u16) -> Self {
        Self { cols: cols.clamp(1, Self::MAX_COLS), rows: rows.clamp(1, Self::MAX_ROWS) }
    }
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}
