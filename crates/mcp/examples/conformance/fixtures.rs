//! The texts, images and schemas that the scenarios want, from `fixtures.json`.

use rmcp::model::{ErrorData, Tool};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The content of `fixtures.json`, by kind and name.
#[derive(Debug)]
pub(crate) struct Fixtures(Value);

impl Fixtures {
    pub(crate) fn read() -> serde_json::Result<Self> {
        serde_json::from_str(include_str!("fixtures.json")).map(Self)
    }

    /// Returns the value under these two keys.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0.get(kind)?.get(name)
    }

    /// Returns all values of a kind.
    pub(crate) fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<T, ErrorData> {
        parsed(self.0.get(kind).cloned().unwrap_or_default())
    }

    pub(crate) fn tools(&self) -> Result<Vec<Tool>, ErrorData> {
        let about = "A fixture without arguments";
        let schema = json!({"type": "object"});
        let plain = |name| json!({"name": name, "description": about, "inputSchema": schema});
        let mut tools: Vec<Value> = self.all("tools")?;
        tools.extend(self.all::<Vec<String>>("plain")?.into_iter().map(plain));
        tools.into_iter().map(parsed).collect()
    }
}

/// Reads a value of the protocol.
pub(crate) fn parsed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
