//! Stub of the audit for other systems than Linux. It finds nothing, and its reports are incomplete.

use crate::audit::{Budget, Change, Planted, Report};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Repositories found at startup. Always empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known;

/// State of the watched names. Always empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WatchedNames;

impl WatchedNames {
    /// Reads nothing.
    ///
    /// # Errors
    /// None.
    pub fn look_blocking(_root: impl AsFd) -> io::Result<Self> {
        Ok(Self)
    }

    /// Finds nothing.
    #[must_use]
    pub fn changes(&self, _now: &Self) -> Vec<Change> {
        Vec::new()
    }
}

/// State of a workspace. Always empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot(WatchedNames);

impl Snapshot {
    /// Records nothing.
    ///
    /// # Errors
    /// None.
    pub fn take_blocking(
        _root: impl AsFd,
        _path: &Path,
        _known: Option<Known>,
    ) -> io::Result<Self> {
        Ok(Self::default())
    }

    /// Returns the recorded names.
    #[must_use]
    pub fn names(&self) -> &WatchedNames {
        &self.0
    }

    /// Finds nothing.
    ///
    /// # Errors
    /// None.
    pub fn changes_blocking(&self, _root: impl AsFd) -> io::Result<Vec<Change>> {
        Ok(Vec::new())
    }

    /// Returns an empty state.
    #[must_use]
    pub fn unchecked(&self) -> Checked {
        Checked
    }

    /// Finds nothing.
    ///
    /// # Errors
    /// None.
    pub fn check_blocking(
        &self,
        _before: &Checked,
        _root: impl AsFd,
        _path: &Path,
        _since: Option<std::time::SystemTime>,
    ) -> io::Result<Option<Check>> {
        Ok(None)
    }
}

/// Result of a check. None exists.
#[derive(Debug)]
pub struct Check {
    /// State after the check.
    pub checked: Checked,
    /// Names in git directories by which git would write to another file.
    pub planted: Vec<Planted>,
    /// Files that made git run a program.
    pub set_aside: Vec<SetAside>,
    /// Number of repositories that were not checked.
    pub n_unchecked: usize,
}

/// A file that makes git run a program. None is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Path of the file.
    pub path: String,
    /// The setting or kind of file.
    pub why: String,
    /// Path of the file now.
    pub kept_as: Option<String>,
}

/// State of a workspace after a check. Always empty.
#[derive(Debug)]
pub struct Checked;

impl Checked {
    /// Finds nothing.
    #[must_use]
    pub fn changes(&self, _now: &Self) -> Vec<Change> {
        Vec::new()
    }
}

/// Returns an empty report that is marked as incomplete.
///
/// # Errors
/// None.
pub fn audit_blocking(
    _root: impl AsFd,
    _path: &Path,
    _before: Option<&Snapshot>,
    _budget: Budget,
) -> io::Result<Report> {
    Ok(Report::default())
}
