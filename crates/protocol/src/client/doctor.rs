//! Looking the daemon over: `doctor` and `quack.config`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `doctor` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DoctorParams {
    /// Ask the user's login shell for its environment again before looking.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refresh_environment: bool,
}

/// `doctor` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorData {
    /// In a fixed order.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Its name: `daemon socket config log metadata sandbox environment providers sessions remote …`.
    pub name: String,
    /// How it is.
    pub status: CheckStatus,
    /// What was found, one line.
    pub message: String,
    /// What to do about it, one line; absent if nothing is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How a check ended.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// It works, but something is worth knowing.
    Warn,
    /// It does not work.
    Fail,
}

/// `quack.config` data: the configuration that the daemon runs with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigData {
    /// The file that was looked for at the daemon's start.
    pub path: String,
    /// Whether it existed then.
    pub exists: bool,
    /// Every key.
    pub settings: Vec<ConfigSetting>,
}

/// One key of [`ConfigData`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigSetting {
    /// Such as `worker.idle_minutes`.
    pub key: String,
    /// The value in force; null if it has none.
    pub value: Value,
    /// Where it comes from: `default`, a file with its line, or a variable.
    pub origin: String,
}
