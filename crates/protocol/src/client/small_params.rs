//! Parameters of methods that have none, that take a session only, or that share a struct with others. A client calls
//! a different type for each method; their JSON is that of the shared struct.

use super::{PolicyScope, SandboxParams};
use crate::policy::PolicyPatch;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// Reply of a method without data. If a newer daemon sends some, they are ignored.
#[derive(Debug, Clone, Copy)]
pub struct NoData;

impl<'de> Deserialize<'de> for NoData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_ignored| Self)
    }
}

/// Permits nothing: the data is always absent.
impl JsonSchema for NoData {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NoData".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        false.into()
    }
}

/// Gives a type the schema of another type.
macro_rules! schema_like {
    ($own:ty, $shown:ty) => {
        impl JsonSchema for $own {
            fn schema_name() -> Cow<'static, str> {
                <$shown>::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                <$shown>::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$shown>::json_schema(generator)
            }
        }
    };
}

macro_rules! without_parameters {
    ($($name:ident = $method:literal),+ $(,)?) => {$(
        #[doc = concat!("`", $method, "` has no parameters.")]
        #[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
        pub struct $name {}

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "object" })
            }
        }
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

/// [`SessionParams`] as the daemon reads them for upstream's methods: the reference is any JSON value.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnySession {
    /// Session reference; null if absent.
    pub session_id: Value,
}

macro_rules! with_session {
    ($($name:ident = $method:literal),+ $(,)?) => {$(
        #[doc = concat!("`", $method, "` parameters.")]
        #[derive(Debug, Clone, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub SessionParams);

        schema_like!($name, SessionParams);

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

/// Session of a request of `quack.sandbox`. The active session if both fields are absent.
#[derive(Debug, Clone, Default)]
pub struct SandboxSession {
    /// Session reference. Wins over `path`.
    pub session_id: Option<String>,
    /// Directory whose session is found or created.
    pub path: Option<String>,
}

impl SandboxSession {
    /// Returns the session with this reference.
    #[must_use]
    pub fn of(session: impl Into<String>) -> Self {
        Self { session_id: Some(session.into()), path: None }
    }
}

macro_rules! sandbox_actions {
    ($($name:ident = $action:literal { $($field:ident: $type:ty),* })+) => {$(
        #[doc = concat!("`quack.sandbox` with the action `", $action, "`.")]
        #[derive(Debug, Clone, Default, Serialize, Deserialize)]
        #[serde(from = "SandboxParams", into = "SandboxParams")]
        pub struct $name {
            /// The session.
            pub session: SandboxSession,
            $(
                #[doc = concat!("As in [`SandboxParams::", stringify!($field), "`].")]
                pub $field: $type,
            )*
        }

        schema_like!($name, SandboxParams);

        impl From<SandboxParams> for $name {
            fn from(params: SandboxParams) -> Self {
                let SandboxParams { session_id, path, $($field,)* .. } = params;
                Self { session: SandboxSession { session_id, path }, $($field),* }
            }
        }

        impl From<$name> for SandboxParams {
            fn from(params: $name) -> Self {
                let $name { session: SandboxSession { session_id, path }, $($field),* } = params;
                let action = Some($action.to_owned());
                Self { action, session_id, path, $($field,)* ..Self::default() }
            }
        }
    )+};
}

// Each action has the parameters that it uses. The daemon reads and ignores the other ones.
sandbox_actions! {
    SandboxShow = "show" {}
    SandboxSet = "set" {
        scope: Option<PolicyScope>,
        reset: Option<bool>,
        end_jobs: Option<bool>,
        patch: PolicyPatch
    }
    SandboxAllow = "allow" {
        rules: Option<Vec<String>>,
        credentials: Option<Vec<String>>,
        scope: Option<PolicyScope>,
        end_jobs: Option<bool>
    }
    SandboxRevoke = "revoke" { rules: Option<Vec<String>>, end_jobs: Option<bool> }
    SandboxDenials = "denials" {}
    SandboxNetwork = "network" { after: Option<u64> }
    SandboxPresets = "presets" { rules: Option<Vec<String>> }
    SandboxAudit = "audit" { since_ms: Option<u64> }
    SandboxExplain = "explain" { target: Option<String> }
    SandboxExplainHost = "explain" { host: Option<String> }
}
