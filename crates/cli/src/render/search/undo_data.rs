//! Typed reader for the data of `undo`. The data comes from a worker and may be faulty: missing fields get defaults.

use serde::Deserialize;

/// Result of an undo.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Undone {
    /// Id of the undone replacement or change, or the undone call or turn.
    pub(crate) undone: String,
    /// Id that undoes this undo.
    pub(crate) undo_id: Option<String>,
    /// Files, up to the tool's limit.
    pub(crate) files: Vec<File>,
    /// Number of restored files.
    pub(crate) restored: usize,
    /// Reason for an early stop.
    pub(crate) stopped: Option<String>,
    /// Ids of older replacements that can be taken back after this one.
    pub(crate) older_undo_ids: Vec<String>,
    /// Notes about hard links that keep the undone content.
    pub(crate) notes: Vec<String>,
}

/// File of the replacement.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct File {
    /// Path of the file, as the tool names it.
    pub(crate) path: String,
    pub(crate) restored: bool,
    /// Reason why the file was not restored.
    pub(crate) reason: Option<String>,
    /// Whether the file was deleted, because the undone change had created it.
    pub(crate) deleted: bool,
    /// Whether it was restored to what another program wrote between the undone changes.
    pub(crate) partly: bool,
}

impl Undone {
    /// Whether every file has its old content.
    pub(crate) fn is_whole(&self) -> bool {
        self.stopped.is_none() && self.files.iter().all(|file| file.restored)
    }
}
