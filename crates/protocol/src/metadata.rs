//! The shape of `metadata.json`. The macOS app rewrites the same file.
//!
//! The order of keys is upstream's. Times are whole-second ISO 8601 in UTC, the one form that every client parses.
//! Unknown keys are kept.

use crate::{SessionId, WorkspaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Version that quackd writes. A file with a higher number was written by a newer program.
pub const METADATA_VERSION: u64 = 1;

/// The whole file. A copy shares the entries, so a change of one session does not copy all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// File format; see [`METADATA_VERSION`].
    pub version: u64,
    /// Workspaces in the order in which they were first attached.
    pub workspaces: Vec<Shared<Workspace>>,
    /// Sessions in the order in which they were created.
    pub sessions: Vec<Shared<Session>>,
    /// The active session. May refer to a session that no longer exists.
    #[serde(default)]
    pub active_voice_session_id: Option<SessionId>,
    /// Keys of other writers.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An entry that copies of the metadata share. A change copies the entry if it is shared.
#[derive(Debug, PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(entry: T) -> Self {
        Self(Arc::new(entry))
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
