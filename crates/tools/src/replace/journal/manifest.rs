//! Manifest of a journal entry: one line of JSON for each step, written before the step is done.

use super::author::ChangeAuthor;
use super::json_forms::{as_optional_text, as_path, as_text};
use quackd_protocol::worker::CallOrigin;
use quackd_sandbox::StagedTag;
use quackd_search::replace::Digest;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

/// Maximum size of a manifest in bytes, for reading and writing. 20,000 steps take about 8 MB.
pub(super) const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Number of bytes at the end in which the last line is searched.
const TAIL: u64 = 1024;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ManifestLine {
    /// Header. Always the first line.
    Began(EntryHeader),
    /// A file is about to get new content.
    Step(FileRecord),
    /// The step with this number is done.
    Wrote(usize),
    /// The step with this number was partly done: the content has had this digest since.
    Torn(usize, #[serde(with = "as_text")] Digest),
    /// All steps are done.
    Ended,
    /// The process crashed, and its temporary files were removed.
    Swept,
    /// Id of the entry that undid this one.
    Undone(String),
}

/// Header of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryHeader {
    /// Format version. Always 1.
    pub(super) v: u32,
    /// Id of the entry that this one undoes.
    pub(super) undoes: Option<String>,
    /// Number of undos: 0 is a replacement, 1 undoes it, 2 redoes it.
    pub(super) depth: u32,
    /// Whether the originals are stored.
    pub(super) has_originals: bool,
    /// Beginning, in milliseconds since 1970.
    #[serde(default)]
    pub(super) at_ms: i64,
    /// Name of the tool.
    #[serde(default)]
    pub(super) tool: String,
    /// Call that began the entry.
    #[serde(default)]
    pub(super) origin: CallOrigin,
}

/// A file that gets new content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileRecord {
    /// Path relative to the workspace.
    #[serde(with = "as_path")]
    pub(super) path: PathBuf,
    /// Digest of the old content. `None`: the file did not exist.
    #[serde(with = "as_optional_text")]
    pub(super) before: Option<Digest>,
    /// Digest of the new content. `None`: the file is deleted.
    #[serde(with = "as_optional_text")]
    pub(super) after: Option<Digest>,
    /// Offset of the original in the file of originals, in bytes.
    pub(super) at: u64,
    /// Size of the original in bytes.
    pub(super) len: u64,
    /// Tag of the temporary file next to the file while it is written.
    #[serde(with = "as_text")]
    pub(super) tag: StagedTag,
}

/// A parsed manifest.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) began: EntryHeader,
    pub(super) steps: Vec<FileRecord>,
    pub(super) wrote: BTreeSet<usize>,
    pub(super) torn: BTreeMap<usize, Digest>,
    pub(super) has_ended: bool,
    pub(super) is_swept: bool,
    pub(super) undone_by: Option<String>,
}

impl EntryHeader {
    /// Returns the header of a replacement that begins now.
    pub(super) fn new(author: &ChangeAuthor, has_originals: bool) -> Self {
        Self {
            v: 1,
            undoes: None,
            depth: 0,
            has_originals,
            at_ms: jiff::Timestamp::now().as_millisecond(),
            tool: author.tool.clone(),
            origin: author.origin.clone(),
        }
    }
}

impl ManifestLine {
    /// Returns the line with its line break.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl Manifest {
    /// Reads a manifest. Skips an invalid line, which a crash may have cut.
    ///
    /// # Errors
    /// Errors of read(2); `InvalidData` if the header is missing or the manifest is too large.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut manifest = Self::default();
        let mut reader = BufReader::new(file.take(MAX_BYTES + 1));
        let (mut line, mut n_bytes, mut n_lines) = (Vec::new(), 0, 0_usize);

        while reader.read_until(b'\n', &mut line)? != 0 {
            n_bytes += line.len() as u64;
            let parsed = serde_json::from_slice(&line);
            line.clear();
            // Without a valid first line, the manifest is invalid.
            let Ok(parsed) = parsed else { if n_lines == 0 { break } else { continue } };
            match parsed {
                ManifestLine::Began(began) if n_lines == 0 && began.v == 1 => {
                    manifest.began = began;
                }
                _ if n_lines == 0 => break,
                ManifestLine::Began(_) => break,
                ManifestLine::Step(step) => manifest.steps.push(step),
                ManifestLine::Wrote(n) => _ = manifest.wrote.insert(n),
                ManifestLine::Torn(n, digest) => _ = manifest.torn.insert(n, digest),
                ManifestLine::Ended => manifest.has_ended = true,
                ManifestLine::Swept => manifest.is_swept = true,
                ManifestLine::Undone(by) => manifest.undone_by = Some(by),
            }
            n_lines += 1;
        }

        if n_lines == 0 || MAX_BYTES < n_bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(manifest)
    }
}

/// Whether the last lines record that all steps are done. Reads only the end of the file.
pub(super) fn has_ended(mut file: &File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let ended = ManifestLine::Ended.to_bytes()?;
    Ok(tail.split_inclusive(|byte| *byte == b'\n').any(|line| line == ended))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::io::Write as _;
    use std::os::unix::ffi::OsStringExt as _;

    fn step(path: &[u8]) -> ManifestLine {
        ManifestLine::Step(FileRecord {
            path: OsString::from_vec(path.to_vec()).into(),
            before: Some(Digest::of(b"1")),
            after: Some(Digest::of(b"2")),
            at: 5,
            len: 7,
            tag: StagedTag::random().unwrap(),
        })
    }

    fn written(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn what_is_written_is_read_and_a_cut_line_is_none() {
        let began = EntryHeader {
            v: 1,
            undoes: Some("1-0".into()),
            depth: 1,
            has_originals: true,
            ..EntryHeader::default()
        };
        let lines = [
            ManifestLine::Began(began.clone()),
            step(b"a \"\n"),
            step(b"\xff"),
            ManifestLine::Wrote(1),
            ManifestLine::Torn(0, Digest::of(b"3")),
            ManifestLine::Ended,
            ManifestLine::Undone("2-0".into()),
        ];
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line.to_bytes().unwrap()).collect();
        let file = written(&bytes);
        let found = Manifest::read(&file).unwrap();
        assert_eq!(found.began, began);
        let steps: Vec<ManifestLine> = found.steps.into_iter().map(ManifestLine::Step).collect();
        assert_eq!(steps, lines[1..3]);
        assert_eq!((found.wrote.len(), found.torn.len(), found.is_swept), (1, 1, false));
        assert_eq!(found.undone_by.as_deref(), Some("2-0"));
        assert!(found.has_ended && has_ended(&file).unwrap());

        let first = lines[0].to_bytes().unwrap().len();
        for end in 0..bytes.len() {
            let file = written(&bytes[..end]);
            // A line is complete without its line break.
            assert_eq!(Manifest::read(&file).is_ok(), first - 1 <= end, "{end}");
        }
        assert!(!has_ended(&written(&bytes[..first])).unwrap());
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in
            ["", "x", "\"ended\"\n", "{\"began\":{\"v\":2,\"depth\":0,\"has_originals\":true}}\n"]
        {
            assert!(Manifest::read(&written(text.as_bytes())).is_err(), "{text}");
        }
        let began =
            ManifestLine::Began(EntryHeader { v: 1, ..EntryHeader::default() }).to_bytes().unwrap();
        let bad =
            [&began[..], b"{\"step\":{\"path\":\"a\",\"before\":\"0\"}}\n\"ended\"\n"].concat();
        let found = Manifest::read(&written(&bad)).unwrap();
        assert!(found.steps.is_empty() && found.has_ended);
    }
}
