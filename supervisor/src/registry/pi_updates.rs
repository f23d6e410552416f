//! What a session's Pi says of itself and the metadata keeps: where it writes the conversation, and the name that
//! a person gave it there.

use super::Registry;
use crate::session::owner::PiTold;
use actix::prelude::*;
use std::sync::Arc;

/// Sessions that nobody has named are called so, with a number behind it.
const UNNAMED: &str = "duck-";

impl Handler<PiTold> for Registry {
    type Result = Option<String>;

    fn handle(&mut self, msg: PiTold, ctx: &mut Self::Context) -> Self::Result {
        let PiTold { session, session_file, session_name } = msg;
        let found = self.metadata.sessions.iter().position(|one| one.id == session)?;
        let known = self.metadata.sessions.get(found)?;
        let file = session_file.filter(|file| *file != known.pi_session_file);
        let name =
            session_name.filter(|name| known.name.starts_with(UNNAMED) && *name != known.name);
        let shown = name.clone().unwrap_or_else(|| known.name.clone());
        if file.is_none() && name.is_none() || self.draining {
            return Some(shown);
        }
        let session = Arc::make_mut(&mut self.metadata).sessions.get_mut(found)?;
        if let Some(file) = file {
            session.pi_session_file = file;
        }
        if let Some(name) = name {
            session.name = name;
        }
        // A failure is in the log, and takes the change back; Pi tells it again after its next turn.
        drop(self.save(ctx));
        Some(shown)
    }
}
