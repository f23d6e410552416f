//! `quack.forward`: makes a port of a session reachable on this machine, at a port or by name, closes it, and lists such
//! ports.

use super::attach::named;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::registry::Purpose;
use crate::session::FoundSession;
use crate::session::network::{CloseForward, Forward, NetworkActor};
use crate::session::worker::OpenNetwork;
use actix::Addr;
use quackd_protocol::SessionId;
use quackd_protocol::client::{ForwardData, ForwardInfo, ForwardParams, SessionForward};
use quackd_protocol::tools::Tool;

impl Serve<ForwardParams> for Caller {
    async fn serve(&self, params: ForwardParams) -> Result<ForwardData, MethodError> {
        let found = match named(params.session_id.as_deref(), None, self).await? {
            None => None,
            reference => Some(self.session(reference, Purpose::Look).await?),
        };

        let id = found.as_ref().map(|found| found.session_id.clone());
        let mut link = None;
        let listen = match (found, params.port) {
            _ if params.list == Some(true) => None,
            // Only local clients may reach into a session.
            _ if !self.is_local() => return Err(MethodError::LocalForward),
            (None, _) => return Err(MethodError::NoReference),
            (Some(found), _) if found.is_far() => {
                return Err(MethodError::FarForward);
            }
            (Some(_), None | Some(0)) => return Err(MethodError::NoPort),
            (Some(found), Some(port)) if params.close == Some(true) => {
                close(&found, port, self).await?;
                None
            }
            (Some(found), Some(port)) if params.link == Some(true) => {
                link = Some(link_to(&found, port, self).await?);
                None
            }
            (Some(found), Some(port)) => Some(open(&found, port, params.local, self).await?),
        };

        let forwards = list(id.as_ref(), self).await?;
        Ok(ForwardData { listen, link, forwards })
    }
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
    let snapshot = caller.snapshot().await?;

    let all = caller.services.sessions.pool.networks.forwards();
    let of = all.into_iter().filter(|(id, _)| session.is_none_or(|session| session == id));
    let rows = of.map(|(session_id, forward)| {
        let label = snapshot.label(&session_id);
        SessionForward { session_id, label, forward }
    });
    Ok(rows.collect())
}

/// Returns the owner of the network of the session's worker. `None` without a worker.
async fn network(found: &FoundSession) -> Result<Option<Addr<NetworkActor>>, MethodError> {
    Ok(found.actors.worker.send(OpenNetwork).await?)
}

fn no_worker(found: &FoundSession) -> MethodError {
    MethodError::NoWorkerToForward(found.session_name.clone())
}

/// Returns the line about forwarded ports for the answers of the job tools. `None` without forwards.
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
    let port = |it: &ForwardInfo| format!("port {} is 127.0.0.1:{}", it.port, it.local);
    let ports: Vec<_> = forwards.iter().map(port).collect();
    (!ports.is_empty()).then(|| format!("[Forwarded to this machine: {}]", ports.join(", ")))
}
