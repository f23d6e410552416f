//! A new session file from a part of another one.

use super::entry::{Entry, EntryKind, Header};
use super::{Transcript, TranscriptError};
use crate::message::Message;
use std::collections::{BTreeMap, HashSet};

impl Transcript {
    /// Returns the messages of the user on the current branch that have a text: id of the entry and text.
    #[must_use]
    pub fn fork_points(&self) -> Vec<(String, String)> {
        let path = self.path();
        let points = path.iter().filter_map(|entry| Some((entry.id.clone(), user_text(entry)?)));
        points.filter(|(_, text)| !text.is_empty()).collect()
    }

    /// Returns the lines of a new file, and the text of a message of the user. The file has the entries before that
    /// message, and labels of these at its end.
    ///
    /// # Errors
    ///
    /// If there is no such entry, or it is not a message of the user.
    pub fn fork(
        &self,
        entry_id: &str,
        header: Header,
    ) -> Result<(String, String), TranscriptError> {
        // Labels come at the end of the file, so they are left out here.
        let entry = self.entry(entry_id);
        let entry = entry.ok_or_else(|| TranscriptError::UnknownEntry(entry_id.to_owned()))?;
        let text = user_text(entry)
            .ok_or_else(|| TranscriptError::NotAUserMessage(entry_id.to_owned()))?;

        let path = self.path_to(entry.parent);
        let mut file = header.to_line();
        let mut last = None;
        let mut ids = HashSet::new();
        for entry in path.into_iter().filter(|it| !matches!(it.kind, EntryKind::Label { .. })) {
            file.push_str(&entry.to_line_after(last));
            last = Some(entry.id.as_str());
            ids.insert(entry.id.as_str());
        }

        let mut last = last.map(str::to_owned);
        let mut next_id = self.label_ids();
        for (target_id, label) in
            self.labels().into_iter().filter(|(target, _)| ids.contains(target))
        {
            let label = Entry {
                id: next_id.next().unwrap_or_default(),
                parent_id: last,
                timestamp: header.timestamp.clone(),
                kind: EntryKind::Label {
                    target_id: target_id.to_owned(),
                    label: Some(label.to_owned()),
                },
                parent: None,
                line: None,
            };
            file.push_str(&label.to_line());
            last = Some(label.id);
        }
        Ok((file, text))
    }

    /// Returns ids that no entry of this file has. They need not be random: the new file has only
    /// entries of this one.
    fn label_ids(&self) -> impl Iterator<Item = String> {
        let ids = (1_u32..).map(|number| format!("{number:08x}"));
        ids.filter(|id| !self.index.contains_key(id.as_str()))
    }

    /// Returns the last label of each entry, without the labels that were removed.
    fn labels(&self) -> BTreeMap<&str, &str> {
        let mut labels = BTreeMap::new();
        for entry in &self.entries {
            match &entry.kind {
                EntryKind::Label { target_id, label: Some(label) } if !label.is_empty() => {
                    labels.insert(target_id.as_str(), label.as_str());
                }
                EntryKind::Label { target_id, .. } => {
                    labels.remove(target_id.as_str());
                }
                _ => {}
            }
        }
        labels
    }
}

/// Returns the text of a message of the user.
fn user_text(entry: &Entry) -> Option<String> {
    match &entry.kind {
        EntryKind::Message(Message::User(message)) => Some(message.content.text()),
        _ => None,
    }
}
