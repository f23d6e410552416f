//! Checks of the daemon and its configuration: `doctor` and `quack.config`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `doctor` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DoctorParams {
    /// Ask the user's login shell for its environment again before the checks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refresh_environment: bool,
}

/// `doctor` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorData {
    /// In a fixed order.
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// One of `daemon socket config log metadata sandbox environment providers sessions remote …`.
    pub name: String,
    /// Result of the check.
    pub status: CheckStatus,
    /// Finding, one line.
    pub message: String,
    /// Advice, one line; absent if there is nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Result of a check.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// No problem.
    Ok,
    /// Works, with something that the user should know.
    Warn,
    /// Does not work.
    Fail,
}

/// `quack.config` data: the configuration that the daemon runs with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigData {
    /// Path of the configuration file at the daemon's start.
    pub path: String,
    /// Whether the file existed at that time.
    pub exists: bool,
    /// Every key.
    pub settings: Vec<ConfigSetting>,
}

/// One key of [`ConfigData`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigSetting {
    /// Name of the key, such as `worker.idle_minutes`.
    pub key: String,
    /// The value in force; null without a value.
    pub value: Value,
    /// Origin of the value: `default`, a file with its line, or a variable.
    pub origin: String,
}
