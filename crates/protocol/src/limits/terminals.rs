//! Limits of terminals: programs of a session that run on a pseudo terminal.

use std::time::Duration;

/// Most running terminals of one session.
pub const MAX_TERMINALS_PER_SESSION: usize = 4;

/// Most running terminals of all sessions.
pub const MAX_TERMINALS: usize = 64;

/// Most clients that are attached to one terminal at the same time.
pub const MAX_VIEWERS: usize = 16;

/// Most columns of a terminal. A larger request is cut to this.
pub const MAX_TERMINAL_COLS: u16 = 1000;

/// Most rows of a terminal. A larger request is cut to this.
pub const MAX_TERMINAL_ROWS: u16 = 500;

/// Frames with output of one terminal that the supervisor has not passed on. Without a credit, the worker sends none, and
/// then the whole screen.
pub const TERMINAL_CREDITS: u32 = 8;

/// Most pieces of input of one terminal that its program has not read. Each has at most 32 KiB, so together 1 MiB.
pub const MAX_TERMINAL_INPUT_PIECES: u32 = 32;

/// Most bytes of one redraw of a screen, before base64. A screen that needs more is sent without colors, and cut.
pub const MAX_REDRAW_BYTES: usize = 1024 * 1024;

/// Most bytes of the JSON of a screen's rows. As above.
pub const MAX_ROWS_BYTES: usize = 1024 * 1024;

/// Most bytes of lines above the screen that a new viewer gets.
pub const VIEWER_SCROLLBACK_BYTES: usize = 64 * 1024;

/// Most bytes of lines above the screen that a worker keeps for one terminal, and the default.
pub const MAX_SCROLLBACK_BYTES: usize = 8 * 1024 * 1024;

/// See [`MAX_SCROLLBACK_BYTES`].
pub const DEFAULT_SCROLLBACK_BYTES: usize = 256 * 1024;

/// Shortest time between two frames with output of one terminal, so that a program that prints without end costs
/// little. The first output after a pause is sent at once.
pub const TERMINAL_FRAME_INTERVAL: Duration = Duration::from_millis(4);

/// Shortest time between two reports of changed rows. The user reads no faster.
pub const TERMINAL_ROWS_INTERVAL: Duration = Duration::from_millis(50);

/// Shortest time between two redraws for a viewer that does not read.
pub const TERMINAL_REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Longest title of a terminal, in characters.
pub const MAX_TITLE_CHARS: usize = 200;

/// Longest address that a program on a terminal asks to open, and longest link, in bytes.
pub const MAX_WEB_ADDRESS_BYTES: usize = 2 * 1024;

/// Most words of the command of a terminal, and most bytes of all.
pub const MAX_TERMINAL_WORDS: usize = 1024;

/// See [`MAX_TERMINAL_WORDS`].
pub const MAX_TERMINAL_COMMAND_BYTES: usize = 128 * 1024;

/// Most variables that a client passes to a program on a terminal.
pub const MAX_TERMINAL_VARIABLES: usize = 64;

/// Largest recording of a terminal, in bytes.
pub const MAX_RECORDING_BYTES: u64 = 64 * 1024 * 1024;
