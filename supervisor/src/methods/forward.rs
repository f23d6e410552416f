//! `quack.forward`: makes a port of a session reachable on this machine, at a port or by name, closes it, and lists such
//! ports.

use super::find::id_of;
use super::{Caller, Serve, own_reference};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::registry::{FindSession, Purpose, TakeSnapshot};
use crate::session::FoundSession;
use crate::session::network::{CloseForward, Forward, NetworkActor};
use crate::session::worker::OpenNetwork;
use actix::Addr;
use quackd_protocol::SessionId;
use quackd_protocol::client::{ForwardData, ForwardInfo, ForwardParams, SessionForward};
use quackd_protocol::tools::Tool;

impl Serve<ForwardParams> for Caller {
    async fn serve(&self, asked: ForwardParams) -> Result<ForwardData, MethodError> {
        let wanted = own_reference(asked.session_id.as_deref())?;
        let found = match wanted {
            Some(wanted) => Some(session(wanted, self).await?),
            None => None,
        };
        let id = found.as_ref().map(|found| found.session_id.clone());
        let mut link = None;
        let listen = match (found, asked.port) {
            _ if asked.list == Some(true) => None,
            // Only local clients may reach into a session.
            _ if self.client.transport != Transport::Socket => {
                return Err(MethodError::LocalForward);
            }
            (None, _) => return Err(MethodError::NoReference),
            (Some(_), None | Some(0)) => return Err(MethodError::NoPort),
            (Some(found), Some(port)) if asked.close == Some(true) => {
                close(&found, port, self).await?;
                None
            }
            (Some(found), Some(port)) if asked.link == Some(true) => {
                link = Some(link_to(&found, port, self).await?);
                None
            }
            (Some(found), Some(port)) => Some(open(&found, port, asked.local, self).await?),
        };
        let forwards = list(id.as_ref(), self).await?;
        Ok(ForwardData { listen, link, forwards })
    }
}

async fn session(wanted: String, caller: &Caller) -> Result<FoundSession, MethodError> {
    let reference = Some(id_of(caller, wanted).await?);
    let find = FindSession { reference, purpose: Purpose::Look };
    caller.registry.send(find).await??.ok_or(MethodError::NoSession)
}

async fn open(
    found: &FoundSession,
    port: u16,
    local: Option<u16>,
    caller: &Caller,
) -> Result<String, MethodError> {
    let network = network(found).await?.ok_or_else(|| no_worker(found))?;
    let local = local.unwrap_or(port);
    let opened = network.send(Forward { port, local }).await?;
    let local = opened.map_err(|refusal| MethodError::Forward { port, local, refusal })?;
    tracing::info!(session = %found.session_id, port, local, client = ?caller.client.id, "forwarding a port");
    Ok(format!("127.0.0.1:{local}"))
}

/// Returns the link to a port. Opens the listener of links first if necessary. The session needs no worker.
async fn link_to(found: &FoundSession, port: u16, caller: &Caller) -> Result<String, MethodError> {
    let links = &caller.services.links;
    links.open(&caller.registry)?;
    let builder = links.builder(&caller.registry).await;
    let link = builder.and_then(|links| links.link(&found.session_id, port));
    link.ok_or_else(|| MethodError::NoLinkName(found.session_name.clone()))
}

async fn close(found: &FoundSession, port: u16, caller: &Caller) -> Result<(), MethodError> {
    let known = caller.services.sessions.pool.networks.get(&found.session_id);
    let Some(known) =
        known.filter(|known| known.forwards.borrow().iter().any(|forward| forward.port == port))
    else {
        return Err(MethodError::NotForwarded(port));
    };
    if let Some(network) = network(found).await? {
        network.send(CloseForward(port)).await?;
    }
    let mut forwards = known.forwards.borrow_mut();
    let closed = forwards.iter().position(|forward| forward.port == port);
    if let Some(closed) = closed.map(|at| forwards.remove(at)) {
        let events = &caller.services.sessions.events;
        events.publish_typed(&found.session_id, "forward_closed", || closed);
    }
    Ok(())
}

async fn list(
    session: Option<&SessionId>,
    caller: &Caller,
) -> Result<Vec<SessionForward>, MethodError> {
    let snapshot = caller.registry.send(TakeSnapshot).await?;
    let all = caller.services.sessions.pool.networks.forwards();
    let wanted = all.into_iter().filter(|(id, _)| session.is_none_or(|session| session == id));
    let shown = wanted.map(|(session_id, forward)| {
        let label = snapshot.label(&session_id);
        SessionForward { session_id, label, forward }
    });
    Ok(shown.collect())
}

/// The owner of the network of the session's worker. `None` without a worker.
async fn network(found: &FoundSession) -> Result<Option<Addr<NetworkActor>>, MethodError> {
    Ok(found.actors.worker.send(OpenNetwork).await?)
}

fn no_worker(found: &FoundSession) -> MethodError {
    MethodError::NoWorkerToForward(found.session_name.clone())
}

/// The line about forwarded ports for the answers of the job tools. `None` without forwards.
pub(super) fn forwards_line(
    tool: Option<&Tool>,
    is_job: bool,
    session: &FoundSession,
    caller: &Caller,
) -> Option<String> {
    // A killed job no longer listens.
    let is_about_jobs = |tool: &Tool| tool.is_job_tool && !tool.is_destructive;
    if !is_job && !tool.is_some_and(is_about_jobs) {
        return None;
    }
    let network = caller.services.sessions.pool.networks.get(&session.session_id)?;
    let forwards = network.forwards.borrow();
    let shown = |it: &ForwardInfo| format!("port {} is 127.0.0.1:{}", it.port, it.local);
    let shown: Vec<_> = forwards.iter().map(shown).collect();
    (!shown.is_empty()).then(|| format!("[Forwarded to this machine: {}]", shown.join(", ")))
}
