//! `quack.gc`: lists and deletes expired and orphaned files in the state directory.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.gc` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GcParams {
    /// True: delete nothing and list the items in `found`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Minimum age of files with a retention, in seconds. If absent, the configured retention applies, and 30 days for
    /// damaged files and histories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_s: Option<u64>,
    /// True: also delete the histories of sessions that do not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histories: Option<bool>,
    /// True: delete only sessions whose directory does not exist, and no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_sessions: Option<bool>,
    /// True: delete such sessions even if they are pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// `quack.gc` data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcData {
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// One entry per kind with at least one item.
    pub kinds: Vec<GcKind>,
    /// Number of items of all kinds.
    pub items: usize,
    /// Disk space of the items, in bytes.
    pub bytes: u64,
    /// Number of items that could not be deleted.
    pub failed: usize,
    /// Reason for the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether items are left that this request did not check. Another request finds them.
    pub more: bool,
    /// Items that would be deleted, at most 1,000. Only in a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<GcItem>,
    /// Sessions whose directory does not exist and that were deleted, or would be in a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<PrunedSession>,
    /// Sessions whose directory does not exist and that were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_sessions: Vec<PrunedSession>,
}

/// A session in [`GcData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrunedSession {
    /// The session.
    pub id: SessionId,
    /// Name of the session.
    pub name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The directory that does not exist.
    pub workspace_path: String,
    /// Reason for keeping the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// True if it is kept because it is pinned, and `force` would delete it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// One kind in [`GcData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GcKind {
    /// `leftovers runs temporary outputs undo unfinished quarantined histories sessions`.
    pub kind: String,
    /// Number of items.
    pub items: usize,
    /// Disk space of the items, in bytes.
    pub bytes: u64,
}

/// One item in [`GcData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcItem {
    /// Kind of the item, as in [`GcKind::kind`].
    pub kind: String,
    /// Path, relative to the state directory.
    pub path: String,
    /// Disk space of the item, in bytes.
    pub bytes: u64,
    /// Age since the last change, in seconds.
    pub age_s: u64,
}

/// The disk of the state directory, in [`crate::client::SupervisorInfo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskInfo {
    /// Space that may still be written, in bytes.
    pub free_bytes: u64,
    /// Size of the disk, in bytes.
    pub total_bytes: u64,
    /// Whether space is low. Then spill files are not kept, and the log contains only warnings and errors.
    pub low: bool,
}
