//! Requests to the owner of a proxy, from the session's actor, the router and `quack.forward`. `mod.rs` handles them.

use super::link::ForeignSocket;
use crate::errors::ForwardRefusal;
use actix::prelude::*;
use quackd_policy::hosts::{HostPort, SessionRules};
use quackd_protocol::network::RouteRefusal;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Request to the owner of a proxy.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) enum TellNetwork {
    /// The rules have changed.
    Rules(Arc<SessionRules>),
    /// Forward a port of this machine to a port of the session. The reply is the port of this machine.
    Forward { port: u16, local: u16, reply: oneshot::Sender<Result<u16, ForwardRefusal>> },
    /// Close a forward.
    Close { port: u16 },
    /// Pass a connection on to a server of the session.
    Route { port: u16, client: ForeignSocket, reply: oneshot::Sender<Result<(), RouteRefusal>> },
    /// Allow connections to this host and port for a while.
    AllowOnce(HostPort),
    /// The last running call has ended.
    CallsEnded,
    /// The worker has exited.
    End,
}
