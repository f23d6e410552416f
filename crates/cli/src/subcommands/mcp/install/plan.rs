//! Plans the new text of one file. Reads and writes nothing.

use super::change::{Change, Made};
use super::document::Format;
use super::receipts::{Receipt, digest};
use std::path::Path;

/// New text of a file.
#[derive(Debug)]
pub(super) struct Planned {
    /// `None`: the file is absent.
    pub(super) text: Option<String>,
    pub(super) receipt: Option<Receipt>,
}

/// Plans an install. Settings of an earlier install that `changes` lacks are reverted.
///
/// # Errors
/// The file cannot be parsed, or has another kind of value at a path.
pub(super) fn install(
    format: Format,
    path: &Path,
    text: Option<&str>,
    old: Option<&Receipt>,
    changes: &[Change],
) -> anyhow::Result<Planned> {
    let restored = old.zip(text).and_then(|(old, text)| old.restore(text));
    let mut kept: Vec<Made> = Vec::new();
    let mut is_exact = true;
    let before = match (restored, text, old) {
        (Some(before), ..) => before,
        (None, Some(text), Some(old)) => {
            // Another program changed the file. Only a semantic uninstall is possible from here on.
            is_exact = false;
            let is_wanted = |made: &&Made| changes.iter().any(|change| made.is_at(change.path()));
            kept = old.made.iter().filter(is_wanted).cloned().collect();
            let mut text = text.to_owned();
            for made in old.made.iter().rev().filter(|made| !is_wanted(made)) {
                text = made.revert(format, &text)?;
            }
            Some(text)
        }
        (None, text, _) => text.map(str::to_owned),
    };
    let existed = before.is_some() || !is_exact;
    let mut new = before.clone().unwrap_or_default();
    let mut steps = Vec::new();
    for change in changes {
        let applied = change.apply(format, &new)?;
        is_exact &= !applied.replaced;
        new = applied.text;
        if let Some((made, step)) = applied.made {
            steps.push(step);
            if !kept.iter().any(|kept| kept.is_at(change.path())) {
                kept.push(made);
            }
        }
    }
    if before.is_none() && changes.is_empty() {
        return Ok(Planned { text: None, receipt: None });
    }
    let receipt = (!kept.is_empty()).then(|| Receipt {
        path: path.to_owned(),
        existed,
        after: digest(&new),
        steps: is_exact.then_some(steps),
        made: kept,
    });
    Ok(Planned { text: Some(new), receipt })
}

/// Plans an uninstall. Without a receipt, only the entry at `entry` is removed.
///
/// # Errors
/// The file cannot be parsed.
pub(super) fn uninstall(
    format: Format,
    text: Option<&str>,
    old: Option<&Receipt>,
    entry: Option<&[&str]>,
) -> anyhow::Result<Planned> {
    let Some(text) = text else { return Ok(Planned { text: None, receipt: None }) };
    if let Some(before) = old.and_then(|old| old.restore(text)) {
        return Ok(Planned { text: before, receipt: None });
    }
    let unrecorded = entry.map(Made::entry);
    let made = old.map_or(&[][..], |old| &old.made);
    let mut new = text.to_owned();
    for made in made.iter().rev().chain(&unrecorded) {
        new = made.revert(format, &new)?;
    }
    Ok(Planned { text: Some(new), receipt: None })
}
