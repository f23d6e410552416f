//! The record of a copy: what the session's copy and the workspace had in common at last, and the content that merges
//! need. It is in the session's private directory, which no command of a session sees.

use crate::error::{IsolateError, OnFile as _};
use crate::node::{ContentHash, Node, Stamp};
use crate::path_text;
use quackd_protocol::isolate::{CopiedTree, UNFINISHED_COPY};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Version of the format.
const VERSION: u32 = 1;

/// Maximum size of the record in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum size of a text that is kept for merges, in bytes.
pub(crate) const MAX_MERGED_BYTES: u64 = 1024 * 1024;

/// Paths of one copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyPaths {
    directory: PathBuf,
}

impl CopyPaths {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.directory.join("manifest")
    }

    pub(crate) fn texts(&self) -> PathBuf {
        self.directory.join("texts")
    }

    /// Directory of the changes that were written last.
    pub(crate) fn applied(&self) -> PathBuf {
        self.directory.join("applied")
    }

    /// Directory of changes that are being written to the workspace.
    pub(crate) fn applying(&self) -> PathBuf {
        let [applying, _] = UNFINISHED_COPY;
        self.directory.join(applying)
    }

    /// Directory of changes of the workspace that are being written to the copy.
    pub(crate) fn refreshing(&self) -> PathBuf {
        let [_, refreshed] = UNFINISHED_COPY;
        self.directory.join(refreshed)
    }

    /// Directory in which a repository is made that replaces that of the copy.
    pub(crate) fn staged_git(&self) -> PathBuf {
        self.directory.join("git.new")
    }

    /// Directory with the repository of the copy that was replaced last.
    pub(crate) fn replaced_git(&self) -> PathBuf {
        self.directory.join("git.replaced")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.directory.join("lock")
    }
}

/// Place of a text in the file of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TextSpan {
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// The common state of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Common {
    pub(crate) node: Node,
    /// Stamp of the workspace's file while it had this content.
    pub(crate) base: Option<Stamp>,
    /// Stamp of the copy's file while it had this content.
    pub(crate) copy: Option<Stamp>,
    /// Content, for merges.
    pub(crate) text: Option<TextSpan>,
}

/// The record.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// Device and inode of the workspace.
    pub(crate) base: (u64, u64),
    pub(crate) copied: CopiedTree,
    /// Digest of the references that the repositories of both sides had in common at last. `None` without a repository.
    pub(crate) references: Option<ContentHash>,
    /// When a refresh last wrote these paths, in milliseconds since 1970.
    pub(crate) refreshed: BTreeMap<PathBuf, i64>,
    pub(crate) entries: BTreeMap<PathBuf, Common>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    base: (u64, u64),
    copied: CopiedTree,
    // Records of earlier versions lack this field and the next.
    #[serde(default)]
    references: Option<ContentHash>,
    #[serde(default)]
    refreshed: Vec<RefreshedPath>,
    entries: Vec<WrittenEntry>,
}

#[derive(Serialize, Deserialize)]
struct RefreshedPath {
    #[serde(with = "path_text")]
    path: PathBuf,
    at_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct WrittenEntry {
    #[serde(with = "path_text")]
    path: PathBuf,
    common: Common,
}

impl Manifest {
    /// Reads the record. A missing one means that the copy is not complete.
    pub(crate) fn read(path: &Path) -> Result<Self, IsolateError> {
        let written: Written = read_record(path)?.ok_or(IsolateError::NoCopy)?;
        if written.version != VERSION {
            return Err(IsolateError::Damaged("another version wrote it".to_owned()));
        }
        let Written { base, copied, references, refreshed, entries, .. } = written;
        let refreshed = refreshed.into_iter().map(|one| (one.path, one.at_ms)).collect();
        let entries = entries.into_iter().map(|entry| (entry.path, entry.common)).collect();
        Ok(Self { base, copied, references, refreshed, entries })
    }

    /// Replaces the record in one step.
    pub(crate) fn write(&self, path: &Path) -> Result<(), IsolateError> {
        let entries = self
            .entries
            .iter()
            .map(|(path, common)| WrittenEntry { path: path.clone(), common: common.clone() });
        let refreshed = self
            .refreshed
            .iter()
            .map(|(path, at_ms)| RefreshedPath { path: path.clone(), at_ms: *at_ms });

        let written = Written {
            version: VERSION,
            base: self.base,
            copied: self.copied.clone(),
            references: self.references,
            refreshed: refreshed.collect(),
            entries: entries.collect(),
        };
        write_record(path, &written)
    }
}

/// Reads a file of [`write_record`]. `None` without one.
pub(crate) fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, IsolateError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.on("open", path)?,
    };
    let mut bytes = Vec::new();

    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).on("read", path)?;
    let damaged = |why: &str| IsolateError::Damaged(why.to_owned());

    let end = bytes.iter().rposition(|byte| *byte == b'\n').ok_or_else(|| damaged("it is cut"))?;
    let (body, trailer) = bytes.split_at(end);
    let trailer = String::from_utf8_lossy(trailer.get(1..).unwrap_or_default());
    if ContentHash::of(body).to_string() != trailer {
        return Err(damaged("its checksum is wrong"));
    }
    serde_json::from_slice(body).map(Some).map_err(|error| damaged(&error.to_string()))
}

/// Replaces a file with a record and its checksum in one step, durably.
pub(crate) fn write_record<T: Serialize>(path: &Path, record: &T) -> Result<(), IsolateError> {
    let mut bytes =
        serde_json::to_vec(record).map_err(|error| IsolateError::Damaged(error.to_string()))?;
    let trailer = ContentHash::of(&bytes);
    bytes.extend(format!("\n{trailer}").as_bytes());
    // A larger one could not be read.
    if MAX_BYTES < bytes.len() as u64 {
        return Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge)).on("write", path);
    }
    write_whole(path, &bytes)
}

/// Replaces a file of the private directory in one step, durably.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), IsolateError> {
    let staged = path.with_extension("new");
    let mut file = private_file(&staged).on("create", &staged)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).on("write", &staged)?;
    rustix::fs::rename(&staged, path).on("replace", path)?;

    // Without this, a crash can undo the rename.
    let above = path.parent().unwrap_or(path);
    File::open(above).and_then(|above| above.sync_all()).on("sync", above)
}

/// Creates an empty file of the private directory, or empties it.
pub(crate) fn private_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Returns device and inode of an open directory.
pub(crate) fn identity(directory: &File) -> std::io::Result<(u64, u64)> {
    let metadata = directory.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The contents that merges need, one after the other in one file.
#[derive(Debug)]
pub(crate) struct Texts {
    file: File,
    path: PathBuf,
    end: u64,
}

impl Texts {
    pub(crate) fn open(path: &Path) -> Result<Self, IsolateError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).on("open", path)?;
        let end = file.seek(SeekFrom::End(0)).on("read", path)?;
        Ok(Self { file, path: path.to_owned(), end })
    }

    /// Keeps a content if it is text that can be merged.
    pub(crate) fn keep(&mut self, content: &[u8]) -> Result<Option<TextSpan>, IsolateError> {
        let len = content.len() as u64;
        if MAX_MERGED_BYTES < len || content.contains(&0) {
            return Ok(None);
        }
        let span = TextSpan { at: self.end, len };
        // Reads move the position, and a failed write may have left a part.
        self.file.seek(SeekFrom::Start(self.end)).on("write", &self.path)?;
        self.file.write_all(content).on("write", &self.path)?;
        self.end += len;
        Ok(Some(span))
    }

    pub(crate) fn read(&mut self, span: TextSpan) -> Result<Vec<u8>, IsolateError> {
        let mut content = Vec::new();
        self.file.seek(SeekFrom::Start(span.at)).on("read", &self.path)?;
        let len = span.len.min(MAX_MERGED_BYTES);
        Read::take(&mut self.file, len).read_to_end(&mut content).on("read", &self.path)?;
        Ok(content)
    }

    pub(crate) fn sync(&self) -> Result<(), IsolateError> {
        self.file.sync_all().on("sync", &self.path)
    }
}
