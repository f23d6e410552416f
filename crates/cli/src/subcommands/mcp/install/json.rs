//! JSON with comments and trailing commas.

use super::document::{Document, wrong_kind};
use super::setting::Setting;
use crate::exit::CliError;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

pub(super) struct JsonDocument(CstRootNode);

impl JsonDocument {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };

        let root = CstRootNode::parse(text, &options);
        Ok(Self(root.map_err(|error| CliError::failed(error.to_string()))?))
    }

    fn property(&self, path: &[&str]) -> Option<CstObjectProp> {
        let (last, tables) = path.split_last()?;
        let mut object = self.0.object_value()?;
        for key in tables {
            object = object.object_value(key)?;
        }
        object.get(last)
    }

    /// Returns the object that contains the last key of `path`. Creates missing objects.
    fn parent(&self, path: &[&str]) -> anyhow::Result<CstObject> {
        let mut object = self
            .0
            .object_value_or_create()
            .ok_or_else(|| CliError::failed("the file is not an object"))?;
        for n in 1..path.len() {
            let tables = path.get(..n).unwrap_or_default();
            let key = tables.last().copied().unwrap_or_default();
            object = object
                .object_value_or_create(key)
                .ok_or_else(|| wrong_kind(tables, "an object"))?;
        }
        Ok(object)
    }
}

impl Document for JsonDocument {
    fn get(&self, path: &[&str]) -> Option<Value> {
        self.property(path)?.value()?.to_serde_value()
    }

    fn set(&mut self, path: &[&str], value: &Setting) -> anyhow::Result<()> {
        let Some(key) = path.last() else { return Ok(()) };
        let parent = self.parent(path)?;
        match parent.get(key) {
            Some(property) => property.set_value(input(value)),
            None => drop(parent.append(key, input(value))),
        }
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) {
        if let Some(property) = self.property(path) {
            property.remove();
        }
    }

    fn render(&self) -> String {
        self.0.to_string()
    }

    fn append(&mut self, path: &[&str], items: &[&str]) -> anyhow::Result<()> {
        let Some(key) = path.last() else { return Ok(()) };
        let list = self.parent(path)?.array_value_or_create(key);
        let list = list.ok_or_else(|| wrong_kind(path, "a list"))?;
        for item in items {
            list.append(CstInputValue::String((*item).to_owned()));
        }
        Ok(())
    }

    fn remove_items(&mut self, path: &[&str], items: &[String]) -> anyhow::Result<()> {
        let list = self.property(path).and_then(|property| property.array_value());
        for element in list.map(|list| list.elements()).unwrap_or_default() {
            let text = element.as_string_lit().and_then(|text| text.decoded_value().ok());
            if text.is_some_and(|text| items.contains(&text)) {
                element.remove();
            }
        }
        Ok(())
    }
}

fn input(value: &Setting) -> CstInputValue {
    match value {
        Setting::Null => CstInputValue::Null,
        Setting::Bool(value) => CstInputValue::Bool(*value),
        Setting::Number(value) => CstInputValue::Number(value.to_string()),
        Setting::Text(text) => CstInputValue::String(text.clone()),
        Setting::List(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Setting::Table(pairs) => CstInputValue::Object(
            pairs.iter().map(|(key, value)| (key.clone(), input(value))).collect(),
        ),
    }
}
