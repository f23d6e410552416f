//! `quack.isolated`: the private copy of an isolated session, and recorded states of a session's files.

use crate::SessionId;
use crate::isolate::{Checkpoint, CopiedTree, IsolatedCommits, IsolatedReport, MergeRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.isolated` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IsolatedParams {
    /// Session reference; the active session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<IsolatedAction>,
    /// For `diff`, `apply`, `refresh` and `restore`: paths of files and directories, relative to the workspace. All if absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// For `diff`, `apply` and `restore`: relative paths with protected names that are included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
    /// For `diff`: return the differences as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<bool>,
    /// For `apply` and `refresh`: how to resolve changes of both sides that cannot be merged. If absent, nothing is written then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRule>,
    /// For `apply`, `refresh` and `restore`: only say what would be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// For `apply`: `digest` of an earlier reply. Nothing is written if anything changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// For `diff` and `apply`: the session's commits instead of its files. `apply` writes them to a reference of the
    /// workspace's repository, and nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<bool>,
    /// For `apply`, `undo`, `refresh` and `restore`: also while calls or background jobs run in the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// For `restore`: `number` of the state, which is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// Kind of [`IsolatedParams`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolatedAction {
    /// Compare the copy with the workspace.
    Diff,
    /// Write the changes of the copy to the workspace, all or none.
    Apply,
    /// Take back the last `apply`.
    Undo,
    /// Write the changes of the workspace to the copy, all or none.
    Refresh,
    /// Throw the copy away and make a new one.
    Discard,
    /// List the recorded states of the session's files. Also for a session that is not isolated.
    Checkpoints,
    /// Record the state of the session's files, then write an earlier one. Also for a session that is not isolated.
    Restore,
}

/// `quack.isolated` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolatedData {
    /// The session.
    pub session_id: SessionId,
    /// Display label of the session.
    pub label: String,
    /// Changes, and what happened to them. Empty for `discard`.
    #[serde(flatten)]
    pub report: IsolatedReport,
    /// For `discard`: the new copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<CopiedTree>,
    /// For `diff` and `apply` with `commits`: the session's commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commits: Option<IsolatedCommits>,
    /// For `checkpoints`: the recorded states, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// Directory on another machine in which the session works, such as `build1:/home/me/x`, if its copy was sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}
