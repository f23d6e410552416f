//! A file under a name of its own, beside the one that it will replace. Called by `target`.
//!
//! Who must find the file again after a death says under which name it is made, and writes that down first.

use cap_std::fs::Dir;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

/// The attributes that a file keeps when it is replaced: a person's own, and who may use it. Others are
/// made by the system or only root may set them.
#[cfg(target_os = "linux")]
const KEPT_ATTRIBUTES: &[&[u8]] = &[b"user.", ACCESS_LIST];
#[cfg(not(target_os = "linux"))]
const KEPT_ATTRIBUTES: &[&[u8]] = &[b""];

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Longest value of an attribute, and longest list of their names, in bytes (xattr(7)).
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// What tells one staged file from all others. `Display` gives 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StagedTag(u64);

impl StagedTag {
    /// One that nobody else has.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> io::Result<Self> {
        getrandom::u64().map(Self).map_err(io::Error::other)
    }

    /// Reads what `Display` has written.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten()
    }

    /// The name of the file.
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

/// A new file under a name of its own. Removed when it is dropped, unless it was put in place or kept.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) file: File,
    parent: Arc<Dir>,
    name: String,
    is_ours: bool,
}

impl Staged {
    /// Creates an empty file with `mode`, from which the umask is taken.
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

    /// Gives the file the owner, mode and attributes of `old`.
    ///
    /// # Errors
    /// If not all of it could be given; the file would then be another one to its users.
    pub(crate) fn dress_as(&self, old: &File) -> io::Result<()> {
        let (new_metadata, metadata) = (self.file.metadata()?, old.metadata()?);
        if (new_metadata.uid(), new_metadata.gid()) != (metadata.uid(), metadata.gid()) {
            std::os::unix::fs::fchown(&self.file, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        self.copy_attributes(old)?;
        // Last, because the access list and the owner change it. Not the bits that make a program run
        // as its owner: writing into such a file takes them away too (inode(7)).
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
        // A directory may give its new files an access list; the old one had none.
        if !names.split(|byte| *byte == 0).any(|name| name == ACCESS_LIST)
            && attribute_names(&self.file)?.split(|byte| *byte == 0).any(|name| name == ACCESS_LIST)
        {
            sys::fremovexattr(&self.file, ACCESS_LIST)?;
        }
        Ok(())
    }

    /// Puts the file in the place of `name`, which may or may not exist.
    pub(crate) fn replace(mut self, name: &OsStr) -> io::Result<File> {
        sys::renameat(&self.parent, &self.name, &self.parent, name)?;
        self.is_ours = false;
        self.file.try_clone()
    }

    /// Puts the file in the place of `name`, which must not exist.
    ///
    /// # Errors
    /// `EEXIST` if it does.
    pub(crate) fn create_as(mut self, name: &OsStr) -> io::Result<File> {
        let exclusive = RenameFlags::NOREPLACE;
        match sys::renameat_with(&self.parent, &self.name, &self.parent, name, exclusive) {
            Ok(()) => {
                self.is_ours = false;
                self.file.try_clone()
            }
            // Some network file systems cannot do it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.replace(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves the file where it is: it holds what would be lost otherwise.
    pub(crate) fn keep(mut self) {
        self.is_ours = false;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_ours {
            // Nothing better can be done with a file that cannot be removed either.
            let _left = sys::unlinkat(&self.parent, &self.name, AtFlags::empty());
        }
    }
}

/// The names of a file's attributes, each with a NUL byte at its end; none where there are no attributes.
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
