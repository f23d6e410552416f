//! What a metadata file consists of for merging: sessions by their ids, workspaces by their paths, and the rest,
//! each a set of named fields. Used by [`super::merge`] and [`super::recent`].

use quackd_protocol::metadata::{Metadata, Session, Workspace};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The names of the fields that have rules of their own.
pub(super) const ID: &str = "id";
pub(super) const PATH: &str = "path";
pub(super) const WORKSPACE_ID: &str = "workspaceId";
pub(super) const ACTIVE: &str = "activeVoiceSessionId";

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Id {
    /// By its id.
    Session(String),
    /// By its path: two programs make different ids for one directory.
    Workspace(String),
    /// What is neither in a session nor in a workspace.
    Top,
}

/// The fields of an entry.
pub(super) type Fields = Map<String, Value>;

/// The entries of a file.
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
            // As with ids, the first of several is the one that counts.
            workspaces.entry(workspace.path.as_str()).or_insert(workspace);
        }
        Self { metadata, sessions: sessions.collect(), workspaces }
    }

    pub(super) fn session(&self, id: &str) -> Option<&'a Session> {
        self.sessions.get(id).copied()
    }

    /// The workspace with this path.
    pub(super) fn workspace(&self, path: &str) -> Option<&'a Workspace> {
        self.workspaces.get(path).copied()
    }

    /// Whether the entry is there.
    pub(super) fn has(&self, id: &Id) -> bool {
        match id {
            Id::Session(id) => self.sessions.contains_key(id.as_str()),
            Id::Workspace(path) => self.workspaces.contains_key(path.as_str()),
            Id::Top => true,
        }
    }

    /// The entry's fields; none if it is not there.
    pub(super) fn fields(&self, id: &Id) -> Fields {
        match id {
            Id::Session(id) => self.session(id).map(fields).unwrap_or_default(),
            Id::Workspace(path) => self.workspace(path).map(fields).unwrap_or_default(),
            Id::Top => top_fields(self.metadata),
        }
    }
}

/// The fields of a session or a workspace, without those that say which one it is.
pub(super) fn fields(entry: &impl Serialize) -> Fields {
    match serde_json::to_value(entry) {
        Ok(Value::Object(mut fields)) => {
            for name in [ID, PATH, WORKSPACE_ID] {
                fields.remove(name);
            }
            fields
        }
        // They are objects, and have no keys that are no text.
        _ => Fields::new(),
    }
}

/// The fields of the file itself.
pub(super) fn top_fields(metadata: &Metadata) -> Fields {
    let mut fields = metadata.other.clone();
    let active = metadata.active_voice_session_id.as_ref();
    fields.insert(ACTIVE.to_owned(), active.map_or(Value::Null, |id| id.as_str().into()));
    fields
}

/// The value of a field; what is left out is as good as null.
pub(super) fn value<'f>(fields: &'f Fields, name: &str) -> &'f Value {
    fields.get(name).unwrap_or(&Value::Null)
}

/// A number that stands for a value. Two values with one number would be a chance of one in 10^19.
pub(super) fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// The names of fields that differ, each once.
pub(super) fn differing<'f>(one: &'f Fields, other: &'f Fields) -> Vec<&'f str> {
    let mut names: Vec<&str> = one.keys().chain(other.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| value(one, name) != value(other, name));
    names
}

/// Whether two files say the same, in whatever order.
pub(crate) fn says_the_same(one: &Metadata, other: &Metadata) -> bool {
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
