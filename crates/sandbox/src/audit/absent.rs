//! The audit outside Linux: there is none yet. Nothing is found, and no report is complete.

use super::{Budget, Change, Planted, Report};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// What a start has found out; nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known;

/// The watched names at one moment; nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names;

impl Names {
    /// Looks at nothing.
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

/// What is remembered of a workspace; nothing here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot(Names);

impl Snapshot {
    /// Remembers nothing.
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

    /// The watched names of that time.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.0
    }

    /// Finds nothing.
    ///
    /// # Errors
    /// None.
    pub fn changes_blocking(&self, _root: impl AsFd) -> io::Result<Vec<Change>> {
        Ok(Vec::new())
    }

    /// Nothing to compare with.
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
        _removes: bool,
    ) -> io::Result<Option<(Checked, Vec<Planted>)>> {
        Ok(None)
    }
}

/// State of a workspace after a check; nothing here.
#[derive(Debug)]
pub struct Checked;

impl Checked {
    /// Finds nothing.
    #[must_use]
    pub fn changes(&self, _now: &Self) -> Vec<Change> {
        Vec::new()
    }
}

/// Finds nothing, and says that it is not complete.
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
