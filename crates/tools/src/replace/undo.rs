//! undo: takes back replacements and changes of this session, and lists them.

use super::text::{closing, counted, denials, interrupted, left, names};
use super::{CallContext, ReplaceToolError, bounded, data, write};
use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::caller_dir::CallerDir;
use crate::replace::journal::{
    FileDiff, InterruptedReplace, ListRequest, Listed, UndoError, Undone, Which, list_blocking,
    older_ones, undo_blocking,
};
use crate::search_common::capitalised;
use crate::search_common::text::shown;
use crate::{Call, Confinement, Output, Toolbox};
use quackd_protocol::tools::{BadParameter, UNDO, UndoArguments};
use quackd_sandbox::Root;
use std::sync::Arc;

pub(crate) async fn undo(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let params = UndoParams::read(arguments);
    // A list changes nothing. A refusal comes before errors in the other arguments.
    let is_list = matches!(params, Ok(UndoParams::List(_)));
    if !is_list && let Some(refused) = toolbox.refuse_change(call, "undo") {
        return refused;
    }

    let which = match params {
        Ok(UndoParams::Undo(which)) => which,
        Ok(UndoParams::List(request)) => {
            let hold = CallContext::of(toolbox, call, root);
            let listed = bounds.run_blocking(move || list_blocking(hold.session(), &request)).await;
            return match listed {
                Ok((entries, crashed)) => list(entries, &crashed, arguments.directory()),
                Err(cutoff) => Output::cut_off("undo", bounds, cutoff),
            };
        }
        Err(error) => return Output::error(error),
    };

    if let Some(refused) = toolbox.confinement.refuse_read_only(".") {
        return refused;
    }

    let hold = CallContext::of(toolbox, call, root);
    let undone = write(bounds, move |cancelled| {
        undo_blocking(hold.session(), &which, cancelled).map_err(Failed)
    });
    match undone.await {
        Ok(undone) => bounded(output(&undone, arguments.directory(), &toolbox.confinement)),
        Err(refusal) => refusal.output("undo", bounds),
    }
}

/// Parsed arguments.
enum UndoParams {
    Undo(Which),
    List(ListRequest),
}

impl UndoParams {
    fn read(arguments: &Arguments) -> Result<Self, BadParameter> {
        let params = UndoArguments::of(arguments.known(&UNDO)?);
        let (id, call, turn) = (params.undo_id?.0, params.call_id?, params.turn?);

        let id = match id.as_deref().map(str::trim) {
            None => None,
            Some("last") => Some(Which::Last),
            // An empty id must not undo the last change: the caller may have lost the id.
            Some("") => {
                return Err(BadParameter::Other("Parameter 'undo_id' is empty".to_owned()));
            }
            Some(id) => Some(Which::Id(id.to_owned())),
        };
        let call = call.map(|call| Which::Call(call.trim().to_owned()));
        let turn = turn.map(|turn| Which::Turn((turn != 0).then_some(turn)));

        let mut given = [id, call, turn].into_iter().flatten();
        let which = given.next();
        if given.next().is_some() {
            let why = "Parameters 'undo_id', 'call_id' and 'turn' exclude each other";
            return Err(BadParameter::Other(why.to_owned()));
        }

        if params.list? {
            let has_diffs = params.diff?;
            return Ok(Self::List(ListRequest { which, has_diffs }));
        }
        Ok(Self::Undo(which.unwrap_or(Which::Last)))
    }
}

/// Maximum number of changes in the text of a list.
const MAX_SHOWN: usize = 100;

/// Lists the changes, one per line, newest first.
fn list(mut entries: Vec<Listed>, crashed: &[InterruptedReplace], directory: &CallerDir) -> Output {
    let files = entries.iter_mut().flat_map(|entry| &mut entry.files);
    directory.show_all(files.map(|file| &mut file.path));

    let mut lines: Vec<String> = entries.iter().take(MAX_SHOWN).map(line).collect();
    if lines.is_empty() {
        lines.push("Nothing to undo".to_owned());
    }
    if MAX_SHOWN < entries.len() {
        lines.push(format!("[{} older ones]", entries.len() - MAX_SHOWN));
    }
    lines.extend(crashed.iter().map(interrupted));

    let mut output = Output::success(lines.join("\n"));
    output.data = Some(data::of_list(&entries).into());
    bounded(output)
}

fn line(entry: &Listed) -> String {
    let mut line = match entry.files.first() {
        Some(file) if entry.is_single => {
            format!("{}  {}: {} by {}", entry.id, shown(&file.path), file.kind.name(), entry.tool)
        }
        _ => format!("{}  {}", entry.id, counted(entry.n_files as u64, "file", "files")),
    };

    if let Some(turn) = &entry.origin.turn {
        line.push_str(&format!(", turn {}", turn.number));
    }
    for (what, id) in [("undoes", &entry.undoes), ("undone by", &entry.undone_by)] {
        if let Some(id) = id {
            line.push_str(&format!(", {what} {id}"));
        }
    }

    for (is_so, what) in [(!entry.has_originals, "no backup"), (!entry.has_ended, "interrupted")] {
        if is_so {
            line.push_str(&format!(", {what}"));
        }
    }

    for file in &entry.files {
        match &file.diff {
            Some(FileDiff::Unified(diff)) => line.push_str(&format!("\n{}", diff.trim_end())),
            Some(FileDiff::None(why)) => {
                line.push_str(&format!("\n{}: no diff, {why}", shown(&file.path)));
            }
            None => {}
        }
    }

    line
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
    directory.show_all(seen.partly.iter_mut().chain(&mut seen.deleted));

    let applied = &seen.applied;
    let n_restored = applied.n_written();
    let is_failed = n_restored == 0 && !applied.files.is_empty();
    let mut lines = vec![if is_failed {
        format!("Error: None of the files of {} could be restored", undone.what)
    } else {
        let files = counted(n_restored as u64, "file", "files");
        format!("Undid {}: restored {files}", undone.what)
    }];

    if !seen.deleted.is_empty() {
        lines.push(format!("Deleted, because the change had created it: {}", names(&seen.deleted)));
    }
    if !seen.partly.is_empty() {
        let names = names(&seen.partly);
        lines.push(format!(
            "Restored to what another program had written between the changes: {names}"
        ));
    }

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
