//! `quack.hello`, `quack.claim`: a client names itself and gets separate sessions.

use super::attach::opening;
use super::caller::SAVE_LIMIT;
use super::copies::check_room;
use super::directories::{look_up_noted, own_path};
use super::find::{enclosing, label};
use super::isolated::{refresh_copy, renew_copy};
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::{Claim, Delete, Open, OpenSession, Restrictions};
use quackd_protocol::client::{AttachData, ClaimParams, HelloParams, NoData};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::foreign_text::check_name;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::limits::{MAX_CLIENT_DOOR_CHARS, MAX_CLIENT_NAME_CHARS};

impl Serve<HelloParams> for Caller {
    async fn serve(&self, mut hello: HelloParams) -> Result<NoData, MethodError> {
        let HelloParams { client, door } = &mut hello;
        client.version.take_if(|version| version.is_empty());
        door.take_if(|door| door.is_empty());

        for (what, text, max) in [
            ("name", Some(&client.name), MAX_CLIENT_NAME_CHARS),
            ("version", client.version.as_ref(), MAX_CLIENT_NAME_CHARS),
            ("door", door.as_ref(), MAX_CLIENT_DOOR_CHARS),
        ] {
            let checked = text.map_or(Ok(()), |text| check_name(text, max));
            checked.map_err(|error| MethodError::HelloText(what, error))?;
        }

        self.client.set_hello(hello);
        Ok(NoData)
    }
}

impl Serve<ClaimParams> for Caller {
    async fn serve(&self, params: ClaimParams) -> Result<AttachData, MethodError> {
        let ClaimParams { path, safe_mode, keep_jobs, session_id, isolated } = params;
        let path = own_path(Some(&path))?.ok_or(MethodError::EmptyPath)?;
        // An agent in a subdirectory means the same workspace as its user there.
        let path = enclosing(self, path.clone()).await?.unwrap_or(path);
        let (path, note) = look_up_noted(self, path).await?;

        let is_isolated = isolated == Some(true);
        if is_isolated && FarWorkspace::of(&path).is_some() {
            return Err(MethodError::FarIsolated);
        }
        let kind = Open::Claimed(Claim {
            client: self.client.id.as_str().to_owned(),
            keep_jobs: keep_jobs.unwrap_or(false),
            preferred: session_id,
            isolated: is_isolated,
        });
        let open = OpenSession {
            safe_mode,
            restrictions: Restrictions::default(),
            client: self.client.own_name(),
            // Without its copy, which comes next, an isolated session runs nothing.
            isolated: is_isolated.then(CopiedTree::default),
            ..opening(self, path, kind)?
        };
        let new_id = open.fresh.session_id.clone();
        let claimed_before = self.client.claims.all();
        let data = self.registry.send(open).timeout(SAVE_LIMIT).await??;

        if is_isolated && data.session.id == new_id {
            copy_for(self, &data).await?;
        } else if is_isolated && !claimed_before.contains(&data.session.id) {
            refresh_copy(self, &data.session.id).await?;
        }

        let label = label(self, &data.session.id).await?;
        Ok(AttachData { note, label, ..data })
    }
}

/// Makes the copy of a new session, or deletes the session.
async fn copy_for(caller: &Caller, data: &AttachData) -> Result<(), MethodError> {
    let (session, workspace) = (&data.session.id, &data.workspace.path);
    let made = match check_room(&caller.services.sessions, session).await {
        Ok(()) => renew_copy(caller, session, workspace).await,
        Err(full) => Err(full),
    };
    let Err(error) = made else { return Ok(()) };

    // A failed deletion is only logged: the client gets the reason why there is no copy.
    let reference = session.0.clone();
    let delete = Delete::Session { reference, force: true, is_remote: false };
    if let Err(error) = caller.registry.send(delete).timeout(SAVE_LIMIT).await? {
        tracing::warn!(%session, %error, "session without a copy not deleted");
    }
    Err(error)
}
