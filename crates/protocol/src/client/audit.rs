//! `quack.sandbox` with `audit` and `explain`: reports of a session's worker about its workspace and its confinement.
//!
//! The worker creates the reports and the supervisor forwards them unread. They are for display only: the supervisor
//! decides nothing by them.

use crate::SessionId;
use crate::policy::Profile;
use crate::tiers::{Tier, known};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// `quack.sandbox` data of `audit` and `explain`, as the supervisor sends it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSays {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Absolute path of the session's workspace.
    pub workspace_path: String,
    /// The report as text for the user: a JSON string that the worker wrote.
    pub text: Box<RawValue>,
    /// An [`AuditReport`] or an [`ExplainReport`]. Null if the worker could not answer; then `text` has the reason.
    pub report: Option<Box<RawValue>>,
}

/// `quack.sandbox` data of `audit` and `explain`, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Said{T}")]
pub struct WorkerSaid<T> {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Absolute path of the session's workspace.
    pub workspace_path: String,
    /// The report as text for the user.
    pub text: String,
    /// The report as data. Null if the worker could not answer.
    pub report: Option<T>,
}

/// Findings of an audit of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditReport {
    /// Files and repositories that the user should check before trusting them.
    pub found: usize,
    /// False if something was left out: the tree is too large, or a part of it cannot be read.
    pub complete: bool,
    /// The requested time, in milliseconds since the epoch, if changes before the worker's start count too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Directory entries that were checked.
    pub entries: u64,
    /// Number of names and patterns that the daemon knows. 0 from an older worker.
    pub names: usize,
    /// Files that other programs run or obey, and that changed: listed names, settings files near the top, unknown names
    /// in git directories, and files that settings name.
    pub files: Vec<AuditFile>,
    /// Names in git directories through which git would write to another file. Includes names that existed before the
    /// worker started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub planted: Vec<AuditPlanted>,
    /// Number of such names that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub planted_not_listed: usize,
    /// Repositories that are new, changed, or make git run something.
    pub repositories: Vec<AuditRepository>,
    /// Number of such repositories that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_listed: usize,
    /// Files outside of the workspace that the daemon runs or obeys and that commands of the session could change, one
    /// line each. The daemon adds them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub obeyed: Vec<String>,
}

/// A file or directory in [`AuditReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditFile {
    /// Relative to the workspace, or absolute in another writable directory. One line.
    pub path: String,
    /// Change of the file.
    pub change: AuditChange,
    /// The effect of such a file, to read after its name.
    pub why: String,
}

/// A name in [`AuditReport::planted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPlanted {
    /// Relative to the workspace, or absolute outside of it. One line.
    pub path: String,
    /// Kind of the file.
    pub kind: PlantedKind,
    /// True if it was removed. An audit removes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// Kind of a file through which git would write to another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlantedKind {
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// A directory instead of a file.
    Directory,
    /// A file with a second name.
    HardLink,
}

impl PlantedKind {
    /// Returns the text for it, to read after "is".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "a symbolic link",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Directory => "a directory instead of a file",
            Self::HardLink => "a file with a second name",
        }
    }
}

/// Change of a name since the worker started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditChange {
    /// Did not exist when the worker started.
    Made,
    /// Replaced, or has other contents.
    Changed,
    /// No longer exists.
    Removed,
}

impl AuditChange {
    /// Returns the word for it, to read after "was".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// A repository in [`AuditReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditRepository {
    /// Relative to the workspace, or absolute outside of it. One line; `.` is the workspace itself.
    pub path: String,
    /// Form of the repository.
    pub kind: RepositoryKind,
    /// Change since the worker started.
    pub state: RepositoryState,
    /// Commands that git would run and files that it would read there.
    pub commands: Vec<AuditCommand>,
}

/// Directory or file that git treats as a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryKind {
    /// A `.git` directory.
    Git,
    /// A `.git` file, which refers to a repository elsewhere.
    GitFile,
    /// A `.git` that is a symbolic link or a special file.
    Other,
    /// A directory without `.git` whose contents make git treat it as a repository.
    Bare,
}

/// Change of a repository since the worker started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryState {
    /// Did not exist when the worker started.
    New,
    /// Other commands or settings than when the worker started.
    Changed,
    /// Unchanged.
    Same,
    /// The earlier state is not known.
    Unknown,
}

/// Something that makes git run a program or read more settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditCommand {
    /// The file, relative to the workspace, one line.
    pub file: String,
    /// The setting, `hook`, `exec`, or another reason.
    pub key: String,
    /// Value of the setting, cut and on one line. Empty if there is none.
    pub value: String,
    /// Files of the workspace that the setting names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<AuditNamed>,
}

/// A file of the workspace that a setting of git names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditNamed {
    /// Relative to the workspace, one line.
    pub path: String,
    /// Change since the worker started. Null if there is none.
    pub change: Option<AuditChange>,
}

/// Permissions of a session, in general or for one path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainReport {
    /// The profile's name.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "String")]
    pub profile: Option<Profile>,
    /// Whether the session may use the machine's network.
    pub network: bool,
    /// True if commands reach the hosts that rules name, and no others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,
    /// The tier in force.
    #[serde(deserialize_with = "known")]
    #[schemars(with = "String")]
    pub tier: Option<Tier>,
    /// Layers in force, the outermost first. Empty if the request names a path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<ExplainLayer>,
    /// Parts that could not be confined as intended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Permissions for the requested path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<ExplainPath>,
}

/// One layer of confinement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainLayer {
    /// A short name.
    pub name: String,
    /// The rule that the layer enforces, a sentence.
    pub holds: String,
    /// Instruction for the user to change it; absent if the user cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// Permissions of a session for one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainPath {
    /// The requested path, absolute, one line.
    pub path: String,
    /// The path inside of the confinement, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<String>,
    /// Permitted access.
    pub access: PathAccess,
    /// Reason, a sentence.
    pub why: String,
    /// Instruction for the user to allow more, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// Access of a session to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// May be read and written.
    ReadWrite,
    /// May be written by commands, which are audited, but not by the file tools: other programs obey the file.
    Protected,
    /// May only be read.
    ReadOnly,
    /// Replaced by an empty file or directory.
    Hidden,
    /// Outside of the visible part of the machine's file system.
    NotShown,
    /// Visible, but reading is not permitted.
    NotReadable,
    /// Would be visible, but does not exist.
    Missing,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}
