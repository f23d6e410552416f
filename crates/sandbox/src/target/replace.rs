//! The replacement of a file's content in one step, and when the new content is flushed to the disk.

use super::{
    EXISTING, OtherNames, ReplaceMethod, StagedContent, Target, open_failed, write_failed,
};
use crate::WriteError;
use crate::staged::StagedTag;
use crate::version::FileVersion;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use std::fs::File;
use std::path::Path;

impl StagedContent {
    /// Begins to write the staged content, if the file system keeps the order of this content and the rename. Returns
    /// false if the content must be synced before the rename.
    fn begin_ordered(&self) -> Result<bool, WriteError> {
        let may_follow = self.way != ReplaceMethod::Into
            && crate::platform::flush::may_follow(&self.staged.file);
        if may_follow {
            crate::platform::flush::begin(&self.staged.file).map_err(write_failed)?;
        }
        Ok(may_follow)
    }
}

impl Target {
    /// Replaces the content atomically: after a crash or a power cut the file has the old or the new content. Mode,
    /// owner and attributes stay. The target then holds the new file, still locked.
    ///
    /// Where the file system keeps the order of data and names, the content is flushed to the disk about 100 ms later;
    /// otherwise before the return.
    ///
    /// If the file has several names, only this one gets the new content and becomes a separate file, because the
    /// others may be outside the root.
    ///
    /// A file whose owner cannot be kept is written in place instead, if it has no other name, and so is a mount point.
    /// Until that is done, a copy of the old content is next to it.
    ///
    /// # Errors
    /// [`WriteError::Changed`] if the name no longer has the state of [`Target::version`]; [`WriteError::GivenUp`];
    /// [`WriteError::Io`], also for a file with several names whose owner cannot be kept. The old content is intact
    /// then.
    pub fn replace(
        &mut self,
        content: &[u8],
        give_up: &dyn Fn() -> bool,
    ) -> Result<FileVersion, WriteError> {
        let tag = StagedTag::random().map_err(open_failed)?;
        let staged = self.stage(content, tag, OtherNames::Leave)?;

        let is_ordered = staged.begin_ordered()?;
        if !is_ordered {
            staged.sync()?;
        }

        let version = self.put(staged, content, give_up)?;
        if !(is_ordered && self.sync_later(version)) {
            self.sync()?;
        }
        Ok(version)
    }

    /// Deletes the file at the name, which must still have the state of [`Target::version`]. The deletion is durable after
    /// [`Target::sync_parent`].
    ///
    /// # Errors
    /// [`WriteError::Changed`], also if there is no file; [`WriteError::GivenUp`]; [`WriteError::Io`].
    pub fn delete(&mut self, give_up: &dyn Fn() -> bool) -> Result<(), WriteError> {
        if self.existing.is_none() {
            return Err(WriteError::Changed);
        }
        self.check_unchanged(give_up)?;
        let deleted = sys::unlinkat(&self.parent, &self.name, AtFlags::empty());
        deleted.map_err(|errno| WriteError::Io { call: "unlink", source: errno.into() })?;
        self.existing = None;
        Ok(())
    }

    /// Whether the user has mounted something on the name. The kernel replaces no mount point (rename(2)).
    pub(super) fn is_mount_point(&self) -> bool {
        let is_mount_point = crate::confine::is_mount_point(&self.parent, Path::new(&self.name));
        is_mount_point.is_ok_and(|is_mount_point| is_mount_point == Some(true))
    }

    /// Has the new file flushed behind the answer. Returns false if the caller must do it.
    fn sync_later(&self, version: FileVersion) -> bool {
        // Not a clone of the own handle: it would keep the file locked.
        let flags = OFlags::RDONLY | EXISTING;
        let Ok(file) = sys::openat(&self.parent, &self.name, flags, Mode::empty()) else {
            return false;
        };
        let file = File::from(file);
        // Another program may have replaced the file already. Then its content no longer matters.
        file.metadata().is_ok_and(|now| FileVersion::of(&now).file() != version.file())
            || crate::platform::flush::later(file, &self.parent, &self.at)
    }

    /// Flushes the file and its name.
    fn sync(&self) -> Result<(), WriteError> {
        if let Some(existing) = &self.existing {
            existing.file.sync_all().map_err(write_failed)?;
        }
        self.sync_parent()
    }
}
