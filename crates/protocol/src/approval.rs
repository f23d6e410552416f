//! Approvals: what a session asks its user for, and the answers that are kept.

use crate::network::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the user is asked to allow.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Connections to a host and port.
    Network,
    /// Writing in a directory outside of the workspace.
    Write,
    /// One exact command line in safe mode.
    Command,
    /// The end of safe mode for the session.
    SafeMode,
}

impl ApprovalKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Network, Self::Write, Self::Command, Self::SafeMode];

    /// Returns the name in settings and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Write => "write",
            Self::Command => "command",
            Self::SafeMode => "safe_mode",
        }
    }
}

impl fmt::Display for ApprovalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Decision of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The user allowed it.
    Allow,
    /// The user denied it.
    Deny,
}

/// An answer of the user that holds for more than one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Unique in the daemon: `g1`, `g2`.
    pub id: String,
    /// What it is about.
    pub kind: ApprovalKind,
    /// A rule for a host (`registry.example.org:443`), a directory, a command line; empty for safe mode.
    pub target: String,
    /// The decision.
    pub decision: Decision,
    /// When it was given, ISO 8601 UTC.
    pub at: String,
    /// The client that gave it, for display: `quack 4711`, `Claude Code 2.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// A grant with its scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScopedGrant {
    /// [`Scope::Session`], [`Scope::Workspace`] or [`Scope::Always`].
    pub scope: Scope,
    /// The grant.
    #[serde(flatten)]
    pub grant: Grant,
}
