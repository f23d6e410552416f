//! `mcp-install.json` in the state directory: the changes that `quack mcp install` made in each client's file.
//!
//! Without it, `uninstall` could not tell an empty table, or a denied tool, of the user from one that `install` added.
//! It contains only quackd's own bytes and the bytes that they replaced, never the rest of the client's file.

use super::change::{Made, Step};
use anyhow::Context;
use quackd_home::{Home, own_file};
use quackd_store::replace_file_blocking;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Size limit of the file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Changes of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receipt {
    pub(super) path: PathBuf,
    /// Whether the file existed before.
    pub(super) existed: bool,
    /// SHA-256 of the file after the install.
    pub(super) after: String,
    /// How to restore the bytes, in order. `None` if the bytes before are unknown.
    pub(super) steps: Option<Vec<Step>>,
    pub(super) made: Vec<Made>,
    /// Directories that the install created for the file, the innermost first.
    #[serde(default)]
    pub(super) directories: Vec<PathBuf>,
}

impl Receipt {
    /// Whether settings of the client were changed besides the entry.
    pub(super) fn is_exclusive(&self) -> bool {
        self.made.iter().any(Made::is_setting)
    }

    /// Returns the text before the install: `Some(None)` is no file. `None` if the file changed since then.
    pub(super) fn restore(&self, text: &str) -> Option<Option<String>> {
        let steps = self.steps.as_ref().filter(|_| digest(text) == self.after)?;
        let before =
            steps.iter().rev().try_fold(text.to_owned(), |text, step| step.revert(&text))?;
        Some(self.existed.then_some(before))
    }
}

/// Receipts of all files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Receipts {
    files: Vec<Receipt>,
    #[serde(skip)]
    at: PathBuf,
}

impl Receipts {
    /// # Errors
    /// The state directory cannot be used, or the file cannot be read or parsed.
    pub(super) fn read_blocking(home: &Home) -> anyhow::Result<Self> {
        let at = home.mcp_install();
        let bytes = match own_file::read_blocking(&at, MAX_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { files: Vec::new(), at });
            }
            bytes => bytes.with_context(|| format!("cannot read {}", at.display()))?,
        };
        let read: Self = serde_json::from_slice(&bytes)
            .with_context(|| format!("cannot parse {}", at.display()))?;
        Ok(Self { at, ..read })
    }

    pub(super) fn of(&self, path: &Path) -> Option<&Receipt> {
        self.files.iter().find(|receipt| receipt.path == path)
    }

    /// The recorded files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|receipt| receipt.path.as_path())
    }

    /// Replaces the receipt of `path`.
    pub(super) fn put(&mut self, path: &Path, receipt: Option<Receipt>) {
        self.files.retain(|receipt| receipt.path != path);
        self.files.extend(receipt);
    }

    /// Takes the directories that the install of `path` created. Those that contain another recorded file go to its
    /// receipt, so that its removal removes them.
    pub(super) fn take_directories(&mut self, path: &Path) -> Vec<PathBuf> {
        let of_path = self.files.iter_mut().find(|receipt| receipt.path == path);
        let mut taken = of_path.map_or_else(Vec::new, |old| std::mem::take(&mut old.directories));
        taken.retain(|directory| {
            let mut others = self.files.iter_mut().filter(|receipt| receipt.path != path);
            let heir = others.find(|receipt| receipt.path.starts_with(directory));
            heir.map(|heir| heir.directories.push(directory.clone())).is_none()
        });
        taken
    }

    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_blocking(&self, home: &Home) -> anyhow::Result<()> {
        if self.files.is_empty() && !self.at.exists() {
            return Ok(());
        }
        home.prepare_blocking()?;
        let text = serde_json::to_string_pretty(self)?;
        replace_file_blocking(&self.at, text.as_bytes())
            .with_context(|| format!("cannot write {}", self.at.display()))
    }
}

pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        write!(out, "{byte:02x}").ok();
        out
    })
}
