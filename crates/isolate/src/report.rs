//! The results for clients: each change with its kind and outcome.

use crate::changes::Change;
use crate::error::IsolateError;
use crate::journal::TakenBack;
use crate::manifest::Texts;
use crate::node::{ContentHash, Node};
use crate::notes::Notes;
use crate::plan::{Decision, text_of};
use crate::tree::Tree;
use quackd_protocol::isolate::{
    ApplyOutcome, FileChange, IsolatedFile, IsolatedReport, MAX_ISOLATED_FILES, MAX_ISOLATED_LIST,
    MAX_ISOLATED_TEXT,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// Length of a digest for display, in hexadecimal digits.
const DIGEST_LENGTH: usize = 16;

/// Returns a digest that differs after every change on either side.
pub(crate) fn digest(changes: &[Change]) -> String {
    let mut hasher = Sha256::new();
    for Change { path, common, source, target, .. } in changes {
        // The derived form is unambiguous: it quotes paths.
        hasher.update(format!("{path:?} {common:?} {source:?} {target:?}\n"));
    }
    let mut text = ContentHash::from(hasher).to_string();
    text.truncate(DIGEST_LENGTH);
    text
}

/// Makes the report of a comparison.
pub(crate) fn report(
    decided: &[(Change, Decision)],
    digest: String,
    notes: Notes,
) -> IsolatedReport {
    let conflicts = decided.iter().filter(|(_, one)| one.outcome == ApplyOutcome::Conflict).count();
    let file = |(change, decision): &(Change, Decision)| IsolatedFile {
        path: shown(&change.path),
        change: change.kind(),
        outcome: decision.outcome,
        reason: decision.reason.clone(),
        diff: None,
    };

    let (files, more) = bounded(decided.iter().map(file), decided.len());
    IsolatedReport {
        files,
        more,
        written: false,
        own_references: false,
        conflicts: conflicts as u64,
        digest,
        notes: notes.into_lines(),
    }
}

/// Makes the report of an undo.
pub(crate) fn undone(taken_back: &[TakenBack], notes: Notes) -> IsolatedReport {
    let file = |(step, left): &TakenBack| IsolatedFile {
        path: shown(&step.path),
        change: step.change_back(),
        outcome: if left.is_some() { ApplyOutcome::Left } else { ApplyOutcome::Taken },
        reason: left.map(str::to_owned),
        diff: None,
    };
    restored(taken_back.iter().map(file), taken_back.len(), true, notes)
}

/// Makes the report of files that got an earlier state.
pub(crate) fn restored(
    files: impl Iterator<Item = IsolatedFile>,
    n: usize,
    written: bool,
    notes: Notes,
) -> IsolatedReport {
    let (files, more) = bounded(files, n);
    let notes = notes.into_lines();
    IsolatedReport { files, more, written, notes, ..IsolatedReport::default() }
}

/// Returns the first files, and the number of the others.
fn bounded(files: impl Iterator<Item = IsolatedFile>, n: usize) -> (Vec<IsolatedFile>, u64) {
    let (mut listed, mut left) = (Vec::new(), MAX_ISOLATED_LIST);
    for file in files.take(MAX_ISOLATED_FILES) {
        let Some(rest) = left.checked_sub(json_length(&file)) else { break };
        left = rest;
        listed.push(file);
    }
    let more = n.saturating_sub(listed.len()) as u64;
    (listed, more)
}

/// Length of a value as JSON, in bytes: control characters in names and texts take six each.
fn json_length(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(usize::MAX, |json| json.len())
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Adds the differences between the common content and that of the source.
pub(crate) fn add_texts(
    report: &mut IsolatedReport,
    decided: &[(Change, Decision)],
    source: &Tree,
    texts: &mut Texts,
) -> Result<(), IsolateError> {
    let mut left = MAX_ISOLATED_TEXT;

    // The report has the first changes, in the same order.
    for (file, (change, _)) in report.files.iter_mut().zip(decided) {
        let Some(patch) = patch(change, source, texts)? else { continue };
        match left.checked_sub(json_length(&patch)) {
            Some(rest) => {
                left = rest;
                file.diff = Some(patch);
            }
            None => {
                report.notes.push("further differences are too long to be shown".to_owned());
                break;
            }
        }
    }
    Ok(())
}

/// Returns the difference of a file as unified diff. `None` for other content than text.
fn patch(
    change: &Change,
    source: &Tree,
    texts: &mut Texts,
) -> Result<Option<String>, IsolateError> {
    let old = match (&change.common, change.text) {
        (None, _) => Vec::new(),
        (Some(Node::File { .. }), Some(span)) => texts.read(span)?,
        _ => return Ok(None),
    };
    let new = match &change.source {
        None => Vec::new(),
        Some(Node::File { .. }) => match text_of(source, &change.path)? {
            Some(text) => text,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let (Ok(old), Ok(new)) = (str::from_utf8(&old), str::from_utf8(&new)) else { return Ok(None) };
    let name = shown(&change.path);

    let (from, to) = match (change.kind(), &name) {
        (FileChange::Added, name) => ("/dev/null".to_owned(), format!("b/{name}")),
        (FileChange::Deleted, name) => (format!("a/{name}"), "/dev/null".to_owned()),
        (FileChange::Changed, name) => (format!("a/{name}"), format!("b/{name}")),
    };

    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(from).set_modified_filename(to);
    Ok(Some(options.create_patch(old, new).to_string()))
}
