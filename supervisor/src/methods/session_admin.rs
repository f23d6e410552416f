//! `workspaces`, `activate_session`, `quack.session_new`, `quack.session_delete`: list and change the sessions.

use super::attach::{joined, opening};
use super::caller::SAVE_LIMIT;
use super::copies::{check_room, make_copy, remove_copy};
use super::directories::{look_up_noted, own_path};
use super::find::{id_of, label};
use super::isolated::check_applied;
use super::sent::{self, SentPlace};
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::{
    Activate, AgentChange, Delete, Open, OpenSession, Purpose, Restrictions, SessionChange,
};
use crate::session::agent::native::mcp_servers::SetMcpServers;
use crate::session::agent::{
    AgentActor, GetAgentOptions, SetAgentOptions, create_blocking, fork_blocking,
    is_conversation_id,
};
use crate::session::created::Creation;
use crate::session::owner::Owner;
use crate::session::services::{NoLook, SessionServices};
use crate::voice::VoiceSession;
use crate::wire::reference;
use actix::prelude::*;
use quackd_config::EngineChoice;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    ActivateData, ActivateParams, AnySession, AttachData, ForkData, ForkParams, LOCAL_AGENT_CHOICE,
    SessionDeleteData, SessionDeleteParams, SessionNewParams, SessionSetData, SessionSetParams,
    WorkspacesData, WorkspacesParams,
};
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::foreign_text::{first_unsafe, message_line};
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::mcp::{MAX_MCP_SERVERS, McpServer};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use tokio::sync::Semaphore;

impl Serve<WorkspacesParams> for Caller {
    async fn serve(&self, _: WorkspacesParams) -> Result<WorkspacesData, MethodError> {
        let snapshot = self.snapshot().await?;
        Ok(WorkspacesData { workspaces: snapshot.workspaces(&self.services.sessions) })
    }
}

impl Serve<ActivateParams> for Caller {
    async fn serve(&self, params: AnySession) -> Result<ActivateData, MethodError> {
        let AnySession { session_id } = params;
        // Upstream treats an absent reference like an unknown one.
        let reference = reference(&session_id).unwrap_or_default();

        let data = self.registry.send(Activate { reference }).timeout(SAVE_LIMIT).await??;
        let (id, name) = (data.session.id.clone(), data.session.name.clone());
        let path = data.workspace.path.clone();
        self.services.voice.session_changed(&VoiceSession { id, name, path });
        Ok(data)
    }
}

impl Serve<SessionNewParams> for Caller {
    async fn serve(&self, params: SessionNewParams) -> Result<AttachData, MethodError> {
        let engine = params.engine.map(known_engine).transpose()?;
        let model = params.model.map(known_model).transpose()?;
        // A model costs money, and an engine runs with other rights.
        if (engine.is_some() || model.is_some()) && !self.is_local() {
            return Err(MethodError::LocalOnly(LOCAL_AGENT_CHOICE));
        }
        let is_isolated = params.isolated == Some(true) || params.send_to.is_some();
        if is_isolated && !self.is_local() {
            return Err(MethodError::LocalIsolated);
        }
        let place = params.send_to.as_deref().map(|to| sent::place_of(to, self)).transpose()?;

        let path = own_path(params.path.as_deref())?;
        let path = path.unwrap_or_else(|| self.services.daemon.started_in.clone());
        let (path, note) = look_up_noted(self, path).await?;
        let is_far = FarWorkspace::of(&path).is_some();
        if is_far && is_isolated {
            let is_sent = place.is_some();
            return Err(if is_sent { MethodError::FarSend } else { MethodError::FarIsolated });
        }
        if (is_far || place.is_some())
            && engine.as_ref().and_then(Option::as_deref).and_then(EngineChoice::named)
                == Some(EngineChoice::Pi)
        {
            return Err(MethodError::FarPi);
        }

        let file = match params.conversation_id {
            Some(id) => Some(new_conversation(self, path.clone(), id).await?),
            None => None,
        };
        let activate = params.activate.unwrap_or(false);
        let mut new = OpenSession {
            activate,
            safe_mode: params.safe_mode,
            agent: AgentChange { engine, model, file: file.clone() },
            restrictions: new_restrictions(params.restrictions_of, self).await?,
            client: self.client.own_name(),
            ..opening(self, path, Open::New(params.name))?
        };

        // First the copy, then the session: a session that is listed has one.
        let session = new.fresh.session_id.clone();
        let place = place.as_ref();
        let (creation, copy_note) = prepare(&mut new, place, is_isolated, self).await?;

        let opened = self.registry.send(new).timeout(SAVE_LIMIT).await;
        // After a timeout, the session may still be saved, and then needs both.
        if let Ok(Err(_refused)) = &opened {
            if let Some(file) = file {
                remove_conversation(self, file).await;
            }
            if is_isolated {
                remove_copies(&session, place, creation.as_ref(), self).await;
            }
            if let Some(creation) = creation {
                // The log names the command if this fails.
                creation.destroy(&self.services.sessions, &Owner::new(&self.registry)).await;
            }
        }

        let data = opened??;
        let label = label(self, &data.session.id).await?;
        let note = joined(joined(note, data.note), copy_note);
        let data = AttachData { note, label, ..data };
        if activate {
            self.services.voice.session_changed(&VoiceSession::from(&data));
        }
        Ok(data)
    }
}

/// Lets the engine create what a new session needs, makes the copy of an isolated one, and sends it if there is a place for
/// it. Returns what was created, and the note about the copy. After an error nothing of it stays.
async fn prepare(
    new: &mut OpenSession,
    place: Option<&FarWorkspace>,
    is_isolated: bool,
    caller: &Caller,
) -> Result<(Option<Creation>, Option<String>), MethodError> {
    let (services, owner) = (&caller.services.sessions, Owner::new(&caller.registry));
    let session = new.fresh.session_id.clone();
    let far = place.cloned().or_else(|| FarWorkspace::of(&new.path));
    if let Some(far) = far.clone() {
        new.created = Creation::make(services, &owner, far, session.clone()).await?;
    }

    let creation = Creation::of(&session, far, new.created.clone());
    if !is_isolated {
        return Ok((creation, None));
    }
    match give_copy(new, place, caller).await {
        Ok(note) => Ok((creation, Some(note))),
        Err(error) => {
            if let Some(creation) = creation {
                creation.destroy(services, &owner).await;
            }
            Err(error)
        }
    }
}

/// Makes the copy of a new session, and sends it if there is a place for it. Returns the note about it.
async fn give_copy(
    new: &mut OpenSession,
    place: Option<&FarWorkspace>,
    caller: &Caller,
) -> Result<String, MethodError> {
    let (session, created) = (new.fresh.session_id.clone(), new.created.clone());
    let mut copied = new_copy(&caller.services.sessions, &session, &new.path).await?;
    let note = match place {
        None => Ok(copied_in_words(&copied)),
        Some(far) => {
            let place = SentPlace { session: &session, far, created: created.as_deref() };
            send_copy(place, &new.path, &mut copied, caller).await
        }
    };
    if note.is_err() {
        remove_copy(&caller.services.sessions, &session).await;
    }
    new.isolated = Some(copied);
    note
}

/// Removes the copy of a session that was not created, here and at its place.
async fn remove_copies(
    session: &SessionId,
    place: Option<&FarWorkspace>,
    creation: Option<&Creation>,
    caller: &Caller,
) {
    remove_copy(&caller.services.sessions, session).await;
    if let Some(far) = place {
        let created = creation.map(|creation| creation.created.as_str());
        // Without a link, the files stay there.
        sent::remove(SentPlace { session, far, created }, caller).await.ok();
    }
}

/// Makes the copy of a new isolated session, if there is room for it.
async fn new_copy(
    services: &Rc<SessionServices>,
    session: &SessionId,
    path: &str,
) -> Result<CopiedTree, MethodError> {
    check_room(services, session).await?;
    let hidden = services.daemon.config.sandbox.hidden.value.clone();
    let hidden = hidden.into_iter().map(PathBuf::from).collect();
    make_copy(services, session, path, hidden).await
}

/// Sends the copy of a new session. Returns the note about it.
async fn send_copy(
    place: SentPlace<'_>,
    path: &str,
    copied: &mut CopiedTree,
    caller: &Caller,
) -> Result<String, MethodError> {
    let outputs = std::mem::take(&mut copied.outputs);
    let bytes = sent::send_new(place, path, copied, caller).await?;
    let mut text = copied_in_words(copied);
    let mebibytes = bytes.div_ceil(1024 * 1024);
    text.push_str(&format!("; {mebibytes} MiB were sent to {}", place.far.place()));
    if !outputs.is_empty() {
        let mut names: Vec<_> =
            outputs.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
        if MAX_NAMED < outputs.len() {
            names.push(format!("{} more", outputs.len() - MAX_NAMED));
        }
        text.push_str(&format!("; ignored directories were not sent: {}", names.join(", ")));
    }
    copied.outputs = outputs;
    Ok(message_line(&text, MAX_NOTE))
}

/// Most ignored directories that a note names, and its longest text in characters.
const MAX_NAMED: usize = 5;
const MAX_NOTE: usize = 2_000;

/// Describes a new copy in one line.
fn copied_in_words(copied: &CopiedTree) -> String {
    let mebibytes = copied.bytes.div_ceil(1024 * 1024);
    let mut text = format!("a private copy of {} files ({mebibytes} MiB)", copied.files);

    if !copied.outputs.is_empty() {
        let n = copied.outputs.len();
        text.push_str(&format!(
            ", with private layers over {n} ignored director{}",
            if n == 1 { "y" } else { "ies" }
        ));
    }

    for note in &copied.notes {
        text.push_str("; ");
        text.push_str(note);
    }
    text
}

/// Creates the file of a conversation with this id.
async fn new_conversation(
    caller: &Caller,
    workspace: String,
    id: String,
) -> Result<String, MethodError> {
    if !is_conversation_id(&id) {
        return Err(MethodError::ConversationId);
    }

    let services = &caller.services.sessions;
    let home = services.daemon.home.clone();
    let make = move || create_blocking(&home, &workspace, &id);
    on_disk(services, make).await?.map_err(MethodError::Conversation)
}

/// Runs file system access. A disk that hangs is an error like the others of the file system.
async fn on_disk<T: Send + 'static>(
    services: &SessionServices,
    access: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>, MethodError> {
    match services.look(SAVE_LIMIT, access).await {
        Ok(result) => Ok(result),
        Err(NoLook::Ended) => Err(MethodError::ShuttingDown),
        Err(NoLook::TimedOut) => Ok(Err(io::Error::other("the disk does not respond"))),
    }
}

/// Removes the file of a conversation that no session has.
async fn remove_conversation(caller: &Caller, file: String) {
    let services = &caller.services.sessions;
    // `quack gc --histories` finds a file that stays.
    services.look(SAVE_LIMIT, move || std::fs::remove_file(file)).await.ok();
}

/// Returns the sessions whose restrictions a new session takes over.
async fn new_restrictions(
    restrictions_of: Option<String>,
    caller: &Caller,
) -> Result<Restrictions, MethodError> {
    let base = caller.restrictions();
    Ok(match restrictions_of {
        None => base,
        Some(reference) if reference == EVERY_SESSION => {
            Restrictions { of_workspace: true, ..base }
        }
        Some(reference) => {
            let of_session = Some(SessionId(id_of(caller, reference).await?));
            Restrictions { of_session, ..base }
        }
    })
}

/// Reference in `restrictionsOf` that means every session of the workspace.
const EVERY_SESSION: &str = "*";

/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 256;

/// Checks the name of an engine. `None` for the default.
fn known_engine(engine: String) -> Result<Option<String>, MethodError> {
    match EngineChoice::named(&engine) {
        Some(EngineChoice::Auto) => Ok(None),
        Some(EngineChoice::Native | EngineChoice::Pi) => Ok(Some(engine)),
        None => Err(MethodError::UnknownEngine),
    }
}

/// Checks the name of a model. `None` for the default.
fn known_model(model: String) -> Result<Option<String>, MethodError> {
    let model = model.trim();
    if model.is_empty() {
        return Ok(None);
    }
    if MAX_MODEL < model.len() {
        return Err(MethodError::BadModel);
    }
    match first_unsafe(model) {
        None => Ok(Some(model.to_owned())),
        Some(c) => Err(MethodError::UnsafeModel(c)),
    }
}

/// Checks MCP servers of a client.
fn usable_servers(servers: Vec<McpServer>) -> Result<Vec<McpServer>, MethodError> {
    if MAX_MCP_SERVERS < servers.len() {
        return Err(MethodError::TooManyMcpServers);
    }
    let mut names = BTreeSet::new();
    for (index, server) in servers.iter().enumerate() {
        let position = index + 1;
        server.check().map_err(|problem| MethodError::McpServer { position, problem })?;
        if !names.insert(&server.name) {
            return Err(MethodError::McpServerTwice { position });
        }
    }
    Ok(servers)
}

impl Serve<SessionSetParams> for Caller {
    async fn serve(&self, params: SessionSetParams) -> Result<SessionSetData, MethodError> {
        let SessionSetParams { session_id, engine, model, mcp_servers, agent_options } = params;
        let mcp_servers = mcp_servers.map(usable_servers).transpose()?;
        if let Some(options) = &agent_options {
            options.check().map_err(MethodError::AgentOptions)?;
        }
        let engine = engine.map(known_engine).transpose()?;
        let model = model.map(known_model).transpose()?;

        let found = self.session(reference(&session_id), Purpose::Describe).await?;
        let session = found.session_id.clone();
        let change = SessionChange::Agent(AgentChange { engine, model, file: None });
        self.change(&session, change).await?;

        // Read again: the parameters may set only a part of the choice.
        let chosen = self.session(Some(session.0.clone()), Purpose::Describe).await?.agent;
        if let Some(servers) = mcp_servers {
            found.actors.agent.send(SetMcpServers(servers)).await?;
        }
        if let Some(options) = agent_options {
            found.actors.agent.send(SetAgentOptions(options)).await?;
        }
        Ok(SessionSetData { session_id: session, engine: chosen.engine, model: chosen.model })
    }
}

/// Permit for the only running fork.
static FORKING: Semaphore = Semaphore::const_new(1);

impl Serve<ForkParams> for Caller {
    /// Creates a session that continues the conversation of another one.
    async fn serve(&self, params: ForkParams) -> Result<ForkData, MethodError> {
        let ForkParams { session_id, entry_id, name, activate } = params;
        let found = self.session(reference(&session_id), Purpose::Look).await?;
        if found.isolated.is_some() {
            return Err(MethodError::IsolatedFork);
        }
        if found.is_far() && !self.is_local() {
            return Err(MethodError::LocalFar);
        }

        let services = &self.services.sessions;
        let home = services.daemon.home.clone();
        let (source, workspace) = (found.pi_session_file.clone(), found.workspace_path.clone());
        // Each has the conversation in memory.
        let turn = FORKING.try_acquire().map_err(|_held| MethodError::ForkBusy)?;
        let make = move || {
            let _turn = turn;
            fork_blocking(&home, &source, &workspace, entry_id.as_deref())
        };
        let forked = on_disk(services, make).await?.map_err(MethodError::Fork)?;

        let activate = activate.unwrap_or(false);
        let of_session = Some(found.session_id.clone());
        let new = OpenSession {
            activate,
            safe_mode: found.safe_mode.then_some(true),
            agent: AgentChange {
                engine: Some(found.agent.engine),
                model: Some(found.agent.model),
                file: Some(forked.path.clone()),
            },
            restrictions: Restrictions { of_session, ..self.restrictions() },
            client: self.client.own_name(),
            ..opening(self, found.workspace_path, Open::New(name))?
        };
        let opened = self.registry.send(new).timeout(SAVE_LIMIT).await;
        if let Ok(Err(_refused)) = &opened {
            remove_conversation(self, forked.path.clone()).await;
        }

        let data = opened??;
        let session = data.session.id.clone();
        copy_options(self, &found.actors.agent, &session).await?;
        if activate {
            self.services.voice.session_changed(&VoiceSession::from(&data));
        }
        Ok(ForkData {
            session_id: session,
            session_name: data.session.name,
            session_file: forked.path,
            text: forked.text,
            note: data.note,
        })
    }
}

/// Gives a new session the agent's options of the session that it continues.
async fn copy_options(
    caller: &Caller,
    source: &Addr<AgentActor>,
    session: &SessionId,
) -> Result<(), MethodError> {
    let options = source.send(GetAgentOptions).await?;
    let found = caller.session(Some(session.0.clone()), Purpose::Describe).await?;
    found.actors.agent.send(SetAgentOptions(options)).await?;
    Ok(())
}

impl Serve<SessionDeleteParams> for Caller {
    async fn serve(&self, params: SessionDeleteParams) -> Result<SessionDeleteData, MethodError> {
        let SessionDeleteParams { session_id, force } = params;
        let reference = reference(&session_id).ok_or(MethodError::NoReference)?;
        let reference = id_of(self, reference).await?;
        let label = label(self, &SessionId(reference.clone())).await?;
        let (force, is_remote) = (force.unwrap_or(false), !self.is_local());
        // As with discard: a client that may not apply changes must not delete them.
        let page = self.client.page.get();
        let may_discard = !is_remote || page.is_some_and(|page| page.rights.apply);
        check_applied(self, &reference, &label, force && may_discard).await?;
        let found = self.session(Some(reference.clone()), Purpose::Describe).await?;
        let place = found.sent().and_then(|sent| FarWorkspace::of(&sent.place));
        let creation = Creation::of(&found.session_id, found.far(), found.created.clone());

        let delete = Delete::Session { reference: reference.clone(), force, is_remote };
        let deleted = self.registry.send(delete).timeout(SAVE_LIMIT).await??;
        let deleted = deleted.ok_or(MethodError::SessionNotFound(reference))?;
        self.services.interrupted.resumed(&deleted.session.id);
        let mut note = None;
        if let Some(far) = &place {
            let place =
                SentPlace { session: &found.session_id, far, created: found.created.as_deref() };
            note = sent::remove(place, self).await.err().map(|error| {
                let place = far.shown();
                format!("the files in {place} were left: {error}")
            });
        }
        if let Some(creation) = creation {
            let owner = Owner::new(&self.registry);
            let left = creation.destroy(&self.services.sessions, &owner).await;
            note = joined(note, left);
        }
        Ok(SessionDeleteData { label, note, ..deleted })
    }
}
