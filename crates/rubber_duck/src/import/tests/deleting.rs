//! Deletions, and when a missing or old entry is not one.

use super::*;
use crate::import::entry::ENTRY_AGE;
use crate::import::recent::VALUE_AGE;
use std::time::Duration;

#[test]
fn what_they_have_deleted_is_given_back_as_gone_unless_we_have_changed_it() {
    let base = with(&file(&["s", "t", "u"]), |it| {
        it.workspaces.push(workspace("v", "/v"));
        it.sessions.push(session("x", "v"));
    });
    let ours = with(&base, |it| it.sessions[1].last_active_at = "2026-02-02T00:00:00Z".into());
    let merged = imported(&base, &ours, &file(&["u"]));
    assert_eq!(ids(&merged.metadata), ["s", "t", "u", "x"], "nothing is deleted here");
    let wanted = Gone { sessions: vec!["s".into(), "x".into()], workspaces: vec!["v".into()] };
    assert_eq!(merged.gone, wanted);
    assert_eq!(ids(&merged.gone.without(&merged.metadata)), ["t", "u"]);
    assert_eq!(merged.notes, [r#"session "t" was deleted there and changed here; kept"#]);
}

#[test]
fn a_file_without_anything_of_ours_deletes_nothing() {
    let base = file(&["s", "t"]);
    let theirs = Metadata {
        workspaces: vec![workspace("z", "/z")],
        sessions: vec![session("new", "z")],
        ..Metadata::default()
    };
    for theirs in [theirs, Metadata::default()] {
        let merged = imported(&base, &base, &theirs);
        assert!(merged.gone.is_empty());
        assert_eq!(&ids(&merged.metadata)[..2], ["s", "t"]);
        assert_eq!(merged.notes, ["none of our entries are in the file; kept all"]);
    }
}

#[test]
fn an_old_copy_undoes_nothing_and_a_new_one_does() {
    let before = with(&file(&["s", "old"]), |it| it.active_voice_session_id = Some("s".into()));
    // Rename one session, create one, delete one and activate another.
    let after = with(&before, |it| {
        it.sessions[0].name = "renamed".into();
        it.sessions.retain(|session| session.id.as_str() != "old");
        it.sessions.push(session("new", "w"));
        it.active_voice_session_id = Some("new".into());
    });
    let begin = Instant::now();
    let mut recent = Recent::default();
    recent.note(&before, &after, begin);
    // The app writes its older copy plus a session that it created.
    let theirs = with(&before, |it| it.sessions.push(session("app", "w")));
    let merged = import(&after, &recent, &after, &theirs, begin);
    assert_eq!(merged.metadata, with(&after, |it| it.sessions.push(session("app", "w"))));
    assert!(merged.gone.is_empty());

    // The app has seen our changes now, so its deletion counts.
    let seen = merged.metadata;
    recent.seen(&seen);
    let back = with(&seen, |it| {
        it.sessions[0].name = "name of s".into();
        it.sessions.retain(|session| session.id.as_str() != "new");
        it.active_voice_session_id = Some("s".into());
    });
    let merged = import(&seen, &recent, &seen, &back, begin);
    assert_eq!(merged.metadata.sessions[0].name, "name of s");
    assert_eq!(merged.metadata.active_voice_session_id, Some("s".into()));
    assert_eq!(merged.gone.sessions, ["new".into()]);
}

#[test]
fn after_a_while_an_old_value_is_a_change_and_what_is_missing_was_deleted() {
    let before = file(&["s"]);
    let after = with(&before, |it| {
        it.sessions[0].name = "renamed".into();
        it.sessions.push(session("new", "w"));
    });
    let begin = Instant::now();
    let result = |age: Duration| {
        let mut recent = Recent::default();
        recent.note(&before, &after, begin);
        let merged = import(&after, &recent, &after, &before, begin + age);
        (merged.metadata.sessions[0].name.clone(), merged.gone.sessions.len())
    };
    let moment = Duration::from_millis(1);
    assert_eq!(result(VALUE_AGE - moment), ("renamed".into(), 0));
    assert_eq!(result(VALUE_AGE), ("name of s".into(), 0));
    assert_eq!(result(ENTRY_AGE - moment), ("name of s".into(), 0));
    assert_eq!(result(ENTRY_AGE), ("name of s".into(), 1));
}

#[test]
fn in_doubt_nothing_counts_as_deleted() {
    let (base, now) = (file(&["s", "t"]), Instant::now());
    let mut recent = Recent::default();
    recent.doubt(now);
    assert!(import(&base, &recent, &base, &file(&["s"]), now).gone.is_empty());
    let later = now + ENTRY_AGE;
    assert_eq!(import(&base, &recent, &base, &file(&["s"]), later).gone.sessions, ["t".into()]);
}

#[test]
fn what_was_made_in_doubt_is_new_also_after_it() {
    let (before, now) = (file(&["s"]), Instant::now());
    let mut recent = Recent::default();
    recent.doubt(now);
    let after = file(&["s", "new"]);
    let made = now + ENTRY_AGE - Duration::from_secs(1);
    recent.note(&before, &after, made);
    assert!(recent.is_fresh(now + ENTRY_AGE));
    let gone = |at| import(&after, &recent, &after, &before, at).gone.sessions;
    assert_eq!(gone(now + ENTRY_AGE), []);
    assert_eq!(gone(made + ENTRY_AGE), ["new".into()]);
}

#[test]
fn a_session_that_we_deleted_is_active_nowhere_and_stays_deleted() {
    let before = with(&file(&["s", "t"]), |it| it.active_voice_session_id = Some("t".into()));
    let after = with(&before, |it| {
        it.sessions.truncate(1);
        it.active_voice_session_id = Some("s".into());
    });
    let now = Instant::now();
    let mut recent = Recent::default();
    recent.note(&before, &after, now);
    // Long after the change, so another program must have kept its own copy.
    let merged = import(&after, &recent, &after, &before, now + 10 * ENTRY_AGE);
    assert_eq!(merged.metadata, after);
}
