//! Requests to the owner of a proxy, from the worker's actor, the router and `quack.forward`, and its report to the
//! worker's actor. `mod.rs` handles the requests.

use super::link::ForeignSocket;
use crate::errors::ForwardRefusal;
use actix::prelude::*;
use quackd_policy::hosts::{HostPort, SessionRules};
use quackd_protocol::network::RouteRefusal;
use std::sync::Arc;

/// The rules or safe mode may have changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SetRules {
    pub(crate) rules: Arc<SessionRules>,
    pub(crate) is_safe: bool,
}

/// Forward a port of this machine to a port of the session. The reply is the port of this machine.
#[derive(Debug, Message)]
#[rtype(result = "Result<u16, ForwardRefusal>")]
pub(crate) struct Forward {
    pub(crate) port: u16,
    /// The requested port of this machine. 0 for any.
    pub(crate) local: u16,
}

/// Close the forward of this port of the session.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct CloseForward(pub(crate) u16);

/// Pass a connection on to a server of the session.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), RouteRefusal>")]
pub(crate) struct Route {
    pub(crate) port: u16,
    pub(crate) client: ForeignSocket,
}

/// Allow connections to this host and port for a while. The worker's actor passes it on to the proxy's owner.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct AllowOnce(pub(crate) HostPort);

/// The last running call has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct CallsEnded;

/// The worker has exited.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct EndNetwork;

/// The proxy has failed for good, and the sockets of the worker of this generation stay without one. Replace the worker as
/// soon as nothing runs in it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct NetworkFailed {
    pub(crate) generation: u64,
}
