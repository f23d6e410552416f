//! Labels of sessions, and the session that a reference means.
//!
//! Labels are given in the order in which the sessions were made, so that a session that is made later changes none.
//! When a session is removed or renamed, all labels are kept in quackd's own state if one of the others would change
//! ([`Registry::keep_labels`]).
//!
//! The first session of a workspace without a given name (`duck-1`) has the label `<directory>`, the others without one
//! `<directory>/2`, those with one `<directory>/<name>`; with the parent directory in front if an earlier workspace has
//! that directory name, and so on. A reference is an id, a label, a name, a longer form of a label, or the beginning of
//! an id or a name. Called by [`crate::registry`].

use super::{Registry, catalog};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::foreign_text::first_unsafe;
use quackd_protocol::metadata::{Metadata, Session, Shared, Workspace};
use quackd_protocol::state::DaemonState;
use quackd_protocol::{SessionId, WorkspaceId};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Beginning of the name that a session without a given name has on the wire, before a number.
const UNNAMED: &str = "duck-";

/// Shortest beginning of an id that is accepted, in bytes.
const MIN_ID_PREFIX: usize = 4;

/// Largest number of path components in a label.
const MAX_COMPONENTS: usize = 8;

/// Longest label in characters. A session whose directory and name are longer has its name or its id as label.
const MAX_CHARS: usize = 100;

/// Longest reference in bytes that is compared with directories.
const MAX_REFERENCE_BYTES: usize = 8 * 1024;

/// Largest number of sessions that an error lists.
const MAX_LISTED: usize = 10;

/// Result of looking up a reference.
#[derive(Debug, PartialEq)]
pub(crate) enum Found<'a> {
    One(&'a Shared<Session>),
    /// Labels of the matching sessions, at most [`MAX_LISTED`], and whether there are more.
    Several {
        labels: Vec<String>,
        has_more: bool,
    },
    Nothing,
}

/// Sessions by every form of reference. Building it takes time in proportion to the number of sessions.
#[derive(Debug)]
pub(crate) struct Labels<'a> {
    sessions: &'a [Shared<Session>],
    state: &'a DaemonState,
    /// Workspaces that have sessions.
    workspaces: HashMap<&'a WorkspaceId, (&'a Shared<Workspace>, Vec<usize>)>,
    /// The last components of each workspace's path, and the whole path.
    directories: HashMap<&'a str, Vec<&'a WorkspaceId>>,
    /// Ids, sorted.
    ids: Vec<(&'a str, usize)>,
    /// Names in lower case, sorted.
    names: Vec<(String, usize)>,
    /// Labels, and the positions of their sessions.
    labels: OnceCell<(Vec<String>, HashMap<String, usize>)>,
}

/// Labels of earlier sessions.
#[derive(Debug, Default)]
struct Earlier<'a> {
    /// Directory names, and the workspaces that have them.
    directories: HashMap<&'a str, &'a WorkspaceId>,
    /// For each workspace, how many of the forms of its path belong to other workspaces.
    n_others: HashMap<&'a WorkspaceId, usize>,
    /// Workspaces with a session whose label is the directory alone.
    bare: HashSet<&'a WorkspaceId>,
}

impl<'a> Labels<'a> {
    pub(crate) fn new(metadata: &'a Metadata, state: &'a DaemonState) -> Self {
        let mut workspaces: HashMap<&WorkspaceId, (&Shared<Workspace>, Vec<usize>)> = metadata
            .workspaces
            .iter()
            .map(|workspace| (&workspace.id, (workspace, Vec::new())))
            .collect();
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        for (at, session) in metadata.sessions.iter().enumerate() {
            ids.push((session.id.as_str(), at));
            names.push((session.name.to_lowercase(), at));
            if let Some((_, sessions)) = workspaces.get_mut(&session.workspace_id) {
                sessions.push(at);
            }
        }

        // Sorted for the binary search of [`from`].
        ids.sort_unstable();
        names.sort_unstable();
        workspaces.retain(|_, (_, sessions)| !sessions.is_empty());

        let mut directories: HashMap<&str, Vec<&WorkspaceId>> = HashMap::new();
        for (id, (workspace, _)) in &workspaces {
            for form in forms(&workspace.path) {
                directories.entry(form).or_default().push(*id);
            }
        }

        let labels = OnceCell::new();
        let sessions = &metadata.sessions;
        Self { sessions, state, workspaces, directories, ids, names, labels }
    }

    /// Returns the label of every session.
    pub(crate) fn all(&self) -> HashMap<SessionId, String> {
        let labels = self.labels().0.iter();
        self.sessions
            .iter()
            .zip(labels)
            .map(|(session, label)| (session.id.clone(), label.clone()))
            .collect()
    }

    /// Returns the label of a session.
    pub(crate) fn of(&self, session: &Shared<Session>) -> String {
        let at = equal(&self.ids, &session.id.0).next();
        let label = at.and_then(|at| self.labels().0.get(at)).cloned();
        label.unwrap_or_else(|| session.id.0.clone())
    }

    fn labels(&self) -> &(Vec<String>, HashMap<String, usize>) {
        self.labels.get_or_init(|| {
            let mut taken = HashMap::new();
            let mut earlier = Earlier::default();
            // Kept labels first: a label that the user has seen wins over one that would be made
            // now.
            for (at, session) in self.sessions.iter().enumerate() {
                let of = self.state.sessions.get(&session.id);
                if let Some(label) = of.and_then(|of| of.label.as_deref())
                    && self.is_free(label, session, &taken)
                    && self.takes_kept(session, label, &mut earlier)
                {
                    taken.insert(label.to_owned(), at);
                }
            }

            let with_kept: HashMap<usize, String> =
                taken.iter().map(|(label, at)| (*at, label.clone())).collect();

            let labels = self.sessions.iter().enumerate().map(|(at, session)| {
                if let Some(label) = with_kept.get(&at) {
                    return label.clone();
                }
                let is_free = |label: &String| self.is_free(label, session, &taken);
                let label = self.candidates(session, &mut earlier).find(is_free);
                let label = label.unwrap_or_else(|| session.id.0.clone());
                taken.insert(label.clone(), at);
                label
            });

            let labels = labels.collect();
            (labels, taken)
        })
    }

    fn is_free(&self, label: &str, session: &Session, taken: &HashMap<String, usize>) -> bool {
        is_typable(label)
            && !taken.contains_key(label)
            // An id always means its own session.
            && self.with_id(label).is_none_or(|found| found.id == session.id)
    }

    /// Gives a session the label that was kept for it. Returns false if the session has another name since then.
    fn takes_kept(&self, session: &'a Session, label: &str, earlier: &mut Earlier<'a>) -> bool {
        let (path, workspace) = (self.path_of(session), &session.workspace_id);
        let number = number_of(session);
        let shown = number.unwrap_or(&session.name);

        let of_form = |form: &str| {
            let rest = label.strip_prefix(form)?;
            // A name that cannot be typed is not in the label.
            let is_bare = rest.is_empty() && (number.is_some() || !is_typable(shown));
            (is_bare || rest.strip_prefix('/') == Some(shown)).then_some(is_bare)
        };

        let found = forms(path).enumerate().find_map(|(at, form)| Some((at, form, of_form(form)?)));
        match found {
            Some((n_others, form, is_bare)) => {
                earlier.directories.insert(form, workspace);
                earlier.n_others.insert(workspace, n_others);
                if is_bare {
                    earlier.bare.insert(workspace);
                }
            }
            None => return label == session.name || label == session.id.0,
        }
        true
    }

    fn path_of(&self, session: &Session) -> &'a str {
        let of = self.workspaces.get(&session.workspace_id);
        of.map_or("", |(workspace, _)| workspace.path.as_str())
    }

    /// Returns the labels that a session may have, the best one first. A directory name of another workspace is left out.
    fn candidates(
        &self,
        session: &'a Session,
        earlier: &mut Earlier<'a>,
    ) -> impl Iterator<Item = String> + use<'a> {
        let (path, workspace) = (self.path_of(session), &session.workspace_id);
        let is_own = |form: &str| *earlier.directories.get(form).unwrap_or(&workspace) == workspace;
        let n_others = earlier.n_others.get(workspace).copied();
        let n_others = n_others.or_else(|| forms(path).position(is_own)).unwrap_or(0);
        let forms = || forms(path).skip(n_others);
        if let Some(shortest) = forms().next() {
            earlier.directories.insert(shortest, workspace);
            earlier.n_others.insert(workspace, n_others);
        }

        let name = session.name.as_str();
        let number = number_of(session);
        let is_bare = number.is_some() && earlier.bare.insert(workspace);
        let shown = number.unwrap_or(name);

        let named = forms().map(move |form| format!("{form}/{shown}"));
        let named = named.filter(move |_| !is_bare);
        let plain = || forms().map(str::to_owned);
        let before_name = plain().filter(move |_| is_bare);
        // For a name that cannot be typed.
        let after_name = plain().filter(move |_| !is_bare);
        before_name.chain(named).chain(std::iter::once(name.to_owned())).chain(after_name)
    }

    /// Returns the session that a reference means to the methods of quackd. Of several sessions with the given name it
    /// is the one in `workspace`, if there is one only.
    pub(crate) fn look_up(&self, reference: &str, workspace: Option<&str>) -> Found<'a> {
        let labelled = self.labels().1.get(reference).and_then(|at| self.sessions.get(*at));
        if let Some(session) = self.with_id(reference).or(labelled) {
            return Found::One(session);
        }
        let found = self.find(reference);
        let is_here = |session: &&Shared<Session>| {
            let of = self.workspaces.get(&session.workspace_id);
            of.is_some_and(|(of, _)| Some(of.path.as_str()) == workspace)
        };

        // Of several, the only one in the workspace with exactly this name.
        let lower = reference.to_lowercase();
        let mut here = found.iter().copied().filter(is_here);
        let here = here
            .find(|session| session.name.to_lowercase() == lower)
            .filter(|_| here.next().is_none());

        match (found.as_slice(), here) {
            ([], _) => Found::Nothing,
            (&[session], _) | (_, Some(session)) => Found::One(session),
            (several, _) => Found::Several {
                labels: several.iter().take(MAX_LISTED).map(|session| self.of(session)).collect(),
                has_more: MAX_LISTED < several.len(),
            },
        }
    }

    /// Returns the sessions that a reference may mean: those with this name or in this directory, else those whose id or
    /// name begins so.
    fn find(&self, reference: &str) -> Vec<&'a Shared<Session>> {
        if reference.trim().is_empty() || MAX_REFERENCE_BYTES < reference.len() {
            return Vec::new();
        }
        let lower = reference.to_lowercase();

        let mut found: Vec<usize> = Vec::new();
        found.extend(equal(&self.names, &lower));
        for id in self.directories.get(reference).into_iter().flatten() {
            found.extend(self.sessions_of(id));
        }
        // A name may contain a slash, so each slash may separate the directory from the name.
        for (at, _) in reference.match_indices('/') {
            let (directory, name) = (reference.get(..at), reference.get(at + 1..));
            let (Some(directory), Some(name)) = (directory, name) else { continue };
            let name = name.to_lowercase();
            for id in self.directories.get(directory).into_iter().flatten() {
                found.extend(self.sessions_of(id).filter(|at| self.has_name(*at, &name)));
            }
        }

        if found.is_empty() {
            found.extend(beginning(&self.names, &lower));
            if MIN_ID_PREFIX <= reference.len() {
                found.extend(beginning(&self.ids, reference));
            }
        }

        // A session can match in several ways.
        found.sort_unstable();
        found.dedup();
        found.iter().filter_map(|at| self.sessions.get(*at)).collect()
    }

    fn with_id(&self, id: &str) -> Option<&'a Shared<Session>> {
        equal(&self.ids, id).next().and_then(|at| self.sessions.get(at))
    }

    fn sessions_of(&self, workspace: &WorkspaceId) -> impl Iterator<Item = usize> {
        self.workspaces.get(workspace).into_iter().flat_map(|(_, sessions)| sessions).copied()
    }

    fn has_name(&self, at: usize, lower: &str) -> bool {
        self.sessions.get(at).is_some_and(|session| session.name.to_lowercase() == lower)
    }
}

/// Returns the session of a reference in upstream's methods. Upstream's look-up comes first, then the one of quackd's
/// methods.
pub(crate) fn find<'a>(
    metadata: &'a Metadata,
    state: &'a DaemonState,
    reference: &str,
) -> Option<&'a Shared<Session>> {
    catalog::find(metadata, reference).or_else(|| {
        match Labels::new(metadata, state).look_up(reference, None) {
            Found::One(session) => Some(session),
            Found::Several { .. } | Found::Nothing => None,
        }
    })
}

impl Registry {
    /// Labels of all sessions, for [`Registry::keep_labels`].
    pub(super) fn shown_labels(&self) -> HashMap<SessionId, String> {
        Labels::new(&self.metadata, &self.state).all()
    }

    /// Keeps the labels of sessions from before others were removed or renamed, because a label
    /// that was shown must not move to another session. Returns whether the state differs.
    pub(super) fn keep_labels(&mut self, earlier: &HashMap<SessionId, String>) -> bool {
        let now = self.shown_labels();
        let has_changed = |(id, label): (&SessionId, &String)| {
            earlier.get(id).is_some_and(|before| before != label)
        };
        if !now.iter().any(has_changed) {
            return false;
        }

        // All labels, not only the changed ones: a kept label frees others, which further sessions
        // would get.
        let sessions = &mut Arc::make_mut(&mut self.state).sessions;
        for (id, label) in earlier.iter().filter(|(id, _)| now.contains_key(*id)) {
            sessions.entry(id.clone()).or_default().label = Some(label.clone());
        }
        true
    }
}

/// Returns the number of a session without a given name.
fn number_of(session: &Session) -> Option<&str> {
    let number = session.name.strip_prefix(UNNAMED)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

/// Returns the last components of a path, the shortest form first, and then the whole path. That of another machine has
/// also the form that users see, `build1:/home/me/app`.
fn forms(path: &str) -> impl Iterator<Item = &str> {
    let path = path.trim_end_matches('/');
    let starts = path.rmatch_indices('/').take(MAX_COMPONENTS).map(|(at, _)| at + 1);
    let last = starts.filter_map(move |start| path.get(start..)).filter(|form| !form.is_empty());
    let is_far = FarWorkspace::of(path).is_some_and(|far| !far.target.is_empty());
    let shown = path.split_once(':').map(|(_engine, shown)| shown).filter(|_| is_far);
    last.chain(shown).chain(std::iter::once(path).filter(|path| !path.is_empty()))
}

fn equal<T: AsRef<str>>(sorted: &[(T, usize)], key: &str) -> impl Iterator<Item = usize> {
    from(sorted, key).take_while(move |(text, _)| text.as_ref() == key).map(|(_, at)| *at)
}

fn beginning<T: AsRef<str>>(sorted: &[(T, usize)], prefix: &str) -> impl Iterator<Item = usize> {
    let begins = move |(text, _): &&(T, usize)| text.as_ref().starts_with(prefix);
    from(sorted, prefix).take_while(begins).map(|(_, at)| *at)
}

/// Returns the first entry that is not before `key`, and all later ones.
fn from<'s, T: AsRef<str>>(
    sorted: &'s [(T, usize)],
    key: &str,
) -> std::slice::Iter<'s, (T, usize)> {
    let start = sorted.partition_point(|(text, _)| text.as_ref() < key);
    sorted.get(start..).unwrap_or_default().iter()
}

/// Returns false for a text that a terminal would not show as it is, or that is too long to type.
fn is_typable(text: &str) -> bool {
    text.trim().len() == text.len()
        && text.chars().count() <= MAX_CHARS
        && first_unsafe(text).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metadata(sessions: &[(&str, &str, &str)]) -> Metadata {
        let session = |(id, path, name): &(&str, &str, &str)| json!({"id": id, "workspaceId": path, "name": name});
        let mut paths: Vec<&str> = sessions.iter().map(|(_, path, _)| *path).collect();
        paths.sort_unstable();
        paths.dedup();
        serde_json::from_value(json!({
            "version": 1,
            "sessions": sessions.iter().map(session).collect::<Vec<_>>(),
            "workspaces": paths.iter().map(|path| json!({"id": path, "path": path})).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    /// Every label means its session to quackd's own methods.
    #[track_caller]
    fn check(sessions: &[(&str, &str, &str)], expected: &[&str]) {
        let metadata = metadata(sessions);
        let state = DaemonState::default();
        let labels = Labels::new(&metadata, &state);
        let shown: Vec<String> = metadata.sessions.iter().map(|it| labels.of(it)).collect();
        assert_eq!(shown, expected);
        for (label, session) in shown.iter().zip(&metadata.sessions) {
            assert_eq!(labels.look_up(label, None), Found::One(session), "{label}");
        }
        // No later session changes a label.
        for n in 1..sessions.len() {
            let metadata = super::tests::metadata(&sessions[..n]);
            let labels = Labels::new(&metadata, &state);
            let earlier: Vec<String> = metadata.sessions.iter().map(|it| labels.of(it)).collect();
            assert_eq!(earlier, expected[..n]);
        }
    }

    #[test]
    fn a_label_is_as_much_of_the_path_as_tells_sessions_apart() {
        check(
            &[
                ("i1", "/src/api", "duck-1"),
                ("i2", "/src/web", "duck-1"),
                ("i3", "/src/web", "Review"),
                ("i4", "/home/work/lib", "duck-1"),
                ("i5", "/home/home/lib", "duck-1"),
                ("i6", "/x/a/b", "duck-1"),
                ("i7", "/y/a/b", "review"),
                ("i8", "/src/über ente", "duck-1"),
            ],
            &["api", "web", "web/Review", "lib", "home/lib", "b", "a/b/review", "über ente"],
        );
    }

    #[test]
    fn sessions_of_a_directory_have_one_prefix_and_a_number_if_they_have_no_name() {
        check(
            &[
                ("i1", "/app", "duck-1"),
                ("i2", "/app", "duck-2"),
                ("i3", "/c/app", "review"),
                ("i4", "/c/app", "duck-2"),
                ("i5", "/c/app", "duck-3"),
                ("i6", "/app", "2"),
                ("i7", "/app", "duck-two"),
                ("i8", "/app", "review"),
            ],
            &[
                "app",
                "app/2",
                "c/app/review",
                "c/app",
                "c/app/3",
                "/app/2",
                "app/duck-two",
                "app/review",
            ],
        );
        let metadata = metadata(&[("i1", "/app", "duck-1"), ("i2", "/app", "duck-2")]);
        let state = DaemonState::default();
        let labels = Labels::new(&metadata, &state);
        for reference in ["app/2", "app/duck-2", "duck-2"] {
            assert!(matches!(labels.look_up(reference, None), Found::One(it) if it.id.0 == "i2"));
        }
    }

    #[test]
    fn a_kept_label_stays_and_later_sessions_have_others() {
        let kept = |labels: &[(&str, &str)]| {
            let mut state = DaemonState::default();
            for (id, label) in labels {
                state.sessions.entry((*id).into()).or_default().label = Some((*label).to_owned());
            }
            state
        };
        let sessions = [
            ("i2", "/c/app", "duck-1"),
            ("i3", "/d/app", "duck-2"),
            ("i4", "/c/app", "duck-3"),
            ("i5", "/e/app", "duck-1"),
            ("i6", "/e/app", "review"),
        ];
        let metadata = metadata(&sessions);
        for (state, expected) in [
            // The session with the label `app` was deleted.
            (
                kept(&[("i2", "c/app"), ("i3", "d/app/2")]),
                ["c/app", "d/app/2", "c/app/3", "app", "app/review"],
            ),
            // Labels of a session with another name or directory, of another session, and unusable texts.
            (
                kept(&[("i2", "c/app/review"), ("i3", "z/app"), ("i4", "i5"), ("i5", "\u{1b}[2J")]),
                ["app", "d/app", "app/3", "e/app", "e/app/review"],
            ),
            // Twice the same.
            (
                kept(&[("i2", "app"), ("i3", "app")]),
                ["app", "d/app", "app/3", "e/app", "e/app/review"],
            ),
            (kept(&[("i6", "review"), ("i5", "i5")]), ["app", "d/app", "app/3", "i5", "review"]),
        ] {
            let labels = Labels::new(&metadata, &state);
            let shown: Vec<String> = metadata.sessions.iter().map(|it| labels.of(it)).collect();
            assert_eq!(shown, expected);
            for (label, session) in shown.iter().zip(&metadata.sessions) {
                assert_eq!(labels.look_up(label, None), Found::One(session), "{label}");
            }
        }
    }

    #[test]
    fn a_label_is_neither_an_id_nor_the_label_of_another_session() {
        check(
            &[
                // The directory has the name, the beginning of a name, or the id of another session.
                ("i1", "/a/review", "duck-1"),
                ("i2", "/a/x", "review"),
                ("i3", "/a/re", "duck-1"),
                ("i4", "/a/i1", "duck-1"),
                ("i5", "/a/duck-1", "duck-1"),
                // A name contains a slash.
                ("i6", "/a/y", "z/duck-1"),
                ("i7", "/a/y/z", "duck-1"),
            ],
            &["review", "x/review", "re", "a/i1", "duck-1", "y/z/duck-1", "z"],
        );
        let long = format!("/{}", "d/".repeat(3000));
        check(
            &[
                ("i1", "/", "duck-1"),
                ("i2", "/", "duck-2"),
                ("i3", "/a/b\u{1b}[2J", "duck-3"),
                ("i4", "/a/c\u{202e}", "duck-2"),
                ("i5", &long, "duck-5"),
                ("i6", "/a/d", "two\nlines"),
                ("i7", "/a/d", "more"),
                ("i8", "unknown", "twin"),
                ("i9", "unknown", "twin"),
            ],
            &["duck-1", "duck-2", "duck-3", "i4", "d", "a/d", "a/d/more", "unknown/twin", "twin"],
        );
    }

    #[test]
    fn references_are_ids_names_labels_and_beginnings_and_ambiguous_ones_are_listed() {
        let metadata = metadata(&[
            ("abcd-1", "/s/api", "duck-1"),
            ("abcd-2", "/s/web", "duck-1"),
            ("abce-3", "/s/web", "fix"),
            ("abcf-4", "/t/web", "duck-1"),
        ]);
        let state = DaemonState::default();
        let labels = Labels::new(&metadata, &state);
        let id = |reference: &str| match labels.look_up(reference, Some("/s/api")) {
            Found::One(session) => session.id.0.clone(),
            Found::Several { labels, .. } => labels.join(" "),
            Found::Nothing => "-".to_owned(),
        };
        for (reference, expected) in [
            ("abcd-1", "abcd-1"),
            ("abce", "abce-3"),
            ("abc", "-"),
            ("abcd", "api web"),
            ("web", "abcd-2"),
            ("api", "abcd-1"),
            ("api/DUCK-1", "abcd-1"),
            ("/s/api/duck-1", "abcd-1"),
            ("/s/api", "abcd-1"),
            ("s/web", "web web/fix"),
            ("web/fix", "abce-3"),
            ("t/web", "abcf-4"),
            ("web/duck-1", "web t/web"),
            ("duck-1", "abcd-1"),
            ("duck", "api web t/web"),
            ("fi", "abce-3"),
            ("eb/fix", "-"),
            ("API", "-"),
            ("", "-"),
            ("/", "-"),
            ("api/", "-"),
        ] {
            assert_eq!(id(reference), expected, "{reference}");
        }
        assert!(matches!(labels.look_up("duck-1", None), Found::Several { .. }));
        assert_eq!(find(&metadata, &state, "duck-1"), None);
        assert_eq!(labels.look_up(&"/".repeat(1 << 20), None), Found::Nothing);
    }

    #[test]
    fn a_session_on_another_machine_has_the_directory_as_label_and_its_shown_workspace_means_it() {
        let rows = [
            ("i1", "ssh:build1:/home/me/app", "duck-1"),
            ("i2", "ssh:build1:/home/me/app", "duck-2"),
            ("i3", "ssh:build1:/home/me/app", "duck-3"),
            ("i4", "ssh:build2:/home/me/app", "duck-1"),
            ("i5", "slurm:/home/me/sim", "duck-1"),
        ];
        check(&rows, &["app", "app/2", "app/3", "me/app", "sim"]);
        let (metadata, state) = (metadata(&rows), DaemonState::default());
        let labels = Labels::new(&metadata, &state);
        for (reference, id) in [("build2:/home/me/app", "i4"), ("slurm:/home/me/sim", "i5")] {
            let Found::One(session) = labels.look_up(reference, None) else {
                panic!("{reference}")
            };
            assert_eq!(session.id.0, id);
        }
        assert!(matches!(labels.look_up("build1:/home/me/app", None), Found::Several { .. }));
    }

    #[test]
    fn a_full_catalog_has_labels_and_an_error_lists_few() {
        let owned: Vec<(String, String)> =
            (0..2000).map(|n| (format!("id{n:05}"), format!("/r{n}/api"))).collect();
        let rows: Vec<(&str, &str, &str)> =
            owned.iter().map(|(id, path)| (id.as_str(), path.as_str(), "duck-1")).collect();
        let metadata = metadata(&rows);
        let state = DaemonState::default();
        let labels = Labels::new(&metadata, &state);
        assert_eq!(labels.all()[&"id00007".into()], "r7/api");
        let Found::Several { labels, has_more } = labels.look_up("duck-1", None) else { panic!() };
        assert_eq!((labels.len(), has_more), (MAX_LISTED, true));
    }
}
