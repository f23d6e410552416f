//! Types of `quack.sandbox` for the network by host, and of `quack.forward`.

use crate::SessionId;
use crate::network::LogEntry;
use crate::policy::NetworkMode;
use crate::state::FoundHost;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.sandbox` data of `network`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`.
    pub label: String,
    /// Network of the session.
    pub mode: NetworkMode,
    /// The last requests, oldest first; with `after`, those with a higher number. At most
    /// [`crate::limits::MAX_NETWORK_LOG`].
    pub requests: Vec<NetworkRequest>,
    /// Totals since the daemon started, by host.
    pub hosts: Vec<HostTotals>,
    /// Number of the last request.
    pub last: u64,
    /// Requests that were counted nowhere, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

/// A request of a command for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRequest {
    /// Counts up from 1 for each session.
    pub number: u64,
    /// When it finished or was refused, ISO 8601 UTC.
    pub at: String,
    /// The request.
    #[serde(flatten)]
    pub entry: LogEntry,
}

/// Requests for one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostTotals {
    /// Name or address.
    pub host: String,
    /// Requests that were forwarded.
    pub allowed: u64,
    /// Requests that were refused.
    pub denied: u64,
    /// Requests that were allowed and failed.
    pub failed: u64,
    /// Bytes from the session.
    pub sent: u64,
    /// Bytes to the session.
    pub received: u64,
    /// When the last one finished, ISO 8601 UTC.
    pub last_at: String,
}

/// `quack.sandbox` data of `explain` with a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostExplained {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// The host as the rules see it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Network of the session.
    pub mode: NetworkMode,
    /// Verdict about a connection.
    pub verdict: HostVerdict,
    /// The rule that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Origin of the rule: `session`, `workspace`, `configuration`, `grant g3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// All of this in words.
    pub text: String,
    /// The command that changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// Verdict about a connection of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostVerdict {
    /// It is forwarded.
    Allowed,
    /// It is refused.
    Denied,
    /// The user is asked, if a client that can answer is connected.
    Asks,
}

/// `quack.sandbox` data of `presets`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PresetsData {
    /// The presets.
    pub presets: Vec<PresetInfo>,
}

/// A list of hosts with a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PresetInfo {
    /// Name, without `@`.
    pub name: String,
    /// Purpose.
    pub about: String,
    /// Rules of the hosts.
    pub hosts: Vec<String>,
    /// True if the hosts are those that the user's tools are configured to use.
    pub derived: bool,
    /// Derived: source of each host. Empty before the tools were asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<FoundHost>,
    /// Derived: when the tools reported the hosts, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_at: Option<String>,
    /// Derived: sources without a usable answer, if the tools were asked for this reply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Not derived: date of the last test with the real program. Absent if it was never tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tested: Option<String>,
    /// Warning for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// `quack.forward` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardParams {
    /// Session reference. Absent with `list` for all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Port in the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Port of this machine; `port` if absent, 0 for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<u16>,
    /// True for a link by name to `port`, in place of a forward: `http://3000.web.localhost:43112`. It cannot be
    /// closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<bool>,
    /// True to close the forward of `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close: Option<bool>,
    /// True to list the forwards only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<bool>,
}

/// `quack.forward` data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardData {
    /// The address on this machine of the new forward: `127.0.0.1:3000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// The link that was asked for: `http://3000.web.localhost:43112`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// All forwards of the session, or of all sessions.
    pub forwards: Vec<SessionForward>,
}

/// A forward with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionForward {
    /// The session.
    pub session_id: SessionId,
    /// Display label.
    pub label: String,
    /// The forward.
    #[serde(flatten)]
    pub forward: ForwardInfo,
}

/// A port of a session that is reachable on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForwardInfo {
    /// Port in the session.
    pub port: u16,
    /// Port of 127.0.0.1 on this machine.
    pub local: u16,
    /// When it was opened, ISO 8601 UTC.
    pub since: String,
}

/// A server of a session with a private network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// TCP port in the session.
    pub port: u16,
    /// Address of the server for a browser. Absent until a link was asked for with `quack.forward`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
