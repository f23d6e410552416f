//! Parses the text of the file: from TOML to keys, each with its line. Used by [`crate::load_blocking`].

use crate::error::quoted;
use crate::mcp_servers::{self, EntryError};
use crate::suggest::nearest;
use crate::{Config, ConfigError, Origin, engines, guest_agents, keys};
use quackd_protocol::foreign_text::one_line;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value in the file and the position of its name.
struct FileValue<'a> {
    /// Name from the root. Parts that need quotes are quoted; such a name is never a known key.
    name: String,
    /// Position in bytes from the start.
    at: usize,
    value: &'a Spanned<DeValue<'a>>,
}

/// Applies the settings of the text to `config`. Returns the first error from the top.
pub(crate) fn apply(config: &mut Config, path: &Path, text: &str) -> Result<(), ConfigError> {
    let document = DeTable::parse(text).map_err(|error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        let message = one_line(error.message());
        ConfigError::Syntax { path: path.to_owned(), line, column, message }
    })?;

    let mut leaves = leaves(document.get_ref());
    // The first error from the top is the one that the user sees first in the file.
    leaves.sort_by_key(|leaf| leaf.at);

    let line_of = |at| position(text, at).0;
    for FileValue { name, at, value } in leaves {
        let refused = |at, message| ConfigError::Value {
            path: path.to_owned(),
            line: line_of(at),
            key: name.clone(),
            message,
        };
        let origin = |at| Origin::File { path: path.to_owned(), line: line_of(at) };
        let of_entry = |EntryError { key, message, at }| {
            let (path, line) = (path.to_owned(), line_of(at));
            match message {
                Some(message) => ConfigError::Value { path, line, key, message },
                None => ConfigError::UnknownKey { path, line, nearest: None, key },
            }
        };
        if name == mcp_servers::TABLE {
            config.mcp_servers = mcp_servers::read(value, origin).map_err(of_entry)?;
        } else if name == guest_agents::TABLE {
            config.agents = guest_agents::read(value, origin).map_err(of_entry)?;
        } else if name == engines::TABLE {
            config.engine_rows = engines::read(value, origin).map_err(of_entry)?;
        } else if let Some(key) = keys().iter().find(|key| key.name() == name) {
            key.kind.read(config, value, origin(at)).map_err(|e| refused(e.at, e.message))?;
        } else if is_table_of_ours(&name) {
            return Err(refused(
                at,
                format!("must be a table: write `[{name}]` on a separate line"),
            ));
        } else {
            return Err(ConfigError::UnknownKey {
                path: path.to_owned(),
                line: line_of(at),
                nearest: nearest(&name).map(str::to_owned),
                key: name,
            });
        }
    }
    Ok(())
}

fn is_table_of_ours(name: &str) -> bool {
    keys().iter().any(|key| key.path().0 == name)
}

/// Returns the values of our tables and all other entries of the root. Descends no deeper than one level.
fn leaves<'a>(root: &'a DeTable<'a>) -> Vec<FileValue<'a>> {
    let mut leaves = Vec::new();
    for (name, value) in root {
        let table = quoted(name.get_ref());
        match value.get_ref().as_table().filter(|_| is_table_of_ours(&table)) {
            Some(inner) => leaves.extend(inner.iter().map(|(name, value)| FileValue {
                name: format!("{table}.{}", quoted(name.get_ref())),
                at: name.span().start,
                value,
            })),
            None => leaves.push(FileValue { name: table, at: name.span().start, value }),
        }
    }
    leaves
}

/// Returns the line and column, from 1, of the byte offset `at`.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..text.floor_char_boundary(at)).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before.get(line_start..).unwrap_or_default().chars().count();
    (before.matches('\n').count() + 1, column + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_lines_and_characters_from_one() {
        let text = "äb\ncd\n";
        let found = [0, 2, 3, 4, 6, 7, 999].map(|at| position(text, at));
        assert_eq!(found, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 1)]);
        assert_eq!((position("", 0), position("ä", 1)), ((1, 1), (1, 1)));
    }
}
