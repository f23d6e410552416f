//! The table of configuration keys. Each key is defined only here: reading, `quack config show` and
//! docs/configuration.md use the table. The defaults are in `config.rs`.
//!
//! Each file of this folder has the rows of some tables.

mod agents;
mod limits;
mod sandbox;
mod services;
mod workers;

use crate::definition::Key;
use std::sync::LazyLock;

/// Every key, table by table.
#[must_use]
pub fn keys() -> &'static [Key] {
    &KEYS
}

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let tables = [
        workers::KEYS,
        sandbox::KEYS,
        limits::KEYS,
        workers::ENVIRONMENT,
        agents::KEYS,
        services::KEYS,
    ];
    tables.concat()
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::to_toml;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    /// Returns the table of docs/configuration.md.
    fn markdown() -> String {
        let mut text = "| key | value | default | what it does |\n|---|---|---|---|\n".to_owned();
        for key in keys() {
            let variable = key.variable().map(|name| format!(" `{name}` wins over it."));
            // Writing to a String cannot fail.
            let _never = writeln!(
                text,
                "| `{}` | {} | `{}` | {}{} |",
                key.name,
                key.values(),
                to_toml(&key.default()),
                key.description,
                variable.unwrap_or_default()
            );
        }
        text
    }

    #[test]
    fn every_key_stands_in_one_table_and_has_a_sentence() {
        let names: BTreeSet<&str> = keys().iter().map(Key::name).collect();
        assert_eq!(names.len(), keys().len());
        for key in keys() {
            assert_eq!(key.name.split('.').count(), 2, "{}", key.name);
            assert!(
                key.description.ends_with('.') && !key.description.contains('|'),
                "{}",
                key.name
            );
        }
    }

    #[test]
    fn the_document_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table: String =
            page.split_inclusive('\n').filter(|line| line.starts_with('|')).collect();
        assert_eq!(table, markdown(), "docs/configuration.md differs from the table of keys");
    }
}
