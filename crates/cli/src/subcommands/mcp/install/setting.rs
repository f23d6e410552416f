//! Value of one setting in a client's configuration. Keeps the order of keys, which `serde_json::Value` does not.

use serde_json::{Map, Number, Value};

/// Value that [`super::document::Document`] reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Table(Vec<(String, Self)>),
}

impl Setting {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn list<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        Self::List(items.into_iter().map(Self::text).collect())
    }

    pub(super) fn table<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        Self::Table(pairs.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// Returns the value for comparison and for `--json`.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(value) => Value::Number(value.clone()),
            Self::Text(value) => Value::String(value.clone()),
            Self::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Self::Table(pairs) => Value::Object(
                pairs
                    .iter()
                    .map(|(key, value)| (key.clone(), value.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

impl From<Value> for Setting {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(value) => Self::Number(value),
            Value::String(value) => Self::Text(value),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(pairs) => {
                Self::Table(pairs.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}
