//! The rules of the merge, one by one, and two writers at random.

use super::*;
use crate::merge::recent::{ENTRY_AGE, VALUE_AGE};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn workspace(id: &str, path: &str) -> Workspace {
    serde_json::from_value(json!({"id": id, "path": path, "createdAt": "2026-01-01T00:00:00Z"}))
        .unwrap()
}

fn session(id: &str, workspace: &str) -> Session {
    serde_json::from_value(json!({
        "id": id, "workspaceId": workspace, "name": format!("name of {id}"),
        "createdAt": "2026-01-01T00:00:00Z", "lastActiveAt": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

/// One workspace with these sessions.
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

fn merged(base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Merged {
    merge(base, ours, theirs, &mut Recent::default(), Instant::now())
}

fn ids(metadata: &Metadata) -> Vec<&str> {
    metadata.sessions.iter().map(|session| session.id.as_str()).collect()
}

fn told(merged: &Merged) -> Vec<String> {
    merged.conflicts.iter().map(ToString::to_string).collect()
}

/// One field of the session `s`: before, ours, theirs, and what comes of it.
const FIELDS: &[(&str, &str, &str, &str, &str, bool)] = &[
    ("name", "a", "a", "b", "b", false),
    ("name", "a", "b", "a", "b", false),
    ("name", "a", "b", "c", "c", true),
    ("name", "a", "b", "", "b", false),
    ("piSessionFile", "", "", "/f", "/f", false),
    ("piSessionFile", "", "/f", "", "/f", false),
    ("piSessionFile", "/f", "/f", "", "/f", false),
    ("piSessionFile", "/f", "/g", "/h", "/g", true),
    (
        "createdAt",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        false,
    ),
    ("createdAt", "", "", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", false),
    (
        "lastActiveAt",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:09Z",
        "2026-01-01T00:00:05Z",
        "2026-01-01T00:00:09Z",
        false,
    ),
    (
        "lastActiveAt",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:02Z",
        "2026-01-01T00:00:05Z",
        "2026-01-01T00:00:05Z",
        false,
    ),
    (
        "lastActiveAt",
        "2026-01-01T00:00:07Z",
        "2026-01-01T00:00:07Z",
        "0001-01-01T00:00:00Z",
        "2026-01-01T00:00:07Z",
        false,
    ),
    ("colour", "a", "b", "a", "b", false),
    ("colour", "a", "a", "b", "b", false),
    ("colour", "a", "b", "c", "c", true),
];

fn with_field(name: &str, value: &str) -> Metadata {
    let mut one = json!({"id": "s", "workspaceId": "w"});
    one[name] = value.into();
    with(&file(&[]), |it| it.sessions.push(serde_json::from_value(one).unwrap()))
}

#[test]
fn each_field_is_of_who_changed_it_or_by_its_rule() {
    for (name, base, ours, theirs, wanted, is_conflict) in FIELDS {
        let case = format!("{name}: {base:?}, ours {ours:?}, theirs {theirs:?}");
        let [base, ours, theirs] = [base, ours, theirs].map(|value| with_field(name, value));
        let merged = merged(&base, &ours, &theirs);
        assert_eq!(merged.metadata, with_field(name, wanted), "{case}");
        assert_eq!(
            merged.conflicts.len(),
            usize::from(*is_conflict),
            "{case}: {:?}",
            told(&merged)
        );
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
    let merged = merged(&base, &ours, &theirs);
    assert_eq!(ids(&merged.metadata), ["s", "ours", "theirs", "third"]);
    assert_eq!(merged.metadata.other["top"], json!([1]));
    assert_eq!(merged.metadata.sessions[0].other["tag"], "x");
    assert_eq!(merged.metadata.sessions[2].other["new"], 1.5);
    assert_eq!(merged.metadata.workspaces.len(), 2);
    assert_eq!((told(&merged).len(), merged.gone), (0, Gone::default()));
}

#[test]
fn workspaces_are_one_by_path_and_their_sessions_come_along() {
    let base = file(&["s"]);
    // The app makes another id for the same directory, and for one that we make meanwhile.
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
    let merged = merged(&base, &ours, &theirs);
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
    let merged = merged(&base, &base, &theirs);
    assert_eq!(merged.metadata, theirs);
    assert!(merged.gone.is_empty());
}

#[test]
fn the_active_session_is_who_set_it_last_and_is_not_taken_away() {
    let active = |id: Option<&str>| {
        with(&file(&["s", "t", "u"]), |it| it.active_voice_session_id = id.map(Into::into))
    };
    let result = |base, ours, theirs| {
        merged(&active(base), &active(ours), &active(theirs)).metadata.active_voice_session_id
    };
    assert_eq!(result(None, None, Some("s")), Some("s".into()));
    assert_eq!(result(Some("s"), Some("t"), Some("s")), Some("t".into()));
    assert_eq!(result(Some("s"), Some("t"), Some("u")), Some("u".into()));
    assert_eq!(result(Some("s"), Some("t"), None), Some("t".into()));
    assert_eq!(result(Some("s"), Some("s"), None), Some("s".into()));
}

#[test]
fn what_they_have_deleted_is_given_back_as_gone_unless_we_have_changed_it() {
    let base = with(&file(&["s", "t", "u"]), |it| {
        it.workspaces.push(workspace("v", "/v"));
        it.sessions.push(session("x", "v"));
    });
    let ours = with(&base, |it| it.sessions[1].last_active_at = "2026-02-02T00:00:00Z".into());
    let merged = merged(&base, &ours, &file(&["u"]));
    assert_eq!(ids(&merged.metadata), ["s", "t", "u", "x"], "nothing is deleted here");
    let wanted = Gone { sessions: vec!["s".into(), "x".into()], workspaces: vec!["v".into()] };
    assert_eq!(merged.gone, wanted);
    assert_eq!(ids(&merged.gone.without(&merged.metadata)), ["t", "u"]);
    assert_eq!(told(&merged), [r#"session "t" was deleted there and changed here; kept"#]);
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
        let merged = merged(&base, &base, &theirs);
        assert!(merged.gone.is_empty());
        assert_eq!(&ids(&merged.metadata)[..2], ["s", "t"]);
        assert_eq!(told(&merged), ["nothing of ours is there any more; kept"]);
    }
}

#[test]
fn an_old_copy_undoes_nothing_and_a_new_one_does() {
    let before = with(&file(&["s", "old"]), |it| it.active_voice_session_id = Some("s".into()));
    // We rename one, make one, delete one and activate another.
    let after = with(&before, |it| {
        it.sessions[0].name = "renamed".into();
        it.sessions.retain(|session| session.id.as_str() != "old");
        it.sessions.push(session("new", "w"));
        it.active_voice_session_id = Some("new".into());
    });
    let begin = Instant::now();
    let mut recent = Recent::default();
    recent.note(&before, &after, begin);
    // The app writes what it had read before that, with a session of its own.
    let theirs = with(&before, |it| it.sessions.push(session("app", "w")));
    let merged = merge(&after, &after, &theirs, &mut recent, begin);
    assert_eq!(merged.metadata, with(&after, |it| it.sessions.push(session("app", "w"))));
    assert!(merged.gone.is_empty());
    assert_eq!(told(&merged), [r#"session "old" was deleted here and is still there; left out"#]);

    // It has seen ours now: what it does then counts.
    let seen = merged.metadata;
    merge(&seen, &seen, &seen, &mut recent, begin);
    let back = with(&seen, |it| {
        it.sessions[0].name = "name of s".into();
        it.sessions.retain(|session| session.id.as_str() != "new");
        it.active_voice_session_id = Some("s".into());
    });
    let merged = merge(&seen, &seen, &back, &mut recent, begin);
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
        let merged = merge(&after, &after, &before, &mut recent, begin + age);
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
    assert!(merge(&base, &base, &file(&["s"]), &mut recent, now).gone.is_empty());
    let later = now + ENTRY_AGE;
    assert_eq!(merge(&base, &base, &file(&["s"]), &mut recent, later).gone.sessions, ["t".into()]);
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
    // Long after: it must be another program that keeps it in a place of its own.
    let merged = merge(&after, &after, &before, &mut recent, now + 10 * ENTRY_AGE);
    assert_eq!(merged.metadata, after);
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

/// What a writer does next.
#[derive(Debug, Clone)]
enum Step {
    /// The app reads the file.
    AppReads,
    /// It changes its copy: makes a session, renames one, makes one active, deletes one that it has made.
    AppMakes,
    AppRenames(usize),
    AppActivates(usize),
    AppDeletes(usize),
    /// It puts its copy in the place of the file.
    AppWrites,
    /// We do the same in memory, and save.
    Make,
    Rename(usize),
    Activate(usize),
    Delete(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..8_usize;
    prop_oneof![
        2 => Just(Step::AppReads),
        2 => Just(Step::AppMakes),
        1 => n.clone().prop_map(Step::AppRenames),
        1 => n.clone().prop_map(Step::AppActivates),
        1 => n.clone().prop_map(Step::AppDeletes),
        3 => Just(Step::AppWrites),
        2 => Just(Step::Make),
        1 => n.clone().prop_map(Step::Rename),
        1 => n.clone().prop_map(Step::Activate),
        1 => n.prop_map(Step::Delete),
    ]
}

/// Two writers of one file, and what each was told is kept.
struct World {
    file: Metadata,
    copy: Metadata,
    memory: Metadata,
    held: Metadata,
    recent: Recent,
    now: Instant,
    n_made: usize,
    /// Sessions that exist for whoever made them.
    made: BTreeSet<String>,
    /// Names that were given by one side and by nobody else.
    names: BTreeMap<String, Vec<String>>,
    deleted: BTreeSet<String>,
    /// What the app has done in its copy, not yet written.
    pending: Vec<(String, String)>,
}

impl World {
    fn new() -> Self {
        let begin = file(&["s0"]);
        Self {
            file: begin.clone(),
            copy: begin.clone(),
            memory: begin.clone(),
            held: begin,
            recent: Recent::default(),
            now: Instant::now(),
            n_made: 0,
            made: BTreeSet::from(["s0".to_owned()]),
            names: BTreeMap::new(),
            deleted: BTreeSet::new(),
            pending: Vec::new(),
        }
    }

    fn fresh(&mut self, who: &str) -> Session {
        self.n_made += 1;
        session(&format!("{who}{}", self.n_made), "w")
    }

    /// A save, as the store does it: look, merge, write.
    fn save(&mut self) {
        // A file that is ours says nothing about what the app has seen.
        if self.file != self.held {
            let merged = merge(&self.held, &self.memory, &self.file, &mut self.recent, self.now);
            for id in &merged.gone.sessions {
                assert!(self.deleted.contains(id.as_str()), "{id} was never deleted");
            }
            self.memory = merged.gone.without(&merged.metadata);
        }
        self.recent.note(&self.file, &self.memory, self.now);
        self.file = self.memory.clone();
        self.held = self.memory.clone();
    }

    /// From now on what the app has changed in its copy is promised.
    fn app_writes(&mut self) {
        self.file = self.copy.clone();
        for (what, id) in std::mem::take(&mut self.pending) {
            match &*what {
                "made" => drop(self.made.insert(id)),
                "deleted" => drop(self.deleted.insert(id)),
                _ => self.names.entry(id).or_default().push(what),
            }
        }
    }

    fn take(&mut self, step: Step) {
        self.now += Duration::from_millis(1);
        match step {
            Step::AppReads => {
                self.copy = self.file.clone();
                self.pending.clear();
            }
            Step::AppMakes => {
                let made = self.fresh("app");
                self.pending.push(("made".into(), made.id.0.clone()));
                self.copy.sessions.push(made);
            }
            Step::AppRenames(n) => {
                self.n_made += 1;
                let name = format!("by the app {}", self.n_made);
                let n_sessions = self.copy.sessions.len();
                if let Some(one) = self.copy.sessions.get_mut(n % n_sessions.max(1)) {
                    one.name.clone_from(&name);
                    self.pending.push((name, one.id.0.clone()));
                }
            }
            Step::AppActivates(n) => {
                let n_sessions = self.copy.sessions.len();
                let one = self.copy.sessions.get(n % n_sessions.max(1));
                self.copy.active_voice_session_id = one.map(|it| it.id.clone());
            }
            Step::AppDeletes(n) => {
                let n_sessions = self.copy.sessions.len();
                if 1 < n_sessions {
                    let gone = self.copy.sessions.remove(n % n_sessions);
                    self.pending.retain(|(_, id)| *id != gone.id.0);
                    self.pending.push(("deleted".into(), gone.id.0));
                }
            }
            Step::AppWrites => self.app_writes(),
            Step::Make => {
                let made = self.fresh("our");
                self.made.insert(made.id.0.clone());
                self.memory.sessions.push(made);
                self.save();
            }
            Step::Rename(n) => {
                self.n_made += 1;
                let name = format!("by us {}", self.n_made);
                let n_sessions = self.memory.sessions.len();
                if let Some(one) = self.memory.sessions.get_mut(n % n_sessions.max(1)) {
                    one.name.clone_from(&name);
                    self.names.entry(one.id.0.clone()).or_default().push(name);
                }
                self.save();
            }
            Step::Activate(n) => {
                let n_sessions = self.memory.sessions.len();
                let one = self.memory.sessions.get(n % n_sessions.max(1));
                self.memory.active_voice_session_id = one.map(|it| it.id.clone());
                self.save();
            }
            Step::Delete(n) => {
                let n_sessions = self.memory.sessions.len();
                if 1 < n_sessions {
                    let gone = self.memory.sessions.remove(n % n_sessions);
                    self.deleted.insert(gone.id.0);
                }
                self.save();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every file that the app writes is seen before the next one: what it writes over unseen itself nobody
    /// else can bring back. It may have been read long before.
    #[test]
    fn two_writers_in_any_order_lose_nothing_and_end_alike(steps in prop::collection::vec(step(), 0..40)) {
        let mut world = World::new();
        for step in steps {
            let is_write = matches!(step, Step::AppWrites);
            world.take(step);
            if is_write {
                world.save();
                world.copy = world.file.clone();
            }
        }
        world.save();
        prop_assert!(says_the_same(&world.file, &world.memory));
        let there: BTreeSet<String> =
            world.file.sessions.iter().map(|session| session.id.0.clone()).collect();
        for id in &world.made {
            prop_assert!(there.contains(id) || world.deleted.contains(id), "{id} is lost");
        }
        for session in &world.file.sessions {
            // The last name that anybody gave, or one of those given at the same time; never the first one.
            if let Some(names) = world.names.get(session.id.as_str()) {
                prop_assert!(names.contains(&session.name), "{} of {names:?}", session.name);
            }
            prop_assert!(world.made.contains(session.id.as_str()), "{} was never made", session.id);
        }
        // Once more, and nothing changes.
        let before = world.file.clone();
        world.save();
        prop_assert_eq!(before, world.file);
    }

    /// What two writers do in different places comes to the same in whichever order it is merged.
    #[test]
    fn edits_in_different_places_are_merged_alike_from_both_sides(a in 0..4_usize, b in 0..4_usize) {
        let edit = |which: usize, id: &'static str| move |it: &mut Metadata| match which {
            0 => it.sessions.push(session(id, "w")),
            1 => it.sessions.iter_mut().filter(|one| one.id.as_str() == format!("{id}0")).for_each(|one| one.name = id.into()),
            2 => it.workspaces.push(workspace(id, id)),
            _ => drop(it.other.insert(id.into(), json!(id))),
        };
        let base = file(&["a0", "b0"]);
        let (one, other) = (with(&base, edit(a, "a")), with(&base, edit(b, "b")));
        let (first, second) = (merged(&base, &one, &other), merged(&base, &other, &one));
        prop_assert!(says_the_same(&first.metadata, &second.metadata));
        prop_assert!(first.conflicts.is_empty() && first.gone.is_empty());
    }
}
