//! The session that a client means: by a reference, by a directory, or the active one. Used by the methods of quackd.

use super::Registry;
use super::catalog;
use crate::errors::MethodError;
use crate::registry::labels::{Found, Labels};
use actix::prelude::*;
use quackd_home::Workspace;
use quackd_protocol::SessionId;
use quackd_protocol::client::{FindBy, FoundInfo};
use quackd_protocol::metadata::{Metadata, Session};
use std::path::Path;

/// Find a session and change nothing.
#[derive(Debug, Clone, Message)]
#[rtype(result = "Result<Option<FoundInfo>, MethodError>")]
pub(crate) struct Which {
    pub(crate) reference: Option<String>,
    /// Where the client works. Decides between several sessions with the name `reference`.
    pub(crate) directory: Option<Workspace>,
}

/// The label of a session. Empty if the session was deleted.
#[derive(Debug, Message)]
#[rtype(result = "String")]
pub(crate) struct LabelOf(pub(crate) SessionId);

impl Handler<LabelOf> for Registry {
    type Result = String;

    fn handle(&mut self, LabelOf(id): LabelOf, _: &mut Self::Context) -> Self::Result {
        let known = self.metadata.sessions.iter().find(|session| session.id == id);
        known.map(|session| Labels::new(&self.metadata).of(session)).unwrap_or_default()
    }
}

impl Handler<Which> for Registry {
    type Result = ResponseActFuture<Self, Result<Option<FoundInfo>, MethodError>>;

    /// `Ok(None)`: nothing is named, and no session is active. Looks for sessions that another program has just made.
    fn handle(&mut self, msg: Which, ctx: &mut Self::Context) -> Self::Result {
        let found = which(&self.metadata, &msg);
        let looking = match found {
            Err(MethodError::SessionNotFound(_)) => self.look_for_more(ctx),
            _ => None,
        };
        match looking {
            None => Box::pin(actix::fut::ready(found)),
            Some(looking) => {
                let again = looking.into_actor(self);
                Box::pin(again.map(move |(), registry, _| which(&registry.metadata, &msg)))
            }
        }
    }
}

fn which(metadata: &Metadata, msg: &Which) -> Result<Option<FoundInfo>, MethodError> {
    let labels = Labels::new(metadata);
    let directory = msg.directory.as_ref();
    let (session, by) = if let Some(reference) = &msg.reference {
        let here = directory.map(|directory| directory.path.as_str());
        match labels.look_up(reference, here) {
            Found::One(session) => (session, FindBy::Reference),
            Found::Nothing => return Err(MethodError::SessionNotFound(reference.clone())),
            Found::Several { labels, has_more } => {
                let reference = reference.clone();
                return Err(MethodError::Ambiguous { reference, labels, has_more });
            }
        }
    } else if let Some(session) = directory.and_then(|it| of_directory(metadata, it)) {
        (session, FindBy::Directory)
    } else if let Some(session) = catalog::active(metadata) {
        (session, FindBy::Active)
    } else {
        return Ok(None);
    };
    let path = catalog::workspace_of(metadata, session).map(|workspace| workspace.path.clone());
    Ok(Some(FoundInfo {
        session_id: session.id.clone(),
        session_name: session.name.clone(),
        label: labels.of(session),
        workspace_path: path.unwrap_or_else(|| "unknown".to_owned()),
        by,
    }))
}

/// Returns the session of the workspace at a directory. Without one, and outside of repositories, the session of the
/// nearest workspace that contains the directory.
fn of_directory<'a>(metadata: &'a Metadata, directory: &Workspace) -> Option<&'a Session> {
    let path = Path::new(&directory.path);
    let levels = if directory.is_repository { 1 } else { usize::MAX };
    // The root contains every directory.
    let above = path.ancestors().take(levels).filter(|above| above.parent().is_some());
    above.filter_map(Path::to_str).find_map(|above| {
        let workspace = metadata.workspaces.iter().find(|workspace| workspace.path == above)?;
        catalog::preferred(metadata, workspace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known() -> Metadata {
        serde_json::from_value(json!({
            "version": 1, "activeVoiceSessionId": "i3",
            "workspaces": [{"id": "w1", "path": "/src/app"}, {"id": "w2", "path": "/src/app/sub/lib"},
                {"id": "w3", "path": "/src/web"}, {"id": "w4", "path": "/src/app/none"}, {"id": "w5", "path": "/"}],
            "sessions": [{"id": "i1", "workspaceId": "w1", "name": "duck-1"},
                {"id": "i2", "workspaceId": "w2", "name": "duck-1"}, {"id": "i3", "workspaceId": "w3", "name": "duck-1"},
                {"id": "i5", "workspaceId": "w5", "name": "root"}],
        }))
        .unwrap()
    }

    #[test]
    fn a_reference_counts_before_the_directory_and_the_directory_before_the_active_session() {
        let metadata = known();
        for (reference, directory, is_repository, expected) in [
            (Some("web"), Some("/src/app"), false, Some(("i3", FindBy::Reference))),
            (Some("duck-1"), Some("/src/app"), false, Some(("i1", FindBy::Reference))),
            (Some("duck-1"), Some("/elsewhere"), false, None),
            (Some("none"), Some("/src/app"), false, None),
            (None, Some("/src/app"), true, Some(("i1", FindBy::Directory))),
            (None, Some("/src/app/sub"), false, Some(("i1", FindBy::Directory))),
            (None, Some("/src/app/none/x"), false, Some(("i1", FindBy::Directory))),
            (None, Some("/src/app/sub"), true, Some(("i3", FindBy::Active))),
            (None, Some("/src/app/sub/lib/x/y"), false, Some(("i2", FindBy::Directory))),
            (None, Some("/src/application"), false, Some(("i3", FindBy::Active))),
            (None, Some("/"), false, Some(("i3", FindBy::Active))),
            (None, None, false, Some(("i3", FindBy::Active))),
        ] {
            let msg = Which {
                reference: reference.map(str::to_owned),
                directory: directory.map(|path| Workspace {
                    path: path.to_owned(),
                    foreign: None,
                    is_repository,
                }),
            };
            let found = which(&metadata, &msg).ok().flatten();
            let found = found.as_ref().map(|found| (found.session_id.as_str(), found.by));
            assert_eq!(found, expected, "{reference:?} {directory:?}");
        }
    }
}
