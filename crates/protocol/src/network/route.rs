//! Packets of routed connections: from the router to the supervisor, and from there to the proxy of a session.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most connections that a router reads, or for which it waits for the supervisor. Further ones wait in the listener.
pub const MAX_ROUTED: usize = 256;

/// Time for the head of the first request of a routed connection.
pub const ROUTE_HEAD_TIME: Duration = Duration::from_secs(5);

/// Packet from a router to the supervisor, with the unread connection as descriptor. At most [`MAX_ROUTED`] have no
/// [`RouteAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAsk {
    /// Chosen by the router.
    pub id: u64,
    /// Name of the session in the address, in lower case. At most 63 bytes.
    pub name: String,
    /// Port in the session.
    pub port: u16,
}

/// Packet from the supervisor to a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteAnswer {
    /// Id of the request.
    pub id: u64,
    /// Whether the connection was passed on. The router answers refused connections.
    pub result: Result<(), RouteRefusal>,
}

/// Reason why a connection was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteRefusal {
    /// No session has the name.
    NoSession,
    /// Several sessions have the name.
    Ambiguous,
    /// The session has no running worker.
    NoWorker,
    /// Too many connections wait for the proxy of the session.
    Busy,
}

/// Packet from the supervisor to the proxy of a session, with a connection as descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedPacket {
    /// Port in the session.
    pub port: u16,
}
