//! Two writers change one file at random. Every acknowledged change must survive.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Next action of a writer.
#[derive(Debug, Clone)]
enum Step {
    /// The app reads the file.
    AppReads,
    /// The app changes its copy: creates, renames, activates or deletes its own session.
    AppMakes,
    AppRenames(usize),
    AppActivates(usize),
    AppDeletes(usize),
    /// The app replaces the file with its copy.
    AppWrites,
    /// Quackd makes the same kinds of changes in memory and saves.
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

/// Two writers of one file, with the changes that must survive.
struct World {
    file: Metadata,
    copy: Metadata,
    memory: Metadata,
    held: Metadata,
    recent: Recent,
    now: Instant,
    n_made: usize,
    /// Sessions that their creator considers saved.
    made: BTreeSet<String>,
    /// Names that exactly one side has given.
    names: BTreeMap<String, Vec<String>>,
    deleted: BTreeSet<String>,
    /// Changes in the app's copy that are not written yet.
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

    fn fresh(&mut self, who: &str) -> Shared<Session> {
        self.n_made += 1;
        session(&format!("{who}{}", self.n_made), "w")
    }

    /// Saves like `Files`: looks at the file, imports, writes.
    fn save(&mut self) {
        // Our own file does not show which changes the app has seen.
        if self.file != self.held {
            let Imported { metadata, gone, .. } =
                import(&self.held, &self.recent, &self.memory, &self.file, self.now);
            for id in &gone.sessions {
                assert!(self.deleted.contains(id.as_str()), "{id} was never deleted");
            }
            self.memory = gone.without(&metadata);
            self.recent.seen(&self.file);
        }
        self.recent.note(&self.file, &self.memory, self.now);
        self.file = self.memory.clone();
        self.held = self.memory.clone();
    }

    /// From here on, the app's changes must survive.
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
                    self.pending.push(("deleted".into(), gone.id.0.clone()));
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
                    self.deleted.insert(gone.id.0.clone());
                }
                self.save();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Quackd sees each file of the app before the app writes the next one: a file that the app itself
    /// overwrites cannot be recovered. The app may have read its copy long before.
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
        prop_assert!(is_equivalent(&world.file, &world.memory));
        let there: BTreeSet<String> =
            world.file.sessions.iter().map(|session| session.id.0.clone()).collect();
        for id in &world.made {
            prop_assert!(there.contains(id) || world.deleted.contains(id), "{id} is lost");
        }
        for session in &world.file.sessions {
            // The name is the last one given, or one of several given at the same time, but never the first.
            if let Some(names) = world.names.get(session.id.as_str()) {
                prop_assert!(names.contains(&session.name), "{} of {names:?}", session.name);
            }
            prop_assert!(world.made.contains(session.id.as_str()), "{} was never made", session.id);
        }
        // Merging again must change nothing.
        let before = world.file.clone();
        world.save();
        prop_assert_eq!(before, world.file);
    }

    /// The order in which two writers' independent changes are merged does not matter.
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
        let (first, second) = (imported(&base, &one, &other), imported(&base, &other, &one));
        prop_assert!(is_equivalent(&first.metadata, &second.metadata));
        prop_assert!(first.notes.is_empty() && first.gone.is_empty());
    }
}
