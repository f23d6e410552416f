//! A temporary file next to the file that it will replace. Called by `target`.
//!
//! A caller that must find the file after a crash chooses the tag, and records it before creating the file.

use crate::platform::KEPT_ATTRIBUTES;
use cap_std::fs::Dir;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Maximum size of an attribute's value, and of the list of names, in bytes (xattr(7)).
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// Unique tag of a staged file. `Display` writes 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StagedTag(u64);

impl StagedTag {
    /// Returns a random tag.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        getrandom::u64().map(Self).map_err(io::Error::other)
    }

    /// Parses the output of `Display`.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }

    /// Returns the name of the staged file.
    #[must_use]
    pub fn file_name(self) -> String {
        format!(".quackd-{self}.tmp")
    }
}

impl fmt::Display for StagedTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A new file with a temporary name. Removed when dropped, unless it was renamed to its final name or kept.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) file: File,
    parent: Arc<Dir>,
    name: String,
    is_ours: bool,
}

impl Staged {
    /// Creates an empty file with `mode`, minus the umask.
    pub(crate) fn create(parent: &Arc<Dir>, tag: StagedTag, mode: Mode) -> io::Result<Self> {
        let name = tag.file_name();
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let file = sys::openat(parent, &name, flags, mode)?;
        Ok(Self { file: file.into(), parent: Arc::clone(parent), name, is_ours: true })
    }

    /// Copies the owner, mode and attributes of `old` to the file.
    ///
    /// # Errors
    /// A part could not be copied. Replacing the file would then change it for its users.
    pub(crate) fn dress_as(&self, old: &File) -> io::Result<()> {
        let (new_metadata, metadata) = (self.file.metadata()?, old.metadata()?);
        if (new_metadata.uid(), new_metadata.gid()) != (metadata.uid(), metadata.gid()) {
            std::os::unix::fs::fchown(&self.file, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        self.copy_attributes(old)?;
        // Set the mode last, because the access list and the owner change it. Omit the set-id bits: writing into such
        // a file also clears them (inode(7)).
        self.file.set_permissions(Permissions::from_mode(metadata.mode() & 0o777))
    }

    fn copy_attributes(&self, old: &File) -> io::Result<()> {
        let names = attribute_names(old)?;
        let mut value = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if !KEPT_ATTRIBUTES.iter().any(|kept| name.starts_with(kept)) {
                continue;
            }
            value.resize(MAX_ATTRIBUTE_BYTES, 0);
            let len = sys::fgetxattr(old, name, value.as_mut_slice())?;
            let value = value.get(..len).unwrap_or_default();
            sys::fsetxattr(&self.file, name, value, XattrFlags::empty())?;
        }

        // A directory may give new files a default access list that the old file did not have.
        if !names.split(|byte| *byte == 0).any(|name| name == ACCESS_LIST)
            && attribute_names(&self.file)?.split(|byte| *byte == 0).any(|name| name == ACCESS_LIST)
        {
            sys::fremovexattr(&self.file, ACCESS_LIST)?;
        }
        Ok(())
    }

    /// Renames the file to `name`. Replaces an existing file.
    pub(crate) fn replace(mut self, name: &OsStr) -> io::Result<File> {
        sys::renameat(&self.parent, &self.name, &self.parent, name)?;
        self.is_ours = false;
        self.file.try_clone()
    }

    /// Renames the file to `name`, which must not exist.
    ///
    /// # Errors
    /// `EEXIST` if it exists.
    pub(crate) fn create_as(mut self, name: &OsStr) -> io::Result<File> {
        let exclusive = RenameFlags::NOREPLACE;
        match sys::renameat_with(&self.parent, &self.name, &self.parent, name, exclusive) {
            Ok(()) => {
                self.is_ours = false;
                self.file.try_clone()
            }
            // Some network file systems do not support this flag.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.replace(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the temporary file, because it is the only copy of its content.
    pub(crate) fn keep(mut self) {
        self.is_ours = false;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_ours {
            // If this fails, the file stays: there is no alternative.
            sys::unlinkat(&self.parent, &self.name, AtFlags::empty()).ok();
        }
    }
}

/// Returns the names of a file's attributes, each followed by a NUL byte. Empty if the file system has no attributes.
fn attribute_names(file: &File) -> io::Result<Vec<u8>> {
    let len = match sys::flistxattr_query(file) {
        Ok(0) | Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(len) => len,
        Err(error) => return Err(error.into()),
    };
    let mut names = vec![0; len.min(MAX_ATTRIBUTE_BYTES)];
    let len = sys::flistxattr(file, names.as_mut_slice())?;
    names.truncate(len);
    Ok(names)
}
