//! `quack.sandbox` with `audit` and `explain`: what a session's worker says of its workspace and of itself.
//!
//! The worker makes the reports and the supervisor forwards them unread: they are for people. Nothing is
//! decided by them.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// `quack.sandbox` data of `audit` and `explain`, as the supervisor sends it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSays {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Its workspace.
    pub workspace_path: String,
    /// The answer for a person, a JSON string that the worker wrote.
    pub text: Box<RawValue>,
    /// An [`AuditReport`] or an [`ExplainReport`]; null if the worker could not answer, and `text` says why.
    pub report: Option<Box<RawValue>>,
}

/// `quack.sandbox` data of `audit` and `explain`, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Said{T}")]
pub struct WorkerSaid<T> {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Its workspace.
    pub workspace_path: String,
    /// The answer for a person.
    pub text: String,
    /// The same as data; null if the worker could not answer.
    pub report: Option<T>,
}

/// What an audit of a workspace has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditReport {
    /// How many files and repositories need a look before they are trusted.
    pub found: usize,
    /// False if something was left out: the tree is too large, or a part of it cannot be read.
    pub complete: bool,
    /// Entries of directories that were looked at.
    pub entries: u64,
    /// Files at the top of the workspace that later programs run or obey, and that are not as they were.
    pub files: Vec<AuditFile>,
    /// Names in git directories by which git would write to another file. Old names count too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub planted: Vec<AuditPlanted>,
    /// Number of such names that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub planted_not_listed: usize,
    /// Repositories that are new, changed, or make git run something.
    pub repositories: Vec<AuditRepository>,
    /// Repositories of that kind that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_listed: usize,
}

/// A file or directory in [`AuditReport`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditFile {
    /// Relative to the workspace, one line.
    pub path: String,
    /// What became of it.
    pub change: AuditChange,
    /// What such a file does, to be read after its name.
    pub why: String,
}

/// A name in [`AuditReport::planted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPlanted {
    /// Relative to the workspace, or absolute in a repository outside. One line.
    pub path: String,
    /// Kind of the file.
    pub kind: PlantedKind,
    /// True if it was removed. An audit removes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// Kind of a file by which git would write to another file.
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

/// What became of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditChange {
    /// It was not there when the worker began.
    Made,
    /// It is another one, or something else is in it.
    Changed,
    /// It is gone.
    Removed,
}

impl AuditChange {
    /// The word for it, to be read after "was".
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
    /// Relative to the workspace, one line; `.` is the workspace itself.
    pub path: String,
    /// What kind it is.
    pub kind: RepositoryKind,
    /// What became of it.
    pub state: RepositoryState,
    /// What git would run or read there.
    pub commands: Vec<AuditCommand>,
}

/// What git takes for a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryKind {
    /// A `.git` directory.
    Git,
    /// A `.git` file, which leads to a repository elsewhere.
    GitFile,
    /// A `.git` that is a link or something special.
    Other,
    /// A directory that git takes for a repository by what is in it.
    Bare,
}

/// What became of a repository since the worker began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryState {
    /// It was not there.
    New,
    /// What git runs there is not as it was.
    Changed,
    /// As it was.
    Same,
    /// What was there before is not known.
    Unknown,
}

/// Something that makes git run a program or read more settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditCommand {
    /// The file, relative to the workspace, one line.
    pub file: String,
    /// The setting, `hook`, `exec`, or what else is the matter.
    pub key: String,
    /// Its value, cut and on one line; empty if there is none.
    pub value: String,
}

/// What a session may do, or what it may do with one path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainReport {
    /// The profile's name.
    pub profile: String,
    /// Whether the machine's network may be used.
    pub network: bool,
    /// The tier in force.
    pub tier: String,
    /// What holds, the outermost first. Empty if a path was asked about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<ExplainLayer>,
    /// What could not be confined as it should.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// About the path that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<ExplainPath>,
}

/// One layer of confinement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainLayer {
    /// A short name.
    pub name: String,
    /// What it holds, a sentence.
    pub holds: String,
    /// How a person changes it, if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// What a session may do with one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainPath {
    /// As it was asked, absolute, one line.
    pub path: String,
    /// Where it leads inside of the confinement, if that is another place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<String>,
    /// What may be done.
    pub access: PathAccess,
    /// Why, a sentence.
    pub why: String,
    /// How a person can allow more, a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// What a session may do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// Read and written.
    ReadWrite,
    /// Written, but not through the file tools: later programs obey it. Commands are audited.
    Protected,
    /// Read only.
    ReadOnly,
    /// Something empty is in its place.
    Hidden,
    /// Nothing of the machine is shown there.
    NotShown,
    /// It is shown, and not allowed to be read.
    NotReadable,
    /// It would be shown, and is not there.
    Missing,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}
