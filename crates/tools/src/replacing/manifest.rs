//! What an entry of the journal says: a line of JSON for each step, written before the step is done.

use quackd_sandbox::StagedTag;
use quackd_search::replace::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Bytes of a manifest that are read, and the most that are written. Twenty thousand steps take about 8 MB.
pub(super) const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Where the last line is looked for, in bytes from the end.
const TAIL: u64 = 1024;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The first one.
    Began(Began),
    /// A file is about to get new content.
    Step(Step),
    /// The step with this number has been done.
    Wrote(usize),
    /// Of the step with this number a part was done: the content has this digest since.
    Torn(usize, #[serde(with = "as_text")] Digest),
    /// All is done.
    Ended,
    /// The process has died, and what it left beside files is removed.
    Swept,
    /// Another entry has undone this one.
    Undone(String),
}

/// What an entry is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Began {
    /// The format; 1.
    pub(super) v: u32,
    /// The entry that this one undoes.
    pub(super) undoes: Option<String>,
    /// How many times undone: 0 is a replacement, 1 takes it back, 2 makes it again.
    pub(super) depth: u32,
    /// The originals are kept.
    pub(super) has_originals: bool,
}

/// A file that gets new content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Relative to the workspace.
    #[serde(with = "as_path")]
    pub(super) path: PathBuf,
    #[serde(with = "as_text")]
    pub(super) before: Digest,
    #[serde(with = "as_text")]
    pub(super) after: Digest,
    /// Where its original begins in the file of originals.
    pub(super) at: u64,
    /// Bytes of the original.
    pub(super) len: u64,
    /// What lies beside the file while it is written.
    #[serde(with = "as_text")]
    pub(super) tag: StagedTag,
}

/// An entry as it was read.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) began: Began,
    pub(super) steps: Vec<Step>,
    pub(super) wrote: BTreeSet<usize>,
    pub(super) torn: BTreeMap<usize, Digest>,
    pub(super) has_ended: bool,
    pub(super) is_swept: bool,
    pub(super) undone_by: Option<String>,
}

impl Line {
    /// The line with its line break.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

impl Manifest {
    /// Reads an entry. A line that is none is passed over: a death has cut it.
    ///
    /// # Errors
    /// What read(2) says; `InvalidData` if it does not begin as an entry, or is larger than any.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut found = Self::default();
        let mut reader = BufReader::new(file.take(MAX_BYTES + 1));
        let (mut line, mut n_bytes, mut n_lines) = (Vec::new(), 0, 0_usize);
        while reader.read_until(b'\n', &mut line)? != 0 {
            n_bytes += line.len() as u64;
            let parsed = serde_json::from_slice(&line);
            line.clear();
            // The first line is there or nothing is.
            let Ok(parsed) = parsed else { if n_lines == 0 { break } else { continue } };
            match parsed {
                Line::Began(began) if n_lines == 0 && began.v == 1 => found.began = began,
                _ if n_lines == 0 => break,
                Line::Began(_) => break,
                Line::Step(step) => found.steps.push(step),
                Line::Wrote(n) => _ = found.wrote.insert(n),
                Line::Torn(n, digest) => _ = found.torn.insert(n, digest),
                Line::Ended => found.has_ended = true,
                Line::Swept => found.is_swept = true,
                Line::Undone(by) => found.undone_by = Some(by),
            }
            n_lines += 1;
        }
        if n_lines == 0 || MAX_BYTES < n_bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(found)
    }
}

/// Whether the last lines of an entry say that all is done, without reading all of it.
pub(super) fn has_ended(mut file: &File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let ended = Line::Ended.to_bytes()?;
    Ok(tail.split_inclusive(|byte| *byte == b'\n').any(|line| line == ended))
}

/// As text where it has one, else its bytes.
mod as_path {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => to.serialize_str(text),
            None => Written::Bytes(path.as_os_str().as_bytes().to_vec()).serialize(to),
        }
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::Text(text) => text.into(),
            Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

/// By `Display`.
mod as_text {
    use super::*;
    use std::fmt::Display;

    pub(super) trait FromHex: Sized {
        fn from_hex(text: &str) -> Option<Self>;
    }

    impl FromHex for Digest {
        fn from_hex(text: &str) -> Option<Self> {
            Self::from_hex(text)
        }
    }

    impl FromHex for StagedTag {
        fn from_hex(text: &str) -> Option<Self> {
            Self::from_hex(text)
        }
    }

    pub(super) fn serialize<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'a, T: FromHex, D: Deserializer<'a>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        T::from_hex(&text).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn step(path: &[u8]) -> Line {
        Line::Step(Step {
            path: OsString::from_vec(path.to_vec()).into(),
            before: Digest::of(b"1"),
            after: Digest::of(b"2"),
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
        let began = Began { v: 1, undoes: Some("1-0".into()), depth: 1, has_originals: true };
        let lines = [
            Line::Began(began.clone()),
            step(b"a \"\n"),
            step(b"\xff"),
            Line::Wrote(1),
            Line::Torn(0, Digest::of(b"3")),
            Line::Ended,
            Line::Undone("2-0".into()),
        ];
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line.to_bytes().unwrap()).collect();
        let file = written(&bytes);
        let found = Manifest::read(&file).unwrap();
        assert_eq!(found.began, began);
        let steps: Vec<Line> = found.steps.into_iter().map(Line::Step).collect();
        assert_eq!(steps, lines[1..3]);
        assert_eq!((found.wrote.len(), found.torn.len(), found.is_swept), (1, 1, false));
        assert_eq!(found.undone_by.as_deref(), Some("2-0"));
        assert!(found.has_ended && has_ended(&file).unwrap());

        let first = lines[0].to_bytes().unwrap().len();
        for end in 0..bytes.len() {
            let file = written(&bytes[..end]);
            // The line break is not needed to know a line.
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
        let began = Line::Began(Began { v: 1, ..Began::default() }).to_bytes().unwrap();
        let bad =
            [&began[..], b"{\"step\":{\"path\":\"a\",\"before\":\"0\"}}\n\"ended\"\n"].concat();
        let found = Manifest::read(&written(&bad)).unwrap();
        assert!(found.steps.is_empty() && found.has_ended);
    }
}
