//! Typed reader for the data of `replace`. The data comes from a worker and may be faulty: missing fields get defaults.

use serde::Deserialize;

/// Changes of a replacement or a dry run.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Changes {
    /// Planned files, up to the tool's limit.
    pub(crate) files: Vec<FileChange>,
    /// Written changes.
    totals: Totals,
    /// Totals of the planned changes, also of a dry run.
    planned: Totals,
    /// Files that could not be planned.
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) skipped_count: usize,
    pub(crate) plan_id: Option<String>,
    pub(crate) undo_id: Option<String>,
    /// Whether the search timed out, so that nothing was written.
    pub(crate) timed_out: bool,
    /// Whether patches were cut because of their total size.
    diffs_cut: bool,
    /// Reason for an early stop.
    pub(crate) stopped: Option<String>,
    /// Earlier replacements interrupted by a crash.
    pub(crate) interrupted: Vec<InterruptedReplace>,
    pub(crate) notes: Vec<String>,
}

/// Number of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    pub(crate) files: usize,
    pub(crate) lines: usize,
    pub(crate) replacements: usize,
}

/// Changed file.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FileChange {
    /// Path of the file, as the tool names it.
    pub(crate) path: String,
    pub(crate) lines_changed: usize,
    pub(crate) replacements: usize,
    /// Patch, if requested.
    pub(crate) diff: Option<String>,
    /// Whether the patch can be applied. Absent means true.
    diff_exact: Option<bool>,
    /// Encoding in which the file was read and written.
    pub(crate) encoding: String,
    pub(crate) written: bool,
    /// Whether the file had other hard links, which keep the old content.
    pub(crate) detached: bool,
    /// Reason why the file was not written.
    pub(crate) reason: Option<String>,
}

/// File that was not changed.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Skipped {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Replacement interrupted by a crash.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InterruptedReplace {
    pub(crate) undo_id: String,
}

impl Changes {
    /// Returns the planned changes of a dry run, else the written ones.
    pub(crate) fn totals(&self, is_dry_run: bool) -> Totals {
        if is_dry_run { self.planned } else { self.totals }
    }

    /// Whether the patches are complete.
    pub(crate) fn is_whole_patch(&self) -> bool {
        let n_patches = self.files.iter().filter(|change| change.diff.is_some()).count();
        !self.diffs_cut && n_patches == self.planned.files
    }

    /// Returns the files whose patch cannot represent all bytes and so cannot be applied.
    pub(crate) fn inexact(&self) -> impl Iterator<Item = &FileChange> {
        self.files.iter().filter(|change| change.diff_exact == Some(false))
    }

    /// Whether all planned changes were written.
    pub(crate) fn is_whole(&self) -> bool {
        self.stopped.is_none() && self.totals.files == self.planned.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_makes_neither_a_patch_nor_a_replacement_whole() {
        for (data, patch, whole) in [
            (json!({}), true, true),
            (json!({"files": [{"diff": "x"}], "planned": {"files": 1}}), true, false),
            (
                json!({"files": [{"diff": "x"}], "planned": {"files": 1}, "diffsCut": true}),
                false,
                false,
            ),
            (json!({"files": [{"diff": "x"}, {}], "planned": {"files": 2}}), false, false),
            (json!({"files": [{}], "planned": {"files": 1}, "totals": {"files": 1}}), false, true),
            (
                json!({"totals": {"files": 1}, "planned": {"files": 1}, "stopped": "full"}),
                false,
                false,
            ),
        ] {
            let changes = Changes::deserialize(&data).unwrap();
            assert_eq!((changes.is_whole_patch(), changes.is_whole()), (patch, whole), "{data}");
        }
        assert!(Changes::deserialize(&json!({"files": 3})).is_err());
    }
}
