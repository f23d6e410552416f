//! `quack.models`: the models of quackd's own agent.

use crate::model::{ModelInfo, ThinkingLevel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `quack.models` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelsParams {
    /// True: send one short request to the chosen model. Its provider may charge for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<bool>,
    /// A model to find, as `provider/model` or only its name. An unknown one is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub find: Option<String>,
}

/// `quack.models` data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelsData {
    /// The model that a new session uses; absent if none can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChosenModel>,
    /// Models of providers with a key, and of local servers.
    pub models: Vec<ModelInfo>,
    /// Problems of the configuration, each in one line.
    pub problems: Vec<String>,
    /// Instructions in several lines; absent if there is a chosen model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Result of the request; absent without `test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<ModelTest>,
    /// Day in UTC on which a provider was last asked for its models, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub listed: BTreeMap<String, String>,
    /// The model of `find`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<ModelInfo>,
}

/// The model that a new session uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChosenModel {
    /// The model.
    pub model: ModelInfo,
    /// Reason for the choice, such as `OPENAI_API_KEY is set`.
    pub why: String,
    /// The thinking level.
    pub thinking: ThinkingLevel,
    /// Source of the key, such as `OPENAI_API_KEY` or `no key`.
    pub key_source: String,
}

/// Result of a request to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelTest {
    /// Whether the model answered.
    pub ok: bool,
    /// Time until the end of the answer, in milliseconds.
    pub ms: u64,
    /// The beginning of the answer, or the error.
    pub text: String,
}
