//! The state of one path: its content, and the numbers by which the file system shows a change.

use crate::path_text;
use crate::tree::{Place, Tree, is_absent};
use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum size of a file that is copied or compared, in bytes. A larger one is left out and named.
pub(crate) const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// SHA-256 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContentHash([u8; 32]);

impl ContentHash {
    pub(crate) fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl From<Sha256> for ContentHash {
    fn from(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({self})")
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'a> Deserialize<'a> for ContentHash {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("not a hash"))
    }
}

/// Content of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Node {
    /// A regular file.
    File {
        hash: ContentHash,
        /// Size in bytes.
        len: u64,
        /// Whether its owner may run it.
        is_executable: bool,
    },
    /// A symbolic link with its target, as written.
    Link(#[serde(with = "path_text")] PathBuf),
    /// A directory, a file above [`MAX_FILE_BYTES`], or a node of another kind. It is never changed.
    Other,
}

/// Time after which the next change of a file surely has another time, in seconds. File systems round times.
const SETTLED_S: u64 = 2;

/// Numbers that differ after every change of a node's content, permissions or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    inode: u64,
    len: u64,
    mode: u32,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    // Types and widths of these fields differ between systems.
    #[allow(clippy::useless_conversion, clippy::allow_attributes, reason = "see above")]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            len: u64::try_from(stat.st_size).unwrap_or(0),
            mode: u32::from(stat.st_mode),
            modified: (stat.st_mtime, u64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            changed: (stat.st_ctime, u64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        }
    }
}

impl Stamp {
    /// As [`Self::of`]. `None` if the last change is so young that another one can have the same time.
    pub(crate) fn of_settled(stat: &Stat) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = Self::of(stat);
        let settled = u64::try_from(stamp.changed.0).ok()?.checked_add(SETTLED_S)?;
        (settled <= now.as_secs()).then_some(stamp)
    }
}

/// Reads the node at a place. `None` if nothing exists.
pub(crate) fn read(place: &Place) -> io::Result<Option<(Node, Stamp)>> {
    let Some(stat) = place.stat()? else { return Ok(None) };
    let node = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Node::Link(place.link()?),
        FileType::RegularFile if Stamp::of(&stat).len <= MAX_FILE_BYTES => {
            let (hash, len) = hash_of(place.file()?)?;
            Node::File { hash, len, is_executable: stat.st_mode & 0o100 != 0 }
        }
        _ => Node::Other,
    };

    // The stamp is from before the read. If the file changed during it, the next comparison reads the file
    // again.
    Ok(Some((node, Stamp::of(&stat))))
}

/// Reads the node at a path. `None` if nothing exists.
pub(crate) fn read_at(tree: &Tree, path: &Path) -> io::Result<Option<(Node, Stamp)>> {
    match tree.place(path) {
        Ok(place) => read(&place),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hashes a file. Fails with `FileTooLarge` above [`MAX_FILE_BYTES`].
pub(crate) fn hash_of(file: impl Read) -> io::Result<(ContentHash, u64)> {
    // One byte more shows that the file grew above the limit since its size was checked.
    let (hash, len) = copy_hashed(&mut file.take(MAX_FILE_BYTES + 1), &mut io::sink())?;
    if MAX_FILE_BYTES < len {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok((hash, len))
}

/// Copies a content. Returns its hash and length.
pub(crate) fn copy_hashed(
    source: &mut impl Read,
    to: &mut impl Write,
) -> io::Result<(ContentHash, u64)> {
    let (mut hasher, mut len) = (Sha256::new(), 0_u64);
    let mut piece = vec![0; 128 * 1024];
    loop {
        let n = match source.read(&mut piece) {
            Ok(0) => return Ok((hasher.into(), len)),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };

        let read = piece.get(..n).unwrap_or_default();
        hasher.update(read);
        to.write_all(read)?;
        len += n as u64;
    }
}
