//! The shape of `quackd-state.json`: quackd's own data about sessions. The metadata's external writer drops keys that
//! it does not know, so quackd's data cannot be only there.

use crate::approval::Grant;
use crate::isolate::CopiedTree;
use crate::policy::{NetworkMode, PolicyPatch, Profile, WebSearchRule};
use crate::{SessionId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Version that quackd writes. A file with a higher number was written by a newer program.
pub const STATE_VERSION: u64 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonState {
    /// File format; see [`STATE_VERSION`].
    pub version: u64,
    /// Data by session id. A session without an entry has the defaults. The next start drops an entry without a
    /// session, except for its restrictions ([`SessionState::limits`]): the external writer may restore the session.
    #[serde(default)]
    pub sessions: BTreeMap<SessionId, SessionState>,
    /// Data by workspace id, treated like the sessions ([`WorkspaceState::limits`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workspaces: BTreeMap<WorkspaceId, WorkspaceState>,
    /// Answers of the user that hold for all sessions. At most [`crate::limits::MAX_GRANTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Number of the newest grant of any scope. Ids of revoked grants are not used again, because a client may still
    /// show one.
    #[serde(default, rename = "lastGrant", skip_serializing_if = "is_zero")]
    pub last_grant: u64,
    /// Hosts that the user's tools reported, by preset without `@`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub presets: BTreeMap<String, FoundPreset>,
    /// Configuration files that commands could change at some time. At most [`MAX_HELD`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldConfig>,
    /// Keys of a newer program.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Most entries of [`DaemonState::held`].
pub const MAX_HELD: usize = 64;

/// A configuration file that commands of sessions could change. Kept when the sessions are gone, because the content
/// stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldConfig {
    /// Path of the file.
    pub path: PathBuf,
    /// The directory that they could write.
    pub directory: PathBuf,
    /// Device and inode of the file. Another file at the path, such as a copy, is not this one.
    pub identity: Option<(u64, u64)>,
}

/// Hosts of a preset that the user's tools reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundPreset {
    /// When the tools answered, ISO 8601 UTC.
    pub at: String,
    /// The hosts. At most [`crate::environment::MAX_TOOL_HOSTS`].
    pub hosts: Vec<FoundHost>,
}

/// A host that a tool of the user is configured to use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundHost {
    /// The host as a rule: `registry.test.example:8443`.
    pub rule: String,
    /// Source of the host: a file, or a command line.
    pub source: String,
}

impl Default for DaemonState {
    fn default() -> Self {
        Self {
            version: STATE_VERSION,
            sessions: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            grants: Vec::new(),
            last_grant: 0,
            presets: BTreeMap::new(),
            held: Vec::new(),
            other: Map::new(),
        }
    }
}

/// quackd's data about one workspace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceState {
    /// Settings of the workspace's sandbox policy that differ from the configuration.
    #[serde(skip_serializing_if = "PolicyPatch::is_empty", with = "policy_text")]
    pub policy: PolicyPatch,
    /// Answers of the user that hold for all sessions of the workspace. At most [`crate::limits::MAX_GRANTS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Keys of a newer program.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl WorkspaceState {
    /// Returns the restrictions of the workspace: its policy without the settings that allow more. `None` if it has
    /// none. A workspace that is created again has the same id. The user must then allow the rest again.
    #[must_use]
    pub fn limits(&self) -> Option<Self> {
        let PolicyPatch { profile, network, web_search, hosts, writable_roots, hidden } =
            self.policy.clone();

        let policy = PolicyPatch {
            profile: profile.filter(|profile| *profile != Profile::FullAccess),
            network: network.filter(|mode| *mode != NetworkMode::On),
            web_search: web_search.filter(|rule| *rule != WebSearchRule::On),
            hosts: hosts
                .map(|rules| rules.into_iter().filter(|rule| rule.starts_with('!')).collect())
                .filter(|denied: &Vec<_>| !denied.is_empty()),
            writable_roots: writable_roots.filter(Vec::is_empty),
            // These paths are added to the other hidden paths.
            hidden,
        };
        (!policy.is_empty()).then(|| Self { policy, ..Self::default() })
    }
}

/// A program on a terminal of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminalProgram {
    /// Id of the terminal, such as `term-1`.
    pub terminal_id: String,
    /// Command for display, on one line of at most [`MAX_PROGRAM_CHARS`] characters. Its keys are masked.
    pub command: String,
}

/// Maximum length of [`TerminalProgram::command`], in characters.
pub const MAX_PROGRAM_CHARS: usize = 80;

/// quackd's data about one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionState {
    /// Whether the session may only use tools that change nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub safe_mode: bool,
    /// Settings of the session's sandbox policy that differ from its workspace's.
    #[serde(skip_serializing_if = "PolicyPatch::is_empty", with = "policy_text")]
    pub policy: PolicyPatch,
    /// Answers of the user that hold for the session. At most [`crate::limits::MAX_GRANTS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Engine of the session's turns, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The model of the session's turns, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Workers of the session that crashed, over all runs of the daemon.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// Name of the client that claimed the session or made it for itself. Such a session is not the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Label of the session, kept because it would have changed when another session was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The private copy in which the session works, in place of its workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<CopiedTree>,
    /// Text that the engine's `create` printed for the session; empty if it printed none. `None` if nothing was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Exempts the session's processes from eviction.
    #[serde(skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Programs on terminals, the last started one at the end. At most [`crate::limits::MAX_TERMINALS_PER_SESSION`]. After a
    /// start of the daemon those that ended with the daemon before. No request waits until a change is saved: a daemon that
    /// is killed right after a start or an end leaves the list from before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<TerminalProgram>,
    /// Keys of a newer program.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl SessionState {
    /// Returns true if the session has only defaults and needs no entry.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the restrictions of a session: its safe mode, its policy and its isolation. `None` if it has none.
    #[must_use]
    pub fn limits(&self) -> Option<Self> {
        let limits = Self {
            safe_mode: self.safe_mode,
            policy: self.policy.clone(),
            isolated: self.isolated.clone(),
            ..Self::default()
        };
        (!limits.is_default()).then_some(limits)
    }
}

/// Serializes a policy in the file: as the name of a profile if it sets nothing else, otherwise as an object.
mod policy_text {
    use crate::policy::{PolicyPatch, Profile};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(policy: &PolicyPatch, to: S) -> Result<S::Ok, S::Error> {
        match policy.profile {
            Some(profile) if *policy == only(profile) => profile.serialize(to),
            _ => policy.serialize(to),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PolicyPatch, D::Error> {
        match Value::deserialize(from)? {
            Value::String(name) => name.parse().map(only).map_err(Error::custom),
            object @ Value::Object(_) => PolicyPatch::deserialize(object).map_err(Error::custom),
            // Serde would accept a list as an empty policy.
            other => Err(Error::custom(format!("a policy is a name or an object, not {other}"))),
        }
    }

    fn only(profile: Profile) -> PolicyPatch {
        PolicyPatch { profile: Some(profile), ..PolicyPatch::default() }
    }
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
