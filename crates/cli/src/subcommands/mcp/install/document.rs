//! Configuration file as text whose other bytes stay the same. Used by [`super::plan`].

use super::setting::Setting;
use crate::exit::CliError;
use serde_json::Value;

/// Parsed file. A path consists of keys; all but the last one name tables.
pub(super) trait Document {
    /// Returns the value at `path`. `None` if a part of the path does not exist.
    fn get(&self, path: &[&str]) -> Option<Value>;

    /// Sets the value at `path` and creates missing tables.
    ///
    /// # Errors
    /// A key on the path has a value that is not a table.
    fn set(&mut self, path: &[&str], value: &Setting) -> anyhow::Result<()>;

    /// Removes the value at `path`, if it exists.
    fn remove(&mut self, path: &[&str]);

    /// Returns the text of the file.
    fn render(&self) -> String;

    /// Appends `items` to the list at `path` and creates a missing list.
    ///
    /// # Errors
    /// The value is not a list, or a key on the path is not a table.
    fn append(&mut self, path: &[&str], items: &[&str]) -> anyhow::Result<()> {
        let mut all = match self.get(path) {
            None => Vec::new(),
            Some(Value::Array(all)) => all,
            Some(_) => return Err(wrong_kind(path, "a list")),
        };
        all.extend(items.iter().map(|item| Value::from(*item)));
        self.set(path, &Value::Array(all).into())
    }

    /// Removes `items` from the list at `path`.
    fn remove_items(&mut self, path: &[&str], items: &[String]) -> anyhow::Result<()> {
        let Some(Value::Array(all)) = self.get(path) else { return Ok(()) };
        let is_kept = |item: &Value| {
            item.as_str().is_none_or(|text| !items.iter().any(|removed| removed == text))
        };
        self.set(path, &Value::Array(all.into_iter().filter(is_kept).collect()).into())
    }
}

/// Returns the error for a value of another kind.
pub(super) fn wrong_kind(path: &[&str], kind: &str) -> anyhow::Error {
    CliError::failed(format!("`{}` is not {kind}", path.join("."))).into()
}
