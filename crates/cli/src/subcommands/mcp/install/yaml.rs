//! YAML: mappings of the first document.

use super::document::{Document, wrong_kind};
use super::setting::Setting;
use crate::exit::CliError;
use serde_json::Value;
use std::str::FromStr;
use yaml_edit::{Mapping, MappingBuilder, YamlFile, YamlNode};

pub(super) struct YamlDocument(YamlFile);

impl YamlDocument {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let file = YamlFile::from_str(text);
        Ok(Self(file.map_err(|error| CliError::failed(error.to_string()))?))
    }

    fn parent(&self, path: &[&str]) -> Option<Mapping> {
        let (_, tables) = path.split_last()?;
        let root = self.0.document()?.as_mapping()?;
        tables.iter().try_fold(root, |mapping, key| mapping.get_mapping(*key))
    }
}

impl Document for YamlDocument {
    fn get(&self, path: &[&str]) -> Option<Value> {
        self.parent(path)?.get(*path.last()?).map(|node| to_json(&node))
    }

    fn set(&mut self, path: &[&str], value: &Setting) -> anyhow::Result<()> {
        let Some((key, tables)) = path.split_last() else { return Ok(()) };
        let document = self.0.ensure_document();
        let root = document.as_mapping();
        let mut mapping = root.ok_or_else(|| CliError::failed("the file is not a mapping"))?;

        for (n, name) in tables.iter().enumerate() {
            let names = tables.get(..=n).unwrap_or_default();
            let other = || wrong_kind(names, "a mapping");
            match mapping.get(*name) {
                Some(YamlNode::Mapping(_)) => {}
                Some(YamlNode::Scalar(scalar)) if !scalar.is_null() => return Err(other()),
                None | Some(YamlNode::Scalar(_)) => {
                    let empty = MappingBuilder::new().build_document().as_mapping();
                    mapping.set(*name, empty.ok_or_else(other)?);
                }
                Some(_) => return Err(other()),
            }
            mapping = mapping.get_mapping(*name).ok_or_else(other)?;
        }

        match value {
            Setting::Bool(value) => mapping.set(*key, *value),
            Setting::Text(text) => mapping.set(*key, text.as_str()),
            other => {
                let built = build(other).build_document().as_mapping();
                mapping.set(*key, built.ok_or_else(|| wrong_kind(path, "a mapping"))?);
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &[&str]) {
        if let (Some(parent), Some(key)) = (self.parent(path), path.last()) {
            parent.remove(*key);
        }
    }

    fn render(&self) -> String {
        self.0.to_string()
    }
}

/// Returns the mapping. Values are scalars and lists of texts, because no client's entry needs more.
fn build(value: &Setting) -> MappingBuilder {
    let mut mapping = MappingBuilder::new();

    let Setting::Table(pairs) = value else { return mapping };
    for (key, value) in pairs {
        mapping = match value {
            Setting::Bool(value) => mapping.pair(key.as_str(), *value),
            Setting::Text(text) => mapping.pair(key.as_str(), text.as_str()),
            Setting::List(items) => mapping.sequence(key.as_str(), |mut list| {
                for item in items {
                    if let Setting::Text(text) = item {
                        list = list.item(text.as_str());
                    }
                }
                list
            }),
            Setting::Null | Setting::Number(_) | Setting::Table(_) => mapping,
        };
    }
    mapping
}

fn to_json(node: &YamlNode) -> Value {
    match node {
        YamlNode::Scalar(scalar) if scalar.is_quoted() => scalar.as_string().into(),
        YamlNode::Scalar(scalar) if scalar.is_null() => Value::Null,
        YamlNode::Scalar(scalar) => match scalar.as_bool() {
            Some(value) => value.into(),
            None => scalar.as_string().into(),
        },
        YamlNode::Sequence(items) => items.values().map(|item| to_json(&item)).collect(),
        YamlNode::Mapping(pairs) => pairs
            .iter()
            .map(|(key, value)| {
                (to_json(&key).as_str().unwrap_or_default().to_owned(), to_json(&value))
            })
            .collect(),
        YamlNode::Alias(_) | YamlNode::TaggedNode(_) => Value::Null,
    }
}
