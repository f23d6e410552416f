//! Settings of the user, lists of providers, and the model that is chosen by them.

use crate::ListedModel;
use quackd_protocol::model::{ModelApi, ModelInfo, ThinkingLevel};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A value of the user, and the name of its source for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Not blank.
    pub value: String,
    /// Such as "`model.name` in quackd.toml".
    pub source: String,
}

/// `[model]` of the configuration.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Id of the model, optionally after its provider and a slash.
    pub name: Option<Given>,
    /// The provider.
    pub provider: Option<Given>,
    /// The thinking level.
    pub thinking: Option<Given>,
    /// Base URL of the provider.
    pub base_url: Option<Given>,
    /// API of the provider.
    pub api: Option<ModelApi>,
    /// Key of the provider, or the reason why the keychain has none.
    pub key: Option<Result<SecretString, String>>,
    /// Maximum number of tokens of input and output together.
    pub context_window: Option<u64>,
    /// Maximum number of tokens of an answer.
    pub max_tokens: Option<u64>,
    /// Maximum time without a byte of the provider.
    pub idle_timeout: Duration,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            name: None,
            provider: None,
            thinking: None,
            base_url: None,
            api: None,
            key: None,
            context_window: None,
            max_tokens: None,
            idle_timeout: crate::MODEL_IDLE_TIMEOUT,
        }
    }
}

/// Lists of providers by their names. Serialized as the file that keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelLists(pub BTreeMap<String, ModelList>);

/// The list of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelList {
    /// Base URL that was asked, without a secret.
    pub base: String,
    /// Day on which it was asked, such as `2026-11-27`. For display only.
    pub day: String,
    /// The models.
    pub models: Vec<ListedModel>,
}

impl ModelLists {
    /// Returns the models of the provider, if it was asked at this address and has said something.
    pub(super) fn of(&self, provider: &str, base: &str) -> &[ListedModel] {
        let list = self.0.get(provider).filter(|list| list.base == base);
        list.map_or(&[], |list| &list.models)
    }
}

/// The model that a session uses by default.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The model.
    pub model: ModelInfo,
    /// Reason for the choice, such as "OPENAI_API_KEY is set".
    pub why: String,
    /// The thinking level; off if the model does not reason.
    pub thinking: ThinkingLevel,
    /// Source of the key, such as "OPENAI_API_KEY" or "no key".
    pub key_source: String,
    /// Text for the user if the model stands in for one that its provider no longer offers.
    pub notice: Option<String>,
}
