//! Restrictions of new sessions. Restrictions are settings of a session, but protect files of its workspace: a session
//! that continues another one, or that a remote client creates, gets them too.

use super::Registry;
use super::catalog;
use super::policies::layered;
use quackd_policy::{resolve_layers, restriction};
use quackd_protocol::SessionId;
use quackd_protocol::approval::Decision;
use quackd_protocol::client::PolicyLayers;
use quackd_protocol::limits::MAX_GRANTS;
use quackd_protocol::metadata::{Session, Shared};
use quackd_protocol::policy::{NetworkMode, Policy, PolicyPatch};
use quackd_protocol::state::SessionState;
use std::path::Path;
use std::sync::Arc;

/// Sessions whose restrictions a new session takes over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Restrictions {
    /// The session that the new one continues, with its safe mode.
    pub(crate) of_session: Option<SessionId>,
    /// Every session of the workspace.
    pub(crate) of_workspace: bool,
    /// Also the safe mode of every session of the workspace.
    pub(crate) with_safe_mode: bool,
}

impl Restrictions {
    /// Restrictions of a session that a remote client creates: those of every session of the workspace. Otherwise the
    /// client could leave the restrictions of a session by a new one.
    pub(crate) fn remote() -> Self {
        Self { of_session: None, of_workspace: true, with_safe_mode: true }
    }
}

impl Registry {
    /// Gives the new session `new` the restrictions of some of the `others`. Returns a note for the user if there are
    /// any.
    pub(super) fn restrict(
        &mut self,
        new: &SessionId,
        restrictions: &Restrictions,
        others: &[Shared<Session>],
    ) -> Option<String> {
        let metadata = Arc::clone(&self.metadata);
        let new = catalog::by_id(&metadata, new)?;
        let path = |session: &Session| {
            catalog::workspace_of(&metadata, session).map(|workspace| Path::new(&workspace.path))
        };
        let overlaps = |known: &Session| {
            path(known).zip(path(new)).is_some_and(|(a, b)| a.starts_with(b) || b.starts_with(a))
        };

        let mut taken = Taken::default();
        for known in others {
            let is_continued = restrictions.of_session.as_ref() == Some(&known.id);
            let takes_over = is_continued || restrictions.of_workspace && overlaps(known);
            if !takes_over {
                continue;
            }

            // Compared without safe mode, which is taken over separately.
            let limit = without_safe_mode(self.policy_of(known).layers);
            // Resolved again for each session, because the session before it may have added
            // restrictions.
            let base = without_safe_mode(self.policy_of(new).layers);
            let patch = restriction(&base, &limit);
            let of = self.state_of(&known.id);
            let is_safe = of.safe_mode && (restrictions.with_safe_mode || is_continued);
            taken.add(&patch, &of, is_safe);
            self.change_state(&new.id, |state| take(state, patch, &of, is_safe));
        }

        self.tell_policy(&new.id);
        taken.in_words()
    }

    /// Returns true if a session may do less than the sessions that its workspace gets by default.
    pub(super) fn is_restricted(&self, reference: &str) -> bool {
        let Some(session) = catalog::find(&self.metadata, reference) else { return false };
        let of = self.state_of(&session.id);
        let layers = self.policy_of(session).layers;
        let base = PolicyLayers { session: PolicyPatch::default(), ..layers.clone() };

        let patch = restriction(&without_safe_mode(base), &without_safe_mode(layers));
        let mut taken = Taken::default();
        taken.add(&patch, &of, of.safe_mode);
        taken.in_words().is_some()
    }
}

fn without_safe_mode(layers: PolicyLayers) -> Policy {
    resolve_layers(PolicyLayers { safe_mode: false, ..layers })
}

/// Adds restrictions to the state of a new session.
fn take(state: &mut SessionState, patch: PolicyPatch, of: &SessionState, is_safe: bool) {
    state.policy = layered(patch, std::mem::take(&mut state.policy));
    state.safe_mode |= is_safe;
    // A grant that allows something does not restrict.
    for grant in of.grants.iter().filter(|grant| grant.decision == Decision::Deny) {
        let is_known = state.grants.iter().any(|known| known.target == grant.target);
        if !is_known && state.grants.len() < MAX_GRANTS {
            state.grants.push(grant.clone());
        }
    }
}

/// Facts about restrictions, for a note.
#[derive(Debug, Default)]
struct Taken {
    words: Vec<String>,
    hidden: usize,
    denied: usize,
}

impl Taken {
    fn add(&mut self, patch: &PolicyPatch, of: &SessionState, is_safe: bool) {
        let mut word = |word: String| {
            if !self.words.contains(&word) {
                self.words.push(word);
            }
        };

        if is_safe {
            word("safe mode".to_owned());
        }
        if let Some(profile) = patch.profile {
            word(profile.name().to_owned());
        }
        match (patch.network, &patch.hosts) {
            (Some(mode), _) => word(format!("network {mode}")),
            (None, Some(_)) => word(format!("network {}", NetworkMode::Hosts)),
            (None, None) => {}
        }
        if let Some(rule) = patch.web_search {
            word(format!("web search {}", rule.name()));
        }
        if patch.writable_roots.is_some() {
            word("fewer writable directories".to_owned());
        }
        self.hidden = self.hidden.max(patch.hidden.as_ref().map_or(0, Vec::len));
        self.denied += of.grants.iter().filter(|grant| grant.decision == Decision::Deny).count();
    }

    /// `None` without restrictions.
    fn in_words(mut self) -> Option<String> {
        if 0 < self.hidden {
            self.words.push(format!("hidden paths: {}", self.hidden));
        }
        if 0 < self.denied {
            self.words.push(format!("denied hosts: {}", self.denied));
        }
        let all = self.words.join(", ");
        (!all.is_empty()).then(|| format!("restricted like the sessions before it: {all}"))
    }
}
