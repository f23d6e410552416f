//! The size of a terminal. Callers: everything that has a terminal.

use quackd_protocol::limits::{MAX_TERMINAL_COLS, MAX_TERMINAL_ROWS};

/// Size of a terminal, in cells. Always within its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns: 1 to [`MAX_TERMINAL_COLS`].
    pub cols: u16,
    /// Rows: 1 to [`MAX_TERMINAL_ROWS`].
    pub rows: u16,
}

impl TerminalSize {
    /// Size of a terminal whose client reports none.
    pub const DEFAULT: Self = Self { cols: 80, rows: 24 };

    /// Returns the size, with both numbers clamped to 1 and their maximum.
    #[must_use]
    pub fn new(cols: u16, rows: u16) -> Self {
        Self { cols: cols.clamp(1, MAX_TERMINAL_COLS), rows: rows.clamp(1, MAX_TERMINAL_ROWS) }
    }
}
