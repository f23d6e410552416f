//! Terminals without I/O: [`Screen`] keeps the state of a program's terminal, [`Filter`] lets only allowed sequences
//! through to a user's terminal, and [`DetachKey`] finds the key that detaches in what the user types.
//!
//! A session worker owns a screen and feeds the output of the program. A client owns a filter and a detach key. All
//! bytes from a program are hostile: strings, stacks, answers and the work of a call have bounds. Screen and filter
//! allow the same drawing sequences, so that a viewer sees what the screen has.

mod colors;
mod csi;
mod detach_key;
mod filter;
mod kitty;
mod modes;
mod parser;
mod screen;
mod sequence;
mod sgr;
mod size;

pub use detach_key::{DetachAction, DetachKey, DetachKeyError, Typed};
pub use filter::{ClipboardRule, Filter, FilterOptions};
pub use screen::{
    Color, Cursor, FEED_BYTES, MAX_ANSWER_BYTES, RgbColor, Row, Run, Screen, Style, write_style,
};
pub use size::TerminalSize;
