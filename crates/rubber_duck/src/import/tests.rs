//! Helpers for the import tests: compact metadata files. The tests are in the submodules, by subject.

mod deleting;
mod taking;
mod two_writers;

use super::*;
use serde_json::json;

fn workspace(id: &str, path: &str) -> Shared<Workspace> {
    serde_json::from_value(json!({"id": id, "path": path, "createdAt": "2026-01-01T00:00:00Z"}))
        .unwrap()
}

fn session(id: &str, workspace: &str) -> Shared<Session> {
    serde_json::from_value(json!({
        "id": id, "workspaceId": workspace, "name": format!("name of {id}"),
        "createdAt": "2026-01-01T00:00:00Z", "lastActiveAt": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

/// Returns metadata with one workspace and these sessions.
fn file(sessions: &[&str]) -> Metadata {
    Metadata {
        workspaces: vec![workspace("w", "/w")],
        sessions: sessions.iter().map(|id| session(id, "w")).collect(),
        ..Metadata::default()
    }
}

fn with(file: &Metadata, change: impl FnOnce(&mut Metadata)) -> Metadata {
    let mut changed = file.clone();
    change(&mut changed);
    changed
}

fn imported(base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Imported {
    import(base, &Recent::default(), ours, theirs, Instant::now())
}

fn ids(metadata: &Metadata) -> Vec<&str> {
    metadata.sessions.iter().map(|session| session.id.as_str()).collect()
}
