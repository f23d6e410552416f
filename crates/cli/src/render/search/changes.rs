//! The data of `replace` as the verbs use it. Read from what a worker said, which may be wrong: what is
//! missing has a default.

use serde::Deserialize;
use serde_json::Value;

/// What a replacement changed, or would change.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Changes {
    /// The planned files, as far as they are listed.
    pub(crate) files: Vec<Change>,
    /// What was written.
    totals: Totals,
    /// What was to be written.
    planned: Totals,
    /// Files that could not be planned.
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) skipped_count: usize,
    pub(crate) plan_id: Option<String>,
    pub(crate) undo_id: Option<String>,
    /// There was no time to look at everything: nothing was written.
    pub(crate) timed_out: bool,
    /// Patches, or parts of them, were left out because all of them would be too long.
    diffs_cut: bool,
    /// Why it ended before its end.
    pub(crate) stopped: Option<String>,
    /// Earlier replacements that were cut off by a death.
    pub(crate) interrupted: Vec<Interrupted>,
    pub(crate) notes: Vec<String>,
}

/// Numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    pub(crate) files: usize,
    pub(crate) lines: usize,
    pub(crate) replacements: usize,
}

/// One file.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Change {
    /// As the tool gave it.
    pub(crate) path: String,
    pub(crate) lines_changed: usize,
    pub(crate) replacements: usize,
    /// The patch, if one was asked for.
    pub(crate) diff: Option<String>,
    /// The patch can be applied; absent if so.
    diff_exact: Option<bool>,
    /// The file's encoding in one word.
    pub(crate) encoding: String,
    pub(crate) written: bool,
    /// It had other names, which keep the old content.
    pub(crate) detached: bool,
    /// Why it was not written.
    pub(crate) reason: Option<String>,
}

/// A file that was left as it is.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Skipped {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// A replacement that was cut off.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Interrupted {
    pub(crate) undo_id: String,
}

impl Changes {
    /// Reads the data of `replace`.
    ///
    /// # Errors
    /// It has another shape.
    pub(crate) fn read(data: &Value) -> anyhow::Result<Self> {
        Self::deserialize(data)
            .map_err(|error| anyhow::anyhow!("the worker gave an odd answer: {error}"))
    }
    /// What counts: in a dry run what would be written, else what was.
    pub(crate) fn totals(&self, is_dry_run: bool) -> Totals {
        if is_dry_run { self.planned } else { self.totals }
    }

    /// Whether the patches are all of what would change.
    pub(crate) fn is_whole_patch(&self) -> bool {
        let shown = self.files.iter().filter(|change| change.diff.is_some()).count();
        !self.diffs_cut && shown == self.planned.files
    }

    /// Files whose patch is only to be read: it has no words for all of their bytes.
    pub(crate) fn inexact(&self) -> impl Iterator<Item = &Change> {
        self.files.iter().filter(|change| change.diff_exact == Some(false))
    }

    /// Whether all that was to be written was.
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
            let changes = Changes::read(&data).unwrap();
            assert_eq!((changes.is_whole_patch(), changes.is_whole()), (patch, whole), "{data}");
        }
        assert!(Changes::read(&json!({"files": 3})).is_err());
    }
}
