//! `quack.keys`: variables with keys of model providers, from the shell of a client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `quack.keys` parameters. `Debug` shows no value.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KeysParams {
    /// Values by the name of their variable. A blank value hides the one that the daemon has.
    pub variables: BTreeMap<String, String>,
    /// Whether stored keys may have changed: the daemon reads them before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reload: Option<bool>,
}

impl std::fmt::Debug for KeysParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// `quack.keys` data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeysData {
    /// Names of the variables that the daemon has from clients, sorted.
    pub names: Vec<String>,
    /// Names of all variables of model providers that have a value for the daemon, also its own ones and those of the
    /// login shell.
    #[serde(default)]
    pub in_use: Vec<String>,
}
