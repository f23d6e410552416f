//! The earlier prompts of a workspace, oldest first. Used by [`super::editor`].

use quackd_protocol::foreign_text::stripped_lines;
use reedline::{FileBackedHistory, History, HistoryItem, SearchDirection, SearchQuery};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Limits of the kept prompts: their number, and the bytes of one. A larger one is not kept.
const MAX_PROMPTS: usize = 1000;
const MAX_BYTES: usize = 64 * 1024;

/// The prompts, and the file that keeps them.
#[derive(Debug)]
pub(crate) struct PastPrompts {
    texts: Vec<String>,
    file: Option<FileBackedHistory>,
    problem: Option<String>,
}

impl PastPrompts {
    /// Creates an empty list that no file keeps.
    pub(crate) fn in_memory() -> Self {
        Self { texts: Vec::new(), file: None, problem: None }
    }

    /// Reads the prompts of a file, which is created with mode 0600. Without it, the prompts are kept in memory.
    pub(crate) fn read_blocking(path: PathBuf) -> Self {
        let read = || -> anyhow::Result<(FileBackedHistory, Vec<String>)> {
            // Created here, because the library would create it readable for all.
            OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            let file = FileBackedHistory::with_file(MAX_PROMPTS, path)?;
            let all = file.search(SearchQuery::everything(SearchDirection::Forward, None))?;
            let texts = all.into_iter().map(|item| stripped_lines(&item.command_line)).collect();
            Ok((file, texts))
        };

        match read() {
            Ok((file, texts)) => Self { texts, file: Some(file), problem: None },
            Err(error) => {
                let problem = Some(format!("earlier prompts cannot be read: {error}"));
                Self { problem, ..Self::in_memory() }
            }
        }
    }

    /// Adds a prompt, unless it is the same as the newest one.
    pub(super) fn add(&mut self, text: &str) {
        if MAX_BYTES < text.len() || self.texts.last().is_some_and(|last| last == text) {
            return;
        }

        // Kept in memory also if the file cannot be written.
        self.texts.push(text.to_owned());
        let Some(file) = &mut self.file else { return };
        let mut save = || -> anyhow::Result<()> {
            file.save(HistoryItem::from_command_line(text))?;
            Ok(file.sync()?)
        };

        if let Err(error) = save() {
            self.problem = Some(format!("this prompt is not kept for later: {error}"));
        }
    }

    /// Returns the number of prompts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the prompt with this index.
    pub(super) fn get(&self, at: usize) -> Option<&str> {
        self.texts.get(at).map(String::as_str)
    }

    /// Returns the index of the newest prompt before `before` that contains `term`.
    pub(super) fn find(&self, term: &str, before: Option<usize>) -> Option<usize> {
        let older = self.texts.get(..before.unwrap_or(self.texts.len()))?;
        older.iter().rposition(|text| text.contains(term))
    }

    /// Takes the reason why prompts could not be read or saved.
    pub(super) fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }
}
