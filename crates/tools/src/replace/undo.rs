//! undo: reverts a replacement of this session.

use super::text::{closing, counted, denials, interrupted, left};
use super::{CallContext, ReplaceToolError, bounded, data, write};
use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::caller_dir::CallerDir;
use crate::parameters::{BadParameter, Parameters};
use crate::replace::journal::{
    InterruptedReplace, Listed, UndoError, Undone, Which, list_blocking, older_ones, undo_blocking,
};
use crate::search_common::capitalised;
use crate::{Call, Confinement, Output, Toolbox};
use quackd_sandbox::Root;
use std::sync::Arc;

pub(crate) async fn undo(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let wanted = read(arguments);
    // A list changes nothing. A refusal comes before errors in the other arguments.
    let is_list = matches!(wanted, Ok((_, true)));
    if !is_list && let Some(refused) = toolbox.refuse_change(call, "undo") {
        return refused;
    }
    let (which, is_list) = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return Output::error(error),
    };
    if is_list {
        let hold = CallContext::of(toolbox, root);
        let listed = bounds.run_blocking(move || list_blocking(hold.session())).await;
        return match listed {
            Ok((entries, found)) => list(&entries, &found),
            Err(cutoff) => Output::cut_off("undo", bounds, cutoff),
        };
    }
    if let Some(refused) = toolbox.confinement.refuse_read_only(".") {
        return refused;
    }
    let hold = CallContext::of(toolbox, root);
    let undone = write(bounds, move |cancelled| {
        undo_blocking(hold.session(), &which, cancelled).map_err(Failed)
    });
    match undone.await {
        Ok(undone) => bounded(output(&undone, arguments.directory(), &toolbox.confinement)),
        Err(refusal) => refusal.output("undo", bounds),
    }
}

/// Parses the entry to undo, and whether to only list entries.
fn read(arguments: &Arguments) -> Result<(Which, bool), BadParameter> {
    let parameters = Parameters::named("undo", arguments)?;
    let id = parameters.any_text("undo_id")?;
    let which = match id.as_deref().map(str::trim) {
        None | Some("last") => Which::Last,
        // An empty id must not undo the last replacement: the caller may have lost the id.
        Some("") => return Err(BadParameter::Other("Parameter 'undo_id' is empty".to_owned())),
        Some(id) => Which::Id(id.to_owned()),
    };
    Ok((which, parameters.is_set("list")?))
}

/// Lists the entries, one per line, newest first.
fn list(entries: &[Listed], found: &[InterruptedReplace]) -> Output {
    let line = |entry: &Listed| {
        let mut line = format!("{}  {}", entry.id, counted(entry.n_files as u64, "file", "files"));
        for (what, id) in [("undoes", &entry.undoes), ("undone by", &entry.undone_by)] {
            if let Some(id) = id {
                line.push_str(&format!(", {what} {id}"));
            }
        }
        for (is_so, what) in
            [(!entry.has_originals, "no backup"), (!entry.has_ended, "interrupted")]
        {
            if is_so {
                line.push_str(&format!(", {what}"));
            }
        }
        line
    };
    let mut lines: Vec<String> = entries.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("Nothing to undo".to_owned());
    }
    lines.extend(found.iter().map(interrupted));
    let mut output = Output::success(lines.join("\n"));
    output.data = Some(data::of_list(entries).into());
    output
}

/// Error answer of the tool.
#[derive(Debug)]
struct Failed(UndoError);

impl From<Failed> for ReplaceToolError {
    fn from(Failed(error): Failed) -> Self {
        Self::Parameter(BadParameter::Other(capitalised(&error.to_string())))
    }
}

fn output(undone: &Undone, directory: &CallerDir, confinement: &Confinement) -> Output {
    let mut seen = undone.clone();
    directory.show_all(seen.applied.files.iter_mut().map(|report| &mut report.path));
    let applied = &seen.applied;
    let n_restored = applied.n_written();
    let is_failed = n_restored == 0 && !applied.files.is_empty();
    let mut lines = vec![if is_failed {
        format!("Error: None of the files of {} could be restored", undone.id)
    } else {
        let files = counted(n_restored as u64, "file", "files");
        format!("Undid {}: restored {files}", undone.id)
    }];
    lines.extend(left(&applied.files, "Not restored"));
    lines.extend(closing(applied));
    let denied = denials(&undone.applied.files, confinement);
    lines.extend(denied.first().map(|denial| confinement.explain(denial)));
    if let Some(older) = older_ones(&undone.older) {
        lines.push(format!("[{}]", capitalised(&older)));
    }
    if let Some(id) = &applied.undo_id {
        lines.push(format!("[To make the changes again: undo with undo_id {id}]"));
    }
    let mut output = Output::success(lines.join("\n"));
    output.report.is_error = is_failed;
    output.report.denials = denied;
    output.data = Some(data::of_undo(&seen).into());
    output.wrote(undone.applied.written())
}
