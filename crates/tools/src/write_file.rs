//! write_file: new content for one file beneath the workspace, whole or not at all.

use crate::arguments::Arguments;
use crate::bounds::{Bounds, CancelOnDrop};
use crate::read_file::PATH;
use crate::seen::SeenFiles;
use crate::write_failure::WriteFailure;
use crate::{Call, Confinement, Output, Toolbox};
use quackd_sandbox::{Purpose, Root, Target, WriteError};
use std::sync::Arc;

/// How often a file that others write at the same moment is tried again.
pub(crate) const MAX_ATTEMPTS: usize = 2;

pub(crate) async fn write_file(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    if toolbox.safe_mode || call.safe_mode {
        return Output::error("write_file is disabled in safe mode");
    }
    if let Some(refused) = toolbox.confinement.refuse_unconfined("write_file") {
        return refused;
    }
    let Some(path) = arguments.text(PATH) else {
        return Output::error("Missing required parameter 'path'");
    };
    let Some(content) = arguments.any_text("content") else {
        return Output::error("Missing required parameter 'content'");
    };
    if let Some(refused) = toolbox.confinement.refuse_read_only(path) {
        return refused;
    }
    let (path, content) = (path.to_owned(), content.to_owned());
    let (seen, confinement) = (Arc::clone(&toolbox.seen), Arc::clone(&toolbox.confinement));
    // What is given up must not be written a moment later.
    let cancel = CancelOnDrop::default();
    let give_up = bounds.give_up(&cancel);
    let written = bounds
        .run_blocking(move || write_blocking(&root, &seen, &confinement, &path, &content, &give_up))
        .await;
    match written {
        Ok(Ok(text)) => Output::success(text),
        Ok(Err(failure)) => failure.output("write_file", bounds, &toolbox.confinement),
        Err(cutoff) => Output::cut_off("write_file", bounds, cutoff),
    }
}

fn write_blocking(
    root: &Root,
    seen: &SeenFiles,
    confinement: &Confinement,
    path: &str,
    content: &str,
    give_up: &dyn Fn() -> bool,
) -> Result<String, WriteFailure> {
    let named = |error| WriteFailure::of(error, "write", root, path);
    let mut attempt = 1;
    loop {
        let mut target = open_unprotected(root, confinement, path, Purpose::Write, give_up)?;
        match write_once(&mut target, seen, content, give_up) {
            // It changed in the last moment, which matters only if this session knows what it changed
            // from: the next attempt finds that out.
            Err(WriteError::Changed) if attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(named(error)),
            Ok(()) => {
                return Ok(format!("Successfully wrote {} bytes to {path}", content.len()));
            }
        }
    }
}

/// Opens what `path` names as the target of a write, unless it is protected.
pub(crate) fn open_unprotected(
    root: &Root,
    confinement: &Confinement,
    path: &str,
    purpose: Purpose,
    give_up: &dyn Fn() -> bool,
) -> Result<Target, WriteFailure> {
    let verb = if purpose == Purpose::Write { "write" } else { "edit" };
    // First without touching anything: opening makes missing directories.
    if let Ok(name) = root.real_name(path) {
        WriteFailure::check(&name, confinement)?;
    }
    let target = root
        .open_target(path, purpose, give_up)
        .map_err(|error| WriteFailure::of(error, verb, root, path))?;
    // And the place that was opened: a link may have been swapped meanwhile.
    WriteFailure::check(target.relative(), confinement)?;
    Ok(target)
}

fn write_once(
    target: &mut Target,
    seen: &SeenFiles,
    content: &str,
    give_up: &dyn Fn() -> bool,
) -> Result<(), WriteError> {
    // Both under the target's lock, so that two calls of this session do not refuse each other.
    let known = seen.version_blocking(target.relative());
    if target.version().is_some() && known.is_some() && known != target.version() {
        return Err(WriteError::Changed);
    }
    let version = target.replace(content.as_bytes(), give_up)?;
    seen.remember_blocking(target.relative().to_path_buf(), version);
    Ok(())
}
