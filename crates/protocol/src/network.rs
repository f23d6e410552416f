//! Messages of the network proxy: frames between the supervisor and one proxy, and packets between a proxy and the
//! worker of its session.
//!
//! The frames have the format of [`crate::worker`]. A packet is one JSON value of at most [`MAX_PACKET_BYTES`] on a
//! sequenced-packet socket pair, perhaps with descriptors. The supervisor creates the pair for each worker. It reads the
//! first packet, which has the sockets of the worker's network namespace, and then gives its end to the proxy.
//!
//! A router is a proxy process without a session: it owns the listener of links, `http://PORT.NAME.localhost`. It finds
//! the name and the port, and passes each connection with a [`RouteAsk`] to the supervisor, which passes it on to the
//! proxy of the session with a [`RoutedPacket`].
//!
//! The supervisor treats both a worker and a proxy as hostile: the proxy parses bytes of commands and of the network.

mod route;

pub use route::{MAX_ROUTED, ROUTE_HEAD_TIME, RouteAnswer, RouteAsk, RouteRefusal, RoutedPacket};

use crate::SessionId;
use crate::approval::AnswerScope;
use crate::credentials::{
    CredentialAnswer, CredentialRefusal, CredentialRequest, GitGateway, RefusedCredential,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Version of these frames.
pub const PROXY_PROTOCOL: u32 = 3;

/// Name by which commands reach services of this machine that a rule for `machine` allows.
pub const MACHINE_HOST: &str = "host.quackd.internal";

/// Port of the HTTP and SOCKS proxy on 127.0.0.1 in the worker's network namespace.
pub const PROXY_PORT: u16 = 61_080;

/// Port of the resolver on 127.0.0.1 in the worker's network namespace.
pub const RESOLVER_PORT: u16 = 53;

/// Longest packet between a proxy and a worker, in bytes.
pub const MAX_PACKET_BYTES: usize = 4096;

/// Most sockets in the first packet of a worker.
pub const MAX_PROXY_SOCKETS: usize = 24;

/// Most ports with a listener for programs that do not use the HTTP proxy.
pub const MAX_TRANSPARENT_PORTS: usize = 16;

/// Ports that always have such a listener.
pub const USUAL_PORTS: [u16; 3] = [22, 80, 443];

/// Most entries in one [`FromProxy::Log`].
pub const MAX_LOG_ENTRIES: usize = 64;

/// Unacknowledged [`FromProxy::Log`] frames that a proxy may send. Without credit it merges and drops entries, and
/// counts them. The supervisor returns credits every 250 ms, so one proxy reports at most 512 entries per second.
pub const LOG_CREDITS: u32 = 2;

/// Tags of [`ToProxy`].
pub const TO_PROXY_TAGS: &[&str] = &[
    "start",
    "route",
    "rules",
    "answered",
    "allow_once",
    "forward",
    "close_forward",
    "credential_done",
    "forget_credentials",
    "log_taken",
    "ping",
    "shutdown",
];

/// Tags of [`FromProxy`].
pub const FROM_PROXY_TAGS: &[&str] =
    &["hello", "cannot_start", "ask", "credential", "log", "forwarded", "pong"];

/// Most unanswered [`FromProxy::Ask`] frames of one proxy.
pub const MAX_PROXY_ASKS: usize = 32;

/// Longest time that a connection waits for an answer of the user. Programs give up after 10 to 60 s.
pub const MAX_CONNECTION_WAIT: Duration = Duration::from_secs(30);

/// Time in which a host that the user allowed once may be connected to.
pub const ALLOWED_ONCE: Duration = Duration::from_secs(60);

/// Supervisor to proxy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToProxy {
    /// First frame, with descriptors: the end of the pair to the worker, then the sockets in the order of
    /// [`ProxyStart::sockets`]. Answered by [`FromProxy::Hello`].
    Start(Box<ProxyStart>),
    /// First frame of a router, with descriptors: the end of the pair to the supervisor, then the listener. Answered by
    /// [`FromProxy::Hello`]. After it a router gets only [`ToProxy::Ping`] and [`ToProxy::Shutdown`].
    Route {
        /// [`PROXY_PROTOCOL`] of the supervisor.
        proto: u32,
    },
    /// Replaces all rules. Connections that the new rules do not allow are closed within 1 s.
    Rules(Rules),
    /// Answer to [`FromProxy::Ask`].
    Answered {
        /// Id of the question.
        id: u64,
        /// The scope with which the user allowed it, or the reason of the refusal.
        result: Result<AnswerScope, DenyReason>,
    },
    /// Allow connections to this host and port for [`ALLOWED_ONCE`].
    AllowOnce {
        /// Name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// Listen on 127.0.0.1 of this machine and pass connections on to a port of the session. Answered by
    /// [`FromProxy::Forwarded`].
    Forward {
        /// Chosen by the supervisor.
        id: u64,
        /// Port in the session.
        port: u16,
        /// Port of this machine. 0 for any.
        local: u16,
    },
    /// Stop listening, and close the connections of the forward.
    CloseForward {
        /// Id of the forward.
        id: u64,
    },
    /// Answer to [`FromProxy::Credential`].
    CredentialDone {
        /// Id of the request.
        id: u64,
        /// The credential, or the reason why there is none.
        result: Result<CredentialAnswer, CredentialRefusal>,
        /// Text of the [`CredentialUse`](crate::credentials::CredentialUse). `None` if it is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        used_as: Option<String>,
    },
    /// Forget credentials of repositories: a grant was removed.
    ForgetCredentials {},
    /// The supervisor has taken `n` [`FromProxy::Log`] frames.
    LogTaken {
        /// Number of frames.
        n: u32,
    },
    /// Liveness probe.
    Ping {
        /// Counts up from 1.
        seq: u64,
    },
    /// Exit with 0.
    Shutdown {},
}

/// Settings of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyStart {
    /// [`PROXY_PROTOCOL`] of the supervisor.
    pub proto: u32,
    /// The session.
    pub session_id: SessionId,
    /// Label of the session, for refusals.
    pub label: String,
    /// Kinds of the passed sockets. If the machine's network is on, only [`SocketKind::Routed`]: then the proxy only
    /// serves forwards and links.
    pub sockets: Vec<SocketKind>,
    /// Rules at the start.
    pub rules: Rules,
    /// Proxy of the user's network. Without it the proxy connects directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamVariables>,
    /// Settings for git over https with credentials of the user. Without it, the proxy does not serve that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitGateway>,
}

/// Values of the variables that name the proxy of the user's network, without passwords. Empty if they are not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamVariables {
    /// `ALL_PROXY`.
    pub all: String,
    /// `HTTP_PROXY`.
    pub http: String,
    /// `HTTPS_PROXY`.
    pub https: String,
    /// `NO_PROXY`.
    pub no: String,
}

/// Kind of a socket in the worker's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketKind {
    /// Listens on 127.0.0.1, [`PROXY_PORT`], for HTTP and SOCKS5.
    Proxy,
    /// Receives queries for names on 127.0.0.1, port 53.
    ResolverUdp,
    /// Listens for queries for names on 127.0.0.1, port 53.
    ResolverTcp,
    /// Listens on all addresses of the namespace. The proxy refuses connections whose local address is outside of
    /// 198.18.0.0/15.
    Transparent(u16),
    /// Listens on a Unix socket in the session's private home, for the protocol of ssh agents.
    SshAgent,
    /// Not of the namespace: the end of a pair by which the supervisor passes connections to servers of the session,
    /// each in a [`RoutedPacket`]. A worker may not pass one.
    Routed,
}

/// All rules of a session, after the layers were resolved and the presets replaced by their hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The rules.
    pub rules: Vec<RuleText>,
    /// True if a client can answer a question about a host that no rule names: the proxy then sends
    /// [`FromProxy::Ask`] before it refuses a connection.
    #[serde(default)]
    pub asks: bool,
    /// True if a setting turns the network off, in contrast to a network that is off because no setting allows a host:
    /// nothing is asked, and what the user allowed once no longer counts.
    #[serde(default)]
    pub is_off: bool,
}

/// One rule with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleText {
    /// The rule, such as `!*.example.com:443`. Never a preset.
    pub rule: String,
    /// Origin for display: `session`, `workspace, @github`, `grant g3`.
    pub origin: String,
}

/// Proxy to supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromProxy {
    /// The proxy is confined and ready.
    Hello {
        /// [`PROXY_PROTOCOL`] of the proxy.
        proto: u32,
        /// Parts of its confinement that this system does not have.
        notes: Vec<String>,
    },
    /// Sent instead of [`FromProxy::Hello`].
    CannotStart {
        /// One line.
        reason: String,
    },
    /// A command connects to a host that no rule names. The connection waits. At most [`MAX_PROXY_ASKS`] questions are
    /// open, each for another host and port. Answered by [`ToProxy::Answered`].
    Ask {
        /// Chosen by the proxy.
        id: u64,
        /// Name or address, as the rules see it.
        host: String,
        /// The port.
        port: u16,
        /// For an address of a local network: the name that leads to it, which the rules or the user have allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A command wants to use a credential of the user. At most
    /// [`MAX_CREDENTIAL_REQUESTS`](crate::credentials::MAX_CREDENTIAL_REQUESTS) are open. Answered by
    /// [`ToProxy::CredentialDone`].
    Credential {
        /// Chosen by the proxy.
        id: u64,
        /// The request.
        request: CredentialRequest,
    },
    /// Finished and refused requests. Costs one of [`LOG_CREDITS`].
    Log {
        /// At most [`MAX_LOG_ENTRIES`].
        entries: Vec<LogEntry>,
        /// Entries that were dropped for lack of credit.
        #[serde(default)]
        dropped: u64,
    },
    /// Answer to [`ToProxy::Forward`].
    Forwarded {
        /// Id of the forward.
        id: u64,
        /// The port of this machine, or the reason why it cannot be used.
        result: Result<u16, ForwardError>,
    },
    /// Answer to [`ToProxy::Ping`].
    Pong {
        /// The number of the ping.
        seq: u64,
    },
}

/// Reason why a forward was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardError {
    /// Another program listens on the port.
    InUse,
    /// Ports below 1024 need rights that the proxy does not have.
    Privileged,
    /// Any other error.
    Failed,
}

/// One request of a command for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// Name or address, as the rules see it.
    pub host: String,
    /// The port. 0 for a query of the resolver.
    pub port: u16,
    /// Route of the request.
    pub path: RequestPath,
    /// Outcome of the request.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The rule that decided, as the user wrote it, with its origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Number of equal requests that this entry stands for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Bytes from the session.
    #[serde(default)]
    pub sent: u64,
    /// Bytes to the session.
    #[serde(default)]
    pub received: u64,
    /// Duration in milliseconds, of the longest if there are several.
    #[serde(default)]
    pub took_ms: u64,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

/// Route of a request to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestPath {
    /// `CONNECT` of HTTP.
    Connect,
    /// A request of HTTP with a whole address.
    Http,
    /// SOCKS5.
    Socks,
    /// A connection to a synthetic address.
    Transparent,
    /// A query for a name.
    Dns,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", content = "why", rename_all = "kebab-case")]
pub enum Verdict {
    /// Forwarded, and finished.
    Allowed,
    /// Refused.
    Denied(DenyReason),
    /// Allowed, but the host could not be resolved or reached, or the connection broke.
    Failed(FailReason),
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DenyReason {
    /// No rule names the host and port.
    NotListed,
    /// A rule denies it.
    DenyRule,
    /// The name leads to an address of this machine, of a local network or of a cloud's metadata service.
    PrivateAddress,
    /// The server name of TLS or a `Host` field differs from the requested name.
    NameMismatch,
    /// The request is malformed.
    Syntax,
    /// Too many connections.
    TooMany,
    /// No rule names it, and no client that can answer is connected.
    NoAnswerer,
    /// The user denied it.
    DeniedByUser,
    /// The user was asked and did not answer in time.
    Timeout,
    /// Too many questions are open.
    TooManyAsks,
}

impl DenyReason {
    /// Returns the name on the wire and in the `Quackd-Denied` field.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotListed => "not-listed",
            Self::DenyRule => "deny-rule",
            Self::PrivateAddress => "private-address",
            Self::NameMismatch => "name-mismatch",
            Self::Syntax => "syntax",
            Self::TooMany => "too-many",
            Self::NoAnswerer => "no-answerer",
            Self::DeniedByUser => "denied-by-user",
            Self::Timeout => "timeout",
            Self::TooManyAsks => "too-many-asks",
        }
    }
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailReason {
    /// The name does not exist or no resolver answered.
    Unresolved,
    /// No address accepted the connection.
    Unreachable,
    /// The proxy of the user's network did not make the connection.
    Upstream,
    /// The connection broke or was silent for too long.
    Broken,
    /// A rule that was removed closed it.
    RuleRemoved,
}

/// Packet from a worker. The first one goes to the supervisor, the others to the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorkerPacket {
    /// First packet, with one descriptor for each kind, in this order. At most [`MAX_PROXY_SOCKETS`].
    Sockets(Vec<SocketKind>),
    /// Answer to [`ToWorkerPacket::Connect`], with the connected socket as descriptor.
    Connected {
        /// Id of the request.
        id: u64,
    },
    /// Answer to [`ToWorkerPacket::Connect`]: no server of the session has the port.
    NotConnected {
        /// Id of the request.
        id: u64,
    },
}

/// Packet from a proxy to the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorkerPacket {
    /// A request was refused. Sent before the refusal is, so that the worker knows it when the command ends.
    Refused {
        /// Name or address.
        host: String,
        /// The port. 0 for a query of the resolver.
        port: u16,
        /// Reason.
        why: DenyReason,
        /// The address, with [`DenyReason::PrivateAddress`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Seconds that the request waited for an answer of the user.
        #[serde(default)]
        waited_s: u64,
    },
    /// The user was asked about a connection and allowed it.
    Approved {
        /// Name or address.
        host: String,
        /// The port.
        port: u16,
        /// Scope of the answer.
        scope: AnswerScope,
    },
    /// A credential of the user was not used.
    CredentialRefused(RefusedCredential),
    /// Connect to a server on the loopback of the worker's network namespace.
    Connect {
        /// Chosen by the proxy.
        id: u64,
        /// The port.
        port: u16,
    },
}
