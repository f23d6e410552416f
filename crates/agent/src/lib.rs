//! The agent without I/O and without a clock: an agent worker drives it.
//!
//! - [`call_view`]: subject and changes of a tool call, for readers;
//! - [`engine`]: the turns of a session, as a state machine;
//! - [`prompt`]: the system prompt;
//! - [`compaction`]: estimates of tokens, and summaries of old parts of a conversation;
//! - [`export`]: a conversation as Markdown or HTML;
//! - [`message`]: the messages of a conversation;
//! - [`providers`]: requests to models, and their streams as state machines from bytes to deltas;
//! - [`surrogates`]: JSON that JavaScript has cut;
//! - [`transcript`]: session files, compatible with Pi's.

pub mod call_view;
pub mod compaction;
pub mod engine;
pub mod export;
pub mod message;
pub mod prompt;
pub mod providers;
mod surrogates;
pub mod transcript;
