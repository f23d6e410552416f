//! `quack.gc`: what in the state directory nobody needs any more, and deleting it.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.gc` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GcParams {
    /// True: nothing is deleted, and `found` says what would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// How old what is kept for some time must be, in seconds. As the configuration says if absent, and 30 days for
    /// damaged files and histories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_s: Option<u64>,
    /// True: the histories of sessions that do not exist go too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histories: Option<bool>,
    /// True: only sessions whose directory does not exist, and no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_sessions: Option<bool>,
    /// True: such sessions also if they are pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// `quack.gc` data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcData {
    /// Whether nothing was deleted because that was asked for.
    pub dry_run: bool,
    /// Of each kind of which there is something.
    pub kinds: Vec<GcKind>,
    /// How many things of all kinds.
    pub items: usize,
    /// What they took of the disk, in bytes.
    pub bytes: u64,
    /// How many could not be deleted.
    pub failed: usize,
    /// Why the first of those could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// There is more than was looked at: the same again finds it.
    pub more: bool,
    /// What would be deleted, at most 1,000 of it; only if nothing is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<GcItem>,
    /// Sessions whose directory does not exist: those that were forgotten, or would be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<PrunedSession>,
    /// Such sessions that stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_sessions: Vec<PrunedSession>,
}

/// A session in [`GcData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrunedSession {
    /// The session.
    pub id: SessionId,
    /// Its name.
    pub name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The directory that does not exist.
    pub workspace_path: String,
    /// Why it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One kind in [`GcData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GcKind {
    /// `leftovers runs temporary outputs undo unfinished quarantined histories sessions`.
    pub kind: String,
    /// How many.
    pub items: usize,
    /// What they took of the disk, in bytes.
    pub bytes: u64,
}

/// One thing in [`GcData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcItem {
    /// Its kind.
    pub kind: String,
    /// Where it is, from the state directory.
    pub path: String,
    /// What it takes of the disk, in bytes.
    pub bytes: u64,
    /// How long ago it was changed last, in seconds.
    pub age_s: u64,
}

/// The disk of the state directory, in [`crate::client::SupervisorInfo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskInfo {
    /// What may still be written, in bytes.
    pub free_bytes: u64,
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// There is too little: long outputs are not kept, and the log says warnings and errors only.
    pub low: bool,
}
