//! TOML.

use super::document::{Document, wrong_kind};
use super::setting::Setting;
use crate::exit::CliError;
use serde_json::Value;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike};

pub(super) struct TomlDocument(DocumentMut);

impl TomlDocument {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let document = text.parse::<DocumentMut>();
        Ok(Self(document.map_err(|error| CliError::failed(error.to_string().trim_end()))?))
    }

    fn item(&self, path: &[&str]) -> Option<&Item> {
        path.iter().try_fold(self.0.as_item(), |item, key| item.as_table_like()?.get(key))
    }
}

impl Document for TomlDocument {
    fn get(&self, path: &[&str]) -> Option<Value> {
        self.item(path).map(to_json)
    }

    fn set(&mut self, path: &[&str], value: &Setting) -> anyhow::Result<()> {
        let Some((key, tables)) = path.split_last() else { return Ok(()) };
        let mut table: &mut dyn TableLike = self.0.as_table_mut();
        for (n, name) in tables.iter().enumerate() {
            let item = table.entry(name).or_insert_with(|| {
                let mut table = Table::new();
                // A table without own values needs no header.
                table.set_implicit(true);
                Item::Table(table)
            });

            let names = tables.get(..=n).unwrap_or_default();
            table = item.as_table_like_mut().ok_or_else(|| wrong_kind(names, "a table"))?;
        }

        let mut item = to_item(value);
        // The user's comments and the place of the table stay.
        if let (Some(Item::Table(old)), Item::Table(new)) = (table.get(key), &mut item) {
            new.set_position(old.position());
            *new.decor_mut() = old.decor().clone();
        }
        table.insert(key, item);
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) {
        let Some((key, tables)) = path.split_last() else { return };
        let parent = tables
            .iter()
            .try_fold(self.0.as_item_mut(), |item, name| item.as_table_like_mut()?.get_mut(name));
        if let Some(parent) = parent.and_then(Item::as_table_like_mut) {
            parent.remove(key);
        }
    }

    fn render(&self) -> String {
        self.0.to_string()
    }
}

fn to_json(item: &Item) -> Value {
    if let Some(table) = item.as_table_like() {
        return table.iter().map(|(key, item)| (key.to_owned(), to_json(item))).collect();
    }

    match item.as_value() {
        Some(toml_edit::Value::String(text)) => text.value().clone().into(),
        Some(toml_edit::Value::Boolean(value)) => (*value.value()).into(),
        Some(toml_edit::Value::Integer(value)) => (*value.value()).into(),
        Some(toml_edit::Value::Array(items)) => {
            items.iter().map(|item| to_json(&Item::Value(item.clone()))).collect()
        }
        Some(other) => other.to_string().into(),
        None => Value::Null,
    }
}

fn to_item(value: &Setting) -> Item {
    match value {
        Setting::Table(pairs) => Item::Table(Table::from_iter(
            pairs.iter().map(|(key, value)| (key.as_str(), Item::Value(to_value(value)))),
        )),
        other => Item::Value(to_value(other)),
    }
}

fn to_value(value: &Setting) -> toml_edit::Value {
    match value {
        Setting::Bool(value) => (*value).into(),
        Setting::Number(value) => value.as_i64().unwrap_or_default().into(),
        Setting::Text(text) => text.as_str().into(),
        Setting::List(items) => items.iter().map(to_value).collect(),
        Setting::Table(pairs) => toml_edit::Value::InlineTable(InlineTable::from_iter(
            pairs.iter().map(|(key, value)| (key.as_str(), to_value(value))),
        )),
        // TOML has no null.
        Setting::Null => false.into(),
    }
}
