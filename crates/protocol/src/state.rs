//! The shape of `quackd-state.json`: what is ours about a session. The metadata's other writer drops
//! keys that it does not know, so nothing of ours lives only there.

use crate::policy::{PolicyPatch, Profile, WebSearchRule};
use crate::{SessionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The version that we write. A file with a higher number was written by a newer program.
pub const STATE_VERSION: u64 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonState {
    /// File format; see [`STATE_VERSION`].
    pub version: u64,
    /// By session id. A session without an entry has the defaults; an entry without a session is dropped at the
    /// next start, but for what it limits ([`SessionState::limits`]): the metadata's other writer may bring the
    /// session back.
    #[serde(default)]
    pub sessions: BTreeMap<SessionId, SessionState>,
    /// By workspace id, as the sessions ([`WorkspaceState::limits`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workspaces: BTreeMap<WorkspaceId, WorkspaceState>,
    /// Keys of a program that knows more.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for DaemonState {
    fn default() -> Self {
        Self {
            version: STATE_VERSION,
            sessions: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            other: Map::new(),
        }
    }
}

/// What is ours about one workspace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkspaceState {
    /// What the sandbox policy of its sessions has that the configuration has not.
    #[serde(skip_serializing_if = "PolicyPatch::is_empty", with = "policy_text")]
    pub policy: PolicyPatch,
    /// Keys of a program that knows more.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl WorkspaceState {
    /// What keeps its sessions from doing something: its policy without what allows more. `None` if there is
    /// nothing of that kind. Who makes the workspace anew, which has the same id then, asks for the rest anew.
    #[must_use]
    pub fn limits(&self) -> Option<Self> {
        let PolicyPatch { profile, network, web_search, writable_roots, hidden } =
            self.policy.clone();
        let policy = PolicyPatch {
            profile: profile.filter(|profile| *profile != Profile::FullAccess),
            network: network.filter(|is_allowed| !is_allowed),
            web_search: web_search.filter(|rule| *rule != WebSearchRule::On),
            writable_roots: writable_roots.filter(Vec::is_empty),
            // These are added to what else is hidden.
            hidden,
        };
        (!policy.is_empty()).then(|| Self { policy, ..Self::default() })
    }
}

/// What is ours about one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionState {
    /// Only what changes nothing is allowed.
    #[serde(skip_serializing_if = "is_false")]
    pub safe_mode: bool,
    /// What its sandbox policy has that its workspace's has not.
    #[serde(skip_serializing_if = "PolicyPatch::is_empty", with = "policy_text")]
    pub policy: PolicyPatch,
    /// Who runs the session's turns, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The model of the session's turns, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Workers of the session that died, over all runs of the daemon.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// Its processes stay however long nobody uses them.
    #[serde(skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Keys of a program that knows more.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl SessionState {
    /// Whether nothing differs from a session that has no entry.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What keeps a session from doing something: its safe mode and its policy. `None` if it has neither.
    #[must_use]
    pub fn limits(&self) -> Option<Self> {
        let limits =
            Self { safe_mode: self.safe_mode, policy: self.policy.clone(), ..Self::default() };
        (!limits.is_default()).then_some(limits)
    }
}

/// A policy in the file: the name of a profile if that is all it says, else an object.
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
            // A list would pass for a policy without anything in it.
            other => Err(Error::custom(format!("a policy is a name or an object, not {other}"))),
        }
    }

    fn only(profile: Profile) -> PolicyPatch {
        PolicyPatch { profile: Some(profile), ..PolicyPatch::default() }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
