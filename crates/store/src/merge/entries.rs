//! Metadata as entries for merging: sessions by id, workspaces by path, and the top level. Each entry is a
//! set of named fields. Used by [`super::merge`] and [`super::recent_changes`].

use quackd_protocol::metadata::{Metadata, Session, Workspace};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Fields with special rules.
pub(super) const ID: &str = "id";
pub(super) const PATH: &str = "path";
pub(super) const WORKSPACE_ID: &str = "workspaceId";
pub(super) const ACTIVE: &str = "activeVoiceSessionId";

/// Key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Id {
    /// A session's id.
    Session(String),
    /// A workspace's path, because two programs create different ids for one directory.
    Workspace(String),
    /// The fields outside of sessions and workspaces.
    Top,
}

/// Fields of an entry.
pub(super) type Fields = Map<String, Value>;

/// Lookup tables over the entries of a file.
#[derive(Debug)]
pub(super) struct Index<'a> {
    metadata: &'a Metadata,
    sessions: HashMap<&'a str, &'a Session>,
    workspaces: HashMap<&'a str, &'a Workspace>,
}

impl<'a> Index<'a> {
    pub(super) fn of(metadata: &'a Metadata) -> Self {
        let sessions = metadata.sessions.iter().map(|session| (session.id.as_str(), session));
        let mut workspaces = HashMap::with_capacity(metadata.workspaces.len());
        for workspace in &metadata.workspaces {
            // The first of several workspaces with the same path counts, as with ids.
            workspaces.entry(workspace.path.as_str()).or_insert(workspace);
        }
        Self { metadata, sessions: sessions.collect(), workspaces }
    }

    pub(super) fn session(&self, id: &str) -> Option<&'a Session> {
        self.sessions.get(id).copied()
    }

    /// Returns the workspace with this path.
    pub(super) fn workspace(&self, path: &str) -> Option<&'a Workspace> {
        self.workspaces.get(path).copied()
    }

    /// Returns true if the entry exists.
    pub(super) fn has(&self, id: &Id) -> bool {
        match id {
            Id::Session(id) => self.sessions.contains_key(id.as_str()),
            Id::Workspace(path) => self.workspaces.contains_key(path.as_str()),
            Id::Top => true,
        }
    }

    /// Returns the fields of the entry, empty if it does not exist.
    pub(super) fn fields(&self, id: &Id) -> Fields {
        match id {
            Id::Session(id) => self.session(id).map(fields).unwrap_or_default(),
            Id::Workspace(path) => self.workspace(path).map(fields).unwrap_or_default(),
            Id::Top => top_fields(self.metadata),
        }
    }
}

/// Returns the fields of a session or a workspace, without the fields that identify it.
pub(super) fn fields(entry: &impl Serialize) -> Fields {
    match serde_json::to_value(entry) {
        Ok(Value::Object(mut fields)) => {
            for name in [ID, PATH, WORKSPACE_ID] {
                fields.remove(name);
            }
            fields
        }
        // Unreachable: both types serialize to objects with text keys.
        _ => Fields::new(),
    }
}

/// Returns the top-level fields of the file.
pub(super) fn top_fields(metadata: &Metadata) -> Fields {
    let mut fields = metadata.other.clone();
    let active = metadata.active_voice_session_id.as_ref();
    fields.insert(ACTIVE.to_owned(), active.map_or(Value::Null, |id| id.as_str().into()));
    fields
}

/// Returns the value of a field. A missing field equals null.
pub(super) fn value<'f>(fields: &'f Fields, name: &str) -> &'f Value {
    fields.get(name).unwrap_or(&Value::Null)
}

/// Hash of a value. Two different values collide with a probability of about 1 in 10^19.
pub(super) fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Returns the names of the fields that differ, without duplicates.
pub(super) fn differing<'f>(one: &'f Fields, other: &'f Fields) -> Vec<&'f str> {
    let mut names: Vec<&str> = one.keys().chain(other.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| value(one, name) != value(other, name));
    names
}

/// Returns true if two files have the same entries, in any order.
pub(crate) fn is_equivalent(one: &Metadata, other: &Metadata) -> bool {
    if one.sessions.len() != other.sessions.len()
        || one.workspaces.len() != other.workspaces.len()
        || one.active_voice_session_id != other.active_voice_session_id
        || one.other != other.other
    {
        return false;
    }
    let sessions: HashMap<_, _> = other.sessions.iter().map(|it| (&it.id, it)).collect();
    let workspaces: HashMap<_, _> = other.workspaces.iter().map(|it| (&it.id, it)).collect();
    one.sessions.iter().all(|it| sessions.get(&it.id) == Some(&it))
        && one.workspaces.iter().all(|it| workspaces.get(&it.id) == Some(&it))
}
