//! Changes that an import takes: fields, entries, and the active session.

use super::*;
use serde_json::json;

/// One field of the session `s`: before, ours, theirs and the result.
const FIELDS: &[(&str, &str, &str, &str, &str)] = &[
    ("name", "a", "a", "b", "b"),
    ("name", "a", "b", "a", "b"),
    ("name", "a", "b", "c", "c"),
    ("name", "a", "b", "", "b"),
    ("piSessionFile", "", "", "/f", "/f"),
    ("piSessionFile", "", "/f", "", "/f"),
    ("piSessionFile", "/f", "/f", "", "/f"),
    ("piSessionFile", "/f", "/g", "/h", "/g"),
    (
        "createdAt",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
    ),
    ("createdAt", "", "", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    (
        "lastActiveAt",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:09Z",
        "2026-01-01T00:00:05Z",
        "2026-01-01T00:00:09Z",
    ),
    (
        "lastActiveAt",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:02Z",
        "2026-01-01T00:00:05Z",
        "2026-01-01T00:00:05Z",
    ),
    (
        "lastActiveAt",
        "2026-01-01T00:00:07Z",
        "2026-01-01T00:00:07Z",
        "0001-01-01T00:00:00Z",
        "2026-01-01T00:00:07Z",
    ),
    ("colour", "a", "b", "a", "b"),
    ("colour", "a", "a", "b", "b"),
    ("colour", "a", "b", "c", "c"),
];

fn with_field(name: &str, value: &str) -> Metadata {
    let mut one = json!({"id": "s", "workspaceId": "w"});
    one[name] = value.into();
    with(&file(&[]), |it| it.sessions.push(serde_json::from_value(one).unwrap()))
}

#[test]
fn each_field_is_of_who_changed_it_or_by_its_rule() {
    for (name, base, ours, theirs, wanted) in FIELDS {
        let case = format!("{name}: {base:?}, ours {ours:?}, theirs {theirs:?}");
        let [base, ours, theirs] = [base, ours, theirs].map(|value| with_field(name, value));
        let merged = imported(&base, &ours, &theirs);
        assert_eq!(merged.metadata, with_field(name, wanted), "{case}");
        assert!(merged.notes.is_empty(), "{case}: {:?}", merged.notes);
        assert!(merged.gone.is_empty(), "{case}");
    }
}

#[test]
fn what_either_has_made_is_there_and_unknown_keys_stay() {
    let base = with(&file(&["s"]), |it| {
        it.other.insert("top".into(), json!([1]));
        it.sessions[0].other.insert("tag".into(), json!("x"));
    });
    let ours = with(&base, |it| it.sessions.push(session("ours", "w")));
    let theirs = with(&file(&["s", "theirs"]), |it| {
        it.workspaces.push(workspace("v", "/v"));
        it.sessions.push(session("third", "v"));
        it.sessions[1].other.insert("new".into(), json!(1.5));
    });
    let merged = imported(&base, &ours, &theirs);
    assert_eq!(ids(&merged.metadata), ["s", "ours", "theirs", "third"]);
    assert_eq!(merged.metadata.other["top"], json!([1]));
    assert_eq!(merged.metadata.sessions[0].other["tag"], "x");
    assert_eq!(merged.metadata.sessions[2].other["new"], 1.5);
    assert_eq!(merged.metadata.workspaces.len(), 2);
    assert_eq!((merged.notes.len(), merged.gone), (0, Gone::default()));
}

#[test]
fn workspaces_are_one_by_path_and_their_sessions_come_along() {
    let base = file(&["s"]);
    // The app creates a different id for the same directory, also for one that quackd creates at the same
    // time.
    let ours = with(&base, |it| {
        it.workspaces.push(workspace("ours", "/new"));
        it.sessions.push(session("t", "ours"));
    });
    let theirs = Metadata {
        workspaces: vec![workspace("5a295348d642", "/w"), workspace("other", "/new")],
        sessions: vec![
            session("s", "5a295348d642"),
            session("u", "other"),
            session("v", "5a295348d642"),
        ],
        ..Metadata::default()
    };
    let merged = imported(&base, &ours, &theirs);
    let of: Vec<_> = merged
        .metadata
        .sessions
        .iter()
        .map(|it| (it.id.as_str(), it.workspace_id.as_str()))
        .collect();
    assert_eq!(of, [("s", "w"), ("t", "ours"), ("u", "ours"), ("v", "w")]);
    let paths: Vec<_> =
        merged.metadata.workspaces.iter().map(|it| (it.id.as_str(), &*it.path)).collect();
    assert_eq!(paths, [("w", "/w"), ("ours", "/new")]);
}

#[test]
fn a_directory_that_was_moved_keeps_its_id() {
    let base = file(&["s"]);
    let theirs = with(&base, |it| it.workspaces[0].path = "/moved".into());
    let merged = imported(&base, &base, &theirs);
    assert_eq!(merged.metadata, theirs);
    assert!(merged.gone.is_empty());
}

/// Found by the fuzz target `merge`.
#[test]
fn two_directories_never_get_one_id() {
    let base = file(&["s"]);
    let ours = with(&base, |it| {
        let second = json!({"id": "second", "path": "/second"});
        it.workspaces.push(serde_json::from_value(second).unwrap());
    });
    let theirs = with(&ours, |it| {
        it.workspaces[0].path = "/second".into();
        it.workspaces[1].path = "/third".into();
    });
    let merged = imported(&base, &ours, &theirs).metadata;
    let ids: Vec<_> = merged.workspaces.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["w", "second"]);
}

#[test]
fn the_active_session_is_who_set_it_last_and_is_not_taken_away() {
    let active = |id: Option<&str>| {
        with(&file(&["s", "t", "u"]), |it| it.active_voice_session_id = id.map(Into::into))
    };
    let result = |base, ours, theirs| {
        imported(&active(base), &active(ours), &active(theirs)).metadata.active_voice_session_id
    };
    assert_eq!(result(None, None, Some("s")), Some("s".into()));
    assert_eq!(result(Some("s"), Some("t"), Some("s")), Some("t".into()));
    assert_eq!(result(Some("s"), Some("t"), Some("u")), Some("u".into()));
    assert_eq!(result(Some("s"), Some("t"), None), Some("t".into()));
    assert_eq!(result(Some("s"), Some("s"), None), Some("s".into()));
}

#[test]
fn what_changed_in_memory_while_a_save_was_under_way_is_brought_along() {
    let saved = file(&["s", "t"]);
    let kept = with(&saved, |it| {
        it.sessions[0].name = "theirs".into();
        it.sessions.push(session("app", "w"));
    });
    let memory = with(&saved, |it| {
        it.sessions.remove(1);
        it.sessions.push(session("ours", "w"));
    });
    let after = rebase(&saved, &kept, &memory);
    assert_eq!(ids(&after), ["s", "ours", "app"]);
    assert_eq!(after.sessions[0].name, "theirs");
    assert_eq!(rebase(&saved, &saved, &memory), memory);
}
