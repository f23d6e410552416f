//! Parameters of methods that have none, that take a session only, or that share a struct with others. A client calls
//! a different type for each method; their JSON is that of the shared struct.

use super::SandboxParams;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;

/// Reply of a method without data. If a newer daemon sends some, they are ignored.
#[derive(Debug, Clone, Copy)]
pub struct NoData;

impl<'de> Deserialize<'de> for NoData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_ignored| Self)
    }
}

impl JsonSchema for NoData {
    fn schema_name() -> Cow<'static, str> {
        "NoData".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "null" })
    }
}

macro_rules! without_parameters {
    ($($name:ident = $method:literal),+ $(,)?) => {$(
        #[doc = concat!("`", $method, "` has no parameters.")]
        #[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
        pub struct $name {}
    )+};
}

without_parameters! {
    PingParams = "ping",
    WorkspacesParams = "workspaces",
    UnfollowParams = "unfollow",
    ConfigParams = "quack.config",
    PsParams = "quack.ps",
    MetricsParams = "quack.metrics",
    DaemonParams = "quack.daemon",
    TreeParams = "quack.tree",
    ShutdownParams = "quack.shutdown",
}

/// Parameters of methods that take a session reference only (`abort`).
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionParams {
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

macro_rules! with_session {
    ($($name:ident = $method:literal),+ $(,)?) => {$(
        #[doc = concat!("`", $method, "` parameters.")]
        #[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub SessionParams);

        impl $name {
            /// Returns the parameters for this session.
            #[must_use]
            pub fn of(session: impl Into<String>) -> Self {
                Self(SessionParams { session_id: Some(session.into()) })
            }
        }
    )+};
}

with_session! {
    ActivateParams = "activate_session",
    StateParams = "get_state",
    AbortParams = "abort",
    KillParams = "quack.kill",
}

macro_rules! sandbox_actions {
    ($($name:ident = $action:literal),+ $(,)?) => {$(
        #[doc = concat!("`quack.sandbox` with the action `", $action, "`, whose reply is not the policy.")]
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(SandboxParams);

        impl From<SandboxParams> for $name {
            fn from(params: SandboxParams) -> Self {
                Self(SandboxParams { action: Some($action.to_owned()), ..params })
            }
        }
    )+};
}

// `show`, `set`, `allow` and `revoke` reply with the policy: `SandboxParams` itself is their method.
sandbox_actions! {
    SandboxDenials = "denials",
    SandboxNetwork = "network",
    SandboxPresets = "presets",
    SandboxAudit = "audit",
    SandboxExplain = "explain",
    SandboxExplainHost = "explain",
}
