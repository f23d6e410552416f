//! Definition of a configuration key. The keys are in [`crate::key`].

use crate::Config;
use crate::value_kind::ValueKind;
use serde_json::Value as Json;

/// One key of the configuration.
#[derive(Debug, Clone)]
pub struct Key {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) kind: ValueKind,
}

impl Key {
    /// Returns the name from the root of the file, such as `worker.idle_minutes`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the description: one or more sentences in Markdown.
    #[must_use]
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Returns the permitted values, for display.
    #[must_use]
    pub fn values(&self) -> String {
        self.kind.values()
    }

    /// Returns the built-in default.
    #[must_use]
    pub fn default(&self) -> Json {
        self.kind.show(&Config::default()).0
    }

    /// Returns the environment variable that overrides the file.
    #[must_use]
    pub fn variable(&self) -> Option<&'static str> {
        self.kind.variable()
    }

    /// Returns the table of the key and the name in it.
    pub(crate) fn path(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }
}
