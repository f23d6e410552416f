//! Results of replacements as structured data.

use super::output::ReplaceOutput;
use crate::replace::journal::{
    Applied, EarlyStop, FileDiff, FileReport, InterruptedReplace, Listed, ListedFile, Undone,
    WriteOutcome, detached,
};
use crate::search_common::data::{named, notes};
use quackd_search::replace::{FilePlan, SkippedFile};
use serde_json::{Map, Value, json};

/// Maximum number of listed files. Further files are only counted.
const MAX_FILES: usize = 5_000;

/// Returns the result of a replacement or of a dry run.
pub(crate) fn of_replacement(done: &ReplaceOutput) -> Value {
    let plan = &*done.plan;
    let reports = done.applied.as_ref().map(|applied| applied.files.as_slice());
    let report = |at: usize| reports.and_then(|reports| reports.get(at));

    let files: Vec<Value> = plan
        .files
        .iter()
        .enumerate()
        .take(MAX_FILES)
        .map(|(at, planned)| file(planned, report(at)))
        .collect();

    let written = done.written();
    let mut messages = notes(&plan.notes);
    messages.extend(done.applied.as_ref().and_then(|applied| detached(&applied.files)));

    let mut data = json!({
        "files": files,
        "filesListed": files.len(),
        "totals": {
            "files": written.len(),
            "lines": written.iter().map(|file| file.lines_changed).sum::<u64>(),
            "replacements": written.iter().map(|file| file.replacements).sum::<u64>(),
        },
        "planned": {
            "files": plan.files.len(),
            "lines": plan.lines_changed,
            "replacements": plan.replacements,
        },
        "skipped": plan.skipped.iter().map(skipped).collect::<Vec<_>>(),
        "skippedCount": plan.skipped_count,
        "dryRun": done.is_dry_run,
        "planId": done.plan_id,
        "undoId": undo_id(done.applied.as_ref()),
        "filesSearched": plan.files_searched,
        "timedOut": plan.timed_out,
        "diffsCut": plan.diffs_cut,
        "elapsedMs": u64::try_from(plan.elapsed.as_millis()).unwrap_or(u64::MAX),
        "notes": messages,
    });

    if let (Some(applied), Value::Object(members)) = (&done.applied, &mut data) {
        members.extend(ending(applied));
    }
    data
}

/// Returns the result of an undo.
pub(crate) fn of_undo(undone: &Undone) -> Value {
    let Undone { what, applied, partly, deleted, older } = undone;

    let files: Vec<Value> = applied
        .files
        .iter()
        .take(MAX_FILES)
        .map(|report| {
            let mut object = named(&report.path);
            describe(&mut object, report, "restored");
            for (name, paths) in [("partly", partly), ("deleted", deleted)] {
                if paths.contains(&report.path) {
                    object.insert(name.to_owned(), true.into());
                }
            }
            object.into()
        })
        .collect();

    let mut data = json!({
        "undone": what,
        "undoId": undo_id(Some(applied)),
        "files": files,
        "restored": applied.n_written(),
    });

    if let Value::Object(members) = &mut data {
        members.extend(ending(applied));
        if let Some(note) = detached(&applied.files) {
            members.insert("notes".to_owned(), json!([note]));
        }
        if !older.is_empty() {
            let older: Vec<String> = older.iter().map(ToString::to_string).collect();
            members.insert("olderUndoIds".to_owned(), older.into());
        }
    }
    data
}

/// Returns the list of changes, newest first.
pub(crate) fn of_list(entries: &[Listed]) -> Value {
    json!({"entries": entries.iter().map(listed).collect::<Vec<_>>()})
}

fn listed(it: &Listed) -> Value {
    let turn = it.origin.turn.as_ref();
    json!({
        "undoId": it.id.to_string(),
        "atMs": it.at_ms,
        "tool": it.tool,
        "callId": it.origin.call,
        "turn": turn.map(|turn| turn.number),
        "daemonStartedAt": turn.map(|turn| turn.daemon.as_str()),
        "files": it.n_files,
        "changes": it.files.iter().map(listed_file).collect::<Vec<_>>(),
        "undoes": it.undoes,
        "undoneBy": it.undone_by,
        "backup": it.has_originals,
        "interrupted": !it.has_ended,
    })
}

fn listed_file(file: &ListedFile) -> Value {
    let mut object = named(&file.path);
    object.insert("change".to_owned(), file.kind.name().into());
    match &file.diff {
        Some(FileDiff::Unified(diff)) => object.insert("diff".to_owned(), diff.as_str().into()),
        Some(FileDiff::None(why)) => object.insert("noDiff".to_owned(), (*why).into()),
        None => None,
    };
    object.into()
}

/// Removes the diffs from a result: they are in the text.
pub(crate) fn without_diffs(data: &mut Value) {
    let files = data.get_mut("files").and_then(Value::as_array_mut);
    for file in files.into_iter().flatten().filter_map(Value::as_object_mut) {
        file.remove("diff");
    }
}

fn undo_id(applied: Option<&Applied>) -> Option<String> {
    applied?.undo_id.as_ref().map(ToString::to_string)
}

fn file(planned: &FilePlan, report: Option<&FileReport>) -> Value {
    let mut object = named(&planned.path);
    object.insert("linesChanged".to_owned(), planned.lines_changed.into());
    object.insert("replacements".to_owned(), planned.replacements.into());
    object.insert("eol".to_owned(), planned.eol.name().into());
    object.insert("encoding".to_owned(), planned.encoding.name().into());

    match report {
        Some(report) => describe(&mut object, report, "written"),
        None => {
            object.insert("written".to_owned(), false.into());
        }
    }

    if let Some(diff) = &planned.diff {
        object.insert("diff".to_owned(), diff.as_str().into());
        if !planned.is_exact_diff {
            object.insert("diffExact".to_owned(), false.into());
        }
    }
    object.into()
}

fn describe(object: &mut Map<String, Value>, report: &FileReport, done: &str) {
    match &report.outcome {
        WriteOutcome::Written { is_detached } => {
            object.insert(done.to_owned(), true.into());
            if *is_detached {
                object.insert("detached".to_owned(), true.into());
            }
        }
        WriteOutcome::Left(left) => {
            object.insert(done.to_owned(), false.into());
            object.insert("reason".to_owned(), left.to_string().into());
        }
    }
}

/// Returns the optional fields about the end of a replacement.
fn ending(applied: &Applied) -> Map<String, Value> {
    let mut members = Map::new();
    let stopped = match &applied.stopped {
        Some(EarlyStop::Cancelled) => Some("cancelled".to_owned()),
        Some(EarlyStop::Failed(why)) => Some(why.clone()),
        None => None,
    };
    members.extend(stopped.map(|why| ("stopped".to_owned(), why.into())));

    if !applied.interrupted.is_empty() {
        let all: Vec<Value> = applied.interrupted.iter().map(interrupted).collect();
        members.insert("interrupted".to_owned(), all.into());
    }

    if !applied.dropped.is_empty() {
        let all: Vec<String> = applied.dropped.iter().map(ToString::to_string).collect();
        members.insert("droppedUndoIds".to_owned(), all.into());
    }
    members
}

fn interrupted(it: &InterruptedReplace) -> Value {
    json!({"undoId": it.undo_id.to_string(), "newFiles": it.n_new, "oldFiles": it.n_old,
           "tornFiles": it.n_torn, "otherFiles": it.n_other})
}

fn skipped(file: &SkippedFile) -> Value {
    let mut object = named(&file.path);
    object.insert("reason".to_owned(), file.reason.to_string().into());
    object.into()
}
