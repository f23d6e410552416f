//! Terminals of background jobs: the screen of the program, what is typed into it, and the messages about it for the
//! supervisor.
//!
//! [`crate::jobs`] starts the program, feeds its output and reports its end. [`crate::terminal_tools`] has the tools.
//!
//! In reading order: [`terminal`] is one terminal, [`forwarding`] decides what the supervisor gets and when, [`frames`]
//! makes its messages of the screen, [`keys`] names keys, [`recording`] writes a recording, [`variables`] has the
//! variables of a program and its `xdg-open`.

mod forwarding;
mod frames;
mod keys;
mod recording;
mod terminal;
mod variables;

pub(crate) use keys::{KeyError, key_bytes};
pub(crate) use recording::{recording_number, recording_path};
pub use terminal::Terminal;
pub(crate) use terminal::{ScreenView, TerminalSetup, TypeError};
pub(crate) use variables::{environment, write_opener_blocking};
