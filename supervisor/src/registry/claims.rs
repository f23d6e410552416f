//! Claims: a client that named itself gets a separate session in a workspace.
//!
//! The registry makes each claim in one step, so that two clients never get the same session. A claim ends when its
//! client disconnects, because the claims of a client are part of its entry in the client registry.

use super::catalog::{self, Fresh};
use crate::errors::MethodError;
use crate::events::client_registry::Clients;
use quackd_protocol::SessionId;
use quackd_protocol::client::AttachData;
use quackd_protocol::limits::MAX_CLAIMED_NAME_CHARS;
use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::DaemonState;
use std::collections::HashSet;
use std::sync::Arc;

/// Beginning of the names of sessions that got no other name.
const AUTOMATIC: &str = "duck";

/// Claim of a session.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Id of the client.
    pub(crate) client: String,
    /// Whether background jobs of the session continue when the client disconnects.
    pub(crate) keep_jobs: bool,
    /// Id of the session that the client prefers.
    pub(crate) preferred: Option<String>,
    /// Whether the session must be an isolated one. Otherwise it must be none.
    pub(crate) isolated: bool,
}

impl Claim {
    /// Claims a session of the workspace at `path`: the client's own, else the preferred one, else the first one,
    /// both with its name and not claimed, else a new one. Returns the reply and whether `metadata` changed.
    ///
    /// # Errors
    /// `NoHello` if the client has no name or has disconnected; `TooManyClaims`; of [`catalog::add_session`].
    pub(super) fn make(
        self,
        metadata: &mut Arc<Metadata>,
        path: &str,
        clients: &Clients,
        state: &DaemonState,
        fresh: Fresh,
    ) -> Result<(AttachData, bool), MethodError> {
        let client = clients.get(&self.client).ok_or(MethodError::NoHello)?;
        let hello = client.hello().ok_or(MethodError::NoHello)?;
        client.claims.retain(metadata.sessions.iter().map(|session| &session.id));
        let base = session_name(&hello.client.name);

        let workspace = metadata.workspaces.iter().find(|workspace| workspace.path == path);
        let here = metadata
            .sessions
            .iter()
            .filter(|session| workspace.is_some_and(|known| known.id == session.workspace_id));
        let fits = |id: &SessionId| {
            let known = state.sessions.get(id);
            known.is_some_and(|known| known.isolated.is_some()) == self.isolated
        };

        // A client that repeats its claim gets its session again, even if the limit of claims is
        // reached.
        let own =
            here.clone().find(|session| client.claims.contains(&session.id) && fits(&session.id));
        if own.is_none() && client.claims.is_full() {
            return Err(MethodError::TooManyClaims);
        }

        // The number of a session orders the free ones: the client gets the session with the lowest
        // number, unless it prefers another.
        let named: Vec<_> =
            here.filter_map(|session| Some((number(&session.name, &base)?, session))).collect();
        let claimed = clients.claimed();
        let free =
            named.iter().filter(|(_, session)| !claimed.contains(&session.id) && fits(&session.id));
        let is_preferred = |id: &SessionId| self.preferred.as_ref() == Some(&id.0);
        let free = free.min_by_key(|(number, session)| (!is_preferred(&session.id), *number));
        let free = free.map(|(_, session)| *session);

        let (data, is_new) = if let Some(session) = own.or(free) {
            let id = session.id.clone();
            (catalog::attached(metadata, &id).ok_or(MethodError::WorkspaceUnknown)?, false)
        } else {
            let taken: HashSet<usize> = named.iter().map(|(number, _)| *number).collect();
            let unused = (1..).find(|number| !taken.contains(number));
            let name = match unused {
                None | Some(1) => base,
                Some(number) => format!("{base}-{number}"),
            };
            let metadata = Arc::make_mut(metadata);
            (catalog::add_session(metadata, path, Some(name), false, fresh)?, true)
        };

        client.claims.set(data.session.id.clone(), self.keep_jobs);
        Ok((data, is_new))
    }
}

/// Returns the name of a client's sessions, without a number.
fn session_name(client: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String =
        client.to_lowercase().chars().map(plain).take(MAX_CLAIMED_NAME_CHARS).collect();
    if name == AUTOMATIC || number(&name, AUTOMATIC).is_some() {
        // Otherwise the client could get a session of the user.
        format!("client-{name}")
    } else {
        name
    }
}

/// Returns the number in a session's name: 1 for `base`, n for `base-n`. `None` for any other name.
fn number(name: &str, base: &str) -> Option<usize> {
    let name = name.to_lowercase();
    match name.strip_prefix(base)? {
        "" => Some(1),
        rest => rest.strip_prefix('-')?.parse().ok().filter(|number| 1 < *number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_become_names_of_sessions() {
        for (client, expected) in [
            ("Claude-Code", "claude-code"),
            ("Ünï 1.0_x/y", "ünï-1.0_x-y"),
            ("a\tb", "a-b"),
            (&"x".repeat(64), &"x".repeat(40)),
        ] {
            assert_eq!(session_name(client), expected);
        }
    }

    #[test]
    fn a_session_is_numbered_only_behind_the_whole_name() {
        let of = |name| number(name, "zed");
        let numbers = ["zed", "Zed-2", "zed-11"].map(of);
        assert_eq!(numbers, [Some(1), Some(2), Some(11)]);
        let none = ["zed-1", "zed-", "zed-x", "zed2", "zed-2-3", "ze", "duck-1", "zed--2"].map(of);
        assert_eq!(none, [None; 8]);
    }
}
