//! Configuration file as text whose other bytes stay the same. Used by [`super::plan`].
//!
//! Byte order marks and CRLF line ends are removed before the parsers read the text, and restored after an edit.

use super::json::JsonDocument;
use super::setting::Setting;
use super::toml::TomlDocument;
use super::yaml::YamlDocument;
use crate::exit::CliError;
use serde_json::Value;

/// Syntax of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Toml,
    Yaml,
}

/// Parsed file. A path consists of keys; all but the last one name tables.
pub(super) trait Document {
    /// Returns the value at `path`.
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
        let is_kept =
            |item: &Value| item.as_str().is_none_or(|text| !items.iter().any(|it| it == text));
        self.set(path, &Value::Array(all.into_iter().filter(is_kept).collect()).into())
    }
}

/// Returns the error for a value of another kind.
pub(super) fn wrong_kind(path: &[&str], kind: &str) -> anyhow::Error {
    CliError::failed(format!("`{}` is not {kind}", path.join("."))).into()
}

/// Applies `edit` to `text` and returns the new text.
///
/// # Errors
/// The text cannot be parsed, the parser would change other bytes, or the edit fails.
pub(super) fn edit(
    format: Format,
    text: &str,
    edit: impl FnOnce(&mut dyn Document) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let (mark, rest) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let is_crlf =
        rest.contains("\r\n") && rest.matches('\n').count() == rest.matches("\r\n").count();
    let body = if is_crlf { rest.replace("\r\n", "\n") } else { rest.to_owned() };
    let mut document = parse(format, &body)?;
    let rendered = document.render();
    // toml_edit ends the last line.
    if rendered != body && rendered.strip_suffix('\n') != Some(&body) {
        let why = "the parser does not reproduce the file, so an edit would change other lines";
        return Err(CliError::failed(why).into());
    }
    edit(document.as_mut())?;
    let changed = document.render();
    if changed == rendered {
        return Ok(text.to_owned());
    }
    // A parser that cannot read its own output must not damage the file.
    parse(format, &changed)?;
    let changed = if is_crlf { changed.replace('\n', "\r\n") } else { changed };
    Ok(format!("{mark}{changed}"))
}

fn parse(format: Format, text: &str) -> anyhow::Result<Box<dyn Document>> {
    Ok(match format {
        Format::Json => Box::new(JsonDocument::parse(text)?),
        Format::Toml => Box::new(TomlDocument::parse(text)?),
        Format::Yaml => Box::new(YamlDocument::parse(text)?),
    })
}
