//! The shape of `metadata.json`, shared with the macOS app, which rewrites the same file.
//!
//! Key order is upstream's emission order. Times are whole-second ISO 8601 in UTC, the one form that
//! every client parses. Keys that we do not know are kept.

use crate::{SessionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version that we write. A file with a higher number was written by a newer program.
pub const METADATA_VERSION: u64 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// File format; see [`METADATA_VERSION`].
    pub version: u64,
    /// Workspaces in the order in which they were first attached.
    pub workspaces: Vec<Workspace>,
    /// Sessions in the order in which they were made.
    pub sessions: Vec<Session>,
    /// The session that speaks for "the active one". It may name a session that is gone.
    #[serde(default)]
    pub active_voice_session_id: Option<SessionId>,
    /// Keys of other writers.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            version: METADATA_VERSION,
            workspaces: Vec::new(),
            sessions: Vec::new(),
            active_voice_session_id: None,
            other: Map::new(),
        }
    }
}

/// One directory that clients work in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// Opaque id.
    pub id: WorkspaceId,
    /// Absolute path; workspaces are matched by it.
    pub path: String,
    /// When it was first attached.
    #[serde(default)]
    pub created_at: String,
    /// The session that was last attached or activated here.
    #[serde(default)]
    pub last_active_session_id: Option<SessionId>,
    /// Keys of other writers.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One conversation bound to one workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Opaque id.
    pub id: SessionId,
    /// The workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// Display name, not unique over workspaces.
    #[serde(default)]
    pub name: String,
    /// The Pi session file, empty if there is none.
    #[serde(default)]
    pub pi_session_file: String,
    /// When it was made.
    #[serde(default)]
    pub created_at: String,
    /// When it last did something.
    #[serde(default)]
    pub last_active_at: String,
    /// Written by the macOS app, never read by us.
    #[serde(default)]
    pub is_voice_active: bool,
    /// Keys of other writers.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
