//! Edits a configuration file of any format.
//!
//! Byte order marks and CRLF line ends are removed before the parsers read the text, and restored after an edit.

use super::document::Document;
use super::json::JsonDocument;
use super::toml::TomlDocument;
use super::yaml::YamlDocument;
use crate::exit::CliError;

/// Syntax of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Toml,
    Yaml,
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
        let text = "the parser does not reproduce the file, so an edit would change other lines";
        return Err(CliError::failed(text).into());
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
