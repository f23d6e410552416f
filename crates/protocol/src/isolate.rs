//! Isolated sessions: the frames between the supervisor and the process that makes, compares and applies a session's
//! private copy of its workspace, and the results that clients get.
//!
//! The process gets one frame and sends one frame, with lengths as in [`crate::worker`]. It reads files that the session
//! wrote, so the supervisor does not: it passes on the result.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Tags of [`ToIsolate`].
pub const TO_ISOLATE_TAGS: &[&str] = &["isolate", "checkpoints"];

/// Tags of [`FromIsolate`].
pub const FROM_ISOLATE_TAGS: &[&str] =
    &["copied", "compared", "commits", "recorded", "listed", "packed", "unpacked", "failed"];

/// Most files in one [`IsolatedReport`]. Its `more` counts the others.
pub const MAX_ISOLATED_FILES: usize = 10_000;

/// Most bytes of the listed files in one [`IsolatedReport`] as JSON, and of the texts of differences.
pub const MAX_ISOLATED_LIST: usize = 2 * 1024 * 1024;
/// See [`MAX_ISOLATED_LIST`].
pub const MAX_ISOLATED_TEXT: usize = 4 * 1024 * 1024;

/// Default of `isolated.copy_files`: most files of a new copy.
pub const MAX_COPIED_FILES: u64 = 50_000;

/// Default of `isolated.copy_mb`, in bytes: largest size of a new copy without the repository and ignored directories.
pub const MAX_COPIED_BYTES: u64 = 1024 * 1024 * 1024;

/// Default of `isolated.max_mb`, in bytes: disk space of the copy of one session, with its layers.
pub const MAX_COPY_BYTES: u64 = 8 * 1024 * 1024 * 1024;

/// Default of `isolated.total_mb`, in bytes: disk space of all copies together, with their checkpoints.
pub const MAX_COPIES_BYTES: u64 = 20 * 1024 * 1024 * 1024;

/// Most directories of [`CopiedTree::outputs`]. Each is a separate mount.
pub const MAX_OUTPUTS: usize = 256;

/// Most lines of notes in a result, and the characters of each.
pub const MAX_ISOLATED_NOTES: usize = 20;
/// See [`MAX_ISOLATED_NOTES`].
pub const MAX_ISOLATED_NOTE: usize = 300;

/// Supervisor to the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToIsolate {
    /// First and only frame, as the next one; answered by exactly one [`FromIsolate`].
    Isolate(IsolateRequest),
    /// See [`ToIsolate::Isolate`].
    Checkpoints(CheckpointRequest),
}

/// Work on the copy of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolateRequest {
    /// Absolute path of the workspace.
    pub workspace: PathBuf,
    /// Absolute path of the session's private directory for its copy.
    pub directory: PathBuf,
    /// The user's home, for the ignore rules of git.
    pub home: PathBuf,
    /// Kind of the work.
    pub task: IsolateTask,
}

/// Kind of work on a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolateTask {
    /// Make the copy, in place of one that exists. Answered by [`FromIsolate::Copied`].
    Copy {
        /// Paths that the session must not see. They are not copied.
        hidden: Vec<PathBuf>,
        /// Most files of the copy.
        max_files: u64,
        /// Largest size of the copy in bytes.
        max_bytes: u64,
    },
    /// Compare the copy with the workspace. Answered by [`FromIsolate::Compared`].
    Diff {
        /// The selected changes.
        choice: IsolatedChoice,
        /// Whether the report has the content of each change, in [`IsolatedFile::diff`]. Otherwise it only lists the
        /// files.
        text: bool,
    },
    /// Write the changes of the copy to the workspace: all or none. Answered by [`FromIsolate::Compared`].
    Apply {
        /// The selected changes.
        choice: IsolatedChoice,
        /// How to resolve changes of both sides that cannot be merged. Without it nothing is written.
        merge: Option<MergeRule>,
        /// Only say what would be written.
        dry_run: bool,
        /// [`IsolatedReport::digest`] of the comparison that the user has seen.
        expect: Option<String>,
    },
    /// Take back the last [`IsolateTask::Apply`]. Answered by [`FromIsolate::Compared`].
    Undo {},
    /// Write the changes of the workspace to the copy: all or none. Answered by [`FromIsolate::Compared`].
    Refresh {
        /// The selected changes.
        choice: IsolatedChoice,
        /// As in [`IsolateTask::Apply`].
        merge: Option<MergeRule>,
        /// Only say what would be written.
        dry_run: bool,
        /// Paths that the session must not see. They are left out.
        hidden: Vec<PathBuf>,
        /// Whether commands of the session may be using its repository, which then stays.
        keeps_git: bool,
        /// Most files of the copy.
        max_files: u64,
        /// Largest size of the copy in bytes.
        max_bytes: u64,
    },
    /// List the commits of the session that the workspace does not have. Answered by [`FromIsolate::Commits`].
    ExportCommits {
        /// Whether to write their objects to [`EXPORTED_COMMITS`] too.
        writes: bool,
    },
    /// Take the exported commits into the repository of the workspace. Answered by [`FromIsolate::Commits`].
    ImportCommits {
        /// Name of the reference that gets the newest of them, such as `refs/quack/feature`.
        reference: String,
        /// The exported commits.
        commits: IsolatedCommits,
    },
    /// Write the files and the repository of the copy to [`SENT_FILE`], without what the other machine has already.
    /// Answered by [`FromIsolate::Packed`].
    Pack {
        /// Whether this is the other machine.
        is_far: bool,
        /// Whether the other side has nothing, or makes its copy again.
        is_new: bool,
        /// Most files.
        max_files: u64,
        /// Largest size of the files in bytes.
        max_bytes: u64,
    },
    /// Bring the copy to the state in [`SENT_FILE`]. Answered by [`FromIsolate::Unpacked`].
    Unpack {
        /// Whether this is the other machine.
        is_far: bool,
        /// Whether the copy is made again, in place of one that exists.
        is_new: bool,
        /// Most files.
        max_files: u64,
        /// Largest size of the files in bytes.
        max_bytes: u64,
    },
}

/// Work on the recorded states of one session's files. Answered by [`FromIsolate::Recorded`], [`FromIsolate::Listed`] or
/// [`FromIsolate::Compared`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRequest {
    /// Absolute path of the workspace.
    pub workspace: PathBuf,
    /// Absolute path of the private directory of the session's copy, whose files are recorded. `None`: those of the
    /// workspace.
    pub copy: Option<PathBuf>,
    /// Absolute path of the private directory with the states.
    pub directory: PathBuf,
    /// The user's home, for the ignore rules of git.
    pub home: PathBuf,
    /// Absolute paths that the session must not see. They are not recorded.
    pub hidden: Vec<PathBuf>,
    /// Most files. With more of them no state is recorded.
    pub max_files: u64,
    /// Kind of the work.
    pub action: CheckpointAction,
}

/// Kind of work on recorded states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointAction {
    /// Record the state if it differs from the last one.
    Take {
        /// [`Checkpoint::calls`].
        calls: Vec<String>,
        /// [`Checkpoint::by_commands`].
        by_commands: bool,
        /// [`Checkpoint::while_running`].
        while_running: bool,
    },
    /// List the states.
    List {},
    /// Record the state, then write an earlier one.
    Restore {
        /// Number of the earlier state.
        number: u64,
        /// The selected files.
        choice: IsolatedChoice,
        /// Only say what would be written.
        dry_run: bool,
    },
}

/// Selection of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedChoice {
    /// Relative paths of files and directories. Empty: all.
    pub paths: Vec<PathBuf>,
    /// Protected names that are included.
    pub protected: Vec<PathBuf>,
}

/// Treatment of changes of both sides that cannot be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MergeRule {
    /// Write both versions with conflict markers. Only for text.
    Markers,
    /// Keep the file of the workspace.
    Ours,
    /// Take the file of the session.
    Theirs,
    /// Leave the file out.
    Skip,
}

/// Process to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromIsolate {
    /// The copy is made.
    Copied(CopiedTree),
    /// The result of a comparison or of writing.
    Compared(IsolatedReport),
    /// The commits of the session that the workspace does not have.
    Commits(IsolatedCommits),
    /// The state that was recorded. `None`: nothing differs from the last one.
    Recorded(Option<Checkpoint>),
    /// The recorded states, the oldest first. At most [`MAX_CHECKPOINTS`] and one.
    Listed(Vec<Checkpoint>),
    /// The file is written.
    Packed(PackedTree),
    /// The copy has the state of the file.
    Unpacked {},
    /// Nothing was done.
    Failed {
        /// Reason, one line for the user.
        text: String,
    },
}

/// A copy that was made. The worker of the session gets these facts when it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CopiedTree {
    /// Number of copied files and links.
    pub files: u64,
    /// Size of the copied files in bytes.
    pub bytes: u64,
    /// Ignored directories of the workspace, relative. The session sees each with a private layer for its changes. At
    /// most [`MAX_OUTPUTS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<PathBuf>,
    /// Place of the session, if the copy was sent to another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentCopy>,
    /// Directory with the objects of the repository, which the copy borrows read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<PathBuf>,
    /// Files and directories that the copy does not have, one line each. At most [`MAX_ISOLATED_NOTES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A copy on another machine, in which the session works in place of the one here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SentCopy {
    /// The directory there, as the text of a far workspace.
    pub place: String,
    /// Whether the copy here is newer, because it did not arrive there. The session runs nothing until it is sent.
    #[serde(skip_serializing_if = "is_false")]
    pub is_stale: bool,
}

/// Files that were packed for another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackedTree {
    /// Number of files and links.
    pub files: u64,
    /// Size of [`SENT_FILE`] in bytes.
    pub bytes: u64,
    /// Whether the file has the whole copy, so that the other machine makes it again.
    pub is_whole: bool,
    /// Files that are left out, one line each. At most [`MAX_ISOLATED_NOTES`].
    pub notes: Vec<String>,
}

/// Directory for what is sent and received, in the private directory of a copy, and the file there.
pub const SENT_DIRECTORY: &str = "sent";
/// See [`SENT_DIRECTORY`].
pub const SENT_FILE: &str = "sent/file";

/// Largest size of [`SENT_FILE`] in bytes.
pub const MAX_SENT_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Commits of a session that its workspace does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IsolatedCommits {
    /// The commits on the way to the session's HEAD, the newest first. At most [`MAX_ISOLATED_COMMITS`].
    pub commits: Vec<IsolatedCommit>,
    /// Number of further commits.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Reference of the workspace that has the newest of them now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// One of [`IsolatedCommits`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolatedCommit {
    /// Name of the commit, in hexadecimal digits.
    pub id: String,
    /// First line of its message, at most 200 characters.
    pub subject: String,
}

/// Most [`IsolatedCommits::commits`].
pub const MAX_ISOLATED_COMMITS: usize = 100;

/// File with the objects of exported commits, in the private directory of the copy.
pub const EXPORTED_COMMITS: &str = "commits/pack";

/// Directories in the private directory of a copy, and in that of recorded states, that exist only while files are being
/// written.
pub const UNFINISHED_COPY: [&str; 2] = ["applied.new", "refreshed.new"];
/// See [`UNFINISHED_COPY`].
pub const UNFINISHED_RESTORE: &str = "restoring";

/// A recorded state of a session's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Checkpoint {
    /// Number of the state in its session, from 0.
    pub number: u64,
    /// When it was recorded, in milliseconds since 1970. 0 for a state of which only the files are kept.
    pub at_ms: i64,
    /// The calls that ended since the state before, one line each. At most [`MAX_CHECKPOINT_CALLS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// Whether one of the calls ran commands or used an MCP server, or the state was recorded for a restore. Other tools
    /// record their changes themselves, for `undo`.
    #[serde(skip_serializing_if = "is_false")]
    pub by_commands: bool,
    /// Number of files that differ from the state before.
    pub files: u64,
    /// The first of these files. At most [`MAX_CHECKPOINT_FILES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<CheckpointFile>,
    /// Whether a call ran at the same time: files may be from different moments.
    #[serde(skip_serializing_if = "is_false")]
    pub while_running: bool,
}

/// A changed file of a [`Checkpoint`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointFile {
    /// Path relative to the workspace.
    pub path: String,
    /// Kind of the change.
    pub change: FileChange,
}

/// Most [`Checkpoint::calls`] and [`Checkpoint::changes`], and the characters of a call.
pub const MAX_CHECKPOINT_CALLS: usize = 20;
/// See [`MAX_CHECKPOINT_CALLS`].
pub const MAX_CHECKPOINT_FILES: usize = 20;
/// See [`MAX_CHECKPOINT_CALLS`].
pub const MAX_CHECKPOINT_CALL: usize = 200;

/// Most checkpoints of a session.
pub const MAX_CHECKPOINTS: usize = 200;

/// Most files of a tree whose states are recorded: that of an isolated session, and the workspace of another one.
pub const MAX_RECORDED_COPY: u64 = 100_000;
/// See [`MAX_RECORDED_COPY`].
pub const MAX_RECORDED_WORKSPACE: u64 = 20_000;

/// Directory of borrowed objects inside the session.
pub const OBJECTS_INSIDE: &str = "/run/quack/objects";

/// Result of comparing or writing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IsolatedReport {
    /// Changes of the session, by path. At most [`MAX_ISOLATED_FILES`].
    pub files: Vec<IsolatedFile>,
    /// Number of further changes.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Whether the workspace was changed.
    pub written: bool,
    /// Number of changes that conflict with those of the workspace.
    pub conflicts: u64,
    /// For a comparison: whether the session changed branches or other references of its repository, such as by a commit.
    #[serde(skip_serializing_if = "is_false")]
    pub own_references: bool,
    /// Identifies what was compared. It differs after every change on either side.
    pub digest: String,
    /// Further facts, one line each. At most [`MAX_ISOLATED_NOTES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolatedFile {
    /// Path relative to the workspace.
    pub path: String,
    /// Change of the session.
    pub change: FileChange,
    /// Outcome of applying it.
    pub outcome: ApplyOutcome,
    /// Reason for an outcome that needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The difference to the copied file, as unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// The file is new.
    Added,
    /// The file has other content or permissions.
    Changed,
    /// The file is gone.
    Deleted,
}

/// Outcome of applying a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApplyOutcome {
    /// The workspace takes the session's version.
    Taken,
    /// The workspace has the same version already.
    Same,
    /// Both sides changed the file, and the changes were merged.
    Merged,
    /// Both sides changed the file, and the changes cannot be merged.
    Conflict,
    /// Both sides changed the file; it gets conflict markers.
    Marked,
    /// Other programs obey the name, and the user has not named it.
    Protected,
    /// The file is left as it is, for the given reason.
    Left,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(is: &bool) -> bool {
    !is
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}
