//! Approvals: questions to the user about denied operations, the answers, and the grants that answers leave behind.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Subject of an approval.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Connections to a host and port.
    Network,
    /// Writing in a directory outside of the writable ones.
    Write,
    /// A command that safe mode does not run.
    Command,
    /// A tool that changes files, in a session in safe mode.
    SafeMode,
    /// The use of a credential, by the text of a [`CredentialUse`](crate::credentials::CredentialUse).
    Credential,
}

impl ApprovalKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Network, Self::Write, Self::Command, Self::SafeMode, Self::Credential];

    /// Returns the name on the wire and in `sandbox.ask`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Write => "write",
            Self::Command => "command",
            Self::SafeMode => "safe_mode",
            Self::Credential => "credential",
        }
    }

    /// Scopes that an answer may have. `likely` means that the target was inferred from a program's output.
    #[must_use]
    pub const fn scopes(self, likely: bool) -> &'static [AnswerScope] {
        use AnswerScope::{Always, Once, Session, Workspace};
        match (self, likely) {
            (Self::Network, false) => &[Once, Session, Workspace, Always],
            (Self::Network, true) => &[Once, Session, Workspace],
            (Self::Write, false) => &[Session, Workspace, Always],
            (Self::Write, true) => &[Session, Workspace],
            (Self::Command, _) => &[Once, Session],
            (Self::SafeMode, _) => &[Session],
            (Self::Credential, _) => &[Once, Session, Workspace, Always],
        }
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

/// Validity of an answer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum AnswerScope {
    /// For the waiting operation, and for equal connections within 60 s.
    Once,
    /// For the session.
    Session,
    /// For all sessions of the workspace.
    Workspace,
    /// For all sessions.
    Always,
}

impl AnswerScope {
    /// Returns the option of a question that allows with this scope.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Once => "Allow once",
            Self::Session => "Allow for this session",
            Self::Workspace => "Allow in this workspace",
            Self::Always => "Always allow",
        }
    }

    /// Returns the scope as the end of a sentence: `for this session`.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "for this session",
            Self::Workspace => "in this workspace",
            Self::Always => "always",
        }
    }
}

/// Option of a question that denies.
pub const DENY_OPTION: &str = "Deny";

/// Start of the ids of quackd's questions. Ids of Pi's questions do not begin with it.
pub const REQUEST_PREFIX: &str = "quack-";

/// For whom a grant holds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// For the session.
    Session,
    /// For all sessions of the workspace.
    Workspace,
    /// For all sessions.
    Always,
}

impl Scope {
    /// Returns the scope as the end of a sentence: `for this session`.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Session => "for this session",
            Self::Workspace => "in this workspace",
            Self::Always => "always",
        }
    }
}

/// A decision of the user that holds beyond the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Unique in the daemon: `g1`, `g2`.
    pub id: String,
    /// Subject of the grant.
    pub kind: ApprovalKind,
    /// A rule for a host, such as `registry.example.org:443`; a directory; a command; or the use of a credential.
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

/// Member `permission` of an `extension_ui_request`: the facts of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Subject of the question.
    pub kind: ApprovalKind,
    /// Host and port, directory, command or tool. One line.
    pub target: String,
    /// A preset that has the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// The call that caused it, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Whether the target was inferred from a program's output.
    pub likely: bool,
    /// Scopes that an answer may have.
    pub scopes: Vec<AnswerScope>,
}

/// Data of the event `extension_ui_request` for an approval. A client without support for approvals sees a selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequest {
    /// `extension_ui_request`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Begins with [`REQUEST_PREFIX`].
    pub id: String,
    /// `select`.
    pub method: String,
    /// The question.
    pub title: String,
    /// First line: the operation and its target, and nothing else. Then one line for each word that an agent, a command
    /// or a client chose, in quotes that it does not contain.
    pub message: String,
    /// [`DENY_OPTION`], then one option for each scope.
    pub options: Vec<String>,
    /// Time for an answer, in milliseconds.
    pub timeout: u64,
    /// The facts.
    pub permission: Permission,
}

impl ApprovalRequest {
    /// Event name.
    pub const NAME: &str = "extension_ui_request";

    /// Returns the decision and scope of an option. `None` for a text that is not an option.
    #[must_use]
    pub fn answer_of(&self, option: &str) -> Option<(Decision, AnswerScope)> {
        if option == DENY_OPTION {
            return Some((Decision::Deny, AnswerScope::Once));
        }

        let scope = self.permission.scopes.iter().find(|scope| scope.option() == option)?;
        Some((Decision::Allow, *scope))
    }
}

/// Data of the event `extension_ui_closed` for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalClosed {
    /// `extension_ui_closed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Id of the question.
    pub id: String,
    /// `answered`, `timeout` or `ended`.
    pub reason: String,
    /// The decision, if a client answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Scope of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<AnswerScope>,
    /// The client that answered, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl ApprovalClosed {
    /// Event name.
    pub const NAME: &str = "extension_ui_closed";
}

/// `quack.approvals` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalsParams {
    /// True: send this client the questions of all sessions as they are opened and closed, and count it as a client
    /// that can answer. False ends that, without `sessionId` for every session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
    /// With `watch`: only the questions of this session. A client may watch several, one request for each. Beyond 64
    /// the oldest ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// `quack.approvals` data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalsData {
    /// Questions without an answer, oldest first.
    pub pending: Vec<PendingApproval>,
    /// The last answered, expired and withdrawn questions, oldest first.
    pub recent: Vec<RecentApproval>,
}

/// A question without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    /// The session.
    pub session_id: SessionId,
    /// Display label of the session.
    pub label: String,
    /// When it was asked, ISO 8601 UTC.
    pub at: String,
    /// Time left for an answer, in milliseconds.
    pub left_ms: u64,
    /// The question.
    pub request: ApprovalRequest,
}

/// A question that is closed. Also a line of `approvals.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentApproval {
    /// When it was closed, ISO 8601 UTC.
    pub at: String,
    /// Id of the question.
    pub id: String,
    /// The session.
    pub session_id: SessionId,
    /// Subject of the question.
    pub kind: ApprovalKind,
    /// Host and port, directory, command or tool.
    pub target: String,
    /// `answered`, `timeout` or `ended`.
    pub reason: String,
    /// The decision, if a client answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Scope of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<AnswerScope>,
    /// The client that answered, with its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time from the question to its end, in milliseconds.
    pub waited_ms: u64,
}

/// `quack.answer` parameters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnswerParams {
    /// Id of the question, which may have expired within 10 minutes.
    pub id: String,
    /// The decision.
    pub decision: Decision,
    /// Scope of the answer. Absent: the narrowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<AnswerScope>,
}

/// `quack.answer` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnswerData {
    /// Id of the question.
    pub id: String,
    /// The session.
    pub session_id: SessionId,
    /// Subject of the question.
    pub kind: ApprovalKind,
    /// Host and port, directory, command or tool.
    pub target: String,
    /// The decision.
    pub decision: Decision,
    /// Scope of the answer.
    pub scope: AnswerScope,
    /// Reason why the answer counts once although a longer scope was requested, or why it is not known whether the longer
    /// scope is saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_saved: Option<String>,
    /// Whether the question had expired. The waiting operation was denied, and the answer is for the next attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}
