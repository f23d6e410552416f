//! Terminals of a session for clients: starting a program, attaching to its screen, and its events.
//!
//! A terminal is a background job with the id `term-1`. An attached client gets the events of this file. They have no
//! `seq`: a client that reads too slowly gets the whole screen in place of what it has missed.

use crate::SessionId;
use crate::terminal::{Recording, ScreenRows, TerminalColors, TerminalExit, TerminalSignal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// `quack.run` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RunParams {
    /// Session reference; the active session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Program and arguments. Empty: the user's shell.
    pub argv: Vec<String>,
    /// Columns of the terminal; 80 if absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Rows of the terminal; 24 if absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// Directory in the workspace to start in, relative to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables of the program in addition to the session's, at most 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Records the terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Recording>,
    /// Colors of the client's terminal, which the program can ask for. Absent: light gray on black.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colors: Option<TerminalColors>,
}

/// `quack.run` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// The terminal: `term-1`.
    pub terminal_id: String,
    /// Path of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
}

/// `quack.term_attach` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TermAttachParams {
    /// Session reference; the active session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The terminal; the last started one that runs if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_id: Option<String>,
    /// Columns of the client's window. Absent or 0, also the rows: the terminal keeps its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Rows of the client's window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// True if the client types nothing. Its size does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// True for events `term_rows` in place of `term_output` and `term_redraw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_rows: Option<bool>,
    /// True to set the size of the terminal now. Otherwise it gets the client's size when the client types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_size: Option<bool>,
    /// Colors of the client's terminal, which the program can ask for. Those of the client that attached or typed last
    /// and may type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colors: Option<TerminalColors>,
}

/// `quack.term_attach` data. The first event is the whole screen.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermAttachData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// The terminal.
    pub terminal_id: String,
    /// First line of its command.
    pub command: String,
    /// Columns of the terminal.
    pub cols: u16,
    /// Rows of the terminal.
    pub rows: u16,
    /// Clients that are attached, with this one.
    pub viewers: usize,
    /// Whether input of this client is refused.
    pub read_only: bool,
    /// Title that the program has set: one line without unsafe characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// `quack.term_input` parameters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermInputParams {
    /// Id of the session, as in the reply of `quack.term_attach`. No other reference.
    pub session_id: String,
    /// The terminal. The client must be attached to it.
    pub terminal_id: String,
    /// The typed bytes: at most 32 KiB, in base64 with padding.
    #[schemars(with = "String")]
    pub bytes: Box<RawValue>,
}

/// `quack.term_input` data.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct TermInputData {
    /// Whether the bytes were passed on. False: the program reads too slowly, and the client may send them again later.
    pub taken: bool,
}

/// `quack.term_resize` parameters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermResizeParams {
    /// Id of the session, as in the reply of `quack.term_attach`. No other reference.
    pub session_id: String,
    /// The terminal. The client must be attached to it.
    pub terminal_id: String,
    /// Columns of the client's window, at least 1.
    pub cols: u16,
    /// Rows of the client's window, at least 1.
    pub rows: u16,
}

/// `quack.term_resize` data: the size of the terminal.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct TermResizeData {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// `quack.term_detach` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TermDetachParams {
    /// Session reference; the active session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The terminal; all terminals of the session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_id: Option<String>,
    /// True to detach every client. Otherwise only this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
}

/// `quack.term_detach` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermDetachData {
    /// Name of the session.
    pub session_name: String,
    /// Number of clients that were detached.
    pub detached: usize,
}

/// `quack.term_kill` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TermKillParams {
    /// Session reference; the active session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The terminal; the last started one that runs if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_id: Option<String>,
    /// Signal for the program in the foreground. Absent: the terminal ends, with HUP, and KILL after 2 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<TerminalSignal>,
}

/// `quack.term_kill` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermKillData {
    /// The session.
    pub session_id: SessionId,
    /// The terminal.
    pub terminal_id: String,
}

/// Data of the events `term_output` and `term_redraw`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermBytes {
    /// Name of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
    /// Bytes for a terminal emulator, in base64 with padding. Those of a redraw make the whole screen. A client must not
    /// write them to a real terminal without a filter: the program chooses them.
    #[schemars(with = "String")]
    pub bytes: Box<RawValue>,
    /// Columns of the screen, in a redraw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Rows of the screen, in a redraw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

impl TermBytes {
    /// Name of the event with the next output.
    pub const OUTPUT: &str = "term_output";
    /// Name of the event with the whole screen.
    pub const REDRAW: &str = "term_redraw";
}

/// Data of the event `term_rows`, as a client reads it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TermRows")]
pub struct TermRowsOf<S> {
    /// `term_rows`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
    /// The rows.
    pub screen: S,
}

/// Data of the event `term_rows` as our client reads it.
pub type TermRows = TermRowsOf<ScreenRows>;

impl TermRows {
    /// Name of the event.
    pub const NAME: &str = "term_rows";
}

/// Data of the event `term_size`: another client has changed the size of the terminal.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermSize {
    /// `term_size`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

impl TermSize {
    /// Name of the event.
    pub const NAME: &str = "term_size";
}

/// Data of the event `term_open`: the program asks to open an address in the user's browser. Any program can do that: a
/// client must ask the user.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermOpen {
    /// `term_open`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
    /// `http` or `https` address, at most 2,048 printable ASCII characters.
    pub url: String,
}

impl TermOpen {
    /// Name of the event.
    pub const NAME: &str = "term_open";
}

/// Data of the event `term_exit`: the program has ended. Last event of the terminal.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermExit {
    /// `term_exit`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
    /// End of the program.
    #[serde(flatten)]
    pub exit: TerminalExit,
}

impl TermExit {
    /// Name of the event.
    pub const NAME: &str = "term_exit";
}

/// Data of the event `term_detached`: this client is no longer attached.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TermDetached {
    /// `term_detached`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
}

impl TermDetached {
    /// Name of the event.
    pub const NAME: &str = "term_detached";
}

/// Data of the session events `terminal_started`, `terminal_ended` and `terminal_title`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalEvent {
    /// Name of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The terminal.
    pub terminal_id: String,
    /// First line of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Title that the program has set. The program chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// End of the program, in `terminal_ended`.
    #[serde(flatten)]
    pub exit: TerminalExit,
}

impl TerminalEvent {
    /// A program was started on a terminal.
    pub const STARTED: &str = "terminal_started";
    /// The program has ended.
    pub const ENDED: &str = "terminal_ended";
    /// The program has set another title.
    pub const TITLE: &str = "terminal_title";
}
