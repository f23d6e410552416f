//! Grants: what the user allowed or denied beyond the policy.

use crate::network::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Subject of a grant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Connections to a host and port.
    Network,
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

/// A decision of the user that holds beyond the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Unique in the daemon: `g1`, `g2`.
    pub id: String,
    /// Subject of the grant.
    pub kind: ApprovalKind,
    /// A rule for a host, such as `registry.example.org:443`.
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
