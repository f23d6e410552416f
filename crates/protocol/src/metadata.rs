//! The shape of `metadata.json`. The macOS app rewrites the same file.
//!
//! The order of keys is upstream's. Times are whole-second ISO 8601 in UTC, the one form that every client parses.
//! Unknown keys are kept.

use crate::{SessionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version that quackd writes. A file with a higher number was written by a newer program.
pub const METADATA_VERSION: u64 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// File format; see [`METADATA_VERSION`].
    pub version: u64,
    /// Workspaces in the order in which they were first attached.
    pub workspaces: Vec<Workspace>,
    /// Sessions in the order in which they were created.
    pub sessions: Vec<Session>,
    /// The active session. May refer to a session that no longer exists.
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
    /// Absolute path. Identifies the workspace.
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
    /// Display name. Not unique across workspaces.
    #[serde(default)]
    pub name: String,
    /// The Pi session file, empty if there is none.
    #[serde(default)]
    pub pi_session_file: String,
    /// Creation time.
    #[serde(default)]
    pub created_at: String,
    /// Time of the last activity.
    #[serde(default)]
    pub last_active_at: String,
    /// Written by the macOS app, never read by quackd.
    #[serde(default)]
    pub is_voice_active: bool,
    /// Keys of other writers.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
