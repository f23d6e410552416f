//! Changes of one file, and how to revert them.

use super::clients::Off;
use super::document::Document;
use super::format::{Format, edit};
use super::setting::Setting;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Change that an install makes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// quackd's entry. An entry of the same name is replaced.
    Entry(Vec<&'static str>, Setting),
    /// A setting of the client that takes its own shell or edit tools away.
    Setting(&'static [&'static str], Setting),
    /// Texts in a list of the client.
    Items(&'static [&'static str], &'static [&'static str]),
}

impl From<Off> for Change {
    fn from(off: Off) -> Self {
        match off {
            Off::Items(path, items) => Self::Items(path, items),
            Off::False(path) => Self::Setting(path, Setting::Bool(false)),
            Off::Deny(path) => Self::Setting(path, Setting::text("deny")),
        }
    }
}

/// Record of a change that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Made {
    path: Vec<String>,
    /// Number of leading keys of `path` that existed before.
    existing: usize,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Entry,
    Setting { value: Value, before: Option<Value> },
    Items { added: Vec<String> },
}

/// Bytes that one change replaced: at offset `at`, `old` became `new`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Step {
    at: usize,
    old: String,
    new: String,
}

/// Result of one change.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) text: String,
    /// `None` if the file already has the value.
    pub(super) made: Option<(Made, Step)>,
    /// Whether quackd's entry existed with other content.
    pub(super) replaced: bool,
}

impl Change {
    pub(super) fn path(&self) -> &[&'static str] {
        match self {
            Self::Entry(path, _) => path,
            Self::Setting(path, _) | Self::Items(path, _) => path,
        }
    }

    /// Applies the change to `text`.
    ///
    /// # Errors
    /// The text cannot be parsed, or has another kind of value at the path.
    pub(super) fn apply(&self, format: Format, text: &str) -> anyhow::Result<Applied> {
        let mut made = None;
        let mut replaced = false;
        let new = edit(format, text, |document| {
            let before = document.get(self.path());
            let action = match self {
                Self::Entry(path, value) if before.as_ref() != Some(&value.to_json()) => {
                    replaced = before.is_some();
                    let existing = existing(document, self.path());
                    document.set(path, value)?;
                    Some((existing, What::Entry))
                }
                Self::Setting(path, value) if before.as_ref() != Some(&value.to_json()) => {
                    let existing = existing(document, self.path());
                    document.set(path, value)?;
                    Some((existing, What::Setting { value: value.to_json(), before }))
                }
                Self::Items(path, items) => {
                    let old = before.as_ref().and_then(Value::as_array);
                    let is_new =
                        |item: &&str| old.is_none_or(|all| all.iter().all(|it| it != item));
                    let added: Vec<&str> = items.iter().copied().filter(is_new).collect();
                    if added.is_empty() {
                        None
                    } else {
                        let existing = existing(document, self.path());
                        document.append(path, &added)?;
                        let added = added.into_iter().map(str::to_owned).collect();
                        Some((existing, What::Items { added }))
                    }
                }
                Self::Entry(..) | Self::Setting(..) => None,
            };

            let path = self.path().iter().map(|key| (*key).to_owned()).collect();
            made = action.map(|(existing, what)| Made { path, existing, what });
            Ok(())
        })?;

        Ok(match made {
            None => Applied { text: text.to_owned(), made: None, replaced: false },
            Some(made) => {
                let step = Step::between(text, &new);
                Applied { text: new, made: Some((made, step)), replaced }
            }
        })
    }
}

impl Made {
    /// Whether it is another change than that of quackd's entry.
    pub(super) fn is_setting(&self) -> bool {
        self.what != What::Entry
    }

    /// Returns the record of an entry that no install recorded.
    pub(super) fn entry(path: &[&str]) -> Self {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        Self { existing: path.len(), path, what: What::Entry }
    }

    pub(super) fn is_at(&self, path: &[&str]) -> bool {
        self.path == path
    }

    /// Reverts the change in a file that other programs changed too. Settings that changed since then stay. Removes the
    /// tables that the change created, if they are empty.
    ///
    /// # Errors
    /// The text cannot be parsed.
    pub(super) fn revert(&self, format: Format, text: &str) -> anyhow::Result<String> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        edit(format, text, |document| {
            match &self.what {
                What::Entry => document.remove(&path),
                What::Setting { value, before } => {
                    if document.get(&path).as_ref() != Some(value) {
                        return Ok(());
                    }
                    match before {
                        Some(before) => document.set(&path, &before.clone().into())?,
                        None => document.remove(&path),
                    }
                }
                What::Items { added } => document.remove_items(&path, added)?,
            }

            // The innermost table first: its parent may be empty without it.
            let mut rest = path.as_slice();
            while self.existing < rest.len()
                && document.get(rest).is_none_or(|value| is_empty(&value))
            {
                document.remove(rest);
                rest = rest.split_last().map_or(&[], |(_, tables)| tables);
            }
            Ok(())
        })
    }
}

impl Step {
    /// Returns the shortest step from one text to the other.
    fn between(before: &str, after: &str) -> Self {
        let begin = common(before.chars(), after.chars());
        let rest = |text: &str| text.get(begin..).unwrap_or_default().to_owned();
        let (old, new) = (rest(before), rest(after));

        let end = common(old.chars().rev(), new.chars().rev());
        let cut = |text: &str| text.get(..text.len() - end).unwrap_or_default().to_owned();
        Self { at: begin, old: cut(&old), new: cut(&new) }
    }

    /// Returns the text before the step. `None` if the bytes are not those that the step wrote.
    pub(super) fn revert(&self, text: &str) -> Option<String> {
        let (head, tail) = (text.get(..self.at)?, text.get(self.at..)?);
        Some(format!("{head}{}{}", self.old, tail.strip_prefix(self.new.as_str())?))
    }
}

/// Returns the number of bytes of the characters with which both texts begin.
fn common(left: impl Iterator<Item = char>, right: impl Iterator<Item = char>) -> usize {
    left.zip(right).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

/// Returns the number of leading keys of `path` that exist.
fn existing(document: &dyn Document, path: &[&str]) -> usize {
    (1..=path.len())
        .take_while(|n| document.get(path.get(..*n).unwrap_or_default()).is_some())
        .count()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(pairs) => pairs.is_empty(),
        _ => false,
    }
}
