//! The data of `undo` as the verb uses it. Read from what a worker said, which may be wrong: what is missing
//! has a default.

use serde::Deserialize;
use serde_json::Value;

/// What an undo has done.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Undone {
    /// What was undone.
    pub(crate) undone: String,
    /// By which that is undone.
    pub(crate) undo_id: Option<String>,
    /// As far as they are listed.
    pub(crate) files: Vec<File>,
    /// How many files have their old content.
    pub(crate) restored: usize,
    /// Why it ended before its end.
    pub(crate) stopped: Option<String>,
    /// What can be undone by its id instead.
    pub(crate) older_undo_ids: Vec<String>,
    /// Of names that keep the content that was undone.
    pub(crate) notes: Vec<String>,
}

/// One file.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct File {
    /// As the tool gave it.
    pub(crate) path: String,
    pub(crate) restored: bool,
    /// Why it was not.
    pub(crate) reason: Option<String>,
}

impl Undone {
    /// Reads the data of `undo`.
    ///
    /// # Errors
    /// It has another shape.
    pub(crate) fn read(data: &Value) -> anyhow::Result<Self> {
        Self::deserialize(data)
            .map_err(|error| anyhow::anyhow!("the worker gave an odd answer: {error}"))
    }

    /// Whether every file has its old content.
    pub(crate) fn is_whole(&self) -> bool {
        self.stopped.is_none() && self.files.iter().all(|file| file.restored)
    }
}
