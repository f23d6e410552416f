//! Tools for terminals: the internal tool that starts a program on one, and `term_read` and `term_write`, with which a
//! model uses one that `bash` with `tty` has started.

mod open;
mod screen_tools;

pub(crate) use open::quack_open_terminal;
pub(crate) use screen_tools::{term_read, term_write};
